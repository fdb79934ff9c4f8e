//! OLM on a cluster: its controllers and its server of catalogs as processes of their own beside it.

mod catalog;

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use kube::Client;

use crate::process::Process;
use crate::progress::Progress;
use crate::{ControlPlane, Tools, apply, rundir};

pub use catalog::{Bundle, Catalog};

/// Where OLM's own objects are.
pub const NAMESPACE: &str = "olm";
/// Where operators for all namespaces are installed.
pub const OPERATORS: &str = "operators";
/// Both namespaces, and the group by which an operator is for all of them.
const OBJECTS: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: olm}
---
apiVersion: v1
kind: Namespace
metadata: {name: operators}
---
apiVersion: operators.coreos.com/v1
kind: OperatorGroup
metadata: {name: everywhere, namespace: operators}
spec: {}
";

/// A running OLM; it ends when it is dropped.
#[derive(Debug)]
pub struct Olm {
    catalog: Process,
    operators: Process,
}

impl Olm {
    /// Makes OLM's kinds and namespaces, and starts both controllers as the administrator.
    ///
    /// # Errors
    /// If a program cannot be built, or does not start.
    pub async fn start(plane: &ControlPlane) -> Result<Self> {
        let programs = [Tools::path("catalog")?, Tools::path("olm")?];
        let _progress = Progress::start("starting OLM");
        let client = plane.admin().client().await?;
        apply_crds(&client).await?;
        apply::yaml(&client, OBJECTS).await?;
        let dir = rundir::fresh("olm")?;
        let kubeconfig = plane.admin().kubeconfig()?;
        let [mut catalog, mut operators] = programs.map(Command::new);
        catalog
            .args(["--namespace", NAMESPACE, "--interval", "5s", "--kubeconfig"])
            .arg(&kubeconfig)
            .current_dir(&dir);
        operators
            .args(["--namespace", NAMESPACE])
            .env("OPERATOR_NAMESPACE", NAMESPACE)
            .env("KUBECONFIG", &kubeconfig)
            .current_dir(&dir);
        Ok(Self {
            catalog: Process::spawn("catalog-operator", &catalog, &dir.join("catalog.log"))?,
            operators: Process::spawn("olm-operator", &operators, &dir.join("olm.log"))?,
        })
    }

    /// Fails, with the end of its log, if a controller has ended.
    ///
    /// # Errors
    /// If one is no longer running.
    pub fn check_running(&self) -> Result<()> {
        self.catalog.check_running()?;
        self.operators.check_running()
    }
}

/// Makes OLM's kinds, without OLM's programs: enough for tests of who writes what.
///
/// # Errors
/// If Go cannot get them, or the API server refuses one.
pub async fn apply_crds(client: &Client) -> Result<()> {
    let mut files: Vec<_> = fs::read_dir(Tools::olm_crds()?)?.collect::<std::io::Result<_>>()?;
    files.sort_by_key(fs::DirEntry::path);
    for file in files {
        let path = file.path();
        let text = fs::read_to_string(&path)?;
        apply::yaml(client, &text)
            .await
            .with_context(|| format!("in {}", path.display()))?;
    }
    Ok(())
}
