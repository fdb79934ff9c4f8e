//! The chart's rights for a stage's hub: given, withdrawn, and never exceeded.

use std::sync::atomic::Ordering;

use anyhow::Result;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, PostParams};
use renderhub_harness::{Rights, Scope, apply, wait_for};
use serde_json::{Value, json};

use super::{EVERYWHERE, LIMIT, Stage};

/// The chart's values for a hub's flags in this scope, with other namespaces it serves, each as after helm's `--set`.
pub fn chart_values(scope: &Scope, flags: &[String], others: &[String]) -> Vec<String> {
    // By default a hub looks for kubeconfigs in the rendering namespace; the chart sets another.
    let (mut kubeconfigs, mut pull_secrets) = (scope.rendering.as_str(), None);
    let mut values = vec![format!("renderingNamespace.name={}", scope.rendering)];
    let mut watched = Vec::new();
    if !flags.iter().any(|flag| flag == EVERYWHERE) {
        watched.push(scope.tenant.as_str());
        watched.extend(others.iter().map(String::as_str));
    }
    for flag in flags {
        let (flag, value) = flag.split_once('=').unwrap_or((flag, "true"));
        match flag {
            "--watch-namespaces" => watched.extend(value.split(',')),
            "--catalog-namespaces" => values.push(format!("controller.catalogNamespaces={{{value}}}")),
            "--no-cross-namespace-refs" => values.push(format!("controller.noCrossNamespaceRefs={value}")),
            "--cluster-namespace" => kubeconfigs = value,
            "--pull-secret-namespace" => pull_secrets = Some(value),
            "--lease-namespace" => values.push(format!("controller.leaseNamespace={value}")),
            "--tenant-identity" => values.push(format!("tenancy.identity={value}")),
            "--default-service-account" => values.push(format!("tenancy.defaultServiceAccount={value}")),
            "--pipeline" => values.push(format!("pipeline.enabled={value}")),
            "--single-tenant" => values.push(format!("rbac.clusterAdmin={value}")),
            _ => {}
        }
    }
    values.push(format!("clusters.namespace={kubeconfigs}"));
    let pull_secrets = pull_secrets.unwrap_or(kubeconfigs);
    values.push(format!("renderer.pullSecretNamespace={pull_secrets}"));
    if !watched.is_empty() {
        values.push(format!("controller.watchNamespaces={{{}}}", watched.join(",")));
    }
    values
}

impl Stage {
    /// Lets the hub be these `ServiceAccounts` of the tenant, as the chart's `tenancy.serviceAccounts` does.
    pub async fn let_hub_be(&mut self, accounts: &[&str]) -> Result<()> {
        let (tenant, accounts) = (&self.scope.tenant, accounts.join(","));
        let value = format!("tenancy.serviceAccounts.{tenant}={{{accounts}}}");
        self.give_rights(&[&value]).await
    }

    /// Gives the hub what the chart gives with the stage's flags and scope as they are now, and with more values.
    pub async fn give_rights(&mut self, more: &[&str]) -> Result<()> {
        let mut values = chart_values(&self.scope, &self.flags, &self.others);
        values.extend(more.iter().map(ToString::to_string));
        self.rights = Rights::of_chart(&values).await?;
        self.plane.set_rights(&self.hub_user, &self.rights).await
    }

    /// Lets a hub that starts later serve these namespaces besides the tenant's, and no others.
    pub async fn watch_besides(&mut self, namespaces: &[&str]) -> Result<()> {
        self.others = namespaces.iter().map(ToString::to_string).collect();
        self.give_rights(&[]).await
    }

    /// Gives the hub its rights once more, as the platform does for a namespace that was made anew.
    pub async fn renew_rights(&self) -> Result<()> {
        self.plane.set_rights(&self.hub_user, &self.rights).await
    }

    /// Leaves the hub only the rights on resources that are wanted, e.g. `rendertasks/status`; refusals are expected now.
    pub async fn grant(&self, is_wanted: impl Fn(&str) -> bool) -> Result<()> {
        self.allow_forbidden();
        self.plane
            .set_rights(&self.hub_user, &self.rights.only(is_wanted))
            .await
    }

    /// Takes from the hub the rights to list and to watch a resource; refusals are expected now.
    pub async fn blind_to(&self, resource: &str) -> Result<()> {
        self.allow_forbidden();
        self.plane
            .set_rights(&self.hub_user, &self.rights.blind_to(resource))
            .await
    }

    /// Takes from the hub the right to do this with a resource; refusals are expected now.
    pub async fn forbid(&self, verb: &str, resource: &str) -> Result<()> {
        self.allow_forbidden();
        let left = self.rights.without(resource, &[verb]);
        self.plane.set_rights(&self.hub_user, &left).await
    }

    /// This test is about what the hub's user is refused.
    pub fn allow_forbidden(&self) {
        self.may_be_refused.store(true, Ordering::Relaxed);
    }

    /// Asserts that nothing the hub asked for was forbidden: the chart gives it all that it needs.
    pub(crate) fn was_refused_nothing(&self) {
        if self.may_be_refused.load(Ordering::Relaxed) {
            return;
        }
        let audit = self.plane.audit().expect("every stage has an audit log");
        let refused = audit.refused(self.hub_user.name()).expect("the audit log");
        assert!(refused.is_empty(), "the chart lacks a right: {refused:#?}");
    }
}

impl Stage {
    /// Waits until policies that match tasks are in force, such as the one that keeps the hub's rights in a namespace that is
    /// being deleted: the API server learns of a new kind for that up to half a minute later than for everything else.
    pub async fn until_policies_see_tasks(&self) -> Result<()> {
        let (name, namespace) = (format!("probe-{}", self.scope.tenant), &self.scope.tenant);
        for object in probe(&name, namespace) {
            apply::object(&self.admin, object).await?;
        }
        let task = self.submit(self.task("probe")).await?;
        let configs: Api<ConfigMap> = Api::namespaced(self.admin.clone(), namespace);
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let config: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "probe"}}))?;
        wait_for("policies to see tasks", LIMIT, async || {
            Ok(configs.create(&dry_run, &config).await.is_err().then_some(()))
        })
        .await?;
        self.delete(&task).await?;
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.admin.clone());
        bindings.delete(&name, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// A policy that refuses a `ConfigMap` in a namespace that has a task, and its binding.
fn probe(name: &str, namespace: &str) -> [Value; 2] {
    let object = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("ValidatingAdmissionPolicy{kind}"),
            "metadata": {"name": name}, "spec": spec,
        })
    };
    let policy = json!({
        "failurePolicy": "Ignore",
        "paramKind": {"apiVersion": "renderhub.dev/v1alpha1", "kind": "RenderTask"},
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["configmaps"],
            }],
        },
        "validations": [{"expression": "false"}],
    });
    let binding = json!({
        "policyName": name, "validationActions": ["Deny"],
        "paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"},
    });
    [object("", policy), object("Binding", binding)]
}
