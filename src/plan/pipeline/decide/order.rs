//! The order of a decision.

use super::decision::{TargetDecision, TargetInput};
use super::draft::Draft;
use super::teardown::teardown;
use crate::api::conditions::{ConditionType, Reason};
use crate::plan::pipeline::conditions::Verdict;
use crate::plan::pipeline::destination::destination;
use crate::plan::pipeline::unread;

/// What is to be done for a Target; `None` where this version of the hub cannot decode it, or it rests on what the hub may not
/// read.
#[must_use]
pub fn decide(input: TargetInput<'_>) -> Option<TargetDecision> {
    if input.target.object.deleting {
        return Some(teardown(input));
    }
    let mut draft = Draft::of(input)?;
    if unread::target(input.target, draft.spec, input.objects, input.rules) {
        return None;
    }
    if let Some(verdict) = draft.unknown() {
        return Some(draft.finished(verdict));
    }
    let ready = draft.run();
    Some(draft.finished(ready))
}

impl Draft<'_> {
    /// The verdict on a Target that rests on a namespace of which the hub does not hold every object; `None` where it does not.
    fn unknown(&mut self) -> Option<Verdict> {
        let TargetInput {
            target,
            objects,
            rules,
            ..
        } = self.input;
        let namespace = unread::overfull(target, self.spec, objects, rules)?;
        self.keep_needed();
        self.out.is_left_out_unknown = true;
        self.out.status.leaving.clear();
        let message = format!(
            "the Components, ComponentVersions, Releases, Targets, Profiles, bindings and Registries of namespace {namespace} take more \
             memory than the hub has for one namespace, so it does not know all of them; the Target stays as it is: delete some there, or \
             spread them over several namespaces"
        );
        Some(Verdict::bad(Reason::TooManyObjects, message))
    }

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
            self.out.status.leaving.clear();
            self.note_left_out();
            return Verdict::bad(
                Reason::Suspended,
                "the Target is suspended; remove suspend and it goes on",
            );
        }
        let destination = match destination(target.key, self.spec, objects, rules, catalog) {
            Ok(destination) => destination,
            Err(refusal) => {
                self.keep_needed();
                self.out.status.leaving.clear();
                self.note_left_out();
                let verdict = Verdict::bad(refusal.reason, refusal.message);
                self.condition(ConditionType::RegistryResolved, verdict.clone());
                return verdict;
            }
        };
        let usable = Verdict::good(Reason::Resolved, "the registry is there and may be used");
        self.condition(ConditionType::RegistryResolved, usable);
        let (content, verdict) = match self.spec.rollback_to {
            Some(version) => self.pinned(version, &destination),
            None => self.resolved(&destination),
        };
        let pushed = self.bootstrap(content, &destination);
        self.condition(ConditionType::BootstrapReady, pushed.clone());
        self.clean_up();
        if verdict.holds { pushed } else { verdict }
    }
}
