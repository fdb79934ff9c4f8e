//! What hostile clusters answer.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::stream;
use renderhub::api::labels;
use renderhub::api::names::{TaskUid, job_name};
use renderhub_harness::Hostile;
use renderhub_harness::hostile::{Asked, Reply};
use serde_json::{Value, json};

/// Namespace of their Jobs.
pub const NAMESPACE: &str = "renders";
/// Bytes of an answer of many small things: below what is read of one at most.
const MANY: usize = 7 << 20;
/// Time between two parts of a slow answer: shorter than the longest pause that is waited for.
const SLOW: Duration = Duration::from_secs(5);
/// Time between two bookmarks of a watch that is sound.
const BOOKMARK: Duration = Duration::from_secs(20);

/// A way to be hostile: answers, by the id of the hub that asks.
pub type Way = fn(&Asked, &str) -> Reply;

/// All of them by name.
pub const WAYS: [(&str, Way); 9] = [
    ("silent", |_, _| Reply::Never),
    ("drips", |_, _| drip()),
    ("no-work", no_work),
    ("items", items),
    ("pages", pages),
    ("slow-pages", slow_pages),
    ("floods", floods),
    ("names", names),
    ("busy", |_, _| busy()),
];

fn version() -> Reply {
    Reply::whole(
        200,
        json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3"}).to_string(),
    )
}

/// Whether it is asked for many, and not for one.
fn is_list(asked: &Asked) -> bool {
    let path = asked.target.split('?').next().unwrap_or_default();
    asked.method == "GET"
        && (path.ends_with("/jobs") || path.ends_with("/secrets") || path.ends_with("/configmaps"))
}

fn is_watch(asked: &Asked) -> bool {
    asked.target.contains("watch=true")
}

