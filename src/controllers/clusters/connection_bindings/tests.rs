//! Who is reached by what, and what follows when that changes.

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
    KubeconfigVerdict::Leads(Box::new(ValidKubeconfig {
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

fn lead(secret: &str, key: Option<&str>) -> KubeconfigRef {
    KubeconfigRef::Platform {
        secret: secret.to_owned(),
        key: key.map(str::to_owned),
    }
}

fn own(name: &str) -> Arc<TenantKubeconfig> {
    Arc::new(TenantKubeconfig {
        reader: ReadIdentity::Hub,
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

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// The acts in short.
fn told(acts: &[BindingAction]) -> Vec<String> {
    let short = |act: &BindingAction| match act {
        BindingAction::Bind(key, _) => format!("bind {}", key.secret_uid),
        BindingAction::Open(key, site) => format!("open {} {}", key.secret_uid, site.cluster),
        BindingAction::Close(site) => format!("close {}", site.cluster),
        BindingAction::Refuse(site, SiteState::Down { since, reason }) => {
            format!("down {} {reason} {}", site.cluster, since.as_second())
        }
        BindingAction::Refuse(site, SiteState::Refused { since, refusal }) => {
            format!("refuse {} {} {}", site.cluster, refusal.reason, since.as_second())
        }
        BindingAction::Refuse(site, SiteState::Disconnected) => format!("away {}", site.cluster),
        BindingAction::Refuse(_, SiteState::Up) => "up".to_owned(),
        BindingAction::Unbind(key, fault) => format!("unbind {} {}", key.secret_uid, fault.reason()),
    };
    acts.iter().map(short).collect()
}

/// Holds: B1.
#[test]
fn a_cluster_that_is_kept_away_from_has_no_connection_and_no_kubeconfig_that_is_read() {
    let mut leads = ConnectionBindings::default();
    let (west, east) = (platform("west"), platform("east"));
    let shared = lead("shared", None);
    for site in [&west, &east] {
        leads.bind(site, &shared, at(0));
    }
    leads.resolve(&shared, found("1"), at(1));
    // The other one still uses the connection.
    assert_eq!(
        told(&leads.bind(&west, &KubeconfigRef::Away, at(2))),
        ["away west"]
    );
    assert!(leads.is_held(&key("1")));
    assert_eq!(
        told(&leads.bind(&east, &KubeconfigRef::Away, at(3))),
        ["away east", "unbind 1 KubeconfigNotFound"]
    );
    assert!(leads.leads_into("shared").is_empty() && !leads.is_held(&key("1")));
    assert_eq!(leads.way_to(&west), Some(Err(KubeconfigFault::Disconnected)));
    // It is looked at anew when the hub may connect again.
    assert!(leads.bind(&west, &shared, at(4)).is_empty());
    assert_eq!(
        told(&leads.resolve(&shared, found("1"), at(5))),
        ["bind 1", "open 1 west"]
    );
    assert_eq!(told(&leads.unbind(&east)), ["close east"]);
    assert!(!leads.is_followed(&KubeconfigRef::Away));
}

#[test]
fn clusters_that_name_one_kubeconfig_share_its_connection_until_the_last_is_gone() {
    let mut leads = ConnectionBindings::default();
    let (west, east) = (platform("west"), platform("east"));
    // The default key and the same key by its name are one.
    let (by_default, by_name) = (lead("shared", None), lead("shared", Some("value")));
    assert!(
        leads.bind(&west, &by_default, at(0)).is_empty(),
        "nothing is known yet"
    );
    leads.bind(&east, &by_name, at(0));
    assert_eq!(leads.leads_into("shared").len(), 2);
    assert_eq!(
        told(&leads.resolve(&by_default, found("1"), at(1))),
        ["bind 1", "open 1 west"]
    );
    assert_eq!(
        told(&leads.resolve(&by_name, found("1"), at(1))),
        ["bind 1", "open 1 east"]
    );
    assert_eq!(leads.names_at(&key("1")).len(), 2);
    assert_eq!(told(&leads.resolve(&by_name, found("1"), at(2))), ["bind 1"]);
    assert!(leads.resolve(&by_name, KubeconfigVerdict::Same, at(2)).is_empty());
    assert_eq!(told(&leads.unbind(&west)), ["close west"]);
    assert!(leads.is_held(&key("1")));
    assert_eq!(
        told(&leads.unbind(&east)),
        ["close east", "unbind 1 KubeconfigNotFound"]
    );
    assert!(!leads.is_held(&key("1")) && leads.leads_into("shared").is_empty());
    assert!(leads.unbind(&east).is_empty());
}

/// Holds: K12.
#[test]
fn another_secret_of_the_same_name_is_another_cluster() {
    let mut leads = ConnectionBindings::default();
    let west = platform("west");
    let by = lead("west", None);
    leads.bind(&west, &by, at(0));
    leads.resolve(&by, found("1"), at(0));
    let acts = leads.resolve(&by, found("2"), at(1));
    assert_eq!(
        told(&acts),
        ["bind 2", "open 2 west", "unbind 1 KubeconfigNotFound"]
    );
}

#[test]
fn a_kubeconfig_that_is_gone_ends_its_connection_and_says_so_once() {
    let mut leads = ConnectionBindings::default();
    let west = platform("west");
    let by = lead("west", None);
    leads.bind(&west, &by, at(0));
    leads.resolve(&by, found("1"), at(0));
    let gone = || KubeconfigVerdict::Nowhere(KubeconfigFault::Missing);
    let expected = ["down west KubeconfigNotFound 5", "unbind 1 KubeconfigNotFound"];
    assert_eq!(told(&leads.resolve(&by, gone(), at(5))), expected);
    assert!(leads.resolve(&by, gone(), at(9)).is_empty(), "it was said");
    // Who asks again is told again, since when it was so.
    assert_eq!(
        told(&leads.bind(&west, &by, at(9))),
        ["down west KubeconfigNotFound 5"]
    );
    assert_eq!(
        told(&leads.resolve(&by, found("1"), at(10))),
        ["bind 1", "open 1 west"]
    );
    assert_eq!(leads.way_to(&west), Some(Ok(&key("1"))));
}

#[test]
fn a_cluster_that_names_another_secret_moves() {
    let mut leads = ConnectionBindings::default();
    let west = platform("west");
    let (old, new) = (lead("old", None), lead("new", None));
    leads.bind(&west, &old, at(0));
    leads.resolve(&old, found("1"), at(0));
    assert_eq!(
        told(&leads.bind(&west, &new, at(1))),
        ["unbind 1 KubeconfigNotFound"]
    );
    assert_eq!((leads.way_to(&west), leads.leads_into("old").len()), (None, 0));
    // One that is there already leads there at once.
    let east = platform("east");
    leads.resolve(&new, found("2"), at(1));
    assert_eq!(told(&leads.bind(&east, &new, at(2))), ["open 2 east"]);
}

/// Holds: K12.
#[test]
fn who_may_not_read_a_kubeconfig_any_more_loses_it_and_nobody_else_does() {
    let mut leads = ConnectionBindings::default();
    let (mine, theirs) = (own("kubeconfig"), own("other-way"));
    let (my_site, their_site) = (site_of(&mine), site_of(&theirs));
    let (my_lead, their_lead) = (KubeconfigRef::Own(mine), KubeconfigRef::Own(theirs));
    leads.bind(&my_site, &my_lead, at(0));
    leads.bind(&their_site, &their_lead, at(0));
    leads.resolve(&my_lead, found("1"), at(0));
    leads.resolve(&their_lead, found("1"), at(0));
    let denied = leads.resolve(
        &my_lead,
        KubeconfigVerdict::Nowhere(KubeconfigFault::Right),
        at(3),
    );
    assert_eq!(told(&denied), ["refuse kubeconfig RBACDenied 3"]);
    let denied = leads.resolve(
        &their_lead,
        KubeconfigVerdict::Nowhere(KubeconfigFault::Right),
        at(4),
    );
    assert_eq!(
        told(&denied),
        ["refuse other-way RBACDenied 4", "unbind 1 RBACDenied"]
    );
}

#[test]
fn a_tenants_kubeconfig_outlives_its_last_task_until_it_is_forgotten() {
    let mut leads = ConnectionBindings::default();
    let mine = own("kubeconfig");
    let site = site_of(&mine);
    let lead = KubeconfigRef::Own(mine);
    leads.bind(&site, &lead, at(0));
    leads.resolve(&lead, found("1"), at(0));
    assert_eq!(told(&leads.unbind(&site)), ["close kubeconfig"]);
    assert!(leads.is_idle(&lead) && leads.is_followed(&lead));
    assert_eq!(told(&leads.bind(&site, &lead, at(1))), ["open 1 kubeconfig"]);
    leads.unbind(&site);
    assert_eq!(told(&leads.forget(&lead)), ["unbind 1 KubeconfigNotFound"]);
    assert!(
        leads.resolve(&lead, found("1"), at(2)).is_empty(),
        "late words change nothing"
    );
    assert!(!leads.is_held(&key("1")));
}

#[test]
fn what_is_known_is_not_asked_for_again_unless_it_is_to_be_told() {
    let mut leads = ConnectionBindings::default();
    let by = lead("west", Some("admin"));
    leads.bind(&platform("west"), &by, at(0));
    assert!(leads.query(&by, false).known.is_none());
    leads.resolve(&by, found("1"), at(0));
    let asked = leads.query(&by, false);
    assert!(
        asked.known == Some((key("1"), KubeconfigHash::of(b"1"))) && asked.key.as_deref() == Some("admin")
    );
    assert!(leads.query(&by, true).known.is_none());
    let refused = KubeconfigVerdict::Nowhere(KubeconfigFault::Flaw(
        crate::plan::remote::kubeconfig_fault::KubeconfigFlaw {
            reason: Reason::BadKubeconfig,
            message: "it cannot be read",
        },
    ));
    leads.resolve(&by, refused, at(1));
    assert!(leads.query(&by, false).known.is_none());
}
