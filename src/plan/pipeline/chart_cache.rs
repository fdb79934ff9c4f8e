//! Charts of Releases that were planned before: a fleet is decided about often, and its Releases change seldom.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher, RandomState};
use std::sync::Arc;

use hashbrown::{Equivalent, HashMap};

use crate::api::pipeline::TargetSpec;

use super::chart::{SALTS, release_chart, release_version_prefix};
use super::destination::RenderDestination;
use super::object::ObjectKey;
use super::remembered_chart::RememberedChart;
use super::resolution::AcceptedRelease;

/// Most charts that are remembered; with one more, all are forgotten.
pub(super) const REMEMBERED: usize = 4096;

/// Everything that the chart of a Release depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ChartKey {
    /// UID and generation of the Release and of its version.
    release: (String, i64),
    version: (String, i64),
    pull_secrets: BTreeMap<String, String>,
    namespace: String,
    destination: RenderDestination,
    account: Option<String>,
    class: Option<String>,
    cluster: Option<String>,
    salt: u32,
}

/// The same as it is looked for, of each Release of a Target with each decision: nothing is copied for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ChartKeyView<'a> {
    release: (&'a str, i64),
    version: (&'a str, i64),
    pull_secrets: &'a BTreeMap<String, String>,
    namespace: &'a str,
    destination: &'a RenderDestination,
    account: Option<&'a str>,
    class: Option<&'a str>,
    cluster: Option<&'a str>,
    salt: u32,
}

impl ChartKey {
    fn view(&self) -> ChartKeyView<'_> {
        ChartKeyView {
            release: (&self.release.0, self.release.1),
            version: (&self.version.0, self.version.1),
            pull_secrets: &self.pull_secrets,
            namespace: &self.namespace,
            destination: &self.destination,
            account: self.account.as_deref(),
            class: self.class.as_deref(),
            cluster: self.cluster.as_deref(),
            salt: self.salt,
        }
    }
}

impl Hash for ChartKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.view().hash(state);
    }
}

impl ChartKeyView<'_> {
    fn key(self) -> ChartKey {
        ChartKey {
            release: (self.release.0.to_owned(), self.release.1),
            version: (self.version.0.to_owned(), self.version.1),
            pull_secrets: self.pull_secrets.clone(),
            namespace: self.namespace.to_owned(),
            destination: self.destination.clone(),
            account: self.account.map(str::to_owned),
            class: self.class.map(str::to_owned),
            cluster: self.cluster.map(str::to_owned),
            salt: self.salt,
        }
    }
}

impl Equivalent<ChartKey> for ChartKeyView<'_> {
    fn equivalent(&self, key: &ChartKey) -> bool {
        *self == key.view()
    }
}

/// Charts that were planned before.
#[derive(Debug, Default)]
pub struct ChartCache(RefCell<HashMap<ChartKey, Arc<RememberedChart>, RandomState>>);

impl ChartCache {
    /// The chart of a Release.
    pub fn release_chart(
        &self,
        release: &AcceptedRelease<'_>,
        target: &ObjectKey,
        spec: &TargetSpec,
        destination: &RenderDestination,
        salt: u32,
    ) -> Arc<RememberedChart> {
        let key = ChartKeyView {
            release: (&release.object.uid, release.object.generation),
            version: release.version_revision,
            pull_secrets: &release.pull_secrets,
            namespace: &target.namespace,
            destination,
            account: spec.service_account_name.as_deref(),
            class: spec.renderer_class_name.as_deref(),
            cluster: spec.render_cluster_name.as_deref(),
            salt,
        };
        let mut known = self.0.borrow_mut();
        if let Some(chart) = known.get(&key) {
            return Arc::clone(chart);
        }
        if known.len() >= REMEMBERED {
            known.clear();
        }
        let chart = release_chart(release, target, spec, destination, salt);
        let chart = Arc::new(RememberedChart::new(chart));
        known.insert(key.key(), Arc::clone(&chart));
        chart
    }

    /// The chart of a Release under a version that it may have, with whichever salt; `None` where the version is of another content.
    pub fn named(
        &self,
        release: &AcceptedRelease<'_>,
        target: &ObjectKey,
        spec: &TargetSpec,
        destination: &RenderDestination,
        version: &str,
    ) -> Option<Arc<RememberedChart>> {
        if !version.starts_with(&release_version_prefix(release.object.generation)) {
            return None;
        }
        (0..SALTS)
            .map(|salt| self.release_chart(release, target, spec, destination, salt))
            .find(|chart| chart.version == version)
    }

    /// How many charts are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
