//! What the audit logs of all clusters say: who made how many Jobs, and who looked where.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::jiff::Timestamp;
use renderhub_harness::audit::{Event, creations};

use crate::ends::is_own;
use crate::fleet::{Fleet, Site};
use crate::hubs::{Shard, Tenure};

/// What tenants own in the hub's group: no hub may ask for them in all namespaces at once.
const TENANTS: [&str; 4] = [
    "rendertasks",
    "clusterrendertasks",
    "registries",
    "referencegrants",
];

/// How often the API server of a site made each Job, by its name.
pub async fn jobs_made(site: &Site) -> Result<BTreeMap<String, usize>> {
    let mut made = BTreeMap::new();
    let events = site.plane.audit()?.since(site.start).await?;
    for event in creations(events, &site.namespace, "jobs") {
        *made.entry(event.name).or_default() += 1;
    }
    Ok(made)
}

/// Every request by which a hub, or the hubs' user on another cluster, left its own namespaces.
pub async fn strays(fleet: &Fleet, shards: &[Shard]) -> Result<Vec<String>> {
    let mut strays = Vec::new();
    for site in &fleet.sites {
        let events = site.plane.audit()?.since(site.start).await?;
        let found = events.iter().filter(|event| {
            if is_own(site) {
                let shard = shards.iter().find(|shard| shard.user.name() == event.user);
                shard.is_some_and(|shard| !may_ask(shard, &fleet.rendering, event))
            } else {
                let account = format!("system:serviceaccount:{}:", site.namespace);
                event.user.starts_with(&account) && !is_at_home(site, event)
            }
        });
        strays.extend(found.map(|e| format!("{} {} {} at {}", e.user, e.verb, e.uri, e.received)));
    }
    Ok(strays)
}

/// Every request that a hub was refused: the chart and the example give all that it needs.
pub fn refused(fleet: &Fleet, shards: &[Shard]) -> Result<Vec<String>> {
    let mut refused = Vec::new();
    for site in &fleet.sites {
        let account = format!("system:serviceaccount:{}:renderhub", site.namespace);
        let users = shards
            .iter()
            .map(|shard| shard.user.name())
            .chain([account.as_str()]);
        for user in users {
            let events = site.plane.audit()?.refused(user)?;
            // Which cluster the other one is it may not say, and need not.
            let missed = events
                .iter()
                .filter(|e| !e.uri.ends_with("/namespaces/kube-system"));
            refused.extend(missed.map(|e| format!("{user} {} {} at {}", e.verb, e.uri, e.received)));
        }
    }
    Ok(refused)
}

/// How many requests of a hub there were in its own namespaces, so that a log without any proves nothing.
pub async fn at_home(fleet: &Fleet, shard: &Shard) -> Result<usize> {
    let site = &fleet.sites[0];
    let events = site.plane.audit()?.since(site.start).await?;
    let serves = |name: &str| {
        shard
            .tenures
            .iter()
            .any(|tenure| tenure.namespaces.contains(name))
    };
    let own = events
        .iter()
        .filter(|e| e.user == shard.user.name() && serves(&e.namespace));
    Ok(own.count())
}

/// Whether a hub may ask for this: in the namespaces that it serves at the moment, in the rendering namespace, where the Leases
/// are too, or among what is the platform's and in no namespace.
fn may_ask(shard: &Shard, rendering: &str, event: &Event) -> bool {
    let serves = |name: &str| shard.tenures.iter().any(|t| covers(t, name, event.received));
    match event.namespace.as_str() {
        "" => match event.resource.as_str() {
            "namespaces" => [rendering, "kube-system"].contains(&event.name.as_str()) || serves(&event.name),
            resource => !TENANTS.contains(&resource) && is_platforms(&event.group),
        },
        name if event.resource == "namespaces" => name == rendering || name == "kube-system" || serves(name),
        // Events of clusters and classes, which are in no namespace.
        "default" => event.resource == "events" && event.verb == "create",
        name => name == rendering || serves(name),
    }
}

/// Groups of what is in no namespace: the platform's offers, and questions about rights; a path of the server itself has none.
fn is_platforms(group: &str) -> bool {
    [
        "renderhub.dev",
        "authorization.k8s.io",
        "authentication.k8s.io",
        "",
    ]
    .contains(&group)
}

/// Whether these namespaces were served at the time.
fn covers(tenure: &Tenure, namespace: &str, at: Timestamp) -> bool {
    let is_then = tenure.from <= at && tenure.until.is_none_or(|until| at <= until);
    is_then && tenure.namespaces.contains(namespace)
}

/// Whether a request on another cluster is about its namespace for Jobs, or about which cluster that is.
fn is_at_home(site: &Site, event: &Event) -> bool {
    let is_whose = event.resource == "namespaces" && event.name == "kube-system";
    event.namespace == site.namespace
        || event.resource.is_empty()
        || is_whose
        || event.group == "authorization.k8s.io"
}
