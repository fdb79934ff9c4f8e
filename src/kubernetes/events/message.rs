//! A message, and the event that it is sent as.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;

use crate::api::conditions::Reason;
use crate::api::labels::{GROUP, VERSION};
use crate::api::olm::{OLM_GROUP, OLM_VERSION};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::task::model::TaskId;

/// Bytes of a note that the API server accepts.
const NOTE_MAX: usize = 1_024;
/// Bytes of an object's name that are in the name of its event, before a dot and the time in sixteen digits.
const NAME_MAX: usize = 253 - 17;
/// What reports events.
const CONTROLLER: &str = "renderhub.dev/hub";

/// The object of an event.
#[derive(Clone, Debug)]
pub enum EventSubject {
    /// A task.
    Task(TaskId),
    /// Another object of renderhub's, of this kind and UID; its namespace is empty where the kind has none.
    Object(&'static str, ObjectKey, String),
    /// An object of OLM, of this kind and UID.
    Olm(&'static str, ObjectKey, String),
}

impl EventSubject {
    /// The namespace in whose part of the buffer its events wait; empty for an object in none.
    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Task(task) => &task.namespace,
            Self::Object(_, key, _) | Self::Olm(_, key, _) => &key.namespace,
        }
    }
}

/// An event to record.
#[derive(Clone, Debug)]
pub struct EventMessage {
    /// About what.
    pub subject: EventSubject,
    /// Whether it is a warning.
    pub is_warning: bool,
    /// Why.
    pub reason: Reason,
    /// The same for people.
    pub note: String,
}

pub(super) fn event(message: &EventMessage, hub: &str) -> Event {
    let (now, regarding) = (Timestamp::now(), reference(&message.subject));
    let action = match message.subject {
        EventSubject::Olm(..) => "CopyPullSecret",
        EventSubject::Task(_) | EventSubject::Object(..) => "Render",
    };
    let type_ = if message.is_warning { "Warning" } else { "Normal" };
    Event {
        metadata: ObjectMeta {
            namespace: regarding.namespace.clone(),
            name: Some(event_name(regarding.name.as_deref().unwrap_or_default(), now)),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        type_: Some(type_.to_owned()),
        reason: Some(message.reason.as_str().to_owned()),
        note: Some(note(message)),
        action: Some(action.to_owned()),
        regarding: Some(regarding),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(hub.to_owned()),
        ..Event::default()
    }
}

/// The name of an event, as kubectl shows events: that of the object, and the time.
fn event_name(object: &str, now: Timestamp) -> String {
    let object = object.get(..NAME_MAX).unwrap_or(object);
    let object = object.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    format!("{object}.{:016x}", now.as_nanosecond())
}

/// What happened, and at the very end the page of the reason, where there is something to do. A note that is too long loses the
/// end of what happened, which the page has too.
fn note(message: &EventMessage) -> String {
    let page = if message.reason.is_good() {
        String::new()
    } else {
        format!("; see {}", message.reason.page())
    };
    let reported = message.note.as_str();
    let room = NOTE_MAX.saturating_sub(page.len());
    if reported.len() <= room {
        return format!("{reported}{page}");
    }
    let ends = reported.char_indices().map(|(at, _)| at);
    let end = ends.take_while(|at| at + "...".len() <= room).last();
    format!("{}...{page}", &reported[..end.unwrap_or_default()])
}

fn reference(subject: &EventSubject) -> ObjectReference {
    let (kind, name, uid) = match subject {
        EventSubject::Task(task) => (task.kind.as_str(), &*task.name, task.uid.as_str()),
        EventSubject::Object(kind, key, uid) | EventSubject::Olm(kind, key, uid) => {
            (*kind, key.name.as_str(), uid.as_str())
        }
    };
    let namespace = subject.namespace();
    ObjectReference {
        api_version: Some(match subject {
            EventSubject::Olm(..) => format!("{OLM_GROUP}/{OLM_VERSION}"),
            EventSubject::Task(_) | EventSubject::Object(..) => format!("{GROUP}/{VERSION}"),
        }),
        kind: Some(kind.to_owned()),
        name: Some(name.to_owned()),
        namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::api::names::{TaskKind, TaskUid};

    /// A message about a task of a namespace.
    pub fn message(namespace: &str, n: usize, reason: Reason) -> EventMessage {
        EventMessage {
            subject: EventSubject::Task(TaskId {
                kind: TaskKind::RenderTask,
                namespace: namespace.to_owned(),
                name: format!("task-{n}"),
                uid: TaskUid::new(&format!("{namespace}-{n}")),
            }),
            is_warning: true,
            reason,
            note: "for people".to_owned(),
        }
    }

    #[test]
    fn a_note_says_what_happened_and_ends_in_the_page_of_its_reason() {
        for reason in Reason::ALL {
            for text in ["for people".to_owned(), "x".repeat(2_000), "\u{fc}".repeat(1_000)] {
                let message = EventMessage {
                    note: text.clone(),
                    ..message("team", 0, *reason)
                };
                let note = event(&message, "main").note.unwrap();
                assert!(note.len() <= 1_024, "{}", note.len());
                let page = format!("; see {}", reason.page());
                assert_eq!(note.ends_with(&page), !reason.is_good(), "{note}");
                let first = note.trim_end_matches(&page);
                assert!(
                    first == text || text.len() > 900 && text.starts_with(first.trim_end_matches("...")),
                    "{note}"
                );
                assert!(first.len() > 800 || first == "for people", "{note}");
            }
        }
    }

    #[test]
    fn the_name_of_an_event_is_one_however_long_that_of_its_object_is() {
        let now = Timestamp::now();
        for (object, begins) in [
            ("shop".to_owned(), "shop.".to_owned()),
            ("x".repeat(253), format!("{}.", "x".repeat(NAME_MAX))),
            (
                format!("{}.{}", "x".repeat(NAME_MAX - 1), "y".repeat(17)),
                format!("{}.", "x".repeat(NAME_MAX - 1)),
            ),
        ] {
            let name = event_name(&object, now);
            assert!(name.len() <= 253 && name.starts_with(&begins), "{name}");
            assert_eq!(name.len(), begins.len() + 16);
        }
    }
}
