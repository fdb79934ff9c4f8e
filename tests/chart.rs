//! The chart is valid, refuses what it does not know, carries the generated CRDs unchanged, and gives rights no further than
//! its values say. That it works on a node is in `tests/installation.rs`, that the rights are those that are used in
//! `tests/rights.rs`.

#[path = "chart/hooks.rs"]
mod hooks;
#[path = "chart/instances.rs"]
mod instances;
#[path = "chart/network.rs"]
mod network;
#[path = "chart/pull_secrets.rs"]
mod pull_secrets;
#[path = "chart/values.rs"]
mod values;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use renderhub::api::labels::{FINALIZER, TARGET_FINALIZER};
use renderhub::plan::platform::feature_gates::FeatureGates;
use renderhub::plan::platform::identity_method::IdentityMethod;
use renderhub::plan::platform::posture::SecurityPosture;
use renderhub::plan::platform::tenancy::{TenancyPolicy, TenantRegistryHosts};
use renderhub::plan::preflight::PreflightCheck;
use renderhub_harness::Rights;
use renderhub_harness::helm::{self, Helm};
use serde_json::{Value, json};

const HUB: &str = "renderhub-system";
const RENDERING: &str = "renderhub-rendering";

#[tokio::test]
async fn helm_finds_nothing_to_object_to() -> Result<()> {
    let (helm, chart) = (Helm::new()?, chart()?);
    helm.run(&["lint", "--strict", &chart]).await?;
    let args = args_of(&[
        "controller.logLevel=debug",
        "renderer.imagePullSecrets={pull}",
        "image.pullSecrets[0].name=pull",
        "controller.skipPreflight={a,b}",
        "controller.leaseNamespace=hubs",
        "controller.keepFinishedPerNamespace=0",
        "tenancy.defaultServiceAccount=builder",
        "clusters.namespace=kubeconfigs",
        "clusters.orphanGracePeriod=0s",
        "clusters.allowCidrs={192.0.2.0/24,fd00::/8}",
        "clusters.denyCidrs={10.96.0.0/12}",
        "featureGates.ExternalClusterReference=true",
        "featureGates.ExternalClusterReferenceCrossNamespace=false",
    ])
    .await?;
    for arg in [
        "--log-level=debug",
        "--preflight-interval=15m",
        "--renderer-image-pull-secrets=pull",
        "--grace-period=25s",
        "--skip-preflight=a,b",
        "--lease-namespace=hubs",
        "--keep-finished-per-namespace=0",
        "--tenant-identity=token",
        "--default-service-account=builder",
        "--no-cross-namespace-refs=true",
        "--single-tenant=false",
        "--cluster-namespace=kubeconfigs",
        "--cluster-lost-timeout=15m",
        "--orphan-grace-period=0s",
        "--cluster-allow-cidrs=192.0.2.0/24,fd00::/8",
        "--cluster-deny-cidrs=10.96.0.0/12",
        "--feature-gates=ExternalClusterReference=true,ExternalClusterReferenceCrossNamespace=false",
    ] {
        ensure!(args.contains(&json!(arg)), "{arg} is not among {args:?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_default_opens_no_gate_and_no_special_address_and_removes_no_finished_task() -> Result<()> {
    let safe = args_of(&[]).await?;
    ensure!(
        safe.contains(&json!(format!("--cluster-namespace={HUB}"))),
        "{safe:?}"
    );
    for relaxed in [
        "--feature-gates",
        "--cluster-allow-cidrs",
        "--keep-finished-per-namespace",
    ] {
        let is_given = |arg: &Value| arg.as_str().is_some_and(|arg| arg.starts_with(relaxed));
        ensure!(!safe.iter().any(is_given), "{relaxed} is given by default");
    }
    Ok(())
}

/// The kubeconfigs are read where they are and nowhere else, and nothing is written there.
#[tokio::test]
async fn kubeconfigs_are_read_in_one_namespace() -> Result<()> {
    for (set, namespace) in [
        (&[][..], HUB),
        (&["clusters.namespace=kubeconfigs"], "kubeconfigs"),
        (&["controller.watchNamespaces={a}"], HUB),
    ] {
        let rights = Rights::of_chart(set).await?;
        let bound = rights.bound.iter().filter(|b| b.role == "renderhub-clusters");
        let told: Vec<_> = bound.map(|b| (b.namespace.as_deref(), json!(b.rules))).collect();
        let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]}]);
        assert_eq!(told, [(Some(namespace), rules)], "{set:?}");
    }
    let same = Rights::of_chart(&[format!("clusters.namespace={RENDERING}")]).await?;
    assert!(
        same.bound.iter().all(|b| b.role != "renderhub-clusters"),
        "the rights are there"
    );
    Ok(())
}

