//! A decision as it is made.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::decision::{
    CreateRefusal, FinalizerChange, FollowUp, NeededTasks, NewTask, TargetDecision, TargetInput,
};
use crate::api::conditions::{ConditionType, DesiredCondition, Reason, merge};
use crate::api::pipeline::{HydratedRelease, ReleaseSource, TargetRelease, TargetSpec};
use crate::plan::pipeline::chart::PlannedChart;
use crate::plan::pipeline::conditions::Verdict;
use crate::plan::pipeline::history::{StoredVersion, versions};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::status::set_ready;
use crate::plan::pipeline::task::{Attempts, TaskProgress, base_name, own_tasks};

/// A decision as it is made.
pub(super) struct Draft<'o> {
    pub input: TargetInput<'o>,
    pub spec: &'o TargetSpec,
    /// The versions of the Target by their number.
    pub versions: BTreeMap<i64, (&'o ObjectKey, &'o StoredVersion)>,
    pub out: TargetDecision,
    /// Name of the first task for the newest version, where it is not pushed.
    pub bootstrap_task: Option<String>,
    conditions: Vec<DesiredCondition>,
}

/// How far a chart is.
pub(super) enum ChartState<'o> {
    /// It is pushed, with its digest and the time.
    Pushed { digest: Option<&'o str>, at: Timestamp },
    /// Its task waits or runs; the reason is one that a person may have to mend.
    Pending(Option<Reason>),
    /// Its task failed, and whether only a person can help.
    Failed(Reason, bool),
}

impl<'o> Draft<'o> {
    /// An empty decision; `None` where this version of the hub cannot decode the Target.
    pub fn of(input: TargetInput<'o>) -> Option<Self> {
        let target = input.target;
        let spec = target.object.spec.as_ref()?;
        Some(Self {
            input,
            spec,
            versions: versions(&input.objects.hydrated_targets, target.key, &target.object.uid),
            out: TargetDecision {
                status: target.object.status.clone(),
                ..TargetDecision::default()
            },
            bootstrap_task: None,
            conditions: Vec::new(),
        })
    }

    pub fn condition(&mut self, type_: ConditionType, verdict: Verdict) {
        let verdict = self.with_pin(verdict);
        self.conditions.push(verdict.of(type_));
    }

    /// The same, which says that the Target is pinned, where it is.
    fn with_pin(&self, verdict: Verdict) -> Verdict {
        let Some(to) = self.spec.rollback_to else {
            return verdict;
        };
        let message = format!(
            "{}; pinned to version {to} until rollbackTo is removed",
            verdict.message
        );
        Verdict { message, ..verdict }
    }

    /// Keeps every shared task: nothing is decided about which of them are needed.
    pub fn keep_needed(&mut self) {
        self.out.needed = NeededTasks::All;
    }

    /// Keeps these shared tasks, by the names of their first attempts.
    pub fn keep(&mut self, tasks: impl IntoIterator<Item = String>) {
        if let NeededTasks::Named(names) = &mut self.out.needed {
            names.extend(tasks);
        }
    }

    /// The newest version.
    pub fn newest(&self) -> Option<(&'o ObjectKey, &'o StoredVersion)> {
        self.versions.last_key_value().map(|(_, newest)| *newest)
    }

    /// Decides again then, if nothing happens before.
    pub fn look_again(&mut self, at: Timestamp) {
        let earlier = self.out.look_again.map_or(at, |known| known.min(at));
        self.out.look_again = Some(earlier);
    }

