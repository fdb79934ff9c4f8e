//! The message to a task that names an object of the platform that it may not use: it lists those that it may use, and none of
//! others.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{class, cluster, platform, registry, spec_with, task_in, task_of, uid};
use crate::api::conditions::Reason;
use crate::api::names::TaskKind;
use crate::plan::platform::catalog::{Catalog, CredentialState};
use crate::plan::platform::reference_grants::ReferenceGrantIndex;
use crate::plan::platform::tenancy::TenancyPolicy;
use crate::plan::pull_secrets::copy::PullSecretFault;
use crate::plan::pull_secrets::named::NamedPullSecret;
use crate::plan::remote::placement::admit;
use crate::plan::remote::site::{ClusterName, RemoteTarget, Site, TenantKubeconfig};
use crate::plan::task::refusal::Refusal;
use crate::plan::task::status;
use crate::plan::task::tenant::ReadIdentity;

/// Nothing but the hub's own renderer.
fn nothing() -> Catalog {
    Catalog {
        registries: std::collections::BTreeMap::new(),
        ..platform()
    }
}

fn put(catalog: &mut Catalog, name: &str, changes: Value) {
    let offered = registry(changes, CredentialState::Anonymous);
    catalog.registries.insert(name.to_owned(), offered);
}

fn refusal(catalog: &Catalog, kind: TaskKind, changes: Value) -> Refusal {
    let namespace = match kind {
        TaskKind::RenderTask => "team-a",
        TaskKind::ClusterRenderTask => "",
    };
    let task = task_in(namespace, kind, spec_with(changes));
    let spec = task.decoded.spec.as_ref().unwrap();
    catalog.resolve(&task, spec, None, None).unwrap_err()
}

fn of_registry(catalog: &Catalog, name: &str) -> String {
    let refusal = refusal(
        catalog,
        TaskKind::RenderTask,
        json!({"registryRef": {"name": name}}),
    );
    assert_eq!(refusal.reason, Reason::RegistryNotAllowed);
    refusal.message
}

fn of_class(catalog: &Catalog, name: Option<&str>) -> String {
    let changes = json!({"rendererClassName": name});
    let refusal = refusal(catalog, TaskKind::RenderTask, changes);
    assert_eq!(refusal.reason, Reason::RendererClassNotFound);
    refusal.message
}

fn of_cluster(catalog: &Catalog, name: &str) -> String {
    let task = task_of(spec_with(json!({"clusterName": name})));
    let target = RemoteTarget::Platform(name.to_owned());
    let refusal = admit(
        &task,
        &target,
        catalog,
        &ReferenceGrantIndex::default(),
        &TenancyPolicy::default(),
    )
    .unwrap_err();
    assert_eq!(refusal.reason, Reason::ClusterNotFound);
    refusal.message
}

#[test]
fn registries_are_listed_with_their_host_and_the_prefix_of_the_namespace() {
    let mut catalog = nothing();
    let before = "the ClusterRegistry that registryRef names does not exist, or does not allow this namespace; the task starts by \
                  itself once it does; ";
    let none = "this namespace may use none; ask the platform operator";
    assert_eq!(of_registry(&catalog, "absent"), format!("{before}{none}"));
    put(
        &mut catalog,
        "zebra",
        json!({"hostname": "z.test", "repositoryPrefix": ""}),
    );
    put(&mut catalog, "main", json!({}));
    put(
        &mut catalog,
        "open",
        json!({"allowedNamespaces": ["*"], "hostname": "o.test", "repositoryPrefix": "charts/{namespace}/x/"}),
    );
    let not_theirs = [
        ("others", json!({"allowedNamespaces": ["team-b"]})),
        ("shut", json!({"allowedNamespaces": []})),
        ("no-host", json!({"hostname": "https://x"})),
        ("no-prefix", json!({"repositoryPrefix": "../"})),
    ];
    for (name, changes) in not_theirs {
        put(&mut catalog, name, changes);
    }
    put(&mut catalog, "recreated", json!({}));
    let recreated = catalog.registries.get_mut("recreated").unwrap();
    recreated
        .recorded
        .insert("team-a".to_owned(), "another".to_owned());
    let some = "or make a new task with one that this namespace may use: main (host registry.test:5000, repository below team-a/), \
                open (host o.test, repository below charts/team-a/x/), zebra (host z.test)";
    for name in ["absent", "others", "shut", "recreated"] {
        assert_eq!(of_registry(&catalog, name), format!("{before}{some}"), "{name}");
    }
}

