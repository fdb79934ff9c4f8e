//! Admission policies in addition to the CRDs: rules that a schema cannot express, and two that save the hub a write each.
//!
//! None is trusted. Without them the hub still refuses a spec that changed (its generation moved), restores a status that it did
//! not write (it has no seal of the hub's), finds the objects of a task that vanished, and sets the finalizer itself.

use k8s_openapi::api::admissionregistration::v1::{
    JSONPatch, MatchCondition, MatchResources, MutatingAdmissionPolicy, MutatingAdmissionPolicySpec,
    Mutation, NamedRuleWithOperations, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec, Validation,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion;
use kube::api::ObjectMeta;

use super::definitions::custom_resource_definitions;
use super::labels::{FINALIZER, GROUP, PIPELINE, TARGET_FINALIZER};

/// Name of the policy that keeps a task's spec as it was made, and of its binding.
pub const IMMUTABLE_SPEC: &str = "renderhub-immutable-spec";
/// Name of the policy that lets only hubs write a status, and of its binding.
pub const HUB_ONLY_STATUS: &str = "renderhub-hub-only-status";
/// Name of the policy that lets only hubs take the finalizer off, and of its binding.
pub const HUB_ONLY_FINALIZER: &str = "renderhub-hub-only-finalizer";
/// Name of the policy that lets only hubs write versions of a Target, and of its binding.
pub const HUB_ONLY_HISTORY: &str = "renderhub-hub-only-history";
/// Name of the policy that warns of fields of a Registry that only `SolAr` reads, and of its binding.
pub const DISCOVERY_FIELDS: &str = "renderhub-discovery-fields";
/// Name of the policy that gives a task its finalizer; each release binds it to the namespaces that its hub serves.
pub const SET_FINALIZER: &str = "renderhub-finalizer";
/// Name of the policy that gives a Target its finalizer; each release with the pipeline binds it to the namespaces that its hub serves.
pub const SET_TARGET_FINALIZER: &str = "renderhub-target-finalizer";
/// Name of the policy that keeps no managed fields of versions of a Target; each release with the pipeline binds it in the same way.
pub const UNMANAGED_VERSIONS: &str = "renderhub-unmanaged-versions";
/// Name of the policy that warns of a task without the finalizer, which no hub serves, and of its binding.
pub const WARN_WITHOUT_FINALIZER: &str = "renderhub-unserved";

/// Either kind of task.
const TASKS: [&str; 2] = ["rendertasks", "clusterrendertasks"];

/// A policy and its binding.
pub type ValidatingPolicy = (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding);

/// Whether the caller is a hub: by a permission with no other meaning, so that any number of hubs, each with a ServiceAccount of
/// its own, needs no list of names. Checked without a namespace, it must be held in the whole cluster, where no tenant can grant
/// anything.
const IS_HUB: &str = "authorizer.group('renderhub.dev').resource('hubs').check('act').allowed()";

/// Refuses each change of a task's spec, including free-form values, which a CRD's own rules cannot see.
#[must_use]
pub fn immutable_spec() -> ValidatingPolicy {
    let message = "spec is immutable; make a new task";
    let rule = rule("object.spec == oldObject.spec", message, Some("Invalid"));
    validating(IMMUTABLE_SPEC, requests(&["UPDATE"], &TASKS), rule)
}

/// Refuses each write of a status by any client but a hub, even where RBAC allows it on the subresource.
#[must_use]
pub fn hub_only_status() -> ValidatingPolicy {
    let rule = rule(IS_HUB, "only the hub writes this status", Some("Forbidden"));
    validating(HUB_ONLY_STATUS, requests(&["UPDATE"], &statuses()), rule)
}

/// Refuses the removal of a finalizer of the hub's by any client but a hub: the Job of a task and its configuration, or the tasks of a
/// Target, would stay behind.
///
/// Finalizers of others are not checked, and any client may set these.
#[must_use]
pub fn hub_only_finalizer() -> ValidatingPolicy {
    let has = |object: &str| format!("name in {object}.metadata.?finalizers.orValue([])");
    let expression = format!(
        "['{FINALIZER}', '{TARGET_FINALIZER}'].all(name, !({}) || {}) || {IS_HUB}",
        has("oldObject"),
        has("object")
    );
    let message =
        "only the hub takes its finalizer off, when it has removed what the object left; delete the object";
    let rule = rule(expression, message, Some("Forbidden"));
    let guarded = [TASKS[0], TASKS[1], "targets"];
    validating(HUB_ONLY_FINALIZER, requests(&["UPDATE"], &guarded), rule)
}

/// Refuses a version of a Target that any client but a hub writes: Flux would install what it names as what the hub decided.
///
/// Any client that RBAC allows to may delete one; its charts stay in the registry then.
#[must_use]
pub fn hub_only_history() -> ValidatingPolicy {
    let message = "only the hub writes the versions of a Target; change the Target";
    let rule = rule(IS_HUB, message, Some("Forbidden"));
    validating(
        HUB_ONLY_HISTORY,
        requests(&["CREATE"], &["hydratedtargets"]),
        rule,
    )
}

/// Warns the author of a Registry that was made for `SolAr`, so that no tenant waits for a discovery that no hub does.
#[must_use]
pub fn discovery_fields() -> ValidatingPolicy {
    let expression =
        "!has(object.spec.flavor) && !has(object.spec.webhookPath) && !has(object.spec.scanInterval)";
    let message =
        "flavor, webhookPath and scanInterval are for SolAr's discovery; renderhub does not read them";
    let rule = rule(expression, message, None);
    let requests = requests(&["CREATE", "UPDATE"], &["registries"]);
    warning(validating(DISCOVERY_FIELDS, requests, rule))
}

/// Every validating policy that needs nothing else.
#[must_use]
pub fn validating_policies() -> [ValidatingPolicy; 5] {
    [
        immutable_spec(),
        hub_only_status(),
        hub_only_finalizer(),
        hub_only_history(),
        discovery_fields(),
    ]
}

/// Warns the author of a task without the finalizer: no release gave it one, so no hub serves it. So it says nothing true unless
/// those of [`mutating_policies`] are there.
#[must_use]
pub fn warn_without_finalizer() -> ValidatingPolicy {
    let expression = format!("'{FINALIZER}' in object.metadata.?finalizers.orValue([])");
    let message = "no hub of this cluster serves the task, so nothing is rendered for it; ask the platform operator which namespaces are \
                   served";
    let rule = rule(expression, message, None);
    let requests = requests(&["CREATE"], &TASKS);
    warning(validating(WARN_WITHOUT_FINALIZER, requests, rule))
}

/// A policy that only warns, and refuses nothing when it cannot be asked.
fn warning((mut policy, mut binding): ValidatingPolicy) -> ValidatingPolicy {
    if let Some(spec) = &mut policy.spec {
        spec.failure_policy = Some("Ignore".to_owned());
    }
    binding.spec.validation_actions = vec!["Warn".to_owned()];
    (policy, binding)
}

/// What must hold, and what the author of a request hears for which it does not; without a reason it is `Invalid`.
fn rule(expression: impl Into<String>, message: &str, reason: Option<&str>) -> Validation {
    Validation {
        expression: expression.into(),
        message: Some(message.to_owned()),
        reason: reason.map(str::to_owned),
        ..Validation::default()
    }
}

/// A policy with one rule, and its binding; it fails closed.
fn validating(name: &str, requests: MatchResources, rule: Validation) -> ValidatingPolicy {
    let policy = ValidatingAdmissionPolicy {
        metadata: metadata(name),
        spec: Some(ValidatingAdmissionPolicySpec {
            failure_policy: Some("Fail".to_owned()),
            match_constraints: Some(requests),
            validations: Some(vec![rule]),
            ..ValidatingAdmissionPolicySpec::default()
        }),
        status: None,
    };
    let binding = ValidatingAdmissionPolicyBinding {
        metadata: metadata(name),
        spec: ValidatingAdmissionPolicyBindingSpec {
            policy_name: name.to_owned(),
            validation_actions: vec!["Deny".to_owned()],
            ..ValidatingAdmissionPolicyBindingSpec::default()
        },
    };
    (policy, binding)
}

/// Drops the managed fields of an object as it is made: the API server tracks none of it from then on, which is much of the cost of
/// its writes. Only for what hubs alone write, because server-side apply rests on them.
const WITHOUT_MANAGED_FIELDS: &str = "[JSONPatch{op: 'remove', path: '/metadata/managedFields'}]";

/// What the API server changes of objects as they are made: it adds the finalizer to a task, and to a Target, that is made without it,
/// and leaves what others put there; and it keeps no managed fields of the pipeline's tasks and of versions.
///
/// They fail open: an object without the finalizer gets it from the hub, one that cannot be made helps no tenant. Where they are bound
/// is for each release to say: a finalizer that no hub takes off would keep an object, and its namespace, for ever.
#[must_use]
pub fn mutating_policies() -> [MutatingAdmissionPolicy; 3] {
    let of_tasks = format!(
        "({})\n\
         + (has(object.metadata.labels) && '{PIPELINE}' in object.metadata.labels && {HAS_MANAGED_FIELDS}\n\
         ? {WITHOUT_MANAGED_FIELDS}\n\
         : [])",
        with_finalizer(FINALIZER)
    );
    let has_managed_fields = ("has-managed-fields", HAS_MANAGED_FIELDS.to_owned());
    [
        mutating(SET_FINALIZER, &TASKS, has_no_finalizer(FINALIZER), of_tasks),
        mutating(
            SET_TARGET_FINALIZER,
            &["targets"],
            has_no_finalizer(TARGET_FINALIZER),
            with_finalizer(TARGET_FINALIZER),
        ),
        mutating(
            UNMANAGED_VERSIONS,
            &["hydratedtargets"],
            has_managed_fields,
            WITHOUT_MANAGED_FIELDS.to_owned(),
        ),
    ]
}

const HAS_MANAGED_FIELDS: &str = "has(object.metadata.managedFields)";

/// The condition that keeps a policy, asked again after other mutations, from adding a finalizer twice.
fn has_no_finalizer(finalizer: &str) -> (&'static str, String) {
    let expression =
        format!("!has(object.metadata.finalizers) || !('{finalizer}' in object.metadata.finalizers)");
    ("has-no-finalizer", expression)
}

/// The patches that add a finalizer.
fn with_finalizer(finalizer: &str) -> String {
    format!(
        "has(object.metadata.finalizers)\n\
         ? [JSONPatch{{op: 'add', path: '/metadata/finalizers/-', value: '{finalizer}'}}]\n\
         : [JSONPatch{{op: 'add', path: '/metadata/finalizers', value: ['{finalizer}']}}]"
    )
}

/// A policy that patches these resources as they are made, where the condition holds.
fn mutating(
    policy: &str,
    resources: &[&str],
    (condition, holds): (&str, String),
    patches: String,
) -> MutatingAdmissionPolicy {
    MutatingAdmissionPolicy {
        metadata: metadata(policy),
        spec: Some(MutatingAdmissionPolicySpec {
            failure_policy: Some("Ignore".to_owned()),
            reinvocation_policy: Some("IfNeeded".to_owned()),
            match_constraints: Some(requests(&["CREATE"], resources)),
            match_conditions: Some(vec![MatchCondition {
                name: condition.to_owned(),
                expression: holds,
            }]),
            mutations: Some(vec![Mutation {
                patch_type: "JSONPatch".to_owned(),
                json_patch: Some(JSONPatch {
                    expression: Some(patches),
                }),
                ..Mutation::default()
            }]),
            ..MutatingAdmissionPolicySpec::default()
        }),
    }
}

/// Names do not depend on the release: the policies serve every hub of the cluster, as the CRDs do.
fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some([("app.kubernetes.io/part-of".to_owned(), "renderhub".to_owned())].into()),
        ..ObjectMeta::default()
    }
}

/// Every status of renderhub's kinds.
fn statuses() -> Vec<String> {
    let kinds = custom_resource_definitions().into_iter().map(|crd| crd.spec);
    let has_status = |version: &CustomResourceDefinitionVersion| {
        let subresources = version.subresources.as_ref();
        subresources.is_some_and(|subresources| subresources.status.is_some())
    };
    kinds
        .filter(|kind| kind.versions.iter().any(has_status))
        .map(|kind| format!("{}/status", kind.names.plural))
        .collect()
}

/// Requests of the operations for these resources; a subresource is one of its own.
fn requests(operations: &[&str], resources: &[impl ToString]) -> MatchResources {
    MatchResources {
        match_policy: Some("Equivalent".to_owned()),
        resource_rules: Some(vec![NamedRuleWithOperations {
            api_groups: Some(vec![GROUP.to_owned()]),
            api_versions: Some(vec!["*".to_owned()]),
            operations: Some(operations.iter().map(ToString::to_string).collect()),
            resources: Some(resources.iter().map(ToString::to_string).collect()),
            ..NamedRuleWithOperations::default()
        }]),
        ..MatchResources::default()
    }
}
