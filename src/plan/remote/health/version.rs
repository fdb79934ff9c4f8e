//! The version of Kubernetes on a cluster.

use std::fmt;

/// The oldest version of Kubernetes that Jobs are run on.
pub const OLDEST: KubernetesVersion = KubernetesVersion { major: 1, minor: 29 };

/// A version of Kubernetes, without what vendors add to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubernetesVersion {
    /// Before the dot.
    pub major: u16,
    /// After it.
    pub minor: u16,
}

impl KubernetesVersion {
    /// Parses the two fields of `/version`; vendors write a minor such as `29+`.
    #[must_use]
    pub fn parse(major: &str, minor: &str) -> Option<Self> {
        let number = |text: &str| {
            let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            text.get(..digits)?.parse().ok()
        };
        Some(Self {
            major: number(major)?,
            minor: number(minor)?,
        })
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}
