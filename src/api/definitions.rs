//! The CRDs as they are installed: what the derives make of the types, with what Kubernetes reads differently put right.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool, ValidationRule,
};
use kube::CustomResourceExt;
use serde_json::json;

use super::cluster_registry::ClusterRegistry;
use super::cluster_render_task::ClusterRenderTask;
use super::pipeline::{
    Component, ComponentVersion, HydratedTarget, Profile, RegistryBinding, Release, ReleaseBinding, Target,
};
use super::queue_policy::QueuePolicy;
use super::reference_grant::ReferenceGrant;
use super::registry::Registry;
use super::render_cluster::RenderCluster;
use super::render_task::RenderTask;
use super::renderer_class::RendererClass;

/// A column of `kubectl get`: its name, where its text is, and whether only `-o wide` shows it.
type PrinterColumn = (&'static str, &'static str, bool);

/// Columns of both kinds of tasks. The reason of `Ready` is the state of the task.
const TASK_COLUMNS: &[PrinterColumn] = &[
    ("Type", ".spec.config.type", false),
    ("Chart", ".spec.repository", false),
    ("Cluster", ".spec.clusterName", false),
    READY,
    AGE,
    ("URL", ".status.chartURL", true),
    ("Digest", ".status.digest", true),
    ("Job", ".status.jobRef.name", true),
];

