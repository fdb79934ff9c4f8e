//! What the hub says of a Profile: whom it matches, how far its rollout is, and where another Release is instead.

use crate::api::conditions::Reason;
use crate::api::pipeline::{MatchedTarget, ProfileSpec, ProfileStatus, ReleaseSourceKind};

use super::conditions::{Verdict, listed};
use super::left_out::winner;
use super::object::{ObjectKey, PipelineObject};
use super::rollout::RolloutPlan;
use super::source::{matched, source};
use super::status::{StatusInput, released, set_ready};

/// Most Targets that a Profile lists; its schema has the same bound.
pub const MAX_LISTED: usize = 100;

/// The status that a Profile should have; `None` where it is not known yet.
#[must_use]
pub fn of_profile<'o>(
    key: &'o ObjectKey,
    object: &PipelineObject<ProfileSpec, ProfileStatus>,
    input: &StatusInput<'o>,
) -> Option<ProfileStatus> {
    // Targets that the hub does not know would be missing from the count.
    let is_counted = !input
        .rules
        .may_match_unknown(&input.objects.grants, &key.namespace);
    let spec = object.spec.as_ref().filter(|_| is_counted)?;
    let matched: Vec<&ObjectKey> = matched(key, spec, input.objects, input.rules)
        .map(|target| target.key)
        .collect();
    if !matched.iter().all(|target| input.left_out.knows(target)) {
        return None;
    }
    let rollout = match &spec.max_unavailable {
        Some(_) => Some(input.rollouts.of(key)?),
        None => None,
    };
    let mut status = object.status.clone();
    status.matched_targets = Some(count(matched.len()));
    status.updated_targets = rollout.map(|rollout| count(rollout.updated));
    let listed = matched.iter().take(MAX_LISTED).map(|target| MatchedTarget {
        name: target.name.clone(),
        namespace: (target.namespace != key.namespace).then(|| target.namespace.clone()),
    });
    status.targets = listed.collect();
    let release = ObjectKey::new(&key.namespace, &spec.release_ref.name);
    let mut ready = released(&release, input.objects);
    if ready.holds {
        ready = match (superseded(key, &matched, input), rollout) {
            (Some(superseded), _) if !superseded.holds => superseded,
            (_, Some(rollout)) if rollout.is_halted || rollout.is_running() => progress(rollout, &release),
            (Some(superseded), _) => superseded,
            (None, Some(rollout)) if rollout.passed_over > 0 => behind(rollout, &release),
            (None, _) => ready,
        };
    }
    set_ready(&mut status.conditions, ready, object.generation, input.now);
    status.observed_generation = Some(object.generation);
    Some(status)
}

/// On which Targets another Release is in place of that of the Profile; `None` where on none.
fn superseded(key: &ObjectKey, matched: &[&ObjectKey], input: &StatusInput<'_>) -> Option<Verdict> {
    let source = source(ReleaseSourceKind::Profile, key);
    let lost = matched
        .iter()
        .filter_map(|target| Some((*target, input.left_out.of(target, &source)?)));
    let texts: Vec<String> = lost
        .map(|(target, left_out)| format!("on Target {target}, {}", winner(left_out, target)))
        .collect();
    let (few, all) = (texts.len(), matched.len());
    if few == 0 {
        return None;
    }
    let places = listed(texts.into_iter());
    Some(if few == all {
        let message = format!(
            "another Release is on each Target in place of this one: {places}; give this one a higher priority, or delete what binds the other"
        );
        Verdict::bad(Reason::Superseded, message)
    } else {
        let message = format!("another Release is on {few} of {all} Targets in place of this one: {places}");
        Verdict::good(Reason::Ready, message)
    })
}

/// How far a rollout is that goes on, or that halted.
fn progress(rollout: &RolloutPlan, release: &ObjectKey) -> Verdict {
    let RolloutPlan {
        matched,
        updated,
        working,
        waiting,
        failed,
        ..
    } = rollout;
    if rollout.is_halted {
        let message = format!(
            "the rollout of Release {release} halted, because it failed on {failed} of {matched} Targets; {updated} have it and {waiting} \
             wait: mend what failed, or change the Release"
        );
        return Verdict::bad(Reason::RolloutHalted, message);
    }
    let message = format!(
        "Release {release} is on {updated} of {matched} Targets as it is now; it is on its way to {working}, and {waiting} wait"
    );
    Verdict::bad(Reason::RollingOut, message)
}

/// A rollout that has nothing left to do although not each Target has the change.
fn behind(rollout: &RolloutPlan, release: &ObjectKey) -> Verdict {
    let message = format!(
        "Release {release} is on each Target that it can be brought to; suspended, pinned, without a registry or held back by something \
         else: {}",
        rollout.passed_over
    );
    Verdict::good(Reason::Ready, message)
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
