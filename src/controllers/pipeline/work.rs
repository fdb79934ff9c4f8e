//! Carries out decisions, one worker a Target, and says what was written.

use std::sync::Arc;

use crate::api::RenderTask;
use crate::api::conditions::{ConditionType, Reason, has_reason};
use crate::api::labels::{PIPELINE_BOOTSTRAP, PIPELINE_RELEASE};
use crate::api::pipeline::{HydratedTarget, HydratedTargetSpec, OmitsKnownNames as _, Target, TargetStatus};
use crate::kubernetes::apply::{CallError, NewObject, SeenTarget, TransportStage};
use crate::plan::pipeline::decide::{
    CreateRefusal, FinalizerChange, FollowUp, NewTask, SeenObject, TargetDecision,
};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::reports::{self, PipelineReport};
use crate::plan::pipeline::source::TargetView;
use crate::plan::queue::workqueue::KeyOwner;

/// What the event of a Target says that was let go although something of it is left.
const FORCED: &str = "the Target was let go ten minutes after its deletion, although not all of its tasks were gone; the tasks go on being \
                      deleted, and what is left of its versions is deleted by the hub";

use super::writes::{PipelineWriter, Written};

/// What a worker has.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum PipelineKey {
    /// A Target.
    Target(ObjectKey),
    /// The statuses of a namespace's other objects, and its shared tasks.
    Namespace(String),
}

impl PipelineKey {
    /// Whose turn it is with this key: namespaces take turns, however many Targets one has.
    pub fn owner(&self) -> KeyOwner {
        KeyOwner {
            name: Some(self.namespace().into()),
            ..KeyOwner::UNKNOWN
        }
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        let (Self::Target(ObjectKey { namespace, .. }) | Self::Namespace(namespace)) = self;
        namespace
    }
}

/// What a worker did.
pub(super) struct WorkOutcome {
    pub result: Result<(), CallError>,
    /// When to look again.
    pub follow_up: FollowUp,
    /// Why the API server does not let the hub make an object.
    pub refusal: Option<CreateRefusal>,
}

impl WorkOutcome {
    /// What is known of a worker that panicked.
    pub fn panicked() -> Self {
        Self {
            result: Err(CallError::Transport(TransportStage::Internal)),
            follow_up: FollowUp::AtOnce,
            refusal: None,
        }
    }
}

/// Work for one Target.
pub(super) struct TargetWork {
    target: SeenTarget,
    decision: TargetDecision,
    /// Whether the status differs from the one that is there.
    has_new_status: bool,
    /// Whether it is not ready, and the new status says no more than how far it is.
    is_progress: bool,
    /// The event after the status of a version is written, and the one after that of the Target is.
    reports: [Option<PipelineReport>; 2],
}

impl TargetWork {
    /// What was decided for a Target.
    pub fn new(target: TargetView<'_>, decision: TargetDecision, objects: &PipelineObjects) -> Self {
        let TargetView { key, object } = target;
        let written = decision.version_status.as_ref();
        let of_version = written.and_then(|record| {
            let known = objects.hydrated_targets.get(&record.seen.0)?;
            reports::of_version(known.spec.as_ref()?.version, &known.status, &record.status)
        });
        Self {
            target: SeenTarget {
                key: key.clone(),
                uid: object.uid.clone(),
                version: object.version,
                finalizers: object.finalizers,
            },
            has_new_status: decision.status != object.status,
            is_progress: is_progress(&object.status, &decision.status),
            reports: [of_version, reports::of_target(&object.status, &decision.status)],
            decision,
        }
    }

    /// Whether there is anything to do.
    pub fn has_work(&self) -> bool {
        self.has_new_status || self.decision.has_writes()
    }

    /// Whether there is a status to write that says no more than how far a Target is that is not ready.
    pub const fn has_progress(&self) -> bool {
        self.has_new_status && self.is_progress
    }

    /// Leaves the status for another pass.
    pub const fn leave_status(&mut self) {
        self.has_new_status = false;
    }

    /// The tasks to be made that other Targets may need too.
    pub fn shared_tasks(&self) -> Vec<ObjectKey> {
        let shared = self.decision.new_tasks.iter().filter(|task| !task.is_targets_own);
        shared
            .map(|task| ObjectKey::new(&self.target.key.namespace, &task.name))
            .collect()
    }