#[tokio::test]
async fn a_hub_for_some_namespaces_has_rights_on_tasks_there_only() -> Result<()> {
    let set = ["controller.watchNamespaces={a,b}"];
    let objects = template(&set).await?;
    let bound = |kind: &str| {
        let named =
            |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == "renderhub-tasks";
        objects
            .iter()
            .filter(named)
            .map(|object| &object["metadata"]["namespace"])
            .collect::<Vec<_>>()
    };
    assert!(bound("ClusterRoleBinding").is_empty());
    assert_eq!(bound("RoleBinding"), ["a", "b"]);
    let args = args_of(&set).await?;
    assert!(args.contains(&json!("--watch-namespaces=a,b")), "{args:?}");
    let text = serde_json::to_string(
        &Rights::of_objects(&objects)?
            .bound
            .iter()
            .map(|b| &b.rules)
            .collect::<Vec<_>>(),
    )?;
    assert!(
        !text.contains("clusterrendertasks"),
        "the platform's own tasks are in no namespace"
    );
    Ok(())
}

/// Values that change the hub's rights, but for `rbac.clusterAdmin`.
const MODES: &[&[&str]] = &[
    &[],
    &["controller.watchNamespaces={a,b}"],
    &[
        "controller.noCrossNamespaceRefs=false",
        "tenancy.serviceAccounts.a={builder}",
    ],
    &[
        "tenancy.serviceAccounts.a={builder}",
        "tenancy.identity=impersonate",
        "tenancy.defaultServiceAccount=any",
    ],
    &[
        "controller.watchNamespaces={a}",
        "tenancy.defaultServiceAccount=builder",
        "controller.leaseNamespace=hubs",
    ],
    &["clusters.namespace=kubeconfigs"],
    &["pipeline.enabled=true"],
    CATALOGS,
];

/// Two namespaces that are served and two of catalogs, of which one is served too.
const CATALOGS: &[&str] = &[
    "pipeline.enabled=true",
    "controller.noCrossNamespaceRefs=false",
    "controller.watchNamespaces={a,b}",
    "controller.catalogNamespaces={b,c}",
];

