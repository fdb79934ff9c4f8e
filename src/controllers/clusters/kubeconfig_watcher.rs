//! Watches one kubeconfig of a tenant, with only the rights of the task's ServiceAccount.
//!
//! The hub reads the Secret's values only after a change. At least once a minute it checks that the account may still read the
//! Secret, so that a revoked right ends within that minute.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

use super::kubeconfig_validator::{KubeconfigQuery, KubeconfigValidator, KubeconfigVerdict};
use super::limits::ClusterControllerLimits;
use crate::api::names::{is_dns_label, is_dns_subdomain};
use crate::kubernetes::apply::{CallError, TransportStage};
use crate::kubernetes::tenant::{SecretWatch, TenantReadError, TenantSession, TenantSessions};
use crate::plan::remote::kubeconfig_fault::KubeconfigFault;
use crate::plan::remote::site::TenantKubeconfig;

/// Shortest time between two watch requests, for a server that ends each watch at once.
const MIN_WATCH_TIME: Duration = Duration::from_secs(1);

/// The verdict on a tenant's kubeconfig.
pub struct KubeconfigReport {
    /// The kubeconfig.
    pub kubeconfig: Arc<TenantKubeconfig>,
    /// The verdict on it.
    pub verdict: KubeconfigVerdict,
    /// A connect permit of its namespace, to be dropped when the first attempt has ended.
    pub connect_permit: Option<OwnedSemaphorePermit>,
}

/// Watches one kubeconfig.
pub struct KubeconfigWatcher {
    /// The kubeconfig.
    pub kubeconfig: Arc<TenantKubeconfig>,
    /// Sessions that read Secrets as tenants.
    pub sessions: Arc<TenantSessions>,
    /// Decodes the kubeconfig.
    pub validator: Arc<KubeconfigValidator>,
    /// Connect permits of its namespace.
    pub connect_permits: Arc<Semaphore>,
    /// Notified to make the watcher read the Secret again.
    pub reread: Arc<Notify>,
    /// Intervals and deadlines.
    pub limits: ClusterControllerLimits,
    /// Channel for the verdicts.
    pub out: mpsc::Sender<KubeconfigReport>,
}

/// Why a read gave no result.
enum KubeconfigReadError {
    /// The tenant has to correct something.
    Fault(KubeconfigFault),
    /// A call failed; the last verdict stays valid.
    Failed(CallError),
}

/// The result of one read of the Secret.
struct SecretObservation {
    /// Version of the Secret.
    version: String,
    verdict: KubeconfigVerdict,
    /// Opened before the verdict is used, which proves that the account may watch the Secret, and not only get it.
    watch: SecretWatch,
}

impl KubeconfigWatcher {
    /// Runs until the receiver of the verdicts is closed.
    pub async fn run(self) {
        let mut query = KubeconfigQuery {
            key: self.kubeconfig.key.clone(),
            known: None,
        };
        let mut failures = 0;
        while self.read_and_wait(&mut query, &mut failures).await.is_some() {}
    }

    /// Reads the Secret once, and waits for the next read; `None` once the receiver is closed.
    async fn read_and_wait(&self, query: &mut KubeconfigQuery, failures: &mut u32) -> Option<()> {
        // A kubeconfig that is connected already needs no connect permit.
        let permit = match &query.known {
            None => Arc::clone(&self.connect_permits).acquire_owned().await.ok(),
            Some(_) => None,
        };
        let stop = match self.read_secret(query).await {
            Ok(observed) => {
                *failures = 0;
                self.send_verdict(observed.verdict, permit, query).await?;
                let changed = self.until_changed(&observed.version, Some(observed.watch), query);
                match changed.await {
                    Ok(()) => return Some(()),
                    Err(stop) => stop,
                }
            }
            Err(stop) => {
                // A kubeconfig that was not read does not connect, and must not hold a permit.
                drop(permit);
                stop
            }
        };
        let is_missing = matches!(stop, KubeconfigReadError::Fault(KubeconfigFault::Missing));
        match stop {
            KubeconfigReadError::Fault(fault) => {
                self.send_verdict(KubeconfigVerdict::Invalid(fault), None, query)
                    .await?;
            }
            KubeconfigReadError::Failed(error) => {
                let (kind, stage) = (error.kind(), error.stage());
                tracing::warn!(kind, stage, "a tenant's kubeconfig was not read; it is repeated");
            }
        }
        *failures = failures.saturating_add(1);
        let pause = self.limits.read_retry.wait(*failures, &self.kubeconfig);
        self.wait(is_missing, pause, query).await;
        Some(())
    }

