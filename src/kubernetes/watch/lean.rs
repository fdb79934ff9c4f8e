//! A watch that holds little while nothing happens, for programs with thousands of them: kube's own keeps a buffer of 8 KiB and its
//! machinery for each.
//!
//! It lists, watches from the version of the list, and lists again where that version is too old.

use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::Client;
use kube::client::Body;
use kube::runtime::watcher::Event;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::line_decoder::LineDecoder;
use crate::base::metrics::{KindLabel, Metrics};
use crate::plan::queue::backoff::BackoffPolicy;

/// Objects in a page of a list: an object is 1.5 MiB at the most.
const PAGE: usize = 8;
/// Bytes of such a page, and of a line of a watch.
const PAGE_MAX: usize = 16 << 20;
const LINE_MAX: usize = 3 << 20;
/// Longest wait for the beginning of an answer, and for a page.
const ANSWER: Duration = Duration::from_secs(30);
/// Seconds after which the API server ends a watch.
const WATCHED_SECONDS: u32 = 290;
/// Least time between two watches from one version.
const APART: Duration = Duration::from_secs(1);
/// The pause after a watch that broke.
const BROKEN: BackoffPolicy = BackoffPolicy {
    base: Duration::from_secs(1),
    cap: Duration::from_secs(30),
};
/// Accepts metadata only, of a list.
pub const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// Accepts metadata only, of a watch.
pub const METADATA_WATCH: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// What is watched.
pub struct LeanWatch<'a> {
    /// Sends the requests.
    pub client: &'a Client,
    /// Where broken watches are counted.
    pub metrics: &'a Metrics,
    /// The resource, in a log and a metric.
    pub name: &'static str,
    /// Path of the resource, and its selector after a question mark, or nothing there.
    pub path: String,
    /// Whether metadata is enough.
    pub metadata_only: bool,
}

/// Why a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeanWatchEnd {
    /// The API server refuses it.
    Refused,
    /// The events are not taken any more.
    Closed,
}

/// Why a list or a watch ended before its time.
enum Stopped {
    End(LeanWatchEnd),
    /// The version is too old.
    TooOld,
    /// The call failed, with this code where there is one.
    Broken(u16),
}

impl<E: std::error::Error> From<E> for Stopped {
    /// No answer, or one that is none.
    fn from(_: E) -> Self {
        Self::Broken(0)
    }
}

