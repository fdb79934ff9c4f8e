//! Follows one kubeconfig of a tenant's, with the rights of the ServiceAccount that names it and no others.
//!
//! The Secret is read when it changed. Its values are not asked for otherwise, but at least once a minute it is asked
//! whether the account may still read it, so that a right that was taken away does not outlive that minute.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

use super::limits::Limits;
use super::secrets::{Asked, Judge, Verdict};
use crate::api::names::{is_dns_label, is_dns_subdomain};
use crate::kubernetes::apply::{CallError, SecretBody, Stage};
use crate::kubernetes::tenant::{Identities, IdentityError, ReadError, SecretWatch, Session};
use crate::plan::remote::lead::Fault;
use crate::plan::remote::site::OwnKubeconfig;

/// Shortest time between two questions of one watch, for a server that ends each at once.
const BREATH: Duration = Duration::from_secs(1);

/// What became of a tenant's kubeconfig.
pub struct Told {
    /// Which.
    pub own: Arc<OwnKubeconfig>,
    /// What it comes to.
    pub verdict: Verdict,
    /// Its namespace's turn to connect, to be given back when the first attempt has ended.
    pub turn: Option<OwnedSemaphorePermit>,
}

/// Follows one kubeconfig.
pub struct Follower {
    /// Which.
    pub own: Arc<OwnKubeconfig>,
    /// As whom it is read.
    pub identities: Arc<Identities>,
    /// Who gives the verdict.
    pub judge: Arc<Judge>,
    /// Turns of its namespace to connect.
    pub turns: Arc<Semaphore>,
    /// Asks for the Secret to be read anew.
    pub again: Arc<Notify>,
    /// How long things take.
    pub limits: Limits,
    /// Where verdicts go.
    pub out: mpsc::Sender<Told>,
}

/// Why there is no answer.
enum Stop {
    /// The tenant has to do something.
    Fault(Fault),
    /// A call failed; what was so before stays so.
    Failed(CallError),
}

enum Question<'a> {
    Body,
    Version,
    Watch(&'a str),
}

enum Answer {
    Body(SecretBody),
    Version(String),
    Watch(SecretWatch),
}

/// What a look brought.
struct Looked {
    /// Version of the Secret.
    version: String,
    verdict: Verdict,
    /// Opened before anything is done with the verdict: a right to look that ends with the look is none.
    watch: SecretWatch,
}

impl Follower {
    /// Runs until nobody wants to hear of it.
    pub async fn run(self) {
        let mut asked = Asked {
            key: self.own.key.clone(),
            known: None,
        };
        let mut pause = self.limits.first_pause;
        while self.round(&mut asked, &mut pause).await.is_some() {}
    }

