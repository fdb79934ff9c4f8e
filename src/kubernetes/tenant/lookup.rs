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

use super::identity::TenantSessions;
use super::session::{TenantReadError, TenantSession};

/// Why a lookup failed.
enum LookupError {
    /// The task waits for a change by a person.
    Refused(Refusal),
    /// The identity got no answer.
    Unanswered(TenantReadError),
}

/// The destination that a task names, or why it gets none.
///
/// # Errors
/// A call that failed for no reason of the tenant's.
pub async fn look_up(
    sessions: &TenantSessions,
    reference: &TenantReference,
) -> Result<Result<TenantDestination, Refusal>, CallError> {
    let found = sessions.read(&reference.identity, |session| async move {
        match read(&session, reference).await {
            Ok(destination) => Ok(Ok(destination)),
            Err(LookupError::Refused(refusal)) => Ok(Err(refusal)),
            Err(LookupError::Unanswered(error)) => Err(error),
        }
    });
    match found.await {
        Ok(found) => Ok(found),
        Err(TenantReadError::Call(error)) => Err(error),
        Err(TenantReadError::NotFound | TenantReadError::Forbidden | TenantReadError::Unauthorized) => {
            Ok(Err(reference.refusal(MissingReference::Account)))
        }
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
        TenantReadError::Unauthorized | TenantReadError::Call(_) => LookupError::Unanswered(error),
    }
}
