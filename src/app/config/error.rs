//! What is wrong with flags.

use crate::plan::platform::feature_gates::FeatureGateError;
use crate::plan::preflight::PreflightCheck;

/// Why flags do not make settings.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A flag whose value is no DNS label.
    #[error("--{flag} must be a lower-case DNS label (a-z, 0-9 and -, at most 63 characters), not {value:?}")]
    NotALabel {
        /// The flag.
        flag: &'static str,
        /// What it says.
        value: String,
    },
    /// A list of namespaces that holds other than their names.
    #[error(
        "--watch-namespaces must be names of namespaces (a-z, 0-9 and -, at most 63 characters), not {0:?}; to serve all \
         namespaces, leave it out"
    )]
    NotANamespace(String),
    /// A list without a name would mean all namespaces, which is more than what was asked for.
    #[error("--watch-namespaces={0:?} names no namespace; to serve all namespaces, leave it out")]
    NoNamespaces(String),
    /// A flag that must be at least 1.
    #[error("--{0} must be at least 1")]
    Zero(&'static str),
    /// A namespace may not have more than all together.
    #[error("--max-active-jobs-per-namespace must not be larger than --max-active-jobs")]
    CapsContradict,
    /// A namespace may not keep more failed Jobs than all together.
    #[error("--keep-failed-jobs-per-namespace must not be larger than --keep-failed-jobs")]
    KeptContradict,
    /// A tenant with rights in the rendering namespace could read the platform's credentials.
    #[error("--watch-namespaces must not contain the rendering namespace")]
    WatchesRendering,
    /// Namespaces of catalogs that cannot be meant.
    #[error("--catalog-namespaces{0}")]
    Catalogs(CatalogError),
    /// A ServiceAccount's name is a DNS subdomain.
    #[error(
        "--default-service-account must be the name of a ServiceAccount (a-z, 0-9, - and ., at most 253 characters)"
    )]
    NotAServiceAccount,
    /// Neither a host nor a pattern of hosts.
    #[error(
        "--own-registry-hosts: \"{0}\" is neither a host such as registry.example.com:5000, nor *.example.com, nor *"
    )]
    NotAHost(String),
    /// A name that no check has.
    #[error("--skip-preflight must be a list of names of: {}", skippable())]
    NoSuchCheck,
    /// A hub without this check would do damage by being there.
    #[error("--skip-preflight must not contain {0}: it cannot be left out")]
    NotSkippable(PreflightCheck),
    /// A Lease names the instance that holds it.
    #[error("--instance-name must be 1 to 253 printable characters without spaces")]
    NoInstanceName,
    /// Something that is no gate is to be opened.
    #[error("--feature-gates: {0}")]
    Gates(#[from] FeatureGateError),
    /// A network is an address and a length.
    #[error("--{0} must be a list of networks such as 10.0.0.0/8")]
    NotANetwork(&'static str),
    /// A pause between what would otherwise be done all the time.
    #[error("--{0} must be at least 1s")]
    TooShort(&'static str),
}

/// Why namespaces of catalogs cannot be meant, as the end of a sentence that begins with the flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// A list without a name.
    #[error("={0:?} names no namespace; where there is no catalog, leave it out")]
    Empty(String),
    /// A list of namespaces that holds other than their names.
    #[error(" must be names of namespaces (a-z, 0-9 and -, at most 63 characters), not {0:?}")]
    NotANamespace(String),
    /// The authors of a catalog have rights in its namespace.
    #[error(
        " must not contain the rendering namespace: who writes a catalog there could read the platform's credentials"
    )]
    Rendering,
    /// A hub without a list sees every catalog already.
    #[error(
        " needs --watch-namespaces: a hub without a list serves all namespaces, and sees every catalog already"
    )]
    ServesAll,
    /// Nothing else reads them.
    #[error(" needs --pipeline: only Targets and their Releases use a catalog")]
    NoPipeline,
    /// What is in a catalog is used from other namespaces alone.
    #[error(
        " needs --no-cross-namespace-refs=false: while no reference leaves its namespace, nothing of a catalog can be used"
    )]
    NothingCrosses,
}

/// The names that may be skipped, for a message.
fn skippable() -> String {
    let names = PreflightCheck::ALL
        .into_iter()
        .filter(|check| check.can_be_skipped());
    names.map(PreflightCheck::as_str).collect::<Vec<_>>().join(", ")
}
