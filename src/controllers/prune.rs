//! Deletes charts that no version of a Target names from their registry: by digest, and only while the tag still has it.
//!
//! The credential goes to the registry's own origin or the token service that the registry's owner named, and only where the registry
//! asks for it. A host that a tenant chose is connected to at addresses at which a cluster may be, too.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Uri;
use rustls::ClientConfig;
use tokio::time::timeout;

use crate::api::basic_auth::BasicCredential;
use crate::api::conditions::Reason;
use crate::api::oci::OciReference;
use crate::api::pipeline::PruneFailure;
use crate::base::metrics::{Metrics, ResultLabel};
use crate::kubernetes::apply::{CallError, HubClient};
use crate::kubernetes::tenant::{TenantSessions, look_up};
use crate::kubernetes::write_fence::WriteFence;
use crate::plan::pipeline::prune::{
    PlatformRegistry, PrunableChart, PruneAccess, PruneRequest, still_allowed,
};
use crate::plan::platform::tenancy::TenancyPolicy;
use crate::plan::remote::address::AddressPolicy;
use crate::plan::task::tenant::{PushAccess, TenantDestination, TenantReference, login};
use crate::remote::resolve::Resolver;
use crate::renderer::auth::{Authenticator, TokenScope};
use crate::renderer::deleter::{DeleteOutcome, RegistryDeleter};
use crate::renderer::error::{PushError, PushStep};
use crate::renderer::lookup::AddressLookup;
use crate::renderer::origin::{Origin, is_all_plain};
use crate::renderer::tls;
use crate::renderer::transport::{Transport, TransportLimits};

/// Longest time of all calls for one version.
const LIMIT: Duration = Duration::from_secs(60);
/// Longest time of one call.
const CALL: Duration = Duration::from_secs(10);
/// Largest manifest that is read, where a registry says no digest of it.
const MANIFEST: usize = 1024 * 1024;
/// Longest that a name takes to resolve.
const RESOLVE: Duration = Duration::from_secs(2);

/// Why charts were not deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PruneError {
    /// The registry did not do it, or was not asked.
    #[error("the registry did not delete the charts")]
    Registry(PruneFailure),
    /// A call to the hub's own API server failed; it says nothing of the registry.
    #[error("a call failed before the registry was asked")]
    Call(#[from] CallError),
}

/// What a pruner works with.
pub struct PrunerParts {
    /// The hub's own calls.
    pub hub_client: HubClient,
    /// Sessions in which the hub reads as a tenant.
    pub sessions: Arc<TenantSessions>,
    /// What the platform lets tenants name.
    pub tenancy: TenancyPolicy,
    /// Open while the hub holds its Lease.
    pub fence: WriteFence,
    /// Where results are counted.
    pub metrics: Metrics,
    /// Addresses of hosts that tenants name.
    pub addresses: Arc<PermittedAddresses>,
}

/// Deletes charts from registries. Cheap to clone.
#[derive(Clone)]
pub struct Pruner(pub(super) Arc<PrunerParts>);

/// Addresses that the hub may connect to, of names that tenants chose.
#[derive(Debug)]
pub struct PermittedAddresses {
    /// Which addresses these are.
    pub policy: AddressPolicy,
    /// Finds the addresses of a name.
    pub resolver: Resolver,
}

/// How one registry is reached.
pub(super) struct RegistryRoute {
    tls: ClientConfig,
    plain_http: bool,
    token_realm: Option<Uri>,
    credential: Option<BasicCredential>,
    lookup: Option<Arc<dyn AddressLookup>>,
    /// Whether the hub hides the cause of a failure, unless the registry asked for the credential.
    is_hidden: bool,
}

impl AddressLookup for PermittedAddresses {
    fn addresses<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Vec<IpAddr>> {
        let found = async move {
            let found = self.resolver.addresses(name, RESOLVE).await;
            // One that is refused refuses the name, because the owner of its zone then looks around the hub's network.
            let is_permitted = found.iter().all(|address| self.policy.permits(*address));
            if is_permitted { found } else { Vec::new() }
        };
        found.boxed()
    }
}

impl PermittedAddresses {
    /// Whether a host may be connected to; a name is looked at when it is resolved.
    fn permit(&self, host: &str) -> bool {
        let text = host.trim_start_matches('[').trim_end_matches(']');
        text.parse()
            .map_or(true, |address: IpAddr| self.policy.permits(address))
    }
}

impl Pruner {
    /// A pruner that works with these.
    #[must_use]
    pub fn new(parts: PrunerParts) -> Self {
        Self(Arc::new(parts))
    }

