//! The sites of one connection: opened, watched, told of and closed.

use std::sync::Arc;

use super::actor::{ConnectionActor, ConnectionTaskResult};
use super::common::{ConnectionContext, now};
use super::report::ConnectionReport;
use super::shared::SiteClient;
use super::site_watch::{SiteWatch, SiteWatchMessage, SiteWatchUpdate};
use crate::base::metrics::clusters::label;
use crate::kubernetes::watch::EngineEvent;
use crate::plan::remote::health::{ConnectionEvent, ConnectionFault, ConnectionHealth, ConnectionPhase};
use crate::plan::remote::site::{Site, SiteState};

impl ConnectionActor {
    /// Opens and closes sites until they are those that are wanted.
    pub(super) async fn place_sites(&mut self) {
        let gone = self.posts.iter().filter(|(site, post)| {
            let wanted = self.current.sites.get(*site);
            wanted.is_none_or(|turn| !Arc::ptr_eq(turn, &post.permit))
        });
        let gone: Vec<Arc<Site>> = gone.map(|(site, _)| Arc::clone(site)).collect();
        for site in gone {
            if let Some(mut post) = self.posts.remove(&site) {
                self.common.unseat(&site, &post);
                post.stop().await;
            }
        }
        let wanted = self.current.sites.iter();
        let new = wanted.filter(|(site, _)| !self.posts.contains_key(*site));
        let new: Vec<_> = new
            .map(|(site, turn)| (Arc::clone(site), Arc::clone(turn)))
            .collect();
        for (site, turn) in new {
            let before = turn.before.clone();
            self.posts
                .insert(Arc::clone(&site), SiteWatch::new(&site, turn, now()));
            self.tasks.spawn(async move {
                before.done().await;
                ConnectionTaskResult::Turn(site)
            });
        }
    }

    /// Nobody else speaks of the site any more: its watch is opened, where the connection stands.
    pub(super) fn take_turn(&mut self, site: &Arc<Site>) {
        let Some(post) = self.posts.get_mut(site) else {
            return;
        };
        // Of a turn that was given up meanwhile.
        if !post.permit.before.are_done() || post.is_started() {
            return;
        }
        if let Some(session) = &self.session {
            post.start(
                &self.common,
                site,
                Arc::clone(session),
                self.seed,
                self.watch_messages.clone(),
            );
        }
    }

    /// Opens the watches of all sites on a new connection, each after its last one ended.
    pub(super) async fn start_sites(&mut self) {
        self.is_settled = false;
        let Some(session) = self.session.clone() else {
            return;
        };
        for (site, post) in &mut self.posts {
            post.stop().await;
            if post.permit.before.are_done() {
                post.start(
                    &self.common,
                    site,
                    Arc::clone(&session),
                    self.seed,
                    self.watch_messages.clone(),
                );
            }
        }
    }

    /// Takes in what a watch says; a watch that is not the site's any more says nothing.
    pub(super) fn note(&mut self, note: &SiteWatchMessage) {
        let Some(post) = self.posts.get_mut(&note.site) else {
            return;
        };
        if post.number != note.number || self.session.is_none() {
            return;
        }
        let now = now();
        match note.news {
            SiteWatchUpdate::Synced => post.watching.synced(),
            SiteWatchUpdate::Ended(fault) => {
                post.watching.ended(fault, &self.common.settings.timing, now);
                if matches!(
                    fault,
                    ConnectionFault::Unreachable | ConnectionFault::Unauthorized
                ) {
                    self.handle(ConnectionEvent::Doubt, None);
                }
                if fault == ConnectionFault::Forbidden {
                    self.line.metrics.probe(&self.line.name, "forbidden");
                }
            }
        }
    }

    /// Tells the engine what is new of each site, and notes what is new of the connection.
    pub(super) async fn tell(&mut self) {
        let health = self.connection.health();
        let now = now();
        if !self.connection.is_up() {
            for post in self.posts.values_mut() {
                post.watching.lost(&health, now);
            }
        }
        // A site that was opened later is no reason for others to wait.
        self.is_settled |= self.posts.values().all(|post| post.watching.is_settled());
        let sites: Vec<Arc<Site>> = self.posts.keys().map(Arc::clone).collect();
        for site in sites {
            self.tell_of(&site).await;
        }
        self.note_health(health);
    }

    /// Notes what is to be reported, and shows it in the metrics.
    fn note_health(&mut self, health: ConnectionHealth) {
        let refused = |(site, post): (&Arc<Site>, &SiteWatch)| {
            let fault = if self.is_settled {
                post.watching.fault()
            } else {
                Some(ConnectionFault::Connecting)
            };
            fault.map(|fault| (Arc::clone(site), fault))
        };
        let refused: Vec<_> = if health.phase == ConnectionPhase::Up {
            self.posts.iter().filter_map(refused).collect()
        } else {
            Vec::new()
        };
        // What is refused is no use; a site that is only being opened is no loss of the others.
        let is_refused = refused
            .iter()
            .any(|(_, fault)| *fault != ConnectionFault::Connecting);
        let stands = health.phase == ConnectionPhase::Up && !is_refused;
        let connected = &self.line.metrics.connected;
        connected
            .get_or_create(&label(&self.line.name))
            .set(i64::from(stands));
        self.report.put(ConnectionReport {
            key: self.key.clone(),
            health,
            refused,
            failure: self.failure,
        });
    }

    async fn tell_of(&mut self, site: &Arc<Site>) {
        let Some(post) = self.posts.get_mut(site) else {
            return;
        };
        if !post.permit.before.are_done() {
            return;
        }
        let Some(state) = post.news(site, now()) else {
            return;
        };
        if state == SiteState::Up && !self.is_settled {
            return;
        }
        let was_up = matches!(post.announced, Some((SiteState::Up, _)));
        post.announced = Some((state.clone(), post.number));
        // The way is there before the engine hears of it, and is gone before it hears of that.
        match state {
            SiteState::Up if was_up => {}
            SiteState::Up => {
                post.valid = post.permit.closed.child_token();
                let user = post.user.clone().unwrap_or_default();
                let seat = SiteClient::new(Arc::clone(&self.line), user, post.valid.clone());
                self.common.site_clients.insert(Arc::clone(site), seat);
            }
            SiteState::Disconnected | SiteState::Down { .. } | SiteState::Refused { .. } => {
                self.common.unseat(site, post);
            }
        }
        _ = self
            .common
            .inputs
            .send(EngineEvent::Site(Arc::clone(site), state).into())
            .await;
    }

    /// Closes all sites at the end, and says why, if anybody is to know.
    pub(super) async fn leave_sites(&mut self) {
        let wanted = self.desired.borrow_and_update().clone();
        for (site, mut post) in std::mem::take(&mut self.posts) {
            self.common.unseat(&site, &post);
            post.stop().await;
            let is_own = wanted
                .sites
                .get(&site)
                .is_some_and(|turn| Arc::ptr_eq(turn, &post.permit));
            let Some(reason) = wanted.end.filter(|_| is_own) else {
                continue;
            };
            post.permit.before.done().await;
            let since = post.since(now());
            let state = SiteState::Down { since, reason };
            _ = self
                .common
                .inputs
                .send(EngineEvent::Site(site, state).into())
                .await;
        }
    }
}

impl ConnectionContext {
    /// Takes away the way that a post gave to its site.
    fn unseat(&self, site: &Arc<Site>, post: &SiteWatch) {
        post.valid.cancel();
        self.site_clients.remove_if(site, |_, seat| !seat.is_valid());
    }
}