    /// Does what was decided. What the API server does not let the hub make keeps no status from being written, which says so.
    pub async fn run(self, writer: PipelineWriter) -> WorkOutcome {
        let created = self.create(&writer).await;
        let refusal = created.err().and_then(refusal);
        let result = match created {
            Err(_) if refusal.is_some() => self.update(&writer).await.and(created),
            Err(error) => Err(error),
            Ok(()) => self.update(&writer).await,
        };
        WorkOutcome {
            result,
            follow_up: self.decision.follow_up,
            refusal,
        }
    }

    /// Makes the version, and then tasks: a version is there before it is used.
    async fn create(&self, writer: &PipelineWriter) -> Result<(), CallError> {
        if self.decision.finalizer == FinalizerChange::Add {
            let version = writer.client.patch_target_finalizer(&self.target, true).await?;
            let (key, finalizers) = (self.target.key.clone(), self.target.finalizers.with_own());
            writer.say(Written::TargetFinalizers(key, finalizers, version));
        }
        if let Some((name, spec)) = &self.decision.new_version {
            self.create_version(writer, name, spec).await?;
        }
        for task in &self.decision.new_tasks {
            self.create_task(writer, task).await?;
        }
        Ok(())
    }

    /// Writes statuses, and deletes what is not needed any more.
    async fn update(&self, writer: &PipelineWriter) -> Result<(), CallError> {
        if let Some(record) = &self.decision.version_status {
            writer.write_version_status(record).await?;
            self.record(writer, self.reports[0].as_ref());
        }
        if self.has_new_status {
            writer
                .write_status::<Target>(&self.seen(), &self.decision.status)
                .await?;
            self.record(writer, self.reports[1].as_ref());
        }
        for record in &self.decision.records {
            writer.write_version_status(record).await?;
        }
        writer.delete_tasks(&self.decision.old_tasks).await?;
        writer.delete_versions(&self.decision.old_versions).await?;
        self.release(writer).await
    }

    /// Records an event about the Target.
    fn record(&self, writer: &PipelineWriter, report: Option<&PipelineReport>) {
        if let Some(report) = report {
            writer.record("Target", &self.seen(), report);
        }
    }

    fn seen(&self) -> SeenObject {
        (self.target.key.clone(), self.target.uid.clone())
    }

    /// Lets a Target go that is being deleted.
    async fn release(&self, writer: &PipelineWriter) -> Result<(), CallError> {
        let is_forced = match self.decision.finalizer {
            FinalizerChange::Keep | FinalizerChange::Add => return Ok(()),
            FinalizerChange::Remove => false,
            FinalizerChange::Force => true,
        };
        let version = writer.client.patch_target_finalizer(&self.target, false).await?;
        let finalizers = self.target.finalizers.without_own();
        let key = &self.target.key;
        writer.say(Written::TargetFinalizers(key.clone(), finalizers, version));
        tracing::info!(
            namespace = key.namespace,
            target_name = key.name,
            is_forced,
            "a Target was let go"
        );
        if is_forced {
            let (reason, note) = (Reason::TeardownForced, FORCED.to_owned());
            self.record(
                writer,
                Some(&PipelineReport {
                    is_warning: true,
                    reason,
                    note,
                }),
            );
        }
        Ok(())
    }

    async fn create_version(
        &self,
        writer: &PipelineWriter,
        name: &str,
        spec: &HydratedTargetSpec,
    ) -> Result<(), CallError> {
        let key = ObjectKey::new(&self.target.key.namespace, name);
        let mut written_spec = spec.clone();
        written_spec.leave_out(&key.namespace);
        let new = NewObject {
            key: &key,
            label: PIPELINE_BOOTSTRAP,
            // No owner: the garbage collector would take it before its charts are deleted.
            target: None,
            seal: None,
            spec: &written_spec,
        };
        let made = writer
            .client
            .create_pipeline_object::<HydratedTarget, _>("hydratedtargets", new)
            .await?;
        tracing::info!(
            namespace = key.namespace,
            target_name = self.target.key.name,
            version = spec.version,
            changes = spec.changes,
            "a version of a Target was made"
        );
        writer.say(Written::Version(key, made, Box::new(spec.clone())));
        self.record(writer, Some(&reports::of_new_version(spec)));
        Ok(())
    }

    /// The seal of a task, which no tenant can put on a task of its own.
    fn seal(&self, writer: &PipelineWriter, task: &NewTask) -> String {
        writer
            .seal_key
            .target_seal(&self.target.key.namespace, &task.name, &task.spec_hash)
    }

