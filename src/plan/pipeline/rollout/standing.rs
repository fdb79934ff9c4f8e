//! How the Targets of a Profile stand to its Release, by what is there.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::surveyed_profile::SurveyedProfile;
use super::turns::RolloutStanding;
use crate::api::conditions::{ConditionType, Reason, has_reason};
use crate::api::pipeline::{HydratedRelease, ProfileSpec, TargetSpec, TargetStatus};
use crate::plan::pipeline::chart::{PlannedChart, bootstrap_task_prefix};
use crate::plan::pipeline::chart_cache::ChartCache;
use crate::plan::pipeline::destination::{RenderDestination, destination};
use crate::plan::pipeline::history::{StoredVersion, is_pushed};
use crate::plan::pipeline::object::{ObjectKey, within};
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::pull_secrets::PullSecrets;
use crate::plan::pipeline::references::ReferenceRules;
use crate::plan::pipeline::resolution::AcceptedRelease;
use crate::plan::pipeline::resolve::accepted;
use crate::plan::pipeline::source::{BoundRelease, SourceKey, TargetView, matched};
use crate::plan::pipeline::task::{has_failed, has_failed_below, release_failed};
use crate::plan::pipeline::unread;
use crate::plan::platform::catalog::Catalog;

/// The releases of versions that are being made: no watch shows them yet, and they may be there.
pub type VersionsInMaking = HashMap<ObjectKey, BTreeMap<String, Arc<HydratedRelease>>>;

/// Everything that rollouts follow from.
#[derive(Clone, Copy, Debug)]
pub struct RolloutInput<'o> {
    /// All objects of the pipeline.
    pub objects: &'o PipelineObjects,
    /// What governs references.
    pub rules: &'o ReferenceRules,
    /// What the platform offers.
    pub catalog: &'o Catalog,
    /// Charts that were planned before.
    pub charts: &'o ChartCache,
    /// Versions that are being made.
    pub in_making: &'o VersionsInMaking,
}

/// The entry of a version that a Release takes the place of: its own, or the one of its unique name that the same source put there.
#[must_use]
pub fn held<'v>(
    releases: &'v BTreeMap<String, Arc<HydratedRelease>>,
    status: &TargetStatus,
    release: &ObjectKey,
    unique_name: &str,
    source: SourceKey<'_>,
) -> Option<(&'v String, &'v Arc<HydratedRelease>)> {
    let is_own = |(_, entry): &(_, &Arc<HydratedRelease>)| {
        entry.namespace == release.namespace && entry.name == release.name
    };
    let recorded = |entry: &'v Arc<HydratedRelease>| {
        let mut known = status.releases.iter();
        let found = known.find(|one| one.namespace == entry.namespace && one.name == entry.name);
        found.map_or(&entry.source, |known| &known.source)
    };
    let own = releases.iter().find(is_own);
    own.or_else(|| {
        let named = releases.get_key_value(unique_name);
        named.filter(|(_, entry)| source.is(recorded(entry)))
    })
}

/// Versions of the Targets of a namespace, by the name and the UID of the Target and their number.
type VersionsOfTargets<'o> = HashMap<(&'o str, &'o str), BTreeMap<i64, &'o StoredVersion>>;

/// What is known of a Target, for the rollouts of all Profiles that match it.
struct TargetFacts<'o> {
    destination: Option<RenderDestination>,
    secrets: PullSecrets<'o>,
    /// What its versions hold, the newest first, up to the newest that is pushed.
    chain: Vec<&'o BTreeMap<String, Arc<HydratedRelease>>>,
    /// Number of the newest, where one is known.
    newest: Option<i64>,
    is_newest_pushed: bool,
    is_last_pushed: bool,
}

impl<'o> TargetFacts<'o> {
    /// The version of the Profile's Release in the newest version.
    fn newest_version(
        &self,
        profile: &SurveyedProfile<'_>,
        target: TargetView<'_>,
        unique_name: &str,
    ) -> Option<&'o str> {
        let (status, newest) = (&target.object.status, *self.chain.first()?);
        let found = held(newest, status, &profile.release, unique_name, profile.source);
        found.map(|(_, entry)| entry.version.as_str())
    }
}

/// Looks at Targets; what is known of one is looked up once.
pub(super) struct RolloutSurvey<'o> {
    input: RolloutInput<'o>,
    versions: HashMap<&'o str, VersionsOfTargets<'o>>,
    facts: HashMap<&'o ObjectKey, TargetFacts<'o>>,
}

