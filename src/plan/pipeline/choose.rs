//! Which of the Releases that may be on a Target are there, and which lose to another.

use std::cmp::Reverse;

use crate::api::pipeline::{ReleaseSource, ReleaseSourceKind};

use super::object::ObjectKey;
use super::resolution::{
    AcceptedRelease, KeptRelease, LeftOutReason, LeftOutRelease, MAX_RELEASES, ReleaseObject, Resolution,
    ResolveFailure, UnresolvedRelease,
};
use super::selector::matches;
use super::source::SourceKey;

/// One that may be on the Target.
#[derive(Clone, Debug)]
pub(super) enum Contender<'o> {
    /// Its chart is rendered.
    Accepted(AcceptedRelease<'o>),
    /// It stays as it is.
    Kept(KeptRelease<'o>),
}

impl<'o> Contender<'o> {
    /// The Release.
    pub fn release(&self) -> ObjectKey {
        match self {
            Self::Accepted(release) => release.release.clone(),
            Self::Kept(kept) => ObjectKey::new(&kept.last.namespace, &kept.last.name),
        }
    }

    /// What bound it.
    fn source(&self) -> ReleaseSource {
        match self {
            Self::Accepted(release) => release.source.named(),
            Self::Kept(release) => release.source.clone(),
        }
    }

    /// By the priority, and then by the source, whose parts are in the order of [`ReleaseSource`].
    fn order(&self) -> (Reverse<i32>, &str, &str, ReleaseSourceKind) {
        match self {
            Self::Accepted(release) => {
                let SourceKey { key, kind } = release.source;
                (Reverse(release.priority), &key.namespace, &key.name, kind)
            }
            Self::Kept(release) => {
                let ReleaseSource {
                    namespace,
                    name,
                    kind,
                } = &release.source;
                (Reverse(release.priority), namespace, name, *kind)
            }
        }
    }

    fn unique_name(&self) -> &str {
        match self {
            Self::Accepted(release) => release.unique_name,
            Self::Kept(release) => &release.unique_name,
        }
    }

    /// The object; a Release that is gone excludes none.
    fn object(&self) -> Option<&'o ReleaseObject> {
        match self {
            Self::Accepted(release) => Some(release.object),
            Self::Kept(kept) => kept.object,
        }
    }

    fn excludes(&self, other: &Self) -> bool {
        let selector = self
            .object()
            .and_then(|object| object.spec.as_ref()?.anti_affinity.as_ref());
        let labels = other.object().map(|object| &object.labels);
        selector
            .zip(labels)
            .is_some_and(|(selector, labels)| matches(selector, labels))
    }

    /// It, where more are left than a Target can have.
    fn too_many(&self) -> UnresolvedRelease {
        UnresolvedRelease {
            source: self.source(),
            release: self.release(),
            why: ResolveFailure::TooMany,
        }
    }

    /// Why it cannot be beside one that was chosen before.
    fn loses_to(&self, winner: &Self) -> Option<LeftOutReason> {
        if self.unique_name() == winner.unique_name() {
            Some(LeftOutReason::UniqueName)
        } else if self.excludes(winner) || winner.excludes(self) {
            Some(LeftOutReason::AntiAffinity)
        } else {
            None
        }
    }
}

/// Takes each contender in the order of priority, unless one that was taken before has its unique name or excludes it. Where
/// more are left than a Target can have, the last that it does not `have` yet wait, so that none that it has is pushed out.
pub(super) fn choose<'o>(
    mut contenders: Vec<Contender<'o>>,
    has: impl Fn(&ObjectKey) -> bool,
) -> Resolution<'o> {
    contenders.sort_by(|a, b| a.order().cmp(&b.order()));
    let mut resolution = Resolution::default();
    let (mut chosen, mut beyond): (Vec<Contender<'o>>, Vec<Contender<'o>>) = Default::default();
    for contender in contenders {
        // More are left than the Target can have, so it waits in any case, and each comparison may cost two selectors.
        if chosen.len() > MAX_RELEASES && !has(&contender.release()) {
            beyond.push(contender);
            continue;
        }
        let lost = chosen
            .iter()
            .find_map(|winner| Some((winner, contender.loses_to(winner)?)));
        match lost {
            Some((winner, why)) => resolution.left_out.push(LeftOutRelease {
                source: contender.source(),
                release: contender.release(),
                winner: winner.release(),
                why,
            }),
            None => chosen.push(contender),
        }
    }
    let mut excess = chosen.len().saturating_sub(MAX_RELEASES);
    for contender in chosen.into_iter().rev() {
        if excess > 0 && !has(&contender.release()) {
            excess -= 1;
            resolution.unresolved.push(contender.too_many());
        } else {
            match contender {
                Contender::Accepted(accepted) => resolution.accepted.push(accepted),
                Contender::Kept(kept) => resolution.kept.push(kept),
            }
        }
    }
    resolution.accepted.reverse();
    resolution.kept.reverse();
    resolution.unresolved.reverse();
    resolution
        .unresolved
        .extend(beyond.iter().map(Contender::too_many));
    resolution
}
