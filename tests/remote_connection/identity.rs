//! Who a cluster is, and who the hub is there.

use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount as Account};
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use renderhub::api::conditions::Reason;
use renderhub::plan::remote::health::{ConnectionFault, ConnectionPhase};
use renderhub::plan::remote::site::{ClusterName, Site, TenantKubeconfig};
use renderhub::plan::task::tenant::{ReadIdentity, ServiceAccount};
use renderhub::remote::kubeconfig::RemoteConfig;
use renderhub_harness::{ControlPlane, Identity, wait_for};
use serde_json::json;

use super::between::Stripper;
use super::forward::Forward;
use super::world::{LIMIT, Remote, World, config, role, through, who};

async fn uid_of(plane: &ControlPlane, namespace: &str) -> Result<String> {
    let namespaces: Api<Namespace> = Api::all(plane.admin().client().await?);
    namespaces.get(namespace).await?.uid().context("a UID")
}

/// By address, by name and through a middlebox: a cluster with a namespace of the hub's is the hub's own.
///
/// Holds: K7.
#[tokio::test]
async fn a_kubeconfig_that_leads_to_the_hub_is_refused() -> Result<()> {
    let remote = Remote::new("self").await?;
    let plane = remote.plane;
    let forward = Forward::to(remote.address()).await?;
    let narrow = remote.account("hub").await?;
    let system = uid_of(plane, "kube-system").await?;
    let own = uid_of(plane, &remote.namespace).await?;
    let namespace = remote.namespace.clone();
    let world = World::knowing(move |name| match name {
        "kube-system" => Some(system.clone()),
        name if name == namespace => Some(own.clone()),
        _ => None,
    });
    // With the right to read everything it is known at once, with the right to read one namespace by that.
    let ways: [(&str, RemoteConfig, bool); 4] = [
        ("address", config(plane.admin())?, true),
        ("alias", through(&forward, plane.admin())?, true),
        ("narrow", config(&narrow)?, false),
        ("narrow-alias", through(&forward, &narrow)?, false),
    ];
    for (name, config, whole) in ways {
        let key = super::key(name);
        let site = Arc::new(Site {
            cluster: ClusterName::Platform(name.to_owned()),
            namespace: remote.namespace.clone(),
        });
        world.apply_kubeconfig(&key, config);
        world.registry.open(&key, site.clone());
        world.until_down(&site, Reason::SelfTarget).await?;
        let report = world
            .until_reported(&key, "the report", |report| {
                report.fault(&site) == Some(ConnectionFault::SelfTarget)
            })
            .await?;
        let phase = if whole {
            ConnectionPhase::Lost
        } else {
            ConnectionPhase::Up
        };
        assert_eq!(report.health.phase, phase, "{name}");
        assert!(world.registry.client(&site).is_none(), "{name}");
    }
    world.ended().await
}

/// The hub's own cluster and another one look the same to a user without the right to read a namespace, so neither is used.
///
/// Holds: K7, B16.
#[tokio::test]
async fn who_may_look_at_no_namespace_is_not_recognised_and_refused() -> Result<()> {
    let remote = Remote::new("blind").await?;
    let account = remote.plane.service_account(&remote.namespace, "hub").await?;
    // The last rule is the one that lets it look.
    let mut blind = role();
    blind.as_array_mut().context("rules")?.pop();
    remote.grant(&account, blind.clone()).await?;
    let (system, own) = (
        uid_of(remote.plane, "kube-system").await?,
        uid_of(remote.plane, &remote.namespace).await?,
    );
    let namespace = remote.namespace.clone();
    let its_hub = World::knowing(move |name| match name {
        "kube-system" => Some(system.clone()),
        name if name == namespace => Some(own.clone()),
        _ => None,
    });
    let site = remote.site();
    for (world, then) in [(its_hub, Some(Reason::SelfTarget)), (World::new(), None)] {
        world.apply_kubeconfig(&remote.key(), config(&account)?);
        world.registry.open(&remote.key(), site.clone());
        world.until_down(&site, Reason::Unrecognised).await?;
        assert!(world.registry.client(&site).is_none());
        // It is recognised once it may read.
        remote.grant(&account, role()).await?;
        match then {
            Some(reason) => world.until_down(&site, reason).await?,
            None => _ = world.until_up(&site).await?,
        }
        remote.grant(&account, blind.clone()).await?;
        world.ended().await?;
    }
    Ok(())
}

/// A tenant's kubeconfig: its user may act as the tenant's ServiceAccount there, and as no other.
struct Tenant {
    remote: Remote,
    /// The tenant's ServiceAccount as the cluster knows it.
    account: String,
    user: Identity,
}

