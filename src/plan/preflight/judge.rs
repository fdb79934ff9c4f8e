//! The finding on each check, from the facts.

use std::collections::BTreeSet;

use super::check::PreflightCheck;
use super::facts::PreflightFacts;
use super::finding::{PreflightFinding, unknown};
use super::text::{shown, some_of};
use super::{access, namespace, permissions, pipeline};
use crate::api::ClusterRegistrySpec;

/// Judges everything but the other hubs and the namespaces that no hub serves: those are judged by the Leases.
#[must_use]
pub fn judge(facts: &PreflightFacts, skipped: &BTreeSet<PreflightCheck>) -> Vec<PreflightFinding> {
    let is_of_leases =
        |check: &PreflightCheck| matches!(check, PreflightCheck::Peers | PreflightCheck::UnownedNamespaces);
    let judged = PreflightCheck::ALL
        .into_iter()
        .filter(|check| !is_of_leases(check));
    judged
        .map(|check| {
            if skipped.contains(&check) {
                PreflightFinding::skipped(check)
            } else {
                one(check, facts)
            }
        })
        .collect()
}

fn one(check: PreflightCheck, facts: &PreflightFacts) -> PreflightFinding {
    match check {
        PreflightCheck::RenderingNamespace => namespace::is_the_platforms(facts),
        PreflightCheck::TenantTasks => namespace::holds_no_task(facts),
        PreflightCheck::TenantRights => access::have_no_right(facts),
        PreflightCheck::RoleBindings => access::are_not_bound(facts),
        PreflightCheck::PodSecurity => namespace::is_restricted(facts),
        PreflightCheck::NetworkPolicy => namespace::denies_by_default(facts),
        PreflightCheck::ResourceQuota => namespace::is_bounded(facts),
        PreflightCheck::OwnRights => permissions::are_no_more_than_needed(facts),
        PreflightCheck::Pipeline => pipeline::has_what_it_needs(facts),
        PreflightCheck::RegistryScope | PreflightCheck::Peers | PreflightCheck::UnownedNamespaces => {
            registry_scope(facts)
        }
    }
}

/// A registry for every namespace without a prefix lets each tenant overwrite the charts of all others.
fn registry_scope(facts: &PreflightFacts) -> PreflightFinding {
    let check = PreflightCheck::RegistryScope;
    let registries = match &facts.registries {
        Ok(registries) => registries,
        Err(why) => return unknown(check, *why, "list clusterregistries"),
    };
    let is_open = |spec: &ClusterRegistrySpec| {
        spec.repository_prefix.is_empty() && spec.allowed_namespaces.iter().any(|name| name == "*")
    };
    let open: Vec<String> = registries
        .iter()
        .filter(|(_, spec)| is_open(spec))
        .map(|(name, _)| shown(name))
        .collect();
    if open.is_empty() {
        return PreflightFinding::ok(
            check,
            format!("{} ClusterRegistries, none open to everybody", registries.len()),
        );
    }
    PreflightFinding::warning(
        check,
        format!(
            "any namespace may push to any repository by ClusterRegistry {}",
            some_of(&open)
        ),
        "give it a repositoryPrefix with {namespace}, or name its allowedNamespaces",
    )
}