#[tokio::test]
async fn a_catalog_is_read_and_nothing_is_written_there() -> Result<()> {
    let objects = template(CATALOGS).await?;
    let bound = Rights::of_objects(&objects)?.bound;
    let of_catalogs = bound.iter().filter(|b| b.role == "renderhub-catalog");
    let told: Vec<_> = of_catalogs
        .map(|b| (b.namespace.as_deref(), json!(b.rules)))
        .collect();
    let kinds = json!(["componentversions", "releases", "profiles", "referencegrants"]);
    let rules = json!([{"apiGroups": ["renderhub.dev"], "resources": kinds, "verbs": ["list", "watch"]}]);
    assert_eq!(
        told,
        [(Some("c"), rules)],
        "where a namespace is served, the hub has more"
    );
    let in_catalog = bound.iter().filter(|b| b.namespace.as_deref() == Some("c"));
    assert_eq!(in_catalog.count(), 1, "nothing else is bound there");
    let args = args_of(CATALOGS).await?;
    assert!(args.contains(&json!("--catalog-namespaces=b,c")), "{args:?}");
    let told = notes(CATALOGS).await?;
    for part in [
        "Catalogs that are read: b, c.",
        "reach what is granted to them there.",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let of_one_team = [CATALOGS, &["rbac.clusterAdmin=true"]].concat();
    let bound = Rights::of_chart(&of_one_team).await?.bound;
    assert!(bound.iter().all(|b| b.role == "cluster-admin"), "{bound:?}");
    Ok(())
}

/// Holds: I1, M1.
#[tokio::test]
async fn no_right_reaches_beyond_its_purpose() -> Result<()> {
    for sets in MODES {
        for bound in Rights::of_chart(sets).await?.bound {
            for rule in &bound.rules {
                let text = serde_json::to_string(rule)?;
                for word in [
                    "*",
                    "escalate",
                    "bind",
                    "pods/exec",
                    "pods/log",
                    "users",
                    "groups",
                ] {
                    assert!(!text.contains(&format!("\"{word}\"")), "{word}: {text}");
                }
                // Impersonation is by name and in one namespace, or it is of any user.
                let is_named = rule.resource_names.iter().flatten().count() > 0;
                let is_becoming = text.contains("\"serviceaccounts");
                let is_a = bound.namespace.as_deref() == Some("a");
                assert!(!is_becoming || is_named && is_a, "{text}");
                // Secrets, pods and Jobs of tenants are none of the hub's business.
                let is_rendering = bound.namespace.as_deref() == Some(RENDERING);
                let readable = ["renderhub-clusters", "renderhub-pull-secrets"];
                let is_of_platform = readable.contains(&bound.role.as_str());
                for resource in ["secrets", "jobs", "pods", "configmaps"] {
                    let is_read = is_of_platform && resource == "secrets";
                    assert!(
                        is_rendering || is_read || !text.contains(&format!("\"{resource}\"")),
                        "{text}"
                    );
                }
            }
        }
    }
    Ok(())
}

/// A release's own rights outlive the tasks of a namespace that is being deleted, whichever release installs what all share.
#[tokio::test]
async fn each_release_that_is_bound_by_namespace_keeps_its_binding_until_the_tasks_are_gone() -> Result<()> {
    let of = async |sets: &[&str]| -> Result<Vec<Value>> {
        let mut objects = template(sets).await?;
        objects.retain(|object| object["metadata"]["name"] == "renderhub-namespace-deletion");
        Ok(objects)
    };
    let objects = of(&["controller.watchNamespaces={a}", "policies.install=false"]).await?;
    let policy = of_kind(&objects, "ValidatingAdmissionPolicy")?;
    let wanted = &policy["spec"]["matchConstraints"]["objectSelector"]["matchLabels"];
    let all = template(&["controller.watchNamespaces={a}"]).await?;
    let bindings = all.iter().filter(|object| object["kind"] == "RoleBinding");
    let selected = |object: &&Value| {
        let labels = &object["metadata"]["labels"];
        let mut wanted = wanted.as_object().into_iter().flatten();
        wanted.all(|(key, value)| labels[key] == *value)
    };
    let kept: Vec<_> = bindings
        .filter(selected)
        .map(|b| &b["metadata"]["namespace"])
        .collect();
    assert_eq!(kept, ["a"], "the one of the tasks, and no other");
    assert!(of(&[]).await?.is_empty() && of(&["rbac.clusterAdmin=true"]).await?.is_empty());
    // It waits for Targets too, where the hub has a finalizer on them.
    for (pipeline, policies) in [("false", 1), ("true", 2)] {
        let enabled = format!("pipeline.enabled={pipeline}");
        let objects = template(&["controller.watchNamespaces={a}", &enabled]).await?;
        let is_one = |object: &&Value| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            object["kind"] == "ValidatingAdmissionPolicy" && name.contains("-namespace-deletion")
        };
        let found: Vec<&Value> = objects.iter().filter(is_one).collect();
        assert_eq!(found.len(), policies);
        let told = serde_json::to_string(&found)?;
        assert_eq!(told.contains(TARGET_FINALIZER), policies == 2);
        assert!(told.contains(&format!("'{FINALIZER}'")));
    }
    Ok(())
}

