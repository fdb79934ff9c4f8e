//! The program that copies the pull Secrets of OLM's catalogs: nothing of it is there unless it is asked for, its rights are in the
//! namespaces that a value lists, and it and the hub do not take each other's pods for their own.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use renderhub_harness::Rights;
use renderhub_harness::helm::Helm;
use serde_json::{Value, json};

use super::{HUB, args_of, chart, notes, of_kind, template};

/// Two namespaces of operators and two of catalogs, of which one is both.
pub const ON: &[&str] = &[
    "pullSecrets.olm.enabled=true",
    "pullSecrets.olm.namespaces={a,b}",
    "pullSecrets.olm.catalogNamespaces={olm,a}",
];

/// Kind, namespace and name of everything that is made for it.
const MADE: &str = "
Deployment     renderhub-system renderhub-pull-secrets
NetworkPolicy  renderhub-system renderhub-pull-secrets
Role           a                renderhub-pull-secrets-catalogs
Role           a                renderhub-pull-secrets-copies
Role           b                renderhub-pull-secrets-copies
Role           olm              renderhub-pull-secrets-catalogs
Role           renderhub-system renderhub-pull-secrets-record
RoleBinding    a                renderhub-pull-secrets-catalogs
RoleBinding    a                renderhub-pull-secrets-copies
RoleBinding    b                renderhub-pull-secrets-copies
RoleBinding    olm              renderhub-pull-secrets-catalogs
RoleBinding    renderhub-system renderhub-pull-secrets-record
ServiceAccount renderhub-system renderhub-pull-secrets
";

/// What its roles hold: role, group of the API, resource, names if there are any, verbs.
const RIGHTS: &str = "
renderhub-pull-secrets-copies    -                     namespaces              {namespace}             get
renderhub-pull-secrets-copies    operators.coreos.com  subscriptions           -                       list,watch
renderhub-pull-secrets-copies    operators.coreos.com  clusterserviceversions  -                       list,watch
renderhub-pull-secrets-copies    -                     serviceaccounts         -                       list,watch,patch
renderhub-pull-secrets-copies    -                     secrets                 -                       get,list,watch,create,patch,delete
renderhub-pull-secrets-copies    -                     pods                    -                       list
renderhub-pull-secrets-copies    -                     pods/eviction           -                       create
renderhub-pull-secrets-copies    apps                  replicasets             -                       get
renderhub-pull-secrets-copies    events.k8s.io         events                  -                       create
renderhub-pull-secrets-catalogs  operators.coreos.com  catalogsources          -                       list,watch
renderhub-pull-secrets-catalogs  -                     secrets                 -                       get,list,watch
renderhub-pull-secrets-catalogs  events.k8s.io         events                  -                       create
renderhub-pull-secrets-record    -                     configmaps              -                       create
renderhub-pull-secrets-record    -                     configmaps              renderhub-pull-secrets  get,patch
";

fn is_own(object: &Value) -> bool {
    object["metadata"]["labels"]["app.kubernetes.io/component"] == "pull-secrets"
}

/// What is made for it, and everything else.
async fn split(sets: &[&str]) -> Result<(Vec<Value>, Vec<Value>)> {
    Ok(template(sets).await?.into_iter().partition(is_own))
}

/// The words of each line.
fn table(text: &str) -> Vec<Vec<String>> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    text.trim().lines().map(words).collect()
}

#[tokio::test]
async fn nothing_of_it_is_there_unless_it_is_enabled() -> Result<()> {
    let without = template(&[]).await?;
    assert!(!without.iter().any(is_own));
    // Lists alone give no right, and values of before have none of it.
    for sets in [&ON[1..], &["pullSecrets=null"], &["pullSecrets.olm=null"]] {
        assert_eq!(template(sets).await?, without, "{sets:?}");
    }
    Ok(())
}

#[tokio::test]
async fn what_is_made_for_it_is_in_the_listed_namespaces_and_changes_nothing_of_the_hub() -> Result<()> {
    let (own, others) = split(ON).await?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let told = own.iter().map(|object| {
        let meta = &object["metadata"];
        vec![
            text(&object["kind"]),
            text(&meta["namespace"]),
            text(&meta["name"]),
        ]
    });
    let wanted: BTreeSet<_> = table(MADE).into_iter().collect();
    assert_eq!(told.collect::<BTreeSet<_>>(), wanted);
    assert_eq!(own.len(), table(MADE).len(), "an object is made twice");
    assert_eq!(others, template(&[]).await?);
    // Without a policy for the hub there is none for this one.
    let (own, _) = split(&[ON, &["networkPolicy.hub=false"]].concat()).await?;
    assert!(of_kind(&own, "NetworkPolicy").is_err());
    Ok(())
}

