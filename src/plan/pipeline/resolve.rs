//! Which Releases a Target gets.
//!
//! Of the Releases that are bound to it, in the order of priority, each is accepted unless one that was accepted before has its
//! unique name or excludes it. So a Release that lost can be taken away without any effect. What a Target has and what cannot be
//! resolved any more takes part with the priority it had: it leaves only on purpose.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::pipeline::{
    ComponentVersionSpec, HydratedRelease, HydratedTargetSpec, LeavingRelease, ReleaseSource, ReleaseSpec,
};

use super::object::{ObjectKey, PipelineObject};
use super::objects::PipelineObjects;
use super::pull_secrets::{PullSecretError, PullSecrets};
use super::references::{Reference, ReferenceRules};
use super::source::{BoundRelease, SourceState, TargetView, bound, matches, state};

/// How long a selector must not match before its Release leaves, so that a label that flaps removes nothing.
pub const LEAVES_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// Most Releases of a Target; the schema of its status has the same bound.
pub const MAX_RELEASES: usize = 256;

/// A Release that a Target gets, with everything that its chart is made of.
#[derive(Clone, Debug)]
pub struct AcceptedRelease<'o> {
    /// The name of which a Target has one Release.
    pub unique_name: String,
    /// The Release.
    pub release: ObjectKey,
    /// The object.
    pub object: &'o PipelineObject<ReleaseSpec, crate::api::pipeline::ReleaseStatus>,
    /// Its spec.
    pub spec: &'o ReleaseSpec,
    /// The version that it releases.
    pub version: &'o ComponentVersionSpec,
    /// UID and generation of that version.
    pub version_revision: (&'o str, i64),
    /// What bound it.
    pub source: ReleaseSource,
    /// Its priority.
    pub priority: i32,
    /// Secrets on the target cluster by the name of the resource that is pulled with them.
    pub pull_secrets: BTreeMap<String, String>,
}

/// A Release that a Target has and keeps, although it cannot be resolved.
#[derive(Clone, Debug)]
pub struct KeptRelease<'o> {
    /// The name of which a Target has one Release.
    pub unique_name: String,
    /// As it was in the last version.
    pub last: &'o HydratedRelease,
    /// What bound it.
    pub source: ReleaseSource,
    /// The priority that it had.
    pub priority: i32,
    /// Why it stays as it is.
    pub why: KeptReason,
}

/// Why a Release stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptReason {
    /// Something that it needs is missing.
    Unresolved(ResolveFailure),
    /// It may not reach the Target any more.
    NotGranted,
    /// Its selector matches no more, since then.
    Unmatched(Timestamp),
}

/// Why a Release cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolveFailure {
    /// The Release does not exist, or cannot be decoded.
    ReleaseNotFound,
    /// The `ComponentVersion` does not exist in the Release's namespace.
    VersionNotFound(ObjectKey),
    /// The `ComponentVersion` in another namespace does not exist, or may not be used.
    VersionNotGranted(ObjectKey),
    /// No `RegistryBinding` says with which Secret this host is pulled from.
    MissingRegistryBinding(String),
    /// `RegistryBindings` name different Secrets for this host.
    RegistryBindingConflict(String),
    /// The Target has as many Releases as it can have.
    TooMany,
}

/// A Release that is bound to a Target and lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutRelease {
    /// What bound it.
    pub source: ReleaseSource,
    /// The Release.
    pub release: ObjectKey,
    /// The Release that won.
    pub winner: ObjectKey,
    /// Why it lost.
    pub why: LeftOutReason,
}

/// Why a Release lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOutReason {
    /// The winner has the same unique name.
    UniqueName,
    /// One of the two selects the labels of the other.
    AntiAffinity,
}

/// A Release that is bound to a Target and cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnresolvedRelease {
    /// What bound it.
    pub source: ReleaseSource,
    /// The Release.
    pub release: ObjectKey,
    /// Why.
    pub why: ResolveFailure,
}

/// What a Target gets.
#[derive(Clone, Debug, Default)]
pub struct Resolution<'o> {
    /// Releases whose chart is rendered.
    pub accepted: Vec<AcceptedRelease<'o>>,
    /// Releases that stay as they are.
    pub kept: Vec<KeptRelease<'o>>,
    /// Releases that lost.
    pub left_out: Vec<LeftOutRelease>,
    /// Releases that cannot be rendered and that the Target does not have.
    pub unresolved: Vec<UnresolvedRelease>,
    /// The Releases that are bound.
    pub bound: Vec<BoundRelease<'o>>,
}

