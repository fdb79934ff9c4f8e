//! What workers wrote is in the store at once, without waiting for a watch.

use crate::api::labels::{PIPELINE_BOOTSTRAP, pipeline_labels};
use crate::api::pipeline::HydratedTargetSpec;
use crate::plan::pipeline::concerned::Concerned;
use crate::plan::pipeline::decide::NewTask;
use crate::plan::pipeline::names::PipelineSpec;
use crate::plan::pipeline::object::{ObjectKey, PipelineObject};
use crate::plan::pipeline::object_map::ObjectMap;
use crate::plan::pipeline::shared_parts::SharedParts;
use crate::plan::pipeline::task_state::PipelineTask;

use super::store::PipelineStore;
use super::writes::Written;

impl PipelineStore {
    /// Takes in what a worker wrote; whom it concerns besides those for whom it was written.
    pub fn take_in(&mut self, written: Written) -> Concerned {
        let objects = &mut self.objects;
        match written {
            Written::Task(key, uid, task) => return self.take_in_task(&key, uid, &task),
            Written::Version(key, uid, spec) => {
                let mut version = PipelineObject::made(uid, *spec);
                version.labels = pipeline_labels(PIPELINE_BOOTSTRAP);
                HydratedTargetSpec::share(&mut version, &mut self.parts);
                if !objects.hydrated_targets.contains_key(&key) {
                    objects.hydrated_targets.insert(key, version);
                }
            }
            Written::TargetStatus(key, status, version) => {
                put_status(&mut objects.targets, &mut self.parts, &key, *status, version);
            }
            Written::TargetFinalizers(key, finalizers, version) => {
                if let Some(mut target) = objects.targets.get_mut(&key) {
                    target.take_in(version, |target| target.finalizers = finalizers);
                }
            }
            Written::VersionStatus(key, status, version) => {
                put_status(
                    &mut objects.hydrated_targets,
                    &mut self.parts,
                    &key,
                    *status,
                    version,
                );
            }
            // They go when a watch shows it: a finalizer may keep them, and their name, for a while.
            Written::TaskGone(key) => return self.take_in_deletion(&key),
            Written::VersionGone(key) => {
                if let Some(mut version) = objects.hydrated_targets.get_mut(&key) {
                    version.deleting = true;
                }
            }
            Written::NamespaceStatus(write, version) => write.take_in(objects, version),
        }
        Concerned::default()
    }

    fn take_in_task(&mut self, key: &ObjectKey, uid: String, task: &NewTask) -> Concerned {
        let tasks = &mut self.objects.tasks;
        if !tasks.contains_key(key) {
            tasks.insert(key.clone(), PipelineTask::made(uid, &task.spec, &task.spec_hash));
        }
        self.searched_task(key)
    }

    fn take_in_deletion(&mut self, key: &ObjectKey) -> Concerned {
        if let Some(mut task) = self.objects.tasks.get_mut(key) {
            task.deleting = true;
        }
        self.searched_task(key)
    }
}

fn put_status<S: PipelineSpec<T>, T>(
    map: &mut ObjectMap<S, T>,
    parts: &mut SharedParts,
    key: &ObjectKey,
    status: T,
    version: Option<u64>,
) {
    if let Some(mut object) = map.get_mut(key) {
        object.take_in(version, |object| object.status = status);
        S::share(&mut object, parts);
    }
}
