//! A hub among clusters that lie, flood and hang: each is reported by its reason, none of their text is repeated, and the work on
//! another cluster goes on.

use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::stream;
use renderhub::api::conditions::ConditionType::{JobScheduled, JobSucceeded};
use renderhub_harness::audit::Mark;
use renderhub_harness::hostile::{Asked, Face, Hostile, Http, Reply, Shown, idle};
use renderhub_harness::{apply, wait_for};
use serde_json::{Value, json};

use support::away::{LOOPBACK, away};
use support::{CANARY, LIMIT, Stage};

/// Most that all of them together may cost a hub without optimisation; one alone may cost 16 MiB, which `hostile_remote` holds.
const MORE: u64 = 32 << 20;

pub fn version() -> Reply {
    let body = json!({"major": "1", "minor": "36", "gitVersion": CANARY});
    Reply::whole(200, body.to_string())
}

/// A server that seems sound until it is asked for Jobs.
fn lists(asked: &Asked, list: fn(&Asked) -> Reply) -> Reply {
    match asked.target.as_str() {
        "/version" => version(),
        target if target.contains("/jobs") => list(asked),
        _ => Reply::whole(404, json!({"reason": "NotFound", "message": CANARY}).to_string()),
    }
}

fn endless(asked: &Asked) -> Reply {
    let part = Bytes::from(vec![b' '; 64 << 10]);
    match asked.target.as_str() {
        "/version" => version(),
        _ => Reply::parts(stream::repeat(part)),
    }
}

/// A list of nothing, and a watch that is one line without an end.
fn one_line(asked: &Asked) -> Reply {
    lists(asked, |asked| {
        if asked.target.contains("watch=true") {
            Reply::parts(stream::repeat(Bytes::from(vec![b'x'; 64 << 10])))
        } else {
            empty()
        }
    })
}

/// A list of nothing, and events of Jobs that are not the hub's, as many as can be sent.
fn flood(asked: &Asked) -> Reply {
    lists(asked, |asked| {
        if !asked.target.contains("watch=true") {
            return empty();
        }
        let event = |n: u64| {
            let labels = json!({"renderhub.dev/task-uid": CANARY, "renderhub.dev/hub-id": "main-00000000"});
            let meta = json!({"name": format!("render-{n}"), "uid": n.to_string(), "labels": labels,
                "resourceVersion": n.to_string()});
            Bytes::from(format!(
                "{}\n",
                json!({"type": "ADDED", "object": {"metadata": meta}})
            ))
        };
        Reply::parts(stream::iter((1..).map(event)))
    })
}

fn empty() -> Reply {
    Reply::whole(
        200,
        json!({"metadata": {"resourceVersion": "1"}, "items": []}).to_string(),
    )
}

fn status(code: u16, reason: &str) -> Reply {
    let body = json!({"kind": "Status", "code": code, "reason": reason, "message": CANARY});
    Reply::whole(code, body.to_string())
}

/// One byte a second.
fn drip() -> Reply {
    let byte = |()| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Some((Bytes::from_static(b" "), ()))
    };
    Reply::parts(stream::unfold((), byte))
}

struct Liar {
    name: &'static str,
    face: Face,
    does: fn(&Asked) -> Reply,
    /// What the hub says of it, and so of the task that waits for it.
    status: &'static str,
    reason: &'static str,
}

const fn liar(
    name: &'static str,
    does: fn(&Asked) -> Reply,
    status: &'static str,
    reason: &'static str,
) -> Liar {
    Liar {
        name,
        face: Face {
            http: Http::Two,
            shown: Shown::Right,
        },
        does,
        status,
        reason,
    }
}

const fn showing(name: &'static str, shown: Shown) -> Liar {
    let Liar { does, .. } = liar("", |_| version(), "", "");
    Liar {
        name,
        face: Face {
            http: Http::Two,
            shown,
        },
        does,
        status: "False",
        reason: "Unreachable",
    }
}

