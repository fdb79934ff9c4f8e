//! The versions of a Target: a new one where the content is new, the chart of the newest one, and the end of old ones.

use k8s_openapi::jiff::Timestamp;

use super::decision::{TargetInput, VersionRecord};
use super::draft::{ChartState, Draft};
use super::releases::BundledReleases;
use crate::api::RegistryKind;
use crate::api::conditions::Reason;
use crate::api::pipeline::{HydratedRegistry, HydratedTargetSpec, HydratedTargetStatus, RenderRegistryKind};
use crate::api::time::whole_seconds;
use crate::plan::pipeline::chart::{
    bootstrap_chart, bootstrap_number, bootstrap_repository, bootstrap_tag, bootstrap_task_prefix,
};
use crate::plan::pipeline::conditions::Verdict;
use crate::plan::pipeline::destination::RenderDestination;
use crate::plan::pipeline::history::{
    MAX_PROFILES, MAX_VERSION_BYTES, StoredVersion, changes, is_pushed, is_same_content, newest_of_name,
    next_version, superfluous, version_name,
};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::source::TargetView;
use crate::plan::pipeline::status::set_ready;
use crate::plan::pipeline::task::{base_name, own_tasks};
use crate::plan::pipeline::task_state::{PipelineTask, PipelineTaskState};
use crate::plan::pipeline::version_bytes::fits;

/// What a Target says that gets no new version.
const TOO_MANY_VERSIONS: &str = "the versions of the Targets of this namespace, without their history, take all the bytes that the hub keeps of a \
                                 namespace; the Target stays as it is: delete Targets that are not needed or move them to another \
                                 namespace, bind fewer Releases, or shorten userdata";

