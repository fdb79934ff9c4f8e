//! Which pull Secrets were found or made where: not each Job looks for them, and no copy is removed while a Job that names it is made.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::api::RendererClassSpec;
use crate::kubernetes::apply::{CallError, HubClient};
use crate::plan::pull_secrets::copy::{PullCopy, PullCopyId, PullSecretFault};
use crate::plan::pull_secrets::image_repository::ImageRepository;
use crate::plan::pull_secrets::named::NamedPullSecret;
use crate::plan::remote::site::Site;

/// Time for which what was seen counts: a Secret that a person removes is made again for the next Job after it.
const FRESH: Duration = Duration::from_secs(30);
/// Most Secrets in all places that are remembered; one that is not is looked for again. Each takes about 200 bytes.
const REMEMBERED: usize = 16_384;

/// Where Jobs run; `None` is the rendering namespace of the hub.
pub type Place = Option<Arc<Site>>;

/// What a pod is pulled with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsedPullSecret {
    /// The Secret that is there under the name that the class has.
    ByHand,
    /// A copy.
    Copy(PullCopyId),
}

/// What was seen, and what is in use. Cheap to clone; clones share.
#[derive(Clone, Debug, Default)]
pub struct PullCopies(Arc<Mutex<PullCopyState>>);

#[derive(Debug, Default)]
struct PullCopyState {
    seen: HashMap<SeenKey, (UsedPullSecret, Instant)>,
    /// Reconciles that are about to make a Job with the copy.
    held: HashMap<PlacedCopy, usize>,
    /// Copies that a sweep is about to remove.
    leaving: HashSet<PlacedCopy>,
}

/// A pull Secret of a class in a place, with what was known of it then.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SeenKey {
    place: Place,
    name: String,
    copy: Option<PullCopyId>,
    is_by_hand: bool,
}

impl SeenKey {
    fn of(place: &Place, named: &NamedPullSecret) -> Self {
        Self {
            place: place.clone(),
            name: named.name.clone(),
            copy: named.copy.as_ref().ok().cloned(),
            is_by_hand: named.is_by_hand,
        }
    }
}

/// A copy in a place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PlacedCopy(Place, PullCopyId);

impl PullCopyState {
    /// Counts one more user of a copy; `false` while it is being removed.
    fn hold(&mut self, placed: &PlacedCopy) -> bool {
        if self.leaving.contains(placed) {
            return false;
        }
        *self.held.entry(placed.clone()).or_default() += 1;
        true
    }
}

/// What was seen a short time ago.
#[derive(Debug)]
pub enum TakenPullSecret {
    /// The Secret that is there under the name that the class has.
    ByHand,
    /// A copy, which is not removed while the hold is there.
    Copy(PullCopyId, PullCopyHold),
}

/// A copy that is not removed while this is held.
#[derive(Debug)]
pub struct PullCopyHold(PullCopies, PlacedCopy);

/// A copy that no reconcile uses while this is held.
#[derive(Debug)]
pub struct PullCopyRemoval(PullCopies, PlacedCopy);

impl PullCopies {
    /// What was found or made in a place a short time ago; a copy is held with it, at once, so that none is removed in between.
    #[must_use]
    pub fn take(&self, place: &Place, named: &NamedPullSecret, now: Instant) -> Option<TakenPullSecret> {
        let mut state = self.state();
        let (used, at) = state.seen.get(&SeenKey::of(place, named))?;
        if now.saturating_duration_since(*at) >= FRESH {
            return None;
        }
        match used.clone() {
            UsedPullSecret::ByHand => Some(TakenPullSecret::ByHand),
            UsedPullSecret::Copy(copy) => {
                let placed = PlacedCopy(place.clone(), copy.clone());
                state
                    .hold(&placed)
                    .then(|| TakenPullSecret::Copy(copy, PullCopyHold(self.clone(), placed)))
            }
        }
    }

    /// Remembers what was found or made in a place.
    pub fn remember(&self, place: &Place, named: &NamedPullSecret, used: UsedPullSecret, now: Instant) {
        let mut state = self.state();
        if state.seen.len() >= REMEMBERED {
            state
                .seen
                .retain(|_, (_, at)| now.saturating_duration_since(*at) < FRESH);
        }
        if state.seen.len() < REMEMBERED {
            state.seen.insert(SeenKey::of(place, named), (used, now));
        }
    }

    /// Whether Jobs with a copy were made in a place since then: then it is not looked whether any names it.
    #[must_use]
    pub fn is_used_since(&self, place: &Place, copy: &PullCopyId, since: Instant) -> bool {
        let state = self.state();
        let is_it = |used: &UsedPullSecret| matches!(used, UsedPullSecret::Copy(seen) if seen == copy);
        let mut seen = state.seen.iter();
        seen.any(|(key, (used, at))| key.place == *place && is_it(used) && *at >= since)
    }

    /// Keeps a copy from being removed; `None` while it is being removed.
    #[must_use]
    pub fn hold(&self, place: &Place, copy: &PullCopyId) -> Option<PullCopyHold> {
        let placed = PlacedCopy(place.clone(), copy.clone());
        self.state()
            .hold(&placed)
            .then(|| PullCopyHold(self.clone(), placed))
    }

    /// Keeps reconciles from a copy that is to be removed; `None` while one uses it.
    #[must_use]
    pub fn begin_removal(&self, place: &Place, copy: &PullCopyId) -> Option<PullCopyRemoval> {
        let placed = PlacedCopy(place.clone(), copy.clone());
        let mut state = self.state();
        if state.held.contains_key(&placed) || !state.leaving.insert(placed.clone()) {
            return None;
        }
        let is_it = |key: &SeenKey, used: &UsedPullSecret| {
            key.place == *place && matches!(used, UsedPullSecret::Copy(seen) if seen == copy)
        };
        state.seen.retain(|key, (used, _)| !is_it(key, used));
        Some(PullCopyRemoval(self.clone(), placed))
    }

