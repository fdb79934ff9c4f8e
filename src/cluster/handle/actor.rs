//! The task of one connection.

use std::collections::HashMap;
use std::future;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, sleep_until};

use super::checks::{fault_of, greet};
use super::line::Line;
use super::post::{Note, Post};
use super::report::Told;
use super::session::Session;
use super::{Common, Desired, now};
use crate::cluster::ClusterKey;
use crate::cluster::link::Link;
use crate::metrics::clusters::label;
use crate::plan::health::{Connection, Fault, Heard, Todo, Version};
use crate::plan::site::Site;

/// Notes of watches that wait; one of each of a few sites, and a watch that finds no room waits.
const NOTES: usize = 16;
/// Longest that an attempt keeps others from beginning.
const START: Duration = Duration::from_millis(250);

/// What a task of the connection brings at its end.
pub(super) enum Done {
    Attempt(u64, Result<(Version, Arc<Session>), Fault>),
    Probe(u64, Result<(), Fault>),
    /// Whoever spoke of the site before is done.
    Turn(Arc<Site>),
    Drained,
}

/// One connection, from its first bind to its end.
pub(in crate::cluster) struct Actor {
    pub(super) key: ClusterKey,
    pub(super) common: Arc<Common>,
    pub(super) line: Arc<Line>,
    pub(super) desired: watch::Receiver<Desired>,
    /// What was wanted when it was last looked at.
    pub(super) current: Desired,
    pub(super) connection: Connection,
    pub(super) session: Option<Arc<Session>>,
    pub(super) posts: HashMap<Arc<Site>, Post>,
    /// Whether all sites of this connection were looked at once.
    pub(super) is_settled: bool,
    pub(super) told: Told,
    pub(super) seed: u64,
    pub(super) notes: mpsc::Sender<Note>,
    pub(super) tasks: JoinSet<Done>,
    inbox: mpsc::Receiver<Note>,
    /// The attempt or the probe that is under way, and its number.
    under_way: Option<AbortHandle>,
    number: u64,
    has_stood: bool,
}

impl Actor {
    pub(in crate::cluster) fn new(
        key: ClusterKey,
        common: Arc<Common>,
        line: Arc<Line>,
        desired: watch::Receiver<Desired>,
    ) -> Self {
        let seed = RandomState::new().hash_one(&key);
        let (notes, inbox) = mpsc::channel(NOTES);
        let mut current = desired.borrow().clone();
        // Those are news to be looked at.
        current.sites.clear();
        Self {
            connection: Connection::new(common.settings.timing, seed, now()),
            key,
            common,
            line,
            desired,
            current,
            session: None,
            posts: HashMap::new(),
            is_settled: false,
            told: Told::default(),
            seed,
            notes,
            tasks: JoinSet::new(),
            inbox,
            under_way: None,
            number: 0,
            has_stood: false,
        }
    }

    /// Runs until the connection is cut.
    pub(in crate::cluster) async fn run(mut self) {
        self.desired.mark_changed();
        let cut = self.line.cut.clone();
        while !cut.is_cancelled() {
            self.act();
            if !self.connection.is_up() {
                self.drop_session().await;
            }
            cut.run_until_cancelled(self.tell()).await;
            cut.run_until_cancelled(self.next()).await;
        }
        self.end().await;
    }

    /// Does what is due.
    fn act(&mut self) {
        let now = now();
        for post in self.posts.values_mut() {
            if post.is_broken() {
                post.watching
                    .ended(Fault::Unusable, &self.common.settings.timing, now);
            }
            post.watching.wake(now);
        }
        match self.connection.wake(now) {
            Some(Todo::Connect) => self.connect(),
            Some(Todo::Probe) => self.probe(),
            None => {}
        }
    }

    /// Takes in the next news.
    async fn next(&mut self) {
        let due = self.due();
        let (line, reports) = (Arc::clone(&self.line), self.common.reports.clone());
        tokio::select! {
            _ = self.desired.changed() => self.apply().await,
            Some(done) = self.tasks.join_next() => match done {
                Ok(done) => self.done(done).await,
                Err(ended) => self.fell(ended.is_panic()),
            },
            Some(note) = self.inbox.recv() => self.note(&note),
            () = line.counted.notified() => {
                self.connection.heard(Heard::Unanswered(line.unanswered()), now());
            }
            () = line.doubt.notified() => self.connection.heard(Heard::Doubt, now()),
            Ok(permit) = reports.reserve(), if self.told.has_news() => self.told.send(permit),
            () = until(due) => {}
        }
    }

    /// A task that ended without an outcome; one that was given up is no news.
    fn fell(&mut self, is_panic: bool) {
        if is_panic {
            let now = now();
            self.connection.heard(Heard::Failed(Fault::Unusable), now);
            self.connection.heard(Heard::Missed(Fault::Unusable), now);
        }
    }

    fn due(&self) -> Option<Instant> {
        let sites = self.posts.values().filter_map(|post| post.watching.due());
        sites.chain(self.connection.due(now())).min()
    }

