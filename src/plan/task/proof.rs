//! What a success rests on: not on the word of a cluster, but on what the platform's registry holds.
//!
//! Who asks is told where by the platform's own objects and by the task; nothing that a cluster says has a part in it but the
//! digest, which is a claim. An answer to another question than the one that is asked now counts as none.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::oci::{Digest, Reference};
use crate::api::{ClusterRegistrySpec, RegistryKind, RenderTaskSpec, RendererMode, Verification};

use super::pod::CLASS_CA_KEY;
use super::validate::validate;
use super::{Observed, Step, chart_url, started};
use crate::plan::platform::catalog::{Cargo, destination};

/// Longest that a registry that does not answer is waited for, from the first question.
const PATIENCE: SignedDuration = SignedDuration::from_mins(10);
/// Shortest and longest pause before it is asked again.
const PAUSES: [SignedDuration; 2] = [SignedDuration::from_secs(5), SignedDuration::from_secs(60)];
/// Longest that a manifest is waited for: what was written is not seen everywhere at once.
const SETTLING: SignedDuration = SignedDuration::from_secs(30);
/// Shortest and longest pause before it is looked for again.
const LOOKS: [SignedDuration; 2] = [SignedDuration::from_secs(1), SignedDuration::from_secs(10)];

/// What is asked of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// Where the chart should be.
    pub reference: Reference,
    /// Whether the registry is reached over plain HTTP.
    pub plain_http: bool,
    /// Token service of another origin that the registry may send the hub to.
    pub token_realm: Option<String>,
    /// The credential and the certificates, by name.
    pub means: Cargo,
    /// Digest of the manifest; absent, anything under the tag will do.
    pub digest: Option<Digest>,
    /// Whether nothing is believed without an answer.
    pub is_required: bool,
}

/// What a registry said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It holds the manifest.
    Held,
    /// It does not.
    Missing,
    /// It shows something else in the place of the manifest.
    Different,
    /// It does not let the hub look.
    Refused,
    /// Nothing that can be understood, or nothing in time.
    Silent,
}

/// What is known of a registry's word on a task.
#[derive(Clone, Debug)]
pub struct Proof {
    /// When it was first asked for.
    pub since: Timestamp,
    /// When it may be asked for again.
    pub next: Timestamp,
    /// The last question and what came of it, until it was looked at.
    pub answer: Option<(Inquiry, Finding)>,
}

