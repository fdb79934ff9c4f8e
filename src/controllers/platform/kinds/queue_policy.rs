//! Queue policies: the weights of namespaces.

use crate::api::QueuePolicy;

use super::super::kind_store::{KindStore, ListsNamespaces};
use super::super::state::{KindStores, PlatformKind};

impl ListsNamespaces for QueuePolicy {}

impl PlatformKind for QueuePolicy {
    const PLURAL: &'static str = "queuepolicies";
    const STATUS: Option<&'static str> = None;

    fn store(stores: &KindStores) -> &KindStore<Self> {
        &stores.policies
    }

    fn store_mut(stores: &mut KindStores) -> &mut KindStore<Self> {
        &mut stores.policies
    }
}
