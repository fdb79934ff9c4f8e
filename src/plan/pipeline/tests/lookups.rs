//! What is asked of registries about the charts of an earlier version: each question once, and so many at a time.

use serde_json::json;

use super::rollback::changed;
use super::world::{HOME, at, key, object};
use crate::api::RegistrySpec;
use crate::plan::pipeline::lookups::{
    CONTENTS, CONTENTS_OF_NAMESPACE, ChartAnswer, ChartAnswers, ChartQuestion, FoundChart, LookupFailure,
    MAX_SOURCES, QUESTIONS, QUESTIONS_OF_NAMESPACE, is_allowed, made_of, sources,
};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::task_state::{PipelineTask, PipelineTaskState};
use crate::plan::platform::tenancy::{TenancyPolicy, TenantRegistryHosts};

pub(super) fn question(name: &str) -> ChartQuestion {
    question_of(HOME, name)
}

fn question_of(namespace: &str, name: &str) -> ChartQuestion {
    ChartQuestion {
        namespace: namespace.to_owned(),
        release: key(name),
        registry: serde_json::from_value(json!({"kind": "Registry", "name": "main"})).unwrap(),
        account: None,
        repository: format!("r.test/team-a/team-a/release-{name}"),
        version: "v0.0.1-h0".to_owned(),
        digest: Some("sha256:1".to_owned()),
    }
}

#[test]
fn so_many_tasks_are_read_for_the_content_of_a_chart_at_most() {
    let mut back = changed();
    let name = back.tasks().remove(0);
    let task = back.world.objects.tasks[&key(&name)].clone();
    for number in 0..MAX_SOURCES {
        let name = format!("of-a-tenant-{number}");
        let state = PipelineTaskState::Running;
        let task = PipelineTask {
            state,
            ..task.clone()
        };
        back.world.objects.tasks.insert(key(&name), task);
    }
    let asked = ChartQuestion {
        version: back.tag.clone(),
        ..question("shop")
    };
    let found = sources(&back.world.objects, &asked);
    assert_eq!((found.tasks.len(), found.pushed), (MAX_SOURCES, vec![name]));
}

#[test]
fn a_question_is_asked_once_for_all_targets_and_anew_for_a_new_pin() {
    let (mut answers, now) = (ChartAnswers::default(), at(0));
    let ask = |answers: &mut ChartAnswers, target: &str, generation, names: &[&str]| {
        answers.begin(&key(target), Some(generation));
        let questions = names.iter().map(|name| question(name)).collect();
        let next = answers.rest_on(&key(target), generation, questions, now);
        next.ask.len()
    };
    assert_eq!(ask(&mut answers, "a", 1, &["shop", "blog"]), 2);
    assert_eq!(ask(&mut answers, "a", 1, &["shop", "blog"]), 0);
    assert_eq!(ask(&mut answers, "b", 1, &["shop"]), 0);
    let there = || {
        ChartAnswer::Found(FoundChart {
            digest: question("shop").digest,
            ..FoundChart::default()
        })
    };
    assert_eq!(
        answers.answered(&question("shop"), there(), now),
        [key("a"), key("b")]
    );
    assert_eq!(answers.answered(&question("blog"), there(), now), [key("a")]);
    assert_eq!(ask(&mut answers, "a", 1, &["shop", "blog"]), 0);
    // Only what no other Target rests on is asked again.
    assert_eq!(ask(&mut answers, "a", 2, &["shop", "blog"]), 1);
    assert_eq!(ask(&mut answers, "a", 2, &[]), 0);
    assert_eq!(answers.len(), 1);
    answers.begin(&key("b"), None);
    assert!(answers.is_empty() && !answers.is_wanted(&question("shop")));
    assert!(answers.answered(&question("shop"), there(), now).is_empty());
}