const LIARS: &[Liar] = &[
    liar("hangs", |_| Reply::Never, "False", "Unreachable"),
    liar("drips", |_| drip(), "False", "Unreachable"),
    liar(
        "is-busy",
        |_| {
            Reply::Whole(
                429,
                vec![("retry-after", "86400".to_owned())],
                Bytes::from(CANARY),
            )
        },
        "False",
        "Unreachable",
    ),
    liar(
        "redirects",
        |_| {
            Reply::Whole(
                302,
                vec![("location", format!("https://{CANARY}.test/"))],
                Bytes::new(),
            )
        },
        "False",
        "Unreachable",
    ),
    liar(
        "is-no-cluster",
        |_| Reply::whole(200, CANARY),
        "False",
        "Incompatible",
    ),
    liar(
        "knows-nobody",
        |_| status(401, "Unauthorized"),
        "False",
        "Unauthorized",
    ),
    liar(
        "forbids",
        |asked| lists(asked, |_| status(403, "Forbidden")),
        "False",
        "Forbidden",
    ),
    liar(
        "forgets",
        |asked| lists(asked, |_| status(410, "Expired")),
        "False",
        "Incompatible",
    ),
    liar("lists-for-ever", endless, "False", "Incompatible"),
    liar("says-one-line", one_line, "False", "Incompatible"),
    liar("floods", flood, "True", "Connected"),
    showing("has-another-authority", Shown::OtherAuthority),
    showing("has-another-name", Shown::OtherName),
    showing("is-over", Shown::Expired),
];

pub trait Liars {
    /// Registers a server as a cluster; its name.
    async fn register_liar(&self, liar: &str, server: &Hostile) -> Result<String>;
    /// The same by a name, where the hub may be kept away from it.
    async fn register_server(&self, name: &str, server: &Hostile, is_kept_away: bool) -> Result<String>;
    /// Asserts that the log has the transitions of a connection, and says of each liar with another certificate how far it came.
    fn log_tells_of(&self, honest: &str, liars: &[String]);
    /// Asserts that the hub used its rights since then for statuses, events and its own records, and for no object that a
    /// cluster could have asked for.
    async fn hub_writes_only_its_own_words(&self, since: Mark) -> Result<()>;
    /// Bytes of memory that the hub holds.
    fn resident(&self) -> Result<u64>;
}

impl Liars for Stage {
    async fn register_liar(&self, liar: &str, server: &Hostile) -> Result<String> {
        self.register_server(liar, server, false).await
    }

    async fn register_server(&self, name: &str, server: &Hostile, is_kept_away: bool) -> Result<String> {
        let name = format!("{name}-{}", self.scope.tenant);
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "clusters": [{"name": "x", "cluster": {
                "server": format!("https://{}", server.address()),
                "certificate-authority-data": STANDARD.encode(server.authority()),
            }}],
            "users": [{"name": "x", "user": {"token": "a-token"}}],
        });
        self.put_kubeconfig(&name, &kubeconfig.to_string()).await?;
        let cluster = json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": "RenderCluster", "metadata": {"name": name},
            "spec": {
                "kubeConfig": {"secretRef": {"name": name}}, "renderNamespace": "renders",
                "allowedNamespaces": [self.scope.tenant], "registries": [self.scope.tenant],
                "disconnect": is_kept_away,
            },
        });
        apply::object(&self.admin, cluster).await?;
        Ok(name)
    }

    fn log_tells_of(&self, honest: &str, liars: &[String]) {
        let events = self.log_lines("a connection handled an event");
        let span = json!([{"name": "connection", "cluster": honest}]);
        let is_told = |line: &Value| line["to"] == "connected" && line["spans"] == span;
        assert!(events.iter().any(is_told), "{honest}");
        let lost = self.log_lines("a cluster is not connected");
        for (liar, name) in LIARS.iter().zip(liars) {
            let mut lines = lost.iter().filter(|line| line["cluster"] == *name);
            let is_stranger = liar.face.shown != Shown::Right;
            assert_eq!(
                lines.any(|line| line["stage"] == "tls"),
                is_stranger,
                "{}",
                liar.name
            );
        }
    }

    async fn hub_writes_only_its_own_words(&self, since: Mark) -> Result<()> {
        let events = self.plane.audit()?.since(since).await?;
        let own = events
            .iter()
            .filter(|e| e.user == self.hub_user.name() && e.is_write());
        let expected = [
            "patch rendertasks",
            "patch rendertasks/status",
            "patch renderclusters/status",
            "patch clusterregistries/status",
            "create events",
            "patch events",
            "update leases",
            "create configmaps",
            "patch configmaps",
        ];
        for event in own {
            let action = event.action();
            assert!(expected.contains(&action.as_str()), "{action} {}", event.uri);
        }
        Ok(())
    }

    fn resident(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.hub().pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line
            .and_then(|line| line.split_whitespace().next())
            .context("no VmRSS")?;
        Ok(kib.parse::<u64>()? << 10)
    }
}

