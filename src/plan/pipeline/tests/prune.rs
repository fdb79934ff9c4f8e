//! Which charts are deleted from a registry with a version that is not kept, and how often that is tried.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::world::{HOME, World, at, key};
use crate::api::pipeline::{HydratedRelease, HydratedTargetStatus, PruneFailure, PruneProgress};
use crate::api::{RegistryReference, RegistrySpec};
use crate::plan::pipeline::history::StoredVersion;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::object_map::ChangedObject;
use crate::plan::pipeline::prune::{GIVEN_UP_AFTER, PruneInput, PruneStep, next_step};
use crate::plan::pipeline::task_state::{PipelineTask, PipelineTaskState, TaskChart};
use crate::plan::platform::tenancy::{TenancyPolicy, TenantRegistryHosts};

fn tenancy() -> TenancyPolicy {
    TenancyPolicy {
        default_service_account: Some("builder".to_owned()),
        own_hosts: TenantRegistryHosts::any(),
        ..TenancyPolicy::default()
    }
}

pub(super) fn since(second: i64) -> PruneProgress {
    PruneProgress {
        since: Time(at(second)),
        service_account_name: None,
        attempts: 0,
        failure: None,
        next_attempt: None,
    }
}

/// A Target with one version, whose registry prunes, and the key of the version; it is not kept, and its tasks are gone.
pub(super) fn pruned() -> (World, ObjectKey) {
    let mut world = World::new();
    world.prune(true);
    world.target("edge", &json!({}), json!({}));
    world.release("a", "a", &json!({}), json!({}));
    world.bind("edge", "a");
    world.settle("edge");
    let version = world.objects.hydrated_targets.keys().next().unwrap().clone();
    world.objects.targets.clear();
    world.objects.tasks.clear();
    of(&mut world, &version).status.prune = Some(since(0));
    (world, version)
}

pub(super) fn of<'w>(world: &'w mut World, version: &ObjectKey) -> ChangedObject<'w, StoredVersion> {
    world.objects.hydrated_targets.get_mut(version).unwrap()
}

/// The release of a version.
fn release_of(version: &mut StoredVersion) -> &mut HydratedRelease {
    Arc::make_mut(version.spec.as_mut().unwrap().releases.get_mut("a").unwrap())
}

/// Another version of a Target in a namespace, which is kept and has the same Releases.
fn other(world: &mut World, version: &ObjectKey, namespace: &str) -> ObjectKey {
    let mut copy = of(world, version).clone();
    copy.status = HydratedTargetStatus::default();
    let spec = copy.spec.as_mut().unwrap();
    spec.target_name = "other".to_owned();
    spec.registry.repository = format!("{namespace}/bootstrap-other");
    let name = ObjectKey::new(namespace, "other-v1");
    world.objects.hydrated_targets.insert(name.clone(), copy);
    name
}

fn change_registry(world: &mut World, change: impl FnOnce(&mut RegistrySpec)) {
    let mut registry = world.objects.registries.get_mut(&key("main")).unwrap();
    change(registry.spec.as_mut().unwrap());
}

pub(super) fn step(world: &World, version: &ObjectKey) -> PruneStep {
    step_with(world, version, &tenancy())
}

/// The same where the platform lets tenants name this.
pub(super) fn step_with(world: &World, version: &ObjectKey, tenancy: &TenancyPolicy) -> PruneStep {
    next_step(PruneInput {
        key: version,
        version: &world.objects.hydrated_targets[version],
        objects: &world.objects,
        rules: &world.rules,
        catalog: &world.catalog,
        tenancy,
        now: at(world.now),
    })
    .expect("it waits for that")
}

/// Whether anything is done about the charts of a version alone.
pub(super) fn is_record(version: &StoredVersion) -> bool {
    let world = World::new();
    let step = next_step(PruneInput {
        key: &key("edge-v1"),
        version,
        objects: &world.objects,
        rules: &world.rules,
        catalog: &world.catalog,
        tenancy: &tenancy(),
        now: at(0),
    });
    step.is_some()
}

