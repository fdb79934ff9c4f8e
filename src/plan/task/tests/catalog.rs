//! Who may push where: each refusal, their order, and that no namespace gets out of its prefix.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{class, platform, registry, spec_with, task_in};
use crate::api::conditions::Reason::{
    self, InvalidSpec, PushSecretInvalid, PushSecretNotFound, RegistryNotAllowed, RegistryNotFound,
    RendererClassNotFound, RepositoryNotAllowed,
};
use crate::api::names::TaskKind;
use crate::plan::platform::catalog::{Catalog, CertificateSource, CredentialState, ResolvedTask};

/// A catalog whose only registry, `main`, is so.
fn offering(changes: Value, credential: CredentialState) -> Catalog {
    let mut catalog = platform();
    catalog
        .registries
        .insert("main".to_owned(), registry(changes, credential));
    catalog
}

fn usable(changes: Value) -> Catalog {
    offering(changes, CredentialState::BasicAuth("push".to_owned()))
}

/// Asks as `team-a`.
fn ask(catalog: &Catalog, spec: Value) -> Result<ResolvedTask, Reason> {
    ask_as(catalog, "team-a", TaskKind::RenderTask, spec)
}

fn ask_as(catalog: &Catalog, namespace: &str, kind: TaskKind, spec: Value) -> Result<ResolvedTask, Reason> {
    let task = task_in(namespace, kind, spec);
    let spec = task.decoded.spec.as_ref().expect("the spec can be decoded");
    catalog
        .resolve(&task, spec, None, None)
        .map_err(|refusal| refusal.reason)
}

#[test]
fn a_task_gets_what_the_registry_binds() {
    let catalog = usable(json!({
        "plainHTTP": true,
        "tokenRealm": "https://auth.test/token",
        "caConfigMapRef": {"name": "trust", "key": "root.pem"},
    }));
    let got = ask(&catalog, spec_with(json!({}))).unwrap();
    assert_eq!(got.reference.url(), "oci://registry.test:5000/team-a/shop:1.0.0");
    assert_eq!(got.credential, CredentialState::BasicAuth("push".to_owned()));
    assert_eq!(got.token_realm.as_deref(), Some("https://auth.test/token"));
    let trust = CertificateSource::ConfigMap("trust".to_owned(), "root.pem".to_owned());
    assert_eq!(got.ca, Some(trust));
    assert!(got.plain_http);
    assert_eq!(got.class.image, "renderer.test/renderer:1");
}

#[test]
#[rustfmt::skip]
fn each_refusal_has_its_cause() {
    let missing = || offering(json!({}), CredentialState::Missing);
    let table = [
        (usable(json!({})), json!({"registryRef": {"name": "other"}}), RegistryNotAllowed),
        (usable(json!({"allowedNamespaces": []})), json!({}), RegistryNotAllowed),
        (usable(json!({"allowedNamespaces": ["team-a2", "team"]})), json!({}), RegistryNotAllowed),
        (usable(json!({"hostname": "https://x"})), json!({}), RegistryNotFound),
        (usable(json!({})), json!({"repository": "team-b/shop"}), RepositoryNotAllowed),
        (usable(json!({"repositoryPrefix": "../"})), json!({}), RepositoryNotAllowed),
        (usable(json!({})), json!({"repository": "//"}), InvalidSpec),
        (usable(json!({})), json!({"tag": "--x"}), InvalidSpec),
        (missing(), json!({}), PushSecretNotFound),
        (offering(json!({}), CredentialState::Invalid), json!({}), PushSecretInvalid),
        (usable(json!({})), json!({"rendererClassName": "slides"}), RendererClassNotFound),
    ];
    for (catalog, changes, reason) in table {
        assert_eq!(ask(&catalog, spec_with(changes.clone())).err(), Some(reason), "{changes}");
    }
}

#[test]
fn the_first_refusal_wins() {
    // Each line has the faults of all lines below it too.
    let wrong = json!({"repository": "team-b/shop", "rendererClassName": "slides"});
    let shut = || offering(json!({"allowedNamespaces": []}), CredentialState::Missing);
    let open = || offering(json!({}), CredentialState::Missing);
    let mut nowhere = wrong.clone();
    nowhere["registryRef"] = json!({"name": "other"});
    let inside = json!({"rendererClassName": "slides"});
    let table = [
        (shut(), nowhere, RegistryNotAllowed),
        (shut(), wrong.clone(), RegistryNotAllowed),
        (open(), wrong, RepositoryNotAllowed),
        (open(), inside.clone(), PushSecretNotFound),
        (usable(json!({})), inside, RendererClassNotFound),
    ];
    for (catalog, changes, reason) in table {
        assert_eq!(
            ask(&catalog, spec_with(changes.clone())).err(),
            Some(reason),
            "{changes}"
        );
    }
}

