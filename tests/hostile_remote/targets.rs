//! What the fuzz targets of the decoders check of any bytes; the tests replay their seeds through the same code.

use std::collections::BTreeMap;

use kube::api::ObjectMeta;
use renderhub::api::labels::{
    CHART_URL, HUB_ID, MANAGED_BY, SPEC_HASH, TASK_KIND, TASK_NAME, TASK_NAMESPACE, TASK_UID,
};
use renderhub::api::names::{HubId, TaskKind, TaskUid, is_dns_label, is_name_of, is_uid};
use renderhub::api::termination::Termination;
use renderhub::kubernetes::apply::read_page;
use renderhub::kubernetes::object::SlimObject;
use renderhub::kubernetes::watch::{JobMetadata, job_metadata, pod_task, secret_task, task_of};
use renderhub::plan::remote::ledger::{
    Ledger, LedgerChanges, forget_loss, forget_orphan, record_loss, record_orphan,
};
use renderhub::plan::task::adoption::{AdoptionDecision, ObjectCreator, is_its, judge, maker};
use renderhub::plan::task::job_state::CompletionHint;
use renderhub::plan::task::model::{DecodedSpec, Task, TaskId};
use renderhub::plan::task::path::tasks_path;
use renderhub::plan::task::retention::KEPT_AT_MOST;
use renderhub::plan::task::status_seal::{KEY_BYTES, SealKey};
use renderhub::plan::task::validate::validate;
use renderhub::remote::jobs::decode::{lines as read_lines, page};
use serde::Deserialize as _;
use serde_json::Value;

/// Namespace of the Jobs.
const NAMESPACE: &str = "render";
/// Longest line here: long enough for a Job, short enough to be passed by a fuzzer.
const LINE: usize = 4_096;
/// Longest text that is kept of an object.
const TEXT: usize = 2_048;
/// Objects on a page at most.
const PAGE: usize = 500;
/// Labels and annotations that are kept.
const KNOWN: [&str; 8] = [
    MANAGED_BY,
    HUB_ID,
    TASK_UID,
    TASK_KIND,
    TASK_NAMESPACE,
    TASK_NAME,
    SPEC_HASH,
    CHART_URL,
];
/// The canonical form of a spec may be longer than what came: `1e15` becomes `1000000000000000.0`.
const LONGER: usize = 8;

fn hub() -> HubId {
    HubId::new("main", "0f5a4e0c-0001").expect("an id")
}

/// A page of a list of objects ends as no page, or as no more than the fields that are kept.
pub fn objects(bytes: &[u8]) {
    let Some((found, _)) = read_page(bytes).map(|(found, next)| (found.collect::<Vec<_>>(), next)) else {
        return;
    };
    assert!(found.len() <= PAGE);
    let mut kept = 0;
    for object in &found {
        let maps = [&object.meta.labels, &object.meta.annotations];
        for (key, value) in maps.into_iter().flatten().flatten() {
            assert!(KNOWN.contains(&key.as_str()) && value.len() <= TEXT);
            kept += key.len() + value.len();
        }
        let texts = [&object.meta.name, &object.meta.uid, &object.meta.resource_version];
        for text in texts.into_iter().flatten() {
            assert!(text.len() <= TEXT);
            kept += text.len();
        }
    }
    assert!(kept <= bytes.len(), "nothing is kept that did not come");
    let Ok(Value::Object(whole)) = serde_json::from_slice(bytes) else {
        return;
    };
    let items = whole.get("items").and_then(Value::as_array);
    assert_eq!(items.map_or(0, Vec::len), found.len());
    for (item, object) in items.into_iter().flatten().zip(&found) {
        let name = item
            .get("metadata")
            .and_then(|metadata| metadata.get("name")?.as_str());
        if let Some(name) = name {
            let kept = Some(name).filter(|name| name.len() <= TEXT);
            assert_eq!(object.meta.name.as_deref(), kept);
        }
    }
}