/// Holds: B2.
///
/// More tasks than the hub has workers and passes for one cluster wait for a cluster that answers probes and watches and no work;
/// those of the hub's own cluster and of another one go on, and the cluster is reported as down in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_answers_probes_and_no_work_holds_up_only_its_own_tasks() -> Result<()> {
    let stage = Stage::with_flags("idle", &[LOOPBACK]).await?;
    let honest = stage.register(away().await?, json!({})).await?;
    stage.connected(&honest.name, "True", "Connected").await?;
    let server = Hostile::start(Http::Two, idle).await?;
    let name = stage.register_liar("idle", &server).await?;
    stage.connected(&name, "True", "Connected").await?;
    let mut waiting = Vec::new();
    for n in 0..20 {
        let task = json!({"clusterName": name});
        waiting.push(stage.submit_with(&format!("idle-{n}"), task).await?);
    }
    let writes = || {
        server
            .asked()
            .into_iter()
            .filter(|asked| asked.method != "GET")
            .count()
    };
    wait_for("work that is not answered", LIMIT, async || {
        Ok((writes() >= 8).then_some(()))
    })
    .await?;
    for n in 0..3 {
        let here = stage.submit_with(&format!("here-{n}"), json!({})).await?;
        stage
            .condition(&here, JobScheduled, "True", "JobScheduled")
            .await?;
        let there = stage.submit_to(&format!("honest-{n}"), &honest).await?;
        honest.complete(&there).await?;
        stage
            .condition(&there, JobSucceeded, "True", "JobSucceeded")
            .await?;
    }
    stage.connected(&name, "False", "Unreachable").await?;
    for task in &waiting {
        stage
            .condition(task, JobScheduled, "False", "WaitingForCluster")
            .await?;
    }
    stage.passed();
    Ok(())
}

/// Holds: H1, H2, H3, H4, H8, H9, E3, K4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_that_lie_flood_and_hang_disturb_no_other() -> Result<()> {
    let stage = Stage::with_flags("liars", &[LOOPBACK, "--log-level=trace"]).await?;
    let honest = stage.register(away().await?, json!({})).await?;
    stage.connected(&honest.name, "True", "Connected").await?;
    let (before, start) = (stage.resident()?, stage.plane.audit()?.mark().await?);
    let (mut servers, mut names) = (Vec::new(), Vec::new());
    for liar in LIARS {
        let server = Hostile::start(liar.face, liar.does).await?;
        names.push(stage.register_liar(liar.name, &server).await?);
        servers.push(server);
    }
    let mut waiting = Vec::new();
    for name in &names {
        let task = json!({"clusterName": name});
        waiting.push(stage.submit_with(&format!("for-{name}"), task).await?);
    }
    for (liar, name) in LIARS.iter().zip(&names) {
        stage
            .connected(name, liar.status, liar.reason)
            .await
            .with_context(|| liar.name)?;
    }
    // The others' work goes on.
    for n in 0..3 {
        let task = stage.submit_to(&format!("honest-{n}"), &honest).await?;
        honest.complete(&task).await?;
        stage
            .condition(&task, JobSucceeded, "True", "JobSucceeded")
            .await?;
        honest.cleared(&task).await?;
    }
    for task in &waiting {
        stage
            .condition(task, JobScheduled, "False", "WaitingForCluster")
            .await?;
    }
    let more = stage.resident()?.saturating_sub(before);
    println!("all of them cost the hub {} KiB", more >> 10);
    assert!(more <= MORE, "{} KiB", more >> 10);
    for (liar, server) in LIARS.iter().zip(&servers) {
        let writes = server.asked().into_iter().filter(|asked| asked.method != "GET");
        let writes: Vec<_> = writes.map(|asked| asked.target).collect();
        // Whether it still has its rights is a question.
        let writes: Vec<_> = writes
            .into_iter()
            .filter(|target| !target.ends_with("/selfsubjectaccessreviews"))
            .collect();
        assert!(writes.is_empty(), "{}: {writes:?}", liar.name);
        if liar.face.shown != Shown::Right {
            assert!(server.asked().is_empty(), "{} was told something", liar.name);
        }
    }
    stage.log_tells_of(&honest.name, &names);
    stage.hub_writes_only_its_own_words(start).await?;
    wait_for("the hub to be ready all the while", LIMIT, async || {
        Ok((stage.hub().get("/readyz").await?.0 == 200).then_some(()))
    })
    .await?;
    stage.passed();
    Ok(())
}
