//! The statuses of a namespace's Releases, Profiles and bindings, the shared tasks that no Target needs any more, and versions whose
//! Target is gone.

use std::collections::BTreeSet;
use std::slice::from_ref;

use crate::controllers::stopping::unless_stopped;
use crate::kubernetes::apply::CallError;
use crate::plan::pipeline::concerned::StatusObject;
use crate::plan::pipeline::decide::{FollowUp, NeededTasks, SeenObject, VersionRecord};
use crate::plan::pipeline::history::StoredVersion;
use crate::plan::pipeline::kept_tasks::named_by_no_version;
use crate::plan::pipeline::object::{ObjectKey, within};
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::prune::{OrphanedVersions, Retirement, is_pruned, retire};
use crate::plan::pipeline::status::StatusInput;
use crate::plan::pipeline::task::base_name;
use crate::plan::platform::catalog::Catalog;

use super::kinds::KINDS;
use super::status_write::PendingStatus;
use super::work::WorkOutcome;
use super::writes::PipelineWriter;

/// Work for one namespace.
#[derive(Default)]
pub(super) struct NamespaceWork {
    statuses: Vec<PendingStatus>,
    old_tasks: Vec<SeenObject>,
    old_versions: Vec<SeenObject>,
    records: Vec<VersionRecord>,
}

impl NamespaceWork {
    /// The statuses of these objects that differ from what is there, and what is left of others; `None` where nothing is to be
    /// done.
    pub fn of(
        statuses: &BTreeSet<StatusObject>,
        input: &StatusInput<'_>,
        leftovers: Option<&Leftovers<'_>>,
        catalog: &Catalog,
    ) -> Option<Self> {
        let mut work = Self::default();
        for StatusObject { kind, key } in statuses {
            let mut known = KINDS.iter();
            let operations = known.find(|known| known.status_kind == Some(*kind));
            let pending = operations.and_then(|operations| (operations.pending_status)(key, input));
            work.statuses.extend(pending);
        }
        if let Some(leftovers) = leftovers {
            work.sweep(leftovers, input, catalog);
        }
        work.has_work().then_some(work)
    }

    /// Tasks that are needed no more, and versions whose Target is gone.
    fn sweep(&mut self, leftovers: &Leftovers<'_>, input: &StatusInput<'_>, catalog: &Catalog) {
        self.old_tasks.clone_from(&leftovers.unneeded);
        for (key, version) in &leftovers.orphans.versions {
            let is_pruned = is_pruned(key, version, input.objects, input.rules, catalog);
            let account = account(version, key, input.objects);
            match retire(version, account, is_pruned, input.now) {
                Retirement::Delete => self.old_versions.push(((*key).clone(), version.uid.clone())),
                Retirement::Record(status) => self.records.push(VersionRecord::of(key, version, *status)),
            }
        }
    }

    fn has_work(&self) -> bool {
        !self.statuses.is_empty()
            || !self.old_tasks.is_empty()
            || !self.old_versions.is_empty()
            || !self.records.is_empty()
    }

    /// Does it.
    pub async fn run(self, writer: PipelineWriter) -> WorkOutcome {
        WorkOutcome {
            result: self.write(&writer).await,
            follow_up: FollowUp::AtOnce,
            refusal: None,
        }
    }

    async fn write(self, writer: &PipelineWriter) -> Result<(), CallError> {
        let stop = &writer.stopping;
        for write in unless_stopped(self.statuses, stop) {
            write(writer).await?;
        }
        for task in unless_stopped(&self.old_tasks, stop) {
            writer.delete_tasks(from_ref(task)).await?;
        }
        for record in unless_stopped(&self.records, stop) {
            writer.write_version_status(record).await?;
        }
        for version in unless_stopped(&self.old_versions, stop) {
            writer.delete_versions(from_ref(version)).await?;
        }
        Ok(())
    }
}

/// What may be left of others in a namespace.
pub(super) struct Leftovers<'o> {
    /// Shared tasks that no Target needs.
    pub unneeded: Vec<SeenObject>,
    pub orphans: OrphanedVersions<'o>,
}

