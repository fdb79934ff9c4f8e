//! Flags of clusters that are not the hub's.

use std::time::Duration;

use clap::Args;
use ipnet::IpNet;

use super::error::SettingsError;
use super::parse::{duration, label, trimmed};
use crate::plan::platform::feature_gates::FeatureGates;

/// Which clusters the hub reaches, and how long it waits for one that is lost.
#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// Features that are off by default, as Name=true, comma-separated; may be repeated.
    #[arg(long, env = "RENDERHUB_FEATURE_GATES", value_delimiter = ',')]
    pub feature_gates: Vec<String>,
    /// Namespace of the Secrets with the kubeconfigs of `RenderClusters`. Default: the rendering namespace.
    #[arg(long, env = "RENDERHUB_CLUSTER_NAMESPACE")]
    pub cluster_namespace: Option<String>,
    /// Time after the loss of a cluster at which the Jobs that ran there are given up, such as 90s, 15m or 1h.
    #[arg(long, env = "RENDERHUB_CLUSTER_LOST_TIMEOUT", default_value = "15m", value_parser = duration)]
    pub cluster_lost_timeout: Duration,
    /// Longest that the deletion of a task waits for a cluster that is not reached, such as 0s, 10m or 1h.
    #[arg(long, env = "RENDERHUB_ORPHAN_GRACE_PERIOD", default_value = "10m", value_parser = duration)]
    pub orphan_grace_period: Duration,
    /// Networks in which clusters may be although they are refused otherwise, such as 127.0.0.0/8, comma-separated.
    #[arg(long, env = "RENDERHUB_CLUSTER_ALLOW_CIDRS", value_delimiter = ',')]
    pub cluster_allow_cidrs: Vec<String>,
    /// Networks in which no cluster may be, and no registry of a tenant that the hub asks, such as those of the hub's Services and pods,
    /// comma-separated; they win.
    #[arg(long, env = "RENDERHUB_CLUSTER_DENY_CIDRS", value_delimiter = ',')]
    pub cluster_deny_cidrs: Vec<String>,
}

/// Which clusters the hub reaches, and how long it waits for one that is lost; every value is legal.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// Which gates are open.
    pub feature_gates: FeatureGates,
    /// Namespace of the kubeconfigs of `RenderClusters`.
    pub namespace: String,
    /// Time from the first loss to the end of hope.
    pub lost_timeout: Duration,
    /// Longest that a deletion waits.
    pub orphan_grace_period: Duration,
    /// Networks that are allowed although they would be refused.
    pub allowed: Vec<IpNet>,
    /// Networks that are refused.
    pub denied: Vec<IpNet>,
}

impl ClusterArgs {
    pub(super) fn settings(&self, rendering: &str) -> Result<ClusterSettings, SettingsError> {
        let namespace = self.cluster_namespace.as_deref().unwrap_or(rendering).trim();
        Ok(ClusterSettings {
            feature_gates: FeatureGates::parse(self.feature_gates.iter().map(String::as_str))?,
            namespace: label("cluster-namespace", namespace)?,
            lost_timeout: self.cluster_lost_timeout,
            orphan_grace_period: self.orphan_grace_period,
            allowed: networks("cluster-allow-cidrs", &self.cluster_allow_cidrs)?,
            denied: networks("cluster-deny-cidrs", &self.cluster_deny_cidrs)?,
        })
    }
}

fn networks(flag: &'static str, list: &[String]) -> Result<Vec<IpNet>, SettingsError> {
    let network = |text: String| text.parse().map_err(|_| SettingsError::NotANetwork(flag));
    trimmed(list).into_iter().map(network).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::*;
    use crate::plan::platform::feature_gates::{FeatureGate, FeatureGateError};

    #[test]
    fn what_is_not_said_is_strict() {
        let found = settings(&[]).unwrap().clusters;
        assert!(
            FeatureGate::ALL
                .iter()
                .all(|gate| !found.feature_gates.is_open(*gate))
        );
        let times = [found.lost_timeout, found.orphan_grace_period].map(|time| time.as_secs());
        assert_eq!(times, [900, 600]);
        assert!(found.allowed.is_empty() && found.denied.is_empty());
    }

    #[test]
    fn gates_may_be_repeated_and_must_exist() {
        let flags = [
            "--feature-gates=ExternalClusterReference=true",
            "--feature-gates=ExternalClusterReferenceCrossNamespace=true",
        ];
        let gates = settings(&flags).unwrap().clusters.feature_gates;
        assert!(FeatureGate::ALL.iter().all(|gate| gates.is_open(*gate)));
        let unknown = settings(&["--feature-gates=Everything=true"]).unwrap_err();
        assert_eq!(unknown, SettingsError::Gates(FeatureGateError::Unknown));
    }

    #[test]
    fn networks_are_networks() {
        let flags = [
            "--cluster-allow-cidrs=127.0.0.0/8, fd00::/8",
            "--cluster-deny-cidrs=10.96.0.0/12",
        ];
        let found = settings(&flags).unwrap().clusters;
        assert_eq!((found.allowed.len(), found.denied.len()), (2, 1));
        let wrong = settings(&["--cluster-deny-cidrs=everything"]).unwrap_err();
        assert_eq!(wrong, SettingsError::NotANetwork("cluster-deny-cidrs"));
    }
}
