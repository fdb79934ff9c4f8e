//! Several instances of one release, and several releases on one cluster: an update hands over, a drain leaves an instance, and
//! no release takes what is another's.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use renderhub_harness::Rights;
use renderhub_harness::helm::{self, Helm};
use serde_json::{Value, json};

use super::{HUB, RENDERING, notes, of_kind, template};

/// Values that change how many instances there are.
const SIZES: [&[&str]; 3] = [&[], &["replicaCount=2"], &["replicaCount=4"]];

/// The first of two releases on one cluster, and what the second says.
const FIRST: &[&str] = &["controller.watchNamespaces={a}", "quota.activeJobs=512"];
const SECOND: &[&str] = &[
    "controller.shardName=b",
    "controller.watchNamespaces={b}",
    "renderingNamespace.shared=true",
    "crds.install=false",
    "policies.install=false",
];

async fn hub_of(sets: &[&str]) -> Result<Deployment> {
    Ok(serde_json::from_value(
        of_kind(&template(sets).await?, "Deployment")?.clone(),
    )?)
}

async fn spread_of(sets: &[&str]) -> Result<Vec<TopologySpreadConstraint>> {
    let pod = hub_of(sets).await?.spec.and_then(|spec| spec.template.spec);
    let spread = pod.and_then(|pod| pod.topology_spread_constraints);
    Ok(spread.unwrap_or_default())
}

/// An old pod ends only when a new one is ready, and a new one is ready while the Lease is the old one's.
#[tokio::test]
async fn an_update_ends_no_instance_before_there_is_a_successor() -> Result<()> {
    for (sets, replicas) in SIZES.into_iter().zip([1, 2, 4]) {
        let spec = hub_of(sets).await?.spec.context("no spec")?;
        assert_eq!(spec.replicas, Some(replicas), "{sets:?}");
        let strategy = spec.strategy.context("no strategy")?;
        assert_eq!(strategy.type_.as_deref(), Some("RollingUpdate"), "{sets:?}");
        let rolling = strategy.rolling_update.context("no bounds")?;
        assert_eq!(rolling.max_unavailable, Some(IntOrString::Int(0)), "{sets:?}");
        assert_eq!(rolling.max_surge, Some(IntOrString::Int(1)), "{sets:?}");
        let pod = spec.template.spec.context("no pod")?;
        let probe = pod.containers[0].readiness_probe.clone();
        let path = probe.and_then(|probe| probe.http_get?.path);
        assert_eq!(
            path.as_deref(),
            Some("/readyz"),
            "which answers to whoever stands by"
        );
    }
    Ok(())
}

/// Values of an earlier chart may say of the value that is gone what it was unless more was asked for.
#[tokio::test]
async fn one_shard_is_what_every_release_has() -> Result<()> {
    let said = ["replicaCount=2", "controller.shardCount=1"];
    assert_eq!(template(&said).await?, template(&said[..1]).await?);
    assert_eq!(notes(&said).await?, notes(&said[..1]).await?);
    Ok(())
}

/// A node's end takes one instance, not all; where there is one node they run there.
#[tokio::test]
async fn several_are_spread_over_nodes_and_one_is_not() -> Result<()> {
    assert!(
        spread_of(&[]).await?.is_empty(),
        "one pod has nothing to be spread from"
    );
    let hub = hub_of(&["replicaCount=2"]).await?.spec.context("no spec")?;
    let spread = spread_of(&["replicaCount=2"]).await?;
    let [over_nodes] = &spread[..] else {
        anyhow::bail!("{spread:?}")
    };
    assert_eq!(over_nodes.topology_key, "kubernetes.io/hostname");
    assert_eq!(over_nodes.when_unsatisfiable, "ScheduleAnyway");
    assert_eq!(
        over_nodes.label_selector,
        Some(hub.selector),
        "the hub's own pods"
    );
    Ok(())
}

#[tokio::test]
async fn what_the_operator_says_of_spreading_holds_instead() -> Result<()> {
    let hub = hub_of(&["replicaCount=2"]).await?.spec.context("no spec")?;
    let own = spread_of(&[
        "replicaCount=2",
        "topologySpreadConstraints[0].maxSkew=2",
        "topologySpreadConstraints[0].topologyKey=topology.kubernetes.io/zone",
        "topologySpreadConstraints[0].whenUnsatisfiable=DoNotSchedule",
        "topologySpreadConstraints[1].maxSkew=1",
        "topologySpreadConstraints[1].topologyKey=rack",
        "topologySpreadConstraints[1].whenUnsatisfiable=ScheduleAnyway",
        "topologySpreadConstraints[1].labelSelector.matchLabels.a=b",
    ])
    .await?;
    let [zone, rack] = &own[..] else {
        anyhow::bail!("{own:?}")
    };
    assert_eq!(
        (zone.max_skew, zone.topology_key.as_str()),
        (2, "topology.kubernetes.io/zone")
    );
    assert_eq!(zone.when_unsatisfiable, "DoNotSchedule");
    assert_eq!(zone.label_selector, Some(hub.selector));
    let labels = rack
        .label_selector
        .clone()
        .and_then(|selector| selector.match_labels);
    assert_eq!(json!(labels), json!({"a": "b"}), "a selector of one's own stays");
    Ok(())
}

/// Two drains at once would leave no standby.
#[tokio::test]
async fn a_drain_takes_one_at_a_time() -> Result<()> {
    for sets in SIZES {
        let budget = template(sets).await?;
        let budget: PodDisruptionBudget =
            serde_json::from_value(of_kind(&budget, "PodDisruptionBudget")?.clone())?;
        let spec = budget.spec.context("no spec")?;
        assert_eq!(spec.max_unavailable, Some(IntOrString::Int(1)), "{sets:?}");
        let hub = hub_of(sets).await?.spec.context("no spec")?;
        assert_eq!(spec.selector, Some(hub.selector), "{sets:?}");
    }
    Ok(())
}

