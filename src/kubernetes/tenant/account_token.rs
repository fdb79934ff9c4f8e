//! Short-lived tokens of service accounts: requested once for all who wait, kept until shortly before they expire.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dashmap::DashMap;
use http::HeaderValue;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use kube::Client;
use secrecy::zeroize::Zeroizing;
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::base::metrics::Metrics;
use crate::kubernetes::apply::{CallError, TransportStage, log_call};
use crate::kubernetes::write_fence;
use crate::plan::task::tenant::ServiceAccount;

/// Seconds a token is asked for: the least that the API server gives.
const LIFETIME: i64 = 600;
/// Time before its end at which a token is not used any more, for slow calls and clocks that differ.
const MARGIN: Duration = Duration::from_secs(120);
/// Longest that asking for a token may take.
const DEADLINE: Duration = Duration::from_secs(15);
/// Accounts that are kept before those whose token is over are dropped, and where that is not enough all that are not in use.
const KEPT: usize = 1024;

/// Why the hub has no identity of a tenant's to act as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The account does not exist, the hub may not act as it, its token is not the one that was asked for, or there is none to act as.
    #[error("the hub may not act as this reader")]
    Denied,
    /// The call failed.
    #[error("the call failed")]
    Call(#[from] CallError),
}

/// A token. It is bound to the UID of its account: the API server refuses that of an account that was made again.
#[derive(Clone)]
struct AccountToken {
    header: HeaderValue,
    usable_until: Instant,
}

type AccountTokenSlot = Arc<Mutex<Option<AccountToken>>>;

/// The tokens that are in use.
pub(super) struct AccountTokenCache {
    client: Client,
    metrics: Metrics,
    slots: DashMap<ServiceAccount, AccountTokenSlot>,
}

impl AccountTokenCache {
    pub(super) fn new(client: Client, metrics: Metrics) -> Self {
        Self {
            client,
            metrics,
            slots: DashMap::new(),
        }
    }

    /// A token of the account as a header; callers that come while one is requested wait for that one.
    pub(super) async fn get(&self, account: &ServiceAccount) -> Result<HeaderValue, IdentityError> {
        let slot = self.slot(account);
        let mut kept = slot.lock().await;
        if let Some(token) = kept.as_ref().filter(|t| Instant::now() < t.usable_until) {
            return Ok(token.header.clone());
        }
        *kept = None;
        let token = self.request_token(account).await?;
        *kept = Some(token.clone());
        Ok(token.header)
    }

    /// A token that is not this one, which the API server refused: another one if there is one by now, else a new one.
    pub(super) async fn replace_refused(
        &self,
        account: &ServiceAccount,
        refused: &HeaderValue,
    ) -> Result<HeaderValue, IdentityError> {
        let slot = self.slot(account);
        let mut kept = slot.lock().await;
        if kept.as_ref().is_some_and(|token| token.header == refused) {
            *kept = None;
        }
        drop(kept);
        self.get(account).await
    }

    /// The account's place; the map is left before anything is waited for.
    fn slot(&self, account: &ServiceAccount) -> AccountTokenSlot {
        if let Some(slot) = self.slots.get(account) {
            return Arc::clone(&slot);
        }
        if self.slots.len() >= KEPT {
            let now = Instant::now();
            // One that is locked is in use.
            self.slots.retain(|_, slot| {
                slot.try_lock()
                    .map_or(true, |kept| kept.as_ref().is_some_and(|t| now < t.usable_until))
            });
        }
        if self.slots.len() >= KEPT {
            // A tenant makes accounts faster than tokens expire: the tokens of others are requested again.
            self.slots.retain(|_, slot| slot.try_lock().is_err());
        }
        Arc::clone(&self.slots.entry(account.clone()).or_default())
    }

