//! The charts of an earlier version: those that the registry has are used, and those that it has lost are rendered again.
//!
//! What the newest pushed version has too is known to be there. For each other chart the registry is asked once. It is believed only
//! where it names the digest that was recorded, or that a task pushed which renders the very content that the version of the chart
//! holds the hash of; and once that is rendered again it is not asked again, so a registry that lies has it rendered once.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::decision::NewTask;
use super::draft::{ChartState, Draft};
use super::releases::Unrendered;
use crate::api::ReleaseConfig;
use crate::api::conditions::Reason;
use crate::api::pipeline::{HydratedRelease, HydratedTargetSpec};
use crate::plan::pipeline::chart::{PlannedChart, chart_again};
use crate::plan::pipeline::conditions::{Verdict, listed};
use crate::plan::pipeline::destination::RenderDestination;
use crate::plan::pipeline::history::{StoredVersion, is_pushed};
use crate::plan::pipeline::lookups::{ChartAnswer, ChartQuestion, FoundChart, made_of};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::prune::registry_of;
use crate::plan::pipeline::task::last_attempt;
use crate::plan::pipeline::task_state::PipelineTaskState;

/// How far a chart of an earlier version is.
enum EarlierChart {
    /// The registry has it, with this digest.
    There(Option<String>),
    /// The registry was not asked yet.
    Asked,
    /// The registry gave no clear answer, in words.
    Unknown(String),
    /// It is gone and cannot be rendered again, in words.
    Lost(String),
    /// No registry that the Target may use has its host, in words.
    Unusable(String),
    /// It is rendered again, and waits for something or for nothing in particular.
    Pending(Option<Reason>),
    /// It was rendered again and failed, and whether only a person can help.
    Failed(Reason, bool),
}

/// What keeps a Target from an earlier version.
#[derive(Default)]
struct MissingCharts {
    unusable: Vec<String>,
    lost: Vec<String>,
    unknown: Vec<String>,
    unrendered: Unrendered,
    is_asked: bool,
}

impl<'o> Draft<'o> {
    /// The Releases of an earlier version with the digests that their charts have now, and whether all of these are there.
    pub(super) fn charts_again(
        &mut self,
        version: &'o HydratedTargetSpec,
        destination: &RenderDestination,
    ) -> (BTreeMap<String, Arc<HydratedRelease>>, Verdict) {
        let (mut releases, mut missing) = (version.releases.clone(), MissingCharts::default());
        for release in releases.values_mut() {
            match self.earlier_chart(version, release, destination) {
                EarlierChart::There(digest) if digest == release.digest => {}
                EarlierChart::There(digest) => Arc::make_mut(release).digest = digest,
                other => missing.add(release, other),
            }
        }
        (releases, missing.verdict())
    }

    fn earlier_chart(
        &mut self,
        version: &'o HydratedTargetSpec,
        release: &HydratedRelease,
        destination: &RenderDestination,
    ) -> EarlierChart {
        if let Some(known) = self.known_to_be_there(release) {
            return EarlierChart::There(known.digest.clone());
        }
        let Some(registry) = self.registry_with(release, version, destination) else {
            return EarlierChart::Unusable(format!(
                "the chart of Release {}/{} is in {}, and no registry that this Target may use now has that host",
                release.namespace,
                release.name,
                host_of(release)
            ));
        };
        let question = self.question(release, &registry);
        let answers = self.input.answers;
        if let Some(due) = answers.due(&question).filter(|due| *due > self.input.now) {
            self.look_again(due);
        }
        let chart = match answers.of(&question) {
            None => EarlierChart::Asked,
            Some(ChartAnswer::Unknown(failure)) => EarlierChart::Unknown(format!(
                "it is not known whether the registry {} has the chart of Release {}, because {}",
                host_of(release),
                question.release,
                failure.explained()
            )),
            Some(ChartAnswer::Found(found)) => self.found(&question, found, release, &registry),
        };
        self.out.questions.push(question);
        chart
    }

