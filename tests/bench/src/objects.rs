//! The objects of a run: its platform's, and its tenants' tasks.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use clap::Parser;
use renderhub::api::ClusterRegistrySpec;
use renderhub::api::names::HubId;
use renderhub::app::config::{HubCli, HubCommand};
use renderhub::plan::platform::catalog::{Catalog, CatalogClass, CatalogRegistry, CredentialState};
use renderhub::plan::task::job::JobPlacement;
use serde_json::{Value, json};

/// Name of the registry that every task pushes to.
pub const REGISTRY: &str = "bench";
/// Name of the Secret with its credential.
pub const PUSH_SECRET: &str = "push";
/// Name of the hub among those of the cluster.
pub const SHARD: &str = "bench";
/// `ServiceAccount` of renderer pods; the hub's default.
pub const RENDERER_ACCOUNT: &str = "renderhub-renderer";
/// So many Jobs may run at once that nothing waits in the hub's queue: what is measured is the work, not the wait.
const CAP: usize = 1_000_000;

/// Flags of the hub.
pub fn hub_flags(rendering_namespace: &str) -> Vec<String> {
    hub_flags_of(SHARD, rendering_namespace)
}

/// Flags of the hub of this name.
pub fn hub_flags_of(shard: &str, rendering_namespace: &str) -> Vec<String> {
    vec![
        format!("--rendering-namespace={rendering_namespace}"),
        format!("--shard-name={shard}"),
        format!("--max-active-jobs={CAP}"),
        format!("--max-active-jobs-per-namespace={CAP}"),
    ]
}

/// The spec of the registry.
pub fn registry() -> Value {
    json!({
        "hostname": "registry.test:5000", "pushSecretRef": {"name": PUSH_SECRET}, "allowedNamespaces": ["*"],
        // There is no registry, and the finisher pushes nothing.
        "verify": "None",
    })
}

/// A Target as a tenant writes it, with the label that the Profiles of a fleet select.
pub fn target(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": "Target",
        "metadata": {"name": name, "namespace": namespace, "labels": {"ring": "one"}},
        "spec": {
            "renderRegistryRef": {"kind": "ClusterRegistry", "name": REGISTRY},
            "userdata": {"site": format!("site-of-{name}")},
        },
    })
}

/// A task as a tenant writes it: one Helm release with a few values, 0.6 KB of JSON.
pub fn task(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": "RenderTask",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "config": {"type": "release", "release": {
                "chart": {"name": "shop", "version": "1.0.0", "description": "The shop of one of many tenants"},
                "input": {
                    "component": {"name": "example.test/shop"},
                    "resources": {"chart": {"repository": "registry.test/charts/shop", "tag": "1.0.0"}},
                    "entrypoint": {"resourceName": "chart", "type": "helm"},
                },
                "values": {"replicas": 3, "ingress": {"enabled": true, "host": "shop.example.test"}},
            }},
            "repository": format!("{namespace}/shop"),
            "tag": "1.0.0",
            "registryRef": {"name": REGISTRY},
        },
    })
}

/// The platform's offers as the hub would read them.
///
/// # Errors
/// If the hub's own types do not take them.
pub fn catalog(rendering_namespace: &str) -> Result<Catalog> {
    let spec: ClusterRegistrySpec = serde_json::from_value(registry())?;
    let registry = CatalogRegistry {
        spec,
        credential: CredentialState::BasicAuth(PUSH_SECRET.to_owned()),
        recorded: BTreeMap::new(),
    };
    let words = ["renderhub".to_owned(), "run".to_owned()]
        .into_iter()
        .chain(hub_flags(rendering_namespace));
    let HubCommand::Run(flags) = HubCli::try_parse_from(words)?.command else {
        anyhow::bail!("another command than run");
    };
    Ok(Catalog {
        clusters: BTreeMap::new(),
        registries: BTreeMap::from([(REGISTRY.to_owned(), registry)]),
        classes: BTreeMap::new(),
        fallback: CatalogClass {
            spec: flags.settings()?.fallback_class,
            ..CatalogClass::default()
        },
        // The registry is open to every namespace.
        namespaces: BTreeMap::new(),
        ..Catalog::default()
    })
}

/// Where the hub puts its Jobs. A hub id that was made once is split and made again, as only the hub's type can hold it.
///
/// # Errors
/// If it is no hub id.
pub fn place(hub_id: &str, rendering_namespace: &str) -> Result<JobPlacement> {
    let (shard, cluster) = hub_id.rsplit_once('-').context("no hub id")?;
    Ok(JobPlacement {
        cluster: None,
        hub_id: HubId::new(shard, cluster)?,
        namespace: rendering_namespace.to_owned(),
        service_account: RENDERER_ACCOUNT.to_owned(),
    })
}
