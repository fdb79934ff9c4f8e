//! The programs a test world is made of: built once from Go modules kept in this repository, then reused.
//!
//! They are kept below `${XDG_CACHE_HOME:-~/.cache}/renderhub/tools/`, one directory per module, named by a hash of what
//! goes into the build, so a fresh clone reuses them and a changed `go.sum` builds new ones. A build happens in a
//! temporary directory that is renamed when it is complete, below a file lock: a half-finished build is never used.

mod build;
mod packages;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

pub(crate) use packages::NODE_PACKAGES;
pub use packages::{Package, ensure_packages};

/// The Kubernetes version that is built; the number in `tests/kubernetes/go.mod`.
pub const KUBERNETES_VERSION: &str = "1.36.3";

/// A Go module below `tests/` and the programs it gives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Module {
    /// Its directory below `tests/`.
    pub(crate) dir: &'static str,
    /// What the progress line calls it.
    pub(crate) title: &'static str,
    /// Its programs.
    pub(crate) programs: &'static [&'static str],
    /// What the linker is told; part of the cache key.
    pub(crate) ldflags: &'static str,
}

const KUBERNETES: Module = Module {
    dir: "kubernetes",
    title: "kubernetes 1.36.3 and etcd",
    programs: &[
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-proxy",
        "kube-scheduler",
        "kubectl",
        "kubelet",
    ],
    // Without these the server calls itself v0.0.0-master, and a chart's kubeVersion refuses it.
    ldflags: "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 \
              -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36",
};
const HELM: Module = Module {
    dir: "helm",
    title: "helm 4",
    programs: &["helm"],
    ldflags: "-s -w",
};
const REGISTRY: Module = Module {
    dir: "registry",
    title: "the distribution registry",
    programs: &["registry"],
    ldflags: "-s -w",
};
const MODULES: [Module; 3] = [KUBERNETES, HELM, REGISTRY];

/// Programs that `KUBEBUILDER_ASSETS` may provide instead of our own builds.
const KUBEBUILDER: [&str; 3] = ["etcd", "kube-apiserver", "kubectl"];

/// The programs, found or built.
#[derive(Debug, Clone)]
pub struct Tools {
    kubebuilder: Option<PathBuf>,
}

impl Tools {
    /// Builds what is missing of all modules; the first time takes some minutes, then no time.
    ///
    /// # Errors
    /// If Go is missing or a build fails.
    pub fn ensure() -> Result<Self> {
        let tools = Self::here();
        for module in &MODULES {
            tools.ensure_module(module)?;
        }
        Ok(tools)
    }

    /// The path of one program, e.g. `kubectl`; builds its module when it is missing.
    ///
    /// # Errors
    /// If no module gives such a program, or the build fails.
    pub fn path(program: &str) -> Result<PathBuf> {
        let tools = Self::here();
        let Some(module) = MODULES.iter().find(|m| m.programs.contains(&program)) else {
            let known: Vec<_> = MODULES.iter().flat_map(|m| m.programs).copied().collect();
            bail!("no program `{program}`; there are {}", known.join(", "));
        };
        if let Some(assets) = tools
            .kubebuilder
            .as_deref()
            .filter(|_| KUBEBUILDER.contains(&program))
        {
            return given(assets, program);
        }
        Ok(tools.ensure_module(module)?.join(program))
    }

    fn here() -> Self {
        let kubebuilder = std::env::var_os("KUBEBUILDER_ASSETS")
            .filter(|v| !v.is_empty())
            .map(PathBuf::from);
        Self { kubebuilder }
    }

    /// The names of all programs.
    pub fn programs(&self) -> impl Iterator<Item = &'static str> {
        MODULES.iter().flat_map(|m| m.programs).copied()
    }

    fn ensure_module(&self, module: &Module) -> Result<PathBuf> {
        build::ensure(&sources(module)?, module, &cache()?)
    }
}

fn given(assets: &Path, program: &str) -> Result<PathBuf> {
    let path = assets.join(program);
    if !path.is_file() {
        bail!(
            "KUBEBUILDER_ASSETS is set, but {} does not exist: unset it or complete it",
            path.display()
        );
    }
    Ok(path)
}

/// Where the module's `go.mod` is.
fn sources(module: &Module) -> Result<PathBuf> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("the harness has no parent directory")?;
    Ok(tests.join(module.dir))
}

/// `${XDG_CACHE_HOME:-~/.cache}/renderhub/tools`.
fn cache() -> Result<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    Ok(base
        .context("neither XDG_CACHE_HOME nor HOME is set: no place to keep the programs")?
        .join("renderhub/tools"))
}
