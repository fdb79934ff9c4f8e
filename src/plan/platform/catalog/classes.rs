//! Which renderer class a task gets, and whether its Jobs are accepted.

use crate::api::{RenderTaskSpec, RendererMode};

use super::offers::CatalogClass;
use super::resolve::Catalog;
use crate::plan::task::model::Task;
use crate::plan::task::refusal::Refusal;

impl Catalog {
    /// Whether the hub's own API server would not accept the Job of a task with this spec.
    pub(in crate::plan) fn refuses(&self, spec: &RenderTaskSpec) -> bool {
        self.named_class(spec).is_some_and(|(_, class)| class.is_refused)
    }

    /// The name of the class of a task with this spec; nothing where it is the hub's own renderer.
    #[must_use]
    pub fn class_name(&self, spec: &RenderTaskSpec) -> Option<&str> {
        self.named_class(spec).map(|(name, _)| name.as_str())
    }

    /// The class of a task with this spec, for any namespace; nothing where there is none of that name.
    #[must_use]
    pub fn class_of(&self, spec: &RenderTaskSpec) -> Option<&CatalogClass> {
        match self.named_class(spec) {
            Some((_, class)) => Some(class),
            None => spec.renderer_class_name.is_none().then_some(&self.fallback),
        }
    }

    fn named_class(&self, spec: &RenderTaskSpec) -> Option<(&String, &CatalogClass)> {
        match &spec.renderer_class_name {
            Some(name) => self.classes.get_key_value(name),
            None => self.classes.iter().find(|(_, class)| class.is_default),
        }
    }

    pub(in crate::plan) fn class(
        &self,
        task: &Task,
        spec: &RenderTaskSpec,
    ) -> Result<&CatalogClass, Refusal> {
        let Some(name) = &spec.renderer_class_name else {
            return self.usual(task).ok_or_else(|| self.no_class(task, spec));
        };
        // A class that is not for this namespace reads the same as one that does not exist.
        let named = self.classes.get(name);
        let serving = named.filter(|class| self.serves(class, task));
        serving.ok_or_else(|| self.no_class(task, spec))
    }

    /// What a task gets that names no class, if that is for it.
    pub(super) fn usual(&self, task: &Task) -> Option<&CatalogClass> {
        let default = self.classes.values().find(|class| class.is_default);
        let class = default.unwrap_or(&self.fallback);
        self.serves(class, task).then_some(class)
    }

    /// Whether a class may serve a task. One that lists no namespace serves all, unless its single container shows the
    /// credential to the tenant's input: then a namespace must be listed.
    pub(super) fn serves(&self, class: &CatalogClass, task: &Task) -> bool {
        let CatalogClass { spec, recorded, .. } = class;
        let is_open = spec.allowed_namespaces.is_empty() && spec.mode == RendererMode::Split;
        is_open || self.admits(&spec.allowed_namespaces, recorded, &task.id)
    }
}
