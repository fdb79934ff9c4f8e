//! Reads what a task names: its registry, the registry's credential and its certificates.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde::Deserialize;
use serde_json::Value;

use crate::api::conditions::Reason;
use crate::api::zeroized::ZeroizedSecret;
use crate::api::{Registry, RegistrySpec};
use crate::kubernetes::apply::CallError;
use crate::plan::platform::catalog::CopyRequest;
use crate::plan::task::refusal::Refusal;
use crate::plan::task::tenant::{
    MissingReference, NamedDestination, PushAccess, TenantDestination, TenantReference, login,
};

use super::identity::{IdentityError, TenantSessions};
use super::session::{TenantReadError, TenantSession};

/// Why a lookup failed.
enum LookupError {
    /// The task waits for a change by a person.
    Refused(Refusal),
    /// The API server does not know the identity any more.
    Unknown,
    /// A call failed; it is repeated.
    Failed(CallError),
}

/// The destination that a task names, or why it gets none.
///
/// # Errors
/// A call that failed for no reason of the tenant's.
pub async fn look_up(
    sessions: &TenantSessions,
    reference: &TenantReference,
) -> Result<Result<TenantDestination, Refusal>, CallError> {
    let session = match sessions.session(&reference.identity).await {
        Ok(session) => session,
        Err(error) => return denied(reference, error),
    };
    if let Some(found) = lookup_result(read(&session, reference).await)? {
        return Ok(found);
    }
    // The account was made again since the token was: one more token, and no more than one.
    let other = match sessions.replace_refused(&reference.identity, &session).await {
        Ok(Some(other)) => other,
        Ok(None) => return Ok(Err(reference.refusal(MissingReference::Account))),
        Err(error) => return denied(reference, error),
    };
    let found = lookup_result(read(&other, reference).await)?;
    Ok(found.unwrap_or_else(|| Err(reference.refusal(MissingReference::Account))))
}

/// What a reading came to; `None` where the API server did not know the identity.
fn lookup_result(
    outcome: Result<TenantDestination, LookupError>,
) -> Result<Option<Result<TenantDestination, Refusal>>, CallError> {
    match outcome {
        Ok(own) => Ok(Some(Ok(own))),
        Err(LookupError::Refused(refusal)) => Ok(Some(Err(refusal))),
        Err(LookupError::Unknown) => Ok(None),
        Err(LookupError::Failed(error)) => Err(error),
    }
}

fn denied(
    reference: &TenantReference,
    error: IdentityError,
) -> Result<Result<TenantDestination, Refusal>, CallError> {
    match error {
        IdentityError::Denied => Ok(Err(reference.refusal(MissingReference::Account))),
        IdentityError::Call(error) => Err(error),
    }
}

async fn read(
    session: &TenantSession,
    reference: &TenantReference,
) -> Result<TenantDestination, LookupError> {
    let spec = match &reference.named {
        NamedDestination::Registry(name) => registry(session, reference, name).await?,
        NamedDestination::Host(spec) => RegistrySpec::clone(spec),
    };
    Ok(TenantDestination {
        access: access(session, reference, &spec).await?,
        certificates: certificates(session, reference, &spec).await?,
        spec,
    })
}

/// An object of which only the spec counts.
#[derive(Deserialize)]
struct SpecOnly {
    #[serde(default)]
    spec: Value,
}

async fn registry(
    session: &TenantSession,
    reference: &TenantReference,
    name: &str,
) -> Result<RegistrySpec, LookupError> {
    let read = session
        .get::<Registry, SpecOnly>(&reference.namespace, name)
        .await;
    let right = MissingReference::Right("Registry", name);
    let object = read.map_err(|error| stop(reference, error, MissingReference::Registry, right))?;
    let spec = serde_json::from_value(object.spec).map(RegistrySpec::with_own_names);
    spec.map_err(|_| {
        let message = "this version of the hub cannot read the spec of the Registry: a field is missing, or has a value of another type; \
                       correct it";
        refused(reference, Refusal::new(Reason::RegistryNotFound, message))
    })
}

async fn access(
    session: &TenantSession,
    reference: &TenantReference,
    spec: &RegistrySpec,
) -> Result<PushAccess, LookupError> {
    let Some(named) = &spec.push_secret_ref else {
        return Ok(PushAccess::Anonymous);
    };
    let read = session
        .get::<Secret, ZeroizedSecret>(&reference.namespace, &named.name)
        .await;
    let missing = MissingReference::Secret(&named.name);
    let right = MissingReference::Right("Secret", &named.name);
    let secret = read.map_err(|error| stop(reference, error, missing, right))?;
    let login = login(&secret, &spec.hostname).map_err(|refusal| refused(reference, refusal))?;
    Ok(PushAccess::Copied(login))
}

async fn certificates(
    session: &TenantSession,
    reference: &TenantReference,
    spec: &RegistrySpec,
) -> Result<Option<String>, LookupError> {
    let Some(named) = &spec.ca_config_map_ref else {
        return Ok(None);
    };
    let read = session
        .get::<ConfigMap, ConfigMap>(&reference.namespace, &named.name)
        .await;
    let missing = MissingReference::Certificates(&named.name);
    let right = MissingReference::Right("ConfigMap", &named.name);
    let map = read.map_err(|error| stop(reference, error, missing, right))?;
    let bundle = map.data.and_then(|mut data| data.remove(&named.key));
    let usable = bundle.filter(|text| CopyRequest::fits(text));
    usable
        .map(Some)
        .ok_or_else(|| LookupError::Refused(reference.refusal(missing)))
}

/// What keeps the task from starting; it shows nothing of another namespace.
fn refused(reference: &TenantReference, refusal: Refusal) -> LookupError {
    LookupError::Refused(if reference.crosses {
        reference.refusal(MissingReference::Registry)
    } else {
        refusal
    })
}

fn stop(
    reference: &TenantReference,
    error: TenantReadError,
    missing: MissingReference<'_>,
    right: MissingReference<'_>,
) -> LookupError {
    match error {
        TenantReadError::NotFound => LookupError::Refused(reference.refusal(missing)),
        TenantReadError::Forbidden => LookupError::Refused(reference.refusal(right)),
        TenantReadError::Unauthorized => LookupError::Unknown,
        TenantReadError::Call(error) => LookupError::Failed(error),
    }
}
