//! The kinds in front of tasks: what is released, where it goes, and what a cluster gets.

mod binding;
mod component;
mod hydrated_target;
mod known_names;
mod profile;
mod reference;
mod release;
mod release_source;
mod target;

pub use binding::{
    RegistryBinding, RegistryBindingSpec, ReleaseBinding, ReleaseBindingSpec, TargetReference,
};
pub use component::{Component, ComponentResource, ComponentSpec, ComponentVersion, ComponentVersionSpec};
pub use hydrated_target::{
    HydratedProfile, HydratedRegistry, HydratedRelease, HydratedTarget, HydratedTargetSpec,
    HydratedTargetStatus, PruneFailure, PruneProgress,
};
pub use known_names::OmitsKnownNames;
pub use profile::{MatchedTarget, Profile, ProfileSpec, ProfileStatus};
pub use reference::{NamespacedName, ObjectName};
pub use release::{ComponentVersionReference, PipelineStatus, Release, ReleaseSpec, ReleaseStatus};
pub use release_source::{ReleaseSource, ReleaseSourceKind};
pub use target::{
    LeavingRelease, RenderRegistryKind, RenderRegistryReference, Target, TargetRelease, TargetSpec,
    TargetStatus,
};