/// Right by right, as `RIGHTS` has them.
fn told(role: &str, namespace: &str, rules: &[impl serde::Serialize]) -> Result<Vec<Vec<String>>> {
    let list = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut all = Vec::new();
    for right in rules {
        let right = serde_json::to_value(right)?;
        let names = list(&right["resourceNames"]).join(",");
        let names = if names == namespace { "{namespace}" } else { &names };
        let or_dash = |text: &str| if text.is_empty() { "-" } else { text }.to_owned();
        for group in list(&right["apiGroups"]) {
            for resource in list(&right["resources"]) {
                let (group, names) = (or_dash(&group), or_dash(names));
                all.push(vec![
                    role.to_owned(),
                    group,
                    resource,
                    names,
                    list(&right["verbs"]).join(","),
                ]);
            }
        }
    }
    Ok(all)
}

/// Whatever the hub may do, this one has its Roles, and the hub none of them.
#[tokio::test]
async fn its_rights_are_those_of_the_table_by_namespace_and_none_in_the_whole_cluster() -> Result<()> {
    for more in [
        &[][..],
        &["rbac.clusterAdmin=true"],
        &["controller.watchNamespaces={a}"],
    ] {
        let (own, others) = split(&[ON, more].concat()).await?;
        // The roles that it is bound to are all among its own objects.
        let rights = Rights::of_objects(&own)?;
        for bound in &rights.bound {
            ensure!(!bound.is_cluster_role, "{bound:?}");
            let namespace = bound.namespace.as_deref().context("the whole cluster")?;
            let wanted = table(RIGHTS).into_iter().filter(|line| line[0] == bound.role);
            let found = told(&bound.role, namespace, &bound.rules)?;
            assert_eq!(found, wanted.collect::<Vec<_>>(), "{more:?}: {namespace}");
        }
        let bindings = table(MADE).iter().filter(|line| line[0] == "RoleBinding").count();
        assert_eq!(rights.bound.len(), bindings, "{more:?}");
        let is_told = |object: &Value| {
            object["subjects"]
                .to_string()
                .contains("\"renderhub-pull-secrets\"")
        };
        assert!(!others.iter().any(is_told), "{more:?}: it is bound elsewhere");
        assert_eq!(
            Rights::of_objects(&others)?,
            Rights::of_chart(more).await?,
            "the hub's are as before"
        );
    }
    Ok(())
}

/// Every selector of pods in an object, however deep, with the labels that it wants.
fn selectors<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Array(items) => {
            for item in items {
                selectors(item, found);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                if ["selector", "podSelector", "labelSelector"].contains(&name.as_str()) {
                    found.push(field.get("matchLabels").unwrap_or(field));
                }
                selectors(field, found);
            }
        }
        _ => {}
    }
}

/// Selectors of these objects of the release's namespace that want labels of the pod.
fn selecting<'a>(objects: &'a [Value], pod: &Value) -> Vec<&'a Value> {
    let here = objects.iter().filter(|o| o["metadata"]["namespace"] == HUB);
    let mut all = Vec::new();
    for object in here {
        selectors(object, &mut all);
    }
    let labels = &pod["spec"]["template"]["metadata"]["labels"];
    let selects = |wanted: &&Value| {
        let mut wanted = wanted.as_object().into_iter().flatten();
        wanted.all(|(key, value)| labels[key] == *value)
    };
    all.into_iter().filter(selects).collect()
}

#[tokio::test]
async fn no_selector_of_the_hub_selects_its_pod_and_none_of_its_own_the_hubs() -> Result<()> {
    let more = [
        "replicaCount=2",
        "podLabels.team=platform",
        "clusters.egress.enabled=true",
        "metrics.serviceMonitor.enabled=true",
        "controller.watchNamespaces={a}",
    ];
    let (own, others) = split(&[ON, &more].concat()).await?;
    let (program, hub) = (of_kind(&own, "Deployment")?, of_kind(&others, "Deployment")?);
    let none: Vec<&Value> = Vec::new();
    assert_eq!(selecting(&others, program), none);
    assert_eq!(selecting(&own, hub), none);
    // Its Deployment and its policy; the hub's have a Service, a budget, a monitor and a spread besides.
    assert_eq!(selecting(&own, program).len(), 2);
    assert_eq!(selecting(&others, hub).len(), 6);
    // The binding of tasks is kept in a namespace that is being deleted, and none of these is.
    let is_kept = |object: &&Value| object["metadata"]["name"] == "renderhub-namespace-deletion";
    let policy = others.iter().find(is_kept).context("no policy")?;
    let wanted = &policy["spec"]["matchConstraints"]["objectSelector"]["matchLabels"];
    assert_eq!(wanted["app.kubernetes.io/component"], "tasks");
    Ok(())
}