/// The ServiceAccount of the Target of a version, where that is still there.
fn account<'o>(version: &StoredVersion, key: &ObjectKey, objects: &'o PipelineObjects) -> Option<&'o str> {
    let spec = version.spec.as_ref()?;
    let target = objects
        .targets
        .get(&ObjectKey::new(&key.namespace, &spec.target_name))?;
    let target = target.spec.as_ref().filter(|_| target.uid == spec.target_uid)?;
    target.service_account_name.as_deref()
}

/// Shared tasks that no Target needs, and whose chart no version names. Of a Target whose `needs` are not known each may be needed.
pub(super) fn unneeded<'n>(
    namespace: &str,
    objects: &PipelineObjects,
    needs: impl Iterator<Item = Option<&'n NeededTasks>>,
) -> Vec<SeenObject> {
    let tasks = within(&objects.tasks, namespace);
    let mut tasks: Vec<_> = tasks
        .filter(|(_, task)| task.is_shared() && !task.deleting)
        .collect();
    for needed in needs {
        // Most often the first Target needs them all.
        if tasks.is_empty() {
            break;
        }
        let Some(NeededTasks::Named(names)) = needed else {
            return Vec::new();
        };
        tasks.retain(|(key, _)| !names.contains(base_name(&key.name)));
    }
    let unneeded = named_by_no_version(namespace, objects, tasks);
    unneeded
        .into_iter()
        .map(|(key, task)| (key.clone(), task.uid.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::TaskOwner;
    use crate::controllers::pipeline::controller::tests::controller;
    use crate::plan::pipeline::task_state::{PipelineTask, PipelineTaskState, TaskChart};

    fn task(name: &str, owner: &str, deleting: bool) -> (ObjectKey, PipelineTask) {
        let task = PipelineTask {
            uid: format!("uid-of-{name}"),
            spec_hash: String::new(),
            deleting,
            owner: Some(TaskOwner {
                kind: owner.to_owned(),
                namespace: None,
                name: name.to_owned(),
            }),
            chart: TaskChart::default(),
            state: PipelineTaskState::Running,
        };
        (ObjectKey::new("team", name), task)
    }

    fn named(names: &[&str]) -> NeededTasks {
        NeededTasks::Named(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[tokio::test]
    async fn a_hub_that_stops_begins_no_further_write_for_a_namespace() {
        let writer = controller().writer;
        let left = || vec![(ObjectKey::new("team", "left"), "uid".to_owned())];
        let works = || {
            let tasks = NamespaceWork {
                old_tasks: left(),
                ..NamespaceWork::default()
            };
            let versions = NamespaceWork {
                old_versions: left(),
                ..NamespaceWork::default()
            };
            let statuses = NamespaceWork {
                statuses: vec![Box::new(|_| Box::pin(async { Err(CallError::Conflict) }))],
                ..NamespaceWork::default()
            };
            [tasks, versions, statuses]
        };
        for work in works() {
            assert!(
                work.run(writer.clone()).await.result.is_err(),
                "there is no API server"
            );
        }
        writer.stopping.cancel();
        for work in works() {
            work.run(writer.clone()).await.result.unwrap();
        }
    }

    #[test]
    fn a_shared_task_goes_once_every_target_is_known_to_do_without_it() {
        let mut objects = PipelineObjects::default();
        for (key, task) in [
            task("web", "Release", false),
            task("db", "Release", false),
            task("gone", "Release", true),
            task("edge", "Target", false),
        ] {
            objects.tasks.insert(key, task);
        }
        let (web, both, all) = (named(&["web"]), named(&["web", "db"]), NeededTasks::All);
        let none = named(&[]);
        for (needs, left) in [
            (vec![], vec!["web", "db"]),
            (vec![Some(&web)], vec!["db"]),
            (vec![Some(&web), Some(&none)], vec!["db"]),
            (vec![Some(&web), Some(&both)], vec![]),
            (vec![Some(&web), None], vec![]),
            (vec![Some(&all), Some(&web)], vec![]),
            (vec![Some(&none), Some(&web)], vec!["db"]),
        ] {
            let found = unneeded("team", &objects, needs.iter().copied());
            let found: BTreeSet<_> = found.into_iter().map(|(key, _)| key.name).collect();
            assert_eq!(
                found,
                left.iter().map(|name| (*name).to_owned()).collect(),
                "{needs:?}"
            );
            assert!(unneeded("other", &objects, needs.into_iter()).is_empty());
        }
    }
}
