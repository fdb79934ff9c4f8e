//! What the engine remembers of each site: how it stands, whose tasks are there, and what was left there.
//!
//! Owned by one loop, so it needs no locks. A site counts as up once it is connected and everything there was listed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::api::conditions::Reason;
use crate::names::TaskUid;
use crate::plan::ledger::{Ledger, MAX_ORPHANS, Orphan};
use crate::plan::site::{ClusterName, Site, SiteState};

/// One site.
#[derive(Debug)]
pub struct Entry {
    /// How the connection stands.
    announced: SiteState,
    /// Whether everything there was listed since it is connected.
    is_listed: bool,
    /// When it was lost first; kept over everything but its return.
    lost_since: Timestamp,
    /// Whether the ledger says so.
    is_recorded: bool,
    /// Whether the cluster controller was asked for it.
    is_asked: bool,
    /// Tasks that are there, or want to be.
    tasks: HashSet<TaskUid>,
    /// What deleted tasks left there.
    orphans: HashMap<TaskUid, Orphan>,
}

impl Entry {
    fn new(lost_since: Timestamp, is_recorded: bool) -> Self {
        Self {
            announced: SiteState::Down {
                since: lost_since,
                reason: Reason::Connecting,
            },
            is_listed: false,
            lost_since,
            is_recorded,
            is_asked: false,
            tasks: HashSet::new(),
            orphans: HashMap::new(),
        }
    }

    /// How it stands for those who work there.
    fn state(&self) -> SiteState {
        let since = self.lost_since;
        match &self.announced {
            SiteState::Up if self.is_listed => SiteState::Up,
            SiteState::Up => SiteState::Down {
                since,
                reason: Reason::Connecting,
            },
            SiteState::Down { reason, .. } => SiteState::Down {
                since,
                reason: *reason,
            },
            SiteState::Refused { refusal, .. } => SiteState::Refused {
                since,
                refusal: refusal.clone(),
            },
        }
    }
}

/// What a turn of a site means for the loop.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is connected: everything there is to be listed.
    Connected,
    /// It is not, or not any more.
    Lost,
    /// Nobody cares.
    Nothing,
}

/// All sites.
#[derive(Debug, Default)]
pub struct Sites {
    all: HashMap<Arc<Site>, Entry>,
    /// Losses that an earlier process wrote down.
    lost: HashMap<Site, Timestamp>,
}

impl Sites {
    /// Takes in what an earlier process wrote down; the sites where something was left.
    pub fn recall(&mut self, ledger: Ledger, now: Timestamp) -> Vec<Arc<Site>> {
        self.lost = ledger.lost.into_iter().collect();
        for orphan in ledger.orphans {
            self.leave_behind(orphan, now);
        }
        let with_orphans = self.all.iter().filter(|(_, entry)| !entry.orphans.is_empty());
        with_orphans.map(|(site, _)| Arc::clone(site)).collect()
    }

    /// The one copy of a site.
    pub fn intern(&mut self, site: Site, now: Timestamp) -> Arc<Site> {
        if let Some((known, _)) = self.all.get_key_value(&site) {
            return Arc::clone(known);
        }
        let recorded = self.lost.get(&site).copied();
        let site = Arc::new(site);
        let entry = Entry::new(recorded.map_or(now, |since| since.min(now)), recorded.is_some());
        self.all.insert(Arc::clone(&site), entry);
        site
    }

    /// The one copy of a site that is known.
    pub fn known(&self, site: &Site) -> Option<&Arc<Site>> {
        self.all.get_key_value(site).map(|(known, _)| known)
    }

    /// How a site stands.
    pub fn state(&self, site: &Site) -> Option<SiteState> {
        self.all.get(site).map(Entry::state)
    }

    /// Whether what is there can be looked at and changed.
    pub fn is_reached(&self, site: &Site) -> bool {
        self.all
            .get(site)
            .is_some_and(|entry| entry.is_listed && entry.announced == SiteState::Up)
    }

    /// A task is there, or wants to be; whether the site has to be asked for.
    pub fn join(&mut self, site: &Site, task: &TaskUid) -> bool {
        let Some(entry) = self.all.get_mut(site) else {
            return false;
        };
        entry.tasks.insert(task.clone());
        !std::mem::replace(&mut entry.is_asked, true)
    }