#[tokio::test]
async fn it_is_given_its_flags() -> Result<()> {
    let more = [
        "pullSecrets.olm.maxDestinations=7",
        "controller.logLevel=debug",
        "controller.logFormat=plain",
    ];
    let (own, _) = split(&[ON, &more].concat()).await?;
    let args = &of_kind(&own, "Deployment")?["spec"]["template"]["spec"]["containers"][0]["args"];
    let expected = json!([
        "pull-secrets",
        "--namespaces=a,b",
        "--catalog-namespaces=olm,a",
        "--record-namespace=renderhub-system",
        "--max-destinations=7",
        "--log-format=plain",
        "--log-level=debug",
        "--admin-address=0.0.0.0:8080",
    ]);
    assert_eq!(*args, expected);
    let of_hub = args_of(ON).await?;
    assert_eq!(of_hub, args_of(&[]).await?, "the hub is told nothing of it");
    Ok(())
}

/// Values by which the hub's pod is placed and described.
const PLACED: &[&str] = &[
    "image.digest=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "image.pullPolicy=Always",
    "image.pullSecrets[0].name=pull",
    "podLabels.team=platform",
    "podAnnotations.note=kept",
    "nodeSelector.pool=platform",
    "tolerations[0].key=platform",
    "affinity.nodeAffinity.x=y",
    "affinity.podAntiAffinity.x=y",
    "priorityClassName=system-cluster-critical",
];

/// Each of the fields is there, and the same.
fn ensure_same(fields: &[&str], own: &Value, of_hub: &Value) -> Result<()> {
    for field in fields {
        ensure!(!own[field].is_null(), "{field} is not set");
        ensure!(own[field] == of_hub[field], "{field}: {}", own[field]);
    }
    Ok(())
}

#[tokio::test]
async fn its_pod_is_placed_and_described_as_the_hubs_but_for_what_is_about_the_hub() -> Result<()> {
    let (own, others) = split(&[ON, PLACED].concat()).await?;
    let (program, hub) = (of_kind(&own, "Deployment")?, of_kind(&others, "Deployment")?);
    assert_eq!(program["spec"]["replicas"], 1);
    assert_eq!(program["spec"]["strategy"], json!({"type": "Recreate"}));
    let (program, hub) = (&program["spec"]["template"], &hub["spec"]["template"]);
    assert_eq!(program["metadata"]["labels"]["team"], "platform");
    assert_eq!(program["metadata"]["annotations"]["note"], "kept");
    let same = [
        "securityContext",
        "imagePullSecrets",
        "enableServiceLinks",
        "nodeSelector",
        "tolerations",
        "priorityClassName",
    ];
    ensure_same(&same, &program["spec"], &hub["spec"])?;
    // What keeps instances of the hub apart would keep this one from their nodes.
    assert_eq!(program["spec"]["affinity"], json!({"nodeAffinity": {"x": "y"}}));
    assert_eq!(program["spec"]["serviceAccountName"], "renderhub-pull-secrets");
    // A hub without any affinity gives this pod none.
    split(&[ON, &["affinity=null"]].concat()).await?;
    Ok(())
}

#[tokio::test]
async fn its_container_is_as_closed_as_the_hubs_and_has_the_memory_of_a_small_program() -> Result<()> {
    let (own, others) = split(&[ON, PLACED].concat()).await?;
    let container = |objects: &[Value]| -> Result<Value> {
        Ok(of_kind(objects, "Deployment")?["spec"]["template"]["spec"]["containers"][0].clone())
    };
    let (own, hub) = (container(&own)?, container(&others)?);
    let same = [
        "image",
        "imagePullPolicy",
        "ports",
        "livenessProbe",
        "readinessProbe",
        "securityContext",
    ];
    ensure_same(&same, &own, &hub)?;
    assert_eq!(own["resources"]["limits"], json!({"memory": "64Mi"}));
    // The environment by which the hub stays within its memory, without the name of an instance: there are none.
    let env = hub["env"].as_array().context("no environment")?;
    let memory = env.iter().filter(|v| v["name"] != "RENDERHUB_INSTANCE_NAME");
    assert_eq!(own["env"], json!(memory.collect::<Vec<_>>()));
    Ok(())
}

