//! The sites of one connection: opened, watched, announced and closed.

use std::sync::Arc;

use super::actor::{ConnectionActor, ConnectionTaskResult};
use super::common::{ConnectionContext, now};
use super::report::ConnectionReport;
use super::site_watch::{SiteWatch, SiteWatchMessage, SiteWatchUpdate};
use crate::base::metrics::clusters::label;
use crate::kubernetes::watch::TaskWatchEvent;
use crate::plan::remote::health::{ConnectionEvent, ConnectionFault, ConnectionHealth, ConnectionPhase};
use crate::plan::remote::site::{Site, SiteState};

impl ConnectionActor {
    /// Opens and closes sites until they match the desired state.
    pub(super) async fn update_sites(&mut self) {
        let gone = self.site_watches.iter().filter(|(site, site_watch)| {
            let wanted = self.current.sites.get(*site);
            wanted.is_none_or(|permit| !Arc::ptr_eq(permit, &site_watch.permit))
        });
        let gone: Vec<Arc<Site>> = gone.map(|(site, _)| Arc::clone(site)).collect();
        for site in gone {
            if let Some(mut site_watch) = self.site_watches.remove(&site) {
                self.common.remove_site_client(&site, &site_watch);
                site_watch.stop().await;
            }
        }
        let wanted = self.current.sites.iter();
        let new = wanted.filter(|(site, _)| !self.site_watches.contains_key(*site));
        let new: Vec<_> = new
            .map(|(site, permit)| (Arc::clone(site), Arc::clone(permit)))
            .collect();
        for (site, permit) in new {
            let before = permit.before.clone();
            self.site_watches
                .insert(Arc::clone(&site), SiteWatch::new(&site, permit));
            self.tasks.spawn(async move {
                before.done().await;
                ConnectionTaskResult::Permitted(site)
            });
        }
    }

    /// Opens the watch of a site whose earlier announcers are done, if the connection is up.
    pub(super) fn start_permitted_site(&mut self, site: &Arc<Site>) {
        let Some(site_watch) = self.site_watches.get_mut(site) else {
            return;
        };
        // The result may belong to a permit that was dropped meanwhile.
        if !site_watch.permit.before.are_done() || site_watch.is_started() {
            return;
        }
        if let Some(session) = &self.session {
            site_watch.start(
                &self.common,
                site,
                Arc::clone(session),
                self.seed,
                self.watch_messages.clone(),
            );
        }
    }

    /// Opens the watches of all sites on a new connection, each after its previous watch ended.
    pub(super) async fn start_sites(&mut self) {
        self.is_settled = false;
        self.stop_site_watches().await;
        let sites: Vec<Arc<Site>> = self.site_watches.keys().map(Arc::clone).collect();
        for site in sites {
            self.start_permitted_site(&site);
        }
    }

    pub(super) async fn stop_site_watches(&mut self) {
        for site_watch in self.site_watches.values_mut() {
            site_watch.stop().await;
        }
    }

    /// Handles a message of a site watch, unless a newer watch has replaced it.
    pub(super) fn handle_watch_message(&mut self, message: &SiteWatchMessage) {
        let Some(site_watch) = self.site_watches.get_mut(&message.site) else {
            return;
        };
        if site_watch.number != message.number || self.session.is_none() {
            return;
        }
        let now = now();
        match message.update {
            SiteWatchUpdate::Synced => site_watch.watching.synced(),
            SiteWatchUpdate::Ended(fault) => {
                site_watch
                    .watching
                    .ended(fault, &self.common.settings.timing, now);
                if matches!(
                    fault,
                    ConnectionFault::Unreachable | ConnectionFault::Unauthorized
                ) {
                    self.handle(ConnectionEvent::SuspectedLoss, None);
                }
                if fault == ConnectionFault::Forbidden {
                    self.shared.metrics.probe(&self.shared.name, "forbidden");
                }
            }
        }
    }

