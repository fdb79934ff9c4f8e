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
use crate::plan::remote::site::{ClusterName, KnownSite, Site, SiteState, SiteTimes};

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
    /// When this process heard of it first.
    known_since: Timestamp,
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
    fn new(recorded: Option<Timestamp>, now: Timestamp) -> Self {
        Self {
            announced: SiteState::down(Reason::Connecting),
            list: SiteListState::Open,
            lost_since: recorded.map_or(now, |since| since.min(now)),
            known_since: now,
            is_recorded: recorded.is_some(),
            is_asked: false,
            tasks: HashSet::new(),
            orphans: HashMap::new(),
        }
    }

    /// The state of the site for the tasks there.
    fn state(&self) -> SiteState {
        match (&self.announced, self.list) {
            (SiteState::Up, SiteListState::Forbidden) => SiteState::down(Reason::Forbidden),
            (SiteState::Up, SiteListState::Open) => SiteState::down(Reason::Connecting),
            (announced, _) => announced.clone(),
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
    KeptAway,
    /// No task uses the site.
    Nothing,
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
        self.apply_recorded_losses();
        for orphan in ledger.orphans {
            self.insert_orphan(orphan, now);
        }
        let with_orphans = self.all.iter().filter(|(_, entry)| !entry.orphans.is_empty());
        with_orphans.map(|(site, _)| Arc::clone(site)).collect()
    }

    /// Sites that were announced before the ledger was read: none of them was reached since, because nothing is listed before.
    fn apply_recorded_losses(&mut self) {
        let mut kept_away = Vec::new();
        for (site, since) in &self.lost {
            let Some(record) = self.all.get_mut(site) else {
                continue;
            };
            record.is_recorded = true;
            record.lost_since = record.lost_since.min(*since);
            if record.announced == SiteState::Disconnected {
                kept_away.push(site.clone());
            }
        }
        for site in &kept_away {
            self.forget_loss(site);
        }
    }

    /// The one copy of a site.
    pub fn intern(&mut self, site: Site, now: Timestamp) -> Arc<Site> {
        if let Some((known, _)) = self.all.get_key_value(&site) {
            return Arc::clone(known);
        }
        let recorded = self.lost.get(&site).copied();
        let site = Arc::new(site);
        let entry = SiteRecord::new(recorded, now);
        self.all.insert(Arc::clone(&site), entry);
        site
    }

    /// The one copy of a site that is known.
    pub fn known(&self, site: &Site) -> Option<&Arc<Site>> {
        self.all.get_key_value(site).map(|(known, _)| known)
    }

    /// What is known of a site.
    pub fn get(&self, site: &Site) -> Option<KnownSite> {
        let (site, record) = self.all.get_key_value(site)?;
        Some(KnownSite {
            site: Arc::clone(site),
            state: record.state(),
            times: SiteTimes {
                lost_since: record.lost_since,
                known_since: record.known_since,
            },
        })
    }

    /// Whether the hub can read and change the objects there.
    pub fn is_reached(&self, site: &Site) -> bool {
        self.all
            .get(site)
            .is_some_and(|entry| entry.list == SiteListState::Whole && entry.announced == SiteState::Up)
    }

    /// A task is there, or wants to be: the site is asked for, unless it is already.
    pub fn add_task(&mut self, site: &Site, task: &TaskUid) {
        if let Some(entry) = self.all.get_mut(site) {
            entry.tasks.insert(task.clone());
            self.request(site);
        }
    }

    /// Asks for a site, unless it is asked for already.
    pub fn request(&mut self, site: &Site) {
        let Some(known) = self.known(site).cloned() else {
            return;
        };
        let entry = self.all.get_mut(site);
        if entry.is_some_and(|entry| !std::mem::replace(&mut entry.is_asked, true)) {
            self.requests.push(SiteRequest::Open(known));
        }
    }

    /// Removes a task from a site, which is closed where no other uses it.
    pub fn remove_task(&mut self, site: &Site, task: &TaskUid) {
        if let Some(entry) = self.all.get_mut(site) {
            entry.tasks.remove(task);
        }
        self.close_if_unused(site);
    }

    /// Closes a site that no task uses. The hub keeps a platform's site in the index.
    fn close_if_unused(&mut self, site: &Site) {
        let (Some(known), Some(entry)) = (self.known(site).cloned(), self.all.get_mut(site)) else {
            return;
        };
        if !entry.tasks.is_empty() || !entry.orphans.is_empty() {
            return;
        }
        if std::mem::take(&mut entry.is_asked) {
            self.requests.push(SiteRequest::Close(known));
        }
        self.forget_loss(site);
        if matches!(site.cluster, ClusterName::Own(_)) {
            self.all.remove(site);
        }
    }

    /// The loss of a site is over: the ledger forgets it, where it has it.
    fn forget_loss(&mut self, site: &Site) {
        self.lost.remove(site);
        let entry = self.all.get_mut(site);
        if entry.is_some_and(|entry| std::mem::take(&mut entry.is_recorded)) {
            self.ledger.add(ledger::forget_loss(site));
        }
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
        // From the first attempt to connect again, where the hub was kept away; a site that is listed again is not reached either.
        if was_up || entry.announced == SiteState::Disconnected {
            entry.lost_since = now;
        }
        if let Some(since) = state.unanswered_since().filter(|_| was_up) {
            entry.lost_since = since.min(now);
        }
        let transition = match &state {
            SiteState::Up => SiteTransition::Connected,
            SiteState::Down { .. } | SiteState::Refused(_) => SiteTransition::Lost,
            SiteState::Disconnected => SiteTransition::KeptAway,
        };
        entry.announced = state;
        if transition == SiteTransition::KeptAway {
            self.forget_loss(&site);
        }
        transition
    }

    /// Everything at the site was listed; returns whether it is reached, which it is not where the connection was lost since.
    pub fn listed(&mut self, site: &Site) -> bool {
        let entry = self.all.get_mut(site);
        let Some(entry) = entry.filter(|entry| entry.announced == SiteState::Up) else {
            return false;
        };
        entry.list = SiteListState::Whole;
        self.forget_loss(site);
        true
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

    /// Has the loss of a site written down, if that is not done yet.
    pub fn record_loss(&mut self, site: &Site) {
        if let Some(entry) = self.all.get_mut(site)
            && !std::mem::replace(&mut entry.is_recorded, true)
        {
            self.ledger.add(ledger::record_loss(site, entry.lost_since));
        }
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
        self.request(&site);
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

    /// What was left is not written down any more.
    pub fn forget_orphan(&mut self, task: &TaskUid) {
        let mut all = self.all.iter();
        let site = all.find(|(_, entry)| entry.orphans.contains_key(task));
        if let Some(site) = site.map(|(site, _)| Arc::clone(site)) {
            self.drop_orphan(&site, task);
        }
    }

    /// What was left at a site.
    pub fn orphans(&self, site: &Site) -> Vec<OrphanRecord> {
        let entry = self.all.get(site);
        entry.map_or_else(Vec::new, |entry| entry.orphans.values().cloned().collect())
    }

    /// Orphans are gone; the site is closed where no task uses it.
    pub fn remove_orphans(&mut self, site: &Site, tasks: &[TaskUid]) {
        for task in tasks {
            self.ledger.add(ledger::forget_orphan(task));
            self.drop_orphan(site, task);
        }
    }

    fn drop_orphan(&mut self, site: &Site, task: &TaskUid) {
        if let Some(entry) = self.all.get_mut(site) {
            entry.orphans.remove(task);
        }
        self.close_if_unused(site);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::remote::site::{JobSiteState, TenantKubeconfig};
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

    const DOWN: SiteState = SiteState::down(Reason::Unreachable);

    fn since(sites: &SiteIndex, site: &Site) -> Option<Timestamp> {
        let known = sites.get(site)?;
        JobSiteState::At(&known.state, known.times).lost_since()
    }

    fn state(sites: &SiteIndex, site: &Site) -> Option<SiteState> {
        sites.get(site).map(|known| known.state)
    }

    /// Whether the ledger is to forget one loss, and nothing else is to be written.
    fn forgets(sites: &mut SiteIndex, site: &Site) -> bool {
        let change = sites.ledger.take();
        sites.ledger.end(None);
        change == Some(ledger::forget_loss(site))
    }

    /// Holds: B1.
    #[test]
    fn no_time_counts_while_the_hub_is_kept_away() {
        let (mut sites, site) = (SiteIndex::default(), platform());
        sites.transition(&site, SiteState::Up, at(0));
        sites.listed(&site);
        // A loss that began before is forgotten, here and in the ledger.
        sites.transition(&site, DOWN, at(50));
        sites.record_loss(&site);
        assert_eq!(sites.ledger.take(), Some(ledger::record_loss(&site, at(50))));
        sites.ledger.end(None);
        for (second, forgets_it) in [(60, true), (70, false)] {
            let away = sites.transition(&site, SiteState::Disconnected, at(second));
            assert_eq!(away, SiteTransition::KeptAway);
            assert_eq!(forgets(&mut sites, &site), forgets_it, "{second}");
        }
        assert_eq!(state(&sites, &site), Some(SiteState::Disconnected));
        assert!(!sites.is_reached(&site) && !sites.listed(&site));
        // It counts from the next attempt to connect, whatever the connection says of its calls.
        let unanswered = SiteState::Down {
            reason: Reason::Unreachable,
            unanswered_since: Some(at(55)),
        };
        sites.transition(&site, unanswered, at(900));
        assert_eq!(since(&sites, &site), Some(at(900)));
        sites.transition(&site, DOWN, at(901));
        assert_eq!(since(&sites, &site), Some(at(900)), "the first loss since");
        // The same where an earlier process wrote the loss down.
        let mut sites = SiteIndex::default();
        let ledger = Ledger {
            lost: vec![(platform(), at(-900))],
            orphans: Vec::new(),
        };
        sites.load_ledger(ledger, at(0));
        sites.transition(&site, SiteState::Disconnected, at(1));
        assert!(forgets(&mut sites, &site));
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
        assert!(sites.listed(&site) && !forgets(&mut sites, &site));
        assert!(sites.is_reached(&site) && state(&sites, &site) == Some(SiteState::Up));
        assert_eq!(sites.transition(&site, DOWN, at(50)), SiteTransition::Lost);
        assert!(!sites.listed(&site), "a list of before says nothing now");
    }

    #[test]
    fn a_loss_counts_from_the_first_over_everything_but_the_return() {
        let (mut sites, site) = (SiteIndex::default(), platform());
        sites.transition(&site, SiteState::Up, at(0));
        sites.listed(&site);
        sites.transition(&site, DOWN, at(50));
        for recorded in [Some(ledger::record_loss(&site, at(50))), None] {
            sites.record_loss(&site);
            assert_eq!(sites.ledger.take(), recorded, "once");
            sites.ledger.end(None);
        }
        for transition in [DOWN, SiteState::Up, DOWN] {
            sites.transition(&site, transition, at(80));
            assert_eq!(since(&sites, &site), Some(at(50)));
        }
        sites.transition(&site, SiteState::Up, at(90));
        assert!(sites.listed(&site));
        assert!(forgets(&mut sites, &site), "the ledger spoke of it");
        sites.transition(&site, DOWN, at(200));
        assert_eq!(since(&sites, &site), Some(at(200)), "another loss");
    }

    /// As after the kubeconfig was replaced: until everything is listed on the new connection the site is not reached.
    #[test]
    fn a_site_that_is_listed_again_counts_as_lost_from_then_at_the_earliest() {
        let (mut sites, site) = (SiteIndex::default(), platform());
        sites.transition(&site, SiteState::Up, at(0));
        sites.listed(&site);
        sites.transition(&site, SiteState::Up, at(90_000));
        assert!(!sites.is_reached(&site));
        assert_eq!(since(&sites, &site), Some(at(90_000)));
        sites.transition(&site, DOWN, at(90_010));
        assert_eq!(since(&sites, &site), Some(at(90_000)));
    }

    #[test]
    fn a_cluster_that_answers_no_call_is_lost_since_the_first_over_its_returns() {
        let (mut sites, site) = (SiteIndex::default(), platform());
        let unanswered = |second| SiteState::Down {
            reason: Reason::Unreachable,
            unanswered_since: Some(at(second)),
        };
        sites.transition(&site, SiteState::Up, at(0));
        for second in [50, 100, 150] {
            sites.listed(&site);
            sites.transition(&site, unanswered(50), at(second));
            assert_eq!(since(&sites, &site), Some(at(50)), "{second}");
            sites.transition(&site, SiteState::Up, at(second + 1));
        }
        sites.listed(&site);
        sites.transition(&site, unanswered(300), at(200));
        assert_eq!(since(&sites, &site), Some(at(200)), "never in the future");
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
        let (lost_since, known_since) = (at(-100), at(0));
        let times = SiteTimes {
            lost_since,
            known_since,
        };
        assert_eq!(sites.get(&site).map(|known| known.times), Some(times));
        for _ in 0..2 {
            sites.request(&own());
        }
        sites.remove_task(&own(), &TaskUid::new("t2"));
        assert!(
            matches!(&sites.requests[..], [SiteRequest::Open(_)]),
            "asked for once, and something was left there"
        );
        sites.remove_orphans(&own(), &[TaskUid::new("t1")]);
        assert!(matches!(&sites.requests[..], [_, SiteRequest::Close(site)] if **site == own()));
        assert!(sites.known(&own()).is_none());
    }

    #[test]
    fn what_an_earlier_process_wrote_down_goes_on_for_a_site_that_was_announced_before_it_was_read() {
        let ledger = || Ledger {
            lost: vec![(platform(), at(-100))],
            orphans: Vec::new(),
        };
        let (mut sites, site) = (SiteIndex::default(), platform());
        sites.transition(&site, DOWN, at(0));
        sites.load_ledger(ledger(), at(1));
        assert_eq!(since(&sites, &site), Some(at(-100)));
        sites.transition(&site, SiteState::Up, at(5));
        assert!(sites.listed(&site) && forgets(&mut sites, &site));
        // Where the hub is kept away, no time counts.
        let mut sites = SiteIndex::default();
        sites.transition(&site, SiteState::Disconnected, at(0));
        sites.load_ledger(ledger(), at(1));
        assert!(forgets(&mut sites, &site));
        sites.transition(&site, DOWN, at(900));
        assert_eq!(since(&sites, &site), Some(at(900)));
    }

    #[test]
    fn a_loss_of_a_tenants_cluster_ends_with_its_last_task_though_an_earlier_process_wrote_it_down() {
        let (mut sites, task) = (SiteIndex::default(), TaskUid::new("t1"));
        let ledger = Ledger {
            lost: vec![(own(), at(-900))],
            orphans: Vec::new(),
        };
        sites.load_ledger(ledger, at(0));
        let site = sites.intern(own(), at(1));
        sites.add_task(&site, &task);
        assert_eq!(since(&sites, &site), Some(at(-900)));
        sites.remove_task(&site, &task);
        assert!(forgets(&mut sites, &site));
        let again = sites.intern(own(), at(50));
        assert_eq!(since(&sites, &again), Some(at(50)), "another task there");
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
        sites.add_task(&site, &task);
        sites.add_task(&site, &TaskUid::new("t2"));
        sites.remove_task(&site, &TaskUid::new("t2"));
        assert!(
            matches!(&sites.requests[..], [SiteRequest::Open(_)]),
            "one question for all"
        );
        sites.transition(&site, DOWN, at(5));
        sites.record_loss(&site);
        assert!(sites.ledger.take().is_some());
        sites.ledger.end(None);
        sites.remove_task(&site, &task);
        assert!(forgets(&mut sites, &site));
        assert!(matches!(&sites.requests[..], [_, SiteRequest::Close(_)]));
        assert!(sites.known(&own()).is_none());
    }

    #[test]
    fn a_site_is_asked_for_once_closed_with_its_last_task_and_its_loss_forgotten_then() {
        let (mut sites, task) = (SiteIndex::default(), TaskUid::new("t1"));
        let site = sites.intern(platform(), at(0));
        sites.add_task(&site, &task);
        sites.add_task(&site, &TaskUid::new("t2"));
        sites.transition(&site, DOWN, at(50));
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
        for _ in 0..2 {
            sites.forget_orphan(&TaskUid::new("t1"));
        }
        assert!(
            matches!(&sites.requests[..], [SiteRequest::Open(_)]),
            "the site has others"
        );
        assert_eq!(sites.orphans(&platform()).len(), MAX_ORPHANS - 1);
    }
}