/// Lists of namespaces of operators and of catalogs, and what helm says of them.
const REFUSED: &[(&str, &str, &str)] = &[
    ("[]", r#"["olm"]"#, "needs pullSecrets.olm.namespaces: rights to"),
    (
        r#"["a"]"#,
        "[]",
        "needs pullSecrets.olm.catalogNamespaces: rights to",
    ),
    (
        r#"["a","renderhub-rendering"]"#,
        r#"["olm"]"#,
        "pullSecrets.olm.namespaces must not contain the rendering namespace",
    ),
    (
        r#"["a"]"#,
        r#"["renderhub-rendering"]"#,
        "pullSecrets.olm.catalogNamespaces must not contain the rendering namespace",
    ),
    (
        r#"["a","b","a"]"#,
        r#"["olm"]"#,
        "pullSecrets.olm.namespaces names a twice",
    ),
    (
        r#"["a"]"#,
        r#"["olm","olm"]"#,
        "pullSecrets.olm.catalogNamespaces names olm twice",
    ),
    // What is no name of a namespace is the schema's to refuse.
    (r#"["*"]"#, r#"["olm"]"#, "/pullSecrets/olm/namespaces/0"),
    (r#"["a"]"#, r#"["*"]"#, "/pullSecrets/olm/catalogNamespaces/0"),
];

#[tokio::test]
async fn lists_that_cannot_be_meant_are_refused_and_only_where_it_is_enabled() -> Result<()> {
    let (helm, chart) = (Helm::new()?, chart()?);
    for (namespaces, catalogs, said) in REFUSED {
        let run = async |enabled: bool| {
            let set = format!(
                r#"pullSecrets.olm={{"enabled":{enabled},"namespaces":{namespaces},"catalogNamespaces":{catalogs}}}"#
            );
            helm.run(&[
                "template",
                "renderhub",
                &chart,
                "--namespace",
                HUB,
                "--set-json",
                &set,
            ])
            .await
        };
        let refused = run(true)
            .await
            .err()
            .with_context(|| format!("{namespaces} and {catalogs} are accepted"))?;
        ensure!(format!("{refused:#}").contains(said), "{refused:#}");
        if !said.starts_with('/') {
            run(false).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn values_that_it_does_not_have_are_refused_and_so_are_namespaces_of_the_platforms_secrets()
-> Result<()> {
    for (set, said) in [
        ("pullSecrets.olm.maxDestinations=0", "maxDestinations"),
        ("pullSecrets.olm.replicas=2", "replicas"),
        ("pullSecrets.other.enabled=true", "other"),
        ("renderingNamespace.name=olm", "must not contain"),
        (
            "clusters.namespace=olm",
            "must not contain olm, where kubeconfigs",
        ),
        (
            "renderer.pullSecretNamespace=olm",
            "must not contain olm, where kubeconfigs",
        ),
    ] {
        let refused = template(&[ON, &[set]].concat()).await.err();
        let refused = refused.with_context(|| format!("{set} is accepted"))?;
        ensure!(format!("{refused:#}").contains(said), "{set}: {refused:#}");
    }
    Ok(())
}

#[tokio::test]
async fn the_notes_say_who_reads_the_copies() -> Result<()> {
    let told = notes(ON).await?;
    let line = "- pullSecrets.olm.enabled: who reads Secrets in a, b reads copies of the pull Secrets of catalogs in olm, a, and the program \
                that makes them may read every Secret of all these namespaces.";
    ensure!(told.contains(line), "{told}");
    ensure!(!notes(&ON[1..]).await?.contains("pullSecrets"));
    Ok(())
}

/// Names of namespaces that YAML reads as numbers unless they are quoted.
#[tokio::test]
async fn a_namespace_whose_name_looks_like_a_number_stays_a_name() -> Result<()> {
    let sets = [
        ON,
        &[
            "pullSecrets.olm.namespaces[0]=1e3",
            "controller.watchNamespaces[0]=2e3",
        ],
    ]
    .concat();
    let objects = template(&sets).await?;
    let mut namespaces = Vec::new();
    for object in &objects {
        let namespace = &object["metadata"]["namespace"];
        assert!(namespace.is_null() || namespace.is_string(), "{object}");
        namespaces.extend(namespace.as_str());
        let rules = object["rules"].as_array().into_iter().flatten();
        let names = rules
            .filter_map(|rule| rule["resourceNames"].as_array())
            .flatten();
        assert!(names.clone().all(Value::is_string), "{object}");
    }
    assert!(
        namespaces.contains(&"1e3") && namespaces.contains(&"2e3"),
        "{namespaces:?}"
    );
    Ok(())
}