#[test]
fn a_class_is_named_or_default_or_the_hubs_own() {
    let image = |catalog: &Catalog, changes: Value| ask(catalog, spec_with(changes)).map(|r| r.class.image);
    let mut catalog = platform();
    catalog.classes.insert(
        "slides".to_owned(),
        class(json!({"image": "slides.test/x:1"}), false),
    );
    let named = json!({"rendererClassName": "slides"});
    assert_eq!(image(&catalog, named.clone()), Ok("slides.test/x:1".to_owned()));
    assert_eq!(
        image(&catalog, json!({})),
        Ok("renderer.test/renderer:1".to_owned())
    );
    catalog.classes.insert(
        "usual".to_owned(),
        class(json!({"image": "usual.test/x:1"}), true),
    );
    assert_eq!(image(&catalog, json!({})), Ok("usual.test/x:1".to_owned()));
    let of_others = class(json!({"allowedNamespaces": ["team-b"]}), false);
    catalog.classes.insert("slides".to_owned(), of_others);
    assert_eq!(
        image(&catalog, named),
        Err(RendererClassNotFound),
        "it reads like one that does not exist"
    );
    let of_all = class(
        json!({"allowedNamespaces": ["*"], "image": "all.test/x:1"}),
        false,
    );
    catalog.classes.insert("all".to_owned(), of_all);
    assert_eq!(
        image(&catalog, json!({"rendererClassName": "all"})),
        Ok("all.test/x:1".to_owned())
    );
}

#[test]
fn a_class_that_shows_the_credential_to_its_container_is_for_those_it_names() {
    let table = [
        ("Split", json!([]), true),
        ("Single", json!([]), false),
        ("Single", json!(["team-b"]), false),
        ("Single", json!(["team-a"]), true),
        ("Single", json!(["*"]), true),
    ];
    for (mode, allowed, serves) in table {
        let mut catalog = platform();
        let changes = json!({"mode": mode, "allowedNamespaces": allowed});
        catalog.classes.insert("usual".to_owned(), class(changes, true));
        assert_eq!(
            ask(&catalog, spec_with(json!({}))).is_ok(),
            serves,
            "{mode} {allowed}"
        );
    }
}

/// Holds: T9, B17.
#[test]
fn a_tenant_cannot_tell_a_registry_of_others_from_none() {
    let mut catalog = platform();
    let not_theirs = [
        ("unlisted", json!({"allowedNamespaces": ["team-b"]})),
        ("shut", json!({"allowedNamespaces": []})),
        (
            "broken",
            json!({"allowedNamespaces": [], "hostname": "https://x"}),
        ),
    ];
    for (name, changes) in &not_theirs {
        let offered = registry(changes.clone(), CredentialState::Missing);
        catalog.registries.insert((*name).to_owned(), offered);
    }
    let mut recreated = registry(json!({}), CredentialState::Missing);
    recreated
        .recorded
        .insert("team-a".to_owned(), "another".to_owned());
    catalog.registries.insert("recreated".to_owned(), recreated);
    let refusal = |name: &str| {
        let changes = json!({"registryRef": {"name": name}, "repository": "team-b/shop", "rendererClassName": "slides"});
        let task = super::task_of(spec_with(changes));
        catalog
            .resolve(&task, task.decoded.spec.as_ref().unwrap(), None, None)
            .unwrap_err()
    };
    let absent = refusal("absent");
    assert_eq!(absent.reason, RegistryNotAllowed);
    let names = not_theirs.iter().map(|(name, _)| *name);
    for name in names.chain(["recreated"]) {
        assert_eq!(refusal(name), absent, "{name}");
    }
}

#[test]
fn the_platforms_own_task_gets_the_message_that_a_registry_is_missing() {
    let missing = spec_with(json!({"registryRef": {"name": "other"}}));
    let answer = ask_as(&usable(json!({})), "", TaskKind::ClusterRenderTask, missing);
    assert_eq!(answer.err(), Some(RegistryNotFound));
}

