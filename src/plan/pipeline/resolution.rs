//! What came of resolving a Target: which Releases it gets, keeps, and does not get, and why.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::api::pipeline::{
    ComponentVersionSpec, HydratedRelease, ReleaseSource, ReleaseSpec, ReleaseStatus,
};

use super::object::{ObjectKey, PipelineObject};
use super::source::{BoundRelease, SourceKey};

/// Most Releases of a Target; the schema of its status has the same bound.
pub const MAX_RELEASES: usize = 256;

/// Most `ReleaseBinding`s, `RegistryBinding`s and Profiles of a Target, together.
pub const BINDINGS_OF_TARGET: usize = 1024;

/// A Release as watched.
pub type ReleaseObject = PipelineObject<ReleaseSpec, ReleaseStatus>;

/// A Release that a Target gets, with everything that its chart is made of.
#[derive(Clone, Debug)]
pub struct AcceptedRelease<'o> {
    /// The name of which a Target has one Release.
    pub unique_name: &'o str,
    /// The Release.
    pub release: &'o ObjectKey,
    /// The object.
    pub object: &'o ReleaseObject,
    /// Its spec.
    pub spec: &'o ReleaseSpec,
    /// The version that it releases.
    pub version: &'o ComponentVersionSpec,
    /// Its key.
    pub version_key: &'o ObjectKey,
    /// UID and generation of that version.
    pub version_revision: (&'o str, i64),
    /// What bound it.
    pub source: SourceKey<'o>,
    /// Its priority.
    pub priority: i32,
    /// Secrets on the target cluster by the name of the resource that is pulled with them.
    pub pull_secrets: BTreeMap<String, String>,
    /// The bindings that say which Secrets these are.
    pub registry_bindings: BTreeSet<ObjectKey>,
}

/// A Release that a Target has and keeps, although it cannot be resolved.
#[derive(Clone, Debug)]
pub struct KeptRelease<'o> {
    /// The name of which a Target has one Release.
    pub unique_name: String,
    /// As it was in the last version.
    pub last: &'o Arc<HydratedRelease>,
    /// The object, where it is still there.
    pub object: Option<&'o ReleaseObject>,
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
    /// What bound it names another Release now, which cannot be resolved.
    Replaced,
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
    /// This `RegistryBinding` of the Target cannot be resolved, so it is not known which host it is for.
    RegistryBindingUnresolved(ObjectKey),
    /// The `antiAffinity` of the Release is no selector.
    InvalidAntiAffinity,
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
    /// How many `ReleaseBinding`s, `RegistryBinding`s and Profiles the Target has, where they are more than it can have; nothing is
    /// resolved then.
    pub too_many: Option<usize>,
    /// The Releases that are bound.
    pub bound: Vec<BoundRelease<'o>>,
}
