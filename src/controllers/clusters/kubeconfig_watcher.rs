//! Follows one kubeconfig of a tenant's, with the rights of the ServiceAccount that names it and no others.
//!
//! The Secret is read when it changed. Its values are not asked for otherwise, but at least once a minute it is asked
//! whether the account may still read it, so that a right that was taken away does not outlive that minute.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

use super::kubeconfig_validator::{KubeconfigQuery, KubeconfigValidator, KubeconfigVerdict};
use super::limits::ClusterControllerLimits;
use crate::api::names::{is_dns_label, is_dns_subdomain};
use crate::kubernetes::apply::{CallError, SecretBody, TransportStage};
use crate::kubernetes::tenant::{IdentityError, SecretWatch, TenantReadError, TenantSession, TenantSessions};
use crate::plan::remote::kubeconfig_fault::KubeconfigFault;
use crate::plan::remote::site::TenantKubeconfig;

/// Shortest time between two questions of one watch, for a server that ends each at once.
const BREATH: Duration = Duration::from_secs(1);

/// What became of a tenant's kubeconfig.
pub struct KubeconfigReport {
    /// Which.
    pub kubeconfig: Arc<TenantKubeconfig>,
    /// What it comes to.
    pub verdict: KubeconfigVerdict,
    /// Its namespace's turn to connect, to be given back when the first attempt has ended.
    pub connect_permit: Option<OwnedSemaphorePermit>,
}

/// Follows one kubeconfig.
pub struct KubeconfigWatcher {
    /// Which.
    pub kubeconfig: Arc<TenantKubeconfig>,
    /// As whom it is read.
    pub identities: Arc<TenantSessions>,
    /// Who gives the verdict.
    pub judge: Arc<KubeconfigValidator>,
    /// Turns of its namespace to connect.
    pub connect_permits: Arc<Semaphore>,
    /// Asks for the Secret to be read anew.
    pub again: Arc<Notify>,
    /// How long things take.
    pub limits: ClusterControllerLimits,
    /// Where verdicts go.
    pub out: mpsc::Sender<KubeconfigReport>,
}

/// Why there is no answer.
enum KubeconfigReadError {
    /// The tenant has to do something.
    Fault(KubeconfigFault),
    /// A call failed; what was so before stays so.
    Failed(CallError),
}

enum SecretQuery<'a> {
    Body,
    Version,
    Watch(&'a str),
}

enum SecretResponse {
    Body(SecretBody),
    Version(String),
    Watch(SecretWatch),
}

/// What a look brought.
struct SecretObservation {
    /// Version of the Secret.
    version: String,
    verdict: KubeconfigVerdict,
    /// Opened before anything is done with the verdict: a right to look that ends with the look is none.
    watch: SecretWatch,
}

impl KubeconfigWatcher {
    /// Runs until nobody wants to hear of it.
    pub async fn run(self) {
        let mut asked = KubeconfigQuery {
            key: self.kubeconfig.key.clone(),
            known: None,
        };
        let mut pause = self.limits.first_pause;
        while self.round(&mut asked, &mut pause).await.is_some() {}
    }

    /// One look, and the wait for the next; `None` once nobody wants to hear of it.
    async fn round(&self, asked: &mut KubeconfigQuery, pause: &mut Duration) -> Option<()> {
        // Who is connected already is not kept waiting by those who are not.
        let turn = match &asked.known {
            None => Arc::clone(&self.connect_permits).acquire_owned().await.ok(),
            Some(_) => None,
        };
        let stop = match self.look(asked).await {
            Ok(looked) => {
                *pause = self.limits.first_pause;
                self.tell(looked.verdict, turn, asked).await?;
                let changed = self.until_changed(&looked.version, Some(looked.watch), asked);
                match changed.await {
                    Ok(()) => return Some(()),
                    Err(stop) => stop,
                }
            }
            Err(stop) => {
                // Who connects to nothing keeps nobody from connecting.
                drop(turn);
                stop
            }
        };
        let is_missing = matches!(stop, KubeconfigReadError::Fault(KubeconfigFault::Missing));
        match stop {
            KubeconfigReadError::Fault(fault) => {
                self.tell(KubeconfigVerdict::Nowhere(fault), None, asked).await?;
            }
            KubeconfigReadError::Failed(error) => {
                let (kind, stage) = (error.kind(), error.stage());
                tracing::warn!(kind, stage, "a tenant's kubeconfig was not read; it is repeated");
            }
        }
        self.rest(is_missing, *pause, asked).await;
        *pause = (*pause * 2).min(self.limits.last_pause);
        Some(())
    }