    async fn request_token(&self, account: &ServiceAccount) -> Result<AccountToken, IdentityError> {
        let asked = Instant::now();
        // As text, because kube logs the whole of an answer that it cannot decode.
        let answer = tokio::time::timeout(DEADLINE, self.client.request_text(token_request(account)?)).await;
        let answer = answer
            .map_err(|_| IdentityError::Call(CallError::Timeout))
            .and_then(|answer| answer.map_err(|error| classify(&error)))
            .and_then(|text| decode(&Zeroizing::new(text)));
        let code = match &answer {
            Ok(_) => 201,
            Err(IdentityError::Denied) => 403,
            Err(_) => 0,
        };
        let (verb, resource) = ("create", "serviceaccounts/token");
        let error = match &answer {
            Err(IdentityError::Call(error)) => Some(*error),
            _ => None,
        };
        log_call(verb, resource, code, error);
        self.metrics.call(verb, resource, code);
        let answer = answer?;
        let text = answer.status.and_then(|status| status.token).map(Zeroizing::new);
        let text = text.ok_or(IdentityError::Denied)?;
        let audiences = answer.spec.and_then(|spec| spec.audiences).unwrap_or_default();
        let lifetime = checked(&text, account, &audiences)?;
        let mut header =
            HeaderValue::try_from(format!("Bearer {}", *text)).map_err(|_| IdentityError::Denied)?;
        header.set_sensitive(true);
        Ok(AccountToken {
            header,
            usable_until: asked + lifetime.saturating_sub(MARGIN),
        })
    }
}

fn decode(text: &str) -> Result<TokenRequest, IdentityError> {
    serde_json::from_str(text).map_err(|_| IdentityError::Call(CallError::Transport(TransportStage::Decode)))
}

