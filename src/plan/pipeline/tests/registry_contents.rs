//! What the registry of a world has, and how it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::plan::pipeline::decide::{NewTask, TargetDecision};
use crate::plan::pipeline::lookups::{
    ChartAnswer, ChartQuestion, FoundChart, LookupFailure, made_of, sources,
};

use super::world::{World, at};
use crate::plan::pipeline::object::ObjectKey;

/// What a registry says of charts; by default that it has every one under the digest that was recorded.
#[derive(Clone, Default)]
pub struct RegistryContents {
    /// Tags under which there is nothing.
    pub lost: BTreeSet<String>,
    /// Tags under which there is another digest than was recorded.
    pub others: BTreeMap<String, String>,
    /// Why it does not answer.
    pub failure: Option<LookupFailure>,
    /// Tags that it was asked for.
    pub asked: Vec<String>,
    /// Configurations of the tasks that were made, by their name.
    pub configs: BTreeMap<String, String>,
}

impl World {
    /// A Target is about to be decided about, as the controller would.
    pub fn begin_lookups(&mut self, target: &ObjectKey) {
        let Some(object) = self.objects.targets.get(target) else {
            return;
        };
        let is_pinned = object
            .spec
            .as_ref()
            .is_some_and(|spec| spec.rollback_to.is_some());
        self.answers.begin(target, is_pinned.then_some(object.generation));
    }

    /// Asks what a decision rests on, and takes the answers in.
    pub fn look_up(&mut self, target: &ObjectKey, decision: &TargetDecision) {
        let generation = self.objects.targets[target].generation;
        let questions = decision.questions.clone();
        let now = at(self.now);
        let next = self.answers.rest_on(target, generation, questions, now);
        for question in next.ask {
            self.registry.asked.push(question.version.clone());
            let answer = self.answer(&question);
            self.answers.answered(&question, answer, now);
        }
    }

    fn answer(&self, question: &ChartQuestion) -> ChartAnswer {
        if let Some(failure) = self.registry.failure {
            return ChartAnswer::Unknown(failure);
        }
        let found = sources(&self.objects, question);
        let mut answer = FoundChart {
            digest: question.digest.clone(),
            made_of: None,
            pushed: found.pushed,
        };
        if self.registry.lost.contains(&question.version) {
            answer.digest = None;
        } else if let Some(other) = self.registry.others.get(&question.version) {
            answer.digest = Some(other.clone());
        }
        if !answer.is_what_was_recorded(question) {
            let mut configs = found
                .tasks
                .iter()
                .filter_map(|id| self.registry.configs.get(&id.name));
            let is_it = |config: &&String| made_of(&question.version, config).is_some();
            answer.made_of = configs.find(is_it).map(|config| Arc::from(config.as_str()));
        }
        ChartAnswer::Found(answer)
    }

    /// Remembers what a task renders.
    pub fn remember_config(&mut self, task: &NewTask) {
        let config = serde_json::to_string(&task.spec.config).unwrap();
        self.registry.configs.insert(task.name.clone(), config);
    }
}