/// One that may be on the Target.
enum Contender<'o> {
    Accepted(AcceptedRelease<'o>),
    Kept(KeptRelease<'o>),
}

impl Contender<'_> {
    fn order(&self) -> (Reverse<i32>, &ReleaseSource) {
        match self {
            Self::Accepted(release) => (Reverse(release.priority), &release.source),
            Self::Kept(release) => (Reverse(release.priority), &release.source),
        }
    }
}

/// The Releases that a Target gets; `last` is its newest version.
#[must_use]
pub fn resolve<'o>(
    target: TargetView<'o>,
    last: Option<&'o HydratedTargetSpec>,
    objects: &'o PipelineObjects,
    rules: &ReferenceRules,
    now: Timestamp,
) -> Resolution<'o> {
    let bound = bound(target, objects, rules);
    let secrets = PullSecrets::of(target, objects, rules);
    let (mut contenders, mut unresolved) = (Vec::new(), Vec::new());
    for one in &bound {
        match accepted(one, objects, rules, &secrets) {
            Ok(release) => contenders.push(Contender::Accepted(release)),
            Err(why) => unresolved.push(UnresolvedRelease {
                source: one.source.clone(),
                release: one.release.clone(),
                why,
            }),
        }
    }
    let resolved: Vec<ObjectKey> = contenders.iter().filter_map(release_of).collect();
    let remaining = last.into_iter().flat_map(|last| &last.releases);
    for (unique_name, last) in remaining {
        if resolved.iter().any(|release| is_same(release, last)) {
            continue;
        }
        let kept = kept(target, unique_name, last, &unresolved, objects, rules, now);
        contenders.extend(kept.map(Contender::Kept));
    }
    contenders.sort_by(|a, b| a.order().cmp(&b.order()));
    let mut resolution = choose(contenders);
    let has = |release: &ObjectKey| resolution.kept.iter().any(|kept| is_same(release, kept.last));
    unresolved.retain(|release| !has(&release.release));
    resolution.unresolved.extend(unresolved);
    resolution.bound = bound;
    resolution
}

fn release_of(contender: &Contender<'_>) -> Option<ObjectKey> {
    match contender {
        Contender::Accepted(release) => Some(release.release.clone()),
        Contender::Kept(_) => None,
    }
}

fn is_same(release: &ObjectKey, last: &HydratedRelease) -> bool {
    release.namespace == last.namespace && release.name == last.name
}

fn choose(contenders: Vec<Contender<'_>>) -> Resolution<'_> {
    let mut chosen = Resolution::default();
    for contender in contenders {
        let unique_name = match &contender {
            Contender::Accepted(release) => &release.unique_name,
            Contender::Kept(release) => &release.unique_name,
        };
        let winner = chosen.holder(unique_name);
        match contender {
            Contender::Kept(_) if winner.is_some() => {}
            Contender::Kept(kept) => chosen.kept.push(kept),
            Contender::Accepted(release) => {
                let winner = winner
                    .map(|winner| (winner, LeftOutReason::UniqueName))
                    .or_else(|| {
                        chosen
                            .excluder(&release)
                            .map(|winner| (winner, LeftOutReason::AntiAffinity))
                    });
                chosen.put(release, winner);
            }
        }
    }
    chosen
}

impl<'o> Resolution<'o> {
    fn holder(&self, unique_name: &str) -> Option<ObjectKey> {
        let accepted = self
            .accepted
            .iter()
            .find(|release| release.unique_name == unique_name);
        let kept = self
            .kept
            .iter()
            .find(|release| release.unique_name == unique_name);
        let kept = kept.map(|kept| ObjectKey::new(&kept.last.namespace, &kept.last.name));
        accepted.map(|release| release.release.clone()).or(kept)
    }

    fn excluder(&self, release: &AcceptedRelease<'_>) -> Option<ObjectKey> {
        let excludes = |selector: &Option<LabelSelector>, other: &AcceptedRelease<'_>| {
            let selector = selector.as_ref();
            selector.is_some_and(|selector| matches(selector, &other.object.labels))
        };
        let found = self.accepted.iter().find(|accepted| {
            excludes(&release.spec.anti_affinity, accepted) || excludes(&accepted.spec.anti_affinity, release)
        });
        found.map(|accepted| accepted.release.clone())
    }

    fn put(&mut self, release: AcceptedRelease<'o>, winner: Option<(ObjectKey, LeftOutReason)>) {
        let (source, key) = (release.source.clone(), release.release.clone());
        if let Some((winner, why)) = winner {
            self.left_out.push(LeftOutRelease {
                source,
                release: key,
                winner,
                why,
            });
        } else if self.accepted.len() + self.kept.len() >= MAX_RELEASES {
            self.unresolved.push(UnresolvedRelease {
                source,
                release: key,
                why: ResolveFailure::TooMany,
            });
        } else {
            self.accepted.push(release);
        }
    }
}

