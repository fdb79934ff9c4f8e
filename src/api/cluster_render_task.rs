//! `ClusterRenderTask`: the same request, made by the platform itself.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::render_task::{RenderTaskSpec, RenderTaskStatus};

/// Asks the hub to render a chart for the platform itself. The same spec as a `RenderTask`; no tenant can reach it.
#[derive(Clone, Debug, Deserialize, Serialize, CustomResource, JsonSchema)]
#[kube(
    group = "renderhub.dev",
    version = "v1alpha1",
    kind = "ClusterRenderTask",
    plural = "clusterrendertasks",
    shortname = "crt",
    category = "renderhub",
    status = "RenderTaskStatus"
)]
#[serde(transparent)]
pub struct ClusterRenderTaskSpec(pub RenderTaskSpec);