#[tokio::test]
async fn a_single_tenants_hub_is_bound_to_cluster_admin_and_to_nothing_else() -> Result<()> {
    let set = ["rbac.clusterAdmin=true", "tenancy.serviceAccounts.a={builder}"];
    let objects = template(&set).await?;
    let rights = Rights::of_objects(&objects)?;
    let bound: Vec<_> = rights
        .bound
        .iter()
        .map(|b| (b.role.as_str(), &b.namespace))
        .collect();
    assert_eq!(bound, [("cluster-admin", &None)]);
    assert!(args_of(&set).await?.contains(&json!("--single-tenant=true")));
    Ok(())
}

#[tokio::test]
async fn tenants_get_what_is_theirs_and_neither_status_nor_finalizers() -> Result<()> {
    let edit = json!(["create", "update", "patch", "delete", "deletecollection"]);
    let view = json!(["get", "list", "watch"]);
    let of_tasks = json!(["rendertasks", "registries", "referencegrants"]);
    let of_pipeline = [
        "targets",
        "releases",
        "releasebindings",
        "profiles",
        "registrybindings",
        "components",
        "componentversions",
    ];
    // Versions of a Target are the hub's to write, and each tenant's to read.
    let read = [&of_pipeline[..], &["hydratedtargets"]].concat();
    let (of_pipeline, read) = (json!(of_pipeline), json!(read));
    let rules = |resources: &[&Value], verbs: &Value| {
        let rule = |resources: &&Value| json!({ "apiGroups": ["renderhub.dev"], "resources": resources, "verbs": verbs });
        Some(Value::Array(resources.iter().map(rule).collect()))
    };
    for (sets, edited, viewed) in [
        (&[][..], &[&of_tasks][..], &[&of_tasks][..]),
        (
            &["pipeline.enabled=true"],
            &[&of_tasks, &of_pipeline],
            &[&of_tasks, &read],
        ),
    ] {
        let objects = template(sets).await?;
        let found = |name: &str| {
            let is_role = |o: &&Value| o["kind"] == "ClusterRole" && o["metadata"]["name"] == name;
            objects.iter().find(is_role).map(|role| role["rules"].clone())
        };
        assert_eq!(found("renderhub-edit"), rules(edited, &edit), "{sets:?}");
        assert_eq!(found("renderhub-view"), rules(viewed, &view), "{sets:?}");
    }
    Ok(())
}

#[tokio::test]
async fn tenants_read_each_kind_that_is_in_their_namespaces() -> Result<()> {
    let objects = template(&["pipeline.enabled=true"]).await?;
    let role = objects.iter().find(|o| o["metadata"]["name"] == "renderhub-view");
    let rules = role.and_then(|role| role["rules"].as_array());
    let resources = rules
        .into_iter()
        .flatten()
        .filter_map(|rule| rule["resources"].as_array());
    let readable: BTreeSet<_> = resources.flatten().filter_map(Value::as_str).collect();
    let crds = renderhub::api::custom_resource_definitions();
    let namespaced = crds.iter().filter(|crd| crd.spec.scope == "Namespaced");
    assert_eq!(
        readable,
        namespaced.map(|crd| crd.spec.names.plural.as_str()).collect()
    );
    Ok(())
}

#[tokio::test]
async fn the_account_of_renderers_has_no_rights_and_no_token() -> Result<()> {
    let objects = template(&[]).await?;
    let renderer = |object: &&Value| object["subjects"].to_string().contains("renderhub-renderer");
    assert_eq!(
        objects.iter().filter(renderer).count(),
        0,
        "the renderer's ServiceAccount is bound to nothing"
    );
    let account = objects
        .iter()
        .find(|o| o["kind"] == "ServiceAccount" && o["metadata"]["namespace"] == RENDERING);
    assert_eq!(
        account.context("no account for renderers")?["automountServiceAccountToken"],
        false
    );
    Ok(())
}