impl LeanWatch<'_> {
    /// Sends what happens to objects of the kind, until it is refused or the channel closes.
    pub async fn run<K: DeserializeOwned, E>(
        self,
        out: &mpsc::Sender<E>,
        event: impl Fn(Event<K>) -> E + Sync,
    ) -> LeanWatchEnd {
        let (mut version, mut failures) = (None, 0);
        loop {
            let begin = Instant::now();
            let done = match &mut version {
                // Boxed: a watch lives for days, and must not keep space for a list.
                None => Box::pin(self.list(out, &event))
                    .await
                    .map(|listed| version = Some(listed)),
                Some(version) => self.follow(version, out, &event).await,
            };
            match done {
                Ok(()) => failures = 0,
                Err(Stopped::End(end)) => return end,
                Err(Stopped::TooOld) => version = None,
                Err(Stopped::Broken(code)) => {
                    failures += 1;
                    self.count(code);
                    sleep(BROKEN.wait(failures, &self.path)).await;
                }
            }
            if version.is_some() && failures == 0 && begin.elapsed() < APART {
                sleep(APART.saturating_sub(begin.elapsed())).await;
            }
        }
    }

    fn count(&self, code: u16) {
        let kind = KindLabel { kind: self.name };
        self.metrics.watch_errors.get_or_create(&kind).inc();
        tracing::warn!(watch = self.name, code, "watch broke; it is opened again");
    }

    /// Lists everything, page by page; the version of the list.
    async fn list<K: DeserializeOwned, E>(
        &self,
        out: &mpsc::Sender<E>,
        event: &(impl Fn(Event<K>) -> E + Sync),
    ) -> Result<String, Stopped> {
        send(out, event(Event::Init)).await?;
        let mut next = String::new();
        loop {
            let body = self.open(&format!("limit={PAGE}{next}"), METADATA_LIST).await?;
            let page = timeout(ANSWER, Limited::new(body, PAGE_MAX).collect()).await?;
            let page = page.map_err(|_| Stopped::Broken(0))?.to_bytes();
            let page: ListedPage<'_> = serde_json::from_slice(&page)?;
            for item in page.items.unwrap_or_default() {
                if let Ok(object) = serde_json::from_str(item.get()) {
                    send(out, event(Event::InitApply(object))).await?;
                }
            }
            if page.metadata.more.is_empty() {
                send(out, event(Event::InitDone)).await?;
                return Ok(page.metadata.resource_version);
            }
            next = format!("&continue={}", page.metadata.more);
        }
    }

    /// Watches from this version on, which it moves.
    async fn follow<K: DeserializeOwned, E>(
        &self,
        version: &mut String,
        out: &mpsc::Sender<E>,
        event: &(impl Fn(Event<K>) -> E + Sync),
    ) -> Result<(), Stopped> {
        let query = format!(
            "watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCHED_SECONDS}&resourceVersion={version}"
        );
        let mut body = self.open(&query, METADATA_WATCH).await?;
        let mut lines = LineDecoder::default();
        while let Some(frame) = body.frame().await {
            let Ok(part) = frame?.into_data() else {
                continue;
            };
            lines.push(part);
            while let Some(line) = lines.next(LINE_MAX).map_err(|_| Stopped::Broken(0))? {
                if let Some(seen) = read_line(&line, version)? {
                    send(out, event(seen)).await?;
                }
            }
        }
        Ok(())
    }

    /// The body of the answer to a read with this query.
    async fn open(&self, query: &str, metadata: &str) -> Result<Body, Stopped> {
        let joint = if self.path.contains('?') { '&' } else { '?' };
        let mut request = Request::get(format!("{}{joint}{query}", self.path));
        if self.metadata_only {
            request = request.header(ACCEPT, metadata);
        }
        let request = request.body(Body::empty())?;
        let answer = timeout(ANSWER, self.client.send(request)).await??;
        match answer.status() {
            StatusCode::OK => Ok(answer.into_body()),
            StatusCode::FORBIDDEN => Err(Stopped::End(LeanWatchEnd::Refused)),
            StatusCode::GONE => Err(Stopped::TooOld),
            other => Err(Stopped::Broken(other.as_u16())),
        }
    }
}

async fn send<E>(out: &mpsc::Sender<E>, event: E) -> Result<(), Stopped> {
    let sent = out.send(event).await;
    sent.map_err(|_| Stopped::End(LeanWatchEnd::Closed))
}

#[derive(Deserialize)]
struct ListedPage<'a> {
    metadata: ListedMetadata,
    /// `null` in an empty list of metadata.
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedMetadata {
    resource_version: String,
    #[serde(default, rename = "continue")]
    more: String,
}

