//! What the hub says of the objects that put Releases on Targets.

use k8s_openapi::jiff::Timestamp;

use crate::api::conditions::{ConditionType, Reason, merge};
use crate::api::pipeline::{
    ComponentSpec, ComponentVersionSpec, PipelineStatus, RegistryBindingSpec, ReleaseBindingSpec,
    ReleaseSourceKind, ReleaseSpec, ReleaseStatus, TargetReference,
};

use super::conditions::{Verdict, failure, reason};
use super::left_out::{LeftOutIndex, winner};
use super::object::{ObjectKey, PipelineObject};
use super::objects::PipelineObjects;
use super::references::ReferenceRules;
use super::resolve::{unique_name, version};
use super::rollout::RolloutIndex;
use super::source::source;
use super::unread;

/// Kind of an object whose status the hub writes and that is no Target, in the order in which they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is the kind it is named after")]
pub enum StatusKind {
    Component,
    ComponentVersion,
    Release,
    Profile,
    ReleaseBinding,
    RegistryBinding,
}

/// Everything that statuses follow from.
#[derive(Clone, Copy, Debug)]
pub struct StatusInput<'o> {
    /// All objects of the pipeline.
    pub objects: &'o PipelineObjects,
    /// What governs references.
    pub rules: &'o ReferenceRules,
    /// How far the rollouts of Profiles are.
    pub rollouts: &'o RolloutIndex,
    /// The Releases that lost to others, by Target.
    pub left_out: &'o LeftOutIndex,
    /// The time.
    pub now: Timestamp,
}

/// The status that a Release should have; `None` where this version of the hub cannot decode it, or it rests on what the hub may
/// not read, as for the others.
#[must_use]
pub fn of_release(
    key: &ObjectKey,
    object: &PipelineObject<ReleaseSpec, ReleaseStatus>,
    input: &StatusInput<'_>,
) -> Option<ReleaseStatus> {
    let spec = object.spec.as_ref()?;
    if unread::release(key, spec, input.rules) {
        return None;
    }
    let mut status = object.status.clone();
    let ready = match version(key, spec, input.objects, input.rules) {
        Ok((_, _, version)) => {
            status.effective_unique_name = Some(unique_name(spec, version).to_owned());
            Verdict::good(Reason::Ready, "the ComponentVersion is there and may be used")
        }
        Err(why) => Verdict::bad(reason(&why), failure(key, &why)),
    };
    set_ready(&mut status.conditions, ready, object.generation, input.now);
    status.observed_generation = Some(object.generation);
    Some(status)
}

/// The status that a binding of a Release should have; `None` where it is not known yet.
#[must_use]
pub fn of_release_binding(
    key: &ObjectKey,
    object: &PipelineObject<ReleaseBindingSpec, PipelineStatus>,
    input: &StatusInput<'_>,
) -> Option<PipelineStatus> {
    let spec = object.spec.as_ref()?;
    if unread::binding(key, &spec.target_ref, input.rules) {
        return None;
    }
    let release = ObjectKey::new(&key.namespace, &spec.release_ref.name);
    let ready = if let Some(verdict) = reached("ReleaseBinding", key, &spec.target_ref, input) {
        verdict
    } else {
        let target = key.referred(spec.target_ref.namespace.as_ref(), &spec.target_ref.name);
        if !input.left_out.knows(&target) {
            return None;
        }
        let released = released(&release, input.objects);
        superseded(key, &target, input)
            .filter(|_| released.holds)
            .unwrap_or(released)
    };
    Some(with_ready(object, ready, input.now))
}

/// What is on the Target in place of what a binding binds; `None` where nothing is.
fn superseded(key: &ObjectKey, target: &ObjectKey, input: &StatusInput<'_>) -> Option<Verdict> {
    let source = source(ReleaseSourceKind::ReleaseBinding, key);
    let left_out = input.left_out.of(target, &source)?;
    let message = format!(
        "another Release is on the Target in place of this one: {}; give this one a higher priority, or delete what binds the other",
        winner(left_out, target)
    );
    Some(Verdict::bad(Reason::Superseded, message))
}

