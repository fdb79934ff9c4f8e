//! What the conditions of a Target say.

use crate::api::conditions::{ConditionType, DesiredCondition, Reason};

use super::object::ObjectKey;
use super::resolution::{KeptReason, LeftOutReason, Resolution, ResolveFailure};

/// Most objects that a message names.
pub(super) const NAMED: usize = 10;

/// The verdict of one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it holds.
    pub holds: bool,
    /// Why.
    pub reason: Reason,
    /// The same for people.
    pub message: String,
    /// Whether only a person can help.
    pub is_stalled: bool,
}

impl Verdict {
    /// The condition holds.
    #[must_use]
    pub fn good(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            holds: true,
            reason,
            message: message.into(),
            is_stalled: false,
        }
    }

    /// The condition does not hold.
    #[must_use]
    pub fn bad(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            holds: false,
            reason,
            message: message.into(),
            is_stalled: reason.is_stalled(),
        }
    }

    /// The same, where only a person can help although the reason does not say so.
    #[must_use]
    pub fn stalled_if(self, is_stalled: bool) -> Self {
        Self {
            is_stalled: self.is_stalled || is_stalled,
            ..self
        }
    }

    /// The condition of a type.
    #[must_use]
    pub fn of(self, type_: ConditionType) -> DesiredCondition {
        DesiredCondition::new(type_, self.holds, self.reason, self.message)
    }
}

/// `ReleasesResolved`: who was bound, and who lost to whom.
#[must_use]
pub fn resolved(resolution: &Resolution<'_>) -> Verdict {
    if resolution.bound.is_empty() && resolution.kept.is_empty() {
        return Verdict::bad(
            Reason::NoReleaseBindings,
            "no ReleaseBinding names this Target and no Profile matches it; bind a Release, or set allowEmpty to remove what is on the \
             cluster",
        );
    }
    if resolution.accepted.is_empty() && resolution.kept.is_empty() {
        return Verdict::bad(
            Reason::AllReleaseBindingsFiltered,
            format!(
                "no Release that is bound to this Target can be on it: {}",
                unresolved(resolution)
            ),
        );
    }
    if resolution.left_out.is_empty() {
        return Verdict::good(Reason::NoConflicts, "no Release excludes another");
    }
    let left_out = resolution.left_out.iter().map(|release| {
        let why = match release.why {
            LeftOutReason::UniqueName => "has the same unique name",
            LeftOutReason::AntiAffinity => "excludes it",
        };
        format!(
            "{} is left out, because {} {why}",
            release.release, release.winner
        )
    });
    Verdict::good(Reason::Resolved, listed(left_out))
}

/// What keeps `ReleasesRendered` from holding although every accepted chart is pushed; `None` where nothing does.
#[must_use]
pub fn dependencies(resolution: &Resolution<'_>) -> Option<Verdict> {
    let kept = resolution.kept.iter().filter_map(|kept| match &kept.why {
        // What is named in its place is told of by itself.
        KeptReason::Unmatched(_) | KeptReason::Replaced => None,
        KeptReason::NotGranted => Some((
            Reason::NotGranted,
            kept_text(&kept.last.namespace, &kept.last.name),
        )),
        KeptReason::Unresolved(why) => {
            let release = ObjectKey::new(&kept.last.namespace, &kept.last.name);
            Some((
                reason(why),
                format!("{}; it stays as it is", failure(&release, why)),
            ))
        }
    });
    let new = resolution.unresolved.iter();
    let new = new.map(|release| (reason(&release.why), failure(&release.release, &release.why)));
    let mut problems: Vec<(Reason, String)> = kept.chain(new).collect();
    problems.sort();
    let (reason, _) = problems.first()?;
    Some(Verdict::bad(
        *reason,
        listed(problems.iter().map(|(_, text)| text.clone())),
    ))
}

fn kept_text(namespace: &str, name: &str) -> String {
    format!(
        "Release {namespace}/{name} may not reach this Target any more, and stays as it is: grant it again, or delete what binds it"
    )
}

fn unresolved(resolution: &Resolution<'_>) -> String {
    let texts = resolution.unresolved.iter();
    listed(texts.map(|release| failure(&release.release, &release.why)))
}

/// The reason of a failure.
#[must_use]
pub const fn reason(why: &ResolveFailure) -> Reason {
    match why {
        ResolveFailure::ReleaseNotFound
        | ResolveFailure::VersionNotFound(_)
        | ResolveFailure::VersionNotGranted(_)
        | ResolveFailure::RegistryBindingUnresolved(_) => Reason::MissingDependencies,
        ResolveFailure::MissingRegistryBinding(_) => Reason::MissingRegistryBinding,
        ResolveFailure::RegistryBindingConflict(_) => Reason::RegistryBindingConflict,
        ResolveFailure::InvalidAntiAffinity => Reason::InvalidSpec,
        ResolveFailure::TooMany => Reason::TooManyReleases,
    }
}

/// A failure in words.
#[must_use]
pub fn failure(release: &ObjectKey, why: &ResolveFailure) -> String {
    match why {
        ResolveFailure::ReleaseNotFound => {
            format!("Release {release} does not exist; make it, or delete what binds it")
        }
        ResolveFailure::VersionNotFound(version) => {
            format!(
                "Release {release} names ComponentVersion {}, which does not exist in its namespace; make it, or name another",
                version.name
            )
        }
        ResolveFailure::VersionNotGranted(version) => format!(
            "Release {release} names ComponentVersion {version}, which does not exist or which no ReferenceGrant there lets it use"
        ),
        ResolveFailure::MissingRegistryBinding(host) => format!(
            "no RegistryBinding of this Target names a Registry for {}, from which Release {release} pulls, and this hub requires one; \
             make one",
            shown_host(host)
        ),
        ResolveFailure::RegistryBindingConflict(host) => format!(
            "RegistryBindings of this Target name Registries with different targetPullSecretNames for {}, from which Release {release} \
             pulls; leave one",
            shown_host(host)
        ),
        ResolveFailure::RegistryBindingUnresolved(binding) => format!(
            "RegistryBinding {binding} of this Target names a Registry that does not exist, or may not reach the Target any more, so it \
             is not known with which Secret Release {release} is pulled; mend the binding, or delete it"
        ),
        ResolveFailure::InvalidAntiAffinity => {
            format!("antiAffinity of Release {release} is no valid label selector; correct it")
        }
        ResolveFailure::TooMany => {
            format!(
                "Release {release} is one more than a Target can have; bind fewer Releases to this Target"
            )
        }
    }
}

/// A host as it can be shown: a repository is free text, so any other is not repeated.
fn shown_host(host: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
    if !host.is_empty() && host.len() <= 253 && host.chars().all(is_plain) {
        format!("the host {host}")
    } else {
        "a host".to_owned()
    }
}

/// Sentences in a row, of which a bounded number is written.
pub(super) fn listed(texts: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = texts.collect();
    let mut shown = all.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    if all.len() > NAMED {
        shown = format!("{shown}; and {} more", all.len() - NAMED);
    }
    shown
}