/// A decoded Job has the form of one that the hub made.
fn check(mark: &JobMetadata) {
    assert!(is_dns_label(&mark.name) && is_name_of(&mark.name, &mark.task));
    assert!(is_uid(&mark.uid) && is_uid(mark.task.as_str()));
    assert!([0, 64].contains(&mark.spec_hash.len()) && mark.spec_hash.bytes().all(|b| b.is_ascii_hexdigit()));
    let url = mark.chart_url.as_deref().unwrap_or_default();
    assert!(url.len() <= TEXT && url.bytes().all(|byte| byte.is_ascii_graphic()));
}

/// A page of Jobs of another cluster ends as none, or as Jobs that a reader of everything sees as well.
pub fn jobs(bytes: &[u8]) {
    let Ok(read) = page(bytes, &hub(), NAMESPACE) else {
        return;
    };
    assert!(read.jobs.len() <= PAGE);
    read.jobs.iter().for_each(check);
    assert!(read.next.is_none_or(|next| (1..=4_096).contains(&next.len())));
    assert!(
        read.version
            .is_none_or(|version| (1..=64).contains(&version.len()))
    );
    let Ok(Value::Object(whole)) = serde_json::from_slice(bytes) else {
        return;
    };
    let items = whole.get("items").and_then(Value::as_array).into_iter().flatten();
    let metas: Result<Vec<ObjectMeta>, _> = items
        .map(|item| ObjectMeta::deserialize(item.get("metadata").unwrap_or(&Value::Null)))
        .collect();
    let Ok(metas) = metas else { return };
    let theirs: Vec<JobMetadata> = metas
        .iter()
        .filter_map(|meta| job_metadata(meta, CompletionHint::No))
        .collect();
    for mark in &read.jobs {
        let is_same = |other: &JobMetadata| {
            (&other.task, &other.name, &other.uid) == (&mark.task, &mark.name, &mark.uid)
        };
        assert!(theirs.iter().any(is_same), "{mark:?}");
    }
}

/// The lines of a watch are the same wherever they are cut; the first byte is the length of a part.
pub fn lines(bytes: &[u8]) {
    let Some((cut, rest)) = bytes.split_first() else {
        return;
    };
    let parts: Vec<&[u8]> = rest.chunks(usize::from(*cut % 61) + 1).collect();
    let hub = hub();
    let read = read_lines(&parts, LINE, &hub, NAMESPACE);
    assert_eq!(read, read_lines(&[rest], LINE, &hub, NAMESPACE));
    let ended = rest.split(|byte| *byte == b'\n').count() - 1;
    assert!(read.len() <= ended, "a line without its end is none");
    for line in &read {
        if let Some((mark, _)) = &line.job {
            check(mark);
        }
        let version = line.version.as_deref();
        assert!(version.is_none_or(|version| (1..=64).contains(&version.len())));
    }
}

/// An object ends as no task, or as one that can be judged, and whose status is the hub's with its seal alone.
pub fn task(bytes: &[u8]) {
    let Ok(object) = serde_json::from_slice::<SlimObject>(bytes) else {
        return;
    };
    for kind in [TaskKind::RenderTask, TaskKind::ClusterRenderTask] {
        if let Some(task) = object.clone().into_task(kind, None) {
            judged(task, bytes.len());
        }
    }
}

fn judged(mut task: Task, came: usize) {
    assert!(
        task.decoded.spec_hash.len() == 64
            && task.kept_bytes() <= 3 * came * LONGER + size_of::<(Task, DecodedSpec)>() + TEXT
    );
    assert!(serde_json::from_str::<Value>(&task.decoded.config).is_ok());
    if let Err(refusal) = validate(&task) {
        assert!(!refusal.message.is_empty() && refusal.message.len() <= TEXT + came);
    }
    let _ = (task.phase(), task.has_finalizer());
    let _ = (task.failure_cleanup_due(KEPT_AT_MOST), task.removal_due());
    let key = SealKey::new([7; KEY_BYTES], task.created);
    let (sealed, _) = key.sealed(&task.id.uid, task.status.clone());
    task.set_status(sealed);
    assert!(key.is_genuine(&task, None));
    task.id.uid = TaskUid::new("another");
    assert!(task.status_digest.is_none() || !key.is_genuine(&task, None));
}