/// Columns of a registry.
const REGISTRY_COLUMNS: &[PrinterColumn] = &[
    ("Host", ".spec.hostname", false),
    ("Ready", r#".status.conditions[?(@.type=="Ready")].status"#, false),
    (
        "Reason",
        r#".status.conditions[?(@.type=="Ready")].reason"#,
        false,
    ),
    AGE,
    ("Prefix", ".spec.repositoryPrefix", true),
    ("Secret", ".spec.pushSecretRef.name", true),
];

/// Columns of a renderer class.
const CLASS_COLUMNS: &[PrinterColumn] = &[
    ("Image", ".spec.image", false),
    ("Mode", ".spec.mode", false),
    (
        "Isolated",
        r#".status.conditions[?(@.type=="Isolated")].status"#,
        false,
    ),
    (
        "Default",
        r".metadata.annotations.renderhub\.dev/is-default-class",
        false,
    ),
    AGE,
];

/// Columns of a render cluster.
const CLUSTER_COLUMNS: &[PrinterColumn] = &[
    (
        "Connected",
        r#".status.conditions[?(@.type=="Connected")].status"#,
        false,
    ),
    (
        "Reason",
        r#".status.conditions[?(@.type=="Connected")].reason"#,
        false,
    ),
    ("Version", ".status.version", false),
    ("Jobs", ".status.activeJobs", false),
    ("Suspended", ".spec.suspend", false),
    AGE,
    ("Namespace", ".spec.renderNamespace", true),
    ("Secret", ".spec.kubeConfig.secretRef.name", true),
];

/// Columns of a queue policy.
const QUEUE_COLUMNS: &[PrinterColumn] = &[
    ("Weight", ".spec.weight", false),
    ("Namespaces", ".spec.namespaces", false),
    AGE,
];

/// Columns of a tenant's registry.
const TENANT_REGISTRY_COLUMNS: &[PrinterColumn] = &[
    ("Host", ".spec.hostname", false),
    ("Secret", ".spec.pushSecretRef.name", false),
    AGE,
];

/// Columns of a grant: the first of each list, which is mostly the only one.
const GRANT_COLUMNS: &[PrinterColumn] = &[
    ("From", ".spec.from[0].namespace", false),
    ("To", ".spec.to[0].kind", false),
    AGE,
];

/// Columns of a component.
const COMPONENT_COLUMNS: &[PrinterColumn] = &[
    ("Registry", ".spec.registry", false),
    ("Repository", ".spec.repository", false),
    READY,
    AGE,
];

/// Columns of a version of a component.
const COMPONENT_VERSION_COLUMNS: &[PrinterColumn] = &[
    ("Component", ".spec.componentRef.name", false),
    ("Tag", ".spec.tag", false),
    READY,
    AGE,
];

/// The reason of `Ready`.
const READY: PrinterColumn = (
    "Status",
    r#".status.conditions[?(@.type=="Ready")].reason"#,
    false,
);

/// Columns of a release.
const RELEASE_COLUMNS: &[PrinterColumn] = &[
    ("Version", ".spec.componentVersionRef.name", false),
    ("Name", ".status.effectiveUniqueName", false),
    ("Priority", ".spec.priority", true),
    READY,
    AGE,
];

/// Columns of a binding of a release.
const RELEASE_BINDING_COLUMNS: &[PrinterColumn] = &[
    ("Target", ".spec.targetRef.name", false),
    ("Release", ".spec.releaseRef.name", false),
    READY,
    AGE,
];

/// Columns of a binding of a registry.
const REGISTRY_BINDING_COLUMNS: &[PrinterColumn] = &[
    ("Target", ".spec.targetRef.name", false),
    ("Registry", ".spec.registryRef.name", false),
    READY,
    AGE,
];

/// Columns of a profile.
const PROFILE_COLUMNS: &[PrinterColumn] = &[
    ("Release", ".spec.releaseRef.name", false),
    ("Targets", ".status.matchedTargets", false),
    ("Updated", ".status.updatedTargets", false),
    READY,
    AGE,
    ("At a time", ".spec.maxUnavailable", true),
];

/// Columns of a target.
const TARGET_COLUMNS: &[PrinterColumn] = &[
    ("Version", ".status.bootstrapVersion", false),
    READY,
    AGE,
    ("URL", ".status.chartURL", true),
    ("Rollback", ".spec.rollbackTo", true),
];

/// Columns of a version of a target.
const HYDRATED_COLUMNS: &[PrinterColumn] = &[
    ("Target", ".spec.targetName", false),
    ("Version", ".spec.version", false),
    READY,
    ("Changes", ".spec.changes", false),
    AGE,
    ("Digest", ".status.digest", true),
];

/// The column that every kind has.
const AGE: PrinterColumn = ("Age", ".metadata.creationTimestamp", false);

/// Refuses each change of a spec, and compares nothing for a write of the hub's to the status, whose seal is another one each time.
///
/// The API server compares specs slowly: in a fleet whose charts have 20 releases that took a fifth of its CPU. A write to the status
/// cannot change the spec, and any other cannot change the status, so that what this leaves out cannot be what it refuses.
const IMMUTABLE_SPEC: &str = "has(self.status) && has(self.status.seal) && (!has(oldSelf.status) || !has(oldSelf.status.seal) || \
                              self.status.seal != oldSelf.status.seal) || self.spec == oldSelf.spec";

/// What the author of a task hears who changes it.
const NEW_TASK: &str = "spec is immutable; make a new task";

/// The CRD of every kind, in the order they are documented in.
#[must_use]
pub fn custom_resource_definitions() -> Vec<CustomResourceDefinition> {
    vec![
        with_immutable_spec(finished(RenderTask::crd(), TASK_COLUMNS), NEW_TASK),
        with_immutable_spec(finished(ClusterRenderTask::crd(), TASK_COLUMNS), NEW_TASK),
        finished(ClusterRegistry::crd(), REGISTRY_COLUMNS),
        finished(RendererClass::crd(), CLASS_COLUMNS),
        finished(RenderCluster::crd(), CLUSTER_COLUMNS),
        finished(QueuePolicy::crd(), QUEUE_COLUMNS),
        finished(Registry::crd(), TENANT_REGISTRY_COLUMNS),
        finished(ReferenceGrant::crd(), GRANT_COLUMNS),
        unseen(Target::crd(), TARGET_COLUMNS),
        unseen(Release::crd(), RELEASE_COLUMNS),
        unseen(ReleaseBinding::crd(), RELEASE_BINDING_COLUMNS),
        unseen(Profile::crd(), PROFILE_COLUMNS),
        unseen(RegistryBinding::crd(), REGISTRY_BINDING_COLUMNS),
        unseen(Component::crd(), COMPONENT_COLUMNS),
        unseen(ComponentVersion::crd(), COMPONENT_VERSION_COLUMNS),
        with_immutable_spec(
            unseen(HydratedTarget::crd(), HYDRATED_COLUMNS),
            "a version stands for one content",
        ),
    ]
}

/// The CRD with its columns, and its schema put right.
fn finished(mut crd: CustomResourceDefinition, columns: &[PrinterColumn]) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        version.additional_printer_columns = Some(columns.iter().map(column).collect());
    }
    schemas(&mut crd).for_each(finish);
    crd
}

