//! Verdicts on the rendering namespace itself.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::NetworkPolicySpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::check::PreflightCheck;
use super::facts::{FactError, PreflightFacts};
use super::finding::{PreflightFinding, unknown};
use super::text::{shown, some_of};

/// The label by which a namespace enforces a PodSecurity standard.
pub const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// What of a quota keeps renderer pods within bounds.
const BOUNDS: [&str; 9] = [
    "pods",
    "count/pods",
    "count/jobs.batch",
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
];

/// It exists, is none of the system's, and no registry counts it among the tenants.
pub(super) fn is_the_platforms(facts: &PreflightFacts) -> PreflightFinding {
    let check = PreflightCheck::RenderingNamespace;
    let name = &facts.rendering;
    if name == "default" || name.starts_with("kube-") {
        return PreflightFinding::refused(
            check,
            format!("{name} is a namespace of the cluster's own, where others have rights"),
            "give renderhub a rendering namespace of its own",
        );
    }
    let made = "make it as the chart does, or correct --rendering-namespace";
    match &facts.namespace {
        // A Role in a namespace that does not exist gives no right to see that.
        Err(FactError::Forbidden) => {
            return PreflightFinding::refused(
                check,
                format!("the namespace {name} does not exist, or the hub may not get it"),
                format!("{made}; and grant it, as the chart does"),
            );
        }
        Err(why) => return unknown(check, *why, &format!("get the namespace {name}")),
        Ok(None) => {
            return PreflightFinding::refused(check, format!("the namespace {name} does not exist"), made);
        }
        Ok(Some(_)) => {}
    }
    let naming: Vec<String> = facts
        .registries
        .iter()
        .flatten()
        .filter(|(_, spec)| spec.allowed_namespaces.contains(name))
        .map(|(registry, _)| shown(registry))
        .collect();
    if !naming.is_empty() {
        return PreflightFinding::refused(
            check,
            format!("ClusterRegistry {} treats {name} as a tenant's", some_of(&naming)),
            "take it off the allowedNamespaces; tasks live in tenants' namespaces",
        );
    }
    PreflightFinding::ok(check, format!("{name} is the platform's"))
}

/// A task in it means that a tenant works there.
pub(super) fn holds_no_task(facts: &PreflightFacts) -> PreflightFinding {
    let check = PreflightCheck::TenantTasks;
    let name = &facts.rendering;
    match facts.has_tasks {
        Err(why) => unknown(check, why, &format!("list rendertasks in {name}")),
        Ok(false) => PreflightFinding::ok(check, format!("no RenderTask lies in {name}")),
        Ok(true) => PreflightFinding::refused(
            check,
            format!(
                "{name} holds RenderTasks, so it is a tenant's: who works there can read every push credential"
            ),
            "delete the tasks, or give renderhub a rendering namespace of its own",
        ),
    }
}

/// A renderer image cannot take more than `restricted` gives.
pub(super) fn is_restricted(facts: &PreflightFacts) -> PreflightFinding {
    let check = PreflightCheck::PodSecurity;
    let name = &facts.rendering;
    let labels = match &facts.namespace {
        Err(why) => return unknown(check, *why, &format!("get the namespace {name}")),
        Ok(labels) => labels.as_ref(),
    };
    let is_so = labels
        .and_then(|l| l.get(ENFORCE))
        .is_some_and(|level| level == "restricted");
    if is_so {
        return PreflightFinding::ok(check, format!("{name} enforces restricted"));
    }
    PreflightFinding::refused(
        check,
        format!("{name} does not enforce the PodSecurity standard restricted"),
        format!("kubectl label namespace {name} {ENFORCE}=restricted; or --skip-preflight={check}"),
    )
}

/// Pods of it reach nothing, and nothing reaches them, unless a policy says so.
pub(super) fn denies_by_default(facts: &PreflightFacts) -> PreflightFinding {
    let check = PreflightCheck::NetworkPolicy;
    let name = &facts.rendering;
    let policies = match &facts.policies {
        Err(why) => return unknown(check, *why, &format!("list networkpolicies in {name}")),
        Ok(policies) => policies,
    };
    let open: Vec<String> = [Direction::Ingress, Direction::Egress]
        .into_iter()
        .filter(|direction| !is_denied(policies, *direction))
        .map(|direction| direction.as_str().to_owned())
        .collect();
    if open.is_empty() {
        return PreflightFinding::ok(check, format!("{name} denies traffic by default"));
    }
    PreflightFinding::refused(
        check,
        format!(
            "no NetworkPolicy of {name} denies by default: {}",
            open.join(", ")
        ),
        format!(
            "make one with an empty podSelector and policyTypes [Ingress, Egress], as the chart does; or \
             --skip-preflight={check}"
        ),
    )
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Ingress,
    Egress,
}

impl Direction {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ingress => "Ingress",
            Self::Egress => "Egress",
        }
    }
}

/// Policies add up: one that selects every pod denies by default, unless one that does so allows everything again.
fn is_denied(policies: &[NetworkPolicySpec], direction: Direction) -> bool {
    let mut for_all = policies
        .iter()
        .filter(|policy| covers(policy, direction) && selects_all(policy.pod_selector.as_ref()))
        .peekable();
    for_all.peek().is_some() && for_all.all(|policy| !allows_all(policy, direction))
}

fn covers(policy: &NetworkPolicySpec, direction: Direction) -> bool {
    match &policy.policy_types {
        Some(types) => types.iter().any(|type_| type_ == direction.as_str()),
        // What Kubernetes assumes: ingress always, egress where there are rules for it.
        None => direction == Direction::Ingress || policy.egress.is_some(),
    }
}

fn selects_all(selector: Option<&LabelSelector>) -> bool {
    selector.is_none_or(|selector| {
        selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
            && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
    })
}

/// Whether a rule names neither ports nor the other side.
fn allows_all(policy: &NetworkPolicySpec, direction: Direction) -> bool {
    match direction {
        Direction::Ingress => policy.ingress.iter().flatten().any(|rule| {
            rule.from.as_ref().is_none_or(Vec::is_empty) && rule.ports.as_ref().is_none_or(Vec::is_empty)
        }),
        Direction::Egress => policy.egress.iter().flatten().any(|rule| {
            rule.to.as_ref().is_none_or(Vec::is_empty) && rule.ports.as_ref().is_none_or(Vec::is_empty)
        }),
    }
}

/// Jobs that pile up meet a bound before the cluster does.
pub(super) fn is_bounded(facts: &PreflightFacts) -> PreflightFinding {
    let check = PreflightCheck::ResourceQuota;
    let name = &facts.rendering;
    let quotas = match &facts.quotas {
        Err(why) => return unknown(check, *why, &format!("list resourcequotas in {name}")),
        Ok(quotas) => quotas,
    };
    let bounds = quotas.iter().filter_map(|quota| quota.hard.as_ref());
    if bounds
        .flat_map(|hard| hard.keys())
        .any(|key| BOUNDS.contains(&key.as_str()))
    {
        return PreflightFinding::ok(check, format!("{name} has a quota"));
    }
    PreflightFinding::refused(
        check,
        format!("no ResourceQuota of {name} bounds pods, Jobs, CPU or memory"),
        format!("make one, as the chart does; or --skip-preflight={check}"),
    )
}
