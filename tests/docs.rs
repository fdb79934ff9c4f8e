//! The documentation is complete and true where a program can tell: every reason, flag and metric has its place, every link leads
//! somewhere, and every page can be found.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use clap::CommandFactory;
use prometheus_client::encoding::text::encode;
use renderhub::api::conditions::Reason;
use renderhub::api::termination;
use renderhub::app::config::HubCli;
use renderhub::base::metrics::clusters;
use renderhub::base::metrics::clusters::ClusterMetrics;
use renderhub::base::metrics::event_latency::{EventLatency, WaitReason};
use renderhub::base::metrics::{
    ErrorLabels, FindingLabels, KindLabel, Metrics, ModeLabels, PhaseLabel, QueueSample, ResultLabel,
    SettingLabel, StateLabel,
};
use renderhub::kubernetes::apply::TransportStage;
use support::programs;

#[path = "docs/architecture.rs"]
mod architecture;
#[path = "docs/bounds.rs"]
mod bounds;
#[path = "docs/logs.rs"]
mod logs;
#[path = "docs/named.rs"]
mod named;
#[path = "docs/picture.rs"]
mod picture;
#[path = "docs/pipeline.rs"]
mod pipeline;
#[path = "docs/tenant_fields.rs"]
mod tenant_fields;
#[path = "docs/threats.rs"]
mod threats;

/// How the page of a reason says that no code gives it.
const RESERVED: &str = "No hub of this version gives this reason.";

fn root() -> &'static Path {
    Path::new(programs::ROOT)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Files of the repository with this extension, relative to its root, without what is built or hidden.
fn files(extension: &str) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![root().to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.insert(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    found
}

// === reasons ===

#[test]
fn every_reason_has_a_page_and_every_page_a_reason() {
    let words: BTreeSet<_> = Reason::ALL
        .iter()
        .map(|reason| reason.as_str().to_owned())
        .collect();
    let pages: BTreeSet<_> = files("md")
        .iter()
        .filter(|path| path.starts_with("docs/reasons"))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .filter(|stem| stem != "README" && stem != "failures")
        .collect();
    assert_eq!(pages, words);
    let index = read("docs/reasons/README.md");
    for word in words {
        let page = read(&format!("docs/reasons/{word}.md"));
        assert!(
            page.starts_with(&format!("# {word}\n")),
            "{word} has another title"
        );
        assert!(
            index.contains(&format!("[{word}]({word}.md)")),
            "{word} is not in the index"
        );
        let problem = (!page.contains(RESERVED)).then(|| lacks(&page)).flatten();
        assert_eq!(
            problem, None,
            "{word}: a reader must learn why, whose turn it is, and what to do"
        );
    }
}

/// What the page of a reason leaves open: the cause, who can correct it, or how.
fn lacks(page: &str) -> Option<&'static str> {
    let cell = |name: &str| {
        let row = page
            .lines()
            .find_map(|line| line.strip_prefix(&format!("| {name} | ")));
        row.map(|row| row.trim_end_matches('|').trim())
    };
    let Some((before, how)) = page.split_once("\n## What to do\n") else {
        return Some("what to do");
    };
    let Some(who) = cell("who can mend it") else {
        return Some("who can mend it");
    };
    // The cause is in sentences, between the table and the advice.
    let cause = before.lines().filter(|line| !line.starts_with(['#', '|']));
    let how = how.trim().trim_end_matches("[All reasons](README.md)").trim();
    let is_somebody = ["tenant", "platform operator", "nobody"]
        .iter()
        .any(|person| who.contains(person));
    let gaps = [
        (!is_somebody, "who can mend it"),
        (cell("on").is_none(), "on what it stands"),
        (cell("where").is_none(), "in which condition it stands"),
        (cell("mends itself").is_none(), "whether it mends itself"),
        (
            cause.filter(|line| !line.trim().is_empty()).count() == 0,
            "the cause",
        ),
        (how.is_empty(), "what to do"),
    ];
    gaps.into_iter()
        .find_map(|(is_open, what)| is_open.then_some(what))
}

#[test]
fn a_page_that_leaves_something_open_is_seen() {
    let page = "# X\n\n| | |\n|---|---|\n| on | tasks |\n| where | `Ready=False` |\n| who can mend it | tenant |\n\
                | mends itself | no |\n\nA cause.\n\n## What to do\n\nThis.\n\n[All reasons](README.md)\n";
    assert_eq!(lacks(page), None);
    for (without, gap) in [
        ("tenant", "who can mend it"),
        ("| who can mend it | tenant |\n", "who can mend it"),
        ("| on | tasks |\n", "on what it stands"),
        ("| where | `Ready=False` |\n", "in which condition it stands"),
        ("| mends itself | no |\n", "whether it mends itself"),
        ("A cause.\n", "the cause"),
        ("This.\n", "what to do"),
        ("## What to do\n", "what to do"),
    ] {
        assert_eq!(lacks(&page.replace(without, "")), Some(gap), "{without}");
    }
}

