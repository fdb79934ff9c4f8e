//! What is to be done for a Target.
//!
//! First the chart of each Release, by a task that Targets of a namespace share. Once all of them are pushed, a version that
//! records the content. Then the chart of that version. So a version stands for one content from the moment it exists, and a hub
//! that is killed anywhere goes on by looking.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::api::RegistryKind;
use crate::api::RenderTaskSpec;
use crate::api::conditions::{ConditionType, DesiredCondition, Reason, merge};
use crate::api::pipeline::{
    HydratedRegistry, HydratedRelease, HydratedTargetSpec, HydratedTargetStatus, LeavingRelease,
    RenderRegistryKind, TargetRelease, TargetSpec, TargetStatus,
};
use crate::plan::platform::catalog::Catalog;

use super::chart::{PlannedChart, bootstrap_chart, bootstrap_repository, release_chart};
use super::conditions::{Verdict, dependencies, listed, resolved};
use super::destination::{RenderDestination, destination};
use super::history::{
    MAX_VERSION_BYTES, StoredVersion, changes, is_pushed, is_same_content, next_version, superfluous,
    version_name, versions,
};
use super::object::{ObjectKey, PipelineObjects, within};
use super::references::ReferenceRules;
use super::resolve::{AcceptedRelease, KeptReason, LEAVES_AFTER, Resolution, resolve};
use super::source::TargetView;
use super::status::set_ready;
use super::task::{TaskProgress, base_name, older_attempts, progress};
use super::userdata::merged;

/// A task to be made.
#[derive(Clone, Debug)]
pub struct NewTask {
    /// Its name.
    pub name: String,
    /// What it renders.
    pub spec: RenderTaskSpec,
    /// Whether it is the Target's alone, and goes with it.
    pub is_targets_own: bool,
}

/// An object to be written or deleted, as it was seen.
pub type SeenObject = (ObjectKey, String);

/// What is to be done for a Target.
#[derive(Clone, Debug, Default)]
pub struct TargetDecision {
    /// Tasks to be made.
    pub new_tasks: Vec<NewTask>,
    /// The version to be made.
    pub new_version: Option<(String, HydratedTargetSpec)>,
    /// The status of a version to be written.
    pub version_status: Option<(SeenObject, HydratedTargetStatus)>,
    /// Versions to be deleted.
    pub old_versions: Vec<SeenObject>,
    /// Tasks to be deleted.
    pub old_tasks: Vec<SeenObject>,
    /// Names of the shared tasks that the Target needs.
    pub needed: Vec<String>,
    /// The status that the Target should have.
    pub status: TargetStatus,
    /// When to decide again, if nothing happens before.
    pub look_again: Option<Timestamp>,
}

/// Everything that a decision rests on.
#[derive(Clone, Copy, Debug)]
pub struct TargetInput<'o> {
    /// The Target.
    pub target: TargetView<'o>,
    /// All objects of the pipeline.
    pub objects: &'o PipelineObjects,
    /// What governs references.
    pub rules: &'o ReferenceRules,
    /// What the platform offers.
    pub catalog: &'o Catalog,
    /// The time.
    pub now: Timestamp,
}

/// A decision as it is made.
struct Draft<'o> {
    input: TargetInput<'o>,
    spec: &'o TargetSpec,
    versions: BTreeMap<i64, (&'o ObjectKey, &'o StoredVersion)>,
    out: TargetDecision,
    conditions: Vec<DesiredCondition>,
}

/// What is to be done for a Target; `None` where this version of the hub cannot decode it, or it is being deleted.
#[must_use]
pub fn decide(input: TargetInput<'_>) -> Option<TargetDecision> {
    let TargetView { key, object } = input.target;
    let spec = object.spec.as_ref().filter(|_| !object.deleting)?;
    let mut draft = Draft {
        input,
        spec,
        versions: versions(&input.objects.hydrated_targets, key, &object.uid),
        out: TargetDecision {
            status: object.status.clone(),
            ..TargetDecision::default()
        },
        conditions: Vec::new(),
    };
    let ready = draft.run();
    Some(draft.finished(ready))
}