    async fn create_task(&self, writer: &PipelineWriter, task: &NewTask) -> Result<(), CallError> {
        let key = ObjectKey::new(&self.target.key.namespace, &task.name);
        let label = if task.is_targets_own {
            PIPELINE_BOOTSTRAP
        } else {
            PIPELINE_RELEASE
        };
        let new = NewObject {
            key: &key,
            label,
            target: task
                .is_targets_own
                .then_some((self.target.key.name.as_str(), self.target.uid.as_str())),
            seal: Some(self.seal(writer, task)),
            spec: &task.spec,
        };
        let made = writer
            .client
            .create_pipeline_object::<RenderTask, _>("rendertasks", new)
            .await?;
        let task = Arc::new(task.clone());
        writer.say(Written::Task(key, made.uid, task, self.decision.follow_up));
        Ok(())
    }
}

/// Whether a Target that was not ready is not yet, and nothing of it has to be mended. Since when a Release is leaving is no progress:
/// its time runs from the status.
fn is_progress(known: &TargetStatus, new: &TargetStatus) -> bool {
    let is_new = known.observed_generation.is_none_or(|generation| generation < 0);
    (is_new || is_pending(known)) && is_pending(new) && known.leaving == new.leaving
}

fn is_pending(status: &TargetStatus) -> bool {
    has_reason(&status.conditions, ConditionType::Ready, Reason::Pending)
}

/// The errors of a creation that stay as long as nothing else changes.
const fn refusal(error: CallError) -> Option<CreateRefusal> {
    match error {
        CallError::AlreadyExists => Some(CreateRefusal::NameTaken),
        CallError::Forbidden => Some(CreateRefusal::Forbidden),
        CallError::Invalid => Some(CreateRefusal::Invalid),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::api::conditions::merge;
    use crate::api::pipeline::LeavingRelease;
    use crate::plan::pipeline::conditions::Verdict;
    use crate::plan::task::finalizer_summary::FinalizerSummary;

    fn status(reason: Reason) -> TargetStatus {
        let ready = Verdict::bad(reason, "what there is to say").of(ConditionType::Ready);
        let mut status = TargetStatus {
            observed_generation: Some(1),
            ..TargetStatus::default()
        };
        merge(
            &mut status.conditions,
            &[ready],
            &[],
            Some(1),
            Timestamp::UNIX_EPOCH,
        );
        status
    }

    /// What the API server gives a new Target.
    fn unseen() -> TargetStatus {
        TargetStatus {
            observed_generation: Some(-1),
            ..TargetStatus::default()
        }
    }

    #[test]
    fn only_a_status_that_says_how_far_a_target_is_may_wait() {
        use Reason::{Failed, NoReleaseBindings, Pending, Ready};
        for (known, new, may_wait) in [
            (None, Pending, true),
            (Some(Pending), Pending, true),
            (Some(Ready), Pending, false),
            (Some(Failed), Pending, false),
            (None, NoReleaseBindings, false),
            (Some(Pending), Failed, false),
            (Some(Pending), Ready, false),
        ] {
            let known_status = known.map_or_else(unseen, status);
            assert_eq!(
                is_progress(&known_status, &status(new)),
                may_wait,
                "{known:?} {new:?}"
            );
        }
        let mut leaving = status(Pending);
        leaving.leaving.push(LeavingRelease {
            unique_name: "shop".to_owned(),
            profile: None,
            since: Time(Timestamp::UNIX_EPOCH),
        });
        assert!(!is_progress(&status(Pending), &leaving));
        assert!(is_progress(&leaving, &leaving.clone()));
    }

    #[test]
    fn what_is_left_of_work_without_its_status_is_done() {
        for (old_tasks, is_left) in [(0, false), (1, true)] {
            let mut decision = TargetDecision {
                status: status(Reason::Pending),
                ..TargetDecision::default()
            };
            let seen = || (ObjectKey::new("team-a", "old"), "uid".to_owned());
            decision.old_tasks.extend((0..old_tasks).map(|_| seen()));
            let mut work = TargetWork {
                target: SeenTarget {
                    key: ObjectKey::new("team-a", "edge"),
                    uid: "uid".to_owned(),
                    version: 1,
                    finalizers: FinalizerSummary::default(),
                },
                has_new_status: true,
                is_progress: true,
                reports: [None, None],
                decision,
            };
            assert!(work.has_progress() && work.has_work());
            work.leave_status();
            assert!(!work.has_progress());
            assert_eq!(work.has_work(), is_left);
        }
    }
}
