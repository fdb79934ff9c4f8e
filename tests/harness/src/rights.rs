//! What the chart lets the hub do: read from its rendered templates, given to a test's own user, so that no list of rights
//! is kept by hand beside the chart's.

mod used;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};

use crate::helm::{self, Helm};

pub use used::Grant;

/// The namespace that the chart is rendered for; a hub of a test runs in none.
pub const RELEASE_NAMESPACE: &str = "renderhub-system";

/// What one binding gives the hub.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// The binding's namespace; `None` is the whole cluster.
    pub namespace: Option<String>,
    /// Name of the role in the chart.
    pub role: String,
    /// Whether that is a `ClusterRole`, which a namespace's end leaves where it is.
    pub is_cluster_role: bool,
    /// The binding's labels.
    pub labels: Value,
    /// The role's rules.
    pub rules: Vec<PolicyRule>,
}

/// Everything that the chart binds to the hub's `ServiceAccount`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rights {
    /// Its bindings, in the order of the templates.
    pub bound: Vec<Bound>,
}

impl Rights {
    /// The rights of a release with these values, each as after helm's `--set`: `rbac.clusterAdmin=true`.
    ///
    /// # Errors
    /// If helm refuses the values.
    pub async fn of_chart<S: AsRef<str>>(values: &[S]) -> Result<Self> {
        // Neither matters for rights, and both take longer to render than everything else.
        let mut sets = vec!["crds.install=false", "policies.install=false"];
        sets.extend(values.iter().map(AsRef::as_ref));
        let objects = helm::template(&Helm::new()?, RELEASE_NAMESPACE, &sets).await?;
        Self::of_objects(&objects)
    }

    /// The rights of the chart's other program, which its component names, e.g. `pull-secrets`.
    ///
    /// # Errors
    /// As [`Rights::of_chart`].
    pub async fn of_component<S: AsRef<str>>(component: &str, values: &[S]) -> Result<Self> {
        let mut sets = vec!["crds.install=false", "policies.install=false"];
        sets.extend(values.iter().map(AsRef::as_ref));
        let mut objects = helm::template(&Helm::new()?, RELEASE_NAMESPACE, &sets).await?;
        objects.retain(|object| object["metadata"]["labels"]["app.kubernetes.io/component"] == component);
        Self::of_objects(&objects)
    }

    /// What these objects of the chart bind to the `ServiceAccount` that their Deployment runs as.
    ///
    /// # Errors
    /// If they hold no Deployment, or bind a role that is not among them.
    pub fn of_objects(objects: &[Value]) -> Result<Self> {
        let hub = objects.iter().find(|object| object["kind"] == "Deployment");
        let hub = hub.context("the chart makes no Deployment")?;
        let subject = json!({
            "kind": "ServiceAccount",
            "name": hub["spec"]["template"]["spec"]["serviceAccountName"],
            "namespace": hub["metadata"]["namespace"],
        });
        let is_hubs = |object: &&Value| {
            let subjects = object["subjects"].as_array();
            object["roleRef"].is_object() && subjects.is_some_and(|s| s.contains(&subject))
        };
        let bound: Result<Vec<Bound>> = objects
            .iter()
            .filter(is_hubs)
            .map(|binding| bound(objects, binding))
            .collect();
        let bound = bound?;
        ensure!(!bound.is_empty(), "the chart binds nothing to the hub");
        Ok(Self { bound })
    }

    /// The same without the resources that are not wanted, e.g. `rendertasks/status`.
    #[must_use]
    pub fn only(&self, is_wanted: impl Fn(&str) -> bool) -> Self {
        let mut left = self.clone();
        for bound in &mut left.bound {
            for rule in &mut bound.rules {
                let resources = rule.resources.get_or_insert_default();
                resources.retain(|resource| is_wanted(resource));
            }
            bound
                .rules
                .retain(|rule| rule.resources.as_ref().is_some_and(|all| !all.is_empty()));
        }
        left
    }

    /// The same without the rights to list and to watch a resource.
    #[must_use]
    pub fn blind_to(&self, resource: &str) -> Self {
        self.without(resource, &["list", "watch"])
    }

    /// The same without the rights to do this with a resource.
    #[must_use]
    pub fn without(&self, resource: &str, verbs: &[&str]) -> Self {
        let mut left = self.clone();
        for bound in &mut left.bound {
            let mut apart = Vec::new();
            for rule in &mut bound.rules {
                let resources = rule.resources.get_or_insert_default();
                let before = resources.len();
                resources.retain(|named| named != resource);
                if resources.len() < before {
                    let mut single = rule.clone();
                    single.resources = Some(vec![resource.to_owned()]);
                    single.verbs.retain(|verb| !verbs.contains(&verb.as_str()));
                    apart.push(single);
                }
            }
            bound.rules.extend(apart);
            bound.rules.retain(|rule| {
                !rule.verbs.is_empty() && rule.resources.as_ref().is_some_and(|all| !all.is_empty())
            });
        }
        left
    }