    /// Deletes charts; returns how many were.
    ///
    /// # Errors
    /// The first chart that was neither deleted, nor gone, nor changed since it was recorded.
    pub async fn prune(&self, request: &PruneRequest) -> Result<usize, PruneError> {
        let found = match &request.access {
            PruneAccess::Platform(registry) => {
                let route = self.platform(registry).await;
                route.map(|route| (route, request.charts.clone()))
            }
            PruneAccess::Tenant(reference) => self.tenant(reference, request).await,
        };
        let result = match found {
            Ok((route, charts)) => {
                let unreachable = Err(PruneError::Registry(PruneFailure::Unreachable));
                let deleted = timeout(LIMIT, self.delete_all(&route, &charts)).await;
                deleted.unwrap_or(unreachable)
            }
            Err(error) => Err(error),
        };
        if let Err(PruneError::Registry(failure)) = result {
            self.count(label(failure));
        }
        result
    }

    fn count(&self, result: &'static str) {
        self.0.metrics.prunes.get_or_create(&ResultLabel { result }).inc();
    }

    /// The way to a registry of the platform's.
    pub(super) async fn platform(&self, registry: &PlatformRegistry) -> Result<RegistryRoute, PruneError> {
        let missing = PruneError::Registry(PruneFailure::NoCredential);
        let hub_client = &self.0.hub_client;
        let mut credential = None;
        if let Some((name, host)) = &registry.means.secret {
            let secret = hub_client.get_secret(name).await?.ok_or(missing)?;
            credential = Some(login(&secret, host).map_err(|_| missing)?.credential);
        }
        let token_realm: Option<Uri> = registry.token_realm.as_ref().and_then(|realm| realm.parse().ok());
        let is_plain = is_all_plain(registry.plain_http, token_realm.as_ref());
        let mut certificates = None;
        if let Some((name, key)) = registry.means.certificates.as_ref().filter(|_| !is_plain) {
            let map = hub_client.get_config_map(name).await?;
            certificates = Some(map.and_then(|map| map.data?.remove(key)).ok_or(missing)?);
        }
        Ok(RegistryRoute {
            tls: tls_of(is_plain, certificates.as_deref())?,
            plain_http: registry.plain_http,
            token_realm,
            credential,
            lookup: None,
            is_hidden: false,
        })
    }

    /// The way to a tenant's registry, read as the tenant, and what it lets be deleted now.
    async fn tenant(
        &self,
        reference: &TenantReference,
        request: &PruneRequest,
    ) -> Result<(RegistryRoute, Vec<PrunableChart>), PruneError> {
        let own = self.read_registry(reference).await?;
        let allowed = still_allowed(&request.charts, &own.spec, &request.namespace, &self.0.tenancy);
        let allowed = allowed.map_err(PruneError::Registry)?;
        let references: Vec<&OciReference> = allowed.iter().map(|chart| &chart.reference).collect();
        let route = self.route_to(own, &references)?;
        Ok((route, allowed))
    }

    /// A tenant's registry, read as the tenant.
    pub(super) async fn read_registry(
        &self,
        reference: &TenantReference,
    ) -> Result<TenantDestination, PruneError> {
        let found = look_up(&self.0.sessions, reference).await?;
        found.map_err(|refusal| PruneError::Registry(failure_of(refusal.reason)))
    }

    /// The way to these charts in a tenant's registry.
    pub(super) fn route_to(
        &self,
        own: TenantDestination,
        charts: &[&OciReference],
    ) -> Result<RegistryRoute, PruneError> {
        let parts = &self.0;
        let token_realm: Option<Uri> = own.spec.token_realm.as_ref().and_then(|realm| realm.parse().ok());
        let hosts = charts.iter().map(|reference| reference.host.name());
        let mut hosts = hosts.chain(token_realm.as_ref().and_then(Uri::host));
        if !hosts.all(|host| parts.addresses.permit(host)) {
            return Err(PruneError::Registry(PruneFailure::NotGranted));
        }
        let plain_http = own.spec.plain_http.unwrap_or_default();
        let credential = match own.access {
            PushAccess::Copied(login) => Some(login.credential),
            PushAccess::Anonymous | PushAccess::Mounted(_) => None,
        };
        Ok(RegistryRoute {
            tls: tls_of(
                is_all_plain(plain_http, token_realm.as_ref()),
                own.certificates.as_deref(),
            )?,
            plain_http,
            token_realm,
            credential,
            lookup: Some(Arc::clone(&parts.addresses) as Arc<dyn AddressLookup>),
            is_hidden: !parts.tenancy.is_single_tenant,
        })
    }

