//! The API server's audit log as typed events, for tests that count requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use memchr::memmem;
use serde::Deserialize;

use crate::identity::Identity;
use crate::{rundir, wait_for};

/// One finished request (or, for a watch, one that was answered; see [`Event::stage`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; `try` for a dry run of any.
    pub verb: String,
    /// Who asked, e.g. `system:serviceaccount:renderhub:renderhub`.
    pub user: String,
    /// On whose behalf, where the request impersonates.
    pub impersonated_user: Option<String>,
    /// The groups of that user, as the API server saw them.
    pub impersonated_groups: Vec<String>,
    /// The client's own name for itself.
    pub user_agent: String,
    /// The API group, empty for the core group.
    pub group: String,
    /// The resource in the plural, e.g. `jobs`; empty for requests that are not about a resource.
    pub resource: String,
    /// E.g. `status`; empty for the object itself.
    pub subresource: String,
    /// The object's namespace, empty where there is none.
    pub namespace: String,
    /// The object's name; empty for lists, and for creates with a generated name.
    pub name: String,
    /// The HTTP status code of the answer.
    pub code: u16,
    /// `ResponseComplete`, and `ResponseStarted` for a watch that is still open.
    pub stage: String,
    /// The path and query.
    pub uri: String,
    /// When the API server received the request.
    pub received: Timestamp,
    /// When it reached the stage; for `ResponseComplete` when the answer was sent.
    pub reached: Timestamp,
}

impl Event {
    /// Whether the request may change something.
    #[must_use]
    pub fn is_write(&self) -> bool {
        matches!(
            self.verb.as_str(),
            "create" | "update" | "patch" | "delete" | "deletecollection"
        )
    }

    /// `verb resource` or `verb resource/subresource`, e.g. `patch rendertasks/status`: the key for a table of counts.
    #[must_use]
    pub fn action(&self) -> String {
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        format!("{} {}{slash}{}", self.verb, self.resource, self.subresource)
    }
}

/// The requests among these that created an object of this resource in this namespace, in the order of time.
///
/// The log has a failure for a request whose sender was killed before the answer, whether or not it was carried out: it was,
/// where a client changes the object later that no other request created.
#[must_use]
pub fn creations(mut events: Vec<Event>, namespace: &str, resource: &str) -> Vec<Event> {
    events.retain(|e| e.is_write() && e.namespace == namespace && e.resource == resource);
    events.sort_by_key(|event| event.received);
    let (mut made, mut broken_off) = (BTreeMap::<String, Vec<Event>>::new(), HashMap::new());
    for event in events {
        let is_creation = event.verb == "create" && event.subresource.is_empty();
        let name = event.name.clone();
        if event.code < 300 {
            let maker = broken_off.remove(&name).filter(|_| !is_creation);
            if let Some(maker) = maker.or(is_creation.then_some(event)) {
                made.entry(name).or_default().push(maker);
            }
        } else if is_creation && event.code >= 500 && !made.contains_key(&name) {
            broken_off.insert(name, event);
        }
    }
    let mut made: Vec<Event> = made.into_values().flatten().collect();
    made.sort_by_key(|event| event.received);
    made
}

/// A place in the log: events after it are those of requests that ended after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

impl Mark {
    /// The beginning of the log.
    pub const START: Self = Self(0);
}

/// A control plane's audit log.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    admin: Identity,
}

impl Audit {
    pub(crate) fn new(path: PathBuf, admin: Identity) -> Self {
        Self { path, admin }
    }

    /// Makes sure that every request answered so far is in the log, and returns that place.
    ///
    /// It makes requests of its own (named `audit-marker-…`, never among the events) and waits until they show. Two,
    /// one after the other: the first one's entry could overtake that of a request which ended at the same moment.
    ///
    /// # Errors
    /// If the marker does not show in time.
    pub async fn mark(&self) -> Result<Mark> {
        let api: Api<ConfigMap> = Api::namespaced(self.admin.client().await?, "default");
        let mut end = self.length();
        for _ in 0..2 {
            let marker = format!("{MARKER}{}", rundir::random_hex(8)?);
            api.get_metadata_opt(&marker).await?;
            end = wait_for("a marker in the audit log", Duration::from_secs(20), async || {
                let log = self.read(Mark(end))?;
                let found = memmem::find(&log, marker.as_bytes());
                let line = found.and_then(|at| Some(at + memchr::memchr(b'\n', &log[at..])? + 1));
                Ok(line
                    .and_then(|offset| u64::try_from(offset).ok())
                    .map(|offset| end + offset))
            })
            .await?;
        }
        Ok(Mark(end))
    }

