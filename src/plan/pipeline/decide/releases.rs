//! The Releases of a Target: which of them it gets, and whether their charts are pushed.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::decision::TargetInput;
use super::draft::{ChartState, Draft};
use crate::api::TaskOwner;
use crate::api::conditions::{ConditionType, Reason};
use crate::api::pipeline::{HydratedRelease, LeavingRelease, TargetRelease};
use crate::plan::pipeline::chart::PlannedChart;
use crate::plan::pipeline::conditions::{Verdict, dependencies, listed, resolved};
use crate::plan::pipeline::destination::RenderDestination;
use crate::plan::pipeline::object::{ObjectKey, within};
use crate::plan::pipeline::resolve::{AcceptedRelease, KeptReason, LEAVES_AFTER, Resolution, resolve};
use crate::plan::pipeline::task::base_name;
use crate::plan::pipeline::userdata::merged;

/// What a chart of a Target bundles.
pub(super) struct BundledReleases {
    pub releases: BTreeMap<String, HydratedRelease>,
    pub userdata: Option<Value>,
}

/// Releases whose charts are not pushed.
#[derive(Default)]
struct Unrendered {
    pending: Vec<(ObjectKey, Option<Reason>)>,
    failed: Vec<(ObjectKey, Reason, bool)>,
}

impl<'o> Draft<'o> {
    /// The content that the Releases of the Target make; `None` while not all of them are rendered.
    pub(super) fn resolved(&mut self, destination: &RenderDestination) -> (Option<BundledReleases>, Verdict) {
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
        let content = rendered.holds.then_some(BundledReleases { releases, userdata });
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
            self.keep_tasks_of(kept.last);
        }
        releases
    }

    /// Keeps the tasks of a Release that stays as it is: once it can be resolved again, its chart needs not be rendered again.
    fn keep_tasks_of(&mut self, release: &HydratedRelease) {
        let TargetInput { target, objects, .. } = self.input;
        let is_its = |owner: &TaskOwner| {
            owner.kind == "Release"
                && owner.name == release.name
                && owner.namespace.as_deref() == Some(&release.namespace)
        };
        let tasks = within(&objects.tasks, &target.key.namespace);
        let tasks = tasks.filter(|(_, task)| task.owner.as_ref().is_some_and(is_its));
        self.out
            .needed
            .extend(tasks.map(|(key, _)| base_name(&key.name).to_owned()));
    }

    /// Whether the charts of all accepted Releases are pushed; those that are join `releases`.
    fn rendered(
        &mut self,
        resolution: &Resolution<'o>,
        destination: &RenderDestination,
        releases: &mut BTreeMap<String, HydratedRelease>,
    ) -> Verdict {
        let mut unrendered = Unrendered::default();
        for release in &resolution.accepted {
            let TargetInput { target, charts, .. } = self.input;
            let chart = charts.release_chart(release, target.key, self.spec, destination);
            self.out.status.releases.push(listed_release(release, &chart));
            self.out.needed.push(chart.task_name.clone());
            let key = release.release.clone();
            match self.progress_of(&chart, false) {
                ChartState::Pushed { digest, .. } => {
                    let entry = hydrated(release, &chart, destination, digest);
                    releases.insert(release.unique_name.clone(), entry);
                }
                ChartState::Pending(why) => unrendered.pending.push((key, why)),
                ChartState::Failed(reason, is_final) => unrendered.failed.push((key, reason, is_final)),
            }
        }
        let listed = &mut self.out.status.releases;
        listed.sort_by(|a, b| a.unique_name.cmp(&b.unique_name));
        unrendered.verdict()
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
}

impl Unrendered {
    fn verdict(&self) -> Verdict {
        if !self.failed.is_empty() {
            let texts = self.failed.iter().map(|(release, reason, _)| {
                format!(
                    "the chart of Release {release} failed with {reason}; its RenderTask says why. What is on the cluster stays"
                )
            });
            let is_stalled = self.failed.iter().any(|(_, _, is_final)| *is_final);
            return Verdict::bad(Reason::ReleaseFailed, listed(texts)).stalled_if(is_stalled);
        }
        if self.pending.is_empty() {
            return Verdict::good(Reason::AllRendered, "the charts of all Releases are pushed");
        }
        // Not which of them run: a fleet would write its statuses anew for each chart.
        let first = "charts of Releases are not pushed yet; their RenderTasks say how far they are";
        let waiting = self.pending.iter();
        let waiting = waiting.filter_map(|(release, why)| why.map(|why| (release, why)));
        let texts = waiting.map(|(release, why)| format!("the chart of Release {release} waits: {why}"));
        Verdict::bad(
            Reason::Pending,
            listed(std::iter::once(first.to_owned()).chain(texts)),
        )
    }
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
