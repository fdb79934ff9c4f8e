//! The watches of all namespaces. One that is not there, or in which a right is missing, is tried again until it is.

use std::sync::Arc;
use std::time::Duration;

use kube::{Client, Config};
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::base::metrics::Metrics;
use crate::kubernetes::apply::CallError;
use crate::kubernetes::pull_secrets::PullSecretClient;
use crate::kubernetes::watch::{CatalogEvent, DestinationEvent, LeanWatchEnd, OlmWatchScope};
use crate::kubernetes::watch_client::watch_client;

/// Namespaces whose watches share a connection: four watches each, of the 100 that an API server allows on one.
const OF_CONNECTION: usize = 16;
/// Events that wait for the controller; a full channel only makes a watch wait.
const WAITING: usize = 64;
/// Pause before a namespace that is not there is looked for again.
const AWAY: Duration = Duration::from_secs(2);
/// Namespaces that are looked for again in a second, however many are away.
const LOOKS_A_SECOND: u32 = 10;
/// Namespaces that are looked for at a time.
const LOOKS: usize = 8;

/// What a watch shows, and in which namespace.
#[derive(Debug)]
pub enum OlmEvent {
    /// In one that copies may go to.
    Destination(Arc<str>, DestinationEvent),
    /// In one of catalogs.
    Catalogs(Arc<str>, CatalogEvent),
}

/// What all watches need.
#[derive(Clone)]
struct WatchParts {
    calls: PullSecretClient,
    metrics: Metrics,
    out: mpsc::Sender<OlmEvent>,
    looks: Arc<Semaphore>,
    pace: Arc<Mutex<Interval>>,
}

/// The watches; they end when this is dropped.
pub struct OlmWatches {
    _tasks: JoinSet<()>,
    /// What they show.
    pub(super) events: mpsc::Receiver<OlmEvent>,
}

impl OlmWatches {
    /// Watches these namespaces.
    ///
    /// # Errors
    /// If the configuration is none that a client can be made of.
    pub fn start(
        config: &Config,
        calls: &PullSecretClient,
        metrics: &Metrics,
        destinations: &[String],
        sources: &[String],
    ) -> kube::Result<Self> {
        let (out, events) = mpsc::channel(WAITING);
        let mut pace = interval(Duration::from_secs(1) / LOOKS_A_SECOND);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let parts = WatchParts {
            calls: calls.clone(),
            metrics: metrics.clone(),
            out,
            looks: Arc::new(Semaphore::new(LOOKS)),
            pace: Arc::new(Mutex::new(pace)),
        };
        let mut tasks = JoinSet::new();
        let sources = sources
            .chunks(OF_CONNECTION)
            .map(|some| (some, WatchedPart::Catalogs));
        let destinations = destinations.chunks(OF_CONNECTION);
        let destinations = destinations.map(|some| (some, WatchedPart::Destination));
        for (some, part) in sources.chain(destinations) {
            let client = watch_client(config)?;
            for namespace in some {
                let (parts, client) = (parts.clone(), client.clone());
                tasks.spawn(parts.watch(client, Arc::from(&**namespace), part));
            }
        }
        Ok(Self {
            _tasks: tasks,
            events,
        })
    }
}

/// What is watched in a namespace.
#[derive(Clone, Copy)]
enum WatchedPart {
    /// What decides about copies there.
    Destination,
    /// Catalogs and their Secrets.
    Catalogs,
}

impl WatchedPart {
    /// Watches a namespace until a watch is refused, or the channel closes.
    async fn run(self, scope: OlmWatchScope<'_>, out: &mpsc::Sender<OlmEvent>) -> LeanWatchEnd {
        let name: Arc<str> = Arc::from(scope.namespace);
        match self {
            Self::Destination => {
                let event = |event| OlmEvent::Destination(Arc::clone(&name), event);
                scope.destination(out, event).await
            }
            Self::Catalogs => {
                let event = |event| OlmEvent::Catalogs(Arc::clone(&name), event);
                scope.catalogs(out, event).await
            }
        }
    }

    fn refusal(self, namespace: &Arc<str>) -> OlmEvent {
        let name = Arc::clone(namespace);
        match self {
            Self::Destination => OlmEvent::Destination(name, DestinationEvent::Refused),
            Self::Catalogs => OlmEvent::Catalogs(name, CatalogEvent::Refused),
        }
    }
}

impl WatchParts {
    /// Watches a namespace until the controller ends.
    async fn watch(self, client: Client, namespace: Arc<str>, part: WatchedPart) {
        let mut is_said = false;
        loop {
            let look = match part {
                WatchedPart::Destination => self.look(&namespace, &mut is_said).await,
                WatchedPart::Catalogs => NamespaceLook::There,
            };
            if look == NamespaceLook::There {
                let scope = OlmWatchScope {
                    client: &client,
                    metrics: &self.metrics,
                    namespace: &namespace,
                };
                _ = part.run(scope, &self.out).await;
                tracing::warn!(
                    namespace = &*namespace,
                    "a watch of this namespace is refused; grant the rights, as the chart does: it is opened again until then"
                );
            }
            // The channel closes with the controller.
            if look != NamespaceLook::Unanswered && self.out.send(part.refusal(&namespace)).await.is_err() {
                return;
            }
            tokio::time::sleep(AWAY).await;
            self.pace.lock().await.tick().await;
        }
    }

    /// Looks at a namespace; the first time that it cannot be read is logged.
    async fn look(&self, namespace: &str, is_said: &mut bool) -> NamespaceLook {
        let Ok(_look) = self.looks.acquire().await else {
            return NamespaceLook::Unanswered;
        };
        let read = self.calls.namespace_uid(namespace).await;
        if let Err(error) = &read
            && !std::mem::replace(is_said, true)
        {
            tracing::warn!(
                namespace,
                kind = error.kind(),
                stage = error.stage(),
                "this namespace cannot be read; see that it is there, and that the program has the rights of the chart: it is looked for again"
            );
        }
        *is_said &= read.is_err();
        match read {
            Ok(_) => NamespaceLook::There,
            Err(CallError::NotFound | CallError::Forbidden) => NamespaceLook::Refused,
            Err(_) => NamespaceLook::Unanswered,
        }
    }
}

/// What a look at a namespace showed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NamespaceLook {
    /// It is there.
    There,
    /// It is not, or the program may not read it.
    Refused,
    /// Nothing.
    Unanswered,
}