/// Holds: T9.
#[test]
fn a_tenant_cannot_tell_a_class_of_others_from_none() {
    let mut catalog = platform();
    catalog.classes.insert(
        "secret".to_owned(),
        class(json!({"allowedNamespaces": ["team-b"]}), false),
    );
    let refusal = |name: &str| {
        let task = super::task_of(spec_with(json!({"rendererClassName": name})));
        catalog
            .resolve(&task, task.decoded.spec.as_ref().unwrap(), None, None)
            .unwrap_err()
    };
    assert_eq!(refusal("secret"), refusal("absent"));
}

#[test]
fn the_platforms_own_tasks_pass_the_list_of_namespaces_and_prefixes_made_of_one() {
    let platform = |changes: Value, repository: &str| {
        let spec = spec_with(json!({"repository": repository}));
        ask_as(&usable(changes), "", TaskKind::ClusterRenderTask, spec)
            .map(|r| r.reference.repository.as_str().to_owned())
    };
    assert_eq!(
        platform(json!({"allowedNamespaces": []}), "anywhere/shop"),
        Ok("anywhere/shop".to_owned())
    );
    let fixed = json!({"repositoryPrefix": "charts/"});
    assert_eq!(
        platform(fixed.clone(), "charts/shop"),
        Ok("charts/shop".to_owned())
    );
    assert_eq!(platform(fixed, "other/shop"), Err(RepositoryNotAllowed));
}

#[test]
fn an_asterisk_admits_every_namespace_and_an_empty_list_none() {
    for (allowed, namespace, admitted) in [
        (json!(["*"]), "team-z", true),
        (json!([]), "team-a", false),
        (json!(["team-*"]), "team-a", false),
        (json!(["team-a"]), "team-a", true),
        (json!(["TEAM-A"]), "team-a", false),
    ] {
        let catalog = usable(json!({"allowedNamespaces": allowed}));
        let spec = spec_with(json!({"repository": format!("{namespace}/shop")}));
        let answer = ask_as(&catalog, namespace, TaskKind::RenderTask, spec);
        assert_eq!(answer.is_ok(), admitted, "{allowed} {namespace}");
    }
}

/// Holds: T8.
#[test]
fn a_recreated_namespace_reads_like_one_that_is_not_listed() {
    let refusal = |catalog: &Catalog, changes: Value| {
        let task = super::task_of(spec_with(changes));
        catalog
            .resolve(&task, task.decoded.spec.as_ref().unwrap(), None, None)
            .err()
    };
    let mut catalog = usable(json!({}));
    let class_of = |allowed: Value| class(json!({"allowedNamespaces": allowed}), false);
    catalog
        .classes
        .insert("ours".to_owned(), class_of(json!(["team-a"])));
    let ours = json!({"rendererClassName": "ours"});
    assert_eq!(refusal(&catalog, ours.clone()), None);
    let unlisted = refusal(&usable(json!({"allowedNamespaces": []})), json!({}));

    catalog
        .namespaces
        .insert("team-a".to_owned(), "another".to_owned());
    assert_eq!(refusal(&catalog, json!({})), unlisted);
    catalog.namespaces.remove("team-a");
    assert_eq!(refusal(&catalog, json!({})), unlisted);

    // The registry grants the namespace again; the class has a record of its own.
    catalog
        .namespaces
        .insert("team-a".to_owned(), "another".to_owned());
    catalog.registries.get_mut("main").unwrap().recorded = catalog.namespaces.clone();
    assert_eq!(refusal(&catalog, json!({})), None);
    let unknown = refusal(&catalog, json!({"rendererClassName": "absent"}));
    assert_eq!(refusal(&catalog, ours.clone()), unknown);
    catalog.classes.get_mut("ours").unwrap().recorded = catalog.namespaces.clone();
    assert_eq!(refusal(&catalog, ours), None);
}

/// Repositories as an attacker would write them around two namespaces whose names are prefixes of each other.
fn repository() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        3 => Just("team-a"), 3 => Just("team-a2"), 2 => Just("team"), 1 => Just(".."), 1 => Just("."), 1 => Just(""),
        1 => Just("Team-A"), 1 => Just("team-a%2f.."), 1 => Just("team-a\\"), 2 => Just("shop"), 1 => Just("team-a_"),
        1 => Just("team-a\u{2215}x"), 1 => Just("a:b"), 1 => Just("a@sha256"), 1 => Just(" team-a"),
    ];
    prop::collection::vec(segment, 1..5).prop_map(|segments| segments.join("/"))
}

