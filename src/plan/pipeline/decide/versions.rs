//! The versions of a Target: a new one where the content is new, the chart of the newest one, and the end of old ones.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::decision::TargetInput;
use super::draft::{ChartState, Draft};
use super::releases::BundledReleases;
use crate::api::RegistryKind;
use crate::api::conditions::{ConditionType, Reason, merge};
use crate::api::pipeline::{HydratedRegistry, HydratedTargetSpec, HydratedTargetStatus, RenderRegistryKind};
use crate::plan::pipeline::chart::{bootstrap_chart, bootstrap_repository};
use crate::plan::pipeline::conditions::Verdict;
use crate::plan::pipeline::destination::RenderDestination;
use crate::plan::pipeline::history::{
    MAX_VERSION_BYTES, StoredVersion, changes, is_pushed, is_same_content, next_version, superfluous,
    version_name,
};
use crate::plan::pipeline::object::{ObjectKey, within};
use crate::plan::pipeline::source::TargetView;

impl Draft<'_> {
    /// Makes the version of a new content, and sees that the chart of the newest one is pushed.
    pub(super) fn bootstrap(
        &mut self,
        bundled: Option<BundledReleases>,
        destination: &RenderDestination,
    ) -> Verdict {
        let newest = self.newest();
        let newest_spec = newest.and_then(|(_, version)| version.spec.as_ref());
        let content = bundled.map(|bundled| self.content(destination, bundled));
        if let Some(content) = content
            && !newest_spec.is_some_and(|newest| is_same_content(newest, &content))
        {
            return self.new_version(content, newest_spec);
        }
        let (Some((key, version)), Some(spec)) = (newest, newest_spec) else {
            return Verdict::bad(Reason::Pending, "the Target has no version yet");
        };
        if is_pushed(version) {
            return self.pushed(spec, destination);
        }
        let (named, known) = (&destination.registry, &spec.registry);
        if known.name != named.name || known.namespace != named.namespace {
            let message = "the Target has another registry now; its next version goes there";
            return Verdict::bad(Reason::Pending, message);
        }
        self.push(key, version, spec, destination)
    }

    /// The newest version is pushed.
    fn pushed(&mut self, spec: &HydratedTargetSpec, destination: &RenderDestination) -> Verdict {
        let (number, host, repository) = (spec.version, &destination.hostname, &spec.registry.repository);
        self.out.status.bootstrap_version = Some(number);
        self.out.status.chart_url = Some(format!("oci://{host}/{repository}:v0.0.{number}"));
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
        let chart = bootstrap_chart(spec, self.input.target.key, self.spec, destination);
        match self.progress_of(&chart, true) {
            ChartState::Pushed { digest, at } => {
                let status = pushed_status(version, digest, at);
                self.out.version_status = Some(((key.clone(), version.uid.clone()), status));
                self.pushed(spec, destination)
            }
            ChartState::Pending(Some(reason)) => Verdict::bad(
                Reason::Pending,
                format!("the chart of version {number} waits: {reason}"),
            ),
            ChartState::Pending(None) => Verdict::bad(
                Reason::Pending,
                format!("the chart of version {number} is not pushed yet"),
            ),
            ChartState::Failed(reason, is_final) => {
                let message =
                    format!("the chart of version {number} failed with {reason}; its RenderTask says why");
                Verdict::bad(Reason::Failed, message).stalled_if(is_final)
            }
        }
    }

    /// A version without its number.
    fn content(&self, destination: &RenderDestination, bundled: BundledReleases) -> HydratedTargetSpec {
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
            releases: bundled.releases,
            userdata: bundled.userdata,
            changes: String::new(),
            rollback_to: self.spec.rollback_to,
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
    pub(super) fn clean_up(&mut self) {
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
