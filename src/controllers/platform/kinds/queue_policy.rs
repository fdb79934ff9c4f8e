//! Queue policies: the weights of namespaces.

use crate::api::QueuePolicy;

use super::super::CatalogController;
use super::super::kind_store::KindStore;
use super::PlatformKind;

impl PlatformKind for QueuePolicy {
    const PLURAL: &'static str = "queuepolicies";
    const STATUS: Option<&'static str> = None;

    fn store(controller: &CatalogController) -> &KindStore<Self> {
        &controller.policies
    }

    fn store_mut(controller: &mut CatalogController) -> &mut KindStore<Self> {
        &mut controller.policies
    }
}
