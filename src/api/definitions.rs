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
    for version in crds.iter_mut().flat_map(|crd| &mut crd.spec.versions) {
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|s| s.open_api_v3_schema.as_mut())
        {
            for_each_schema(schema, &mut |node| node.nullable = None);
        }
    }
    crds
}

/// Visits the schema and all below it.
///
/// The API server drops a null where none is allowed, so without `nullable` an absent field has one spelling: no rule
/// can be passed, and no type confused, by a null.
fn for_each_schema(schema: &mut JSONSchemaProps, visit: &mut impl FnMut(&mut JSONSchemaProps)) {
    visit(schema);
    for child in schema.properties.iter_mut().flat_map(|p| p.values_mut()) {
        for_each_schema(child, visit);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        for_each_schema(items, visit);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        for_each_schema(values, visit);
    }
}