/// The status that a binding of a registry should have.
#[must_use]
pub fn of_registry_binding(
    key: &ObjectKey,
    object: &PipelineObject<RegistryBindingSpec, PipelineStatus>,
    input: &StatusInput<'_>,
) -> Option<PipelineStatus> {
    let spec = object.spec.as_ref()?;
    if unread::binding(key, &spec.target_ref, input.rules) {
        return None;
    }
    let registry = ObjectKey::new(&key.namespace, &spec.registry_ref.name);
    let ready = reached("RegistryBinding", key, &spec.target_ref, input).unwrap_or_else(|| {
        if input.objects.registries.contains_key(&registry) {
            Verdict::good(Reason::Ready, "the Registry and the Target are there")
        } else {
            let message = format!(
                "the Registry \"{}\" does not exist in the namespace of the binding",
                registry.name
            );
            Verdict::bad(Reason::NotFound, message)
        }
    });
    Some(with_ready(object, ready, input.now))
}

/// The status that a component should have: nothing rests on it.
#[must_use]
pub fn of_component(
    _: &ObjectKey,
    object: &PipelineObject<ComponentSpec, PipelineStatus>,
    input: &StatusInput<'_>,
) -> Option<PipelineStatus> {
    object.spec.as_ref()?;
    let ready = Verdict::good(Reason::Ready, "the hub knows the component");
    Some(with_ready(object, ready, input.now))
}

/// The status that a version of a component should have. A Release needs no Component, so only the message says that one is missing.
#[must_use]
pub fn of_component_version(
    key: &ObjectKey,
    object: &PipelineObject<ComponentVersionSpec, PipelineStatus>,
    input: &StatusInput<'_>,
) -> Option<PipelineStatus> {
    let spec = object.spec.as_ref()?;
    let component = ObjectKey::new(&key.namespace, &spec.component_ref.name);
    let message = if input.objects.components.contains_key(&component) {
        "Releases can name this version, and its Component is there".to_owned()
    } else {
        format!(
            "Releases can name this version; its Component \"{}\" does not exist in this namespace, which no Release needs",
            component.name
        )
    };
    let ready = Verdict::good(Reason::Ready, message);
    Some(with_ready(object, ready, input.now))
}

/// What keeps a binding from its Target; `None` where nothing does.
fn reached(
    from_kind: &str,
    key: &ObjectKey,
    target: &TargetReference,
    input: &StatusInput<'_>,
) -> Option<Verdict> {
    let objects = input.objects;
    let (target, is_allowed) = input.rules.target(&objects.grants, from_kind, key, target);
    if is_allowed && objects.targets.contains_key(&target) {
        return None;
    }
    Some(if target.namespace == key.namespace {
        let message = format!(
            "the Target \"{}\" does not exist in the namespace of the binding",
            target.name
        );
        Verdict::bad(Reason::NotFound, message)
    } else {
        Verdict::bad(
            Reason::NotGranted,
            "the Target in another namespace does not exist, or no ReferenceGrant there lets this binding refer to it, or this hub lets \
             no reference leave its namespace",
        )
    })
}

/// Whether a Release is there.
pub(super) fn released(release: &ObjectKey, objects: &PipelineObjects) -> Verdict {
    if objects.releases.contains_key(release) {
        Verdict::good(Reason::Ready, "the Release is there")
    } else {
        let message = format!(
            "the Release \"{}\" does not exist in this namespace; what is on clusters stays",
            release.name
        );
        Verdict::bad(Reason::NotFound, message)
    }
}

fn with_ready<S>(
    object: &PipelineObject<S, PipelineStatus>,
    ready: Verdict,
    now: Timestamp,
) -> PipelineStatus {
    let mut status = object.status.clone();
    set_ready(&mut status.conditions, ready, object.generation, now);
    status.observed_generation = Some(object.generation);
    status
}

/// Sets `Ready`, and `Stalled` where only a person can help.
pub(super) fn set_ready(
    conditions: &mut Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>,
    ready: Verdict,
    generation: i64,
    now: Timestamp,
) {
    let mut wanted = vec![ready.clone().of(ConditionType::Ready)];
    let gone: &[_] = if ready.is_stalled {
        wanted.push(Verdict { holds: true, ..ready }.of(ConditionType::Stalled));
        &[]
    } else {
        &[ConditionType::Stalled]
    };
    merge(conditions, &wanted, gone, Some(generation), now);
}