#[test]
fn a_class_that_may_be_used_is_named_and_so_is_the_way_without_one() {
    let mut catalog = platform();
    let before = "the RendererClass that rendererClassName names does not exist, or does not allow this namespace; the task starts \
                  by itself once it does; ";
    let reported = |catalog: &Catalog| of_class(catalog, Some("absent")).replace(before, "");
    assert_eq!(
        reported(&catalog),
        "this namespace may use none; make a new task without rendererClassName, or ask the platform operator"
    );
    for (name, changes) in [
        ("everyone", json!({})),
        ("ours", json!({"allowedNamespaces": ["team-a"], "mode": "Single"})),
        ("others", json!({"allowedNamespaces": ["team-b"]})),
        ("platforms", json!({"mode": "Single"})),
    ] {
        catalog.classes.insert(name.to_owned(), class(changes, false));
    }
    let optional = "or make a new task without rendererClassName, or with one that this namespace may use: everyone, ours";
    assert_eq!(reported(&catalog), optional);
    assert_eq!(
        of_class(&catalog, Some("others")),
        of_class(&catalog, Some("absent"))
    );
    // Without a name a task gets the default, which is not for this namespace.
    let default = class(json!({"allowedNamespaces": ["team-b"]}), true);
    catalog.classes.insert("default".to_owned(), default);
    let needed = "or make a new task with one that this namespace may use: everyone, ours";
    assert_eq!(reported(&catalog), needed);
    assert_eq!(
        of_class(&catalog, None),
        format!(
            "the default RendererClass does not allow this namespace; the task starts by itself once it does; {needed}"
        )
    );
}

#[test]
fn a_cluster_that_may_be_used_is_named_and_so_is_the_way_without_one() {
    let mut catalog = platform();
    let before = "the RenderCluster that clusterName names does not exist, or does not allow this namespace; the task starts by itself \
                  once it does; ";
    let reported = |catalog: &Catalog, name: &str| of_cluster(catalog, name).replace(before, "");
    let none =
        "this namespace may use none; make a new task without clusterName, or ask the platform operator";
    let secret = cluster(json!({"allowedNamespaces": ["team-b"]}));
    catalog.clusters.insert("secret".to_owned(), secret);
    assert_eq!(reported(&catalog, "absent"), none);
    assert_eq!(reported(&catalog, "secret"), none);
    catalog.clusters.insert("east".to_owned(), cluster(json!({})));
    let some = "or make a new task without clusterName, or with one that this namespace may use: east";
    assert_eq!(reported(&catalog, "absent"), some);
    assert_eq!(reported(&catalog, "secret"), some);
}

#[test]
fn the_platforms_own_task_gets_no_list_because_nothing_is_hidden_from_it() {
    let changes = json!({"registryRef": {"name": "absent"}});
    let found = refusal(&platform(), TaskKind::ClusterRenderTask, changes);
    assert_eq!(
        found.message,
        "the ClusterRegistry that registryRef names does not exist; the task starts by itself once it does"
    );
    assert_eq!(found.reason, Reason::RegistryNotFound);
}

#[test]
fn ten_are_listed_and_how_many_more_there_are() {
    let mut catalog = nothing();
    for n in 0..13 {
        put(
            &mut catalog,
            &format!("reg-{n:02}"),
            json!({"repositoryPrefix": ""}),
        );
    }
    let reported = of_registry(&catalog, "absent");
    assert!(
        reported.ends_with("reg-09 (host registry.test:5000) and 3 more"),
        "{reported}"
    );
    // Long names leave room for fewer, but for one always.
    let long = |n: usize| format!("{n}{}", "x".repeat(240));
    let host = vec!["h".repeat(60); 4].join(".");
    let mut catalog = nothing();
    for n in 0..5 {
        put(&mut catalog, &long(n), json!({"hostname": host}));
    }
    let reported = of_registry(&catalog, "absent");
    assert!(
        reported.ends_with(&format!(": {}, {} and 3 more", long(0), long(1))),
        "{reported}"
    );
}