impl<'o> Draft<'o> {
    /// Fills the decision; returns the verdict on `Ready`.
    fn run(&mut self) -> Verdict {
        let TargetInput {
            target,
            objects,
            rules,
            catalog,
            ..
        } = self.input;
        if self.spec.suspend == Some(true) {
            self.keep_needed();
            return Verdict::bad(
                Reason::Suspended,
                "the Target is suspended; remove suspend and it goes on",
            );
        }
        let destination = match destination(target.key, self.spec, objects, rules, catalog) {
            Ok(destination) => destination,
            Err(refusal) => {
                self.keep_needed();
                let verdict = Verdict::bad(refusal.reason, refusal.message);
                self.condition(ConditionType::RegistryResolved, verdict.clone());
                return verdict;
            }
        };
        let usable = "the registry is there and may be used";
        self.condition(
            ConditionType::RegistryResolved,
            Verdict::good(Reason::Resolved, usable),
        );
        let (content, verdict) = match self.spec.rollback_to {
            Some(version) => self.pinned(version, &destination),
            None => self.resolved(&destination),
        };
        let pushed = self.bootstrap(content, &destination);
        self.condition(ConditionType::BootstrapReady, pushed.clone());
        self.clean_up();
        if verdict.holds { pushed } else { verdict }
    }

    fn condition(&mut self, type_: ConditionType, verdict: Verdict) {
        self.conditions.push(verdict.of(type_));
    }

    /// Nothing is decided about tasks, so all those that may be needed stay.
    fn keep_needed(&mut self) {
        let tasks = within(&self.input.objects.tasks, &self.input.target.key.namespace);
        self.out.needed = tasks.map(|(key, _)| base_name(&key.name).to_owned()).collect();
    }

    fn newest(&self) -> Option<(&'o ObjectKey, &'o StoredVersion)> {
        self.versions.last_key_value().map(|(_, newest)| *newest)
    }

    /// The content of the version that the Target is pinned to; `None` where there is none.
    fn pinned(&mut self, to: i64, destination: &RenderDestination) -> (Option<HydratedTargetSpec>, Verdict) {
        self.keep_needed();
        let found = self
            .versions
            .get(&to)
            .and_then(|(_, version)| version.spec.as_ref());
        let Some(version) = found else {
            let message =
                format!("version {to}, which rollbackTo names, does not exist; the Target stays as it is");
            let verdict = Verdict::bad(Reason::VersionNotFound, message);
            self.condition(ConditionType::ReleasesResolved, verdict.clone());
            return (None, verdict);
        };
        let pinned = format!("pinned to version {to} until rollbackTo is removed");
        self.condition(
            ConditionType::ReleasesResolved,
            Verdict::good(Reason::Resolved, &pinned),
        );
        self.condition(
            ConditionType::ReleasesRendered,
            Verdict::good(Reason::AllRendered, &pinned),
        );
        let mut content = self.content(destination, version.releases.clone(), version.userdata.clone());
        content.rollback_to = Some(to);
        (Some(content), Verdict::good(Reason::Ready, pinned))
    }

    /// The content that the Releases of the Target make; `None` while not all of them are rendered.
    fn resolved(&mut self, destination: &RenderDestination) -> (Option<HydratedTargetSpec>, Verdict) {
        let TargetInput {
            target,
            objects,
            rules,
            now,
            ..
        } = self.input;
        let last = self.newest().and_then(|(_, version)| version.spec.as_ref());
        let resolution = resolve(target, last, objects, rules, now);
        let verdict = resolved(&resolution);
        let may_be_empty = self.spec.allow_empty == Some(true) && resolution.unresolved.is_empty();
        self.condition(ConditionType::ReleasesResolved, verdict.clone());
        if !verdict.holds && !may_be_empty {
            self.keep_needed();
            self.condition(ConditionType::ReleasesRendered, verdict.clone());
            return (None, verdict);
        }
        let mut releases = self.kept(&resolution);
        let rendered = self.rendered(&resolution, destination, &mut releases);
        let (userdata, conflicts) = self.userdata(&resolution);
        let missing = dependencies(&resolution).or_else(|| conflict(&conflicts));
        let content = rendered
            .holds
            .then(|| self.content(destination, releases, userdata));
        let verdict = if rendered.holds {
            missing.unwrap_or(rendered)
        } else {
            rendered
        };
        self.condition(ConditionType::ReleasesRendered, verdict.clone());
        (content, verdict)
    }

