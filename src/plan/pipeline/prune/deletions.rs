//! Charts that are being deleted: no task for one of them is made meanwhile, or it would find the chart there and lose it afterwards.

use std::collections::BTreeMap;

use super::charts::PrunableChart;
use crate::api::RenderTaskSpec;
use crate::plan::pipeline::object::ObjectKey;

/// The charts of one version that are being deleted.
#[derive(Clone, Debug)]
struct ChartDeletion {
    charts: Vec<PrunableChart>,
    /// Whether a task for one of them waits.
    holds_back: bool,
}

/// The charts that are being deleted at the moment, by their version.
#[derive(Clone, Debug, Default)]
pub struct ChartDeletions(BTreeMap<ObjectKey, ChartDeletion>);

impl ChartDeletions {
    /// The deletion of a version's charts begins.
    pub fn begin(&mut self, version: &ObjectKey, charts: &[PrunableChart]) {
        let deletion = ChartDeletion {
            charts: charts.to_vec(),
            holds_back: false,
        };
        self.0.insert(version.clone(), deletion);
    }

    /// Whether the chart of a task in this namespace is being deleted, so that the task is made once that has ended. Its host is not
    /// compared: a task waits for a moment rather than too short.
    pub fn holds_back(&mut self, namespace: &str, task: &RenderTaskSpec) -> bool {
        let own = self
            .0
            .iter_mut()
            .filter(|(version, _)| version.namespace == namespace);
        let mut held = own.filter(|(_, deletion)| {
            deletion.charts.iter().any(|chart| {
                let reference = &chart.reference;
                reference.repository.as_str() == task.repository && reference.tag.matches_version(&task.tag)
            })
        });
        held.next()
            .map(|(_, deletion)| deletion.holds_back = true)
            .is_some()
    }

    /// The deletion of a version's charts ended; whether a task waited for that.
    pub fn end(&mut self, version: &ObjectKey) -> bool {
        self.0.remove(version).is_some_and(|deletion| deletion.holds_back)
    }
}
