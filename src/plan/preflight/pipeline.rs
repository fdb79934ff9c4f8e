//! The verdict on the pipeline: the API server serves its kinds, and the hub may do there what it has to.

use super::check::PreflightCheck;
use super::facts::{PipelineFacts, PreflightFacts};
use super::finding::{PreflightFinding, unknown};
use super::text::{shown, some_of};

/// It has what it needs. Neither keeps the hub from serving tasks, and both mend themselves once they are there, so they only warn:
/// a tenant who makes its namespace anew takes the hub's rights there along.
pub(super) fn has_what_it_needs(facts: &PreflightFacts) -> PreflightFinding {
    let check = PreflightCheck::Pipeline;
    let pipeline = match &facts.pipeline {
        Err(why) => return unknown(check, *why, "list the kinds of renderhub.dev and its own rights"),
        Ok(None) => return PreflightFinding::ok(check, "the pipeline is off"),
        Ok(Some(pipeline)) => pipeline,
    };
    let PipelineFacts {
        missing_kinds,
        missing_permissions,
    } = pipeline;
    if !missing_kinds.is_empty() {
        let kinds: Vec<String> = missing_kinds.iter().map(ToString::to_string).collect();
        return PreflightFinding::warning(
            check,
            format!(
                "the API server does not serve {}, so nothing is made for Targets",
                some_of(&kinds)
            ),
            "install the CRDs of this version, as crds.install=true of the chart does",
        );
    }
    if missing_permissions.is_empty() {
        return PreflightFinding::ok(check, "its kinds are served, and the hub may do what it has to");
    }
    let texts = missing_permissions.iter().map(|(namespace, permission)| {
        let place = namespace
            .as_deref()
            .map_or_else(|| "the whole cluster".to_owned(), shown);
        format!("{} {} in {place}", permission.verb, permission.resource)
    });
    PreflightFinding::warning(
        check,
        format!("the hub may not {}", some_of(&texts.collect::<Vec<_>>())),
        "run helm upgrade, which gives it what it needs in each namespace of its lists",
    )
}