fn token_request(account: &ServiceAccount) -> Result<http::Request<Vec<u8>>, CallError> {
    let body = TokenRequest {
        spec: Some(TokenRequestSpec {
            // The API server's own audience: the token is of use nowhere else.
            audiences: None,
            expiration_seconds: Some(LIFETIME),
            bound_object_ref: None,
        }),
        ..TokenRequest::default()
    };
    let (namespace, name) = (account.namespace(), account.name());
    http::Request::post(format!(
        "/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    ))
    .header(http::header::CONTENT_TYPE, "application/json")
    .body(serde_json::to_vec(&body).map_err(|_| CallError::Transport(TransportStage::Internal))?)
    .map_err(|_| CallError::Transport(TransportStage::Internal))
}

/// What a token says of itself.
#[derive(Deserialize)]
struct AccountTokenClaims {
    sub: String,
    aud: AccountTokenAudience,
    iat: i64,
    exp: i64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum AccountTokenAudience {
    One(String),
    Many(Vec<String>),
}

/// How long a token lives, if it is one of this account, for the audiences that the answer names, and short-lived. Its
/// signature is the API server's business, which gave it.
fn checked(token: &str, account: &ServiceAccount, audiences: &[String]) -> Result<Duration, IdentityError> {
    let claims: AccountTokenClaims = token
        .split('.')
        .nth(1)
        .and_then(|part| URL_SAFE_NO_PAD.decode(part).ok())
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .ok_or(IdentityError::Denied)?;
    let said = match claims.aud {
        AccountTokenAudience::One(one) => vec![one],
        AccountTokenAudience::Many(many) => many,
    };
    let is_for_them = !said.is_empty() && said == audiences;
    let seconds = claims.exp.saturating_sub(claims.iat);
    if claims.sub != account.username() || !is_for_them || !(1..=LIFETIME).contains(&seconds) {
        return Err(IdentityError::Denied);
    }
    Ok(Duration::from_secs(seconds.unsigned_abs()))
}

#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "of kube's many errors all but these are a call that failed, which is no identity"
)]
fn classify(error: &kube::Error) -> IdentityError {
    match error {
        // 400 and 422 are for an account that is being deleted or has no legal name.
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 404 | 409 | 422) => {
            IdentityError::Denied
        }
        kube::Error::Api(status) => CallError::Code(status.code).into(),
        error if write_fence::is_closed(error) => CallError::NoClaim.into(),
        error => CallError::Transport(TransportStage::of(error)).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Value, json};

    use super::*;

    fn token(claims: &Value) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    fn claims() -> Value {
        json!({"sub": "system:serviceaccount:team-a:builder", "aud": ["api"], "iat": 1000, "exp": 1600})
    }

    fn check(change: impl FnOnce(&mut Value)) -> Result<Duration, IdentityError> {
        let account = ServiceAccount::new("team-a", "builder").unwrap();
        let mut claims = claims();
        change(&mut claims);
        checked(&token(&claims), &account, &["api".to_owned()])
    }

    #[test]
    fn only_a_short_token_of_the_account_itself_is_used() {
        assert_eq!(check(|_| ()), Ok(Duration::from_secs(600)));
        assert_eq!(check(|c| c["aud"] = json!("api")), Ok(Duration::from_secs(600)));
        let wrong: [fn(&mut Value); 7] = [
            |c| c["sub"] = json!("system:serviceaccount:kube-system:builder"),
            |c| c["sub"] = json!("system:admin"),
            |c| c["aud"] = json!(["other"]),
            |c| c["aud"] = json!([]),
            |c| c["exp"] = json!(5000),
            |c| c["exp"] = json!(1000),
            |c| c["exp"] = json!("soon"),
        ];
        for (case, change) in wrong.into_iter().enumerate() {
            assert_eq!(check(change), Err(IdentityError::Denied), "case {case}");
        }
        for text in ["", "a", "a.b.c", "e30.e30.e30"] {
            let account = ServiceAccount::new("team-a", "builder").unwrap();
            assert_eq!(checked(text, &account, &[]), Err(IdentityError::Denied), "{text}");
        }
    }

    /// Tokens from an API server that gives this lifetime and counts how often it is asked.
    async fn server(seconds: i64) -> (AccountTokenCache, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let answer = move || async move {
            count.fetch_add(1, Ordering::Relaxed);
            let claims = json!({"sub": "system:serviceaccount:team-a:builder", "aud": ["api"],
                "iat": 1000, "exp": 1000 + seconds});
            json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": {},
                "spec": {"audiences": ["api"]},
                "status": {"token": token(&claims), "expirationTimestamp": "2026-01-01T00:00:00Z"}})
            .to_string()
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
        let client = Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
        (AccountTokenCache::new(client, Metrics::new().0), asked)
    }

    #[tokio::test]
    async fn a_token_is_requested_once_for_all_and_again_before_it_ends() {
        let account = ServiceAccount::new("team-a", "builder").unwrap();
        for (seconds, rounds, expected) in [(600, 3, 1), (120, 3, 3)] {
            let (tokens, asked) = server(seconds).await;
            for _ in 0..rounds {
                let all = futures::future::join_all((0..8).map(|_| tokens.get(&account)));
                let all: Vec<_> = all.await.into_iter().map(Result::unwrap).collect();
                assert!(all.iter().all(|token| *token == all[0]));
            }
            let asked = asked.load(Ordering::Relaxed);
            assert!(
                asked >= expected && (seconds < 600 || asked == expected),
                "{seconds}: {asked}"
            );
        }
    }

    /// Holds: B6.
    #[tokio::test]
    async fn tokens_of_accounts_without_end_are_not_kept() {
        let (tokens, _) = server(600).await;
        let account = |number: usize| ServiceAccount::new("team-a", &format!("builder-{number}")).unwrap();
        let live = AccountToken {
            header: HeaderValue::from_static("Bearer token"),
            usable_until: Instant::now() + MARGIN,
        };
        let used = tokens.slot(&account(0));
        let in_use = used.lock().await;
        for number in 1..3 * KEPT {
            *tokens.slot(&account(number)).lock().await = Some(live.clone());
            assert!(tokens.slots.len() <= KEPT);
        }
        drop(in_use);
        assert!(
            Arc::ptr_eq(&used, &tokens.slot(&account(0))),
            "what is in use stays"
        );
    }
}
