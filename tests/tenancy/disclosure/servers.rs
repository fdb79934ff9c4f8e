//! What an API server says, or who answers in its place, is not passed on.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::try_join_all;
use renderhub::api::RenderTaskStatus;
use renderhub::api::conditions::ConditionType::JobScheduled;
use renderhub_harness::wait_for;
use serde_json::json;

use support::api::PLATFORM_KINDS;
use support::proxy::Proxy;
use support::scan::FOREIGN;
use support::{CANARY, LIMIT, Stage, has};

/// Tasks that share the lies, so that none has to wait long for the hub to ask again.
const TASKS: usize = 24;

/// Responses with text that the hub must not repeat.
fn lies() -> Vec<(u16, Vec<u8>)> {
    let odd = format!("\u{1b}[31m{FOREIGN}\u{1b}[0m\r\n{{\"level\":\"ERROR\",\"message\":\"{FOREIGN}\"}}");
    let status = |code: u16| {
        let text = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "message": odd,
            "reason": FOREIGN, "details": {"name": FOREIGN, "causes": [{"reason": FOREIGN, "message": odd}]}});
        (code, text.to_string().into_bytes())
    };
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": FOREIGN},
        "data": {"password": STANDARD.encode(CANARY)}, "stringData": {"password": CANARY}});
    let secret = secret.to_string();
    vec![
        // What kube itself logs where it cannot make the wanted object of it.
        (200, secret.as_bytes()[..secret.len() - 1].to_vec()),
        (
            200,
            json!({"metadata": FOREIGN, "items": FOREIGN, "data": FOREIGN})
                .to_string()
                .into_bytes(),
        ),
        status(500),
        (503, odd.clone().into_bytes()),
        status(422),
        (500, FOREIGN.repeat(10 * 1024 * 1024 / FOREIGN.len()).into_bytes()),
    ]
}

/// What a request is for: verb, resource, and whether it is a watch. All that is not named here counts as one resource, so that
/// the hub is told few lies of what it seldom asks for, such as its Lease.
fn class(method: &str, path: &str) -> String {
    let bare = path.split('?').next().unwrap_or_default();
    let of_tasks = [
        "clusterrendertasks",
        "rendertasks",
        "secrets",
        "jobs",
        "pods",
        "events",
    ];
    let resource = PLATFORM_KINDS
        .iter()
        .map(String::as_str)
        .chain(of_tasks)
        .chain(["namespaces/kube-system"])
        .find(|name| bare.contains(name))
        .unwrap_or("others");
    let status = if bare.ends_with("/status") { "/status" } else { "" };
    let watch = if path.contains("watch=true") { " watch" } else { "" };
    format!("{method} {resource}{status}{watch}")
}

/// Holds: E3, E8.
#[tokio::test]
async fn nothing_that_an_api_server_says_is_repeated() -> Result<()> {
    let mut stage = Stage::without_hub("answers", &["--log-level=trace"]).await?;
    stage.make_registry().await?;
    let proxy = Proxy::start(stage.hub_user.client().await?).await?;
    let count_of_lies = Arc::new(Mutex::new(BTreeMap::<String, usize>::new()));
    let (counts, is_started) = (count_of_lies.clone(), Arc::new(AtomicBool::new(false)));
    let started = is_started.clone();
    proxy.lie(move |method, path| {
        let class = class(method.as_str(), path);
        // What the start checks has to be true, or there is no start.
        let is_of_start = class == "GET namespaces/kube-system" || class.ends_with(" watch");
        if !is_of_start && !started.load(Ordering::Relaxed) {
            return None;
        }
        // A watch waits longer after each failure, and the first question of all is repeated after two seconds.
        let most = match class.as_str() {
            "GET namespaces/kube-system" => 2,
            _ if method == "GET" => 3,
            _ => 6,
        };
        let mut count_of_lies = counts.lock().expect("no test panics here");
        let number = count_of_lies.entry(class).or_default();
        *number += 1;
        // A server that reports a deletion is trusted; no text is involved.
        let is_claim = |code: u16| method == "DELETE" && code == 200;
        let lies = lies().into_iter().filter(|(code, _)| !is_claim(*code));
        lies.take(most).nth(*number - 1)
    });
    let hub = stage.spawn_hub_with(&proxy.kubeconfig()?, &[("RUST_LOG", "trace")])?;
    hub.wait_ready().await?;
    stage.hub = Some(hub);
    is_started.store(true, Ordering::Relaxed);
    let mut tasks = Vec::new();
    for number in 0..TASKS {
        tasks.push(stage.submit(stage.task(&format!("task-{number}"))).await?);
    }
    try_join_all(tasks.iter().map(async |task| {
        // What an API server does not accept is tried again, ever later.
        let is_known = |s: &RenderTaskStatus| {
            has(s, JobScheduled, "True", "JobScheduled") || has(s, JobScheduled, "False", "JobRefused")
        };
        let status = stage.status_when(task, "a Job or a refusal", is_known).await?;
        if has(&status, JobScheduled, "False", "JobRefused") {
            return Ok(());
        }
        stage.succeeds(task).await
    }))
    .await?;
    let count_of_lies = count_of_lies.lock().expect("no test panics here").clone();
    for wanted in [
        "GET namespaces/kube-system",
        "GET rendertasks",
        "GET jobs",
        "GET pods",
        "GET secrets",
        "GET clusterregistries",
        "PATCH rendertasks",
        "POST secrets",
        "POST jobs",
        "PATCH rendertasks/status",
        "DELETE jobs",
        "DELETE secrets",
        "POST events",
    ] {
        assert!(
            count_of_lies.keys().any(|class| class.starts_with(wanted)),
            "{wanted} was never lied to: {count_of_lies:?}"
        );
    }
    wait_for("a word of the hub on what it heard", LIMIT, async || {
        let log = stage.hub().log();
        Ok((log.contains("watch broke") && log.contains("a pass failed")).then_some(()))
    })
    .await?;
    stage.passed();
    Ok(())
}