impl Tenant {
    async fn new(prefix: &str) -> Result<Self> {
        let remote = Remote::new(prefix).await?;
        let admin = remote.plane.admin().client().await?;
        let accounts: Api<Account> = Api::namespaced(admin, &remote.namespace);
        let made: Account = serde_json::from_value(json!({"metadata": {"name": "deployer"}}))?;
        accounts.create(&PostParams::default(), &made).await?;
        let account = remote
            .plane
            .service_account(&remote.namespace, "deployer")
            .await?;
        remote.grant(&account, role()).await?;
        let user = remote.plane.service_account(&remote.namespace, "base").await?;
        let impersonate = json!([{
            "apiGroups": [""], "resources": ["serviceaccounts"],
            "resourceNames": ["deployer"], "verbs": ["impersonate"],
        }]);
        remote.grant(&user, impersonate).await?;
        Ok(Self {
            account: account.name().to_owned(),
            remote,
            user,
        })
    }

    /// Where its task runs, as this ServiceAccount of the task's namespace.
    fn site_as(&self, account: &str) -> Arc<Site> {
        let account = ServiceAccount::new(&self.remote.namespace, account).expect("a legal name");
        Arc::new(Site {
            cluster: ClusterName::Own(TenantKubeconfig {
                identity: ReadIdentity::ServiceAccount(account),
                namespace: self.remote.namespace.clone(),
                name: "kubeconfig".to_owned(),
                key: None,
                crosses: false,
            }),
            namespace: self.remote.namespace.clone(),
        })
    }
}

/// Everything on a tenant's cluster is done as the task's ServiceAccount and as no other user, the watch too; the kubeconfig's
/// own user only asks who it is.
///
/// Holds: I4, I5, K8.
#[tokio::test]
async fn on_a_tenants_cluster_the_hub_is_the_tenants_account() -> Result<()> {
    let tenant = Tenant::new("tenant").await?;
    let (world, key) = (World::new(), tenant.remote.key());
    let mark = tenant.remote.plane.audit()?.mark().await?;
    world.apply_kubeconfig(&key, config(&tenant.user)?);
    let (site, stranger) = (tenant.site_as("deployer"), tenant.site_as("default"));
    world.registry.open(&key, site.clone());
    world.registry.open(&key, stranger.clone());
    let seat = world.until_up(&site).await?;
    assert_eq!(who(&seat).await.unwrap(), tenant.account);
    // An account that the kubeconfig's user may not act as: the cluster refuses, and nothing falls back on the user itself.
    world.until_down(&stranger, Reason::Forbidden).await?;
    let events = tenant.remote.plane.audit()?.since(mark).await?;
    let own = events.iter().filter(|event| event.user == tenant.user.name());
    let mut watched = 0;
    for event in own.clone().filter(|event| event.code < 400) {
        let is_question = event.resource.starts_with("selfsubject");
        let whom = event.impersonated_user.as_deref();
        assert!(
            whom == Some(&tenant.account) || is_question && whom.is_none(),
            "{event:?}"
        );
        watched += usize::from(event.verb == "watch");
    }
    assert!(watched >= 1, "a watch that is still open is in the log too");
    for event in own.filter(|event| event.impersonated_user.is_some()) {
        let groups = &event.impersonated_groups;
        assert!(
            groups
                .iter()
                .all(|group| group.starts_with("system:serviceaccounts") || group == "system:authenticated")
        );
    }
    world.ended().await
}

/// Holds: I4.
#[tokio::test]
async fn a_tenants_kubeconfig_that_may_do_everything_is_refused() -> Result<()> {
    let tenant = Tenant::new("mighty").await?;
    let (world, key) = (World::new(), tenant.remote.key());
    let admin = tenant.remote.plane.user("mighty", &["system:masters"])?;
    world.apply_kubeconfig(&key, config(&admin)?);
    let (site, platform) = (tenant.site_as("deployer"), tenant.remote.site());
    world.registry.open(&key, site.clone());
    world.registry.open(&key, platform.clone());
    world.until_down(&site, Reason::InsecureKubeconfig).await?;
    let report = world
        .until_reported(&key, "the report", |report| {
            report.fault(&site) == Some(ConnectionFault::Overprivileged)
        })
        .await?;
    assert_eq!(report.health.phase, ConnectionPhase::Up);
    // What the platform does with its own cluster is the platform's matter.
    world.until_up(&platform).await?;
    assert!(world.registry.client(&site).is_none());
    world.ended().await
}

