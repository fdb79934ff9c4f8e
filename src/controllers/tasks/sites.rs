//! The sites as the controller knows them: the state of each, the tasks there, and the orphans; and what follows from what happens
//! to them, which are requests to the cluster controller and entries of the ledger.
//!
//! Owned by one loop, so it needs no locks. A site counts as up once it is connected and everything there was listed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::api::conditions::Reason;
use crate::api::names::TaskUid;
use crate::plan::remote::ledger;
use crate::plan::remote::ledger::{Ledger, MAX_ORPHANS, OrphanRecord};
use crate::plan::remote::site::{ClusterName, Site, SiteState};

use super::ledger_writes::LedgerWrites;
use crate::controllers::sweep::paged_sweep::SweepPermits;
use crate::remote::SiteRequest;

/// The state of a site's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SiteListState {
    /// It is not made yet.
    Open,
    /// The cluster forbids it.
    Forbidden,
    /// Everything was seen.
    Whole,
}

/// One site.
#[derive(Debug)]
pub struct SiteRecord {
    /// The last announced state of the connection.
    announced: SiteState,
    /// Whether everything there was listed since it is connected.
    list: SiteListState,
    /// When it was lost first; kept over everything but its return.
    lost_since: Timestamp,
    /// Whether the ledger says so.
    is_recorded: bool,
    /// Whether the cluster controller was asked for it.
    is_asked: bool,
    /// Tasks that are there, or want to be.
    tasks: HashSet<TaskUid>,
    /// What deleted tasks left there.
    orphans: HashMap<TaskUid, OrphanRecord>,
}

impl SiteRecord {
    fn new(lost_since: Timestamp, is_recorded: bool) -> Self {
        Self {
            announced: SiteState::Down {
                since: lost_since,
                reason: Reason::Connecting,
            },
            list: SiteListState::Open,
            lost_since,
            is_recorded,
            is_asked: false,
            tasks: HashSet::new(),
            orphans: HashMap::new(),
        }
    }