    /// The lines of the log with this text, e.g. the name of a user.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn lines_with(&self, word: &str) -> Result<String> {
        Ok(lines_with(&self.read(Mark::START)?, word).join("\n"))
    }

    /// The resources, in the plural, of which requests wrote something in this namespace up to now: there are objects of no
    /// other. The log leaves out what the API server, the scheduler and
    /// the controller manager write as themselves, which is nothing in a namespace of a test.
    ///
    /// # Errors
    /// As [`Audit::mark`] and [`Audit::between`].
    pub async fn written_in(&self, namespace: &str) -> Result<BTreeSet<String>> {
        let now = self.mark().await?;
        let word = format!("\"namespace\":\"{namespace}\"");
        let mut events = self.events(Mark::START, now, &word)?;
        events.retain(|event| event.is_write() && event.namespace == namespace);
        Ok(events.into_iter().map(|event| event.resource).collect())
    }

    /// Every event between two places, in the order of the log.
    ///
    /// # Errors
    /// If the log cannot be read or holds something else than events.
    pub fn between(&self, from: Mark, to: Mark) -> Result<Vec<Event>> {
        self.events(from, to, "")
    }

    fn events(&self, from: Mark, to: Mark, word: &str) -> Result<Vec<Event>> {
        let lines = self.lines_between(from, to, word)?;
        let events: Result<Vec<Event>> = lines.iter().map(|line| parse(line)).collect();
        let mut events = events?;
        events.retain(|event| !event.name.starts_with(MARKER));
        Ok(events)
    }

    fn lines_between(&self, from: Mark, to: Mark, word: &str) -> Result<Vec<String>> {
        let log = self.read(from)?;
        let length = usize::try_from(to.0.saturating_sub(from.0))?.min(log.len());
        Ok(lines_with(&log[..length], word))
    }

    /// Every event of requests answered up to now.
    ///
    /// # Errors
    /// As [`Audit::mark`] and [`Audit::between`].
    pub async fn since(&self, from: Mark) -> Result<Vec<Event>> {
        let now = self.mark().await?;
        self.between(from, now)
    }

    /// Those events whose line in the log holds this text, e.g. the name of a user: the others are not parsed, and a log that
    /// many tests share is full of them.
    ///
    /// # Errors
    /// As [`Audit::since`].
    pub async fn since_with(&self, from: Mark, word: &str) -> Result<Vec<Event>> {
        let now = self.mark().await?;
        self.events(from, now, word)
    }

    /// How often each [`Event::action`] happened among the completed requests of `user` after `from`.
    ///
    /// # Errors
    /// As [`Audit::since`].
    pub async fn counts(&self, from: Mark, user: &str) -> Result<BTreeMap<String, usize>> {
        let mut counts = BTreeMap::new();
        for event in self.since_with(from, user).await? {
            if event.user == user && event.stage == "ResponseComplete" {
                *counts.entry(event.action()).or_default() += 1;
            }
        }
        Ok(counts)
    }

    /// The requests of `user` as itself that were answered with 403 so far: a refusal while it impersonates another user is that
    /// user's. It asks the API server nothing, so an answer of this very moment may be missing.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn refused(&self, user: &str) -> Result<Vec<Event>> {
        let log = self.read(Mark::START)?;
        let whole = &log[..memchr::memrchr(b'\n', &log).map_or(0, |end| end + 1)];
        let mut lines = lines_with(whole, "\"code\":403");
        lines.retain(|line| line.contains(user));
        let events: Result<Vec<Event>> = lines.iter().map(|line| parse(line)).collect();
        let mut events = events?;
        events.retain(|event| event.user == user && event.code == 403 && event.impersonated_user.is_none());
        Ok(events)
    }

    fn read(&self, from: Mark) -> Result<Vec<u8>> {
        let mut file = std::fs::File::open(&self.path).context("there is no audit log yet")?;
        file.seek(SeekFrom::Start(from.0))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Nothing while the API server has written none.
    fn length(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |file| file.len())
    }
}

/// The lines with this word. The whole log is searched for the word and not divided into lines first, because a log that many
/// tests share has many megabytes, of which a test asks for few.
fn lines_with(log: &[u8], word: &str) -> Vec<String> {
    let finder = memmem::Finder::new(word);
    let (mut lines, mut from) = (Vec::new(), 0);
    while let Some(found) = log
        .get(from..)
        .filter(|rest| !rest.is_empty())
        .and_then(|rest| finder.find(rest))
    {
        let at = from + found;
        let begin = memchr::memrchr(b'\n', &log[..at]).map_or(0, |end| end + 1);
        let end = memchr::memchr(b'\n', &log[at..]).map_or(log.len(), |end| at + end);
        lines.push(String::from_utf8_lossy(&log[begin..end]).into_owned());
        from = end + 1;
    }
    lines
}

const MARKER: &str = "audit-marker-";