/// The same for a kind whose objects are not ready before the hub has looked at them: tools that read kstatus take an object without a
/// status for one that is as it should be.
fn unseen(crd: CustomResourceDefinition, columns: &[PrinterColumn]) -> CustomResourceDefinition {
    let mut crd = finished(crd, columns);
    for properties in schemas(&mut crd).filter_map(|kind| kind.properties.as_mut()) {
        if let Some(status) = properties.get_mut("status") {
            status.default = Some(JSON(json!({"observedGeneration": -1})));
        }
    }
    crd
}

/// The CRD of a kind whose spec stays as it was made; its statuses have a seal.
fn with_immutable_spec(mut crd: CustomResourceDefinition, refusal: &str) -> CustomResourceDefinition {
    for kind in schemas(&mut crd) {
        kind.x_kubernetes_validations
            .get_or_insert_default()
            .push(ValidationRule {
                rule: IMMUTABLE_SPEC.to_owned(),
                message: Some(refusal.to_owned()),
                field_path: Some(".spec".to_owned()),
                ..ValidationRule::default()
            });
    }
    crd
}

/// The schema of a kind in each of its versions.
fn schemas(crd: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
    let schemas = crd
        .spec
        .versions
        .iter_mut()
        .flat_map(|version| &mut version.schema);
    schemas.flat_map(|schema| &mut schema.open_api_v3_schema)
}

fn column(&(name, path, is_wide): &PrinterColumn) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        json_path: path.to_owned(),
        type_: if name == AGE.0 { "date" } else { "string" }.to_owned(),
        priority: is_wide.then_some(1),
        ..CustomResourceColumnDefinition::default()
    }
}

/// Puts right what the derives leave behind in the schema of a kind.
fn finish(kind: &mut JSONSchemaProps) {
    kind.title = None;
    for_each(kind, &mut |node| {
        // The API server drops a null where none is allowed, so an absent field has one spelling: no rule can be
        // passed, and no type confused, by a null.
        node.nullable = None;
        if node.format.as_deref() == Some("int32") {
            // The format alone is not enforced, and the Rust type cannot hold more.
            node.minimum.get_or_insert(f64::from(i32::MIN));
            node.maximum.get_or_insert(f64::from(i32::MAX));
        }
    });
    let properties = kind.properties.as_mut();
    if let Some(status) = properties.and_then(|p| p.get_mut("status"))
        && is_sealed(status)
    {
        // The hub believes none without its seal: to match each text of it would cost the API server more than it keeps out.
        for_each(status, &mut |node| {
            node.pattern = None;
            node.x_kubernetes_validations = None;
        });
        // The hub writes it whole: the API server need not say of each field that it is the hub's.
        status.x_kubernetes_map_type = Some("atomic".to_owned());
    }
    let Some(spec) = kind.properties.as_mut().and_then(|p| p.get_mut("spec")) else {
        return;
    };
    let about = spec.description.replace("What is asked for.".to_owned());
    if let Some(config) = spec.properties.as_mut().and_then(|p| p.get_mut("config")) {
        // The renderer gets what the tenant wrote, and nothing the API server added.
        for_each(config, &mut |node| node.default = None);
    } else {
        // Types that a configuration shares are open there, for a renderer that knows more fields; the hub itself knows them all.
        for_each(spec, &mut |node| {
            if node.type_.as_deref() == Some("object") {
                node.x_kubernetes_preserve_unknown_fields = None;
            }
        });
    }
    kind.description = about;
}

/// Whether a status proves that the hub wrote it.
fn is_sealed(status: &JSONSchemaProps) -> bool {
    status
        .properties
        .as_ref()
        .is_some_and(|properties| properties.contains_key("seal"))
}

/// Visits the schema and all below it.
fn for_each(schema: &mut JSONSchemaProps, visit: &mut impl FnMut(&mut JSONSchemaProps)) {
    visit(schema);
    for child in schema.properties.iter_mut().flat_map(|p| p.values_mut()) {
        for_each(child, visit);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        for_each(items, visit);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        for_each(values, visit);
    }
}