impl Draft<'_> {
    /// Makes the version of a new content, and sees that the chart of the newest one is pushed.
    pub(super) fn bootstrap(
        &mut self,
        bundled: Option<BundledReleases>,
        destination: &RenderDestination,
    ) -> Verdict {
        let newest = self.newest();
        let newest_spec = newest.and_then(|(_, version)| version.spec.as_ref());
        let is_content_known = bundled.is_some();
        let content = bundled.map(|bundled| self.content(destination, bundled));
        if let Some(content) = content
            && !newest_spec.is_some_and(|newest| is_same_content(newest, &content))
        {
            return self.new_version(content, newest_spec, destination);
        }
        let (Some((key, version)), Some(spec)) = (newest, newest_spec) else {
            return Verdict::bad(Reason::Pending, "the Target has no version yet");
        };
        if is_pushed(version) {
            return self.pushed(spec);
        }
        if spec.registry != self.registry(destination) {
            let message = "the Target has another registry now; its next version goes there";
            return Verdict::bad(Reason::Pending, message);
        }
        if !is_content_known && self.is_going_back_from(spec) {
            return self.held_back_by_pin(spec.version);
        }
        self.push(key, version, spec, destination)
    }

    /// The newest version is pushed.
    fn pushed(&mut self, spec: &HydratedTargetSpec) -> Verdict {
        let (number, host, repository) = (spec.version, &spec.registry.hostname, &spec.registry.repository);
        self.out.status.bootstrap_version = Some(number);
        self.out.status.chart_url = Some(format!("oci://{host}/{repository}:{}", bootstrap_tag(number)));
        Verdict::good(Reason::Ready, format!("the chart of version {number} is pushed"))
    }

    /// Sees that the chart of the newest version is pushed.
    fn push(
        &mut self,
        key: &ObjectKey,
        version: &StoredVersion,
        spec: &HydratedTargetSpec,
        destination: &RenderDestination,
    ) -> Verdict {
        let number = spec.version;
        // A hub that was killed had not recorded it.
        self.out.status.newest_version = self.out.status.newest_version.max(Some(number));
        let chart = bootstrap_chart(spec, self.input.target.key, self.spec, destination);
        self.bootstrap_task = Some(chart.task_name.clone());
        match self.progress_of(&chart, true) {
            ChartState::Pushed { digest, at } => {
                let status = pushed_status(version, digest, at);
                self.out.version_status = Some(VersionRecord::of(key, version, status));
                self.pushed(spec)
            }
            ChartState::Pending(Some(reason)) => waits(number, reason),
            ChartState::Pending(None) => not_pushed(number),
            ChartState::Failed(Reason::TagConflict, _) if !self.is_second_conflict(spec) => {
                let changes = format!("as version {number}, whose tag holds another chart");
                let next = HydratedTargetSpec {
                    changes,
                    ..spec.clone()
                };
                self.make_version(next, number + 1, destination)
            }
            ChartState::Failed(reason, is_final) => {
                let verdict = failed(number, reason, is_final);
                let status = failed_status(version, &verdict, self.input.now);
                if status != version.status {
                    self.out.version_status = Some(VersionRecord::of(key, version, status));
                }
                verdict
            }
        }
    }

    /// Whether the version before has the same content and is not pushed either: then another number does not help.
    fn is_second_conflict(&self, spec: &HydratedTargetSpec) -> bool {
        let before = self.versions.get(&(spec.version - 1));
        before.is_some_and(|(_, before)| {
            let is_same = |known| is_same_content(known, spec);
            !is_pushed(before) && before.spec.as_ref().is_some_and(is_same)
        })
    }

    /// Where the chart of a version goes.
    fn registry(&self, destination: &RenderDestination) -> HydratedRegistry {
        HydratedRegistry {
            kind: match destination.registry.kind {
                RegistryKind::Registry => RenderRegistryKind::Registry,
                RegistryKind::ClusterRegistry => RenderRegistryKind::ClusterRegistry,
            },
            name: destination.registry.name.clone(),
            namespace: destination.registry.namespace.clone(),
            hostname: destination.hostname.clone(),
            repository: bootstrap_repository(self.input.target.key, destination),
        }
    }

    /// A version without its number.
    fn content(&self, destination: &RenderDestination, bundled: BundledReleases) -> HydratedTargetSpec {
        let TargetView { key, object } = self.input.target;
        HydratedTargetSpec {
            target_name: key.name.clone(),
            target_uid: object.uid.clone(),
            version: 0,
            registry: self.registry(destination),
            releases: bundled.releases,
            profiles: bundled.profiles,
            userdata: bundled.userdata,
            changes: String::new(),
            rollback_to: self.spec.rollback_to,
        }
    }

    fn new_version(
        &mut self,
        mut content: HydratedTargetSpec,
        newest: Option<&HydratedTargetSpec>,
        destination: &RenderDestination,
    ) -> Verdict {
        let TargetView { key, object } = self.input.target;
        let recorded = object.status.newest_version.max(object.status.bootstrap_version);
        let newest_number = newest.map(|newest| newest.version);
        let is_first = recorded.or(newest_number).is_none();
        let others = is_first.then(|| newest_of_name(&self.input.objects.hydrated_targets, key));
        let number = next_version(newest_number, recorded, others.flatten(), object.created)
            .max(self.newest_of_tasks().map_or(0, |newest| newest + 1));
        content.changes = changes(newest, &content);
        self.make_version(content, number, destination)
    }

    /// The newest number that a task of the Target has: its version may be gone before a status recorded it.
    fn newest_of_tasks(&self) -> Option<i64> {
        let own = own_tasks(self.input.target.key, self.input.objects);
        own.filter_map(|(_, task)| bootstrap_number(&task.chart.tag))
            .max()
    }

    /// Makes a version with a number that none had before, and asks for its chart in the same pass: the version is written first.
    fn make_version(
        &mut self,
        mut content: HydratedTargetSpec,
        number: i64,
        destination: &RenderDestination,
    ) -> Verdict {
        content.version = number;
        if content.profiles.len() > MAX_PROFILES {
            let message = format!(
                "{} Profiles have data for the Target, of {MAX_PROFILES} at most; let fewer of them have userdata",
                content.profiles.len()
            );
            return Verdict::bad(Reason::VersionTooLarge, message);
        }
        let bytes = serde_json::to_vec(&content).map_or(usize::MAX, |json| json.len());
        if bytes > MAX_VERSION_BYTES {
            let message = format!(
                "the next version would have {bytes} bytes, of {MAX_VERSION_BYTES} at most; bind fewer Releases, or shorten userdata"
            );
            return Verdict::bad(Reason::VersionTooLarge, message);
        }
        let (key, objects) = (self.input.target.key, self.input.objects);
        if !fits(&key.namespace, objects, &content) {
            return Verdict::bad(Reason::TooManyVersions, TOO_MANY_VERSIONS);
        }
        let chart = bootstrap_chart(&content, key, self.spec, destination);
        self.out.status.newest_version = Some(number);
        self.out.new_version = Some((version_name(&key.name, number), content));
        match self.progress_of(&chart, true) {
            ChartState::Pushed { .. } | ChartState::Pending(None) => not_pushed(number),
            ChartState::Pending(Some(reason)) => waits(number, reason),
            ChartState::Failed(reason, is_final) => failed(number, reason, is_final),
        }
    }

    /// Old versions, and tasks of versions that are not the newest.
    pub(super) fn clean_up(&mut self) {
        let TargetInput { target, objects, .. } = self.input;
        let superfluous = superfluous(&self.versions, self.spec.history_limit, self.spec.rollback_to);
        for number in &superfluous {
            if let Some((key, version)) = self.versions.get(number) {
                let account = self.spec.service_account_name.as_deref();
                self.out.retire(key, version, account, self.input);
            }
        }
        let Some(newest) = self.versions.keys().next_back() else {
            return;
        };
        let current = format!("-v{newest}-");
        let wanted = self.bootstrap_task.as_deref();
        for (key, task) in own_tasks(target.key, objects) {
            // A task of the newest version that renders it otherwise than it should be now would push the same tag.
            let is_current =
                key.name.contains(&current) && wanted.is_none_or(|wanted| base_name(&key.name) == wanted);
            if !task.deleting && !is_current {
                self.out.old_tasks.push((key.clone(), task.uid.clone()));
                let pushed = self
                    .unrecorded(&key.name, task)
                    .filter(|(number, _)| !superfluous.contains(number));
                self.out.records.extend(pushed.map(|(_, record)| record));
            }
        }
    }

    /// A version that was pushed by this task without that being recorded, because the next one was made meanwhile.
    fn unrecorded(&self, task_name: &str, task: &PipelineTask) -> Option<(i64, VersionRecord)> {
        let PipelineTaskState::Succeeded { digest, at } = &task.state else {
            return None;
        };
        let target = &self.input.target.key.name;
        let is_of = |number: i64| task_name.starts_with(&bootstrap_task_prefix(target, number));
        let mut versions = self.versions.iter();
        let (number, (key, version)) =
            versions.find(|(number, (_, version))| is_of(**number) && !is_pushed(version))?;
        let status = pushed_status(version, digest.as_deref(), *at);
        Some((*number, VersionRecord::of(key, version, status)))
    }
}

