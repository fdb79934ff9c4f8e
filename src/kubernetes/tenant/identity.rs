//! Makes sessions: the one place where the hub's own client meets a tenant's wish.

use std::sync::Arc;

use http::HeaderValue;
use kube::Client;

use crate::base::metrics::Metrics;
use crate::plan::platform::identity_method::IdentityMethod;
use crate::plan::task::tenant::{ReadIdentity, ServiceAccount};

use super::account_token::{AccountTokenCache, IdentityError};
use super::session::{SessionCredential, TenantReadError, TenantSession};

impl From<IdentityError> for TenantReadError {
    fn from(error: IdentityError) -> Self {
        match error {
            IdentityError::Denied => Self::Unauthorized,
            IdentityError::Call(call) => Self::Call(call),
        }
    }
}

/// Makes sessions of identities.
pub struct TenantSessions {
    /// The hub's own.
    hub: Client,
    /// The same API server, without a credential.
    anonymous: Client,
    method: IdentityMethod,
    is_single_tenant: bool,
    tokens: AccountTokenCache,
    metrics: Metrics,
}

impl TenantSessions {
    /// Sessions by this method; `anonymous` reaches the same API server without any credential. Only with `is_single_tenant` is
    /// there a session of the hub itself.
    #[must_use]
    pub fn new(
        hub: Client,
        anonymous: Client,
        method: IdentityMethod,
        is_single_tenant: bool,
        metrics: Metrics,
    ) -> Self {
        Self {
            tokens: AccountTokenCache::new(hub.clone(), metrics.clone()),
            hub,
            anonymous,
            method,
            is_single_tenant,
            metrics,
        }
    }

    /// A session of the identity.
    ///
    /// # Errors
    /// `IdentityError::Denied` when the hub may not act as it.
    pub async fn session(&self, identity: &ReadIdentity) -> Result<TenantSession, IdentityError> {
        let account = match identity {
            ReadIdentity::ServiceAccount(account) => account,
            ReadIdentity::Hub if self.is_single_tenant => {
                return Ok(TenantSession::new(
                    self.hub.clone(),
                    SessionCredential::Hub,
                    self.metrics.clone(),
                ));
            }
            ReadIdentity::Hub => return Err(IdentityError::Denied),
        };
        match self.method {
            IdentityMethod::Token => Ok(self.with_token(self.tokens.get(account).await?)),
            IdentityMethod::Impersonate => self.impersonating(account),
        }
    }

    /// Reads as the identity. Where the API server does not know it, its account may have been made again since its token was: one
    /// more token is tried, and no more than one.
    ///
    /// # Errors
    /// What the answer means to the identity; `TenantReadError::Unauthorized` also when the hub may not act as it.
    pub async fn read<T, R: Future<Output = Result<T, TenantReadError>>>(
        &self,
        identity: &ReadIdentity,
        read: impl Fn(Arc<TenantSession>) -> R,
    ) -> Result<T, TenantReadError> {
        let session = Arc::new(self.session(identity).await?);
        match read(Arc::clone(&session)).await {
            Err(TenantReadError::Unauthorized) => {}
            answer => return answer,
        }
        // Only a token that the hub asked for itself can be asked for once more.
        let requested = session.token().filter(|_| self.method == IdentityMethod::Token);
        let (ReadIdentity::ServiceAccount(account), Some(token)) = (identity, requested) else {
            return Err(TenantReadError::Unauthorized);
        };
        let other = self.with_token(self.tokens.replace_refused(account, token).await?);
        read(Arc::new(other)).await
    }

    fn with_token(&self, token: HeaderValue) -> TenantSession {
        TenantSession::new(
            self.anonymous.clone(),
            SessionCredential::Bearer(token),
            self.metrics.clone(),
        )
    }

    /// A session by the header `Impersonate-User`, and no other.
    fn impersonating(&self, account: &ServiceAccount) -> Result<TenantSession, IdentityError> {
        let user = HeaderValue::try_from(account.username()).map_err(|_| IdentityError::Denied)?;
        let credential = SessionCredential::Impersonation(user);
        Ok(TenantSession::new(
            self.hub.clone(),
            credential,
            self.metrics.clone(),
        ))
    }
}
