//! The CRDs as they are installed: what the derives make of the types, with what Kubernetes reads differently put right.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use super::{ClusterRegistry, ClusterRenderTask, RenderTask, RendererClass};

/// The CRD of every kind, in the order they are documented in.
#[must_use]
pub fn custom_resource_definitions() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![
        RenderTask::crd(),
        ClusterRenderTask::crd(),
        ClusterRegistry::crd(),
        RendererClass::crd(),
    ];
    let schemas = crds
        .iter_mut()
        .flat_map(|crd| &mut crd.spec.versions)
        .filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    for schema in schemas {
        finish(schema);
    }
    crds
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
    let Some(spec) = kind.properties.as_mut().and_then(|p| p.get_mut("spec")) else {
        return;
    };
    let about = spec.description.replace("What is asked for.".to_owned());
    if let Some(config) = spec.properties.as_mut().and_then(|p| p.get_mut("config")) {
        // The renderer gets what the tenant wrote, and nothing the API server added.
        for_each(config, &mut |node| node.default = None);
    }
    kind.description = about;
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