    /// Sends each changed site state to the task controller, and updates the report of the connection.
    pub(super) async fn announce_changes(&mut self) {
        let health = self.connection.health();
        if !self.connection.is_up() {
            for site_watch in self.site_watches.values_mut() {
                site_watch.watching.lost(&health);
            }
        }
        // Sites that are up already must not wait for one that was opened later.
        self.is_settled |= self
            .site_watches
            .values()
            .all(|site_watch| site_watch.watching.is_settled());
        let sites: Vec<Arc<Site>> = self.site_watches.keys().map(Arc::clone).collect();
        for site in sites {
            self.announce_site(&site).await;
        }
        self.update_report(health);
    }

    /// Updates the next report, and the metric `connected`.
    fn update_report(&mut self, health: ConnectionHealth) {
        let refused = |(site, site_watch): (&Arc<Site>, &SiteWatch)| {
            let fault = if self.is_settled {
                site_watch.watching.fault()
            } else {
                Some(ConnectionFault::Connecting)
            };
            fault.map(|fault| (Arc::clone(site), fault))
        };
        let refused: Vec<_> = if health.phase == ConnectionPhase::Up {
            self.site_watches.iter().filter_map(refused).collect()
        } else {
            Vec::new()
        };
        // A refused site counts as not connected; a site that is only being opened does not.
        let is_refused = refused
            .iter()
            .any(|(_, fault)| *fault != ConnectionFault::Connecting);
        let is_usable = health.phase == ConnectionPhase::Up && !is_refused;
        let connected = &self.shared.metrics.connected;
        connected
            .get_or_create(&label(&self.shared.name))
            .set(i64::from(is_usable));
        self.report.update(ConnectionReport {
            key: self.key.clone(),
            health,
            refused,
            failure: self.failure,
        });
    }

    async fn announce_site(&mut self, site: &Arc<Site>) {
        let Some(site_watch) = self.site_watches.get_mut(site) else {
            return;
        };
        if !site_watch.permit.before.are_done() {
            return;
        }
        let Some(state) = site_watch.next_announcement(site) else {
            return;
        };
        if state == SiteState::Up {
            if !self.is_settled {
                return;
            }
            site_watch.session.set(self.session.as_ref());
        }
        let was_up = matches!(site_watch.announced, Some((SiteState::Up, _)));
        site_watch.announced = Some((state.clone(), site_watch.number));
        // The site client exists before the task controller learns that the site is up, and is gone before it learns that it is down.
        match state {
            SiteState::Up if was_up => {}
            SiteState::Up => {
                let client = site_watch.client(&self.shared);
                self.common.site_clients.insert(Arc::clone(site), client);
            }
            SiteState::Disconnected | SiteState::Down { .. } | SiteState::Refused(_) => {
                self.common.remove_site_client(site, site_watch);
            }
        }
        _ = self
            .common
            .inputs
            .send(TaskWatchEvent::Site(Arc::clone(site), state).into())
            .await;
    }

    /// Closes all sites at the end, and announces those that are still desired as down, with the reason of the end.
    pub(super) async fn close_sites(&mut self) {
        let wanted = self.desired.borrow_and_update().clone();
        for (site, mut site_watch) in std::mem::take(&mut self.site_watches) {
            self.common.remove_site_client(&site, &site_watch);
            site_watch.stop().await;
            let is_own = wanted
                .sites
                .get(&site)
                .is_some_and(|permit| Arc::ptr_eq(permit, &site_watch.permit));
            let Some(reason) = wanted.end.filter(|_| is_own) else {
                continue;
            };
            site_watch.permit.before.done().await;
            let state = SiteState::down(reason);
            _ = self
                .common
                .inputs
                .send(TaskWatchEvent::Site(site, state).into())
                .await;
        }
    }
}

impl ConnectionContext {
    /// Removes the client that a site watch published for its site.
    fn remove_site_client(&self, site: &Arc<Site>, site_watch: &SiteWatch) {
        site_watch.valid.cancel();
        site_watch.session.set(None);
        self.remove_ended_client(site);
    }

    /// Removes the client of a site, if calls through it fail already.
    pub(in crate::remote) fn remove_ended_client(&self, site: &Site) {
        self.site_clients.remove_if(site, |_, client| !client.is_valid());
    }
}
