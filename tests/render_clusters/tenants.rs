//! Kubeconfigs of tenants: read as the tenant's ServiceAccount, for as long as it may, and no more of them than a tenant may have.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams};
use renderhub::api::conditions::Reason;
use renderhub::controllers::clusters::ClusterControllerLimits;
use renderhub::plan::queue::backoff::BackoffPolicy;
use renderhub::plan::remote::site::{ClusterName, Site, SiteState, TenantKubeconfig};
use renderhub::plan::task::tenant::{ReadIdentity, ServiceAccount};
use renderhub::remote::SiteRequest;
use renderhub_harness::audit::Mark;
use renderhub_harness::{apply, wait_for};
use serde_json::{Value, json};

use super::kubeconfigs::{kubeconfig_of, leading_to, put_secret};
use super::world::{LIMIT, World};

/// The tenant's `ServiceAccount`.
const BUILDER: &str = "builder";

/// Times short enough to be waited for.
fn short() -> ClusterControllerLimits {
    ClusterControllerLimits {
        read_retry: BackoffPolicy {
            base: Duration::from_millis(500),
            cap: Duration::from_secs(2),
        },
        watch: Duration::from_secs(2),
        idle: Duration::from_secs(1),
        ..ClusterControllerLimits::default()
    }
}

impl World {
    /// A namespace of the hub's cluster with a `ServiceAccount`.
    async fn tenant(&self, prefix: &str) -> Result<String> {
        let namespace = self.hub.namespace(prefix).await?;
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": BUILDER, "namespace": namespace}});
        apply::object(&self.admin, account).await?;
        Ok(namespace)
    }

    /// Lets the `ServiceAccount` of a namespace do this with these Secrets of another, or the same.
    async fn let_read(&self, of: &str, namespace: &str, verbs: &[&str], names: &[&str]) -> Result<()> {
        let group = "rbac.authorization.k8s.io";
        let meta = json!({"name": format!("read-{of}"), "namespace": namespace});
        let right =
            json!({"apiGroups": [""], "resources": ["secrets"], "verbs": verbs, "resourceNames": names});
        let role =
            json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": meta, "rules": [right]});
        apply::object(&self.admin, role).await?;
        let binding = json!({"apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": meta,
            "subjects": [{"kind": "ServiceAccount", "name": BUILDER, "namespace": of}],
            "roleRef": {"apiGroup": group, "kind": "Role", "name": format!("read-{of}")}});
        apply::object(&self.admin, binding).await.map(drop)
    }

    fn own(&self, of: &str, namespace: &str, name: &str) -> Arc<Site> {
        let account = ServiceAccount::new(of, BUILDER).expect("both are names");
        Arc::new(Site {
            cluster: ClusterName::Own(TenantKubeconfig {
                identity: ReadIdentity::ServiceAccount(account),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                key: None,
                crosses: of != namespace,
            }),
            namespace: self.jobs.clone(),
        })
    }

    async fn is_own_up(&self, site: &Site) -> Result<()> {
        self.state(site, "the tenant's cluster to be up", |state| {
            *state == SiteState::Up
        })
        .await
        .map(drop)
    }

    /// Waits until the site is refused for the reason; the message.
    async fn refused(&self, site: &Site, reason: Reason) -> Result<String> {
        let is_so =
            |state: &SiteState| matches!(state, SiteState::Refused(refusal) if refusal.reason == reason);
        let state = self
            .state(site, &format!("it to be refused for {reason}"), is_so)
            .await?;
        match state {
            SiteState::Refused(refusal) => Ok(refusal.message),
            SiteState::Up | SiteState::Disconnected | SiteState::Down { .. } => {
                unreachable!("it was just looked at")
            }
        }
    }

    fn own_secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.admin.clone(), namespace)
    }
}

