//! What a Lease says, and how it is written.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;

use super::namespace_scope::{MAX_LISTED, NamespaceScope};
use super::timing::DURATION;
use crate::api::labels::{
    FORMER_NAMESPACES, LEASE_CLAIM, LEASE_STATE, PART_OF, PART_OF_VALUE, RENDERING_NAMESPACE,
};
use crate::api::names::HubId;

/// What the name of each record starts with.
const PREFIX: &str = "renderhub-";
/// The part of a standby's record name before its number.
const STANDBY: &str = "standby-";
/// Longest duration that is accepted, so that a nonsensical record delays no hub for long.
const MAX_DURATION: Duration = Duration::from_secs(60);

/// Which of a hub's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseSlot {
    /// The right to work.
    Hub,
    /// The right to work on a part of the namespaces: of an earlier version, whose instances divided them. It is only read.
    Shard(u16),
    /// No right to work: the instance is only ready.
    Standby(u8),
}

/// What an instance does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstanceState {
    /// It finds out whether it may work.
    Starting,
    /// It is ready to take the place of another.
    Standby,
    /// It works.
    Active,
}

impl InstanceState {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Starting, Self::Standby, Self::Active];

    /// As a record, a metric and `/readyz` say it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Standby => "standby",
            Self::Active => "active",
        }
    }
}

/// What an instance says of itself.
#[derive(Clone, Debug)]
pub struct HolderIdentity {
    /// Which hub.
    pub hub_id: HubId,
    /// Which instance of it; the same after a restart in place.
    pub holder: String,
    /// Which process of it; never the same again.
    pub process: String,
    /// Where its Jobs run.
    pub rendering: String,
    /// The namespaces it serves.
    pub watched: NamespaceScope,
}

/// The contents of a record in addition to its holder.
#[derive(Clone, Copy, Debug)]
pub struct LeaseContent<'a> {
    /// Which record.
    pub slot: LeaseSlot,
    /// What the instance does.
    pub state: InstanceState,
    /// Namespaces that were served before.
    pub former: &'a BTreeSet<String>,
}

impl HolderIdentity {
    /// Name of one of the hub's records.
    #[must_use]
    pub fn name(&self, slot: LeaseSlot) -> String {
        let hub = &self.hub_id;
        match slot {
            LeaseSlot::Hub => format!("{PREFIX}{hub}"),
            LeaseSlot::Shard(number) => format!("{PREFIX}{hub}.{number}"),
            LeaseSlot::Standby(number) => format!("{PREFIX}{hub}.{STANDBY}{number}"),
        }
    }

    /// The record as this instance writes it, in the place of `before`.
    #[must_use]
    pub fn lease(&self, content: LeaseContent<'_>, before: Option<&Lease>, now: Timestamp) -> Lease {
        let mut meta = before.map_or_else(ObjectMeta::default, |lease| lease.metadata.clone());
        meta.name = Some(self.name(content.slot));
        meta.managed_fields = None;
        let labels = meta.labels.get_or_insert_default();
        labels.insert(PART_OF.to_owned(), PART_OF_VALUE.to_owned());
        self.annotate(content, meta.annotations.get_or_insert_default());
        let spec = before.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let is_renewal = before.is_some_and(|lease| self.holds(lease));
        Lease {
            metadata: meta,
            spec: Some(LeaseSpec {
                holder_identity: Some(self.holder.clone()),
                lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
                acquire_time: if is_renewal {
                    spec.acquire_time
                } else {
                    Some(MicroTime(now))
                },
                renew_time: Some(MicroTime(now)),
                lease_transitions: Some(
                    spec.lease_transitions
                        .unwrap_or(-1)
                        .saturating_add(i32::from(!is_renewal)),
                ),
                ..LeaseSpec::default()
            }),
        }
    }

    fn annotate(&self, content: LeaseContent<'_>, annotations: &mut BTreeMap<String, String>) {
        annotations.insert(LEASE_CLAIM.to_owned(), self.process.clone());
        annotations.insert(RENDERING_NAMESPACE.to_owned(), self.rendering.clone());
        annotations.insert(LEASE_STATE.to_owned(), content.state.as_str().to_owned());
        annotations.extend(self.watched.annotations());
        let former = content.former.iter().take(MAX_LISTED);
        let former: Vec<&str> = former.map(String::as_str).collect();
        if former.is_empty() {
            annotations.remove(FORMER_NAMESPACES);
        } else {
            annotations.insert(FORMER_NAMESPACES.to_owned(), former.join(","));
        }
    }