/// A refusal is written once for each of its texts: a change of what others may use changes nothing.
#[test]
fn the_text_changes_with_what_the_namespace_may_use_and_with_nothing_else() {
    let mut catalog = nothing();
    let mut task = task_of(spec_with(json!({"registryRef": {"name": "absent"}})));
    let mut writes = |catalog: &Catalog| {
        let spec = task.decoded.spec.clone().unwrap();
        let refusal = catalog.resolve(&task, &spec, None, None).unwrap_err();
        let status = status::refused(&task, &refusal, super::at(9));
        let is_news = status != task.status;
        task.status = status;
        is_news
    };
    assert!(writes(&catalog), "the first time");
    assert!(!writes(&catalog));
    put(&mut catalog, "others", json!({"allowedNamespaces": ["team-b"]}));
    assert!(!writes(&catalog), "it is not for this namespace");
    put(&mut catalog, "main", json!({}));
    assert!(writes(&catalog), "it may use one now");
    put(
        &mut catalog,
        "main",
        json!({"allowedNamespaces": ["team-a", "team-b"]}),
    );
    assert!(!writes(&catalog));
    catalog.registries.remove("main");
    assert!(writes(&catalog), "it may use none any more");
}

#[derive(Clone, Debug)]
struct Offered {
    allowed: Vec<String>,
    /// Whether the hub recorded the namespaces of today.
    is_current: bool,
    padding: usize,
}

fn offered() -> impl Strategy<Value = Offered> {
    let names = prop::sample::subsequence(vec!["team-a", "team-b", "team", "team-a2", "*"], 0..4);
    (names, any::<bool>(), 0_usize..230).prop_map(|(allowed, is_current, padding)| Offered {
        allowed: allowed.into_iter().map(str::to_owned).collect(),
        is_current,
        padding,
    })
}

proptest! {
    /// Holds: T9, B17, B37.
    #[test]
    fn nothing_is_listed_that_does_not_allow_the_namespace(all in prop::collection::vec(offered(), 0..40)) {
        let mut catalog = nothing();
        let (mut theirs, mut others) = (0, Vec::new());
        for (n, offered) in all.iter().enumerate() {
            let name = format!("reg{n:02}{}", "x".repeat(offered.padding));
            let host = format!("host{n:02}.test");
            put(&mut catalog, &name, json!({"allowedNamespaces": offered.allowed, "hostname": host}));
            let recorded = &mut catalog.registries.get_mut(&name).unwrap().recorded;
            if !offered.is_current {
                recorded.insert("team-a".to_owned(), uid("team-a-of-yesterday"));
            }
            let is_named = offered.allowed.iter().any(|name| name == "team-a") && offered.is_current;
            if is_named || offered.allowed.iter().any(|name| name == "*") {
                theirs += 1;
            } else {
                others.push((name, host));
            }
        }
        let reported = of_registry(&catalog, "absent");
        for (name, host) in &others {
            prop_assert!(!reported.contains(&name[..5]) && !reported.contains(host), "{}: {}", name, reported);
            prop_assert_eq!(&of_registry(&catalog, name), &reported);
        }
        prop_assert_eq!(reported.contains("may use none"), theirs == 0);
        prop_assert!(reported.matches("(host ").count() <= 10 && reported.len() <= 900, "{}: {}", reported.len(), reported);
        let shown = reported.matches("(host ").count();
        let more = reported.rsplit_once(" and ").and_then(|(_, end)| end.strip_suffix(" more"));
        let more: usize = more.and_then(|n| n.parse().ok()).unwrap_or_default();
        prop_assert_eq!(shown + more, theirs);
        prop_assert!(!reported.contains("team-b"));
    }
}

/// Holds: S1.
#[test]
fn a_tenants_own_cluster_gets_neither_a_pull_secret_of_the_platforms_nor_its_name() {
    let mut catalog = platform();
    let main = catalog.registries.get_mut("main").unwrap();
    main.credential = CredentialState::Anonymous;
    catalog.fallback = class(json!({"imagePullSecrets": [{"name": "pull"}]}), false);
    catalog.fallback.pull_secrets = vec![NamedPullSecret {
        name: "pull".to_owned(),
        copy: Err(PullSecretFault::Missing),
        is_by_hand: false,
    }];
    let named = |target: Option<RemoteTarget>| {
        let task = task_of(spec_with(json!({})));
        let spec = task.decoded.spec.as_ref().unwrap();
        let resolved = catalog.resolve(&task, spec, None, target.as_ref()).unwrap();
        (
            resolved.pull_secrets.len(),
            resolved.class.image_pull_secrets.len(),
        )
    };
    let own = Site {
        cluster: ClusterName::Own(TenantKubeconfig {
            identity: ReadIdentity::Hub,
            namespace: "team-a".to_owned(),
            name: "edge".to_owned(),
            key: None,
            crosses: false,
        }),
        namespace: "renders".to_owned(),
    };
    assert_eq!(named(None), (1, 1));
    assert_eq!(named(Some(RemoteTarget::Platform("east".to_owned()))), (1, 1));
    assert_eq!(named(Some(RemoteTarget::Own(own))), (0, 0));
}