/// Where reasons are given.
const GIVING: [&str; 3] = ["src/plan", "src/controllers", "src/remote"];

/// A reason that the code can give must not be called one that it never gives, and the other way round.
#[test]
fn the_pages_know_which_reasons_are_given() {
    let code: String = files("rs")
        .iter()
        .filter(|path| GIVING.iter().any(|folder| path.starts_with(folder)))
        .filter(|path| !path.iter().any(|part| part == "tests" || part == "tests.rs"))
        .map(|path| read(path.to_str().unwrap()))
        .map(|text| text.split("#[cfg(test)]").next().unwrap_or_default().to_owned())
        .collect();
    for reason in Reason::ALL {
        let word = format!("Reason::{reason}");
        let is_named = code
            .match_indices(&word)
            .any(|(at, _)| !code[at + word.len()..].starts_with(|c: char| c.is_alphanumeric()));
        // In the table of what is wrong with kubeconfigs.
        let is_given = is_named || code.contains(&format!(": {reason},\n"));
        let page = read(&format!("docs/reasons/{reason}.md"));
        assert_eq!(page.contains(RESERVED), !is_given, "{reason}: given: {is_given}");
    }
}

#[test]
fn the_pages_say_whether_a_reason_stalls() {
    for reason in Reason::ALL {
        let page = read(&format!("docs/reasons/{reason}.md"));
        if page.contains(RESERVED) {
            continue;
        }
        let is_end = page.contains("`JobFailed=True`");
        assert_eq!(
            page.contains("`Stalled=True`"),
            reason.is_stalled() || is_end,
            "{reason}"
        );
    }
}

#[test]
fn every_failure_has_a_section_with_its_sentence() {
    let page = read("docs/reasons/failures.md");
    let sections: BTreeMap<_, _> = page
        .split("\n## ")
        .skip(1)
        .filter_map(|section| section.split_once('\n'))
        .collect();
    for reason in termination::TerminationReason::ALL {
        let section = sections.get(reason.as_str());
        if reason.is_success() {
            assert!(section.is_none(), "{reason:?} is no failure");
            continue;
        }
        let section = section.unwrap_or_else(|| panic!("{reason:?} has no section"));
        assert!(
            section.contains(&format!("> {}\n", reason.sentence())),
            "{reason:?}: {section}"
        );
    }
    assert_eq!(
        sections.len(),
        termination::TerminationReason::ALL
            .iter()
            .filter(|r| !r.is_success())
            .count()
            + 2
    );
    let (own, hidden) = (
        sections["A registry of your own"],
        renderhub::plan::task::status::OUT_OF_SIGHT,
    );
    assert!(own.contains(&format!("> {hidden}\n")), "{own}");
}

// === flags and metrics ===

/// The rows of a page's tables by their first cell, without backticks.
fn rows(page: &str) -> BTreeMap<String, Vec<String>> {
    let cells = |line: &str| -> Vec<String> {
        let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
        inner.split(" |").map(|cell| cell.trim().to_owned()).collect()
    };
    let rows = page.lines().filter(|line| line.starts_with("| `")).map(cells);
    rows.map(|row| (row[0].trim_matches('`').to_owned(), row))
        .collect()
}

#[test]
fn every_flag_is_documented_with_its_variable_and_default() {
    let documented: BTreeMap<_, _> = rows(&read("docs/operations/flags.md"))
        .into_iter()
        .filter(|(flag, _)| flag.starts_with("--"))
        .collect();
    let command = HubCli::command();
    let run = command.find_subcommand("run").unwrap();
    let mut flags = BTreeSet::new();
    for argument in run
        .get_arguments()
        .filter(|a| !["help", "version"].contains(&a.get_id().as_str()))
    {
        let flag = format!("--{}", argument.get_long().unwrap());
        let row = documented
            .get(&flag)
            .unwrap_or_else(|| panic!("{flag} is not documented"));
        let variable = argument
            .get_env()
            .unwrap_or_else(|| panic!("{flag} has no variable"));
        assert_eq!(row[1], format!("`{}`", variable.to_str().unwrap()), "{flag}");
        match argument.get_default_values() {
            [] => assert_eq!(row[2] == "*required*", argument.is_required_set(), "{flag}"),
            [default] => assert_eq!(row[2], format!("`{}`", default.to_str().unwrap()), "{flag}"),
            many => panic!("{flag}: {many:?}"),
        }
        flags.insert(flag);
    }
    assert_eq!(documented.into_keys().collect::<BTreeSet<_>>(), flags);
}