    /// Compares what is wanted with what was.
    async fn apply(&mut self) {
        let wanted = self.desired.borrow_and_update().clone();
        let before = std::mem::replace(&mut self.current, wanted);
        if self.current.binds != before.binds {
            self.bound(&before);
        }
        if self.current.pace != before.pace
            && let Some(session) = &self.session
        {
            session
                .link
                .set_pace(self.current.pace.qps, self.current.pace.burst);
        }
        self.place_sites().await;
    }

    /// Another kubeconfig, or the same once more.
    fn bound(&mut self, before: &Desired) {
        if self.current.identity == before.identity {
            self.connection.heard(Heard::Same, now());
            return;
        }
        let is_token = self.current.connection == before.connection;
        if !is_token || !self.connection.is_probing() {
            self.number += 1;
            if let Some(under_way) = self.under_way.take() {
                under_way.abort();
            }
        }
        self.line.renew(&self.current);
        let heard = if is_token { Heard::Token } else { Heard::Replaced };
        self.connection.heard(heard, now());
    }

    fn connect(&mut self) {
        self.number += 1;
        let attempts = &self.line.metrics.attempts;
        attempts.get_or_create(&label(&self.line.name)).inc();
        let attempt = attempt(Arc::clone(&self.common), self.current.clone(), self.number);
        self.under_way = Some(self.tasks.spawn(attempt));
    }

    fn probe(&mut self) {
        self.number += 1;
        let number = self.number;
        let link = self.session.as_ref().map(|session| session.link.clone());
        self.under_way = Some(self.tasks.spawn(async move {
            let probed = match link {
                Some(link) => link.probe().await.map(|_| ()).map_err(fault_of),
                None => Err(Fault::Unreachable),
            };
            Done::Probe(number, probed)
        }));
    }

    async fn done(&mut self, done: Done) {
        match done {
            Done::Attempt(number, attempt) if number == self.number => {
                self.under_way = None;
                match attempt {
                    Ok((version, session)) => self.connected(version, session).await,
                    Err(fault) => self.connection.heard(Heard::Failed(fault), now()),
                }
            }
            Done::Probe(number, probed) if number == self.number => {
                self.under_way = None;
                self.probed(probed);
            }
            Done::Turn(site) => self.take_turn(&site),
            Done::Attempt(..) | Done::Probe(..) | Done::Drained => {}
        }
    }

    fn probed(&mut self, probed: Result<(), Fault>) {
        let (result, heard) = match probed {
            Ok(()) => ("answered", Heard::Answered),
            Err(fault @ Fault::Unauthorized) => ("unauthorized", Heard::Missed(fault)),
            Err(fault @ Fault::Forbidden) => ("forbidden", Heard::Missed(fault)),
            Err(fault) => ("missed", Heard::Missed(fault)),
        };
        self.line.metrics.probe(&self.line.name, result);
        self.connection.heard(heard, now());
    }

    /// Puts the new session in the place of the old one, whose calls go on for a while.
    async fn connected(&mut self, version: Version, session: Arc<Session>) {
        self.connection.heard(Heard::Connected(version), now());
        // It may have changed while the attempt was under way.
        session
            .link
            .set_pace(self.current.pace.qps, self.current.pace.burst);
        self.session = Some(Arc::clone(&session));
        let old = self.line.swap(Some(session));
        if self.has_stood {
            let reconnects = &self.line.metrics.reconnects;
            reconnects.get_or_create(&label(&self.line.name)).inc();
        }
        self.has_stood = true;
        self.start_sites().await;
        if let Some(old) = old {
            let cut = self.line.cut.clone();
            self.tasks.spawn(async move {
                old.drain(cut).await;
                Done::Drained
            });
        }
    }

    async fn drop_session(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        self.line.swap(None);
        session.link.cut();
        for post in self.posts.values_mut() {
            post.stop().await;
        }
    }

    /// Ends all tasks, and says of each site that it is down, if it is known why.
    async fn end(mut self) {
        self.drop_session().await;
        // Those that drain see the cut and end by themselves; the others are of no use any more.
        if let Some(under_way) = self.under_way.take() {
            under_way.abort();
        }
        self.leave_sites().await;
        while self.tasks.join_next().await.is_some() {}
        self.line.metrics.forget(&self.line.name);
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => future::pending().await,
    }
}

/// Connects, and asks what is asked once of each connection.
async fn attempt(common: Arc<Common>, wanted: Desired, number: u64) -> Done {
    let connect = async {
        let settings = &common.settings;
        let link = Link::new(&wanted.config, &settings.link).map_err(|_| Fault::BadKubeconfig)?;
        link.set_pace(wanted.pace.qps, wanted.pace.burst);
        let version = greet(&link, &settings.own_namespaces).await?;
        Ok((version, Arc::new(Session::new(link, &wanted))))
    };
    let mut connect = Box::pin(connect);
    // Never closed. Held for the handshake of a server that answers, and not for one that does not.
    let started = common.starts.acquire().await;
    tokio::select! {
        outcome = &mut connect => return Done::Attempt(number, outcome),
        () = sleep(START) => {}
    }
    drop(started);
    Done::Attempt(number, connect.await)
}