    /// The state of the site for the tasks there.
    fn state(&self) -> SiteState {
        let since = self.lost_since;
        match &self.announced {
            SiteState::Disconnected => SiteState::Disconnected,
            SiteState::Up if self.list == SiteListState::Whole => SiteState::Up,
            SiteState::Up => SiteState::Down {
                since,
                reason: if self.list == SiteListState::Forbidden {
                    Reason::Forbidden
                } else {
                    Reason::Connecting
                },
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

/// The meaning of a site's new state for the loop.
#[derive(Debug, PartialEq, Eq)]
pub enum SiteTransition {
    /// It is connected: everything there is to be listed.
    Connected,
    /// It is not, or not any more.
    Lost,
    /// The platform operator keeps the hub away from it.
    KeptAway {
        /// Whether the ledger has a loss, which does not count any more.
        was_recorded: bool,
    },
    /// No task uses the site.
    Nothing,
}

/// A site that no task uses any more.
#[derive(Debug, PartialEq, Eq)]
pub struct UnusedSite {
    /// Whether the cluster controller was asked for it.
    pub was_asked: bool,
    /// Whether the ledger has its loss.
    pub was_recorded: bool,
}

/// All sites.
#[derive(Debug, Default)]
pub struct SiteIndex {
    all: HashMap<Arc<Site>, SiteRecord>,
    /// Losses that an earlier process wrote down.
    lost: HashMap<Site, Timestamp>,
    /// Places for sweeps of them that remove something.
    pub removals: SweepPermits,
    /// What is to be written down of them.
    pub ledger: LedgerWrites,
    /// Requests to the cluster controller that were not sent yet.
    pub requests: Vec<SiteRequest>,
}

impl SiteIndex {
    /// Loads what an earlier process recorded; returns the sites with orphans.
    pub fn load_ledger(&mut self, ledger: Ledger, now: Timestamp) -> Vec<Arc<Site>> {
        self.lost = ledger.lost.into_iter().collect();
        for orphan in ledger.orphans {
            self.insert_orphan(orphan, now);
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
        let entry = SiteRecord::new(recorded.map_or(now, |since| since.min(now)), recorded.is_some());
        self.all.insert(Arc::clone(&site), entry);
        site
    }

    /// The one copy of a site that is known.
    pub fn known(&self, site: &Site) -> Option<&Arc<Site>> {
        self.all.get_key_value(site).map(|(known, _)| known)
    }

    /// The state of a site.
    pub fn state(&self, site: &Site) -> Option<SiteState> {
        self.all.get(site).map(SiteRecord::state)
    }

    /// Whether the hub can read and change the objects there.
    pub fn is_reached(&self, site: &Site) -> bool {
        self.all
            .get(site)
            .is_some_and(|entry| entry.list == SiteListState::Whole && entry.announced == SiteState::Up)
    }

    /// A task is there, or wants to be: the site is asked for, unless it is already. Returns whether it was not.
    pub fn add_task(&mut self, site: &Site, task: &TaskUid) -> bool {
        let Some(entry) = self.all.get_mut(site) else {
            return false;
        };
        entry.tasks.insert(task.clone());
        self.request_for_orphans(site)
    }

    /// Asks for a site where something was left, unless it is asked for already. Returns whether it was not.
    pub fn request_for_orphans(&mut self, site: &Site) -> bool {
        let Some(known) = self.known(site).cloned() else {
            return false;
        };
        let entry = self.all.get_mut(site);
        let is_new = entry.is_some_and(|entry| !std::mem::replace(&mut entry.is_asked, true));
        if is_new {
            self.requests.push(SiteRequest::Open(known));
        }
        is_new
    }

    /// Removes a task from a site; returns the site if no task uses it now.
    pub fn remove_task(&mut self, site: &Site, task: &TaskUid) -> Option<UnusedSite> {
        self.all.get_mut(site)?.tasks.remove(task);
        self.remove_if_unused(site)
    }

    /// Releases a site that no task uses. The hub keeps a platform's site in the index.
    fn remove_if_unused(&mut self, site: &Site) -> Option<UnusedSite> {
        let known = self.known(site).cloned()?;
        let entry = self.all.get_mut(site)?;
        if !entry.tasks.is_empty() || !entry.orphans.is_empty() {
            return None;
        }
        let unused = UnusedSite {
            was_asked: std::mem::take(&mut entry.is_asked),
            was_recorded: std::mem::take(&mut entry.is_recorded),
        };
        if unused.was_recorded {
            self.ledger.add(ledger::forget_loss(site));
        }
        if unused.was_asked {
            self.requests.push(SiteRequest::Close(known));
        }
        if matches!(site.cluster, ClusterName::Own(_)) {
            self.all.remove(site);
        }
        Some(unused)
    }

    /// Applies the announced state of a site.
    pub fn transition(&mut self, site: &Site, state: SiteState, now: Timestamp) -> SiteTransition {
        let is_platform = matches!(site.cluster, ClusterName::Platform(_));
        if !self.all.contains_key(site) && !is_platform {
            return SiteTransition::Nothing;
        }
        let site = self.intern(site.clone(), now);
        let Some(entry) = self.all.get_mut(&site) else {
            return SiteTransition::Nothing;
        };
        let was_up = std::mem::replace(&mut entry.list, SiteListState::Open) == SiteListState::Whole;
        if entry.announced == SiteState::Disconnected {
            // The time of a loss counts from the first attempt to connect again.
            entry.lost_since = now;
        }
        let transition = match &state {
            SiteState::Up => SiteTransition::Connected,
            SiteState::Down { since, .. } | SiteState::Refused { since, .. } => {
                if was_up {
                    entry.lost_since = (*since).min(now);
                }
                SiteTransition::Lost
            }
            SiteState::Disconnected => {
                self.lost.remove(&*site);
                let was_recorded = std::mem::take(&mut entry.is_recorded);
                if was_recorded {
                    self.ledger.add(ledger::forget_loss(&site));
                }
                SiteTransition::KeptAway { was_recorded }
            }
        };
        entry.announced = state;
        transition
    }

    /// Everything at the site was listed. `None` where the connection was lost since; else whether a loss was written down, which is over.
    pub fn listed(&mut self, site: &Site) -> Option<bool> {
        let entry = self.all.get_mut(site)?;
        if entry.announced != SiteState::Up {
            return None;
        }
        entry.list = SiteListState::Whole;
        self.lost.remove(site);
        let was_recorded = std::mem::take(&mut entry.is_recorded);
        if was_recorded {
            self.ledger.add(ledger::forget_loss(site));
        }
        Some(was_recorded)
    }

    /// The cluster forbids the list; returns whether that is new. A site that was listed before stays reached.
    pub fn forbidden(&mut self, site: &Site) -> bool {
        let entry = self
            .all
            .get_mut(site)
            .filter(|entry| entry.list == SiteListState::Open);
        entry.is_some_and(|entry| {
            entry.list = SiteListState::Forbidden;
            true
        })
    }

    /// Has the loss of a site written down, and returns it, if that is not done yet.
    pub fn record_loss(&mut self, site: &Site) -> Option<Timestamp> {
        let entry = self.all.get_mut(site)?;
        let is_new = !std::mem::replace(&mut entry.is_recorded, true);
        let since = is_new.then_some(entry.lost_since)?;
        self.ledger.add(ledger::record_loss(site, since));
        Some(since)
    }

    /// Tasks that are there, or want to be.
    pub fn tasks(&self, site: &Site) -> Vec<TaskUid> {
        let entry = self.all.get(site);
        entry.map_or_else(Vec::new, |entry| entry.tasks.iter().cloned().collect())
    }

    /// Adds an orphan, whose site is asked for on its own from now on; returns the oldest one if it has to be forgotten for it.
    pub fn add_orphan(&mut self, orphan: OrphanRecord, now: Timestamp) -> Option<TaskUid> {
        let site = orphan.site.clone();
        let forgotten = self.insert_orphan(orphan, now);
        if let Some(task) = &forgotten {
            tracing::warn!("too much was left on clusters; the oldest is forgotten");
            self.ledger.add(ledger::forget_orphan(task));
        }
        self.request_for_orphans(&site);
        forgotten
    }

    fn insert_orphan(&mut self, orphan: OrphanRecord, now: Timestamp) -> Option<TaskUid> {
        let site = self.intern(orphan.site.clone(), now);
        if let Some(entry) = self.all.get_mut(&site) {
            entry.orphans.insert(orphan.task.clone(), orphan);
        }
        let all = || self.all.values().flat_map(|entry| entry.orphans.values());
        let oldest = (all().count() > MAX_ORPHANS).then(|| all().min_by_key(|orphan| orphan.since));
        let (site, task) = oldest
            .flatten()
            .map(|orphan| (orphan.site.clone(), orphan.task.clone()))?;
        self.drop_orphan(&site, &task);
        Some(task)
    }

    /// What was left is not written down any more. Returns at which site, where no task uses that now.
    pub fn forget_orphan(&mut self, task: &TaskUid) -> Option<(Arc<Site>, UnusedSite)> {
        let mut all = self.all.iter();
        let (site, _) = all.find(|(_, entry)| entry.orphans.contains_key(task))?;
        let site = Arc::clone(site);
        let unused = self.drop_orphan(&site, task)?;
        Some((site, unused))
    }

    /// What was left at a site.
    pub fn orphans(&self, site: &Site) -> Vec<OrphanRecord> {
        let entry = self.all.get(site);
        entry.map_or_else(Vec::new, |entry| entry.orphans.values().cloned().collect())
    }

    /// An orphan is gone; returns the site if no task uses it now.
    pub fn remove_orphan(&mut self, site: &Site, task: &TaskUid) -> Option<UnusedSite> {
        self.ledger.add(ledger::forget_orphan(task));
        self.drop_orphan(site, task)
    }

    /// The same of several.
    pub fn remove_orphans(&mut self, site: &Site, tasks: &[TaskUid]) {
        for task in tasks {
            self.remove_orphan(site, task);
        }
    }

    fn drop_orphan(&mut self, site: &Site, task: &TaskUid) -> Option<UnusedSite> {
        self.all.get_mut(site)?.orphans.remove(task);
        self.remove_if_unused(site)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::remote::site::TenantKubeconfig;
    use crate::plan::task::tenant::ReadIdentity;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn platform() -> Site {
        Site {
            cluster: ClusterName::Platform("east".to_owned()),
            namespace: "renders".to_owned(),
        }
    }

    fn own() -> Site {
        Site {
            cluster: ClusterName::Own(TenantKubeconfig {
                identity: ReadIdentity::Hub,
                namespace: "team-a".to_owned(),
                name: "edge".to_owned(),
                key: None,
                crosses: false,
            }),
            namespace: "renders".to_owned(),
        }
    }

    fn down(second: i64) -> SiteState {
        SiteState::Down {
            since: at(second),
            reason: Reason::Unreachable,
        }
    }

    fn since(sites: &SiteIndex, site: &Site) -> Option<Timestamp> {
        match sites.state(site)? {
            SiteState::Down { since, .. } | SiteState::Refused { since, .. } => Some(since),
            SiteState::Up | SiteState::Disconnected => None,
        }
    }

    /// Holds: B1.
    #[test]
    fn no_time_counts_while_the_hub_is_kept_away() {
        let (mut sites, site) = (SiteIndex::default(), platform());
        sites.transition(&site, SiteState::Up, at(0));
        sites.listed(&site);
        let away = |was_recorded| SiteTransition::KeptAway { was_recorded };
        // A loss that began before is forgotten, here and in the ledger.
        sites.transition(&site, down(50), at(51));
        sites.record_loss(&site);
        assert_eq!(
            sites.transition(&site, SiteState::Disconnected, at(60)),
            away(true)
        );
        assert_eq!(
            sites.transition(&site, SiteState::Disconnected, at(70)),
            away(false)
        );
        assert_eq!(sites.state(&site), Some(SiteState::Disconnected));
        assert!(!sites.is_reached(&site) && sites.listed(&site).is_none());
        // It counts from the next attempt to connect, and not from the loss that the connection reports.
        sites.transition(&site, down(55), at(900));
        assert_eq!(since(&sites, &site), Some(at(900)));
        sites.transition(&site, down(901), at(901));
        assert_eq!(since(&sites, &site), Some(at(900)), "the first loss since");
        // The same where an earlier process wrote the loss down.
        let mut sites = SiteIndex::default();
        let ledger = Ledger {
            lost: vec![(platform(), at(-900))],
            orphans: Vec::new(),
        };
        sites.load_ledger(ledger, at(0));
        assert_eq!(
            sites.transition(&site, SiteState::Disconnected, at(1)),
            away(true)
        );
        sites.transition(&site, SiteState::Up, at(2));
        assert_eq!(since(&sites, &site), Some(at(2)), "not listed yet");
    }

    #[test]
    fn a_site_is_up_once_everything_there_was_listed() {
        let (mut sites, site) = (SiteIndex::default(), platform());
        assert_eq!(
            sites.transition(&site, SiteState::Up, at(0)),
            SiteTransition::Connected
        );
        assert!(!sites.is_reached(&site) && since(&sites, &site) == Some(at(0)));
        assert_eq!(sites.listed(&site), Some(false));
        assert!(sites.is_reached(&site) && sites.state(&site) == Some(SiteState::Up));
        assert_eq!(sites.transition(&site, down(50), at(50)), SiteTransition::Lost);
        assert_eq!(sites.listed(&site), None, "a list of before says nothing now");
    }

    #[test]
    fn a_loss_counts_from_the_first_over_everything_but_the_return() {
        let (mut sites, site) = (SiteIndex::default(), platform());
        sites.transition(&site, SiteState::Up, at(0));
        sites.listed(&site);
        sites.transition(&site, down(50), at(51));
        assert_eq!(sites.record_loss(&site), Some(at(50)));
        assert_eq!(sites.record_loss(&site), None, "once");
        for transition in [down(60), SiteState::Up, down(70)] {
            sites.transition(&site, transition, at(80));
            assert_eq!(since(&sites, &site), Some(at(50)));
        }
        sites.transition(&site, SiteState::Up, at(90));
        assert_eq!(sites.listed(&site), Some(true), "the ledger spoke of it");
        sites.transition(&site, down(200), at(201));
        assert_eq!(since(&sites, &site), Some(at(200)), "another loss");
    }

    #[test]
    fn what_an_earlier_process_wrote_down_goes_on() {
        let mut sites = SiteIndex::default();
        let orphan = OrphanRecord {
            site: own(),
            task: TaskUid::new("t1"),
            tenant: "team-a".to_owned(),
            name: "render-x".to_owned(),
            job_uid: None,
            secret_uid: None,
            since: at(-50),
        };
        let ledger = Ledger {
            lost: vec![(platform(), at(-100))],
            orphans: vec![orphan],
        };
        let asked = sites.load_ledger(ledger, at(0));
        assert_eq!(
            asked.iter().map(|site| (**site).clone()).collect::<Vec<_>>(),
            [own()]
        );
        let site = sites.intern(platform(), at(0));
        assert_eq!(since(&sites, &site), Some(at(-100)));
        assert!(
            sites.request_for_orphans(&own()) && !sites.request_for_orphans(&own()),
            "asked for once"
        );
        assert_eq!(
            sites.remove_task(&own(), &TaskUid::new("t2")),
            None,
            "something was left there"
        );
        let unused = sites.remove_orphan(&own(), &TaskUid::new("t1"));
        assert_eq!(unused.map(|unused| unused.was_asked), Some(true));
        assert!(sites.known(&own()).is_none());
    }

    #[test]
    fn of_what_a_tenant_named_nothing_stays() {
        let (mut sites, task) = (SiteIndex::default(), TaskUid::new("t1"));
        assert_eq!(
            sites.transition(&own(), SiteState::Up, at(0)),
            SiteTransition::Nothing
        );
        assert!(sites.known(&own()).is_none(), "no task asked for it");
        let site = sites.intern(own(), at(0));
        assert!(sites.add_task(&site, &task));
        assert!(
            !sites.add_task(&site, &TaskUid::new("t2")),
            "one question for all"
        );
        assert_eq!(sites.remove_task(&site, &TaskUid::new("t2")), None);
        sites.transition(&site, down(5), at(5));
        sites.record_loss(&site);
        let unused = UnusedSite {
            was_asked: true,
            was_recorded: true,
        };
        assert_eq!(sites.remove_task(&site, &task), Some(unused));
        assert!(sites.known(&own()).is_none());
    }

    #[test]
    fn a_site_is_asked_for_once_closed_with_its_last_task_and_its_loss_forgotten_then() {
        let (mut sites, task) = (SiteIndex::default(), TaskUid::new("t1"));
        let site = sites.intern(platform(), at(0));
        sites.add_task(&site, &task);
        sites.add_task(&site, &TaskUid::new("t2"));
        sites.transition(&site, down(50), at(50));
        sites.record_loss(&site);
        assert_eq!(sites.ledger.take(), Some(ledger::record_loss(&site, at(0))));
        sites.ledger.end(None);
        sites.remove_task(&site, &task);
        assert_eq!(sites.ledger.take(), None, "another task is there");
        sites.remove_task(&site, &TaskUid::new("t2"));
        assert_eq!(sites.ledger.take(), Some(ledger::forget_loss(&site)));
        let requests = std::mem::take(&mut sites.requests);
        assert!(
            matches!(&requests[..], [SiteRequest::Open(one), SiteRequest::Close(other)] if *one == site && *other == site)
        );
    }

    #[test]
    fn of_too_many_orphans_the_oldest_is_forgotten() {
        let mut sites = SiteIndex::default();
        let orphan = |n: usize| OrphanRecord {
            site: platform(),
            task: TaskUid::new(&format!("t{n}")),
            tenant: "team-a".to_owned(),
            name: "render-x".to_owned(),
            job_uid: None,
            secret_uid: None,
            since: at(i64::try_from(n).unwrap()),
        };
        for n in 0..MAX_ORPHANS {
            assert_eq!(sites.add_orphan(orphan(n), at(0)), None);
        }
        let elsewhere = OrphanRecord {
            site: own(),
            task: TaskUid::new("elsewhere"),
            ..orphan(0)
        };
        let mut others = SiteIndex::default();
        others.add_orphan(elsewhere, at(0));
        for n in 1..=MAX_ORPHANS {
            others.add_orphan(orphan(n), at(0));
        }
        let closed = others.requests.pop();
        assert!(matches!(closed, Some(SiteRequest::Close(site)) if *site == own()));
        let forgotten = sites.add_orphan(orphan(MAX_ORPHANS), at(0));
        assert_eq!(forgotten, Some(TaskUid::new("t0")));
        assert_eq!(sites.orphans(&platform()).len(), MAX_ORPHANS);
        // And what gave way in the ledger.
        let unused = sites.forget_orphan(&TaskUid::new("t1"));
        assert_eq!(unused, None, "the site has others");
        assert_eq!(sites.forget_orphan(&TaskUid::new("t1")), None);
        assert_eq!(sites.orphans(&platform()).len(), MAX_ORPHANS - 1);
    }
}
