//! Which renderer class a task gets, and whether its Jobs are accepted.

use crate::api::conditions::Reason;
use crate::api::{RenderTaskSpec, RendererClassSpec, RendererMode};

use super::super::namespaces::Uids;
use super::super::task::Task;
use super::{Catalog, Class, Refusal};

impl Catalog {
    /// Whether the hub's own API server would not accept the Job of a task with this spec.
    pub(in super::super) fn refuses(&self, spec: &RenderTaskSpec) -> bool {
        self.named_class(spec).is_some_and(|(_, class)| class.is_refused)
    }

    /// The name of the class of a task with this spec; nothing where it is the hub's own renderer.
    #[must_use]
    pub fn class_name(&self, spec: &RenderTaskSpec) -> Option<&str> {
        self.named_class(spec).map(|(name, _)| name.as_str())
    }

    fn named_class(&self, spec: &RenderTaskSpec) -> Option<(&String, &Class)> {
        match &spec.renderer_class_name {
            Some(name) => self.classes.get_key_value(name),
            None => self.classes.iter().find(|(_, class)| class.is_default),
        }
    }

    pub(in super::super) fn class(
        &self,
        task: &Task,
        spec: &RenderTaskSpec,
    ) -> Result<&RendererClassSpec, Refusal> {
        static NOBODY: Uids = Uids::new();
        let found = self.named_class(spec);
        let found = found.map(|(_, class)| (&class.spec, &class.recorded));
        let fallback = || {
            spec.renderer_class_name
                .is_none()
                .then_some((&self.fallback, &NOBODY))
        };
        // A class that is not for this namespace reads the same as one that does not exist.
        let serving = found
            .or_else(fallback)
            .filter(|(class, recorded)| self.serves(class, recorded, task));
        serving.map(|(class, _)| class).ok_or_else(|| {
            Refusal::new(
                Reason::RendererClassNotFound,
                "the renderer class does not exist for this namespace; the task starts by itself once it does",
            )
        })
    }

    /// Whether a class may serve a task. One that lists no namespace serves all, unless its single container shows the
    /// credential to the tenant's input: then a namespace must be listed.
    fn serves(&self, class: &RendererClassSpec, recorded: &Uids, task: &Task) -> bool {
        let is_open = class.allowed_namespaces.is_empty() && class.mode == RendererMode::Split;
        is_open || self.admits(&class.allowed_namespaces, recorded, task)
    }
}
