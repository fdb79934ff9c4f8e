//! What a deletion asks of a registry, by what a tenant's Registry allows now, and what waits for it.

use serde_json::json;

use super::prune::{outcome, pruned, step, step_with, task_for};
use super::world::{HOME, key};
use crate::api::pipeline::PruneFailure;
use crate::api::{RegistrySpec, RenderTaskSpec};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::prune::{ChartDeletions, PruneRequest, PruneStep, still_allowed};
use crate::plan::platform::catalog::{CatalogRegistry, CredentialState};
use crate::plan::platform::namespaces::NamespaceUids;
use crate::plan::platform::tenancy::{TenancyPolicy, TenantRegistryHosts};

fn request() -> PruneRequest {
    let (world, version) = pruned();
    let PruneStep::Ask(request) = step(&world, &version) else {
        panic!("it is not asked for");
    };
    *request
}

/// Holds: F11.
#[test]
fn what_a_tenant_may_read_of_its_registry_now_counts() {
    let charts = request().charts;
    let spec = |change: serde_json::Value| {
        let mut spec = json!({"hostname": "r.test", "prune": true});
        for (name, value) in change.as_object().unwrap() {
            spec[name] = value.clone();
        }
        serde_json::from_value::<RegistrySpec>(spec).unwrap()
    };
    let hosts = |hosts: &[&str]| TenancyPolicy {
        own_hosts: TenantRegistryHosts::of(hosts.iter().map(|host| host.parse().unwrap()).collect()),
        ..TenancyPolicy::default()
    };
    for (change, allowed_hosts, expected) in [
        (json!({}), "*", Ok(2)),
        (json!({"prune": false}), "*", Ok(0)),
        (json!({"prune": null}), "*", Ok(0)),
        (json!({"hostname": "other.test"}), "*", Ok(0)),
        (json!({"repositoryPrefix": "{namespace}/team-a/"}), "*", Ok(1)),
        (json!({"repositoryPrefix": "team-b/"}), "*", Ok(0)),
        (json!({}), "other.test", Err(PruneFailure::NotGranted)),
        (
            json!({"tokenRealm": "https://tokens.test/t"}),
            "r.test",
            Err(PruneFailure::NotGranted),
        ),
    ] {
        let found = still_allowed(&charts, &spec(change.clone()), HOME, &hosts(&[allowed_hosts]));
        assert_eq!(
            found.map(|charts| charts.len()),
            expected,
            "{change} {allowed_hosts}"
        );
    }
}

/// Holds: F12.
#[test]
fn no_task_is_made_for_a_chart_that_is_being_deleted() {
    let (mut world, version) = pruned();
    let charts = request().charts;
    world.target("other", &json!({}), json!({}));
    world.bind("other", "a");
    let task = world.decide("other").new_tasks.remove(0).spec;
    let mut deletions = ChartDeletions::default();
    assert!(!deletions.holds_back(HOME, &task));
    deletions.begin(&version, &charts);
    assert!(
        !deletions.holds_back("team-b", &task),
        "another namespace has other repositories"
    );
    let elsewhere = RenderTaskSpec {
        tag: "v0.0.9".to_owned(),
        ..RenderTaskSpec::clone(&task)
    };
    assert!(!deletions.holds_back(HOME, &elsewhere));
    assert!(!deletions.clone().end(&version), "no task waits");
    assert!(deletions.holds_back(HOME, &task));
    assert!(deletions.end(&version), "the task that waited is made now");
    assert!(!deletions.holds_back(HOME, &task) && !deletions.end(&version));
}

/// A task with the label of the pipeline is any tenant's to make, and holds no chart that it could not push.
///
/// Holds: F12.
#[test]
fn a_task_of_another_namespace_counts_only_where_it_may_push_the_chart() {
    let catalog = |prefix: &str| {
        let spec = json!({"hostname": "r.test", "repositoryPrefix": prefix});
        CatalogRegistry {
            spec: serde_json::from_value(spec).unwrap(),
            credential: CredentialState::Anonymous,
            recorded: NamespaceUids::default(),
        }
    };
    let platforms = json!({"kind": "ClusterRegistry", "name": "platform"});
    for (registry, prefix, is_held) in [
        (json!(null), "", false),
        (json!({"kind": "Registry", "name": "nowhere"}), "", false),
        (platforms.clone(), "tenants/{namespace}/", false),
        (platforms.clone(), "{namespace}/", false),
        (platforms.clone(), "team-a/", true),
        (platforms, "", true),
    ] {
        let (mut world, version) = pruned();
        task_for(&mut world, &version, None);
        let mut task = world.objects.tasks.remove(&key("release-a")).unwrap();
        task.chart.registry = serde_json::from_value(registry.clone()).unwrap();
        world
            .objects
            .tasks
            .insert(ObjectKey::new("team-b", "release-a"), task);
        world
            .catalog
            .registries
            .insert("platform".to_owned(), catalog(prefix));
        let outcome = outcome(&world, &version);
        assert_eq!(
            outcome.starts_with("wait"),
            is_held,
            "{registry} {prefix}: {outcome}"
        );
    }
}

/// Holds: F12.
#[test]
fn a_registry_of_another_tenant_counts_only_at_a_host_that_tenants_may_name() {
    for is_allowed in [true, false] {
        let (mut world, version) = pruned();
        task_for(&mut world, &version, Some("own"));
        let task = world.objects.tasks.remove(&key("release-a")).unwrap();
        let registry = world.objects.registries[&key("main")].clone();
        let of_other = |name: &str| ObjectKey::new("team-b", name);
        world.objects.tasks.insert(of_other("release-a"), task);
        world.objects.registries.insert(of_other("own"), registry);
        let tenancy = TenancyPolicy {
            default_service_account: Some("builder".to_owned()),
            own_hosts: TenantRegistryHosts::of(if is_allowed {
                vec!["r.test".parse().unwrap()]
            } else {
                Vec::new()
            }),
            ..TenancyPolicy::default()
        };
        let step = step_with(&world, &version, &tenancy);
        let is_held = matches!(step, PruneStep::Wait(_));
        assert_eq!(is_held, is_allowed, "{step:?}");
    }
}