    /// The same chart in the newest version that was pushed.
    fn known_to_be_there(&self, release: &HydratedRelease) -> Option<&'o HydratedRelease> {
        let newest = self.pushed_versions().next()?;
        let mut known = newest.spec.as_ref()?.releases.values().map(Arc::as_ref);
        known.find(|known| is_same_chart(known, release))
    }

    /// The versions that were pushed, from the newest.
    fn pushed_versions(&self) -> impl Iterator<Item = &'o StoredVersion> {
        let versions = self.versions.values().rev().map(|(_, version)| *version);
        versions.filter(|version| is_pushed(version))
    }

    fn question(&self, release: &HydratedRelease, registry: &RenderDestination) -> ChartQuestion {
        // Not of one that is being pushed: its digest is of the attempt that this question led to.
        let specs = self.pushed_versions().filter_map(|version| version.spec.as_ref());
        let mut named = specs.flat_map(|spec| spec.releases.values()).map(Arc::as_ref);
        let newest = named
            .find(|known| is_same_chart(known, release))
            .unwrap_or(release);
        ChartQuestion {
            namespace: self.input.target.key.namespace.clone(),
            release: ObjectKey::new(&release.namespace, &release.name),
            registry: registry.registry.clone(),
            account: self.spec.service_account_name.clone(),
            repository: release.repository.clone(),
            version: release.version.clone(),
            digest: newest.digest.clone(),
        }
    }

    /// The registry of the version as it is now, or else that of the Target, whichever has the host of the chart.
    fn registry_with(
        &self,
        release: &HydratedRelease,
        version: &HydratedTargetSpec,
        destination: &RenderDestination,
    ) -> Option<RenderDestination> {
        let input = self.input;
        let (key, named) = (input.target.key, &version.registry);
        let of_version = registry_of(key, named, input.objects, input.rules, input.catalog);
        let has_host =
            |registry: &RenderDestination| registry.hostname.eq_ignore_ascii_case(host_of(release));
        of_version
            .filter(&has_host)
            .or_else(|| Some(destination.clone()).filter(has_host))
    }

    /// What follows from what the registry has in the place of a chart.
    fn found(
        &mut self,
        question: &ChartQuestion,
        found: &FoundChart,
        release: &HydratedRelease,
        registry: &RenderDestination,
    ) -> EarlierChart {
        if found.is_what_was_recorded(question) {
            return EarlierChart::There(found.digest.clone());
        }
        let content = found.made_of.as_ref();
        let Some(content) = content.and_then(|content| made_of(&release.version, content)) else {
            return EarlierChart::Lost(lost(release, found));
        };
        let chart = self.planned_again(&content, release, registry);
        self.keep([chart.task_name.clone()]);
        let namespace = &self.input.target.key.namespace;
        let last = last_attempt(self.input.objects, namespace, &chart.task_name);
        let Some((key, task, next)) = last else {
            return self.rendered_unless_taken(&chart, &chart.task_name, found, release);
        };
        if task.spec_hash != chart.spec_hash || !found.pushed.contains(&key.name) {
            return self.rendered_since(&chart);
        }
        match &task.state {
            PipelineTaskState::Succeeded { digest, .. } if digest.is_some() && *digest == found.digest => {
                EarlierChart::There(digest.clone())
            }
            _ => self.rendered_unless_taken(&chart, &next, found, release),
        }
    }

    fn planned_again(
        &self,
        content: &ReleaseConfig,
        release: &HydratedRelease,
        registry: &RenderDestination,
    ) -> PlannedChart {
        let key = ObjectKey::new(&release.namespace, &release.name);
        let object = self.input.objects.releases.get(&key);
        let spec = object.and_then(|object| object.spec.as_ref());
        let ttl = spec.and_then(|spec| spec.failed_job_ttl);
        chart_again(content, release, ttl, self.spec, registry)
    }

    /// Has a chart rendered that is not there, by a task of this name.
    fn rendered_unless_taken(
        &mut self,
        chart: &PlannedChart,
        task_name: &str,
        found: &FoundChart,
        release: &HydratedRelease,
    ) -> EarlierChart {
        if found.digest.is_some() {
            return EarlierChart::Lost(lost(release, found));
        }
        self.out.new_tasks.push(NewTask {
            name: task_name.to_owned(),
            spec: Arc::clone(&chart.task),
            spec_hash: chart.spec_hash.clone(),
            is_targets_own: false,
        });
        EarlierChart::Pending(None)
    }

    /// How far the task is that renders a chart again.
    fn rendered_since(&mut self, chart: &PlannedChart) -> EarlierChart {
        match self.progress_of(chart, false) {
            ChartState::Pushed { digest, .. } => EarlierChart::There(digest.map(str::to_owned)),
            ChartState::Pending(why) => EarlierChart::Pending(why),
            ChartState::Failed(reason, is_final) => EarlierChart::Failed(reason, is_final),
        }
    }
}

