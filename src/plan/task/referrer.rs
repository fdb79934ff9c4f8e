//! As which kind a task refers to another namespace: a grant to Targets counts for the tasks that the hub made for them, and for no
//! task that a tenant wrote.
//!
//! The hub puts a seal on such a task, which binds its name and its spec, so that it cannot be put on another task. It says that the
//! hub planned the task, and not that it may still be served: the grant is asked again whenever the task is decided about.

use ring::hmac;

use crate::api::names::hex;

use super::model::Task;
use super::status_seal::SealKey;

/// What is sealed, so that a seal on something else can never be taken for one on a task.
const PURPOSE: &str = "renderhub.dev/target-task";

/// The kinds whose grants count for a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReferrerKind {
    /// Those to tasks.
    #[default]
    RenderTask,
    /// Those to Targets too: the hub made the task for some.
    Target,
}

impl SealKey {
    /// The seal for a task that the hub makes for Targets, in hex digits.
    #[must_use]
    pub fn target_seal(&self, namespace: &str, name: &str, spec_hash: &str) -> String {
        let message = message(namespace, name, spec_hash);
        hex(hmac::sign(&self.hmac_key(), &message).as_ref())
    }

    /// As which kind a task refers to another namespace.
    #[must_use]
    pub fn referrer(&self, task: &Task) -> ReferrerKind {
        let message = || message(&task.id.namespace, &task.id.name, &task.decoded.spec_hash);
        let is_sealed = |seal: [u8; 32]| hmac::verify(&self.hmac_key(), &message(), &seal).is_ok();
        if task.target_seal.0.is_some_and(is_sealed) {
            ReferrerKind::Target
        } else {
            ReferrerKind::RenderTask
        }
    }
}

fn message(namespace: &str, name: &str, spec_hash: &str) -> Vec<u8> {
    [PURPOSE, namespace, name, spec_hash].join("\0").into_bytes()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use kube::api::ObjectMeta;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::labels::TARGET_SEAL;
    use crate::api::names::TaskKind;
    use crate::plan::task::status_seal::KEY_BYTES;

    fn key(byte: u8) -> SealKey {
        SealKey::new([byte; KEY_BYTES], Timestamp::UNIX_EPOCH)
    }

    fn task(name: &str, tag: &str, annotations: &Value) -> Task {
        let meta = json!({"name": name, "namespace": "team-a", "uid": "u"});
        let meta: ObjectMeta = serde_json::from_value(meta).unwrap();
        let task = Task::new(TaskKind::RenderTask, &meta, json!({"tag": tag}), Value::Null).unwrap();
        Task {
            target_seal: serde_json::from_value(annotations.clone()).unwrap(),
            ..task
        }
    }

    #[test]
    fn a_seal_is_for_one_name_one_spec_and_one_key() {
        let bare = task("a", "1", &json!({}));
        let seal = key(1).target_seal("team-a", "a", &bare.decoded.spec_hash);
        let annotations = json!({"note": {"a": [1]}, TARGET_SEAL: seal, "other": "x"});
        assert_eq!(
            key(1).referrer(&task("a", "1", &annotations)),
            ReferrerKind::Target
        );
        assert_eq!(
            key(2).referrer(&task("a", "1", &annotations)),
            ReferrerKind::RenderTask
        );
        assert_eq!(
            key(1).referrer(&task("b", "1", &annotations)),
            ReferrerKind::RenderTask
        );
        assert_eq!(
            key(1).referrer(&task("a", "2", &annotations)),
            ReferrerKind::RenderTask
        );
        let wrong = [
            json!(null),
            json!({}),
            json!({TARGET_SEAL: null}),
            json!({TARGET_SEAL: ""}),
            json!({TARGET_SEAL: "0".repeat(64)}),
        ];
        for annotations in wrong {
            assert_eq!(
                key(1).referrer(&task("a", "1", &annotations)),
                ReferrerKind::RenderTask
            );
        }
    }
}