/// Holds: F6.
#[test]
fn only_so_many_questions_are_open_at_once_and_the_others_wait() {
    let (mut answers, now) = (ChartAnswers::default(), at(0));
    let of = |namespace: &str, count: usize| -> Vec<_> {
        let numbers = 0..count;
        numbers
            .map(|number| question_of(namespace, &format!("r{number}")))
            .collect()
    };
    let mut ask = |namespace: &str, name: &str, questions: Vec<ChartQuestion>| {
        let next = answers.rest_on(&ObjectKey::new(namespace, name), 1, questions, now);
        (next.ask.len(), next.look_again)
    };
    let full = Some(at(5));
    let most = QUESTIONS_OF_NAMESPACE;
    assert_eq!(ask("one", "a", of("one", most + 1)), (most, full));
    let last = || vec![question_of("one", &format!("r{most}"))];
    assert_eq!(ask("one", "b", last()), (0, full));
    // No tenant takes all: another one is served, until all are taken.
    assert_eq!(ask("two", "a", of("two", most)), (most, None));
    assert_eq!(2 * most, QUESTIONS);
    assert_eq!(ask("three", "a", of("three", 1)), (0, full));
    assert_eq!(ask("one", "a", vec![]), (0, None));
    assert_eq!(ask("one", "b", last()), (1, None));
    assert_eq!(ask("three", "a", of("three", 1)), (1, None));
}

#[test]
fn only_so_much_of_what_charts_are_made_of_is_held_at_once_and_the_others_are_asked_for_again() {
    let (mut answers, now) = (ChartAnswers::default(), at(0));
    let gone = |bytes: usize| {
        ChartAnswer::Found(FoundChart {
            made_of: Some("x".repeat(bytes).into()),
            ..FoundChart::default()
        })
    };
    let most = CONTENTS_OF_NAMESPACE;
    for namespace in ["one", "two", "three"] {
        let questions = ["shop", "blog"].map(|name| question_of(namespace, name)).to_vec();
        answers.rest_on(&ObjectKey::new(namespace, "a"), 1, questions, now);
    }
    answers.answered(&question_of("one", "shop"), gone(most - 1), now);
    let held = |answers: &mut ChartAnswers, namespace: &str, bytes: usize| {
        let blog = question_of(namespace, "blog");
        answers.answered(&blog, gone(bytes), now);
        let is_held = match answers.of(&blog) {
            Some(ChartAnswer::Found(_)) => true,
            Some(ChartAnswer::Unknown(LookupFailure::Full)) => false,
            other => panic!("{other:?}"),
        };
        assert_eq!(answers.due(&blog).is_some(), !is_held, "{namespace} {bytes}");
        is_held
    };
    for (bytes, is_held) in [(2, false), (1, true), (2, false)] {
        assert_eq!(held(&mut answers, "one", bytes), is_held, "{bytes}");
    }
    assert!(held(&mut answers, "one", 1) && held(&mut answers, "two", most));
    assert_eq!(2 * most, CONTENTS);
    assert!(!held(&mut answers, "three", 1));
}

#[test]
fn a_tenants_registry_is_asked_only_at_its_host_of_now() {
    let reference = "r.test/team-a/shop:1".parse().unwrap();
    let hosts = |hosts: &[&str]| TenancyPolicy {
        own_hosts: TenantRegistryHosts::of(hosts.iter().map(|host| host.parse().unwrap()).collect()),
        ..TenancyPolicy::default()
    };
    for (host, named, is_asked) in [
        ("r.test", "r.test", true),
        ("R.test", "r.test", true),
        ("other.test", "*", false),
        ("r.test", "other.test", false),
    ] {
        let tenancy = hosts(&[named]);
        let spec = json!({"hostname": host, "pushSecretRef": {"name": "push"}});
        let registry = object::<RegistrySpec, ()>("main", &json!({}), spec);
        let found = is_allowed(&reference, &registry.spec.unwrap(), &tenancy);
        assert_eq!(found, is_asked, "{host} {named}");
    }
}

/// Holds: F10.
#[test]
fn only_what_the_version_of_a_chart_holds_the_hash_of_is_rendered_again() {
    let back = changed();
    let name = back.tasks().remove(0);
    let config = &back.world.registry.configs[&name];
    assert!(made_of(&back.tag, config).is_some());
    for (version, config) in [
        (back.tag.as_str(), config.replace("\"n\":1", "\"n\":2")),
        (back.tag.as_str(), config.replace("release-shop", "release-blog")),
        (back.tag.as_str(), "{}".to_owned()),
        ("v0.0.1-h0000000000000000", config.clone()),
        ("v0.0.7", config.clone()),
        ("", config.clone()),
    ] {
        assert!(made_of(version, &config).is_none(), "{version} {config}");
    }
}
