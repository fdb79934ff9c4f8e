//! Clusters that show made-up objects with the hub's own marks, as many and as large as they like. The hub stays
//! far below the memory that the chart gives it, asks its own API server for nothing that they thought of, and serves others.

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock, Mutex};

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::stream;
use renderhub::api::conditions::ConditionType::JobSucceeded;
use renderhub::api::names::{TaskUid, job_name};
use renderhub_harness::hostile::{Asked, Hostile, Http, Reply};
use renderhub_harness::wait_for;
use serde_json::json;

use super::hostile::{Liars, version};
use support::away::{Cluster, LOOPBACK, away};
use support::{LIMIT, Stage};

/// The memory limit of the chart, in bytes.
const CHART: u64 = 256 << 20;
/// Servers of either kind that fill what they can.
const SERVERS: usize = 5;
/// Pages of made-up Jobs that are sent before the memory is measured.
const PAGES: usize = 60;
/// Most names of one sweep in the log.
const NAMED: usize = 20;
/// Sweeps of clusters that are under way at most, and not counted yet.
const AT_ONCE: usize = 16;
/// What a made-up object has in its name, and in the names that it gives to tasks.
const MARK: &str = "made-up";
/// Names that it gives to tasks: of one that is gone, and such as would lead elsewhere on the hub's API server.
const WAYS: [&str; 6] = [
    "gone",
    "made-up/status",
    "gone",
    "../../../../../../api/v1/namespaces/kube-system/secrets/made-up",
    "gone",
    "?limit=1&made-up",
];

/// UIDs of tasks that never were, and the names of what would be made for them.
static MADE_UP: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let of = |n: usize| {
        let task = format!("{n:08x}-0000-4000-8000-000000000000");
        let name = job_name(MARK, &TaskUid::new(&task));
        (task, name)
    };
    (0..20_000).map(of).collect()
});

/// What a server knows of the hub that asks it: who it is, and in which namespace its tenant is.
#[derive(Clone, Default)]
struct Knows(Arc<Mutex<String>>, String);

impl Knows {
    /// The hub's id, which it says when it asks for its Jobs.
    fn hub(&self, asked: &Asked) -> String {
        let mut known = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, rest)) = asked.target.split_once("hub-id%3D") {
            let end = rest.find(['%', '&']).unwrap_or(rest.len());
            rest[..end].clone_into(&mut known);
        }
        known.clone()
    }

    /// An object with the marks of the hub, the n-th of its kind.
    fn object(&self, hub: &str, n: usize) -> String {
        let (task, name) = &MADE_UP[n % MADE_UP.len()];
        let (way, url, hash) = (WAYS[n % WAYS.len()], "x".repeat(1_900), "ab".repeat(32));
        // Put together by hand, because thousands are sent at once.
        format!(
            r#"{{"apiVersion":"batch/v1","kind":"Job","metadata":{{"name":"{name}","namespace":"renders","uid":"{task}",
            "resourceVersion":"1","creationTimestamp":"2026-01-01T00:00:00Z","labels":{{
            "app.kubernetes.io/managed-by":"renderhub","renderhub.dev/hub-id":"{hub}","renderhub.dev/task-uid":"{task}"}},
            "annotations":{{"renderhub.dev/task-kind":"RenderTask","renderhub.dev/task-namespace":"{tenant}",
            "renderhub.dev/task-name":"{way}","renderhub.dev/spec-hash":"{hash}",
            "renderhub.dev/chart-url":"oci://registry.test/{url}:1"}},
            "managedFields":[{{"manager":"x","fieldsV1":{{"f:spec":{{}}}}}}]}}}}"#,
            tenant = self.1,
        )
    }

    /// One of endless pages of them.
    fn page(&self, asked: &Asked) -> Reply {
        let hub = self.hub(asked);
        let before = asked.target.split_once("continue=");
        let digits = before.map_or("0", |(_, rest)| rest.split('&').next().unwrap_or("0"));
        let page: usize = digits.parse().unwrap_or_default();
        let mut body = format!(
            r#"{{"metadata":{{"resourceVersion":"1","continue":"{}"}},"items":["#,
            page + 1
        );
        for n in 0..500 {
            let comma = if n == 0 { "" } else { "," };
            _ = write!(body, "{comma}{}", self.object(&hub, page * 500 + n));
        }
        Reply::whole(200, body + "]}")
    }
}

