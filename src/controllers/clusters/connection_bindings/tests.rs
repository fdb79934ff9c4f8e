//! Bindings of sites, and the actions that follow when they change.

use std::net::{IpAddr, Ipv4Addr};

use secrecy::SecretString;

use super::*;
use crate::api::conditions::Reason;
use crate::plan::task::tenant::ReadIdentity;
use crate::remote::kubeconfig::{ApiServerHost, ClusterCredential};

pub fn config() -> RemoteConfig {
    RemoteConfig {
        host: ApiServerHost::Address(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        port: 6443,
        tls_server_name: None,
        authorities: Vec::new(),
        login: ClusterCredential::Token(SecretString::from("token")),
    }
}

fn key(uid: &str) -> ConnectionKey {
    ConnectionKey {
        secret_uid: uid.into(),
        key: "value".into(),
    }
}

fn found(uid: &str) -> KubeconfigVerdict {
    KubeconfigVerdict::Valid(Box::new(ValidKubeconfig {
        key: key(uid),
        config: config(),
        content: KubeconfigHash::of(uid.as_bytes()),
    }))
}

fn platform(name: &str) -> Arc<Site> {
    Arc::new(Site {
        cluster: ClusterName::Platform(name.to_owned()),
        namespace: "jobs".to_owned(),
    })
}

fn kubeconfig(secret: &str, key: Option<&str>) -> KubeconfigRef {
    KubeconfigRef::Platform {
        secret: secret.to_owned(),
        key: key.map(str::to_owned),
    }
}

fn own(name: &str) -> Arc<TenantKubeconfig> {
    Arc::new(TenantKubeconfig {
        identity: ReadIdentity::Hub,
        namespace: "team".to_owned(),
        name: name.to_owned(),
        key: None,
        crosses: false,
    })
}

fn site_of(own: &TenantKubeconfig) -> Arc<Site> {
    Arc::new(Site {
        cluster: ClusterName::Own(own.clone()),
        namespace: "jobs".to_owned(),
    })
}

/// The actions as short texts.
fn describe(actions: &[BindingAction]) -> Vec<String> {
    let short = |action: &BindingAction| match action {
        BindingAction::ApplyKubeconfig(key, _) => format!("apply {}", key.secret_uid),
        BindingAction::Open(key, site) => format!("open {} {}", key.secret_uid, site.cluster),
        BindingAction::Close(site) => format!("close {}", site.cluster),
        BindingAction::Refuse(site, SiteState::Down { reason, .. }) => {
            format!("down {} {reason}", site.cluster)
        }
        BindingAction::Refuse(site, SiteState::Refused(refusal)) => {
            format!("refuse {} {}", site.cluster, refusal.reason)
        }
        BindingAction::Refuse(site, SiteState::Disconnected) => format!("away {}", site.cluster),
        BindingAction::Refuse(_, SiteState::Up) => "up".to_owned(),
        BindingAction::EndConnection(key, fault) => format!("end {} {}", key.secret_uid, fault.reason()),
    };
    actions.iter().map(short).collect()
}

/// Holds: B1.
#[test]
fn a_disconnected_cluster_has_no_connection_and_its_kubeconfig_is_not_read() {
    let mut bindings = ConnectionBindings::default();
    let (west, east) = (platform("west"), platform("east"));
    let shared = kubeconfig("shared", None);
    for site in [&west, &east] {
        bindings.bind(site, &shared);
    }
    bindings.apply_verdict(&shared, found("1"));
    // The other one still uses the connection.
    assert_eq!(
        describe(&bindings.bind(&west, &KubeconfigRef::Away)),
        ["away west"]
    );
    assert!(bindings.is_held(&key("1")));
    assert_eq!(
        describe(&bindings.bind(&east, &KubeconfigRef::Away)),
        ["away east", "end 1 KubeconfigNotFound"]
    );
    assert!(bindings.kubeconfigs_in("shared").is_empty() && !bindings.is_held(&key("1")));
    assert_eq!(
        bindings.connection_of(&west),
        Some(Err(KubeconfigFault::Disconnected))
    );
    // The kubeconfig is read again when the hub may connect again.
    assert!(bindings.bind(&west, &shared).is_empty());
    assert_eq!(
        describe(&bindings.apply_verdict(&shared, found("1"))),
        ["apply 1", "open 1 west"]
    );
    assert_eq!(describe(&bindings.unbind(&east)), ["close east"]);
    assert!(!bindings.is_known(&KubeconfigRef::Away));
}

#[test]
fn clusters_that_name_one_kubeconfig_share_its_connection_until_the_last_is_gone() {
    let mut bindings = ConnectionBindings::default();
    let (west, east) = (platform("west"), platform("east"));
    // The default key, and the same key by its name, share a connection.
    let (by_default, by_name) = (kubeconfig("shared", None), kubeconfig("shared", Some("value")));
    assert!(
        bindings.bind(&west, &by_default).is_empty(),
        "nothing is known yet"
    );
    bindings.bind(&east, &by_name);
    assert_eq!(bindings.kubeconfigs_in("shared").len(), 2);
    assert_eq!(
        describe(&bindings.apply_verdict(&by_default, found("1"))),
        ["apply 1", "open 1 west"]
    );
    assert_eq!(
        describe(&bindings.apply_verdict(&by_name, found("1"))),
        ["apply 1", "open 1 east"]
    );
    assert_eq!(bindings.names_at(&key("1")).len(), 2);
    assert_eq!(
        describe(&bindings.apply_verdict(&by_name, found("1"))),
        ["apply 1"]
    );
    assert!(
        bindings
            .apply_verdict(&by_name, KubeconfigVerdict::Unchanged)
            .is_empty()
    );
    assert_eq!(describe(&bindings.unbind(&west)), ["close west"]);
    assert!(bindings.is_held(&key("1")));
    assert_eq!(
        describe(&bindings.unbind(&east)),
        ["close east", "end 1 KubeconfigNotFound"]
    );
    assert!(!bindings.is_held(&key("1")) && bindings.kubeconfigs_in("shared").is_empty());
    assert!(bindings.unbind(&east).is_empty());
}

/// Holds: K12.
#[test]
fn another_secret_of_the_same_name_is_another_cluster() {
    let mut bindings = ConnectionBindings::default();
    let west = platform("west");
    let by = kubeconfig("west", None);
    bindings.bind(&west, &by);
    bindings.apply_verdict(&by, found("1"));
    let actions = bindings.apply_verdict(&by, found("2"));
    assert_eq!(
        describe(&actions),
        ["apply 2", "open 2 west", "end 1 KubeconfigNotFound"]
    );
}

#[test]
fn a_deleted_kubeconfig_ends_its_connection_and_is_announced_once() {
    let mut bindings = ConnectionBindings::default();
    let west = platform("west");
    let by = kubeconfig("west", None);
    bindings.bind(&west, &by);
    bindings.apply_verdict(&by, found("1"));
    let gone = || KubeconfigVerdict::Invalid(KubeconfigFault::Missing);
    let expected = ["down west KubeconfigNotFound", "end 1 KubeconfigNotFound"];
    assert_eq!(describe(&bindings.apply_verdict(&by, gone())), expected);
    assert!(bindings.apply_verdict(&by, gone()).is_empty(), "it was announced");
    // A new bind gets the same refusal, with the time of the first one.
    assert_eq!(
        describe(&bindings.bind(&west, &by)),
        ["down west KubeconfigNotFound"]
    );
    assert_eq!(
        describe(&bindings.apply_verdict(&by, found("1"))),
        ["apply 1", "open 1 west"]
    );
    assert_eq!(bindings.connection_of(&west), Some(Ok(&key("1"))));
}

#[test]
fn a_cluster_that_names_another_secret_moves() {
    let mut bindings = ConnectionBindings::default();
    let west = platform("west");
    let (old, new) = (kubeconfig("old", None), kubeconfig("new", None));
    bindings.bind(&west, &old);
    bindings.apply_verdict(&old, found("1"));
    assert_eq!(
        describe(&bindings.bind(&west, &new)),
        ["end 1 KubeconfigNotFound"]
    );
    assert_eq!(
        (
            bindings.connection_of(&west),
            bindings.kubeconfigs_in("old").len()
        ),
        (None, 0)
    );
    // A kubeconfig with a result is used at once.
    let east = platform("east");
    bindings.apply_verdict(&new, found("2"));
    assert_eq!(describe(&bindings.bind(&east, &new)), ["open 2 east"]);
}

/// Holds: K12.
#[test]
fn a_revoked_right_to_read_a_kubeconfig_ends_only_the_sites_of_that_account() {
    let mut bindings = ConnectionBindings::default();
    let (mine, theirs) = (own("kubeconfig"), own("other-way"));
    let (my_site, their_site) = (site_of(&mine), site_of(&theirs));
    let (my_kubeconfig, their_kubeconfig) = (KubeconfigRef::Own(mine), KubeconfigRef::Own(theirs));
    bindings.bind(&my_site, &my_kubeconfig);
    bindings.bind(&their_site, &their_kubeconfig);
    bindings.apply_verdict(&my_kubeconfig, found("1"));
    bindings.apply_verdict(&their_kubeconfig, found("1"));
    let denied = bindings.apply_verdict(&my_kubeconfig, KubeconfigVerdict::Invalid(KubeconfigFault::Right));
    assert_eq!(describe(&denied), ["refuse kubeconfig RBACDenied"]);
    let denied = bindings.apply_verdict(
        &their_kubeconfig,
        KubeconfigVerdict::Invalid(KubeconfigFault::Right),
    );
    assert_eq!(
        describe(&denied),
        ["refuse other-way RBACDenied", "end 1 RBACDenied"]
    );
}

#[test]
fn a_tenants_kubeconfig_outlives_its_last_task_until_it_is_forgotten() {
    let mut bindings = ConnectionBindings::default();
    let mine = own("kubeconfig");
    let site = site_of(&mine);
    let kubeconfig = KubeconfigRef::Own(mine);
    bindings.bind(&site, &kubeconfig);
    bindings.apply_verdict(&kubeconfig, found("1"));
    assert_eq!(describe(&bindings.unbind(&site)), ["close kubeconfig"]);
    assert!(bindings.is_idle(&kubeconfig) && bindings.is_known(&kubeconfig));
    assert_eq!(
        describe(&bindings.bind(&site, &kubeconfig)),
        ["open 1 kubeconfig"]
    );
    bindings.unbind(&site);
    assert_eq!(
        describe(&bindings.forget(&kubeconfig)),
        ["end 1 KubeconfigNotFound"]
    );
    assert!(
        bindings.apply_verdict(&kubeconfig, found("1")).is_empty(),
        "a late verdict changes nothing"
    );
    assert!(!bindings.is_held(&key("1")));
}

#[test]
fn known_content_gives_no_new_verdict_unless_it_must_be_reported() {
    let mut bindings = ConnectionBindings::default();
    let by = kubeconfig("west", Some("admin"));
    bindings.bind(&platform("west"), &by);
    assert!(bindings.query(&by, false).known.is_none());
    bindings.apply_verdict(&by, found("1"));
    let query = bindings.query(&by, false);
    assert!(
        query.known == Some((key("1"), KubeconfigHash::of(b"1"))) && query.key.as_deref() == Some("admin")
    );
    assert!(bindings.query(&by, true).known.is_none());
    let refused = KubeconfigVerdict::Invalid(KubeconfigFault::Flaw(
        crate::plan::remote::kubeconfig_fault::KubeconfigFlaw {
            reason: Reason::BadKubeconfig,
            message: "it cannot be read",
        },
    ));
    bindings.apply_verdict(&by, refused);
    assert!(bindings.query(&by, false).known.is_none());
}