    /// Waits before the next look, or until something says that it is worth it.
    async fn rest(&self, is_missing: bool, pause: Duration, asked: &mut KubeconfigQuery) {
        let appears = async {
            // One that the account may not watch is looked at after the pause alone.
            if !is_missing || self.until_changed("", None, asked).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        _ = tokio::time::timeout(pause, appears).await;
    }

    /// Hands on a verdict; `None` where nobody wants it.
    async fn tell(
        &self,
        verdict: KubeconfigVerdict,
        turn: Option<OwnedSemaphorePermit>,
        asked: &mut KubeconfigQuery,
    ) -> Option<()> {
        match &verdict {
            KubeconfigVerdict::Same => return Some(()),
            KubeconfigVerdict::Leads(found) => asked.known = Some((found.key.clone(), found.content)),
            KubeconfigVerdict::Nowhere(_) => asked.known = None,
        }
        let own = Arc::clone(&self.kubeconfig);
        self.out
            .send(KubeconfigReport {
                kubeconfig: own,
                verdict,
                connect_permit: turn,
            })
            .await
            .ok()
    }

    async fn look(&self, asked: &KubeconfigQuery) -> Result<SecretObservation, KubeconfigReadError> {
        let is_name = is_dns_label(&self.kubeconfig.namespace) && is_dns_subdomain(&self.kubeconfig.name);
        if !is_name {
            return Err(KubeconfigReadError::Fault(KubeconfigFault::Missing));
        }
        let SecretResponse::Body(body) = self.ask(&SecretQuery::Body).await? else {
            return Err(KubeconfigReadError::Failed(CallError::Transport(
                TransportStage::Internal,
            )));
        };
        let judged = self.judge.judge(body, std::slice::from_ref(asked)).await;
        let mut judged = judged.ok_or(KubeconfigReadError::Failed(CallError::Transport(
            TransportStage::Decode,
        )))?;
        let SecretResponse::Watch(watch) = self.ask(&SecretQuery::Watch(&judged.version)).await? else {
            return Err(KubeconfigReadError::Failed(CallError::Transport(
                TransportStage::Internal,
            )));
        };
        let verdict = judged.verdicts.pop();
        Ok(SecretObservation {
            version: judged.version,
            verdict: verdict.unwrap_or(KubeconfigVerdict::Nowhere(KubeconfigFault::Missing)),
            watch,
        })
    }

    /// Waits until the Secret is not any more what it was at this version, or is to be read again all the same.
    async fn until_changed(
        &self,
        version: &str,
        watch: Option<SecretWatch>,
        asked: &mut KubeconfigQuery,
    ) -> Result<(), KubeconfigReadError> {
        tokio::select! {
            outcome = self.watched(version, watch) => outcome,
            () = self.again.notified() => {
                // It is to be told whether it changed or not.
                asked.known = None;
                Ok(())
            }
        }
    }

    async fn watched(
        &self,
        version: &str,
        mut opened: Option<SecretWatch>,
    ) -> Result<(), KubeconfigReadError> {
        loop {
            let begin = Instant::now();
            let watch = match opened.take() {
                Some(watch) => SecretResponse::Watch(watch),
                None => self.ask(&SecretQuery::Watch(version)).await?,
            };
            let has_changed = match watch {
                SecretResponse::Watch(watch) => watch.changed(self.limits.watch).await,
                SecretResponse::Body(_) | SecretResponse::Version(_) => false,
            };
            let has_changed = has_changed || self.is_other(version).await?;
            tokio::time::sleep(BREATH.saturating_sub(begin.elapsed())).await;
            if has_changed {
                return Ok(());
            }
        }
    }

    /// Whether the Secret has another version now; asked even where a watch said nothing, because the right to watch is not
    /// the right to get.
    async fn is_other(&self, version: &str) -> Result<bool, KubeconfigReadError> {
        match self.ask(&SecretQuery::Version).await {
            Ok(SecretResponse::Version(now)) => Ok(now != version),
            Err(KubeconfigReadError::Fault(KubeconfigFault::Missing)) if version.is_empty() => Ok(false),
            Ok(_) => Ok(true),
            Err(stop) => Err(stop),
        }
    }

    async fn ask(&self, question: &SecretQuery<'_>) -> Result<SecretResponse, KubeconfigReadError> {
        let session = self
            .identities
            .session(&self.kubeconfig.reader)
            .await
            .map_err(no_session)?;
        match self.put(&session, question).await {
            Err(TenantReadError::Unauthorized) => {}
            answer => return answer.map_err(no_answer),
        }
        // The account was made again since the token was: one more token, and no more than one.
        let other = self.identities.renewed(&self.kubeconfig.reader, &session).await;
        let other = other
            .map_err(no_session)?
            .ok_or(KubeconfigReadError::Fault(KubeconfigFault::Account))?;
        self.put(&other, question).await.map_err(no_answer)
    }

    async fn put(
        &self,
        session: &TenantSession,
        question: &SecretQuery<'_>,
    ) -> Result<SecretResponse, TenantReadError> {
        let (namespace, name) = (self.kubeconfig.namespace.as_str(), self.kubeconfig.name.as_str());
        match question {
            SecretQuery::Body => session.secret(namespace, name).await.map(SecretResponse::Body),
            SecretQuery::Version => session
                .secret_version(namespace, name)
                .await
                .map(SecretResponse::Version),
            SecretQuery::Watch(version) => {
                let watch = session.watch_secret(namespace, name, version, self.limits.watch);
                watch.await.map(SecretResponse::Watch)
            }
        }
    }
}

const fn no_session(error: IdentityError) -> KubeconfigReadError {
    match error {
        IdentityError::Denied => KubeconfigReadError::Fault(KubeconfigFault::Account),
        IdentityError::Call(error) => KubeconfigReadError::Failed(error),
    }
}

const fn no_answer(error: TenantReadError) -> KubeconfigReadError {
    match error {
        TenantReadError::NotFound => KubeconfigReadError::Fault(KubeconfigFault::Missing),
        TenantReadError::Forbidden => KubeconfigReadError::Fault(KubeconfigFault::Right),
        TenantReadError::Unauthorized => KubeconfigReadError::Fault(KubeconfigFault::Account),
        TenantReadError::Call(error) => KubeconfigReadError::Failed(error),
    }
}