/// What is read of a ledger is written as it was read, and can be forgotten.
pub fn ledger(bytes: &[u8]) {
    let Ok(data) = serde_json::from_slice::<BTreeMap<String, String>>(bytes) else {
        return;
    };
    let read = Ledger::read(&data);
    assert!(read.lost.len() + read.orphans.len() <= data.len());
    assert!(read.orphans.is_sorted_by_key(|orphan| orphan.since));
    for orphan in &read.orphans {
        let again = Ledger::read(&written(record_orphan(orphan)));
        assert_eq!(again.orphans, std::slice::from_ref(orphan));
        assert!(
            forget_orphan(&orphan.task)
                .keys()
                .eq(record_orphan(orphan).keys())
        );
    }
    for (site, since) in &read.lost {
        let again = Ledger::read(&written(record_loss(site, *since)));
        assert_eq!(again.lost, [(site.clone(), *since)]);
        assert!(forget_loss(site).keys().eq(record_loss(site, *since).keys()));
    }
}

fn written(changes: LedgerChanges) -> BTreeMap<String, String> {
    changes
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
        .collect()
}

/// What an object says of its task leads to a path of names alone, or to none.
fn becomes_a_path_of_names(meta: &ObjectMeta) {
    let said = |key: &str| {
        let annotations = meta.annotations.as_ref();
        annotations
            .and_then(|all| all.get(key))
            .map_or("", String::as_str)
    };
    let uid = meta.labels.as_ref().and_then(|all| all.get(TASK_UID));
    let (kind, namespace, name) = (said(TASK_KIND), said(TASK_NAMESPACE), said(TASK_NAME));
    let Some(id) = TaskId::parse(kind, namespace, name, uid.map_or("", String::as_str)) else {
        return;
    };
    let path = tasks_path(&id).expect("what is parsed has a path");
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '/');
    assert!(path.chars().all(is_plain) && !path.contains("..") && !id.name.contains(['/', '?', '%', '#']));
    let names = path.split('/').count();
    assert_eq!(names, if id.namespace.is_empty() { 5 } else { 7 });
}

/// An object is a hub's only with the name that follows from its task, whatever its metadata contain; and a pod's termination
/// message is one of the closed list, or none.
pub fn annotations(bytes: &[u8]) {
    if let Some(word) = std::str::from_utf8(bytes).ok().and_then(Termination::parse) {
        let text = word.to_json();
        assert!(text.len() < 160 && Termination::parse(&text) == Some(word));
    }
    let Ok(meta) = serde_json::from_slice::<ObjectMeta>(bytes) else {
        return;
    };
    let (hub, task) = (hub(), task_of(&meta));
    let has_its_name = |uid: &TaskUid| meta.name.as_deref().is_some_and(|name| is_name_of(name, uid));
    if let Some(mark) = job_metadata(&meta, CompletionHint::No) {
        assert!(Some(&mark.task) == task.as_ref() && has_its_name(&mark.task));
    }
    assert!(secret_task(&meta).is_none_or(|uid| has_its_name(&uid)));
    assert!(pod_task(&meta).is_none_or(|uid| Some(uid) == task));
    let maker = maker(&hub, &meta);
    assert!(maker == ObjectCreator::Foreign || task.as_ref().is_some_and(has_its_name));
    let id = TaskId {
        kind: TaskKind::RenderTask,
        namespace: "team-a".to_owned(),
        name: "shop".to_owned(),
        uid: task.unwrap_or_else(|| TaskUid::new("t1")),
    };
    becomes_a_path_of_names(&meta);
    assert!(!is_its(&hub, &meta, &id, "abc") || maker != ObjectCreator::Foreign);
    let known = Some((&id, Some("abc")));
    assert!(maker == ObjectCreator::Kin || judge(&hub, &meta, true, known) == AdoptionDecision::Leave);
    assert!(
        judge(&hub, &meta, false, known) == AdoptionDecision::Leave,
        "what it does not serve"
    );
}