#[test]
fn every_metric_is_documented_with_its_type_and_labels() {
    let (metrics, registry) = Metrics::new();
    touch(&metrics);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let types = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let shown: BTreeMap<_, _> = types
        .map(|(name, type_)| {
            let suffix = if type_ == "counter" { "_total" } else { "" };
            let name = format!("{name}{suffix}");
            let labels = labels_of(&text, &name);
            (name, (type_.to_owned(), labels))
        })
        .collect();
    let documented: BTreeMap<_, _> = rows(&read("docs/operations/metrics.md"))
        .into_iter()
        .filter(|(name, _)| name.starts_with("renderhub_"))
        .map(|(name, row)| (name, (row[1].clone(), row[2].clone())))
        .collect();
    assert_eq!(documented, shown);
}

#[test]
fn every_stage_of_a_call_is_explained_and_the_runbook_says_what_it_points_to() {
    let metrics = rows(&read("docs/operations/metrics.md"));
    let runbook = read("docs/runbooks/cluster-not-connected.md");
    for stage in TransportStage::ALL {
        assert!(metrics.contains_key(stage.as_str()), "{stage}");
        let points = runbook.lines().any(|line| {
            let is_row = line.starts_with("| `Transport`");
            is_row && line.contains(&format!("`{stage}`"))
        });
        assert!(points, "{stage}");
    }
}

#[test]
fn every_kind_of_a_pass_that_failed_is_explained() {
    let metrics = read("docs/operations/metrics.md");
    for file in [
        "src/kubernetes/apply/error.rs",
        "src/controllers/tasks/outcome.rs",
    ] {
        let source = read(file);
        let (_, kinds) = source.split_once("fn kind(self)").expect("it is there");
        let kinds = kinds.split("\n    }\n").next().expect("it ends");
        let kinds: Vec<&str> = kinds.split('"').skip(1).step_by(2).collect();
        assert!(!kinds.is_empty(), "{file}");
        for kind in kinds {
            let is_row = |line: &str| {
                let cell = line.strip_prefix('|').and_then(|line| line.split('|').next());
                cell.is_some_and(|cell| cell.contains(&format!("`{kind}`")))
            };
            assert!(metrics.lines().any(is_row), "{kind}");
        }
    }
}

