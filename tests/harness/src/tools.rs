//! The programs a test world is made of: built once from Go modules kept in this repository, then reused. So is the
//! release that tests upgrade from, out of this repository's history.
//!
//! They are kept below `${XDG_CACHE_HOME:-~/.cache}/renderhub/tools/`, one directory per module, named by a hash of what
//! goes into the build, so a fresh clone reuses them and a changed `go.sum` builds new ones. A build happens in a
//! temporary directory that is renamed when it is complete, below a file lock: a half-finished build is never used.

mod build;
mod earlier;
mod packages;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

pub use earlier::Earlier;
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
    /// The flags of the linker; part of the cache key.
    pub(crate) ldflags: &'static str,
    /// What is built otherwise than by default; part of the cache key.
    pub(crate) flags: &'static [&'static str],
    /// The CRDs that are kept in `crds` beside the programs.
    pub(crate) crds: Option<Crds>,
    /// When it is built.
    pub(crate) when: When,
}

/// CRDs in a Go module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crds {
    /// The module's path.
    pub(crate) module: &'static str,
    /// Their directory there.
    pub(crate) folder: &'static str,
}

/// When a module is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Before all else, because most tests need it.
    Always,
    /// Before the tests of all kinds.
    ForAllTests,
    /// When a program of it is asked for, beside other tests and out of their way.
    OnDemand,
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
    flags: &[],
    crds: None,
    when: When::Always,
};
const HELM: Module = Module {
    dir: "helm",
    title: "helm 4",
    programs: &["helm"],
    ldflags: "-s -w",
    flags: &[],
    crds: None,
    when: When::Always,
};
const REGISTRY: Module = Module {
    dir: "registry",
    title: "the distribution registry",
    programs: &["registry"],
    ldflags: "-s -w",
    flags: &[],
    crds: None,
    when: When::Always,
};
// Two modules, because what they replace one library by differs.
const SOURCE_CONTROLLER: Module = Module {
    dir: "source-controller",
    title: "Flux's source-controller",
    programs: &["source-controller"],
    ldflags: "-s -w",
    flags: &[],
    crds: Some(Crds {
        module: "github.com/fluxcd/source-controller",
        folder: "config/crd/bases",
    }),
    when: When::ForAllTests,
};
const HELM_CONTROLLER: Module = Module {
    dir: "helm-controller",
    title: "Flux's helm-controller and kstatus",
    programs: &["helm-controller", "kstatus"],
    ldflags: "-s -w",
    flags: &[],
    crds: Some(Crds {
        module: "github.com/fluxcd/helm-controller",
        folder: "config/crd/bases",
    }),
    when: When::ForAllTests,
};
const OLM: Module = Module {
    dir: "olm",
    title: "OLM's catalog, olm and opm",
    programs: &["catalog", "olm", "opm"],
    ldflags: "-s -w",
    // Without these tags opm wants C libraries that few machines have.
    flags: &[
        "-tags=containers_image_openpgp,exclude_graphdriver_btrfs,exclude_graphdriver_devicemapper,json1",
    ],
    crds: Some(Crds {
        module: "github.com/operator-framework/api",
        folder: "crds",
    }),
    when: When::OnDemand,
};
const MODULES: [Module; 6] = [
    KUBERNETES,
    HELM,
    REGISTRY,
    SOURCE_CONTROLLER,
    HELM_CONTROLLER,
    OLM,
];

/// Programs that `KUBEBUILDER_ASSETS` may provide instead of our own builds.
const KUBEBUILDER: [&str; 3] = ["etcd", "kube-apiserver", "kubectl"];

/// The programs, found or built.
#[derive(Debug, Clone, Copy)]
pub struct Tools;

impl Tools {
    /// Builds what is missing of all modules but OLM's, which [`Tools::path`] builds when a test asks for it: the first time takes
    /// some minutes, then no time.
    ///
    /// # Errors
    /// If Go is missing or a build fails.
    pub fn ensure() -> Result<()> {
        build_all(|when| when != When::OnDemand)
    }

    /// The same without Flux, which [`Tools::path`] builds when it is asked for.
    ///
    /// # Errors
    /// As [`Tools::ensure`].
    pub fn ensure_without_flux() -> Result<()> {
        build_all(|when| when == When::Always)
    }

    /// The directory of OLM's CRDs, which are there without its programs.
    ///
    /// # Errors
    /// If Go is missing or cannot get them.
    pub fn olm_crds() -> Result<PathBuf> {
        build::crds(&sources(&OLM)?, &OLM, &cache()?)
    }

    /// The path of one program, e.g. `kubectl`; builds its module when it is missing.
    ///
    /// # Errors
    /// If no module gives such a program, or the build fails.
    pub fn path(program: &str) -> Result<PathBuf> {
        let Some(module) = MODULES.iter().find(|module| module.programs.contains(&program)) else {
            bail!("no program `{program}`; there are {}", Self::names().join(", "));
        };
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").filter(|value| !value.is_empty());
        if let Some(assets) = assets.filter(|_| KUBEBUILDER.contains(&program)) {
            return given(Path::new(&assets), program);
        }
        Ok(built(module)?.join(program))
    }

    /// The names of all programs.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        MODULES
            .iter()
            .flat_map(|module| module.programs)
            .copied()
            .collect()
    }
}

fn build_all(wanted: impl Fn(When) -> bool) -> Result<()> {
    let modules = MODULES.iter().filter(|module| wanted(module.when));
    modules.map(built).try_for_each(|done| done.map(drop))
}

/// The directory of the module's programs.
fn built(module: &Module) -> Result<PathBuf> {
    build::ensure(&sources(module)?, module, &cache()?)
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

fn cache() -> Result<PathBuf> {
    Ok(cache_directory()?.join("tools"))
}

/// `${XDG_CACHE_HOME:-~/.cache}/renderhub`.
///
/// # Errors
/// If neither that variable nor `HOME` says where.
pub fn cache_directory() -> Result<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    Ok(base
        .context("neither XDG_CACHE_HOME nor HOME is set: no place to keep the programs")?
        .join("renderhub"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_assets_directory_is_refused_and_not_filled_up() {
        let assets = tempfile::tempdir().unwrap();
        let error = given(assets.path(), "etcd").unwrap_err().to_string();
        assert!(error.contains("KUBEBUILDER_ASSETS"), "{error}");
        std::fs::write(assets.path().join("etcd"), "").unwrap();
        assert_eq!(given(assets.path(), "etcd").unwrap(), assets.path().join("etcd"));
    }

    #[test]
    fn every_program_has_its_module_in_this_repository() {
        for module in &MODULES {
            assert!(
                sources(module).unwrap().join("go.sum").is_file(),
                "{}",
                module.dir
            );
        }
        assert!(
            Tools::path("no-such-program")
                .unwrap_err()
                .to_string()
                .contains("kubectl")
        );
        let version = std::fs::read_to_string(sources(&KUBERNETES).unwrap().join("go.mod")).unwrap();
        assert!(version.contains(&format!("k8s.io/kubernetes v{KUBERNETES_VERSION}")));
        assert!(
            KUBERNETES.title.contains(KUBERNETES_VERSION) && KUBERNETES.ldflags.contains(KUBERNETES_VERSION)
        );
    }
}