fn accepted<'o>(
    bound: &BoundRelease<'o>,
    objects: &'o PipelineObjects,
    rules: &ReferenceRules,
    secrets: &PullSecrets<'_>,
) -> Result<AcceptedRelease<'o>, ResolveFailure> {
    let object = objects.releases.get(&bound.release);
    let object = object.ok_or(ResolveFailure::ReleaseNotFound)?;
    let spec = object.spec.as_ref().ok_or(ResolveFailure::ReleaseNotFound)?;
    let (version_object, version) = version(&bound.release, spec, objects, rules)?;
    let mut pull_secrets = BTreeMap::new();
    for (name, resource) in &version.resources {
        if let Some(secret) = secrets
            .of_repository(&resource.repository)
            .map_err(pull_failure)?
        {
            pull_secrets.insert(name.clone(), secret.to_owned());
        }
    }
    Ok(AcceptedRelease {
        unique_name: unique_name(spec, version).to_owned(),
        release: bound.release.clone(),
        object,
        spec,
        version,
        version_revision: (&version_object.uid, version_object.generation),
        source: bound.source.clone(),
        priority: spec.priority.unwrap_or_default(),
        pull_secrets,
    })
}

/// The name of which a Target has one Release.
#[must_use]
pub fn unique_name<'o>(spec: &'o ReleaseSpec, version: &'o ComponentVersionSpec) -> &'o str {
    spec.unique_name.as_deref().unwrap_or(&version.component_ref.name)
}

/// A version of a component, and its spec.
pub type FoundVersion<'o> = (&'o PipelineObject<ComponentVersionSpec>, &'o ComponentVersionSpec);

/// The version that a Release names.
///
/// # Errors
/// It does not exist, or may not be used.
pub fn version<'o>(
    release: &ObjectKey,
    spec: &ReleaseSpec,
    objects: &'o PipelineObjects,
    rules: &ReferenceRules,
) -> Result<FoundVersion<'o>, ResolveFailure> {
    let named = &spec.component_version_ref;
    let namespace = named.namespace.as_ref().unwrap_or(&release.namespace);
    let key = ObjectKey::new(namespace, &named.name);
    let is_home = *namespace == release.namespace;
    let reference = Reference {
        from_kind: "Release",
        from: &release.namespace,
        to_kind: "ComponentVersion",
        to: namespace,
        name: &named.name,
    };
    let found = objects.component_versions.get(&key);
    let found = found.filter(|_| rules.allow(&objects.grants, reference));
    let found = found.and_then(|found| Some((found, found.spec.as_ref()?)));
    found.ok_or(if is_home {
        ResolveFailure::VersionNotFound(key)
    } else {
        ResolveFailure::VersionNotGranted(key)
    })
}

fn kept<'o>(
    target: TargetView<'o>,
    unique_name: &str,
    last: &'o HydratedRelease,
    unresolved: &[UnresolvedRelease],
    objects: &PipelineObjects,
    rules: &ReferenceRules,
    now: Timestamp,
) -> Option<KeptRelease<'o>> {
    let status = &target.object.status;
    let release = ObjectKey::new(&last.namespace, &last.name);
    let recorded = status
        .releases
        .iter()
        .find(|known| known.namespace == last.namespace && known.name == last.name);
    let source = recorded.map_or(&last.source, |known| &known.source);
    let failure = unresolved.iter().find(|failed| failed.release == release);
    let (source, why) = match failure {
        Some(failed) => (&failed.source, KeptReason::Unresolved(failed.why.clone())),
        None => match state(source, &release, target, objects, rules) {
            SourceState::Binds => (source, KeptReason::NotGranted),
            SourceState::Unmatched => (source, unmatched(&status.leaving, unique_name, now)?),
            SourceState::Gone => return None,
        },
    };
    Some(KeptRelease {
        unique_name: unique_name.to_owned(),
        last,
        source: source.clone(),
        priority: recorded.map_or(0, |known| known.priority),
        why,
    })
}

/// Since when the selector of a Release does not match; `None` once that is long enough.
fn unmatched(leaving: &[LeavingRelease], unique_name: &str, now: Timestamp) -> Option<KeptReason> {
    let known = leaving.iter().find(|known| known.unique_name == unique_name);
    let since = known.map_or(now, |known| known.since.0);
    (now.duration_since(since) < LEAVES_AFTER).then_some(KeptReason::Unmatched(since))
}

fn pull_failure(error: PullSecretError) -> ResolveFailure {
    match error {
        PullSecretError::Missing(host) => ResolveFailure::MissingRegistryBinding(host),
        PullSecretError::Conflict(host) => ResolveFailure::RegistryBindingConflict(host),
    }
}