/// A Target of a Profile, its standing, and the version of the chart that it should get.
pub(super) type SurveyedTarget<'o> = (&'o ObjectKey, RolloutStanding, Option<String>);

impl<'o> RolloutSurvey<'o> {
    pub fn new(input: RolloutInput<'o>) -> Self {
        Self {
            input,
            versions: HashMap::new(),
            facts: HashMap::new(),
        }
    }

    /// How the Targets of a Profile stand, in the order in which they are reached.
    pub fn of(&mut self, key: &'o ObjectKey, spec: &'o ProfileSpec) -> Vec<SurveyedTarget<'o>> {
        let RolloutInput { objects, rules, .. } = self.input;
        let profile = SurveyedProfile::of(key, spec, objects);
        matched(key, spec, objects, rules)
            .map(|target| {
                let (standing, version) = self.standing(&profile, target);
                (target.key, standing, version)
            })
            .collect()
    }

    fn standing(
        &mut self,
        profile: &SurveyedProfile<'o>,
        target: TargetView<'o>,
    ) -> (RolloutStanding, Option<String>) {
        let spec = target.object.spec.as_ref().filter(|_| !target.object.deleting);
        let spec = spec.filter(|spec| spec.suspend != Some(true) && spec.rollback_to.is_none());
        let spec = spec.filter(|spec| {
            !unread::is_unknown(target, spec, self.input.objects, self.input.rules)
                && !profile.is_preceded(target, self.input.objects, self.input.rules)
        });
        let Some(spec) = spec else {
            return (RolloutStanding::PassedOver, None);
        };
        self.learn(target, spec);
        let Some(facts) = self.facts.get(target.key) else {
            return (RolloutStanding::PassedOver, None);
        };
        let RolloutInput {
            objects,
            rules,
            charts,
            ..
        } = self.input;
        let bound = BoundRelease {
            source: profile.source,
            release: profile.release.clone(),
            further: Vec::new(),
            userdata: Vec::new(),
        };
        let release = accepted(&bound, objects, rules, &facts.secrets).ok();
        let chart = release.as_ref().zip(facts.destination.as_ref());
        let chart = chart.map(|(release, to)| {
            // A renderer of another release may have given the chart that the newest version has another tag.
            let version = facts.newest_version(profile, target, release.unique_name);
            let known = version.and_then(|version| charts.named(release, target.key, spec, to, version));
            known.unwrap_or_else(|| charts.release_chart(release, target.key, spec, to, 0))
        });
        let look = Look {
            target,
            facts,
            objects,
        };
        let standing = look.standing(profile, release.as_ref(), chart.as_ref().map(|chart| &***chart));
        (standing, chart.map(|chart| chart.version.clone()))
    }

    /// Looks up what is known of a Target.
    fn learn(&mut self, target: TargetView<'o>, spec: &'o TargetSpec) {
        if self.facts.contains_key(target.key) {
            return;
        }
        let RolloutInput {
            objects,
            rules,
            catalog,
            in_making,
            ..
        } = self.input;
        let namespace = target.key.namespace.as_str();
        let all = self.versions.entry(namespace);
        let all = all.or_insert_with(|| versions_of_targets(objects, namespace));
        let known = all.get(&(target.key.name.as_str(), target.object.uid.as_str()));
        let last = known.and_then(|known| known.values().next_back()?.spec.as_ref());
        let mut facts = TargetFacts {
            destination: destination(target.key, spec, objects, rules, catalog).ok(),
            secrets: PullSecrets::of(target, last, objects, rules),
            chain: in_making.get(target.key).into_iter().collect(),
            newest: known.and_then(|known| known.keys().next_back().copied()),
            is_newest_pushed: false,
            is_last_pushed: false,
        };
        for version in known.into_iter().flat_map(|known| known.values().rev()) {
            facts.is_last_pushed = is_pushed(version);
            facts.is_newest_pushed |= facts.chain.is_empty() && facts.is_last_pushed;
            facts
                .chain
                .extend(version.spec.as_ref().map(|spec| &spec.releases));
            if facts.is_last_pushed {
                break;
            }
        }
        self.facts.insert(target.key, facts);
    }
}