fn not_pushed(number: i64) -> Verdict {
    let message = format!("the chart of version {number} is not pushed yet");
    Verdict::bad(Reason::Pending, message)
}

fn waits(number: i64, reason: Reason) -> Verdict {
    let message = format!("the chart of version {number} waits: {reason}");
    Verdict::bad(Reason::Pending, message)
}

fn failed(number: i64, reason: Reason, is_final: bool) -> Verdict {
    let message = format!("the chart of version {number} failed with {reason}; its RenderTask says why");
    Verdict::bad(Reason::Failed, message).stalled_if(is_final)
}

fn pushed_status(version: &StoredVersion, digest: Option<&str>, at: Timestamp) -> HydratedTargetStatus {
    let mut status = version.status.clone();
    status.digest = digest.map(str::to_owned);
    status.pushed_at = Some(whole_seconds(at));
    status.observed_generation = Some(version.generation);
    let ready = Verdict::good(Reason::Ready, "the chart is pushed");
    set_ready(&mut status.conditions, ready, version.generation, at);
    status
}

/// What a version says whose chart failed. One that is pushed at once says so in one write, so nothing is written of one that is on
/// its way: the schema says for it that the hub has not spoken.
fn failed_status(version: &StoredVersion, verdict: &Verdict, now: Timestamp) -> HydratedTargetStatus {
    let mut status = version.status.clone();
    status.observed_generation = Some(version.generation);
    set_ready(&mut status.conditions, verdict.clone(), version.generation, now);
    status
}
