//! A chart that was planned before, with what versions and statuses said of its Release last: the Targets of a fleet say the same.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use crate::api::pipeline::{HydratedRelease, NamespacedName, TargetRelease};

use super::chart::PlannedChart;
use super::destination::RenderDestination;
use super::object::ObjectKey;
use super::resolution::AcceptedRelease;

/// Most bindings that a version names for a Release; its schema has the same bound. Those of one host say the same, so the first
/// are enough.
const MAX_BINDINGS: usize = 64;

/// A chart that was planned before.
#[derive(Debug)]
pub struct RememberedChart {
    chart: PlannedChart,
    listed: LastEntry<TargetRelease>,
    hydrated: LastEntry<HydratedRelease>,
}

impl Deref for RememberedChart {
    type Target = PlannedChart;

    fn deref(&self) -> &PlannedChart {
        &self.chart
    }
}

impl RememberedChart {
    /// A chart that was planned just now.
    #[must_use]
    pub fn new(chart: PlannedChart) -> Self {
        Self {
            chart,
            listed: LastEntry::default(),
            hydrated: LastEntry::default(),
        }
    }

    /// What a status says of the Release of which this is the chart.
    #[must_use]
    pub fn listed(&self, release: &AcceptedRelease<'_>) -> Arc<TargetRelease> {
        let says = |known: &TargetRelease| release.source.is(&known.source);
        self.listed.get(says, || TargetRelease {
            unique_name: release.unique_name.to_owned(),
            namespace: release.release.namespace.clone(),
            name: release.release.name.clone(),
            source: release.source.named(),
            priority: release.priority,
            version: self.version.clone(),
        })
    }

    /// What a version says of it, whose chart is pushed to this destination, for which it was planned.
    #[must_use]
    pub fn hydrated(
        &self,
        release: &AcceptedRelease<'_>,
        destination: &RenderDestination,
        digest: Option<&str>,
    ) -> Arc<HydratedRelease> {
        let bindings = || release.registry_bindings.iter().take(MAX_BINDINGS);
        let says = |known: &HydratedRelease| {
            let known_bindings = known.registry_bindings.iter();
            known.digest.as_deref() == digest
                && release.source.is(&known.source)
                && known_bindings.map(parts).eq(bindings().map(key_parts))
        };
        self.hydrated.get(says, || HydratedRelease {
            namespace: release.release.namespace.clone(),
            name: release.release.name.clone(),
            source: release.source.named(),
            priority: release.priority,
            registry_bindings: bindings().map(named).collect(),
            component_version_ref: named(release.version_key),
            component_version: release.version.tag.clone(),
            repository: self.repository.clone(),
            version: self.version.clone(),
            insecure: destination.plain_http,
            pull_secret_name: destination.pull_secret.clone(),
            digest: digest.map(str::to_owned),
        })
    }
}

/// The entry that was made last; what else it depends on is what the chart depends on.
#[derive(Debug)]
struct LastEntry<T>(Mutex<Option<Arc<T>>>);

impl<T> Default for LastEntry<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> LastEntry<T> {
    fn get(&self, says: impl FnOnce(&T) -> bool, make: impl FnOnce() -> T) -> Arc<T> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(known) if says(known) => Arc::clone(known),
            _ => Arc::clone(last.insert(Arc::new(make()))),
        }
    }
}

fn named(key: &ObjectKey) -> NamespacedName {
    NamespacedName {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
    }
}

fn parts(name: &NamespacedName) -> (&str, &str) {
    (&name.namespace, &name.name)
}

fn key_parts(key: &ObjectKey) -> (&str, &str) {
    (&key.namespace, &key.name)
}