/// Names of a metric's labels as the page writes them: `a`, `b`.
fn labels_of(text: &str, metric: &str) -> String {
    let sample = text
        .lines()
        .filter_map(|line| line.strip_prefix(metric))
        // A histogram has its own labels beside that of its buckets.
        .find_map(|rest| {
            let labels = rest.strip_prefix("_count").unwrap_or(rest);
            labels.strip_prefix('{')?.split_once('}')
        });
    let (labels, _) = sample.unwrap_or_default();
    let names = labels.split(',').filter_map(|label| label.split_once('='));
    names
        .map(|(name, _)| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Gives every metric a value, since one without may not be shown; a new field makes this fail to compile.
fn touch(metrics: &Metrics) {
    let Metrics {
        reconcile_seconds: _,
        reconcile_errors,
        work_queue_depth: _,
        waiting_tasks: _,
        tasks,
        api_calls: _,
        watch_errors,
        events_dropped: _,
        orphans_removed: _,
        adopted_jobs: _,
        unowned_namespaces: _,
        forged_statuses: _,
        verifications,
        prunes,
        mode: _,
        relaxed_settings,
        instance_state,
        preflight: _,
        clusters: of_clusters,
        queue: _,
        event_latency: _,
    } = metrics;
    touch_rows(metrics);
    let labels = ErrorLabels {
        kind: "test",
        stage: "test",
    };
    reconcile_errors.get_or_create(&labels).inc();
    tasks.get_or_create(&PhaseLabel { phase: "test" }).inc();
    watch_errors.get_or_create(&KindLabel { kind: "test" }).inc();
    let result = ResultLabel { result: "test" };
    _ = [verifications, prunes].map(|counted| counted.get_or_create(&result).inc());
    relaxed_settings
        .get_or_create(&SettingLabel { setting: "test" })
        .set(1);
    instance_state.get_or_create(&StateLabel { state: "test" }).set(1);
    touch_clusters(of_clusters);
    metrics.call("get", "tests", 200);
    metrics.pass(Duration::from_secs(1));
}

/// Those with more than one label.
fn touch_rows(metrics: &Metrics) {
    let row = QueueSample {
        namespace: "test",
        tasks: 1,
        oldest: Duration::ZERO,
    };
    metrics.queue.set_samples(std::iter::once(row));
    let mut journey = EventLatency::new(Instant::now());
    journey.waited(WaitReason::Turn, Duration::from_secs(1));
    metrics.event_latency.count(&journey, Instant::now());
    let labels = ModeLabels {
        mode: "test",
        tenant_identity: "test",
    };
    metrics.mode.get_or_create(&labels).set(1);
    let labels = FindingLabels {
        check: "test",
        result: "ok",
    };
    metrics.preflight.get_or_create(&labels).set(1);
}

fn touch_clusters(of_clusters: &ClusterMetrics) {
    let ClusterMetrics {
        connected,
        attempts,
        reconnects,
        probes: _,
        last_probe,
        requests: _,
    } = of_clusters;
    let label = clusters::label("test");
    connected.get_or_create(&label).set(1);
    attempts.get_or_create(&label).inc();
    reconnects.get_or_create(&label).inc();
    last_probe.get_or_create(&label).set(1);
    of_clusters.probe("test", clusters::PROBED[0]);
    of_clusters.request("test", 200);
}

// === pages and links ===

/// Targets of the links of a page, without code.
fn links(text: &str) -> Vec<String> {
    let mut in_code = false;
    let prose: String = text
        .lines()
        .filter(|line| {
            in_code ^= line.trim_start().starts_with("```");
            !in_code && !line.starts_with("    ")
        })
        .flat_map(|line| {
            let outside = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
            [outside, "\n".to_owned()]
        })
        .collect();
    prose
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.to_owned())
        .collect()
}

/// Anchors of a page's headings, as they are made by GitHub.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let slug = |line: &str| -> String {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(slug).collect()
}

/// The file that a link leads to, relative to the root.
fn target_of(page: &Path, target: &str) -> PathBuf {
    let mut path = page.parent().unwrap().to_owned();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => assert!(path.pop(), "{}: {target} leaves the repository", page.display()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    let pages = files("md");
    assert!(pages.len() > 40, "only {} pages found", pages.len());
    for page in &pages {
        let text = read(page.to_str().unwrap());
        for link in links(&text) {
            if ["https://", "mailto:"]
                .iter()
                .any(|scheme| link.starts_with(scheme))
            {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() {
                page.clone()
            } else {
                target_of(page, file)
            };
            let full = root().join(&target);
            let is_there = full.exists()
                && (anchor.is_empty()
                    || anchors(&std::fs::read_to_string(&full).unwrap_or_default()).contains(anchor));
            if !is_there {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn every_page_can_be_found_from_the_first_one() {
    let mut found = BTreeSet::new();
    let mut open = vec![PathBuf::from("README.md")];
    while let Some(page) = open.pop() {
        let full = root().join(&page);
        // A folder means its first page, as it does where people read it.
        let page = if full.is_dir() {
            page.join("README.md")
        } else {
            page
        };
        let is_page = page.extension().is_some_and(|e| e == "md") && root().join(&page).exists();
        if !is_page || !found.insert(page.clone()) {
            continue;
        }
        let targets = links(&read(page.to_str().unwrap()))
            .into_iter()
            .filter(|link| !link.contains("://"));
        open.extend(targets.map(|link| target_of(&page, link.split('#').next().unwrap_or_default())));
    }
    let docs: BTreeSet<_> = files("md")
        .into_iter()
        .filter(|path| path.starts_with("docs"))
        .collect();
    let lost: Vec<_> = docs.difference(&found).collect();
    assert!(
        lost.is_empty(),
        "no link leads to {lost:?}; docs/README.md is the place for one"
    );
}

#[test]
fn a_broken_link_and_a_missing_heading_are_seen() {
    let text = "# A title: `x`\n[a](b.md) `[c](d)` [e](#a-title-x)\n```\n[f](g)\n```\n    [h](i)\n";
    assert_eq!(links(text), ["b.md", "#a-title-x"]);
    assert_eq!(anchors(text), BTreeSet::from(["a-title-x".to_owned()]));
    assert_eq!(
        target_of(Path::new("docs/a/b.md"), "../c.md"),
        Path::new("docs/c.md")
    );
}