#[derive(Deserialize)]
struct LeanLine<'a> {
    #[serde(rename = "type")]
    type_: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct LineObject {
    #[serde(default)]
    metadata: LineMetadata,
    /// Of a `Status` in the place of an object.
    #[serde(default)]
    code: u16,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LineMetadata {
    resource_version: String,
}

/// The event of a line; `None` for a bookmark, and for an object that cannot be decoded. The version moves with each.
fn read_line<K: DeserializeOwned>(line: &Bytes, version: &mut String) -> Result<Option<Event<K>>, Stopped> {
    let line: LeanLine<'_> = serde_json::from_slice(line)?;
    let object: LineObject = serde_json::from_str(line.object.get())?;
    if line.type_ == "ERROR" {
        let gone = StatusCode::GONE.as_u16();
        return Err(if object.code == gone {
            Stopped::TooOld
        } else {
            Stopped::Broken(object.code)
        });
    }
    *version = object.metadata.resource_version;
    let decoded = || serde_json::from_str(line.object.get()).ok();
    Ok(match line.type_.as_str() {
        "ADDED" | "MODIFIED" => decoded().map(Event::Apply),
        "DELETED" => decoded().map(Event::Delete),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::extract::{RawQuery, State};
    use axum::http::StatusCode as Code;
    use axum::routing::get;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    type Answers = Arc<Mutex<Vec<(u16, String)>>>;

    /// A server with these answers, in their order; then it refuses.
    async fn client(answers: Vec<(u16, String)>) -> (Client, Arc<Mutex<Vec<String>>>) {
        let (answers, asked): (Answers, _) =
            (Arc::new(Mutex::new(answers)), Arc::new(Mutex::new(Vec::new())));
        let noted = Arc::clone(&asked);
        let answer = async move |RawQuery(query): RawQuery, State(answers): State<Answers>| {
            noted.lock().unwrap().push(query.unwrap_or_default());
            let mut answers = answers.lock().unwrap();
            let (code, body) = if answers.is_empty() {
                (403, String::new())
            } else {
                answers.remove(0)
            };
            (Code::from_u16(code).unwrap(), body)
        };
        let router = axum::Router::new()
            .route("/things", get(answer))
            .with_state(answers);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (
            Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap(),
            asked,
        )
    }

    fn object(name: &str, version: u32) -> serde_json::Value {
        json!({"metadata": {"name": name, "resourceVersion": version.to_string()}})
    }

    fn page(version: u32, more: &str, items: &[serde_json::Value]) -> (u16, String) {
        let page =
            json!({"metadata": {"resourceVersion": version.to_string(), "continue": more}, "items": items});
        (200, page.to_string())
    }

    fn lines(all: &[(&str, serde_json::Value)]) -> (u16, String) {
        let lines = all
            .iter()
            .map(|(kind, object)| json!({"type": kind, "object": object}).to_string() + "\n");
        (200, lines.collect())
    }

    #[tokio::test]
    #[expect(clippy::too_many_lines, reason = "one watch from its beginning to its end")]
    async fn it_lists_follows_and_lists_again_where_its_version_is_too_old() {
        let (client, asked) = client(vec![
            page(5, "abc", &[object("a", 1), json!({"metadata": 7})]),
            page(5, "", &[object("b", 2)]),
            lines(&[
                ("ADDED", object("c", 6)),
                ("MODIFIED", object("c", 7)),
                ("DELETED", object("a", 8)),
                ("BOOKMARK", object("", 9)),
            ]),
            lines(&[("ERROR", json!({"code": 410}))]),
            (
                200,
                r#"{"metadata": {"resourceVersion": "20"}, "items": null}"#.to_owned(),
            ),
            (410, String::new()),
            page(30, "", &[]),
        ])
        .await;
        let (out, mut events) = mpsc::channel(64);
        let (metrics, _) = Metrics::new();
        let watch = LeanWatch {
            client: &client,
            metrics: &metrics,
            name: "things",
            path: "/things?labelSelector=x".to_owned(),
            metadata_only: false,
        };
        let said = |event: Event<ConfigMap>| match event {
            Event::Init => "init".to_owned(),
            Event::InitDone => "done".to_owned(),
            Event::InitApply(object) => format!("+{}", object.metadata.name.unwrap_or_default()),
            Event::Apply(object) => format!("~{}", object.metadata.name.unwrap_or_default()),
            Event::Delete(object) => format!("-{}", object.metadata.name.unwrap_or_default()),
        };
        assert_eq!(watch.run(&out, said).await, LeanWatchEnd::Refused);
        drop(out);
        let mut all = Vec::new();
        while let Some(event) = events.recv().await {
            all.push(event);
        }
        let expected = [
            "init", "+a", "+b", "done", "~c", "~c", "-a", "init", "done", "init", "done",
        ];
        assert_eq!(all, expected);
        let asked = asked.lock().unwrap();
        assert_eq!(asked[1], "labelSelector=x&limit=8&continue=abc");
        assert!(
            asked[2].ends_with("&resourceVersion=5") && asked[3].ends_with("&resourceVersion=9"),
            "{asked:?}"
        );
    }

    #[tokio::test]
    async fn it_ends_with_its_channel_and_a_failure_is_counted() {
        let (client, _) = client(vec![(500, String::new()), page(5, "", &[])]).await;
        let (out, mut events) = mpsc::channel(1);
        let (metrics, _) = Metrics::new();
        let watch = LeanWatch {
            client: &client,
            metrics: &metrics,
            name: "things",
            path: "/things".to_owned(),
            metadata_only: true,
        };
        let taken = async {
            // Two lists begin, and one ends.
            for _ in 0..3 {
                events.recv().await;
            }
            events.close();
            drop(events);
        };
        let (end, ()) = tokio::join!(watch.run(&out, |_: Event<ConfigMap>| ()), taken);
        assert!(
            matches!(end, LeanWatchEnd::Refused | LeanWatchEnd::Closed),
            "{end:?}"
        );
        assert_eq!(
            metrics
                .watch_errors
                .get_or_create(&KindLabel { kind: "things" })
                .get(),
            1
        );
    }
}