/// Holds: I3, K12.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_kubeconfig_is_read_as_the_tenant_and_for_as_long_as_it_may() -> Result<()> {
    let world = World::with_limits(short()).await?;
    let tenant = world.tenant("tenant").await?;
    let site = world.own(&tenant, &tenant, "kubeconfig");
    let good = kubeconfig_of(&world.user("theirs").await?)?;
    world.want(SiteRequest::Open(Arc::clone(&site)))?;
    let told = world.refused(&site, Reason::RBACDenied).await?;
    assert!(told.contains("get, list and watch"), "{told}");

    // The right to get alone would not show the hub when it ends.
    put_secret(&world.admin, &tenant, "kubeconfig", "value", &good).await?;
    world
        .let_read(&tenant, &tenant, &["get"], &["kubeconfig"])
        .await?;
    wait_for("the Secret to be read", LIMIT, async || {
        let seen = world.requests_of(&tenant).await?;
        Ok(seen.contains(&("get secrets".to_owned(), true)).then_some(()))
    })
    .await?;
    world.refused(&site, Reason::RBACDenied).await?;
    assert_eq!(world.registry().connections(), 0);
    world
        .let_read(&tenant, &tenant, &["get", "list", "watch"], &["kubeconfig"])
        .await?;
    world.is_own_up(&site).await?;
    assert_eq!(world.registry().connections(), 1);

    // Gone, and another one of its name.
    let secrets = world.own_secrets(&tenant);
    secrets.delete("kubeconfig", &DeleteParams::default()).await?;
    world.refused(&site, Reason::KubeconfigNotFound).await?;
    assert_eq!(world.registry().connections(), 0);
    let other = world.user("other").await?;
    put_secret(
        &world.admin,
        &tenant,
        "kubeconfig",
        "value",
        &kubeconfig_of(&other)?,
    )
    .await?;
    world.is_own_up(&site).await?;
    let seen = world.remote.audit()?.since(Mark::START).await?;
    let account = format!("system:serviceaccount:{tenant}:{BUILDER}");
    let watches = seen
        .iter()
        .filter(|e| e.user == other.name() && e.action() == "watch jobs");
    let mut watches = watches.peekable();
    assert!(watches.peek().is_some(), "the other kubeconfig's user watches");
    assert!(watches.all(|event| event.impersonated_user.as_deref() == Some(&account)));

    // A refused content, and its repair.
    put_secret(&world.admin, &tenant, "kubeconfig", "value", "{[").await?;
    let told = world.refused(&site, Reason::BadKubeconfig).await?;
    assert!(told.contains("YAML") && !told.contains("{["), "{told}");
    put_secret(&world.admin, &tenant, "kubeconfig", "value", &good).await?;
    world.is_own_up(&site).await?;

    // The right ends, and with it everything that followed from it.
    world
        .let_read(&tenant, &tenant, &["watch"], &["kubeconfig"])
        .await?;
    world.refused(&site, Reason::RBACDenied).await?;
    wait_for("the connection to end", LIMIT, async || {
        Ok((world.registry().connections() == 0).then_some(()))
    })
    .await?;
    let own = world.requests_of_hub(&tenant).await?;
    assert!(own.is_empty(), "the hub asked as itself: {own:?}");
    world.passed().await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_another_namespace_everything_reads_the_same() -> Result<()> {
    // One that waits for its next read delays no other one of its namespace.
    let limits = ClusterControllerLimits {
        read_retry: BackoffPolicy {
            base: Duration::from_secs(300),
            cap: Duration::from_secs(300),
        },
        ..short()
    };
    let world = World::with_limits(limits).await?;
    let (tenant, there) = (world.tenant("tenant").await?, world.hub.namespace("there").await?);
    put_secret(&world.admin, &there, "bad", "value", "{[").await?;
    put_secret(&world.admin, &there, "forbidden", "value", "secret").await?;
    put_secret(&world.admin, &there, "no-key", "other", "secret").await?;
    world
        .let_read(
            &tenant,
            &there,
            &["get", "list", "watch"],
            &["bad", "missing", "no-key"],
        )
        .await?;
    let mut told = Vec::new();
    for name in ["forbidden", "forbidden-too", "bad", "no-key", "missing"] {
        let site = world.own(&tenant, &there, name);
        world.want(SiteRequest::Open(Arc::clone(&site)))?;
        told.push(world.refused(&site, Reason::CrossNamespaceRefDenied).await?);
    }
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
    world.passed().await
}