/// Holds: R2.
#[tokio::test]
async fn the_rendering_namespace_enforces_a_pinned_pod_security() -> Result<()> {
    let objects = template(&[]).await?;
    let labels = &of_kind(&objects, "Namespace")?["metadata"]["labels"];
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");
    let version = labels["pod-security.kubernetes.io/enforce-version"].as_str();
    ensure!(version.is_some_and(|v| v.starts_with("v1.")), "{version:?}");
    Ok(())
}

/// Every relaxed value shows where people look after an installation, and none shows without one.
///
/// Holds: M6.
#[tokio::test]
async fn the_notes_say_what_was_relaxed() -> Result<()> {
    let safe = notes(&[]).await?;
    assert!(safe.contains("Mode: multi-tenant; namespaces: all."), "{safe}");
    assert!(!safe.contains("Relaxed"), "{safe}");
    assert!(
        !safe.contains("has changed"),
        "nothing has for who installs: {safe}"
    );
    for set in [
        "controller.noCrossNamespaceRefs=false",
        "tenancy.identity=impersonate",
        "policies.install=false",
        "networkPolicy.enabled=false",
        "quota.enabled=false",
        "limitRange.enabled=false",
        "renderingNamespace.create=false",
        "tests.networkPolicy=false",
    ] {
        let told = notes(&[set]).await?;
        assert!(told.contains(&format!("- {set}: ")), "{set}: {told}");
    }
    let told = notes(&[
        "rbac.clusterAdmin=true",
        "controller.skipPreflight={pod-security}",
        "controller.watchNamespaces={a,b}",
        "clusters.allowCidrs={192.0.2.0/24}",
        "featureGates.ExternalClusterReference=true",
        "featureGates.ExternalClusterReferenceCrossNamespace=false",
    ])
    .await?;
    assert!(told.contains("Mode: single-tenant; namespaces: a, b."), "{told}");
    for part in [
        "- rbac.clusterAdmin: ",
        "from starting: pod-security.",
        "otherwise: 192.0.2.0/24.",
        "- featureGates.ExternalClusterReference: ",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("CrossNamespace"), "a closed gate relaxes nothing");
    Ok(())
}

#[tokio::test]
async fn the_notes_tell_the_gates_apart() -> Result<()> {
    let own = notes(&["featureGates.ExternalClusterReference=true"]).await?;
    assert!(own.contains("a kubeconfig of their own namespace"), "{own}");
    let crossing = notes(&["featureGates.ExternalClusterReferenceCrossNamespace=true"]).await?;
    assert!(
        crossing.contains("a kubeconfig of another namespace too"),
        "{crossing}"
    );
    Ok(())
}

/// The name of a setting in the hub's log, the value that sets it, and the beginning of the notes about it.
const NOTED: &[(&str, &str, &str)] = &[
    ("single-tenant", "rbac.clusterAdmin=true", "rbac.clusterAdmin"),
    (
        "cross-namespace-refs",
        "controller.noCrossNamespaceRefs=false",
        "controller.noCrossNamespaceRefs=false",
    ),
    (
        "default-service-account",
        "tenancy.defaultServiceAccount=builder",
        "tenancy.defaultServiceAccount=builder",
    ),
    (
        "own-registry-hosts",
        "tenancy.ownRegistries.hosts={*.example.com}",
        "tenancy.ownRegistries.hosts",
    ),
    (
        "tenant-identity-impersonate",
        "tenancy.identity=impersonate",
        "tenancy.identity=impersonate",
    ),
    (
        "cluster-allow-cidrs",
        "clusters.allowCidrs={192.0.2.0/24}",
        "clusters.allowCidrs",
    ),
    (
        "metrics-by-namespace",
        "metrics.byNamespace=true",
        "metrics.byNamespace=true",
    ),
    (
        "feature-gate-external-cluster-reference",
        "featureGates.ExternalClusterReference=true",
        "featureGates.ExternalClusterReference",
    ),
    (
        "feature-gate-external-cluster-reference-cross-namespace",
        "featureGates.ExternalClusterReferenceCrossNamespace=true",
        "featureGates.ExternalClusterReferenceCrossNamespace",
    ),
    (
        "skip-preflight",
        "controller.skipPreflight={pod-security}",
        "controller.skipPreflight",
    ),
];