    fn state(&self) -> MutexGuard<'_, PullCopyState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PullCopyHold {
    fn drop(&mut self) {
        let Self(copies, placed) = self;
        let mut state = copies.state();
        if let Some(count) = state.held.get_mut(placed) {
            *count -= 1;
            if *count == 0 {
                state.held.remove(placed);
            }
        }
    }
}

impl Drop for PullCopyRemoval {
    fn drop(&mut self) {
        let Self(copies, placed) = self;
        copies.state().leaving.remove(placed);
    }
}

/// The copy of a pull Secret that a class names, as the Secret in `namespace` is now.
///
/// # Errors
/// The Secret cannot be read; inside, why nothing can be pulled with it.
pub async fn read_copy(
    hub_client: &HubClient,
    namespace: Option<&str>,
    spec: &RendererClassSpec,
    name: &str,
) -> Result<Result<PullCopy, PullSecretFault>, CallError> {
    let Some(namespace) = namespace else {
        return Ok(Err(PullSecretFault::Missing));
    };
    let Some(body) = hub_client.get_secret_body(namespace, name).await? else {
        return Ok(Err(PullSecretFault::Missing));
    };
    let (Some(secret), Some(image)) = (body.whole(), ImageRepository::of(&spec.image)) else {
        return Ok(Err(PullSecretFault::Undecodable));
    };
    let entries = spec.image_pull_secret_entries.unwrap_or_default();
    Ok(PullCopy::of(hub_client.hub_id(), &secret, &image, entries))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use serde_json::json;

    use super::*;
    use crate::api::PullSecretEntries;
    use crate::api::names::HubId;
    use crate::plan::pull_secrets::copy::PullCopy;
    use crate::plan::pull_secrets::image_repository::ImageRepository;

    fn copy(password: &str) -> PullCopyId {
        let file = json!({"auths": {"r.example.com": {"username": "u", "password": password}}}).to_string();
        let source: Secret = serde_json::from_value(json!({
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": k8s_openapi::ByteString(file.into_bytes())},
        }))
        .unwrap();
        let hub = HubId::new("main", "0f5a4e0c-0001").unwrap();
        let image = ImageRepository::of("r.example.com/a").unwrap();
        let copy = PullCopy::of(&hub, &source, &image, PullSecretEntries::Needed).unwrap();
        copy.id().clone()
    }

    fn named(password: &str) -> NamedPullSecret {
        NamedPullSecret {
            name: "pull".to_owned(),
            copy: Ok(copy(password)),
            is_by_hand: false,
        }
    }

    #[test]
    fn what_was_seen_counts_for_a_while_and_not_for_another_content() {
        let (copies, now) = (PullCopies::default(), Instant::now());
        let used = UsedPullSecret::Copy(copy("a"));
        copies.remember(&None, &named("a"), used, now);
        let taken = copies.take(&None, &named("a"), now);
        assert!(matches!(&taken, Some(TakenPullSecret::Copy(id, _)) if *id == copy("a")));
        assert!(
            copies.begin_removal(&None, &copy("a")).is_none(),
            "it is held with that"
        );
        drop(taken);
        assert!(copies.take(&None, &named("b"), now).is_none(), "it was rotated");
        assert!(copies.take(&None, &named("a"), now + FRESH).is_none());
        assert!(copies.is_used_since(&None, &copy("a"), now));
        assert!(
            !copies.is_used_since(&None, &copy("b"), now)
                && !copies.is_used_since(&None, &copy("a"), now + FRESH)
        );
    }

    /// Holds: S3.
    #[test]
    fn a_copy_is_not_removed_while_a_job_that_names_it_is_made() {
        let (copies, now) = (PullCopies::default(), Instant::now());
        copies.remember(&None, &named("a"), UsedPullSecret::Copy(copy("a")), now);
        let (first, second) = (copies.hold(&None, &copy("a")), copies.hold(&None, &copy("a")));
        assert!(first.is_some() && second.is_some());
        drop(first);
        assert!(copies.begin_removal(&None, &copy("a")).is_none());
        drop(second);
        let removal = copies.begin_removal(&None, &copy("a")).unwrap();
        assert!(
            copies.hold(&None, &copy("a")).is_none() && copies.begin_removal(&None, &copy("a")).is_none()
        );
        assert!(
            copies.take(&None, &named("a"), now).is_none(),
            "the next Job makes it again"
        );
        assert!(copies.hold(&None, &copy("b")).is_some(), "another copy");
        drop(removal);
        assert!(copies.hold(&None, &copy("a")).is_some());
        let state = copies.state();
        assert!(state.held.is_empty() && state.leaving.is_empty());
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for() {
        let (copies, now) = (PullCopies::default(), Instant::now());
        let other = |number: usize| NamedPullSecret {
            name: format!("pull-{number}"),
            ..named("a")
        };
        for number in 0..=REMEMBERED {
            copies.remember(&None, &other(number), UsedPullSecret::ByHand, now);
        }
        assert_eq!(copies.state().seen.len(), REMEMBERED);
        assert!(copies.take(&None, &other(REMEMBERED), now).is_none());
        copies.remember(&None, &other(0), UsedPullSecret::ByHand, now + FRESH);
        assert_eq!(copies.state().seen.len(), 1, "what is too old gives way");
    }
}
