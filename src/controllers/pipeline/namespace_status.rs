//! The statuses of a namespace's Releases, Profiles and bindings, the shared tasks that no Target needs any more, and versions whose
//! Target is gone.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::pipeline::HydratedTargetStatus;
use crate::kubernetes::apply::CallError;
use crate::plan::pipeline::concerned::{StatusKind, StatusObject};
use crate::plan::pipeline::decide::SeenObject;
use crate::plan::pipeline::history::StoredVersion;
use crate::plan::pipeline::kept_tasks::named_by_no_version;
use crate::plan::pipeline::object::{ObjectKey, within};
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::profile_status::of_profile;
use crate::plan::pipeline::prune::{OrphanedVersions, Retirement, is_pruned, retire};
use crate::plan::pipeline::reports::{self, PipelineReport};
use crate::plan::pipeline::status::{
    StatusInput, of_component, of_component_version, of_registry_binding, of_release, of_release_binding,
};
use crate::plan::pipeline::task::base_name;
use crate::plan::platform::catalog::Catalog;

use super::status_write::NamespaceStatusWrite;
use super::work::WorkOutcome;
use super::writes::{PipelineWriter, Written};

/// Work for one namespace.
#[derive(Default)]
pub(super) struct NamespaceWork {
    statuses: Vec<NamespaceStatusWrite>,
    /// Events of Profiles, once their statuses are written.
    reports: BTreeMap<ObjectKey, PipelineReport>,
    old_tasks: Vec<SeenObject>,
    old_versions: Vec<SeenObject>,
    records: Vec<(SeenObject, HydratedTargetStatus)>,
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
        for object in statuses {
            let write = changed(object, input);
            let report = write.as_ref().and_then(|write| report(write, input.objects));
            work.statuses.extend(write);
            work.reports.extend(report);
        }
        if let Some(leftovers) = leftovers {
            work.sweep(leftovers, input, catalog);
        }
        work.has_work().then_some(work)
    }

    /// Tasks that are needed no more, and versions whose Target is gone.
    fn sweep(&mut self, leftovers: &Leftovers<'_>, input: &StatusInput<'_>, catalog: &Catalog) {
        if let Some(needed) = &leftovers.needed {
            self.old_tasks = unneeded(leftovers.namespace, input.objects, needed);
        }
        for (key, version) in &leftovers.orphans.versions {
            let seen = ((*key).clone(), version.uid.clone());
            let is_pruned = is_pruned(key, version, input.objects, input.rules, catalog);
            let account = account(version, key, input.objects);
            match retire(version, account, is_pruned, input.now) {
                Retirement::Delete => self.old_versions.push(seen),
                Retirement::Record(status) => self.records.push((seen, *status)),
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
        let mut written = Vec::new();
        let result = self.write(&writer, &mut written).await;
        WorkOutcome {
            written,
            result,
            refusal: None,
        }
    }

    async fn write(&self, writer: &PipelineWriter, written: &mut Vec<Written>) -> Result<(), CallError> {
        for status in &self.statuses {
            let version = status.send(&writer.client).await?;
            written.push(Written::NamespaceStatus(status.clone(), version));
            if let NamespaceStatusWrite::Profile(seen, _) = status
                && let Some(report) = self.reports.get(&seen.0)
            {
                writer.record("Profile", seen, report);
            }
        }
        writer.delete_tasks(&self.old_tasks, written).await?;
        for record in &self.records {
            writer.write_version(record, written).await?;
        }
        writer.delete_versions(&self.old_versions, written).await
    }
}

/// What may be left of others in a namespace.
pub(super) struct Leftovers<'o> {
    pub namespace: &'o str,
    /// The shared tasks that Targets need; without it, one of them may need any, and every task stays.
    pub needed: Option<BTreeSet<&'o str>>,
    pub orphans: OrphanedVersions<'o>,
}

/// The status that an object should have, where it has another.
fn changed(
    StatusObject { kind, key }: &StatusObject,
    input: &StatusInput<'_>,
) -> Option<NamespaceStatusWrite> {
    let objects = input.objects;
    macro_rules! changed {
        ($field:ident, $of:ident, $variant:ident) => {{
            let (key, object) = objects.$field.get_key_value(key)?;
            let status = $of(key, object, input)?;
            let seen = (key.clone(), object.uid.clone());
            (status != object.status).then(|| NamespaceStatusWrite::$variant(seen, status))
        }};
    }
    match kind {
        StatusKind::Release => changed!(releases, of_release, Release),
        StatusKind::Profile => changed!(profiles, of_profile, Profile),
        StatusKind::ReleaseBinding => changed!(release_bindings, of_release_binding, ReleaseBinding),
        StatusKind::RegistryBinding => changed!(registry_bindings, of_registry_binding, RegistryBinding),
        StatusKind::Component => changed!(components, of_component, Component),
        StatusKind::ComponentVersion => changed!(component_versions, of_component_version, ComponentVersion),
    }
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

/// The event of a Profile whose status changes.
fn report(write: &NamespaceStatusWrite, objects: &PipelineObjects) -> Option<(ObjectKey, PipelineReport)> {
    let NamespaceStatusWrite::Profile((key, _), status) = write else {
        return None;
    };
    let report = reports::of_profile(&objects.profiles.get(key)?.status, status)?;
    Some((key.clone(), report))
}

/// Shared tasks that no Target needs, and whose chart no version names.
fn unneeded(namespace: &str, objects: &PipelineObjects, needed: &BTreeSet<&str>) -> Vec<SeenObject> {
    let tasks = within(&objects.tasks, namespace).filter(|(key, task)| {
        let is_shared = task.owner.as_ref().is_some_and(|owner| owner.kind == "Release");
        is_shared && !task.deleting && !needed.contains(base_name(&key.name))
    });
    let unneeded = named_by_no_version(namespace, objects, tasks.collect());
    unneeded
        .into_iter()
        .map(|(key, task)| (key.clone(), task.uid.clone()))
        .collect()
}