/// Every name that the hub's log can have, with all checks that can be skipped as one.
fn every_relaxed_setting() -> Result<BTreeSet<&'static str>> {
    let posture = |is_single_tenant| -> Result<SecurityPosture> {
        Ok(SecurityPosture {
            tenancy: TenancyPolicy {
                default_service_account: Some("builder".to_owned()),
                crosses_namespaces: true,
                is_single_tenant,
                own_hosts: TenantRegistryHosts::any(),
            },
            identity_method: IdentityMethod::Impersonate,
            skipped: PreflightCheck::ALL
                .into_iter()
                .filter(|check| check.can_be_skipped())
                .collect(),
            gates: FeatureGates::parse(["ExternalClusterReferenceCrossNamespace=true"])?,
            allows_refused_addresses: true,
            names_namespaces: true,
        })
    };
    let names = [posture(false)?.relaxed(), posture(true)?.relaxed()].concat();
    let short = |name: &'static str| {
        if name.starts_with("skip-preflight-") {
            "skip-preflight"
        } else {
            name
        }
    };
    Ok(names.into_iter().map(short).collect())
}

/// Holds: M6.
#[tokio::test]
async fn the_notes_name_whatever_the_hubs_log_calls_relaxed() -> Result<()> {
    let noted: BTreeSet<_> = NOTED.iter().map(|(setting, ..)| *setting).collect();
    assert_eq!(noted, every_relaxed_setting()?);
    for (setting, set, name) in NOTED {
        let said = notes(&["controller.watchNamespaces={a}", set]).await?;
        let relaxed: Vec<_> = said.lines().filter(|line| line.starts_with("- ")).collect();
        ensure!(relaxed.len() == 1, "{setting}: {relaxed:?}");
        ensure!(
            relaxed[0].starts_with(&format!("- {name}: ")),
            "{setting}: {relaxed:?}"
        );
    }
    Ok(())
}

