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
    status = "RenderTaskStatus",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.config.type"),
    printcolumn(name = "Chart", type_ = "string", json_path = ".spec.repository"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterName"),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "URL", type_ = "string", json_path = ".status.chartURL", priority = 1),
    printcolumn(name = "Digest", type_ = "string", json_path = ".status.digest", priority = 1),
    printcolumn(
        name = "Job",
        type_ = "string",
        json_path = ".status.jobRef.name",
        priority = 1
    )
)]
#[serde(transparent)]
pub struct ClusterRenderTaskSpec(pub RenderTaskSpec);