    /// The Releases that stay as they are, and the times of those that leave.
    fn kept(&mut self, resolution: &Resolution<'_>) -> BTreeMap<String, HydratedRelease> {
        self.out.status.leaving.clear();
        self.out.status.releases.clear();
        let mut releases = BTreeMap::new();
        for kept in &resolution.kept {
            if let KeptReason::Unmatched(since) = kept.why {
                self.look_again(since.saturating_add(LEAVES_AFTER).unwrap_or(since));
                self.out.status.leaving.push(LeavingRelease {
                    unique_name: kept.unique_name.clone(),
                    since: Time(since),
                });
            }
            self.out.status.releases.push(TargetRelease {
                unique_name: kept.unique_name.clone(),
                namespace: kept.last.namespace.clone(),
                name: kept.last.name.clone(),
                source: kept.source.clone(),
                priority: kept.priority,
                version: kept.last.version.clone(),
            });
            releases.insert(kept.unique_name.clone(), kept.last.clone());
        }
        releases
    }

    /// Whether the charts of all accepted Releases are pushed; those that are join `releases`.
    fn rendered(
        &mut self,
        resolution: &Resolution<'o>,
        destination: &RenderDestination,
        releases: &mut BTreeMap<String, HydratedRelease>,
    ) -> Verdict {
        let (mut pending, mut failed) = (Vec::new(), Vec::new());
        for release in &resolution.accepted {
            let chart = release_chart(release, self.input.target.key, self.spec, destination);
            self.out.status.releases.push(listed_release(release, &chart));
            self.out.needed.push(chart.task_name.clone());
            match self.progress_of(&chart, false) {
                ChartState::Pushed { digest, .. } => {
                    let entry = hydrated(release, &chart, destination, digest);
                    releases.insert(release.unique_name.clone(), entry);
                }
                ChartState::Pending(why) => pending.push((release.release.clone(), why)),
                ChartState::Failed(reason) => failed.push((release.release.clone(), reason)),
            }
        }
        self.out
            .status
            .releases
            .sort_by(|a, b| a.unique_name.cmp(&b.unique_name));
        if !failed.is_empty() {
            let texts = failed.iter().map(|(release, reason)| {
                format!("the chart of Release {release} failed with {reason}; its RenderTask says why. What is on the cluster stays")
            });
            return Verdict::bad(Reason::ReleaseFailed, listed(texts));
        }
        if pending.is_empty() {
            return Verdict::good(Reason::AllRendered, "the charts of all Releases are pushed");
        }
        // Not which of them run: a fleet would write its statuses anew for each chart.
        let waiting = pending
            .iter()
            .filter_map(|(release, why)| why.map(|why| (release, why)));
        let first =
            "charts of Releases are not pushed yet; their RenderTasks say how far they are".to_owned();
        let texts = waiting.map(|(release, why)| format!("the chart of Release {release} waits: {why}"));
        let texts = std::iter::once(first).chain(texts);
        Verdict::bad(Reason::Pending, listed(texts))
    }