/// A credential that comes later is checked as the first was: it may do everything, and so ends the connection.
///
/// Holds: I4, K12.
#[tokio::test]
async fn another_token_is_looked_at_as_the_first_was() -> Result<()> {
    let tenant = Tenant::new("later").await?;
    let (world, key, site) = (World::new(), tenant.remote.key(), tenant.site_as("deployer"));
    world.apply_kubeconfig(&key, config(&tenant.user)?);
    world.registry.open(&key, site.clone());
    let seat = world.until_up(&site).await?;
    world.apply_kubeconfig(&key, config(&almighty(&tenant).await?)?);
    world.until_down(&site, Reason::InsecureKubeconfig).await?;
    assert!(!seat.is_valid() && who(&seat).await.is_err());
    world.apply_kubeconfig(&key, config(&tenant.user)?);
    world.until_up(&site).await?;
    world.ended().await
}

/// An account that may do everything there.
async fn almighty(tenant: &Tenant) -> Result<Identity> {
    let plane = tenant.remote.plane;
    let account = plane
        .service_account(&tenant.remote.namespace, "almighty")
        .await?;
    let binding = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {0}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}\n\
         subjects: [{{kind: ServiceAccount, name: almighty, namespace: {0}}}]\n",
        tenant.remote.namespace
    );
    plane.apply_yaml(&binding).await?;
    Ok(account)
}

/// The same where the cluster fails the first of these questions.
///
/// Holds: I4, K12.
#[tokio::test]
async fn a_token_that_could_not_be_looked_at_is_looked_at_again() -> Result<()> {
    let tenant = Tenant::new("again").await?;
    let honest = Stripper::honest(tenant.remote.plane.anonymous().client().await?).await?;
    let (world, key, site) = (World::new(), tenant.remote.key(), tenant.site_as("deployer"));
    world.apply_kubeconfig(&key, honest.config(&tenant.user)?);
    world.registry.open(&key, site.clone());
    world.until_up(&site).await?;
    let almighty = almighty(&tenant).await?;
    honest.fail("selfsubjectaccessreviews");
    world.apply_kubeconfig(&key, honest.config(&almighty)?);
    world.until_down(&site, Reason::InsecureKubeconfig).await?;
    assert!(honest.has_failed());
    world.ended().await
}

/// The kubeconfig's own user could do it all: nothing is done as it.
///
/// Holds: I5.
#[tokio::test]
async fn who_strips_impersonation_gets_nothing_to_do() -> Result<()> {
    let tenant = Tenant::new("stripped").await?;
    // With the rights of the account itself, so that only the name differs.
    tenant.remote.grant(&tenant.user, role()).await?;
    let stripper = Stripper::start(tenant.user.client().await?).await?;
    let (world, key) = (World::new(), tenant.remote.key());
    let (site, platform) = (tenant.site_as("deployer"), tenant.remote.site());
    let mark = tenant.remote.plane.audit()?.mark().await?;
    world.apply_kubeconfig(&key, stripper.config(&tenant.user)?);
    world.registry.open(&key, site.clone());
    world.until_down(&site, Reason::ImpersonationNotEffective).await?;
    assert!(world.registry.client(&site).is_none());
    let events = tenant.remote.plane.audit()?.since(mark).await?;
    let own = events.iter().filter(|event| event.user == tenant.user.name());
    let about: Vec<_> = own.map(|event| event.resource.as_str()).collect();
    assert!(
        !about.is_empty()
            && about
                .iter()
                .all(|resource| resource.starts_with("selfsubject") || *resource == "namespaces"),
        "{about:?}"
    );
    // It is the headers that are missing, and nothing else.
    world.registry.open(&key, platform.clone());
    world.until_up(&platform).await?;
    world.ended().await
}

/// A kubeconfig in the place of another is checked before anything is done with it; until then calls go the old way.
///
/// Holds: I5, K12.
#[tokio::test]
async fn no_call_goes_to_another_server_before_the_checks_there() -> Result<()> {
    let tenant = Tenant::new("unchecked").await?;
    let stripper = Stripper::start(tenant.user.client().await?).await?;
    let (world, key, site) = (World::new(), tenant.remote.key(), tenant.site_as("deployer"));
    world.apply_kubeconfig(&key, config(&tenant.user)?);
    world.registry.open(&key, site.clone());
    let seat = world.until_up(&site).await?;
    // The first question about the site itself.
    stripper.hold(Some("selfsubjectaccessreviews"));
    world.apply_kubeconfig(&key, stripper.config(&tenant.user)?);
    wait_for("the new connection", LIMIT, async || {
        Ok((world.connections(&key).1 == 1).then_some(()))
    })
    .await?;
    for _ in 0..10 {
        assert_eq!(who(&seat).await?, tenant.account);
    }
    stripper.hold(None);
    world.until_down(&site, Reason::ImpersonationNotEffective).await?;
    assert!(!seat.is_valid() && who(&seat).await.is_err());
    world.ended().await
}
