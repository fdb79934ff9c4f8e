//! The loop's part about charts of earlier versions that registries are asked for.

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use tokio::task::JoinError;

use crate::plan::pipeline::decide::TargetDecision;
use crate::plan::pipeline::lookups::{
    ChartAnswer, ChartQuestion, LookupFailure, LookupRequest, lookup_request, sources,
};
use crate::plan::pipeline::object::ObjectKey;

use super::controller::PipelineController;
use super::lookup_work::LookupWork;
use super::work::PipelineKey;

impl PipelineController {
    /// A Target is about to be decided about: what it rested on when it was another or pinned otherwise is not believed any more.
    pub(super) fn begin_lookups(&mut self, key: &ObjectKey) {
        let target = self.store.objects.targets.get(key);
        let pinned = target.filter(|target| {
            let spec = target.spec.as_ref();
            !target.deleting && spec.is_some_and(|spec| spec.rollback_to.is_some())
        });
        let generation = pinned.map(|target| target.generation);
        self.prunes.lookups.answers.begin(key, generation);
    }

    /// Has registries asked for what a decision about a Target rests on.
    pub(super) fn look_up_charts(&mut self, key: &ObjectKey, decision: &mut TargetDecision) {
        let Some(target) = self.store.objects.targets.get(key) else {
            return;
        };
        let questions = std::mem::take(&mut decision.questions);
        let lookups = &mut self.prunes.lookups;
        let now = Timestamp::now();
        let next = lookups.answers.rest_on(key, target.generation, questions, now);
        for question in &next.ask {
            lookups.queue.add(question);
        }
        if let Some(at) = next.look_again {
            let wait = at.duration_since(now).try_into().unwrap_or(Duration::ZERO);
            let key = PipelineKey::Target(key.clone());
            self.queue.add_at(&key, Instant::now() + wait);
        }
        self.start_lookups();
    }

    /// Gives questions to free workers.
    fn start_lookups(&mut self) {
        while let Some(question) = self.prunes.lookups.take() {
            let request = self.lookup_request(&question);
            let sources = sources(&self.store.objects, &question);
            let lookups = &mut self.prunes.lookups;
            if !lookups.answers.is_wanted(&question) {
                lookups.queue.done(&question);
                continue;
            }
            let work = LookupWork {
                question: question.clone(),
                request,
                sources,
                pruner: self.prunes.needs.pruner.clone(),
                client: self.writer.client.clone(),
            };
            lookups.workers.spawn(question, work.run());
        }
    }

    fn lookup_request(&self, question: &ChartQuestion) -> Result<LookupRequest, LookupFailure> {
        let catalog = self.catalog.borrow().clone().ok_or(LookupFailure::Call)?;
        lookup_request(question, &catalog, &self.prunes.needs.tenancy)
    }

    /// Takes in what came of a question, and has the Targets that rest on it decided about.
    pub(super) fn finish_lookup(&mut self, question: &ChartQuestion, ended: Result<ChartAnswer, JoinError>) {
        let answer = ended.unwrap_or(ChartAnswer::Unknown(LookupFailure::Call));
        let lookups = &mut self.prunes.lookups;
        lookups.queue.done(question);
        for target in lookups.answers.answered(question, answer, Timestamp::now()) {
            self.queue.add(&PipelineKey::Target(target));
        }
        self.start_lookups();
    }
}