    /// A record without a holder, in the place of this one.
    #[must_use]
    pub fn released(before: &Lease, now: Timestamp) -> Lease {
        let mut lease = before.clone();
        lease.metadata.managed_fields = None;
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = None;
        spec.renew_time = Some(MicroTime(now));
        lease
    }

    /// Whether the record is this very process's.
    #[must_use]
    pub fn holds(&self, lease: &Lease) -> bool {
        LeaseRecord::of(lease)
            .is_some_and(|r| r.process == self.process && r.holder.as_ref() == Some(&self.holder))
    }
}

/// What a hub's record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Name of the record.
    pub name: String,
    /// Which hub's it is.
    pub hub: String,
    /// Which of its records.
    pub slot: LeaseSlot,
    /// What its holder does. What does not say so is taken for active.
    pub state: InstanceState,
    /// Namespaces that its hub served before, and does not any more.
    pub former_namespaces: BTreeSet<String>,
    /// The instance; `None` where the record was released, or expired.
    pub holder: Option<String>,
    /// Which process of it.
    pub process: String,
    /// Where its Jobs run.
    pub rendering: String,
    /// The namespaces it serves.
    pub watched: NamespaceScope,
    /// When it was written last, by the writer's clock: only good to see that it changed.
    pub renewed: Option<Timestamp>,
    /// How long the record is valid without a change.
    pub duration: Duration,
    /// Its resource version.
    pub version: Option<String>,
}

impl LeaseRecord {
    /// What a Lease says; `None` for one that is no hub's.
    #[must_use]
    pub fn of(lease: &Lease) -> Option<Self> {
        let name = lease.metadata.name.as_ref()?;
        let (hub, slot) = read_name(name)?;
        let none = BTreeMap::new();
        let annotations = lease.metadata.annotations.as_ref().unwrap_or(&none);
        let value = |key: &str| annotations.get(key).cloned().unwrap_or_default();
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok());
        Some(Self {
            name: name.clone(),
            hub: hub.to_owned(),
            slot,
            state: state(slot, &value(LEASE_STATE)),
            former_namespaces: read_list(&value(FORMER_NAMESPACES)),
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            process: value(LEASE_CLAIM),
            rendering: value(RENDERING_NAMESPACE),
            watched: NamespaceScope::of(annotations),
            renewed: spec.renew_time.map(|time| time.0),
            // A holder relies on the whole duration, so a shorter one in a record is ignored.
            duration: seconds.map_or(DURATION, |s| Duration::from_secs(s).clamp(DURATION, MAX_DURATION)),
            version: lease.metadata.resource_version.clone(),
        })
    }

    /// Whether it is only a standby's, which conflicts with none.
    #[must_use]
    pub const fn is_standby(&self) -> bool {
        matches!(self.slot, LeaseSlot::Standby(_))
    }
}

fn read_name(name: &str) -> Option<(&str, LeaseSlot)> {
    let name = name.strip_prefix(PREFIX)?;
    // The id of a hub has no dot in it.
    let Some((hub, slot)) = name.split_once('.') else {
        return Some((name, LeaseSlot::Hub));
    };
    let slot = match slot.strip_prefix(STANDBY) {
        Some(number) => LeaseSlot::Standby(number.parse().ok()?),
        None => LeaseSlot::Shard(slot.parse().ok()?),
    };
    Some((hub, slot))
}

fn state(slot: LeaseSlot, said: &str) -> InstanceState {
    match slot {
        LeaseSlot::Standby(_) => InstanceState::Standby,
        LeaseSlot::Hub | LeaseSlot::Shard(_) if said == InstanceState::Starting.as_str() => {
            InstanceState::Starting
        }
        LeaseSlot::Hub | LeaseSlot::Shard(_) => InstanceState::Active,
    }
}

fn read_list(text: &str) -> BTreeSet<String> {
    let names = text.split(',').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}