    /// Waits before the next read, or until a missing Secret appears.
    async fn wait(&self, is_missing: bool, pause: Duration, query: &mut KubeconfigQuery) {
        let appears = async {
            // A Secret that the account may not watch is read after the pause only.
            if !is_missing || self.until_changed("", None, query).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        _ = tokio::time::timeout(pause, appears).await;
    }

    /// Sends a verdict; `None` where the receiver is closed.
    async fn send_verdict(
        &self,
        verdict: KubeconfigVerdict,
        permit: Option<OwnedSemaphorePermit>,
        query: &mut KubeconfigQuery,
    ) -> Option<()> {
        match &verdict {
            KubeconfigVerdict::Unchanged => return Some(()),
            KubeconfigVerdict::Valid(found) => query.known = Some((found.key.clone(), found.content)),
            KubeconfigVerdict::Invalid(_) => query.known = None,
        }
        let own = Arc::clone(&self.kubeconfig);
        self.out
            .send(KubeconfigReport {
                kubeconfig: own,
                verdict,
                connect_permit: permit,
            })
            .await
            .ok()
    }

    async fn read_secret(&self, query: &KubeconfigQuery) -> Result<SecretObservation, KubeconfigReadError> {
        let TenantKubeconfig { namespace, name, .. } = &*self.kubeconfig;
        if !is_dns_label(namespace) || !is_dns_subdomain(name) {
            return Err(KubeconfigReadError::Fault(KubeconfigFault::Missing));
        }
        let body = self
            .read(|session| async move { session.secret(namespace, name).await })
            .await?;
        let validated = self.validator.validate(body, std::slice::from_ref(query)).await;
        let mut validated = validated.ok_or(KubeconfigReadError::Failed(CallError::Transport(
            TransportStage::Decode,
        )))?;
        let watch = self.open_watch(&validated.version).await?;
        let verdict = validated.verdicts.pop();
        Ok(SecretObservation {
            version: validated.version,
            verdict: verdict.unwrap_or(KubeconfigVerdict::Invalid(KubeconfigFault::Missing)),
            watch,
        })
    }

    /// Waits until the Secret differs from this version, or is to be read again anyway.
    async fn until_changed(
        &self,
        version: &str,
        watch: Option<SecretWatch>,
        query: &mut KubeconfigQuery,
    ) -> Result<(), KubeconfigReadError> {
        tokio::select! {
            outcome = self.watch_until_changed(version, watch) => outcome,
            () = self.reread.notified() => {
                // The verdict is sent even if the Secret is unchanged.
                query.known = None;
                Ok(())
            }
        }
    }

    async fn watch_until_changed(
        &self,
        version: &str,
        mut opened: Option<SecretWatch>,
    ) -> Result<(), KubeconfigReadError> {
        loop {
            let begin = Instant::now();
            let watch = match opened.take() {
                Some(watch) => watch,
                None => self.open_watch(version).await?,
            };
            let has_changed = watch.changed(self.limits.watch).await || self.is_other(version).await?;
            tokio::time::sleep(MIN_WATCH_TIME.saturating_sub(begin.elapsed())).await;
            if has_changed {
                return Ok(());
            }
        }
    }

    /// Whether the Secret has another version now; checked even if a watch showed no change, because the right to watch does
    /// not include the right to get.
    async fn is_other(&self, version: &str) -> Result<bool, KubeconfigReadError> {
        let TenantKubeconfig { namespace, name, .. } = &*self.kubeconfig;
        let now = self.read(|session| async move { session.secret_version(namespace, name).await });
        match now.await {
            Ok(now) => Ok(now != version),
            Err(KubeconfigReadError::Fault(KubeconfigFault::Missing)) if version.is_empty() => Ok(false),
            Err(stop) => Err(stop),
        }
    }

    async fn open_watch(&self, version: &str) -> Result<SecretWatch, KubeconfigReadError> {
        let TenantKubeconfig { namespace, name, .. } = &*self.kubeconfig;
        let longest = self.limits.watch;
        self.read(|session| async move { session.watch_secret(namespace, name, version, longest).await })
            .await
    }

    async fn read<T, R: Future<Output = Result<T, TenantReadError>>>(
        &self,
        read: impl Fn(Arc<TenantSession>) -> R,
    ) -> Result<T, KubeconfigReadError> {
        let answer = self.sessions.read(&self.kubeconfig.identity, read).await;
        answer.map_err(no_answer)
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