/// Answers probes and watches as a cluster does, lists of nothing, and leaves the rest to the way.
fn connected(asked: &Asked, rest: impl Fn(&Asked) -> Reply) -> Reply {
    match asked.target.as_str() {
        "/version" => version(),
        _ if is_watch(asked) => Reply::parts(stream::unfold(1_u64, |n| async move {
            tokio::time::sleep(BOOKMARK).await;
            Some((
                line(
                    "BOOKMARK",
                    &json!({"metadata": {"resourceVersion": n.to_string()}}),
                ),
                n + 1,
            ))
        })),
        target if target.contains("/namespaces/kube-system") || target.contains("selfsubject") => {
            Reply::whole(
                404,
                json!({"kind": "Status", "code": 404, "reason": "NotFound"}).to_string(),
            )
        }
        _ => rest(asked),
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    format!("{}\n", json!({"type": kind, "object": object})).into()
}

fn list(items: &[Value], more: &str) -> Reply {
    let body = json!({"metadata": {"resourceVersion": "1", "continue": more}, "items": items});
    Reply::whole(200, body.to_string())
}

fn no_work(asked: &Asked, _: &str) -> Reply {
    connected(asked, |asked| {
        if is_list(asked) {
            list(&[], "")
        } else {
            Reply::Never
        }
    })
}

/// A Job or Secret that seems to be the hub's, of a task that there never was.
fn made_up(hub: &str, number: usize, namespace: &str, name: &str) -> Value {
    let uid = format!("0f5a4e0c-0001-4000-8000-{number:012x}");
    json!({"metadata": {
        "name": job_name("shop", &TaskUid::new(&uid)), "namespace": NAMESPACE, "uid": uid, "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {labels::MANAGED_BY: labels::MANAGED_BY_VALUE, labels::HUB_ID: hub, labels::TASK_UID: uid},
        "annotations": {
            labels::TASK_KIND: "RenderTask", labels::TASK_NAMESPACE: namespace, labels::TASK_NAME: name,
            labels::SPEC_HASH: "ab".repeat(32),
        },
    }})
}

/// One made-up Job, and for each single question 7 MiB of small things.
fn items(asked: &Asked, hub: &str) -> Reply {
    connected(asked, |asked| {
        if is_list(asked) {
            return list(&[made_up(hub, 1, "team-a", "shop")], "");
        }
        let many = "{},".repeat(MANY / 3);
        let metadata = &made_up(hub, 1, "team-a", "shop")["metadata"];
        Reply::whole(
            200,
            format!(
                "{{\"metadata\":{metadata},\"spec\":{{\"template\":{{\"spec\":{{\"containers\":[{many}{{}}]}}}}}},\
                 \"items\":[{many}{{}}]}}"
            ),
        )
    })
}

fn pages(asked: &Asked, hub: &str) -> Reply {
    connected(asked, |asked| match is_list(asked) {
        true if asked.target.contains("continue=") => list(&[made_up(hub, 2, "team-a", "shop")], "more"),
        true => list(&[], "more"),
        false => Reply::Never,
    })
}

fn slow_pages(asked: &Asked, hub: &str) -> Reply {
    let object = made_up(hub, 3, "team-a", "shop").to_string();
    connected(asked, |asked| {
        if !is_list(asked) {
            return Reply::Never;
        }
        let parts = [
            "{\"metadata\":{\"resourceVersion\":\"1\",\"continue\":\"more\"},".to_owned(),
            format!("\"items\":[{object}"),
            "]}".to_owned(),
        ];
        let parts = stream::unfold(parts.into_iter(), |mut parts| async move {
            let part = parts.next()?;
            tokio::time::sleep(SLOW).await;
            Some((Bytes::from(part), parts))
        });
        Reply::parts(parts)
    })
}

/// Events of ever new Jobs, as many as can be sent.
fn floods(asked: &Asked, hub: &str) -> Reply {
    let hub = hub.to_owned();
    if is_watch(asked) {
        let event = move |n: usize| line("ADDED", &made_up(&hub, n % 10_000, "team-a", "shop"));
        return Reply::parts(stream::iter((0..).map(event)));
    }
    no_work(asked, "")
}

/// A thousand objects on a page whose names are paths.
fn names(asked: &Asked, hub: &str) -> Reply {
    connected(asked, |asked| {
        if !is_list(asked) {
            return Reply::whole(
                404,
                json!({"kind": "Status", "code": 404, "reason": "NotFound"}).to_string(),
            );
        }
        let path = "../../../api/v1/namespaces/kube-system/secrets?x=";
        let all: Vec<Value> = (0..400)
            .map(|n| made_up(hub, n, path, &format!("a/../{n}")))
            .collect();
        list(&all, "")
    })
}

fn busy() -> Reply {
    Reply::Whole(429, vec![("retry-after", "86400".to_owned())], Bytes::new())
}

/// One byte a second.
fn drip() -> Reply {
    let byte = |()| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Some((Bytes::from_static(b" "), ()))
    };
    Reply::parts(stream::unfold((), byte))
}

/// A kubeconfig that leads to the server.
pub fn kubeconfig(server: &Hostile) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {
            "server": format!("https://{}", server.address()),
            "certificate-authority-data": STANDARD.encode(server.authority()),
        }}],
        "users": [{"name": "x", "user": {"token": "a-token"}}],
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use renderhub::api::names::HubId;
    use renderhub::plan::task::adoption::{ObjectCreator, maker};

    use super::*;

    /// The hub ignores what it takes for another hub's, and the soak would show nothing.
    #[test]
    fn what_is_made_up_seems_to_be_the_hubs() {
        let hub = HubId::new("bench", "0f5a4e0c-0001").unwrap();
        for number in [0, 1, 9_999] {
            let object = made_up(hub.as_str(), number, "team-a", "shop");
            let meta = serde_json::from_value(object["metadata"].clone()).unwrap();
            assert_eq!(maker(&hub, &meta), ObjectCreator::Own);
        }
    }
}