/// What becomes of a Job that is said to be complete.
pub(super) enum Belief {
    /// Nothing before this step is done.
    Later(Step),
    /// It is a success.
    Yes,
    /// It is none, and why.
    No(&'static str),
}

/// Whether a success is asked for, and what.
enum Need {
    Nothing,
    Question(Box<Inquiry>),
    Hopeless(&'static str),
}

/// Whether a completed Job is believed.
pub(super) fn judge(o: &Observed<'_>, job_uid: &str) -> Belief {
    let inquiry = match need(o) {
        Need::Nothing => return Belief::Yes,
        Need::Hopeless(why) => return Belief::No(why),
        Need::Question(inquiry) => inquiry,
    };
    let since = o.proof.map_or(o.now, |proof| proof.since);
    let waited = o.now.duration_since(since);
    let again = |[shortest, longest]: [SignedDuration; 2]| {
        let due = o.now.checked_add(waited.clamp(shortest, longest));
        Belief::Later(rest(due.unwrap_or(Timestamp::MAX)))
    };
    match answer(o, &inquiry) {
        Some(Finding::Held) => Belief::Yes,
        Some(Finding::Silent | Finding::Refused) if !inquiry.is_required => Belief::Yes,
        Some(Finding::Silent) if waited < PATIENCE => again(PAUSES),
        Some(Finding::Missing) if waited < SETTLING => again(LOOKS),
        Some(Finding::Silent) => Belief::No(
            "the Job completed, but the registry did not answer when the hub asked for the chart; make a new task",
        ),
        Some(Finding::Missing) => Belief::No(
            "the Job completed, but the registry does not hold the chart that its pod reported; make a new task, and tell the \
             platform operator",
        ),
        Some(Finding::Different) => Belief::No(
            "the Job completed, but the registry holds something else in the place of the chart; do not use it, and tell the \
             platform operator",
        ),
        Some(Finding::Refused) => Belief::No(
            "the Job completed, but the registry does not let the hub look for the chart; ask the platform operator to give the \
             push credential the right to read, then make a new task",
        ),
        None => Belief::Later(ask(o, job_uid, inquiry)),
    }
}

/// The answer to exactly this question.
fn answer(o: &Observed<'_>, inquiry: &Inquiry) -> Option<Finding> {
    let (asked, finding) = o.proof?.answer.as_ref()?;
    (asked == inquiry).then_some(*finding)
}

fn ask(o: &Observed<'_>, job_uid: &str, inquiry: Box<Inquiry>) -> Step {
    // An answer may take long; a hub that is killed meanwhile has to know that the Job was made.
    if let Some(status) = started(o, job_uid, o.now) {
        return Step::WriteStatus(Box::new(status));
    }
    // Not before the time, whoever wakes the task: a cluster that tells of a Job without end makes no flood of it.
    match o.proof {
        Some(proof) if proof.answer.is_none() && o.now < proof.next => rest(proof.next),
        _ => Step::Verify(inquiry),
    }
}

fn rest(until: Timestamp) -> Step {
    Step::Rest {
        wake: Some(until),
        wants_slot: false,
        waits_for: None,
        wants_site: false,
    }
}

/// What has to be asked before a success is one. A tenant's own registry is the tenant's business.
fn need(o: &Observed<'_>) -> Need {
    let Ok(spec) = validate(o.task) else {
        return Need::Nothing;
    };
    let named = spec.registry_ref.as_ref();
    let Some(named) = named.filter(|named| named.kind == RegistryKind::ClusterRegistry) else {
        return Need::Nothing;
    };
    let registry = o
        .catalog
        .registries
        .get(&named.name)
        .map(|registry| &registry.spec);
    let is_away = o.target.is_some();
    let is_required = match registry.and_then(|spec| spec.verify) {
        Some(Verification::None) => return Need::Nothing,
        Some(Verification::Digest) => true,
        None => is_away,
    };
    let found = question(o, spec, registry, is_required);
    match found {
        Ok(inquiry) => Need::Question(Box::new(inquiry)),
        Err(_) if !is_required => Need::Nothing,
        Err(why) => Need::Hopeless(why),
    }
}

fn question(
    o: &Observed<'_>,
    spec: &RenderTaskSpec,
    registry: Option<&ClusterRegistrySpec>,
    is_required: bool,
) -> Result<Inquiry, &'static str> {
    let class = o.catalog.class(o.task, spec).ok();
    let digest = o.note.and_then(|note| note.message.as_ref()?.digest.clone());
    // A foreign renderer need not name what it pushed; on the hub's own cluster a chart under the tag will do.
    let is_foreign = o.target.is_none() && class.is_some_and(|class| class.mode == RendererMode::Single);
    if digest.is_none() && !(is_required && is_foreign) {
        return Err(
            "the Job completed, but its pod did not report the digest of the chart, so the push cannot be verified; make a new task",
        );
    }
    let gone = "the Job completed, but its ClusterRegistry was deleted or names another host now, so the push cannot be verified; make a \
                new task";
    let registry = registry.ok_or(gone)?;
    let found = destination(&registry.hostname, &registry.repository_prefix, o.task, spec);
    let (reference, _) = found.map_err(|_| gone)?;
    // The registry is another one since the Job was made: it knows nothing of it.
    if chart_url(o).is_some_and(|url| url != reference.url()) {
        return Err(gone);
    }
    let secret = registry.push_secret_ref.as_ref();
    let own = registry.ca_config_map_ref.as_ref();
    let of_class = || Some((class?.ca_config_map_name.clone()?, CLASS_CA_KEY.to_owned()));
    Ok(Inquiry {
        plain_http: registry.plain_http,
        token_realm: registry.token_realm.clone(),
        means: Cargo {
            secret: secret.map(|named| (named.name.clone(), reference.host.to_string())),
            certificates: own
                .map(|named| (named.name.clone(), named.key.clone()))
                .or_else(of_class),
        },
        reference,
        digest,
        is_required,
    })
}
