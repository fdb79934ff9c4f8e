//! Reads what a task names: its registry, the registry's credential and its certificates.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde::Deserialize;
use serde_json::Value;

use crate::api::conditions::Reason;
use crate::api::wiped::WipedSecret;
use crate::api::{Registry, RegistrySpec};
use crate::kubernetes::apply::CallError;
use crate::plan::platform::catalog::{Cargo, Refusal};
use crate::plan::task::tenant::{Access, Missing, Named, Own, Reference, login};

use super::identity::{Identities, IdentityError};
use super::session::{ReadError, Session};

/// Why nothing came of it.
enum Stop {
    /// The task waits for somebody.
    Refused(Refusal),
    /// The API server does not know the reader any more.
    Unknown,
    /// A call failed; it is repeated.
    Failed(CallError),
}

/// The destination that a task names, or why it gets none.
///
/// # Errors
/// A call that failed for no reason of the tenant's.
pub async fn look_up(
    identities: &Identities,
    reference: &Reference,
) -> Result<Result<Own, Refusal>, CallError> {
    let session = match identities.session(&reference.reader).await {
        Ok(session) => session,
        Err(error) => return denied(reference, error),
    };
    if let Some(found) = settled(read(&session, reference).await)? {
        return Ok(found);
    }
    // The account was made again since the token was: one more token, and no more than one.
    let other = match identities.renewed(&reference.reader, &session).await {
        Ok(Some(other)) => other,
        Ok(None) => return Ok(Err(reference.refusal(Missing::Account))),
        Err(error) => return denied(reference, error),
    };
    let found = settled(read(&other, reference).await)?;
    Ok(found.unwrap_or_else(|| Err(reference.refusal(Missing::Account))))
}

/// What a reading came to; `None` where the API server did not know the reader.
fn settled(outcome: Result<Own, Stop>) -> Result<Option<Result<Own, Refusal>>, CallError> {
    match outcome {
        Ok(own) => Ok(Some(Ok(own))),
        Err(Stop::Refused(refusal)) => Ok(Some(Err(refusal))),
        Err(Stop::Unknown) => Ok(None),
        Err(Stop::Failed(error)) => Err(error),
    }
}

fn denied(reference: &Reference, error: IdentityError) -> Result<Result<Own, Refusal>, CallError> {
    match error {
        IdentityError::Denied => Ok(Err(reference.refusal(Missing::Account))),
        IdentityError::Call(error) => Err(error),
    }
}

async fn read(session: &Session, reference: &Reference) -> Result<Own, Stop> {
    let spec = match &reference.named {
        Named::Registry(name) => registry(session, reference, name).await?,
        Named::Host(spec) => spec.clone(),
    };
    Ok(Own {
        access: access(session, reference, &spec).await?,
        certificates: certificates(session, reference, &spec).await?,
        spec,
    })
}

/// An object of which only the spec counts, whatever it holds.
#[derive(Deserialize)]
struct Loose {
    #[serde(default)]
    spec: Value,
}

async fn registry(session: &Session, reference: &Reference, name: &str) -> Result<RegistrySpec, Stop> {
    let read = session.get::<Registry, Loose>(&reference.namespace, name).await;
    let object = read.map_err(|error| stop(reference, error, Missing::Registry, ("Registry", name)))?;
    serde_json::from_value(object.spec).map_err(|_| {
        let message = "this version of the hub cannot read the spec of the Registry: a field is missing, or has a value of another type; \
                       correct it";
        refused(reference, Refusal::new(Reason::RegistryNotFound, message))
    })
}

async fn access(session: &Session, reference: &Reference, spec: &RegistrySpec) -> Result<Access, Stop> {
    let Some(named) = &spec.push_secret_ref else {
        return Ok(Access::Anonymous);
    };
    let read = session
        .get::<Secret, WipedSecret>(&reference.namespace, &named.name)
        .await;
    let secret = read.map_err(|error| {
        stop(
            reference,
            error,
            Missing::Secret(&named.name),
            ("Secret", &named.name),
        )
    })?;
    let login = login(&secret, &spec.hostname).map_err(|refusal| refused(reference, refusal))?;
    Ok(Access::Copied(login))
}

async fn certificates(
    session: &Session,
    reference: &Reference,
    spec: &RegistrySpec,
) -> Result<Option<String>, Stop> {
    let Some(named) = &spec.ca_config_map_ref else {
        return Ok(None);
    };
    let read = session
        .get::<ConfigMap, ConfigMap>(&reference.namespace, &named.name)
        .await;
    let map = read.map_err(|error| {
        stop(
            reference,
            error,
            Missing::Certificates(&named.name),
            ("ConfigMap", &named.name),
        )
    })?;
    let bundle = map.data.and_then(|mut data| data.remove(&named.key));
    let usable = bundle.filter(|text| Cargo::fits(text));
    let missing = || Stop::Refused(reference.refusal(Missing::Certificates(&named.name)));
    usable.map(Some).ok_or_else(missing)
}

/// What keeps the task from starting; nothing is told of another namespace.
fn refused(reference: &Reference, refusal: Refusal) -> Stop {
    Stop::Refused(if reference.crosses {
        reference.refusal(Missing::Registry)
    } else {
        refusal
    })
}

fn stop(
    reference: &Reference,
    error: ReadError,
    missing: Missing<'_>,
    (kind, name): (&'static str, &str),
) -> Stop {
    match error {
        ReadError::NotFound => Stop::Refused(reference.refusal(missing)),
        ReadError::Forbidden => Stop::Refused(reference.refusal(Missing::Right(kind, name))),
        ReadError::Unauthorized => Stop::Unknown,
        ReadError::Call(error) => Stop::Failed(error),
    }
}
