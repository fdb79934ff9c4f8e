//! What is read of the kinds of the Operator Lifecycle Manager: which operator came from which catalog, and which pull secrets the
//! catalog names. Everything else of them is passed over.

use kube::api::ApiResource;
use serde::Deserialize;

/// API group of the kinds.
pub const OLM_GROUP: &str = "operators.coreos.com";
/// Version of the kinds.
pub const OLM_VERSION: &str = "v1alpha1";
/// Label that OLM puts on the copy of a `ClusterServiceVersion`, in each namespace that the operator watches.
pub const COPIED_FROM: &str = "olm.copiedFrom";
/// Reason that OLM gives in the status of such a copy.
pub const COPIED: &str = "Copied";

/// A kind of OLM as a resource.
#[must_use]
pub fn olm_resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: OLM_GROUP.to_owned(),
        version: OLM_VERSION.to_owned(),
        api_version: format!("{OLM_GROUP}/{OLM_VERSION}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// Spec of a `CatalogSource`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct CatalogSourceSpec {
    /// Names of pull secrets in its namespace.
    #[serde(default)]
    pub secrets: Option<Vec<String>>,
}

/// Spec of a `Subscription`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionSpec {
    /// Name of the `CatalogSource`.
    #[serde(default)]
    pub source: String,
    /// Namespace of the `CatalogSource`.
    #[serde(default)]
    pub source_namespace: String,
}

/// Status of a `Subscription`, which OLM alone writes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionStatus {
    /// The `ClusterServiceVersion` that is installed.
    #[serde(default, rename = "installedCSV")]
    pub installed_csv: Option<String>,
    /// The one that is being installed, or is.
    #[serde(default, rename = "currentCSV")]
    pub current_csv: Option<String>,
}

/// Spec of a `ClusterServiceVersion`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ClusterServiceVersionSpec {
    /// How the operator is installed.
    #[serde(default)]
    pub install: InstallStrategy,
}

/// Status of a `ClusterServiceVersion`, which OLM alone writes.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ClusterServiceVersionStatus {
    /// Why it is in its phase.
    #[serde(default)]
    pub reason: Option<String>,
}

/// How an operator is installed.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct InstallStrategy {
    /// What is installed.
    #[serde(default)]
    pub spec: StrategyDetails,
}

/// What is installed.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct StrategyDetails {
    /// The Deployments.
    #[serde(default)]
    pub deployments: Option<Vec<StrategyDeployment>>,
}

/// A Deployment of an operator.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct StrategyDeployment {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its spec.
    #[serde(default)]
    pub spec: StrategyDeploymentSpec,
}

/// Spec of a Deployment of an operator.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct StrategyDeploymentSpec {
    /// Its pods.
    #[serde(default)]
    pub template: StrategyPodTemplate,
}

/// The pods of a Deployment of an operator.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct StrategyPodTemplate {
    /// Their spec.
    #[serde(default)]
    pub spec: Option<StrategyPodSpec>,
}

/// Spec of the pods of an operator.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StrategyPodSpec {
    /// Their ServiceAccount.
    #[serde(default)]
    pub service_account_name: Option<String>,
    /// The name of the same field in earlier versions, which an API server still reads.
    #[serde(default)]
    pub service_account: Option<String>,
}

impl StrategyDeployment {
    /// The ServiceAccount of its pods.
    #[must_use]
    pub fn account(&self) -> &str {
        let spec = self.spec.template.spec.as_ref();
        let named = spec.and_then(|spec| {
            let names = [&spec.service_account_name, &spec.service_account];
            names.into_iter().flatten().find(|name| !name.is_empty())
        });
        named.map_or("default", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_used_is_read_and_all_else_is_passed_over() {
        let subscription: SubscriptionStatus = serde_json::from_value(
            json!({"installedCSV": "etcd.v1", "currentCSV": "etcd.v2", "state": "UpgradePending"}),
        )
        .unwrap();
        assert_eq!(subscription.installed_csv.as_deref(), Some("etcd.v1"));
        assert_eq!(subscription.current_csv.as_deref(), Some("etcd.v2"));
        let csv: ClusterServiceVersionSpec =
            serde_json::from_value(json!({"displayName": "etcd", "install": {
            "strategy": "deployment", "spec": {"clusterPermissions": [], "deployments": [
                {"name": "a", "spec": {"replicas": 1, "template": {"spec": {"serviceAccountName": "one"}}}},
                {"name": "b", "spec": {"template": {"spec": {"serviceAccount": "two"}}}},
                {"name": "c", "spec": {"template": {"spec": {"serviceAccountName": ""}}}},
                {"name": "d"},
            ]}}}))
            .unwrap();
        let deployments = csv.install.spec.deployments.unwrap();
        let accounts: Vec<_> = deployments.iter().map(StrategyDeployment::account).collect();
        assert_eq!(accounts, ["one", "two", "default", "default"]);
        let bare: CatalogSourceSpec = serde_json::from_value(json!({"secrets": null})).unwrap();
        assert!(bare.secrets.is_none());
    }
}