    /// Every rule, whatever it is bound to.
    pub fn rules(&self) -> impl Iterator<Item = &PolicyRule> {
        self.bound.iter().flat_map(|bound| &bound.rules)
    }
}

fn bound(objects: &[Value], binding: &Value) -> Result<Bound> {
    let role = binding["roleRef"]["name"]
        .as_str()
        .context("a binding of nothing")?;
    let is_namespaced = binding["kind"] == "RoleBinding";
    let namespace = binding["metadata"]["namespace"].as_str().map(str::to_owned);
    ensure!(
        namespace.is_some() == is_namespaced,
        "the binding of {role} and its kind disagree"
    );
    let is_it = |object: &&Value| {
        let is_here = object["kind"] == "ClusterRole"
            || object["metadata"]["namespace"].as_str() == namespace.as_deref();
        object["kind"] == binding["roleRef"]["kind"] && object["metadata"]["name"] == role && is_here
    };
    let rules = match objects.iter().find(is_it) {
        Some(found) => serde_json::from_value(found["rules"].clone())?,
        // Kubernetes' own, which no chart holds.
        None if role == "cluster-admin" => {
            serde_json::from_value(json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]))?
        }
        None => anyhow::bail!("the chart binds the role {role}, which it does not make"),
    };
    Ok(Bound {
        namespace,
        role: role.to_owned(),
        is_cluster_role: binding["roleRef"]["kind"] == "ClusterRole",
        labels: binding["metadata"]["labels"].clone(),
        rules,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(more: &[Value]) -> Vec<Value> {
        let hub = json!({
            "kind": "Deployment", "metadata": {"name": "hub", "namespace": "system"},
            "spec": {"template": {"spec": {"serviceAccountName": "hub"}}},
        });
        [&[hub], more].concat()
    }

    fn binding(kind: &str, namespace: Option<&str>, role: (&str, &str), account: &str) -> Value {
        json!({
            "kind": kind, "metadata": {"name": "b", "namespace": namespace},
            "roleRef": {"kind": role.0, "name": role.1},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "system"}],
        })
    }

    fn role(kind: &str, namespace: Option<&str>, name: &str, resource: &str) -> Value {
        json!({
            "kind": kind, "metadata": {"name": name, "namespace": namespace},
            "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}],
        })
    }

    #[test]
    fn only_what_is_bound_to_the_hub_counts_and_each_role_is_its_namespaces() {
        let all = objects(&[
            role("ClusterRole", None, "wide", "nodes"),
            role("Role", Some("a"), "narrow", "pods"),
            role("Role", Some("b"), "narrow", "secrets"),
            role("ClusterRole", None, "unbound", "configmaps"),
            binding("ClusterRoleBinding", None, ("ClusterRole", "wide"), "hub"),
            binding("RoleBinding", Some("b"), ("Role", "narrow"), "hub"),
            binding("RoleBinding", Some("a"), ("ClusterRole", "wide"), "hub"),
            binding("ClusterRoleBinding", None, ("ClusterRole", "unbound"), "other"),
        ]);
        let rights = Rights::of_objects(&all).unwrap();
        let bound: Vec<_> = rights
            .bound
            .iter()
            .map(|b| {
                (
                    b.namespace.as_deref(),
                    b.rules[0].resources.clone().unwrap().remove(0),
                )
            })
            .collect();
        let text = |s: &str| s.to_owned();
        assert_eq!(
            bound,
            [
                (None, text("nodes")),
                (Some("b"), text("secrets")),
                (Some("a"), text("nodes"))
            ]
        );
        assert_eq!(rights.only(|r| r == "nodes").rules().count(), 2);
    }

    #[test]
    fn a_role_that_is_not_there_is_seen_and_cluster_admin_is_everything() {
        let missing = binding("ClusterRoleBinding", None, ("ClusterRole", "missing"), "hub");
        assert!(Rights::of_objects(&objects(&[missing])).is_err());
        assert!(Rights::of_objects(&objects(&[])).is_err());
        let admin = binding(
            "ClusterRoleBinding",
            None,
            ("ClusterRole", "cluster-admin"),
            "hub",
        );
        let rights = Rights::of_objects(&objects(&[admin])).unwrap();
        assert_eq!(rights.bound[0].rules[0].verbs, ["*"]);
    }
}
