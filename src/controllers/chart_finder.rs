//! Asks registries for charts of earlier versions of a Target: by requests that only read, with the credential and by the ways of the
//! one who deletes charts there.

use std::time::Duration;

use tokio::time::timeout;

use super::prune::{PruneError, Pruner, RegistryRoute};
use crate::api::oci::Digest;
use crate::api::pipeline::PruneFailure;
use crate::plan::pipeline::lookups::{LookupRequest, is_allowed};
use crate::plan::pipeline::prune::PruneAccess;
use crate::renderer::auth::TokenScope;
use crate::renderer::error::PushStep;
use crate::renderer::reader::RegistryReader;

/// Longest time of one question.
const QUESTION: Duration = Duration::from_secs(20);

impl Pruner {
    /// Digest of what a registry has under the tag of a chart; `None` where it has nothing there.
    ///
    /// # Errors
    /// Anything that is neither a clear yes nor a clear no.
    pub async fn find(&self, request: &LookupRequest) -> Result<Option<Digest>, PruneError> {
        let found = timeout(QUESTION, self.ask(request)).await;
        found.unwrap_or(Err(PruneError::Registry(PruneFailure::Unreachable)))
    }

    async fn ask(&self, request: &LookupRequest) -> Result<Option<Digest>, PruneError> {
        let route = self.route(request).await?;
        let reference = &request.reference;
        let (transport, auth) = route.registry(reference, TokenScope::Pull);
        let mut registry = RegistryReader::new(transport, auth);
        let found = registry.find(PushStep::Lookup, reference.tag.as_str()).await;
        found.map_err(|error| PruneError::Registry(route.failure(error, registry.has_sent_credential())))
    }

    async fn route(&self, request: &LookupRequest) -> Result<RegistryRoute, PruneError> {
        match &request.access {
            PruneAccess::Platform(registry) => self.platform(registry).await,
            PruneAccess::Tenant(named) => {
                let own = self.read_registry(named).await?;
                if !is_allowed(&request.reference, &own.spec, &self.0.tenancy) {
                    return Err(PruneError::Registry(PruneFailure::NotGranted));
                }
                self.route_to(own, &[&request.reference])
            }
        }
    }
}