/// What is asked of the registry, or what is done instead.
pub(super) fn outcome(world: &World, version: &ObjectKey) -> String {
    match step(world, version) {
        PruneStep::Delete => "delete".to_owned(),
        PruneStep::GiveUp(why) => format!("give up: {why:?}"),
        PruneStep::Wait(until) => format!("wait {}", until.as_second() - at(0).as_second()),
        PruneStep::Fail(failure) => format!("fail: {failure:?}"),
        PruneStep::Ask(request) => {
            let charts = request.charts.iter().map(|chart| {
                let (reference, digest) = (&chart.reference, chart.digest.as_str());
                assert!(digest.len() == 71 && reference.host.as_str() == "r.test");
                reference.repository.last_segment().to_owned()
            });
            charts.collect::<Vec<_>>().join(" ")
        }
    }
}

/// A task that pushes the chart of the version's Release, with this registry.
pub(super) fn task_for(world: &mut World, version: &ObjectKey, registry: Option<&str>) {
    let spec = of(world, version).spec.clone().unwrap();
    let release = &spec.releases["a"];
    let chart = TaskChart {
        registry: registry.map(|name| {
            serde_json::from_value::<RegistryReference>(json!({"kind": "Registry", "name": name})).unwrap()
        }),
        repository: release.repository.trim_start_matches("r.test/").to_owned(),
        tag: release.version.clone(),
    };
    let task = PipelineTask {
        uid: String::new(),
        spec_hash: String::new(),
        deleting: false,
        owner: None,
        chart,
        state: PipelineTaskState::Running,
    };
    world.objects.tasks.insert(key("release-a"), task);
}

/// Changes the record, or the world around it.
pub(super) type Change = fn(&mut World, &ObjectKey);

