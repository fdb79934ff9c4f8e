//! A Target that goes back to a version whose charts may be gone.

use serde_json::json;

use super::lookups::question;
use super::world::{HOME, World, at, key};
use crate::api::conditions::Reason;
use crate::api::pipeline::PruneFailure;
use crate::plan::pipeline::decide::NeededTasks;
use crate::plan::pipeline::decide::TargetDecision;
use crate::plan::pipeline::kept_tasks::named_by_no_version;
use crate::plan::pipeline::lookups::{ChartAnswers, FoundChart, LookupFailure};
use crate::plan::pipeline::object::within;
use crate::plan::pipeline::task::base_name;
use crate::plan::pipeline::task_state::PipelineTaskState;

const UNREACHABLE: LookupFailure = LookupFailure::Registry(PruneFailure::Unreachable);

/// A Target with two Releases, of which `shop` changed once: what its first version had, as tag of the chart and digest.
pub(super) struct Changed {
    pub(super) world: World,
    first: i64,
    pub(super) tag: String,
    digest: String,
}

pub(super) fn changed() -> Changed {
    let mut world = World::new();
    world.target("edge", &json!({}), json!({}));
    for name in ["shop", "blog"] {
        world.release(name, name, &json!({}), json!({"values": {"n": 1}}));
        world.bind("edge", name);
    }
    world.settle("edge");
    let version = world.newest("edge").unwrap();
    let (first, shop) = (version.version, version.releases["shop"].clone());
    world.change_release("shop", |spec| spec.values = Some(json!({"n": 2})));
    world.settle("edge");
    assert_eq!(world.ready("edge").0, "Ready");
    Changed {
        world,
        first,
        tag: shop.version.clone(),
        digest: shop.digest.clone().unwrap(),
    }
}

impl Changed {
    fn go_back(&mut self) {
        let first = self.first;
        self.world
            .change_target("edge", |spec| spec.rollback_to = Some(first));
    }

    /// Goes back with this change of what the registry has; until nothing is left to do.
    fn settled(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self.go_back();
        self.world.settle("edge");
        self
    }

    /// Names of the tasks for the chart of the first version.
    pub(super) fn tasks(&self) -> Vec<String> {
        let tasks = self.world.objects.tasks.iter();
        let of_chart = tasks.filter(|(_, task)| task.chart.tag == self.tag);
        of_chart.map(|(key, _)| key.name.clone()).collect()
    }

    /// Tag and digest of the Release in the newest version.
    fn shop(&self) -> (String, String) {
        let shop = &self.world.newest("edge").unwrap().releases["shop"];
        (shop.version.clone(), shop.digest.clone().unwrap())
    }

    /// How many versions the Target has.
    fn versions(&self) -> usize {
        self.world.objects.hydrated_targets.iter().count()
    }
}

fn is_stalled(world: &World) -> bool {
    let status = &world.objects.targets[&key("edge")].status;
    status
        .conditions
        .iter()
        .any(|condition| condition.type_ == "Stalled")
}

#[test]
fn a_chart_that_the_registry_has_is_used_and_asked_for_once() {
    let mut back = changed().settled(|_| {});
    assert_eq!(back.world.ready("edge").0, "Ready");
    assert_eq!(back.shop(), (back.tag.clone(), back.digest.clone()));
    assert_eq!((back.versions(), back.tasks().len()), (3, 1));
    // What the newest version has too was not asked for.
    assert_eq!(back.world.registry.asked, [back.tag.clone()]);
    assert!(back.world.answers.is_empty(), "it has arrived");
    back.world.settle("edge");
    assert_eq!(back.world.registry.asked.len(), 1);
}

#[test]
fn a_chart_that_is_gone_is_rendered_again_under_its_tag_and_its_new_digest_is_recorded() {
    let mut back = changed();
    back.world.registry.lost.insert(back.tag.clone());
    back.go_back();
    let before = back.tasks();
    back.world.step("edge");
    let decision = back.world.step("edge");
    let [task] = &decision.new_tasks[..] else {
        panic!("{:?}", decision.new_tasks)
    };
    assert_eq!(task.name, format!("{}-r2", before[0]));
    assert!(!task.is_targets_own);
    assert_eq!(decision.needed, NeededTasks::All);
    assert_eq!(
        (&task.spec.tag, decision.new_version.is_none()),
        (&back.tag, true)
    );
    assert_eq!(back.world.ready("edge").0, "Pending");
    back.world.settle("edge");
    assert_eq!(back.world.ready("edge").0, "Ready");
    let (tag, digest) = back.shop();
    assert_eq!((tag, back.versions()), (back.tag.clone(), 3));
    assert_ne!(digest, back.digest, "it was rendered by another task");
    assert_eq!(
        back.world.objects.tasks[&key(&task.name)].state,
        PipelineTaskState::Succeeded {
            digest: Some(digest),
            at: at(0)
        }
    );
    // A registry that says all the time that it has nothing has it rendered once.
    assert_eq!(back.world.registry.asked.len(), 1);
    assert_eq!(back.tasks(), vec![task.name.clone()]);
}