fn quiet() -> Reply {
    Reply::parts(stream::pending())
}

fn nothing() -> Reply {
    Reply::whole(200, r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#)
}

fn absent() -> Reply {
    Reply::whole(404, r#"{"reason":"NotFound"}"#)
}

/// Of small things as many as fit, in an object with all that is asked for.
fn bomb(object: &str, size: usize) -> Bytes {
    let begin = object.trim_end_matches('}').len();
    let begin = format!("{}}}", &object[..begin]);
    let things = "{},".repeat(size / 3);
    format!(r#"{begin},"spec":{{"template":{{"spec":{{"containers":[{things}{{}}]}}}}}}}}"#).into()
}

/// Shows one made-up Job, and answers everything about single objects with as many small things as it can.
fn bomber(knows: Knows) -> impl Fn(&Asked) -> Reply {
    move |asked| {
        let target = asked.target.as_str();
        let hub = knows.hub(asked);
        let size = if target.len() % 2 == 0 { 2 << 20 } else { 240 << 10 };
        match target {
            "/version" => version(),
            _ if target.contains("watch=true") => quiet(),
            _ if target.contains("/jobs?") && target.contains("hub-id%3D") => {
                let object = knows.object(&hub, 1);
                let page = format!(r#"{{"metadata":{{"resourceVersion":"1"}},"items":[{object}]}}"#);
                Reply::whole(200, page)
            }
            _ if target.contains("labelSelector") => nothing(),
            _ if target.contains("/jobs") || target.contains("/secrets") => {
                Reply::whole(200, bomb(&knows.object(&hub, 1), size))
            }
            _ => absent(),
        }
    }
}

/// Shows ever more Jobs to who watches them.
fn watch_filler(knows: Knows) -> impl Fn(&Asked) -> Reply {
    move |asked| match asked.target.as_str() {
        "/version" => version(),
        target if target.contains("watch=true") => quiet(),
        target if target.contains("/jobs?") => knows.page(asked),
        _ => absent(),
    }
}

/// Lists no Jobs of the hub's, and ever more objects that a sweep reads.
fn sweep_filler(knows: Knows) -> impl Fn(&Asked) -> Reply {
    move |asked| match asked.target.as_str() {
        "/version" => version(),
        target if target.contains("watch=true") => quiet(),
        target if target.contains("/jobs?") => {
            knows.hub(asked);
            nothing()
        }
        // Its end comes before the hub gives up, so that it sweeps.
        target if target.contains("continue=8") => nothing(),
        target if target.contains("/secrets?") => knows.page(asked),
        target if target.contains("/secrets/") || target.contains("/jobs/") => Reply::whole(500, MARK),
        _ => absent(),
    }
}

trait Invented {
    /// The most memory that the hub ever held, in bytes.
    fn peak(&self) -> Result<u64>;
    async fn finishes_others(&self, honest: &Cluster<'_>, prefix: &str) -> Result<()>;
    /// Fails where the hub's API server was asked for anything that a cluster thought of.
    async fn asked_nothing_made_up(&self) -> Result<()>;
}

impl Invented for Stage {
    fn peak(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.hub().pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next());
        Ok(kib.context("no VmHWM")?.parse::<u64>()? << 10)
    }

    async fn finishes_others(&self, honest: &Cluster<'_>, prefix: &str) -> Result<()> {
        for n in 0..3 {
            let task = self.submit_to(&format!("{prefix}-{n}"), honest).await?;
            honest.complete(&task).await?;
            self.condition(&task, JobSucceeded, "True", "JobSucceeded")
                .await?;
            honest.cleared(&task).await?;
        }
        Ok(())
    }

    async fn asked_nothing_made_up(&self) -> Result<()> {
        let events = self
            .plane
            .audit()?
            .since(renderhub_harness::audit::Mark::START)
            .await?;
        let own = events.iter().filter(|e| e.user == self.hub_user.name());
        let led = own.filter(|e| e.uri.contains(MARK) || e.uri.contains(".."));
        let led: Vec<_> = led.map(|e| &e.uri).collect();
        assert!(led.is_empty(), "{led:?}");
        Ok(())
    }
}

fn asked_for(server: &Hostile, what: impl Fn(&Asked) -> bool) -> usize {
    server.asked().iter().filter(|asked| what(asked)).count()
}

/// Holds: B1, B5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_made_up_job_costs_the_hub_nothing_whatever_is_said_of_it() -> Result<()> {
    let stage = Stage::with_flags("bomb", &[LOOPBACK, "--gc-interval=1s"]).await?;
    let honest = stage.register(away().await?, json!({})).await?;
    stage.connected(&honest.name, "True", "Connected").await?;
    let before = stage.peak()?;
    let mut servers = Vec::new();
    for n in 0..3 {
        let knows = Knows(Arc::default(), stage.scope.tenant.clone());
        let server = Hostile::start(Http::Two, bomber(knows)).await?;
        let name = stage.register_liar(&format!("bomber-{n}"), &server).await?;
        stage.connected(&name, "True", "Connected").await?;
        stage
            .submit_with(&format!("for-{n}"), json!({"clusterName": name}))
            .await?;
        servers.push(server);
    }
    for server in &servers {
        wait_for(
            "a sweep to ask for the Job, and a task to be sent",
            LIMIT,
            async || {
                let single = asked_for(server, |asked| {
                    asked.method == "GET" && asked.target.contains("/jobs/render-made-up")
                });
                let sent = asked_for(server, |asked| asked.method == "POST");
                Ok((single >= 3 && sent >= 1).then_some(()))
            },
        )
        .await?;
    }
    stage.finishes_others(&honest, "honest").await?;
    let peak = stage.peak()?;
    println!(
        "the hub held {} KiB before, and at most {} KiB",
        before >> 10,
        peak >> 10
    );
    assert!(peak < CHART / 2, "{} KiB", peak >> 10);
    stage.asked_nothing_made_up().await?;
    stage.passed();
    Ok(())
}

/// Holds: B5, B9, B15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_clusters_that_show_ever_more_share_one_bound() -> Result<()> {
    let stage = Stage::with_flags("fill", &[LOOPBACK, "--gc-interval=1s"]).await?;
    let honest = stage.register(away().await?, json!({})).await?;
    stage.connected(&honest.name, "True", "Connected").await?;
    let before = stage.peak()?;
    let (mut watches, mut sweeps) = (Vec::new(), Vec::new());
    for n in 0..SERVERS {
        let knows = Knows(Arc::default(), stage.scope.tenant.clone());
        let server = Hostile::start(Http::Two, watch_filler(knows.clone())).await?;
        stage.register_liar(&format!("watch-{n}"), &server).await?;
        watches.push(server);
        let server = Hostile::start(Http::Two, sweep_filler(knows)).await?;
        stage.register_liar(&format!("sweep-{n}"), &server).await?;
        sweeps.push(server);
    }
    stage.finishes_others(&honest, "meanwhile").await?;
    wait_for("made-up Jobs to be listed", LIMIT, async || {
        let pages = |server| asked_for(server, |asked| asked.target.contains("/jobs?"));
        let all: usize = watches.iter().map(pages).sum();
        Ok((all >= PAGES && watches.iter().all(|server| pages(server) > 0)).then_some(()))
    })
    .await?;
    for server in &sweeps {
        wait_for("made-up Secrets to be listed to their end", LIMIT, async || {
            let ends = asked_for(server, |asked| asked.target.contains("continue=8"));
            Ok((ends >= 1).then_some(()))
        })
        .await?;
    }
    stage.finishes_others(&honest, "afterwards").await?;
    let peak = stage.peak()?;
    println!(
        "the hub held {} KiB before, and at most {} KiB",
        before >> 10,
        peak >> 10
    );
    assert!(peak < CHART, "{} KiB", peak >> 10);
    // Objects in an endless list are counted; of their names, which the clusters chose, few are logged. A sweep ends after four
    // minutes at the latest.
    let log = wait_for("a sweep to be counted", 5 * LIMIT, async || {
        let log = stage.hub().log();
        Ok(log.contains("a sweep met more objects").then_some(log))
    })
    .await?;
    let counted = log.matches("a sweep met more objects").count();
    let named = log.matches("render-made-up").count();
    assert!(
        counted > 0 && named <= NAMED * (counted + AT_ONCE),
        "{named} names in {counted} sweeps"
    );
    stage.asked_nothing_made_up().await?;
    stage.passed();
    Ok(())
}