/// Holds: F11, F12.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn only_charts_that_the_pipeline_itself_put_there_and_no_version_names_are_deleted() {
    let rows: [(&str, Change, &str); 18] = [
        ("as it is", |_, _| (), "bootstrap-edge release-a"),
        (
            "another version names the Release's chart",
            |w, v| _ = other(w, v, HOME),
            "bootstrap-edge",
        ),
        (
            "one of another namespace does",
            |w, v| _ = other(w, v, "team-b"),
            "bootstrap-edge",
        ),
        (
            "one that is not kept either does",
            |w, v| {
                let other = other(w, v, HOME);
                of(w, &other).status.prune = Some(since(1));
            },
            "bootstrap-edge release-a",
        ),
        (
            "one that is being deleted does",
            |w, v| {
                let other = other(w, v, HOME);
                of(w, &other).deleting = true;
            },
            "bootstrap-edge release-a",
        ),
        (
            "another version has its digest under another tag",
            |w, v| {
                let other = other(w, v, HOME);
                let mut stored = of(w, &other);
                release_of(&mut stored).version = "v0.0.9-h0".to_owned();
            },
            "bootstrap-edge",
        ),
        (
            "another version has neither",
            |w, v| {
                let other = other(w, v, HOME);
                let mut stored = of(w, &other);
                let release = release_of(&mut stored);
                (release.version, release.digest) = ("v0.0.9-h0".to_owned(), None);
            },
            "bootstrap-edge release-a",
        ),
        (
            "what another version of the namespace names is not known",
            |w, v| {
                let other = other(w, v, HOME);
                of(w, &other).spec = None;
            },
            "delete",
        ),
        (
            "no digest was recorded",
            |w, v| {
                of(w, v).status.digest = None;
                release_of(&mut of(w, v)).digest = None;
            },
            "delete",
        ),
        ("the registry does not prune", |w, _| w.prune(false), "delete"),
        (
            "the registry is another host now",
            |w, _| change_registry(w, |spec| spec.hostname = "other.test".to_owned()),
            "delete",
        ),
        (
            "the registry grants another prefix now",
            |w, _| {
                change_registry(w, |spec| {
                    spec.repository_prefix = Some("elsewhere/{namespace}/".to_owned());
                });
            },
            "delete",
        ),
        (
            "the registry grants a part",
            |w, _| {
                change_registry(w, |spec| {
                    spec.repository_prefix = Some("team-a/team-a/".to_owned());
                });
            },
            "release-a",
        ),
        (
            "the bootstrap chart is in the repository of another tenant",
            |w, v| {
                of(w, v).spec.as_mut().unwrap().registry.repository = "team-b/bootstrap-edge".to_owned();
            },
            "release-a",
        ),
        (
            "the bootstrap chart is in the repository of another Target",
            |w, v| {
                of(w, v).spec.as_mut().unwrap().registry.repository = "team-a/bootstrap-other".to_owned();
            },
            "release-a",
        ),
        (
            "the Release's chart is in the repository of another tenant",
            |w, v| {
                let mut stored = of(w, v);
                let release = release_of(&mut stored);
                release.repository = "r.test/team-b/team-b/release-a".to_owned();
            },
            "bootstrap-edge",
        ),
        (
            "the Release's chart is beneath another prefix",
            |w, v| {
                let mut stored = of(w, v);
                let release = release_of(&mut stored);
                release.repository = "r.test/tenants/team-a/team-a/release-a".to_owned();
            },
            "bootstrap-edge release-a",
        ),
        (
            "the Release's chart is on another host",
            |w, v| {
                let mut stored = of(w, v);
                let release = release_of(&mut stored);
                release.repository = "other.test/team-a/team-a/release-a".to_owned();
            },
            "bootstrap-edge",
        ),
    ];
    for (what, change, expected) in rows {
        let (mut world, version) = pruned();
        change(&mut world, &version);
        assert_eq!(outcome(&world, &version), expected, "{what}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_version_waits_for_tasks_and_for_its_next_attempt_and_not_for_ever() {
    let day = GIVEN_UP_AFTER.as_secs();
    let rows: [(&str, Change, String); 9] = [
        (
            "a task pushes one of the charts",
            |w, v| task_for(w, v, Some("main")),
            format!("wait {day}"),
        ),
        (
            "a task pushes it to a registry that is not known",
            |w, v| task_for(w, v, None),
            format!("wait {day}"),
        ),
        (
            "a task pushes it to another host",
            |w, v| {
                let mut elsewhere = w.objects.registries[&key("main")].clone();
                elsewhere.spec.as_mut().unwrap().hostname = "other.test".to_owned();
                w.objects.registries.insert(key("elsewhere"), elsewhere);
                task_for(w, v, Some("elsewhere"));
            },
            "bootstrap-edge release-a".to_owned(),
        ),
        (
            "a task was there all the time",
            |w, v| {
                task_for(w, v, Some("main"));
                w.now = GIVEN_UP_AFTER.as_secs();
            },
            "give up: TaskExists".to_owned(),
        ),
        (
            "the next attempt is not due",
            |w, v| {
                of(w, v).status.prune.as_mut().unwrap().next_attempt = Some(Time(at(60)));
            },
            "wait 60".to_owned(),
        ),
        (
            "the next attempt is due",
            |w, v| {
                of(w, v).status.prune.as_mut().unwrap().next_attempt = Some(Time(at(60)));
                w.now = 60;
            },
            "bootstrap-edge release-a".to_owned(),
        ),
        (
            "a day later it is tried once more",
            |w, _| w.now = GIVEN_UP_AFTER.as_secs(),
            "bootstrap-edge release-a".to_owned(),
        ),
        (
            "its registry is gone",
            |w, _| w.objects.registries.clear(),
            "fail: NotGranted".to_owned(),
        ),
        (
            "its registry is another namespace's",
            |w, v| {
                of(w, v).spec.as_mut().unwrap().registry.namespace = Some("team-b".to_owned());
            },
            "fail: NotGranted".to_owned(),
        ),
    ];
    for (what, change, expected) in rows {
        let (mut world, version) = pruned();
        change(&mut world, &version);
        assert_eq!(outcome(&world, &version), expected, "{what}");
    }
}

#[test]
fn a_registry_is_read_as_the_account_of_the_target_or_not_at_all() {
    for (named, default, user) in [
        (Some("pusher"), None, Some("system:serviceaccount:team-a:pusher")),
        (
            None,
            Some("builder"),
            Some("system:serviceaccount:team-a:builder"),
        ),
        (None, None, None),
        (Some("../other"), None, None),
    ] {
        let (mut world, version) = pruned();
        let mut stored = of(&mut world, &version);
        stored.status.prune.as_mut().unwrap().service_account_name = named.map(str::to_owned);
        drop(stored);
        let tenancy = TenancyPolicy {
            default_service_account: default.map(str::to_owned),
            ..tenancy()
        };
        match (step_with(&world, &version, &tenancy), user) {
            (PruneStep::Ask(request), Some(user)) => {
                assert!(format!("{:?}", request.access).contains(user.rsplit(':').next().unwrap()));
                assert_eq!(request.namespace, HOME);
            }
            (PruneStep::Fail(PruneFailure::NoCredential), None) => {}
            (other, _) => panic!("{named:?} {default:?}: {other:?}"),
        }
    }
}
