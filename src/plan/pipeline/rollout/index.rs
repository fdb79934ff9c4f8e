//! The rollouts that are known, and when they are looked at again.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::standing::{RolloutInput, RolloutSurvey, SurveyedTarget};
use super::turns::{RolloutPlan, RolloutStanding, RolloutTurn, turns};
use crate::plan::pipeline::object::ObjectKey;

/// The turn of a Target that is behind, and the version of the chart that it is about.
type TurnForVersion = (RolloutTurn, Option<String>);

/// A rollout as it was looked at last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct KnownRollout {
    plan: RolloutPlan,
    /// The Targets that do not have the Release as it is now.
    turns: BTreeMap<ObjectKey, TurnForVersion>,
}

/// The rollouts of all Profiles that have one. A decision about a Target looks up its turn here, so that a change of a Release costs one
/// look at each Target, not one for each decision.
#[derive(Clone, Debug, Default)]
pub struct RolloutIndex {
    known: BTreeMap<ObjectKey, KnownRollout>,
    /// Namespaces in which something changed since.
    stale: BTreeSet<String>,
}

/// What differs since the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutChanges {
    /// Targets that have another turn.
    pub targets: BTreeSet<ObjectKey>,
    /// Profiles whose rollout is further, or not as far.
    pub profiles: BTreeSet<ObjectKey>,
}

impl RolloutIndex {
    /// Whether no Profile has a rollout.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Something changed in a namespace.
    pub fn mark(&mut self, namespace: &str) {
        if !self.stale.contains(namespace) {
            self.stale.insert(namespace.to_owned());
        }
    }

    /// Looks at the rollouts that may be others since the last look.
    pub fn refresh(&mut self, input: RolloutInput<'_>) -> RolloutChanges {
        let stale = std::mem::take(&mut self.stale);
        let is_stale = |profile: &ObjectKey| {
            !stale.is_empty() && (input.rules.crosses_namespaces || stale.contains(&profile.namespace))
        };
        let (mut known, mut changes) = (BTreeMap::new(), RolloutChanges::default());
        let mut survey = RolloutSurvey::new(input);
        for (key, profile) in input.objects.profiles.iter() {
            let Some((spec, limit)) = profile
                .spec
                .as_ref()
                .and_then(|spec| Some((spec, spec.max_unavailable.as_ref()?)))
            else {
                continue;
            };
            let rollout = match self.known.remove(key) {
                Some(old) if !is_stale(key) => old,
                old => {
                    let rollout = KnownRollout::of(limit, survey.of(key, spec));
                    // The status of a Profile waits for its rollout, whatever that is.
                    if old.is_none() {
                        changes.profiles.insert(key.clone());
                    }
                    changes.note(key, &old.unwrap_or_default(), &rollout);
                    rollout
                }
            };
            known.insert(key.clone(), rollout);
        }
        self.known = known;
        changes
    }

    /// How far the rollout of a Profile is.
    #[must_use]
    pub fn of(&self, profile: &ObjectKey) -> Option<&RolloutPlan> {
        self.known.get(profile).map(|rollout| &rollout.plan)
    }

    /// Whether a Target gets the Release of a Profile in this version of its chart.
    #[must_use]
    pub fn turn(&self, profile: &ObjectKey, target: &ObjectKey, version: &str) -> RolloutTurn {
        let rollout = self.known.get(profile);
        let found = rollout.and_then(|rollout| rollout.turns.get(target));
        match found {
            Some((turn, Some(known))) if known == version => *turn,
            _ if rollout.is_none() || !self.stale.is_empty() => RolloutTurn::Unknown,
            _ => RolloutTurn::Waits,
        }
    }
}

impl KnownRollout {
    fn of(limit: &IntOrString, targets: Vec<SurveyedTarget<'_>>) -> Self {
        let standings: Vec<RolloutStanding> = targets.iter().map(|(_, standing, _)| *standing).collect();
        let (plan, turns) = turns(limit, &standings);
        let is_behind = |standing| {
            !matches!(
                standing,
                RolloutStanding::Updated | RolloutStanding::Joining { .. }
            )
        };
        let turns = targets.into_iter().zip(turns);
        let turns = turns.filter(|((_, standing, _), _)| is_behind(*standing));
        let turns = turns.map(|((target, _, version), turn)| (target.clone(), (turn, version)));
        Self {
            plan,
            turns: turns.collect(),
        }
    }
}

impl RolloutChanges {
    fn note(&mut self, profile: &ObjectKey, old: &KnownRollout, new: &KnownRollout) {
        if old.plan != new.plan {
            self.profiles.insert(profile.clone());
        }
        let others = new
            .turns
            .iter()
            .filter(|(target, turn)| old.turns.get(*target) != Some(*turn));
        self.targets.extend(others.map(|(target, _)| target.clone()));
    }
}
