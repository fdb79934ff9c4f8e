//! Admission policies that stand beside the CRDs: what schema rules cannot see, and what saves the hub a write.
//!
//! Neither is trusted. Without the first the hub still refuses a spec that changed (its generation moved); without the
//! second it sets the finalizer itself.

use k8s_openapi::api::admissionregistration::v1::{
    JSONPatch, MatchCondition, MatchResources, MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding,
    MutatingAdmissionPolicyBindingSpec, MutatingAdmissionPolicySpec, Mutation, NamedRuleWithOperations,
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec,
    ValidatingAdmissionPolicySpec, Validation,
};
use kube::api::ObjectMeta;

use super::labels::{FINALIZER, GROUP};

/// Name of the policy that keeps a task's spec as it was made, and of its binding.
pub const IMMUTABLE_SPEC: &str = "renderhub-immutable-spec";
/// Name of the policy that gives a task its finalizer, and of its binding.
pub const SET_FINALIZER: &str = "renderhub-finalizer";

/// Refuses each change of a task's spec, including free-form values, which a CRD's own rules cannot see.
#[must_use]
pub fn immutable_spec() -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
    let policy = ValidatingAdmissionPolicy {
        metadata: metadata(IMMUTABLE_SPEC),
        spec: Some(ValidatingAdmissionPolicySpec {
            failure_policy: Some("Fail".to_owned()),
            match_constraints: Some(tasks_on("UPDATE")),
            validations: Some(vec![Validation {
                expression: "object.spec == oldObject.spec".to_owned(),
                message: Some("spec is immutable; make a new task".to_owned()),
                reason: Some("Invalid".to_owned()),
                ..Validation::default()
            }]),
            ..ValidatingAdmissionPolicySpec::default()
        }),
        status: None,
    };
    let binding = ValidatingAdmissionPolicyBinding {
        metadata: metadata(IMMUTABLE_SPEC),
        spec: ValidatingAdmissionPolicyBindingSpec {
            policy_name: IMMUTABLE_SPEC.to_owned(),
            validation_actions: vec!["Deny".to_owned()],
            ..ValidatingAdmissionPolicyBindingSpec::default()
        },
    };
    (policy, binding)
}

/// Adds the finalizer to a task that is made without it, and leaves what others put there.
///
/// It fails open: a task without the finalizer gets it from the hub, a task that cannot be made helps nobody.
#[must_use]
pub fn set_finalizer() -> (MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding) {
    let policy = MutatingAdmissionPolicy {
        metadata: metadata(SET_FINALIZER),
        spec: Some(MutatingAdmissionPolicySpec {
            failure_policy: Some("Ignore".to_owned()),
            // Asked again after other mutations, the condition below is what keeps it from adding a second one.
            reinvocation_policy: Some("IfNeeded".to_owned()),
            match_constraints: Some(tasks_on("CREATE")),
            match_conditions: Some(vec![MatchCondition {
                name: "has-no-finalizer".to_owned(),
                expression: format!(
                    "!has(object.metadata.finalizers) || !('{FINALIZER}' in object.metadata.finalizers)"
                ),
            }]),
            mutations: Some(vec![Mutation {
                patch_type: "JSONPatch".to_owned(),
                json_patch: Some(JSONPatch {
                    expression: Some(format!(
                        "has(object.metadata.finalizers)\n\
                         ? [JSONPatch{{op: 'add', path: '/metadata/finalizers/-', value: '{FINALIZER}'}}]\n\
                         : [JSONPatch{{op: 'add', path: '/metadata/finalizers', value: ['{FINALIZER}']}}]"
                    )),
                }),
                ..Mutation::default()
            }]),
            ..MutatingAdmissionPolicySpec::default()
        }),
    };
    let binding = MutatingAdmissionPolicyBinding {
        metadata: metadata(SET_FINALIZER),
        spec: Some(MutatingAdmissionPolicyBindingSpec {
            policy_name: Some(SET_FINALIZER.to_owned()),
            ..MutatingAdmissionPolicyBindingSpec::default()
        }),
    };
    (policy, binding)
}

/// Names do not depend on the release: the policies serve every hub of the cluster, as the CRDs do.
fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some([("app.kubernetes.io/part-of".to_owned(), "renderhub".to_owned())].into()),
        ..ObjectMeta::default()
    }
}

/// Requests of the operation for either kind of task, not for their subresources.
fn tasks_on(operation: &str) -> MatchResources {
    MatchResources {
        match_policy: Some("Equivalent".to_owned()),
        resource_rules: Some(vec![NamedRuleWithOperations {
            api_groups: Some(vec![GROUP.to_owned()]),
            api_versions: Some(vec!["*".to_owned()]),
            operations: Some(vec![operation.to_owned()]),
            resources: Some(vec!["rendertasks".to_owned(), "clusterrendertasks".to_owned()]),
            ..NamedRuleWithOperations::default()
        }]),
        ..MatchResources::default()
    }
}
