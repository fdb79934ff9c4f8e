//! What the hub says of the objects that put Releases on Targets.

use k8s_openapi::jiff::Timestamp;

use crate::api::conditions::{ConditionType, Reason, merge};
use crate::api::pipeline::{
    PipelineStatus, ProfileSpec, ProfileStatus, RegistryBindingSpec, ReleaseBindingSpec, ReleaseSourceKind,
    ReleaseSpec, ReleaseStatus, TargetReference,
};

use super::conditions::{Verdict, failure, reason};
use super::object::{ObjectKey, PipelineObject, within};
use super::objects::PipelineObjects;
use super::references::{Reference, ReferenceRules};
use super::resolve::{unique_name, version};
use super::source::{matches, may_reach};

/// The status that a Release should have.
#[must_use]
pub fn of_release(
    key: &ObjectKey,
    object: &PipelineObject<ReleaseSpec, ReleaseStatus>,
    objects: &PipelineObjects,
    rules: &ReferenceRules,
    now: Timestamp,
) -> Option<ReleaseStatus> {
    let spec = object.spec.as_ref()?;
    let mut status = object.status.clone();
    let ready = match version(key, spec, objects, rules) {
        Ok((_, version)) => {
            status.effective_unique_name = Some(unique_name(spec, version).to_owned());
            Verdict::good(Reason::Ready, "the ComponentVersion is there and may be used")
        }
        Err(why) => Verdict::bad(reason(&why), failure(key, &why)),
    };
    set_ready(&mut status.conditions, ready, object.generation, now);
    status.observed_generation = Some(object.generation);
    Some(status)
}

/// The status that a Profile should have.
#[must_use]
pub fn of_profile(
    key: &ObjectKey,
    object: &PipelineObject<ProfileSpec, ProfileStatus>,
    objects: &PipelineObjects,
    rules: &ReferenceRules,
    now: Timestamp,
) -> Option<ProfileStatus> {
    let spec = object.spec.as_ref()?;
    let matched = |targets: &mut dyn Iterator<Item = (&ObjectKey, bool)>| {
        targets
            .filter(|(target, is_matched)| {
                *is_matched && may_reach(ReleaseSourceKind::Profile, key, target, objects, rules)
            })
            .count()
    };
    let selects = |object: &PipelineObject<_, _>| matches(&spec.target_selector, &object.labels);
    let count = if rules.crosses_namespaces {
        matched(&mut objects.targets.iter().map(|(key, object)| (key, selects(object))))
    } else {
        matched(&mut within(&objects.targets, &key.namespace).map(|(key, object)| (key, selects(object))))
    };
    let mut status = object.status.clone();
    status.matched_targets = Some(i32::try_from(count).unwrap_or(i32::MAX));
    let ready = released(&ObjectKey::new(&key.namespace, &spec.release_ref.name), objects);
    set_ready(&mut status.conditions, ready, object.generation, now);
    status.observed_generation = Some(object.generation);
    Some(status)
}

/// The status that a binding of a Release should have.
#[must_use]
pub fn of_release_binding(
    key: &ObjectKey,
    object: &PipelineObject<ReleaseBindingSpec, PipelineStatus>,
    objects: &PipelineObjects,
    rules: &ReferenceRules,
    now: Timestamp,
) -> Option<PipelineStatus> {
    let spec = object.spec.as_ref()?;
    let ready = reached("ReleaseBinding", key, &spec.target_ref, objects, rules)
        .unwrap_or_else(|| released(&ObjectKey::new(&key.namespace, &spec.release_ref.name), objects));
    Some(with_ready(object.status.clone(), ready, object.generation, now))
}

/// The status that a binding of a registry should have.
#[must_use]
pub fn of_registry_binding(
    key: &ObjectKey,
    object: &PipelineObject<RegistryBindingSpec, PipelineStatus>,
    objects: &PipelineObjects,
    rules: &ReferenceRules,
    now: Timestamp,
) -> Option<PipelineStatus> {
    let spec = object.spec.as_ref()?;
    let registry = ObjectKey::new(&key.namespace, &spec.registry_ref.name);
    let ready = reached("RegistryBinding", key, &spec.target_ref, objects, rules).unwrap_or_else(|| {
        if objects.registries.contains_key(&registry) {
            Verdict::good(Reason::Ready, "the Registry and the Target are there")
        } else {
            let message = format!(
                "the Registry \"{}\" does not exist in the namespace of the binding",
                registry.name
            );
            Verdict::bad(Reason::NotFound, message)
        }
    });
    Some(with_ready(object.status.clone(), ready, object.generation, now))
}

/// What keeps a binding from its Target; `None` where nothing does.
fn reached(
    from_kind: &str,
    key: &ObjectKey,
    target: &TargetReference,
    objects: &PipelineObjects,
    rules: &ReferenceRules,
) -> Option<Verdict> {
    let namespace = target.namespace.as_ref().unwrap_or(&key.namespace);
    let reference = Reference {
        from_kind,
        from: &key.namespace,
        to_kind: "Target",
        to: namespace,
        name: &target.name,
    };
    let is_allowed = rules.allow(&objects.grants, reference);
    if is_allowed
        && objects
            .targets
            .contains_key(&ObjectKey::new(namespace, &target.name))
    {
        return None;
    }
    Some(if *namespace == key.namespace {
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

fn released(release: &ObjectKey, objects: &PipelineObjects) -> Verdict {
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

fn with_ready(mut status: PipelineStatus, ready: Verdict, generation: i64, now: Timestamp) -> PipelineStatus {
    set_ready(&mut status.conditions, ready, generation, now);
    status.observed_generation = Some(generation);
    status
}

/// Sets `Ready`, and `Stalled` where only a person can help.
pub(super) fn set_ready(
    conditions: &mut Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>,
    ready: Verdict,
    generation: i64,
    now: Timestamp,
) {
    let is_stalled = ready.is_stalled;
    let mut wanted = vec![ready.clone().of(ConditionType::Ready)];
    let mut gone = vec![ConditionType::Stalled];
    if is_stalled {
        gone.clear();
        wanted.push(Verdict { holds: true, ..ready }.of(ConditionType::Stalled));
    }
    merge(conditions, &wanted, &gone, Some(generation), now);
}
