//! Renderer classes, whose Jobs the API server must accept.

use crate::api::{AllowedNamespace, RendererClass, RendererClassSpec};
use crate::plan::platform::class;

use super::super::CatalogController;
use super::super::kind_store::{KindStore, StoredObject};
use super::{KindConditions, PlatformKind};

impl PlatformKind for RendererClass {
    const PLURAL: &'static str = "rendererclasses";
    const STATUS: Option<&'static str> = Some("rendererclasses/status");

    fn store(controller: &CatalogController) -> &KindStore<Self> {
        &controller.classes
    }

    fn store_mut(controller: &mut CatalogController) -> &mut KindStore<Self> {
        &mut controller.classes
    }

    fn allowed(spec: &RendererClassSpec) -> &[AllowedNamespace] {
        &spec.allowed_namespaces
    }

    fn spec_changed(controller: &mut CatalogController, name: &str) -> bool {
        controller.dry_runs.forget(name);
        if controller
            .classes
            .get(name)
            .is_some_and(|class| class.spec.is_some())
        {
            controller.dry_runs.add(name);
        }
        true
    }

    fn removed(controller: &mut CatalogController, name: &str) {
        controller.dry_runs.forget(name);
    }

    fn conditions(
        controller: &CatalogController,
        name: &str,
        class: &StoredObject<Self>,
    ) -> Option<KindConditions> {
        // They are written with the API server's answer to the dry run.
        if controller.dry_runs.is_open(name) {
            return None;
        }
        let spec = class.spec.as_ref();
        Some(KindConditions {
            wanted: class::conditions(spec, controller.dry_runs.rejection(name)),
            absent: class::unsaid(spec),
        })
    }
}
