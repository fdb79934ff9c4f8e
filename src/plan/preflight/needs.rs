//! What a hub that makes tasks for Targets needs: kinds, and permissions on them in each of its namespaces.

use std::collections::BTreeSet;

use k8s_openapi::api::authorization::v1::ResourceRule;

use crate::api::labels::GROUP;
use crate::plan::pipeline::references::{CATALOG_KINDS, ReferenceRules};

/// Kinds that a hub which makes tasks for Targets watches where it serves.
pub(super) const WATCHED: &[&str] = &[
    "targets",
    "releases",
    "components",
    "componentversions",
    "profiles",
    "releasebindings",
    "registrybindings",
    "hydratedtargets",
];
/// Kinds that it makes and deletes.
pub(super) const MADE: &[&str] = &["rendertasks", "hydratedtargets"];
/// Statuses that it patches.
pub(super) const STATUSES: &[&str] = &[
    "targets/status",
    "releases/status",
    "components/status",
    "componentversions/status",
    "profiles/status",
    "releasebindings/status",
    "registrybindings/status",
];
/// The status of the objects that the hub alone writes.
pub(super) const REPLACED_STATUS: &str = "hydratedtargets/status";
/// What it watches for other reasons too.
const ALSO: &[&str] = &["registries", "rendertasks"];
/// Where references may cross namespaces.
const GRANTS: &str = "referencegrants";

/// A permission on a kind of renderhub's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NeededPermission {
    /// What is done.
    pub verb: &'static str,
    /// With what, a subresource after a slash.
    pub resource: &'static str,
}

/// What is needed in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineNeed {
    /// The namespace; `None` is the whole cluster.
    pub namespace: Option<String>,
    /// Each permission.
    pub permissions: Vec<NeededPermission>,
}

/// What a hub with these rules needs, namespace by namespace.
#[must_use]
pub fn needed(rules: &ReferenceRules) -> Vec<PipelineNeed> {
    let grants = rules.crosses_namespaces.then_some(GRANTS);
    let of = |resources: &[&'static str], verbs: &[&'static str]| {
        let each = resources.iter();
        let each = each.flat_map(|resource| verbs.iter().map(|verb| NeededPermission { verb, resource }));
        each.collect::<Vec<_>>()
    };
    let read = |kinds: &[&'static str]| {
        let all: Vec<_> = kinds.iter().copied().chain(grants).collect();
        of(&all, &["list", "watch"])
    };
    let everything = || {
        let mut all = read(&[WATCHED, ALSO].concat());
        all.extend(of(MADE, &["create", "delete"]));
        all.extend(of(STATUSES, &["patch"]));
        all.extend(of(&[REPLACED_STATUS], &["update"]));
        all.extend(of(&["targets"], &["patch"]));
        all
    };
    let need = |namespace: Option<&String>, permissions| PipelineNeed {
        namespace: namespace.cloned(),
        permissions,
    };
    if rules.served.is_empty() {
        return vec![need(None, everything())];
    }
    let served = rules.served.iter().map(|name| need(Some(name), everything()));
    let catalogs = rules
        .only_catalogs()
        .map(|name| need(Some(name), read(&CATALOG_KINDS)));
    served.chain(catalogs).collect()
}

/// The kinds that a hub with these rules needs.
#[must_use]
pub fn kinds(rules: &ReferenceRules) -> BTreeSet<&'static str> {
    let needed = needed(rules);
    let permissions = needed.iter().flat_map(|need| &need.permissions);
    permissions
        .map(|permission| permission.resource.split('/').next().unwrap_or_default())
        .collect()
}

/// What is needed and none of these rules gives.
#[must_use]
pub fn missing(need: &PipelineNeed, rules: &[ResourceRule]) -> Vec<NeededPermission> {
    let has = |list: &Option<Vec<String>>, wanted: &str| {
        let mut words = list.iter().flatten();
        words.any(|word| word == wanted || word == "*")
    };
    let gives = |rule: &ResourceRule, permission: &NeededPermission| {
        let is_of_any = rule.resource_names.as_ref().is_none_or(Vec::is_empty);
        is_of_any
            && has(&rule.api_groups, GROUP)
            && has(&rule.resources, permission.resource)
            && has(&Some(rule.verbs.clone()), permission.verb)
    };
    let lacks = |permission: &&NeededPermission| !rules.iter().any(|rule| gives(rule, permission));
    need.permissions.iter().filter(lacks).copied().collect()
}