fn parse(line: &str) -> Result<Event> {
    let raw: Raw = serde_json::from_str(line).context("the audit log holds a line that is no event")?;
    let object = raw.object_ref.unwrap_or_default();
    Ok(Event {
        verb: if raw.request_uri.contains("dryRun=All") {
            "try".to_owned()
        } else {
            raw.verb
        },
        user: raw.user.username,
        impersonated_groups: raw
            .impersonated_user
            .as_ref()
            .map(|user| user.groups.clone())
            .unwrap_or_default(),
        impersonated_user: raw.impersonated_user.map(|user| user.username),
        user_agent: raw.user_agent,
        group: object.api_group,
        resource: object.resource,
        subresource: object.subresource,
        namespace: object.namespace,
        name: object.name,
        code: raw.response_status.unwrap_or_default().code,
        stage: raw.stage,
        uri: raw.request_uri,
        received: raw.request_received_timestamp,
        reached: raw.stage_timestamp,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    verb: String,
    stage: String,
    user: RawUser,
    impersonated_user: Option<RawUser>,
    #[serde(default)]
    user_agent: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    object_ref: Option<RawObject>,
    response_status: Option<RawStatus>,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct RawUser {
    #[serde(default)]
    username: String,
    #[serde(default)]
    groups: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawObject {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawStatus {
    code: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_as_the_api_server_writes_it() {
        let line = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete",
            "requestURI":"/apis/batch/v1/namespaces/a/jobs/j/status","verb":"patch","user":{"username":"hub"},
            "impersonatedUser":{"username":"other"},"userAgent":"renderhub/0.1",
            "objectRef":{"resource":"jobs","namespace":"a","name":"j","apiGroup":"batch","apiVersion":"v1",
            "subresource":"status"},"responseStatus":{"metadata":{},"code":409},
            "requestReceivedTimestamp":"2026-01-01T00:00:00.000100Z","stageTimestamp":"2026-01-01T00:00:00.002100Z"}"#;
        let event = parse(line).unwrap();
        assert_eq!(event.action(), "patch jobs/status");
        assert_eq!(
            (event.user.as_str(), event.impersonated_user.as_deref()),
            ("hub", Some("other"))
        );
        assert_eq!(
            (event.group.as_str(), event.code, event.is_write()),
            ("batch", 409, true)
        );
        assert_eq!(event.reached.duration_since(event.received).as_millis(), 2);
        let tried = line.replace("jobs/j/status", "jobs?dryRun=All");
        assert!(!parse(&tried).unwrap().is_write(), "a dry run changes nothing");
        assert!(parse("{}").is_err());
    }

    #[test]
    fn lines_with_a_word_are_found_wherever_they_are() {
        let log = b"hub a\nother\n\nhub hub b\n\xff hub\nlast hub";
        assert_eq!(
            lines_with(log, "hub"),
            ["hub a", "hub hub b", "\u{fffd} hub", "last hub"]
        );
        assert_eq!(
            lines_with(b"a\n\nb\n", ""),
            ["a", "", "b"],
            "every line has no word"
        );
        assert!(lines_with(b"", "").is_empty() && lines_with(b"a\n", "b").is_empty());
    }

    fn event(second: u64, user: &str, action: (&str, &str), name: &str, code: u16) -> Event {
        let at: Timestamp = format!("2026-01-01T00:00:{second:02}Z").parse().unwrap();
        Event {
            verb: action.0.to_owned(),
            user: user.to_owned(),
            impersonated_user: None,
            impersonated_groups: Vec::new(),
            user_agent: String::new(),
            group: "batch".to_owned(),
            resource: "jobs".to_owned(),
            subresource: action.1.to_owned(),
            namespace: "a".to_owned(),
            name: name.to_owned(),
            code,
            stage: "ResponseComplete".to_owned(),
            uri: String::new(),
            received: at,
            reached: at,
        }
    }

    #[test]
    fn an_object_whose_maker_was_killed_was_made_if_somebody_changes_it_and_nobody_else_made_it() {
        let (create, end) = (("create", ""), ("patch", "status"));
        let log = vec![
            event(9, "kubelet", end, "killed", 200),
            event(1, "first", create, "killed", 500),
            event(5, "second", create, "killed", 409),
            event(2, "first", create, "undone", 500),
            event(6, "second", create, "undone", 201),
            event(8, "kubelet", end, "undone", 200),
            event(2, "first", create, "never", 500),
            event(3, "first", create, "twice", 201),
            event(4, "second", create, "twice", 500),
            event(7, "second", create, "twice", 201),
            event(8, "kubelet", end, "twice", 200),
            event(3, "first", create, "refused", 403),
            event(4, "kubelet", end, "refused", 200),
        ];
        let made = creations(log.clone(), "a", "jobs");
        let made: Vec<_> = made.iter().map(|e| (e.name.as_str(), e.user.as_str())).collect();
        let expected = [
            ("killed", "first"),
            ("twice", "first"),
            ("undone", "second"),
            ("twice", "second"),
        ];
        assert_eq!(made, expected);
        assert!(creations(log.clone(), "b", "jobs").is_empty() && creations(log, "a", "secrets").is_empty());
    }
}