#[test]
fn a_hub_that_starts_anew_meanwhile_renders_no_chart_twice() {
    let mut back = changed();
    back.world.registry.lost.insert(back.tag.clone());
    back.go_back();
    back.world.step("edge");
    back.world.step("edge");
    let running = back.tasks();
    assert_eq!(running.len(), 2);
    back.world.answers = ChartAnswers::default();
    back.world.step("edge");
    let decision = back.world.step("edge");
    assert!(decision.new_tasks.is_empty(), "{:?}", decision.new_tasks);
    // Once it is pushed, the registry has the digest of the last attempt.
    back.world.succeed();
    back.world.answers = ChartAnswers::default();
    let task = format!("{}-r2", base_name(&running[0]));
    let PipelineTaskState::Succeeded { digest, .. } = &back.world.objects.tasks[&key(&task)].state else {
        panic!("it succeeded")
    };
    let digest = digest.clone().unwrap();
    back.world.registry.lost.clear();
    back.world
        .registry
        .others
        .insert(back.tag.clone(), digest.clone());
    back.world.settle("edge");
    assert_eq!(back.world.ready("edge").0, "Ready");
    assert_eq!((back.tasks(), back.shop().1), (vec![task], digest));
}

/// What keeps a Target from going back, how it comes to be, and what the Target says: a reason, whether it is stalled, and words.
type Hindrance = (fn(&mut Changed), Reason, bool, &'static str);

/// Hindrances that the registry has made.
const OF_THE_REGISTRY: [Hindrance; 3] = [
    (
        |back| back.world.registry.failure = Some(UNREACHABLE),
        Reason::ChartLookupFailed,
        false,
        "whether the registry r.test has the chart of Release team-a/shop, because the registry did not answer",
    ),
    (
        |back| back.world.registry.failure = Some(LookupFailure::Registry(PruneFailure::Refused)),
        Reason::ChartLookupFailed,
        false,
        "does not let the credential read",
    ),
    (
        |back| {
            let other = (back.tag.clone(), "sha256:00".to_owned());
            back.world.registry.others.extend([other]);
        },
        Reason::ChartLost,
        true,
        "the registry r.test has another chart under the tag",
    ),
];

/// Hindrances of a chart that is gone.
const OF_A_LOST_CHART: [Hindrance; 3] = [
    (
        |back| {
            for name in back.tasks() {
                back.world.objects.tasks.remove(&key(&name));
            }
        },
        Reason::ChartLost,
        true,
        "the RenderTask that rendered it is gone",
    ),
    (
        |back| {
            for config in back.world.registry.configs.values_mut() {
                *config = config.replace("\"n\":1", "\"n\":9");
            }
        },
        Reason::ChartLost,
        true,
        "it cannot be rendered again",
    ),
    (
        |back| {
            back.go_back();
            back.world.step("edge");
            back.world.step("edge");
            back.world.fail(true);
        },
        Reason::ReleaseFailed,
        true,
        "the chart of Release team-a/shop failed with JobFailed",
    ),
];

/// A hindrance that the platform or a tenant has made.
const OF_ITS_OBJECT: Hindrance = (
    |back| {
        let mut registry = back.world.objects.registries.get_mut(&key("main")).unwrap();
        registry.spec.as_mut().unwrap().hostname = "new.test".to_owned();
    },
    Reason::NotGranted,
    true,
    "is in r.test, and no registry that this Target may use now has that host",
);

/// Holds: F18.
#[test]
fn what_keeps_a_target_from_an_earlier_version_is_said_and_what_runs_stays() {
    let there = OF_THE_REGISTRY.into_iter().chain([OF_ITS_OBJECT]);
    let there = there.map(|row| (false, row));
    let lost = OF_A_LOST_CHART.into_iter().map(|row| (true, row));
    for (is_lost, (change, reason, stalls, text)) in there.chain(lost) {
        let back = changed().settled(|back| {
            if is_lost {
                back.world.registry.lost.insert(back.tag.clone());
            }
            change(back);
        });
        let (said, message) = back.world.ready("edge");
        let found = (said.as_str(), is_stalled(&back.world));
        assert_eq!(found, (reason.as_str(), stalls), "{text}");
        assert!(message.contains(text), "{message}");
        let pinned = format!("pinned to version {} until rollbackTo is removed", back.first);
        assert!(message.ends_with(&pinned), "{message}");
        assert_eq!(back.versions(), 2, "{text}");
        assert_ne!(back.shop().0, back.tag, "{text}");
    }
}

#[test]
fn a_target_goes_on_once_its_registry_answers_and_asks_with_growing_pauses() {
    let mut back = changed().settled(|back| back.world.registry.failure = Some(UNREACHABLE));
    let mut asked_at = vec![0];
    for _ in 0..3 {
        let due = back.world.decide("edge").look_again.unwrap();
        back.world.now = (due - at(0)).get_seconds();
        asked_at.push(back.world.now);
        back.world.step("edge");
    }
    assert_eq!(asked_at, [0, 5, 15, 35]);
    assert_eq!(back.world.registry.asked.len(), 4);
    back.world.registry.failure = None;
    back.world.now = 75;
    back.world.step("edge");
    back.world.settle("edge");
    assert_eq!(back.world.ready("edge").0, "Ready");
    assert_eq!(back.shop(), (back.tag.clone(), back.digest.clone()));
}

/// Holds: F18.
#[test]
fn another_digest_is_the_chart_where_a_task_for_the_same_content_pushed_it() {
    let back = changed().settled(|back| {
        let name = back.tasks().remove(0);
        let digest = Some("sha256:11".to_owned());
        let mut task = back.world.objects.tasks.get_mut(&key(&name)).unwrap();
        task.state = PipelineTaskState::Succeeded { digest, at: at(0) };
        back.world
            .registry
            .others
            .insert(back.tag.clone(), "sha256:11".to_owned());
    });
    assert_eq!(back.world.ready("edge").0, "Ready");
    assert_eq!(back.shop(), (back.tag.clone(), "sha256:11".to_owned()));
    assert_eq!(back.tasks().len(), 1);
}

#[test]
fn where_no_digest_was_recorded_what_is_under_the_tag_is_the_chart() {
    let mut question = question("shop");
    let mut found = FoundChart {
        digest: Some("sha256:1".to_owned()),
        ..FoundChart::default()
    };
    for (recorded, is_it) in [(None, true), (Some("sha256:1"), true), (Some("sha256:2"), false)] {
        question.digest = recorded.map(str::to_owned);
        assert_eq!(found.is_what_was_recorded(&question), is_it, "{recorded:?}");
    }
    (found.digest, question.digest) = (None, None);
    assert!(!found.is_what_was_recorded(&question));
}

/// Holds: F10.
#[test]
fn a_chart_is_rendered_again_as_its_target_says_now() {
    let mut back = changed();
    back.world.registry.lost.insert(back.tag.clone());
    back.world.change_target("edge", |spec| {
        spec.service_account_name = Some("other".to_owned());
    });
    back.go_back();
    let before = back.tasks();
    back.world.step("edge");
    let TargetDecision { new_tasks, .. } = back.world.step("edge");
    let [task] = &new_tasks[..] else {
        panic!("{new_tasks:?}")
    };
    assert_eq!(task.spec.service_account_name.as_deref(), Some("other"));
    assert_eq!(task.spec.tag, back.tag);
    assert_ne!(base_name(&task.name), before[0]);
    back.world.settle("edge");
    assert_eq!(back.world.ready("edge").0, "Ready");
}

#[test]
fn a_newer_version_is_not_pushed_while_the_target_waits_to_go_back() {
    let mut back = changed();
    back.world
        .change_target("edge", |spec| spec.userdata = Some(json!({"n": 3})));
    back.world.step("edge");
    back.world.step("edge");
    let is_bootstrap = |name: &str| name.starts_with("bootstrap-edge-v");
    let running = |world: &World| {
        let tasks = world.objects.tasks.iter();
        let running = tasks.filter(|(_, task)| task.state == PipelineTaskState::Running);
        running.filter(|(key, _)| is_bootstrap(&key.name)).count()
    };
    assert_eq!(running(&back.world), 1);
    back.world.registry.failure = Some(UNREACHABLE);
    back.go_back();
    back.world.settle("edge");
    assert_eq!(running(&back.world), 0);
    let pushed = back.world.objects.targets[&key("edge")].status.bootstrap_version;
    assert_eq!(pushed, Some(back.first + 1));
    // Where the Target is not pinned any more, it is pushed after all.
    back.world.change_target("edge", |spec| spec.rollback_to = None);
    back.world.settle("edge");
    let pushed = back.world.objects.targets[&key("edge")].status.bootstrap_version;
    assert_eq!(pushed, Some(back.first + 2));
}

#[test]
fn a_task_stays_as_long_as_a_version_that_is_kept_names_its_chart() {
    let mut back = changed();
    let shared = |world: &World| -> Vec<String> {
        let tasks = within(&world.objects.tasks, HOME);
        let shared = tasks.filter(|(_, task)| task.owner.as_ref().unwrap().kind == "Release");
        named_by_no_version(HOME, &world.objects, shared.collect())
            .into_iter()
            .map(|(key, _)| key.name.clone())
            .collect()
    };
    assert!(shared(&back.world).is_empty());
    back.world
        .change_target("edge", |spec| spec.history_limit = Some(0));
    let old = back.tasks();
    back.world.settle("edge");
    assert_eq!((back.versions(), shared(&back.world)), (1, old));
    // What a version names that cannot be decoded is not known.
    let (name, _) = back.world.objects.hydrated_targets.iter().next().unwrap();
    let name = name.clone();
    back.world.objects.hydrated_targets.get_mut(&name).unwrap().spec = None;
    assert!(shared(&back.world).is_empty());
}