/// Values, and what helm says of them; each line is one refusal.
const REFUSED: &[(&[&str], &str)] = &[
    (&["controler.shardName=x"], "controler"),
    (&["controller.maxActiveJobs=0"], "maxActiveJobs"),
    (&["replicaCount=0"], "replicaCount"),
    (
        &["controller.keepFinishedPerNamespace=-1"],
        "keepFinishedPerNamespace",
    ),
    (&["controller.maxFailedJobTTL=1d"], "maxFailedJobTTL"),
    (&["controller.keepFailedJobs=-1"], "keepFailedJobs"),
    // What an earlier chart did not have is missing from its values.
    (&["tenancy.ownRegistries=null"], "--reset-then-reuse-values"),
    // Failed Jobs that are kept may not use up the quota.
    (
        &["controller.keepFailedJobs=19489"],
        "must fit into quota.objects",
    ),
    // What it divided is not divided any more.
    (
        &["replicaCount=3", "controller.shardCount=3"],
        "controller.shardCount is 3, and instances of one release do not divide the namespaces any more",
    ),
    (&["controller.shardCount=many"], "shardCount"),
    (&["topologySpreadConstraints[0].topologyKey=zone"], "maxSkew"),
    // The quota is all hubs', so it is no less than this one's share.
    (&["quota.activeJobs=255"], "the sum over all hubs"),
    // Next to another release's hub: all namespaces overlap with every list, and one name is one hub's.
    (
        &["renderingNamespace.shared=true", "controller.shardName=b"],
        "needs controller.watchNamespaces",
    ),
    (
        &["renderingNamespace.shared=true", "controller.watchNamespaces={b}"],
        "other than main",
    ),
    (&["renderer.image.pullPolicy=Sometimes"], "pullPolicy"),
    (&["tenancy.identity=admin"], "identity"),
    (&["renderingNamespace.name=renderhub-system"], "must differ"),
    (&["renderingNamespace.name=kube-system"], "a namespace of its own"),
    (
        &["controller.watchNamespaces={renderhub-rendering}"],
        "must not contain",
    ),
    // Catalogs of which nothing could be used, or whose authors could read the platform's credentials.
    (
        &[
            "controller.catalogNamespaces={c}",
            "pipeline.enabled=true",
            "controller.noCrossNamespaceRefs=false",
        ],
        "needs controller.watchNamespaces",
    ),
    (
        &[
            "controller.catalogNamespaces={c}",
            "controller.watchNamespaces={a}",
            "controller.noCrossNamespaceRefs=false",
        ],
        "needs pipeline.enabled=true",
    ),
    (
        &[
            "controller.catalogNamespaces={c}",
            "controller.watchNamespaces={a}",
            "pipeline.enabled=true",
        ],
        "needs controller.noCrossNamespaceRefs=false",
    ),
    (
        &[
            "controller.catalogNamespaces={renderhub-rendering}",
            "controller.watchNamespaces={a}",
            "pipeline.enabled=true",
            "controller.noCrossNamespaceRefs=false",
        ],
        "must not contain the rendering namespace",
    ),
    (&["controller.catalogNamespaces={*}"], "catalogNamespaces"),
    // The author of a task in one of these would act as the platform.
    (
        &["tenancy.serviceAccounts.kube-system={x}"],
        "act as the platform",
    ),
    (
        &["tenancy.serviceAccounts.renderhub-rendering={x}"],
        "act as the platform",
    ),
    (
        &["tenancy.serviceAccounts.renderhub-system={x}"],
        "act as the platform",
    ),
    (
        &[
            "controller.watchNamespaces={kube-system}",
            "tenancy.defaultServiceAccount=x",
        ],
        "act as the platform",
    ),
    (
        &["controller.watchNamespaces={a}", "tenancy.serviceAccounts.b={x}"],
        "never use that right",
    ),
    // A reader of Secrets there has the clusters.
    (
        &["controller.watchNamespaces={a}", "clusters.namespace=a"],
        "no namespace of tenants",
    ),
    (
        &["tenancy.serviceAccounts.a={x}", "clusters.namespace=a"],
        "no namespace of tenants",
    ),
    (
        &["clusters.namespace=kube-system"],
        "a namespace of the platform's own",
    ),
    (&["clusters.lostTimeout=forever"], "lostTimeout"),
    (&["clusters.denyCidrs={10.0.0.0}"], "denyCidrs"),
    (&["featureGates.Everything=true"], "Everything"),
    (&["networkPolicy.blockedCIDRs={10.0.0.0}"], "blockedCIDRs"),
    (
        &[
            "networkPolicy.blockedCIDRs={10.0.0.0/8}",
            "networkPolicy.registries.to[0].ipBlock.cidr=10.1.0.0/16",
        ],
        "give one of them",
    ),
    (
        &[
            "metrics.serviceMonitor.enabled=true",
            "metrics.service.enabled=false",
        ],
        "needs metrics.service",
    ),
];

#[tokio::test]
async fn values_that_cannot_be_meant_are_refused() -> Result<()> {
    for (sets, said) in REFUSED {
        let refused = template(sets)
            .await
            .err()
            .with_context(|| format!("{sets:?} is accepted"))?;
        ensure!(format!("{refused:#}").contains(said), "{sets:?}: {refused:#}");
    }
    Ok(())
}

/// A Role with an empty list of names would give every `ServiceAccount` of the namespace.
///
/// Holds: I1.
#[tokio::test]
async fn a_list_of_no_service_accounts_is_refused_with_and_without_the_schema() -> Result<()> {
    let chart = chart()?;
    let words = [
        "template",
        "renderhub",
        &chart,
        "--set-json",
        r#"tenancy.serviceAccounts={"a":[]}"#,
    ];
    for (more, said) in [
        (&[][..], "minItems"),
        (&["--skip-schema-validation"], "would give them all"),
    ] {
        let refused = Helm::new()?.run(&[&words[..], more].concat()).await.err();
        let refused = refused.context("an empty list is accepted")?;
        ensure!(format!("{refused:#}").contains(said), "{refused:#}");
    }
    Ok(())
}