    /// How far a chart is; a task that is missing is made.
    fn progress_of(&mut self, chart: &PlannedChart, is_targets_own: bool) -> ChartState<'o> {
        let TargetInput {
            target, objects, now, ..
        } = self.input;
        let namespace = &target.key.namespace;
        let old = older_attempts(objects, namespace, &chart.task_name);
        self.out
            .old_tasks
            .extend(old.map(|(key, uid)| (key, uid.to_owned())));
        match progress(objects, namespace, &chart.task_name, &chart.spec_hash, now) {
            TaskProgress::Missing(name) => {
                self.out.new_tasks.push(NewTask {
                    name,
                    spec: chart.task.clone(),
                    is_targets_own,
                });
                ChartState::Pending(None)
            }
            TaskProgress::Running => ChartState::Pending(None),
            TaskProgress::Blocked(reason) if reason.is_stalled() => ChartState::Failed(reason),
            TaskProgress::Blocked(reason) => ChartState::Pending(Some(reason)),
            TaskProgress::Succeeded {
                digest,
                chart_url,
                at,
            } => ChartState::Pushed {
                digest,
                chart_url,
                at,
            },
            TaskProgress::Failed(reason, due) => {
                if let Some(due) = due {
                    self.look_again(due);
                }
                ChartState::Failed(reason)
            }
            TaskProgress::Taken(_) => ChartState::Failed(Reason::NameConflict),
        }
    }

    fn userdata(&self, resolution: &Resolution<'_>) -> (Option<Value>, Vec<String>) {
        let is_accepted =
            |release: &ObjectKey| resolution.accepted.iter().any(|known| known.release == *release);
        let bound = resolution
            .bound
            .iter()
            .filter(|bound| is_accepted(&bound.release));
        merged(
            bound.filter_map(|bound| bound.userdata),
            self.spec.userdata.as_ref(),
        )
    }

    /// A version without its number.
    fn content(
        &self,
        destination: &RenderDestination,
        releases: BTreeMap<String, HydratedRelease>,
        userdata: Option<Value>,
    ) -> HydratedTargetSpec {
        let TargetView { key, object } = self.input.target;
        HydratedTargetSpec {
            target_name: key.name.clone(),
            target_uid: object.uid.clone(),
            version: 0,
            registry: HydratedRegistry {
                kind: match destination.registry.kind {
                    RegistryKind::Registry => RenderRegistryKind::Registry,
                    RegistryKind::ClusterRegistry => RenderRegistryKind::ClusterRegistry,
                },
                name: destination.registry.name.clone(),
                namespace: destination.registry.namespace.clone(),
                repository: bootstrap_repository(key, destination),
            },
            releases,
            userdata,
            changes: String::new(),
            rollback_to: None,
        }
    }

    /// Makes the version of a new content, and sees that the chart of the newest one is pushed.
    fn bootstrap(&mut self, content: Option<HydratedTargetSpec>, destination: &RenderDestination) -> Verdict {
        let newest = self.newest();
        let newest_spec = newest.and_then(|(_, version)| version.spec.as_ref());
        if let Some(content) = content
            && !newest_spec.is_some_and(|newest| is_same_content(newest, &content))
        {
            return self.new_version(content, newest_spec);
        }
        let (Some((key, version)), Some(spec)) = (newest, newest_spec) else {
            return Verdict::bad(Reason::Pending, "the Target has no version yet");
        };
        let pushed = || {
            Verdict::good(
                Reason::Ready,
                format!("the chart of version {} is pushed", spec.version),
            )
        };
        if is_pushed(version) {
            self.out.status.bootstrap_version = Some(spec.version);
            return pushed();
        }
        if spec.registry.name != destination.registry.name
            || spec.registry.namespace != destination.registry.namespace
        {
            return Verdict::bad(
                Reason::Pending,
                "the Target has another registry now; its next version goes there",
            );
        }
        let chart = bootstrap_chart(spec, self.input.target.key, self.spec, destination);
        match self.progress_of(&chart, true) {
            ChartState::Pushed {
                digest,
                chart_url,
                at,
            } => {
                self.out.status.bootstrap_version = Some(spec.version);
                self.out.status.chart_url = chart_url.map(str::to_owned);
                let status = pushed_status(version, digest, at);
                self.out.version_status = Some(((key.clone(), version.uid.clone()), status));
                pushed()
            }
            ChartState::Pending(Some(reason)) => Verdict::bad(
                Reason::Pending,
                format!("the chart of version {} waits: {reason}", spec.version),
            ),
            ChartState::Pending(None) => Verdict::bad(
                Reason::Pending,
                format!("the chart of version {} is not pushed yet", spec.version),
            ),
            ChartState::Failed(reason) => {
                let message = format!(
                    "the chart of version {} failed with {reason}; its RenderTask says why",
                    spec.version
                );
                Verdict::bad(Reason::Failed, message)
            }
        }
    }

    fn new_version(
        &mut self,
        mut content: HydratedTargetSpec,
        newest: Option<&HydratedTargetSpec>,
    ) -> Verdict {
        let TargetView { key, object } = self.input.target;
        let recorded = object.status.bootstrap_version;
        content.version = next_version(newest.map(|newest| newest.version), recorded, object.created);
        content.changes = changes(newest, &content);
        let bytes = serde_json::to_vec(&content).map_or(usize::MAX, |json| json.len());
        if bytes > MAX_VERSION_BYTES {
            let message = format!(
                "the next version would have {bytes} bytes, of {MAX_VERSION_BYTES} at most; bind fewer Releases, or shorten userdata"
            );
            return Verdict::bad(Reason::VersionTooLarge, message);
        }
        let message = format!("version {} is made", content.version);
        self.out.new_version = Some((version_name(&key.name, content.version), content));
        Verdict::bad(Reason::Pending, message)
    }

    /// Old versions, and tasks of versions that are not the newest.
    fn clean_up(&mut self) {
        let TargetInput { target, objects, .. } = self.input;
        for number in superfluous(&self.versions, self.spec.history_limit, self.spec.rollback_to) {
            if let Some((key, version)) = self.versions.get(&number) {
                self.out.old_versions.push(((*key).clone(), version.uid.clone()));
            }
        }
        let Some(newest) = self.versions.keys().next_back() else {
            return;
        };
        let current = format!("-v{newest}-");
        for (key, task) in within(&objects.tasks, &target.key.namespace) {
            let owner = task.owner.as_ref();
            let is_own = owner.is_some_and(|owner| owner.kind == "Target" && owner.name == target.key.name);
            if is_own && !task.deleting && !key.name.contains(&current) {
                self.out.old_tasks.push((key.clone(), task.uid.clone()));
            }
        }
    }

    fn look_again(&mut self, at: Timestamp) {
        let earlier = self.out.look_again.map_or(at, |known| known.min(at));
        self.out.look_again = Some(earlier);
    }

    fn finished(mut self, ready: Verdict) -> TargetDecision {
        let generation = self.input.target.object.generation;
        let status = &mut self.out.status;
        merge(
            &mut status.conditions,
            &self.conditions,
            &[],
            Some(generation),
            self.input.now,
        );
        set_ready(&mut status.conditions, ready, generation, self.input.now);
        status.observed_generation = Some(generation);
        self.out
    }
}