fn versions_of_targets<'o>(objects: &'o PipelineObjects, namespace: &'o str) -> VersionsOfTargets<'o> {
    let mut all = VersionsOfTargets::new();
    for version in within(&objects.hydrated_targets, namespace).map(|(_, version)| version) {
        if let Some(spec) = version.spec.as_ref().filter(|_| !version.deleting) {
            let of_target = all.entry((&spec.target_name, &spec.target_uid)).or_default();
            of_target.insert(spec.version, version);
        }
    }
    all
}

/// One Target as it is looked at.
struct Look<'f, 'o> {
    target: TargetView<'o>,
    facts: &'f TargetFacts<'o>,
    objects: &'o PipelineObjects,
}

impl Look<'_, '_> {
    /// The standing of the Target for a Release; without a chart, the hub cannot render the Release for it.
    fn standing(
        &self,
        profile: &SurveyedProfile<'_>,
        release: Option<&AcceptedRelease<'_>>,
        chart: Option<&PlannedChart>,
    ) -> RolloutStanding {
        let name = release.map_or("", |release| release.unique_name);
        let status = &self.target.object.status;
        let held = |releases| held(releases, status, &profile.release, name, profile.source);
        let version = |releases| held(releases).map(|(_, entry)| entry.version.as_str());
        let newest = self.facts.chain.first().and_then(|releases| version(releases));
        let mut others = self.facts.chain.iter().filter_map(|releases| version(releases));
        let is_on_its_way =
            !self.facts.is_newest_pushed && others.any(|other| Some(other) != newest) && newest.is_some();
        let Some(chart) = chart else {
            let has_failed = self.facts.destination.is_none() || self.bootstrap_failed();
            return if is_on_its_way {
                RolloutStanding::OnItsWay { has_failed }
            } else {
                RolloutStanding::PassedOver
            };
        };
        let last = self.facts.chain.last().filter(|_| self.facts.is_last_pushed);
        let is_pushed = last.is_some_and(|last| version(last) == Some(&chart.version));
        match newest {
            None => RolloutStanding::Joining {
                has_failed: self.chart_failed(chart),
            },
            Some(newest) if newest != chart.version => self.behind(&profile.release, is_on_its_way, chart),
            Some(_) if is_on_its_way => RolloutStanding::OnItsWay {
                has_failed: self.bootstrap_failed(),
            },
            Some(_) if is_pushed => RolloutStanding::Updated,
            Some(_) => RolloutStanding::Joining {
                has_failed: self.bootstrap_failed(),
            },
        }
    }

    fn behind(&self, release: &ObjectKey, is_on_its_way: bool, chart: &PlannedChart) -> RolloutStanding {
        let has_failed = self.chart_failed(chart) || self.is_refused();
        if is_on_its_way {
            RolloutStanding::OnItsWay { has_failed }
        } else if !has_failed && (self.another_failed(release) || self.has_too_many_bindings()) {
            // It holds the Target's next version back until it is mended.
            RolloutStanding::PassedOver
        } else {
            RolloutStanding::Behind { has_failed }
        }
    }

    /// Whether its next version cannot be made.
    fn is_refused(&self) -> bool {
        [Reason::VersionTooLarge, Reason::TooManyVersions]
            .iter()
            .any(|reason| self.says(ConditionType::BootstrapReady, *reason))
    }

    /// Whether the chart of another of its Releases failed.
    fn another_failed(&self, release: &ObjectKey) -> bool {
        let namespace = &self.target.key.namespace;
        let others = self.target.object.status.releases.iter();
        let mut others = others
            .map(|other| ObjectKey::new(&other.namespace, &other.name))
            .filter(|other| other != release);
        self.says(ConditionType::ReleasesRendered, Reason::ReleaseFailed)
            && others.any(|other| release_failed(self.objects, namespace, &other))
    }

    fn has_too_many_bindings(&self) -> bool {
        self.says(ConditionType::ReleasesResolved, Reason::TooManyBindings)
    }

    fn chart_failed(&self, chart: &PlannedChart) -> bool {
        let namespace = &self.target.key.namespace;
        has_failed(self.objects, namespace, &chart.task_name, &chart.spec_hash)
    }

    /// Whether the chart of the newest version failed.
    fn bootstrap_failed(&self) -> bool {
        let ObjectKey { namespace, name } = self.target.key;
        self.facts.newest.is_some_and(|newest| {
            let prefix = bootstrap_task_prefix(name, newest);
            has_failed_below(self.objects, namespace, &prefix)
        })
    }

    fn says(&self, type_: ConditionType, reason: Reason) -> bool {
        has_reason(&self.target.object.status.conditions, type_, reason)
    }
}