#[tokio::test]
async fn the_generated_crds_come_through_unchanged_and_outlive_the_release() -> Result<()> {
    let objects = yaml(&Helm::new()?.run(&["template", "renderhub", &chart()?]).await?)?;
    let files = helm::renderhub_chart().join("files/crds");
    let mut compared = 0;
    for file in std::fs::read_dir(files)? {
        let generated = yaml(&std::fs::read_to_string(file?.path())?)?.remove(0);
        let name = &generated["metadata"]["name"];
        let rendered = objects
            .iter()
            .find(|o| o["kind"] == generated["kind"] && &o["metadata"]["name"] == name);
        let rendered = rendered.with_context(|| format!("{name} is not in the chart"))?;
        assert_eq!(
            with_plain_numbers(&rendered["spec"]),
            with_plain_numbers(&generated["spec"]),
            "{name}"
        );
        assert_eq!(
            rendered["metadata"]["annotations"]["helm.sh/resource-policy"], "keep",
            "{name}"
        );
        compared += 1;
    }
    let kinds = renderhub::api::custom_resource_definitions().len();
    assert_eq!(compared, kinds, "one for each kind");
    Ok(())
}

/// The same with each number as helm may write it: 0 for 0.0.
fn with_plain_numbers(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.iter().map(with_plain_numbers).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), with_plain_numbers(value)))
            .collect(),
        other => other.clone(),
    }
}

/// What the chart makes beside its CRDs.
async fn template(sets: &[&str]) -> Result<Vec<Value>> {
    let sets = [&["crds.install=false"], sets].concat();
    helm::template(&Helm::new()?, HUB, &sets).await
}

/// What helm would say after an installation.
async fn notes(sets: &[&str]) -> Result<String> {
    let chart = chart()?;
    let words = [
        "install",
        "renderhub",
        &chart,
        "--namespace",
        HUB,
        "--dry-run=client",
    ];
    let sets: Vec<&str> = ["crds.install=false"]
        .iter()
        .chain(sets)
        .flat_map(|set| ["--set", set])
        .collect();
    let said = Helm::new()?.run(&[&words[..], &sets].concat()).await?;
    let (_, notes) = said
        .split_once("\nNOTES:\n")
        .context("helm says nothing of notes")?;
    Ok(notes.to_owned())
}

#[tokio::test]
async fn hubs_of_tests_have_the_environment_that_the_chart_sets() -> Result<()> {
    let objects = template(&[]).await?;
    let hub = of_kind(&objects, "Deployment")?;
    let env = hub["spec"]["template"]["spec"]["containers"][0]["env"].as_array();
    let set = env.context("no environment")?.iter().filter_map(|variable| {
        let (name, value) = (variable["name"].as_str()?, variable["value"].as_str()?);
        Some((name, value))
    });
    assert_eq!(set.collect::<Vec<_>>(), renderhub_harness::hub::AS_INSTALLED);
    Ok(())
}

async fn args_of(sets: &[&str]) -> Result<Vec<Value>> {
    let objects = template(sets).await?;
    let hub = of_kind(&objects, "Deployment")?;
    let args = hub["spec"]["template"]["spec"]["containers"][0]["args"].as_array();
    Ok(args.context("no arguments")?.clone())
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Result<&'a Value> {
    objects
        .iter()
        .find(|object| object["kind"] == kind)
        .with_context(|| format!("the chart makes no {kind}"))
}

fn yaml(text: &str) -> Result<Vec<Value>> {
    helm::documents(text)
}

fn chart() -> Result<String> {
    let chart: &Path = &helm::renderhub_chart();
    Ok(chart
        .to_str()
        .context("the path of the chart is no text")?
        .to_owned())
}
