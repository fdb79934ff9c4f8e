//! Renderer classes, whose Jobs the API server must accept.

use crate::api::conditions::ConditionType;
use crate::api::{AllowedNamespace, RendererClass, RendererClassSpec};
use crate::plan::platform::class;

use super::super::kind_store::{KindStore, ListsNamespaces, StoredObject};
use super::super::state::{CatalogController, KindConditions, KindStores, PlatformKind};

impl ListsNamespaces for RendererClass {
    fn allowed(spec: &RendererClassSpec) -> &[AllowedNamespace] {
        &spec.allowed_namespaces
    }
}

impl PlatformKind for RendererClass {
    const PLURAL: &'static str = "rendererclasses";
    const STATUS: Option<&'static str> = Some("rendererclasses/status");

    fn store(stores: &KindStores) -> &KindStore<Self> {
        &stores.classes
    }

    fn store_mut(stores: &mut KindStores) -> &mut KindStore<Self> {
        &mut stores.classes
    }

    fn spec_changed(controller: &mut CatalogController, name: &str) -> bool {
        controller.dry_runs.forget(name);
        controller.forget_image(name);
        if controller
            .stores
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
        controller.forget_image(name);
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
        let (spec, key) = (class.spec.as_ref(), Some(name.to_owned()));
        let images = &controller.images;
        let mut wanted = class::conditions(spec, controller.dry_runs.rejection(name));
        if let Some(spec) = spec {
            let named = images.pull_secrets_of(&key);
            let failure = images.failures.get(&key);
            wanted.extend(class::of_image(&spec.image, named, failure));
        }
        let mut absent = class::unsaid(&wanted);
        // What was said of Secrets stays until they are read.
        absent.retain(|type_| *type_ != ConditionType::PullSecretsResolved || !images.unread.contains(&key));
        Some(KindConditions { wanted, absent })
    }
}
