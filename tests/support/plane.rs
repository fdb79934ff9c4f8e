//! The control plane of a test binary, and what a hub may do on it.

use std::path::{Path, PathBuf};

use anyhow::Result;
use k8s_openapi::api::rbac::v1::PolicyRule;
use renderhub_harness::{AuditLevel, ControlPlane};
use tokio::sync::OnceCell;

static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

/// The control plane of this test binary, with renderhub's CRDs.
///
/// # Errors
/// If it does not start.
pub async fn plane() -> Result<&'static ControlPlane> {
    PLANE
        .get_or_try_init(|| async {
            let plane = start_plane().await?;
            for file in crds()? {
                plane.apply_file(&file).await?;
            }
            Ok(plane)
        })
        .await
}

/// A control plane with an audit log, without the Job controller, and without anything of renderhub's.
///
/// # Errors
/// If it does not start.
pub async fn start_plane() -> Result<ControlPlane> {
    ControlPlane::builder()
        .with_audit(AuditLevel::Metadata)
        .without_job_controller()
        .start()
        .await
}

/// A control plane for one test alone, with these of the chart's generated files.
///
/// # Errors
/// If it does not start or does not take a file.
pub async fn own_plane(kinds: &[&str]) -> Result<&'static ControlPlane> {
    let plane = start_plane().await?;
    for kind in kinds {
        for file in files(kind)? {
            plane.apply_file(&file).await?;
        }
    }
    // It ends with the process.
    Ok(Box::leak(Box::new(plane)))
}

/// The chart's generated CRDs.
///
/// # Errors
/// If the chart does not hold them.
pub fn crds() -> Result<Vec<PathBuf>> {
    files("crds")
}

/// The chart's generated files of a kind, in the order of their names.
///
/// # Errors
/// If the chart does not hold them.
pub fn files(kind: &str) -> Result<Vec<PathBuf>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("charts/renderhub/files")
        .join(kind);
    let entries: std::io::Result<Vec<_>> = std::fs::read_dir(dir)?.map(|e| Ok(e?.path())).collect();
    let mut entries = entries?;
    entries.sort();
    Ok(entries)
}

/// What the hub may do, as the chart grants it.
pub fn hub_rules() -> Vec<PolicyRule> {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources.iter().map(ToString::to_string).collect()),
        verbs: verbs.iter().map(ToString::to_string).collect(),
        ..PolicyRule::default()
    };
    let watch = ["get", "list", "watch"];
    vec![
        rule(
            "renderhub.dev",
            &["rendertasks", "clusterrendertasks"],
            &["get", "list", "watch", "patch", "delete"],
        ),
        rule(
            "renderhub.dev",
            &[
                "rendertasks/status",
                "clusterrendertasks/status",
                "clusterregistries/status",
                "rendererclasses/status",
            ],
            &["patch"],
        ),
        rule("renderhub.dev", &["clusterregistries", "rendererclasses"], &watch),
        rule(
            "renderhub.dev",
            &["registries", "referencegrants"],
            &["list", "watch"],
        ),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
        rule("", &["namespaces"], &watch),
        rule("batch", &["jobs"], &["get", "list", "watch", "create", "delete"]),
        rule("", &["secrets"], &["get", "list", "watch", "create", "delete"]),
        rule("", &["pods"], &["list", "watch"]),
        // What a hub looks at before it starts, and its Lease.
        rule("", &["resourcequotas"], &["list"]),
        rule("networking.k8s.io", &["networkpolicies"], &["list"]),
        rule("rbac.authorization.k8s.io", &["rolebindings"], &["list"]),
        rule(
            "authorization.k8s.io",
            &["localsubjectaccessreviews"],
            &["create"],
        ),
        rule(
            "coordination.k8s.io",
            &["leases"],
            &["get", "list", "create", "update"],
        ),
    ]
}

/// A client of the administrator of this binary's control plane.
///
/// # Errors
/// If the control plane does not start.
pub async fn admin() -> Result<kube::Client> {
    plane().await?.admin().client().await
}