impl MissingCharts {
    fn add(&mut self, release: &HydratedRelease, chart: EarlierChart) {
        let key = ObjectKey::new(&release.namespace, &release.name);
        match chart {
            EarlierChart::There(_) => {}
            EarlierChart::Asked => self.is_asked = true,
            EarlierChart::Unknown(text) => self.unknown.push(text),
            EarlierChart::Lost(text) => self.lost.push(text),
            EarlierChart::Unusable(text) => self.unusable.push(text),
            EarlierChart::Pending(why) => self.unrendered.pending.push((key, why)),
            EarlierChart::Failed(reason, is_final) => self.unrendered.failed.push((key, reason, is_final)),
        }
    }

    fn verdict(self) -> Verdict {
        let Self {
            unusable,
            lost,
            unknown,
            unrendered,
            is_asked,
        } = self;
        if !unusable.is_empty() {
            let all = listed(unusable.into_iter());
            let message = format!("{all}; let it use that registry again, or name another version");
            return Verdict::bad(Reason::NotGranted, message);
        }
        if !lost.is_empty() {
            let all = listed(lost.into_iter());
            let message = format!(
                "{all}; name another version, or remove rollbackTo and change the Release back. What is on the cluster stays"
            );
            return Verdict::bad(Reason::ChartLost, message);
        }
        if !unrendered.failed.is_empty() {
            return unrendered.verdict();
        }
        if !unknown.is_empty() {
            let all = listed(unknown.into_iter());
            let message = format!("{all}; it is asked again, and what is on the cluster stays");
            return Verdict::bad(Reason::ChartLookupFailed, message);
        }
        if is_asked {
            let message = "the registry is asked whether it has the charts of the version";
            return Verdict::bad(Reason::Pending, message);
        }
        if !unrendered.pending.is_empty() {
            return unrendered.verdict();
        }
        Verdict::good(Reason::AllRendered, "the charts are those of an earlier version")
    }
}

fn is_same_chart(a: &HydratedRelease, b: &HydratedRelease) -> bool {
    (&a.repository, &a.version) == (&b.repository, &b.version)
}

fn host_of(release: &HydratedRelease) -> &str {
    let host = release.repository.split_once('/');
    host.map_or(release.repository.as_str(), |(host, _)| host)
}

/// Why a chart cannot be had any more.
fn lost(release: &HydratedRelease, found: &FoundChart) -> String {
    let (namespace, name, version) = (&release.namespace, &release.name, &release.version);
    let host = host_of(release);
    if found.digest.is_some() {
        format!("the registry {host} has another chart under the tag {version} of Release {namespace}/{name}")
    } else {
        format!(
            "the registry {host} has no chart {version} of Release {namespace}/{name} any more, and the RenderTask that rendered it is \
             gone, so it cannot be rendered again"
        )
    }
}