/// Records are released, never removed: who removed one could take a peer's.
#[tokio::test]
async fn leases_are_written_in_one_namespace_and_never_deleted() -> Result<()> {
    for (sets, namespace) in [
        (&[][..], RENDERING),
        (&["controller.leaseNamespace=hubs"], "hubs"),
    ] {
        let rights = Rights::of_chart(sets).await?;
        let on_leases: Vec<_> = rights
            .bound
            .iter()
            .flat_map(|bound| bound.rules.iter().map(move |rule| (&bound.namespace, rule)))
            .filter(|(_, rule)| rule.resources.iter().flatten().any(|r| r == "leases"))
            .map(|(namespace, rule)| (namespace.as_deref(), rule.verbs.join(",")))
            .collect();
        assert_eq!(
            on_leases,
            [(Some(namespace), "get,list,create,update".to_owned())]
        );
    }
    Ok(())
}

/// Kind, namespace and name of everything that a release makes, its tests included.
async fn made_by(release: &str, sets: &[&str]) -> Result<BTreeSet<[String; 3]>> {
    let objects = helm::template_as(&Helm::new()?, release, HUB, sets).await?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names: BTreeSet<_> = objects
        .iter()
        .map(|object| {
            let meta = &object["metadata"];
            [
                text(&object["kind"]),
                text(&meta["namespace"]),
                text(&meta["name"]),
            ]
        })
        .collect();
    assert_eq!(names.len(), objects.len(), "{release} makes an object twice");
    Ok(names)
}

/// Two releases in one namespace, whose Jobs run in one namespace: neither takes or removes what is the other's.
///
/// Holds: M5.
#[tokio::test]
async fn two_releases_make_no_object_twice() -> Result<()> {
    // Both read one catalog, and copy pull Secrets between the same namespaces.
    let common = [
        "pipeline.enabled=true",
        "controller.noCrossNamespaceRefs=false",
        "controller.catalogNamespaces={catalog}",
        "pullSecrets.olm.enabled=true",
        "pullSecrets.olm.namespaces={operators}",
        "pullSecrets.olm.catalogNamespaces={olm}",
    ];
    let first = made_by("renderhub", &[FIRST, &common].concat()).await?;
    let second = made_by("renderhub-b", &[SECOND, &common].concat()).await?;
    let both: Vec<_> = first.intersection(&second).collect();
    assert!(both.is_empty(), "{both:?}");
    // Each of the values is needed, but for the list and the name, which the hubs compare.
    for (left_out, kind) in [(2, "Namespace"), (3, "CustomResourceDefinition")] {
        let mut sets = SECOND.to_vec();
        let value = sets.remove(left_out);
        let second = made_by("renderhub-b", &sets).await?;
        let is_twice = first.intersection(&second).any(|[of_kind, ..]| of_kind == kind);
        assert!(is_twice, "{kind} is made once, even without {value}");
    }
    Ok(())
}

/// Limits of two releases would both hold for all pods, and policies of two would let out what either lets out.
#[tokio::test]
async fn a_second_release_brings_its_rights_to_the_rendering_namespace_and_nothing_else() -> Result<()> {
    let kinds = async |sets: &[&str]| -> Result<BTreeSet<String>> {
        let made = made_by("renderhub-b", sets).await?;
        let there = made.into_iter().filter(|[kind, namespace, name]| {
            namespace == RENDERING || kind == "Namespace" && name == RENDERING
        });
        Ok(there.map(|[kind, ..]| kind).collect())
    };
    let own = BTreeSet::from(["Role", "RoleBinding", "ServiceAccount"].map(str::to_owned));
    assert_eq!(kinds(SECOND).await?, own);
    let all = kinds(FIRST).await?;
    for kind in ["Namespace", "NetworkPolicy", "ResourceQuota", "LimitRange"] {
        assert!(all.contains(kind), "{kind} is nobody's");
    }
    Ok(())
}

/// Holds: D3.
#[tokio::test]
async fn the_quota_has_room_for_the_jobs_of_all_releases() -> Result<()> {
    for (sets, pods) in [
        (&["controller.maxActiveJobs=100"][..], "200"),
        (&["controller.maxActiveJobs=100", "quota.activeJobs=300"], "600"),
    ] {
        let objects = template(sets).await?;
        let hard = &of_kind(&objects, "ResourceQuota")?["spec"]["hard"];
        assert_eq!(hard["pods"], pods, "{sets:?}");
        assert_eq!(hard["limits.cpu"], pods, "{sets:?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_notes_say_who_works_and_where_hubs_see_each_other() -> Result<()> {
    let alone = notes(&[]).await?;
    assert!(alone.contains("Instances: 1 works, 0 stand by."), "{alone}");
    assert!(
        !alone.contains("leaseNamespace"),
        "a hub of all namespaces has no peers: {alone}"
    );
    let pair = notes(SIZES[1]).await?;
    assert!(pair.contains("Instances: 1 works, 1 stands by."), "{pair}");
    let many = notes(SIZES[2]).await?;
    assert!(many.contains("Instances: 1 works, 3 stand by."), "{many}");
    let first = notes(FIRST).await?;
    assert!(
        first.contains("by their Leases in renderhub-rendering\n(the rendering namespace, for want"),
        "{first}"
    );
    let second = notes(&[SECOND, &["controller.leaseNamespace=hubs"]].concat()).await?;
    assert!(
        second.contains("by their Leases in hubs: give every release"),
        "{second}"
    );
    assert!(
        second.contains("Another release looks after renderhub-rendering"),
        "{second}"
    );
    Ok(())
}