    /// How far a chart is; a task that is missing is made.
    pub(super) fn progress_of(&mut self, chart: &PlannedChart, is_targets_own: bool) -> ChartState<'o> {
        let TargetInput {
            target, objects, now, ..
        } = self.input;
        let namespace = &target.key.namespace;
        let attempts = Attempts::of(objects, namespace, &chart.task_name);
        let old = attempts.older().map(|(key, uid)| (key.clone(), uid.to_owned()));
        self.out.old_tasks.extend(old);
        match attempts.progress(&chart.task_name, &chart.spec_hash, now) {
            TaskProgress::Missing(name) => {
                self.out.new_tasks.push(NewTask {
                    name,
                    spec: Arc::clone(&chart.task),
                    spec_hash: chart.spec_hash.clone(),
                    is_targets_own,
                });
                ChartState::Pending(None)
            }
            TaskProgress::Running => ChartState::Pending(None),
            TaskProgress::Blocked(reason) if reason.is_stalled() => ChartState::Failed(reason, true),
            TaskProgress::Blocked(reason) => ChartState::Pending(Some(reason)),
            TaskProgress::Succeeded { digest, at } => ChartState::Pushed { digest, at },
            TaskProgress::Failed(reason, due) => {
                if let Some(due) = due {
                    self.look_again(due);
                }
                ChartState::Failed(reason, due.is_none())
            }
            TaskProgress::Taken => ChartState::Failed(Reason::NameConflict, true),
        }
    }

    /// Whether something of the Target is there, or is made now, and it has no finalizer yet.
    fn needs_finalizer(&self) -> bool {
        let TargetInput { target, objects, .. } = self.input;
        let makes = || !self.out.new_tasks.is_empty() || self.out.new_version.is_some();
        let has = || !self.versions.is_empty() || own_tasks(target.key, objects).next().is_some();
        target.object.finalizers.hub_index.is_none() && (makes() || has())
    }

    /// When to decide again once all is written. A version, and an attempt at a task, makes those before it superfluous, and what is
    /// superfluous goes step by step; a registry answers; and what is written may be another Target's turn in a rollout.
    fn follow_up(&self) -> FollowUp {
        let versions = self.versions.len() + usize::from(self.out.new_version.is_some());
        let out = &self.out;
        let mut tasks = out.new_tasks.iter().map(|task| task.name.as_str());
        let nothing_follows = versions <= 1
            && tasks.all(|name| base_name(name) == name)
            && (out.old_tasks.is_empty() && out.old_versions.is_empty() && out.records.is_empty())
            && out.questions.is_empty()
            && self.input.rollouts.is_empty();
        if nothing_follows {
            FollowUp::OnChange
        } else {
            FollowUp::AtOnce
        }
    }

    /// The decision with its conditions.
    pub fn finished(mut self, ready: Verdict) -> TargetDecision {
        let is_creating = self.out.new_version.is_some() || !self.out.new_tasks.is_empty();
        let ready = self.input.refusal.filter(|_| is_creating).map_or(ready, refused);
        let ready = self.with_pin(ready);
        if self.needs_finalizer() {
            self.out.finalizer = FinalizerChange::Add;
        }
        self.out.follow_up = self.follow_up();
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

/// `Ready` while the API server does not let the hub make what was decided.
fn refused(refusal: CreateRefusal) -> Verdict {
    match refusal {
        CreateRefusal::NameTaken => Verdict::bad(
            Reason::NameConflict,
            "a RenderTask or HydratedTarget of another has the name of one that the hub makes for this Target; delete it: the hub tries \
             again by itself",
        ),
        CreateRefusal::Forbidden => Verdict::bad(
            Reason::CreateRefused,
            "the API server forbids a RenderTask or HydratedTarget that the hub makes for this Target; look for a ResourceQuota or an \
             admission policy in this namespace: the hub tries again by itself",
        ),
        CreateRefusal::Invalid => Verdict::bad(
            Reason::CreateRefused,
            "the API server finds a RenderTask or HydratedTarget that the hub makes for this Target invalid; ask the platform operator \
             whether the CustomResourceDefinitions are those of this hub: the hub tries again by itself",
        ),
    }
}

/// What a status says of a Release that is on the Target as a version has it.
pub(super) fn listed_as_before(
    unique_name: &str,
    release: &HydratedRelease,
    source: &ReleaseSource,
    priority: i32,
) -> Arc<TargetRelease> {
    Arc::new(TargetRelease {
        unique_name: unique_name.to_owned(),
        namespace: release.namespace.clone(),
        name: release.name.clone(),
        source: source.clone(),
        priority,
        version: release.version.clone(),
    })
}