/// How far a chart is.
enum ChartState<'o> {
    Pushed {
        digest: Option<&'o str>,
        chart_url: Option<&'o str>,
        at: Timestamp,
    },
    Pending(Option<Reason>),
    Failed(Reason),
}

fn conflict(paths: &[String]) -> Option<Verdict> {
    if paths.is_empty() {
        return None;
    }
    let message = format!(
        "Profiles of this Target set {} of its data differently, so none of them does; let one of them set each, or set them in the Target",
        if paths.len() == 1 {
            "a key".to_owned()
        } else {
            format!("{} keys", paths.len())
        }
    );
    Some(Verdict::bad(Reason::UserdataConflict, message))
}

fn listed_release(release: &AcceptedRelease<'_>, chart: &PlannedChart) -> TargetRelease {
    TargetRelease {
        unique_name: release.unique_name.clone(),
        namespace: release.release.namespace.clone(),
        name: release.release.name.clone(),
        source: release.source.clone(),
        priority: release.priority,
        version: chart.version.clone(),
    }
}

fn hydrated(
    release: &AcceptedRelease<'_>,
    chart: &PlannedChart,
    destination: &RenderDestination,
    digest: Option<&str>,
) -> HydratedRelease {
    HydratedRelease {
        namespace: release.release.namespace.clone(),
        name: release.release.name.clone(),
        source: release.source.clone(),
        component_version: release.version.tag.clone(),
        repository: chart.repository.clone(),
        version: chart.version.clone(),
        insecure: destination.plain_http,
        pull_secret_name: destination.pull_secret.clone(),
        digest: digest.map(str::to_owned),
    }
}

fn pushed_status(version: &StoredVersion, digest: Option<&str>, at: Timestamp) -> HydratedTargetStatus {
    let mut status = version.status.clone();
    status.digest = digest.map(str::to_owned);
    status.pushed_at = Some(Time(at));
    let ready = Verdict::good(Reason::Ready, "the chart is pushed").of(ConditionType::Ready);
    merge(
        &mut status.conditions,
        &[ready],
        &[],
        Some(version.generation),
        at,
    );
    status
}