proptest! {
    /// Holds: C3.
    #[test]
    fn no_namespace_gets_out_of_its_prefix(
        repository in repository(),
        namespace in prop_oneof![Just("team-a"), Just("team-a2"), Just("team")],
        template in prop_oneof![
            Just("{namespace}/"), Just("{namespace}"), Just("charts/{namespace}/"), Just("{namespace}/x/"),
        ],
    ) {
        let catalog = usable(json!({"allowedNamespaces": ["*"], "repositoryPrefix": template}));
        let spec = spec_with(json!({"repository": repository}));
        let answer = ask_as(&catalog, namespace, TaskKind::RenderTask, spec);
        let prefix = template.replace("{namespace}", namespace);
        let granted: Vec<_> = prefix.trim_end_matches('/').split('/').collect();
        let asked: Vec<_> = repository.split('/').collect();
        let is_inside = asked.starts_with(&granted) && (asked.len() > granted.len() || !prefix.ends_with('/'));
        let is_plain = asked.iter().all(|s| {
            s.starts_with(|c: char| c.is_ascii_lowercase()) && s.ends_with(|c: char| c.is_ascii_alphanumeric())
                && s.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        });
        prop_assert_eq!(answer.is_ok(), is_inside && is_plain, "{} in {}", repository, prefix);
        if let Ok(resolved) = answer {
            prop_assert_eq!(resolved.reference.repository.as_str(), repository);
            prop_assert_eq!(resolved.reference.host.as_str(), "registry.test:5000");
        }
    }

    /// Holds: C3.
    #[test]
    fn two_namespaces_never_share_a_repository(
        repository in repository(), a in "team-[a-c]{1,2}", b in "team-[a-c]{1,2}",
    ) {
        prop_assume!(a != b);
        let catalog = usable(json!({"allowedNamespaces": ["*"]}));
        let may = |namespace: &str| {
            ask_as(&catalog, namespace, TaskKind::RenderTask, spec_with(json!({"repository": repository}))).is_ok()
        };
        prop_assert!(!(may(&a) && may(&b)));
    }
}

/// Repositories around a namespace, as a tenant of another namespace may write them.
#[rustfmt::skip]
fn spelled(n: &str) -> Vec<String> {
    let long = format!("{n}/{}", "x/".repeat(120));
    vec![
        n.to_owned(), format!("{n}/shop"), format!("{n}/deep/shop"), format!("charts/{n}/shop"), format!("{n}/x/shop"),
        format!("{n}-x/shop"), format!("{n}2/shop"), format!("/{n}/shop"), format!("{n}//shop"), format!("./{n}/shop"),
        format!("{n}/../shop"), format!("x/../{n}/shop"), format!("{n}/./shop"), format!("{n}/shop/"),
        format!("{}/shop", n.to_uppercase()), format!("{n}%2fshop"), format!("{n}\\shop"), format!("{n}\u{2215}shop"),
        format!(" {n}/shop"), format!("{n}\n/shop"), format!("{n}:1/shop"), format!("{n}@x/shop"), format!("{long}shop"),
    ]
}

/// Holds: C3.
#[test]
fn of_two_namespaces_at_most_one_may_push_to_a_repository_however_it_is_spelled() {
    let namespaces = [
        "a", "a-b", "ab", "team", "team-a", "team-a2", "team-ab", "x", "charts",
    ];
    for template in [
        "{namespace}/",
        "charts/{namespace}/",
        "{namespace}/x/",
        "{namespace}",
    ] {
        let catalog = usable(json!({"allowedNamespaces": ["*"], "repositoryPrefix": template}));
        let may = |namespace: &str, repository: &str| {
            let spec = spec_with(json!({"repository": repository}));
            ask_as(&catalog, namespace, TaskKind::RenderTask, spec).is_ok()
        };
        let mut own = 0;
        for repository in namespaces.iter().flat_map(|n| spelled(n)) {
            let who: Vec<_> = namespaces.iter().filter(|n| may(n, &repository)).collect();
            assert!(who.len() <= 1, "{repository:?} below {template}: {who:?}");
            own += who.len();
        }
        assert!(
            own >= namespaces.len(),
            "each has one of its own below {template}"
        );
    }
}