    /// The same for what was left there.
    pub fn ask(&mut self, site: &Site) -> bool {
        let entry = self.all.get_mut(site);
        entry.is_some_and(|entry| !std::mem::replace(&mut entry.is_asked, true))
    }

    /// A task is not there any more; whether nobody needs the site now.
    pub fn part(&mut self, site: &Site, task: &TaskUid) -> bool {
        let Some(entry) = self.all.get_mut(site) else {
            return false;
        };
        entry.tasks.remove(task);
        self.is_unused(site)
    }

    /// Whether nobody needs the site any more, for which it is given back. One of the platform's stays known.
    fn is_unused(&mut self, site: &Site) -> bool {
        let Some(entry) = self.all.get_mut(site) else {
            return false;
        };
        if !entry.tasks.is_empty() || !entry.orphans.is_empty() {
            return false;
        }
        let was_asked = std::mem::take(&mut entry.is_asked);
        if matches!(site.cluster, ClusterName::Own(_)) {
            self.all.remove(site);
        }
        was_asked
    }

    /// Takes in what was announced of a site.
    pub fn turn(&mut self, site: &Site, state: SiteState, now: Timestamp) -> Turn {
        let is_platform = matches!(site.cluster, ClusterName::Platform(_));
        if !self.all.contains_key(site) && !is_platform {
            return Turn::Nothing;
        }
        let site = self.intern(site.clone(), now);
        let Some(entry) = self.all.get_mut(&site) else {
            return Turn::Nothing;
        };
        let was_up = std::mem::take(&mut entry.is_listed);
        let turn = match &state {
            SiteState::Up => Turn::Connected,
            SiteState::Down { since, .. } | SiteState::Refused { since, .. } => {
                if was_up {
                    entry.lost_since = (*since).min(now);
                }
                Turn::Lost
            }
        };
        entry.announced = state;
        turn
    }

    /// Everything there was listed; `None` where the connection was lost meanwhile. Else whether the ledger speaks of a loss.
    pub fn listed(&mut self, site: &Site) -> Option<bool> {
        let entry = self.all.get_mut(site)?;
        if entry.announced != SiteState::Up {
            return None;
        }
        entry.is_listed = true;
        self.lost.remove(site);
        Some(std::mem::take(&mut entry.is_recorded))
    }

    /// The loss of a site that is to be written down, if it is not yet; with how many there are already.
    pub fn record_loss(&mut self, site: &Site) -> Option<(Timestamp, usize)> {
        let known = self.all.values().filter(|entry| entry.is_recorded).count();
        let entry = self.all.get_mut(site)?;
        let is_new = !std::mem::replace(&mut entry.is_recorded, true);
        is_new.then_some((entry.lost_since, known))
    }

    /// Tasks that are there, or want to be.
    pub fn tasks(&self, site: &Site) -> Vec<TaskUid> {
        let entry = self.all.get(site);
        entry.map_or_else(Vec::new, |entry| entry.tasks.iter().cloned().collect())
    }

    /// Takes in what a deleted task left; the oldest that has to be forgotten for it.
    pub fn leave_behind(&mut self, orphan: Orphan, now: Timestamp) -> Option<TaskUid> {
        let site = self.intern(orphan.site.clone(), now);
        if let Some(entry) = self.all.get_mut(&site) {
            entry.orphans.insert(orphan.task.clone(), orphan);
        }
        let all = || self.all.values().flat_map(|entry| entry.orphans.values());
        let oldest = (all().count() > MAX_ORPHANS).then(|| all().min_by_key(|orphan| orphan.since));
        let (site, task) = oldest
            .flatten()
            .map(|orphan| (orphan.site.clone(), orphan.task.clone()))?;
        self.settled(&site, &task);
        Some(task)
    }

    /// What was left at a site.
    pub fn orphans(&self, site: &Site) -> Vec<Orphan> {
        let entry = self.all.get(site);
        entry.map_or_else(Vec::new, |entry| entry.orphans.values().cloned().collect())
    }

    /// What was left is gone; whether nobody needs the site now.
    pub fn settled(&mut self, site: &Site, task: &TaskUid) -> bool {
        if let Some(entry) = self.all.get_mut(site) {
            entry.orphans.remove(task);
        }
        self.is_unused(site)
    }
}