    async fn delete_all(&self, route: &RegistryRoute, charts: &[PrunableChart]) -> Result<usize, PruneError> {
        let mut deleted = 0;
        for chart in charts {
            let (transport, auth) = route.registry(&chart.reference, TokenScope::Delete);
            let mut registry = RegistryDeleter::new(transport, auth);
            match self.delete(&mut registry, chart).await {
                Ok(result) => {
                    self.count(result);
                    deleted += usize::from(result == DELETED);
                }
                Err(error) => {
                    let failure = route.failure(error, registry.has_sent_credential());
                    return Err(PruneError::Registry(failure));
                }
            }
        }
        Ok(deleted)
    }

    /// Deletes one chart; the result as it is counted.
    async fn delete(
        &self,
        registry: &mut RegistryDeleter,
        chart: &PrunableChart,
    ) -> Result<&'static str, PushError> {
        match registry.digest_of(&chart.reference.tag).await? {
            None => return Ok(ABSENT),
            Some(found) if found != chart.digest => return Ok(CHANGED),
            Some(_) => {}
        }
        // Another hub may have its work by now.
        let deleted = self.0.fence.during(registry.delete(&chart.digest)).await;
        match deleted.unwrap_or(Err(PushError::Deadline))? {
            DeleteOutcome::Deleted => Ok(DELETED),
            DeleteOutcome::Absent => Ok(ABSENT),
        }
    }
}

impl RegistryRoute {
    /// What a client of the registry works with.
    pub(super) fn registry(
        &self,
        reference: &OciReference,
        access: TokenScope,
    ) -> (Transport, Authenticator) {
        let limits = TransportLimits {
            total: LIMIT,
            call: CALL,
            attempts: 1,
            body: MANIFEST,
            ..TransportLimits::default()
        };
        let transport = Transport::with_lookup(self.tls.clone(), limits, self.lookup.clone());
        let auth = Authenticator {
            origin: Origin::of_registry(&reference.host, self.plain_http),
            repository: reference.repository.clone(),
            credential: self.credential.clone(),
            token_realm: self.token_realm.clone(),
            access,
        };
        (transport, auth)
    }

    /// What the hub may say of a failure.
    pub(super) const fn failure(&self, error: PushError, has_sent_credential: bool) -> PruneFailure {
        if self.is_hidden && !has_sent_credential {
            PruneFailure::Failed
        } else {
            meaning(error)
        }
    }
}

/// A chart was deleted, as it is counted.
const DELETED: &str = "Deleted";
/// A chart was not there.
const ABSENT: &str = "Absent";
/// A chart is another one than was recorded, and stays.
const CHANGED: &str = "Changed";

fn tls_of(is_plain: bool, certificates: Option<&str>) -> Result<ClientConfig, PruneError> {
    let config = if is_plain {
        tls::no_tls()
    } else {
        tls::client_config_of(certificates.as_slice())
    };
    config.map_err(|_| PruneError::Registry(PruneFailure::NoCredential))
}

/// Why a tenant's registry cannot be read.
const fn failure_of(reason: Reason) -> PruneFailure {
    match reason {
        Reason::PushSecretNotFound | Reason::PushSecretInvalid | Reason::RBACDenied => {
            PruneFailure::NoCredential
        }
        _ => PruneFailure::NotGranted,
    }
}

const fn meaning(error: PushError) -> PruneFailure {
    match error {
        PushError::Unreachable
        | PushError::Deadline
        | PushError::Status {
            status: 429 | 500.., ..
        } => PruneFailure::Unreachable,
        PushError::Unauthorized | PushError::CredentialRequired | PushError::Forbidden => {
            PruneFailure::Refused
        }
        // UNSUPPORTED is a 400 or a 405.
        PushError::Status {
            step: PushStep::Delete,
            status: 400..,
        } => PruneFailure::Refused,
        PushError::Status { .. }
        | PushError::Protocol(_)
        | PushError::TagConflict
        | PushError::DigestMismatch
        | PushError::Redirect(_)
        | PushError::Realm => PruneFailure::BadAnswer,
    }
}

