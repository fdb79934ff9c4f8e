//! The sites of one connection: opened, watched, told of and closed.

use std::sync::Arc;

use super::actor::{Actor, Done};
use super::common::{Common, now};
use super::line::Seat;
use super::post::{News, Note, Post};
use super::report::Report;
use crate::base::metrics::clusters::label;
use crate::kubernetes::watch::Input;
use crate::plan::remote::health::{Fault, Health, Heard, Phase};
use crate::plan::remote::site::{Site, SiteState};

impl Actor {
    /// Opens and closes sites until they are those that are wanted.
    pub(super) async fn place_sites(&mut self) {
        let gone = self.posts.iter().filter(|(site, post)| {
            let wanted = self.current.sites.get(*site);
            wanted.is_none_or(|turn| !Arc::ptr_eq(turn, &post.turn))
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
                .insert(Arc::clone(&site), Post::new(&site, turn, now()));
            self.tasks.spawn(async move {
                before.done().await;
                Done::Turn(site)
            });
        }
    }

    /// Nobody else speaks of the site any more: its watch is opened, where the connection stands.
    pub(super) fn take_turn(&mut self, site: &Arc<Site>) {
        let Some(post) = self.posts.get_mut(site) else {
            return;
        };
        // Of a turn that was given up meanwhile.
        if !post.turn.before.are_done() || post.is_started() {
            return;
        }
        if let Some(session) = &self.session {
            post.start(
                &self.common,
                site,
                Arc::clone(session),
                self.seed,
                self.notes.clone(),
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
            if post.turn.before.are_done() {
                post.start(
                    &self.common,
                    site,
                    Arc::clone(&session),
                    self.seed,
                    self.notes.clone(),
                );
            }
        }
    }

    /// Takes in what a watch says; a watch that is not the site's any more says nothing.
    pub(super) fn note(&mut self, note: &Note) {
        let Some(post) = self.posts.get_mut(&note.site) else {
            return;
        };
        if post.number != note.number || self.session.is_none() {
            return;
        }
        let now = now();
        match note.news {
            News::Synced => post.watching.synced(),
            News::Ended(fault) => {
                post.watching.ended(fault, &self.common.settings.timing, now);
                if matches!(fault, Fault::Unreachable | Fault::Unauthorized) {
                    self.hear(Heard::Doubt, None);
                }
                if fault == Fault::Forbidden {
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
    fn note_health(&mut self, health: Health) {
        let refused = |(site, post): (&Arc<Site>, &Post)| {
            let fault = if self.is_settled {
                post.watching.fault()
            } else {
                Some(Fault::Connecting)
            };
            fault.map(|fault| (Arc::clone(site), fault))
        };
        let refused: Vec<_> = if health.phase == Phase::Up {
            self.posts.iter().filter_map(refused).collect()
        } else {
            Vec::new()
        };
        // What is refused is no use; a site that is only being opened is no loss of the others.
        let is_refused = refused.iter().any(|(_, fault)| *fault != Fault::Connecting);
        let stands = health.phase == Phase::Up && !is_refused;
        let connected = &self.line.metrics.connected;
        connected
            .get_or_create(&label(&self.line.name))
            .set(i64::from(stands));
        self.told.put(Report {
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
        if !post.turn.before.are_done() {
            return;
        }
        let Some(state) = post.news(site, now()) else {
            return;
        };
        if state == SiteState::Up && !self.is_settled {
            return;
        }
        let was_up = matches!(post.told, Some((SiteState::Up, _)));
        post.told = Some((state.clone(), post.number));
        // The way is there before the engine hears of it, and is gone before it hears of that.
        match state {
            SiteState::Up if was_up => {}
            SiteState::Up => {
                post.valid = post.turn.closed.child_token();
                let user = post.user.clone().unwrap_or_default();
                let seat = Seat::new(Arc::clone(&self.line), user, post.valid.clone());
                self.common.seats.insert(Arc::clone(site), seat);
            }
            SiteState::Disconnected | SiteState::Down { .. } | SiteState::Refused { .. } => {
                self.common.unseat(site, post);
            }
        }
        _ = self
            .common
            .inputs
            .send(Input::Site(Arc::clone(site), state).into())
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
                .is_some_and(|turn| Arc::ptr_eq(turn, &post.turn));
            let Some(reason) = wanted.end.filter(|_| is_own) else {
                continue;
            };
            post.turn.before.done().await;
            let since = post.since(now());
            let state = SiteState::Down { since, reason };
            _ = self.common.inputs.send(Input::Site(site, state).into()).await;
        }
    }
}

impl Common {
    /// Takes away the way that a post gave to its site.
    fn unseat(&self, site: &Arc<Site>, post: &Post) {
        post.valid.cancel();
        self.seats.remove_if(site, |_, seat| !seat.is_valid());
    }
}
