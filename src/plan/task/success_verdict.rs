//! Decides whether a task succeeded: by what the platform's registry holds, and not by what a cluster reports.
//!
//! The platform's objects and the task decide which registry is asked; of the cluster's report only the digest is used, as a
//! claim. An answer to another request than the current one counts as none.

use k8s_openapi::jiff::SignedDuration;

use super::destination::chart_url;
use super::job_status::started;
use super::model::after;
use super::observed::ObservedTask;
use super::pod::layout::CLASS_CA_KEY;
use super::step::ReconcileStep;
use super::validate::validate;
use super::verification::{VerifyRequest, VerifyResult};
use crate::api::{ClusterRegistrySpec, RegistryKind, RenderTaskSpec, RendererMode, Verification};
use crate::plan::platform::catalog::{CopyRequest, destination};

/// Longest that a registry that does not answer is waited for, from the first request.
const SILENCE_LIMIT: SignedDuration = SignedDuration::from_mins(10);
/// Shortest and longest pause before it is asked again.
const PAUSES: [SignedDuration; 2] = [SignedDuration::from_secs(5), SignedDuration::from_secs(60)];
/// Longest that a manifest is waited for: what was written is not seen everywhere at once.
const SETTLING: SignedDuration = SignedDuration::from_secs(30);
/// Shortest and longest pause before it is looked for again.
const LOOKS: [SignedDuration; 2] = [SignedDuration::from_secs(1), SignedDuration::from_secs(10)];

/// The verdict on a Job that reports completion.
pub(super) enum SuccessVerdict {
    /// Nothing before this step is done.
    Later(ReconcileStep),
    /// It is a success.
    Yes,
    /// It is none, and why.
    No(&'static str),
}

/// Whether a success is asked for, and what.
enum VerificationNeed {
    Nothing,
    Request(Box<VerifyRequest>),
    Hopeless(&'static str),
}

/// Whether a completed Job is believed.
pub(super) fn success_verdict(o: &ObservedTask<'_>, job_uid: &str) -> SuccessVerdict {
    let request = match verification_need(o) {
        VerificationNeed::Nothing => return SuccessVerdict::Yes,
        VerificationNeed::Hopeless(why) => return SuccessVerdict::No(why),
        VerificationNeed::Request(request) => request,
    };
    let since = o.verification.map_or(o.now, |verification| verification.since);
    let waited = o.now.duration_since(since);
    let again = |[shortest, longest]: [SignedDuration; 2]| {
        let due = after(o.now, waited.clamp(shortest, longest));
        SuccessVerdict::Later(ReconcileStep::rest(Some(due)))
    };
    match verify_result(o, &request) {
        Some(VerifyResult::Held) => SuccessVerdict::Yes,
        Some(VerifyResult::Silent | VerifyResult::Refused) if !request.is_required => SuccessVerdict::Yes,
        Some(VerifyResult::Silent) if waited < SILENCE_LIMIT => again(PAUSES),
        Some(VerifyResult::Missing) if waited < SETTLING => again(LOOKS),
        Some(VerifyResult::Silent) => SuccessVerdict::No(
            "the Job completed, but the registry did not answer when the hub asked for the chart; make a new task",
        ),
        Some(VerifyResult::Missing) => SuccessVerdict::No(
            "the Job completed, but the registry does not hold the chart that its pod reported; make a new task, and tell the \
             platform operator",
        ),
        Some(VerifyResult::Different) => SuccessVerdict::No(
            "the Job completed, but the registry holds something else in the place of the chart; do not use it, and tell the \
             platform operator",
        ),
        Some(VerifyResult::Refused) => SuccessVerdict::No(
            "the Job completed, but the registry does not let the hub look for the chart; ask the platform operator to give the \
             push credential the right to read, then make a new task",
        ),
        None => SuccessVerdict::Later(verify_step(o, job_uid, request)),
    }
}

/// The answer to exactly this request.
fn verify_result(o: &ObservedTask<'_>, request: &VerifyRequest) -> Option<VerifyResult> {
    let (asked, result) = o.verification?.answer.as_ref()?;
    (asked == request).then_some(*result)
}

fn verify_step(o: &ObservedTask<'_>, job_uid: &str, request: Box<VerifyRequest>) -> ReconcileStep {
    // An answer may take long; a hub that is killed meanwhile has to know that the Job was made.
    if let Some(status) = started(o, job_uid, o.now) {
        return ReconcileStep::WriteStatus(Box::new(status));
    }
    // Not before the time, even if an event wakes the task: a cluster that sends endless events of a Job must not flood the
    // registry.
    match o.verification {
        Some(verification) if verification.answer.is_none() && o.now < verification.next => {
            ReconcileStep::rest(Some(verification.next))
        }
        _ => ReconcileStep::Verify(request),
    }
}

/// What has to be asked before a success is one. A tenant's own registry is the tenant's business.
fn verification_need(o: &ObservedTask<'_>) -> VerificationNeed {
    let Ok(spec) = validate(o.task) else {
        return VerificationNeed::Nothing;
    };
    let named = spec.registry_ref.as_ref();
    let Some(named) = named.filter(|named| named.kind == RegistryKind::ClusterRegistry) else {
        return VerificationNeed::Nothing;
    };
    let registry = o
        .catalog
        .registries
        .get(&named.name)
        .map(|registry| &registry.spec);
    let is_away = o.target.is_some();
    let is_required = match registry.and_then(|spec| spec.verify) {
        Some(Verification::None) => return VerificationNeed::Nothing,
        Some(Verification::Digest) => true,
        None => is_away,
    };
    let found = verify_request(o, spec, registry, is_required);
    match found {
        Ok(request) => VerificationNeed::Request(Box::new(request)),
        Err(_) if !is_required => VerificationNeed::Nothing,
        Err(why) => VerificationNeed::Hopeless(why),
    }
}

fn verify_request(
    o: &ObservedTask<'_>,
    spec: &RenderTaskSpec,
    registry: Option<&ClusterRegistrySpec>,
    is_required: bool,
) -> Result<VerifyRequest, &'static str> {
    let class = o.catalog.class(o.task, spec).ok();
    let digest = o
        .pod_termination
        .and_then(|note| note.message.as_ref()?.digest.clone());
    // A foreign renderer need not name what it pushed; on the hub's own cluster a chart under the tag will do.
    let is_foreign = o.target.is_none() && class.is_some_and(|class| class.spec.mode == RendererMode::Single);
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
    let of_class = || Some((class?.spec.ca_config_map_name.clone()?, CLASS_CA_KEY.to_owned()));
    Ok(VerifyRequest {
        plain_http: registry.plain_http,
        token_realm: registry.token_realm.clone(),
        means: CopyRequest {
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