const fn label(failure: PruneFailure) -> &'static str {
    match failure {
        PruneFailure::NotGranted => "NotGranted",
        PruneFailure::NoCredential => "NoCredential",
        PruneFailure::Refused => "Refused",
        PruneFailure::Unreachable => "Unreachable",
        PruneFailure::BadAnswer => "BadAnswer",
        PruneFailure::Failed => "Failed",
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::{HeaderMap, Method, StatusCode};

    use super::*;
    use crate::api::names::HubId;
    use crate::api::oci::Digest;
    use crate::kubernetes::tests::client_to_nowhere;
    use crate::kubernetes::write_fence;
    use crate::plan::platform::catalog::CopyRequest;
    use crate::plan::platform::identity_method::IdentityMethod;

    /// A registry that says no digest of its manifest, which has so many bytes, and counts deletions.
    async fn registry(bytes: usize) -> (String, Arc<AtomicUsize>) {
        let deleted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&deleted);
        let answer = move |method: Method| async move {
            match method {
                Method::GET => (StatusCode::OK, HeaderMap::new(), "x".repeat(bytes)),
                Method::DELETE => {
                    count.fetch_add(1, Ordering::Relaxed);
                    (StatusCode::ACCEPTED, HeaderMap::new(), String::new())
                }
                _ => (StatusCode::METHOD_NOT_ALLOWED, HeaderMap::new(), String::new()),
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
        (host, deleted)
    }

    /// One whose API server cannot be reached.
    pub(in crate::controllers) fn pruner(fence: WriteFence) -> (Pruner, Metrics) {
        let (metrics, _) = Metrics::new();
        let client = client_to_nowhere();
        let hub = HubId::new("main", "0f5a4e0c-0001").unwrap();
        let (anonymous, method) = (client.clone(), IdentityMethod::Token);
        let parts = PrunerParts {
            hub_client: HubClient::new(client.clone(), metrics.clone(), "rendering".to_owned(), hub),
            sessions: Arc::new(TenantSessions::new(
                client,
                anonymous,
                method,
                false,
                metrics.clone(),
            )),
            tenancy: TenancyPolicy::default(),
            fence,
            metrics: metrics.clone(),
            addresses: Arc::new(PermittedAddresses {
                policy: AddressPolicy::default(),
                resolver: Resolver::with_servers(&[]).unwrap(),
            }),
        };
        (Pruner::new(parts), metrics)
    }

    fn request(host: &str, content: &str) -> PruneRequest {
        PruneRequest {
            namespace: "team-a".to_owned(),
            charts: vec![PrunableChart {
                reference: format!("{host}/team-a/shop:1").parse().unwrap(),
                digest: Digest::of(content.as_bytes()),
            }],
            access: PruneAccess::Platform(PlatformRegistry {
                plain_http: true,
                token_realm: None,
                means: CopyRequest {
                    secret: None,
                    certificates: None,
                },
            }),
        }
    }

    /// Holds: F12.
    #[tokio::test]
    async fn nothing_is_deleted_without_the_lease_and_nothing_that_is_another_than_was_recorded() {
        let failed = Err(PruneError::Registry(PruneFailure::Unreachable));
        for (fence, content, expected, deletions, counted) in [
            (WriteFence::default(), "x", failed, 0, "Unreachable"),
            (write_fence::tests::open(), "x", Ok(1), 1, DELETED),
            (write_fence::tests::open(), "y", Ok(0), 0, CHANGED),
        ] {
            let (host, deleted) = registry(1).await;
            let (pruner, metrics) = pruner(fence);
            assert_eq!(
                pruner.prune(&request(&host, content)).await,
                expected,
                "{content}"
            );
            assert_eq!(deleted.load(Ordering::Relaxed), deletions);
            let result = ResultLabel { result: counted };
            assert_eq!(metrics.prunes.get_or_create(&result).get(), 1, "{counted}");
        }
    }

    #[tokio::test]
    async fn a_manifest_is_read_up_to_its_bound_and_of_a_larger_one_nothing_is_deleted() {
        let bad = Err(PruneError::Registry(PruneFailure::BadAnswer));
        for (bytes, expected, deletions) in [(MANIFEST, Ok(1), 1), (MANIFEST + 1, bad, 0)] {
            let (host, deleted) = registry(bytes).await;
            let (pruner, _) = pruner(write_fence::tests::open());
            let found = pruner.prune(&request(&host, &"x".repeat(bytes))).await;
            assert_eq!(
                (found, deleted.load(Ordering::Relaxed)),
                (expected, deletions),
                "{bytes}"
            );
        }
    }

    /// Holds: F13.
    #[tokio::test]
    async fn names_that_lead_to_the_hub_itself_have_no_address() {
        let addresses = PermittedAddresses {
            policy: AddressPolicy::default(),
            resolver: Resolver::system().unwrap(),
        };
        assert!(addresses.addresses("localhost").await.is_empty());
        for (host, is_permitted) in [
            ("127.0.0.1", false),
            ("[::1]", false),
            ("169.254.169.254", false),
            ("10.0.0.1", true),
            ("[fd00::1]", true),
            ("registry.example.com", true),
        ] {
            assert_eq!(addresses.permit(host), is_permitted, "{host}");
        }
        let open = PermittedAddresses {
            policy: AddressPolicy {
                allowed: vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
                denied: Vec::new(),
            },
            resolver: Resolver::system().unwrap(),
        };
        assert!(!open.addresses("localhost").await.is_empty() && open.permit("127.0.0.1"));
    }
}
