//! Tasks that no Target needs now, and that stay because a version that is kept names their chart.
//!
//! A task is the only place that has the content of a chart once its Release has another one. A Target that goes back to such a version
//! has the chart rendered again from it, where the registry has lost it.

use std::collections::BTreeSet;

use super::chart::path_of;
use super::history::is_kept;
use super::object::{ObjectKey, within};
use super::objects::PipelineObjects;
use super::task_state::PipelineTask;

/// Of tasks of a namespace those whose charts no version names that is kept. Hosts are not compared: a task stays rather than too
/// short.
#[must_use]
pub fn named_by_no_version<'o>(
    namespace: &str,
    objects: &'o PipelineObjects,
    tasks: Vec<(&'o ObjectKey, &'o PipelineTask)>,
) -> Vec<(&'o ObjectKey, &'o PipelineTask)> {
    if tasks.is_empty() {
        return tasks;
    }
    let place = |task: &'o PipelineTask| (task.chart.repository.as_str(), task.chart.tag.as_str());
    let mut unnamed: BTreeSet<(&str, &str)> = tasks.iter().map(|(_, task)| place(task)).collect();
    let versions = within(&objects.hydrated_targets, namespace);
    for (_, version) in versions.filter(|(_, version)| is_kept(version)) {
        let Some(spec) = &version.spec else {
            // What it names is not known.
            return Vec::new();
        };
        for release in spec.releases.values() {
            unnamed.remove(&(path_of(&release.repository), release.version.as_str()));
        }
        if unnamed.is_empty() {
            break;
        }
    }
    let is_unnamed = |(_, task): &(&ObjectKey, &'o PipelineTask)| unnamed.contains(&place(task));
    tasks.into_iter().filter(is_unnamed).collect()
}
