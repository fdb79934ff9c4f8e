//! The control plane of a test binary.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use renderhub_harness::helm::{self, Helm};
use renderhub_harness::rights::RELEASE_NAMESPACE;
use renderhub_harness::{AuditLevel, ControlPlane, apply};
use tokio::sync::OnceCell;

use crate::programs::ROOT;

static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

/// Where the mutating policies hold, as a release binds them that serves all namespaces.
pub(crate) const MUTATING_EVERYWHERE: &str = "\
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: renderhub-finalizer}
spec: {policyName: renderhub-finalizer}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: renderhub-target-finalizer}
spec: {policyName: renderhub-target-finalizer}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: renderhub-unmanaged-versions}
spec: {policyName: renderhub-unmanaged-versions}
";

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
            keep_rights_in_dying_namespaces(&plane).await?;
            Ok(plane)
        })
        .await
}

/// Installs what keeps a hub's rights in a namespace that is being deleted, where the chart gives them by namespace.
///
/// # Errors
/// If the chart does not hold it.
pub async fn keep_rights_in_dying_namespaces(plane: &ControlPlane) -> Result<()> {
    let values = [
        "crds.install=false",
        "controller.watchNamespaces={any}",
        "pipeline.enabled=true",
    ];
    let admin = plane.admin().client().await?;
    let mut found = 0;
    for object in helm::template(&Helm::new()?, RELEASE_NAMESPACE, &values).await? {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if name.starts_with("renderhub-namespace-deletion") {
            apply::object(&admin, object).await?;
            found += 1;
        }
    }
    ensure!(found == 4, "two policies and their bindings, not {found} objects");
    Ok(())
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

/// A control plane for one test alone, with these of the chart's generated files; `policies` come with the binding of a release.
///
/// # Errors
/// If it does not start or does not take a file.
pub async fn own_plane(kinds: &[&str]) -> Result<&'static ControlPlane> {
    let plane = start_plane().await?;
    for kind in kinds {
        for file in files(kind)? {
            plane.apply_file(&file).await?;
        }
        if *kind == "policies" {
            plane.apply_yaml(MUTATING_EVERYWHERE).await?;
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
    let dir = Path::new(ROOT).join("charts/renderhub/files").join(kind);
    let entries: std::io::Result<Vec<_>> = std::fs::read_dir(dir)?.map(|e| Ok(e?.path())).collect();
    let mut entries = entries?;
    entries.sort();
    Ok(entries)
}

/// A client of the administrator of this binary's control plane.
///
/// # Errors
/// If the control plane does not start.
pub async fn admin() -> Result<kube::Client> {
    plane().await?.admin().client().await
}