/// Holds: K13.
#[tokio::test(flavor = "multi_thread")]
async fn no_tenant_has_more_clusters_than_its_share() -> Result<()> {
    let world = World::with_limits(short()).await?;
    let (greedy, modest) = (world.tenant("greedy").await?, world.tenant("modest").await?);
    let good = kubeconfig_of(&world.user("theirs").await?)?;
    let names: Vec<String> = (0..8).map(|n| format!("kubeconfig-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for tenant in [&greedy, &modest] {
        world
            .let_read(tenant, tenant, &["get", "list", "watch"], &names)
            .await?;
    }
    for name in &names {
        put_secret(&world.admin, &greedy, name, "value", &good).await?;
    }
    put_secret(&world.admin, &modest, names[0], "value", &good).await?;
    let site = world.own(&modest, &modest, names[0]);
    world.want(SiteRequest::Open(Arc::clone(&site)))?;
    world.is_own_up(&site).await?;
    let sites: Vec<_> = names
        .iter()
        .map(|name| world.own(&greedy, &greedy, name))
        .collect();
    for site in &sites {
        world.want(SiteRequest::Open(Arc::clone(site)))?;
    }
    for site in &sites[5..] {
        let told = world.refused(site, Reason::WaitingForCluster).await?;
        assert!(
            told.contains("as many clusters of tenants as it may have"),
            "{told}"
        );
    }
    for site in &sites[..5] {
        world.is_own_up(site).await?;
    }
    assert_eq!(world.registry().connections(), 6);
    world.is_own_up(&site).await?;
    // A kubeconfig without tasks gives its place to the next, in the order of the requests.
    world.want(SiteRequest::Close(Arc::clone(&sites[1])))?;
    world.is_own_up(&sites[5]).await?;
    world.refused(&sites[6], Reason::WaitingForCluster).await?;
    assert_eq!(world.registry().connections(), 6);
    world.passed().await
}

/// Holds: B34.
#[tokio::test(flavor = "multi_thread")]
async fn what_leads_nowhere_and_what_is_idle_keeps_no_other_cluster_waiting() -> Result<()> {
    // Longer than the test.
    let patient = ClusterControllerLimits {
        idle: Duration::from_secs(3600),
        read_retry: BackoffPolicy {
            cap: Duration::from_secs(3),
            ..short().read_retry
        },
        ..short()
    };
    let world = World::with_limits(patient).await?;
    let tenant = world.tenant("typos").await?;
    let good = kubeconfig_of(&world.user("theirs").await?)?;
    let names: Vec<String> = (0..8).map(|n| format!("kubeconfig-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    world
        .let_read(&tenant, &tenant, &["get", "list", "watch"], &names)
        .await?;
    let sites: Vec<_> = names
        .iter()
        .map(|name| world.own(&tenant, &tenant, name))
        .collect();
    // Five names of Secrets that are not there.
    for site in &sites[..5] {
        world.want(SiteRequest::Open(Arc::clone(site)))?;
        world.refused(site, Reason::KubeconfigNotFound).await?;
    }
    for (name, site) in names.iter().zip(&sites).skip(5) {
        put_secret(&world.admin, &tenant, name, "value", &good).await?;
        world.want(SiteRequest::Open(Arc::clone(site)))?;
        world.is_own_up(site).await?;
    }
    // Each of them is read again, and one that is corrected goes on.
    put_secret(&world.admin, &tenant, names[0], "value", &good).await?;
    world.is_own_up(&sites[0]).await?;
    put_secret(&world.admin, &tenant, names[1], "value", &good).await?;
    world.is_own_up(&sites[1]).await?;
    // Now all places are in use, until one is idle.
    put_secret(&world.admin, &tenant, names[2], "value", &good).await?;
    world.want(SiteRequest::Close(Arc::clone(&sites[7])))?;
    world.is_own_up(&sites[2]).await?;
    world.passed().await
}

/// Holds: K14.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_connects_to_few_clusters_at_once() -> Result<()> {
    let world = World::with_limits(short()).await?;
    let tenant = world.tenant("tenant").await?;
    let good = kubeconfig_of(&world.user("theirs").await?)?;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let dead = leading_to(&good, silent.local_addr()?.port())?;
    let names = ["dead-0", "dead-1", "dead-2", "dead-3"];
    world
        .let_read(&tenant, &tenant, &["get", "list", "watch"], &names)
        .await?;
    for name in names {
        put_secret(&world.admin, &tenant, name, "value", &dead).await?;
        world.want(SiteRequest::Open(world.own(&tenant, &tenant, name)))?;
    }
    wait_for("two of them to be connected to", LIMIT, async || {
        Ok((world.registry().connections() == 2).then_some(()))
    })
    .await?;
    let reads = async || {
        let seen = world.requests_of(&tenant).await?;
        Ok::<_, anyhow::Error>(
            seen.into_iter()
                .filter(|(action, _)| action == "get secrets")
                .count(),
        )
    };
    // A connection to what says nothing takes longer than to look.
    assert_eq!((reads().await?, world.registry().connections()), (2, 2));
    wait_for("the others to have their turn", LIMIT, async || {
        Ok((world.registry().connections() == 4).then_some(()))
    })
    .await?;
    world.passed().await
}

impl World {
    /// What was asked about Secrets of a namespace by its `ServiceAccount`, and whether it was allowed.
    async fn requests_of(&self, namespace: &str) -> Result<Vec<(String, bool)>> {
        let user = format!("system:serviceaccount:{namespace}:{BUILDER}");
        let events = self.hub.audit()?.since(Mark::START).await?;
        let of_it = events
            .into_iter()
            .filter(|event| event.user == user && event.namespace == namespace);
        Ok(of_it.map(|event| (event.action(), event.code < 300)).collect())
    }

    /// What the hub asked as itself about Secrets of a namespace.
    async fn requests_of_hub(&self, namespace: &str) -> Result<Vec<Value>> {
        let events = self.hub.audit()?.since(Mark::START).await?;
        let hubs = events.into_iter().filter(|event| {
            event.user == self.hub_user.name() && event.namespace == namespace && event.resource == "secrets"
        });
        Ok(hubs.map(|event| json!(event.action())).collect())
    }
}