    /// One look, and the wait for the next; `None` once nobody wants to hear of it.
    async fn round(&self, asked: &mut Asked, pause: &mut Duration) -> Option<()> {
        // Who is connected already is not kept waiting by those who are not.
        let turn = match &asked.known {
            None => Arc::clone(&self.turns).acquire_owned().await.ok(),
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
        let is_missing = matches!(stop, Stop::Fault(Fault::Missing));
        match stop {
            Stop::Fault(fault) => self.tell(Verdict::Nowhere(fault), None, asked).await?,
            Stop::Failed(error) => {
                let (kind, stage) = (error.kind(), error.stage());
                tracing::warn!(kind, stage, "a tenant's kubeconfig was not read; it is repeated");
            }
        }
        self.rest(is_missing, *pause, asked).await;
        *pause = (*pause * 2).min(self.limits.last_pause);
        Some(())
    }

    /// Waits before the next look, or until something says that it is worth it.
    async fn rest(&self, is_missing: bool, pause: Duration, asked: &mut Asked) {
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
        verdict: Verdict,
        turn: Option<OwnedSemaphorePermit>,
        asked: &mut Asked,
    ) -> Option<()> {
        match &verdict {
            Verdict::Same => return Some(()),
            Verdict::Leads(found) => asked.known = Some((found.key.clone(), found.content)),
            Verdict::Nowhere(_) => asked.known = None,
        }
        let own = Arc::clone(&self.own);
        self.out.send(Told { own, verdict, turn }).await.ok()
    }

    async fn look(&self, asked: &Asked) -> Result<Looked, Stop> {
        let is_name = is_dns_label(&self.own.namespace) && is_dns_subdomain(&self.own.name);
        if !is_name {
            return Err(Stop::Fault(Fault::Missing));
        }
        let Answer::Body(body) = self.ask(&Question::Body).await? else {
            return Err(Stop::Failed(CallError::Transport(Stage::Internal)));
        };
        let judged = self.judge.judge(body, std::slice::from_ref(asked)).await;
        let mut judged = judged.ok_or(Stop::Failed(CallError::Transport(Stage::Decode)))?;
        let Answer::Watch(watch) = self.ask(&Question::Watch(&judged.version)).await? else {
            return Err(Stop::Failed(CallError::Transport(Stage::Internal)));
        };
        let verdict = judged.verdicts.pop();
        Ok(Looked {
            version: judged.version,
            verdict: verdict.unwrap_or(Verdict::Nowhere(Fault::Missing)),
            watch,
        })
    }

    /// Waits until the Secret is not any more what it was at this version, or is to be read again all the same.
    async fn until_changed(
        &self,
        version: &str,
        watch: Option<SecretWatch>,
        asked: &mut Asked,
    ) -> Result<(), Stop> {
        tokio::select! {
            outcome = self.watched(version, watch) => outcome,
            () = self.again.notified() => {
                // It is to be told whether it changed or not.
                asked.known = None;
                Ok(())
            }
        }
    }

    async fn watched(&self, version: &str, mut opened: Option<SecretWatch>) -> Result<(), Stop> {
        loop {
            let begin = Instant::now();
            let watch = match opened.take() {
                Some(watch) => Answer::Watch(watch),
                None => self.ask(&Question::Watch(version)).await?,
            };
            let has_changed = match watch {
                Answer::Watch(watch) => watch.changed(self.limits.watch).await,
                Answer::Body(_) | Answer::Version(_) => false,
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
    async fn is_other(&self, version: &str) -> Result<bool, Stop> {
        match self.ask(&Question::Version).await {
            Ok(Answer::Version(now)) => Ok(now != version),
            Err(Stop::Fault(Fault::Missing)) if version.is_empty() => Ok(false),
            Ok(_) => Ok(true),
            Err(stop) => Err(stop),
        }
    }

    async fn ask(&self, question: &Question<'_>) -> Result<Answer, Stop> {
        let session = self
            .identities
            .session(&self.own.reader)
            .await
            .map_err(no_session)?;
        match self.put(&session, question).await {
            Err(ReadError::Unauthorized) => {}
            answer => return answer.map_err(no_answer),
        }
        // The account was made again since the token was: one more token, and no more than one.
        let other = self.identities.renewed(&self.own.reader, &session).await;
        let other = other.map_err(no_session)?.ok_or(Stop::Fault(Fault::Account))?;
        self.put(&other, question).await.map_err(no_answer)
    }

    async fn put(&self, session: &Session, question: &Question<'_>) -> Result<Answer, ReadError> {
        let (namespace, name) = (self.own.namespace.as_str(), self.own.name.as_str());
        match question {
            Question::Body => session.secret(namespace, name).await.map(Answer::Body),
            Question::Version => session.secret_version(namespace, name).await.map(Answer::Version),
            Question::Watch(version) => {
                let watch = session.watch_secret(namespace, name, version, self.limits.watch);
                watch.await.map(Answer::Watch)
            }
        }
    }
}

const fn no_session(error: IdentityError) -> Stop {
    match error {
        IdentityError::Denied => Stop::Fault(Fault::Account),
        IdentityError::Call(error) => Stop::Failed(error),
    }
}

const fn no_answer(error: ReadError) -> Stop {
    match error {
        ReadError::NotFound => Stop::Fault(Fault::Missing),
        ReadError::Forbidden => Stop::Fault(Fault::Right),
        ReadError::Unauthorized => Stop::Fault(Fault::Account),
        ReadError::Call(error) => Stop::Failed(error),
    }
}
