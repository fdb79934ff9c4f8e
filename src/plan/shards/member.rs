//! How one of several instances comes to work on what falls to it, and stops before another begins.
//!
//! Write, then read: an instance works on a namespace only if its own record has said so since before it read the others',
//! and none of those gave the namespace to its holder. Of two that write, the later one reads what the earlier one wrote, so
//! at least one of them stays away. Stop, then write: a record takes nothing back before the work on it is over, so what it
//! says may be relied on. Nobody has to believe a clock, or to be told anything by anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use super::{Owned, Shard, View};
use crate::plan::lease::DURATION;

/// What a record says of its holder's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Says {
    /// Nobody holds it: it was released, by its holder or by who found that one gone.
    Released,
    /// Its holder divides by this view; who is not in it himself works on nothing.
    Divides(View),
    /// It has a holder that says nothing, or nothing that can be read. He may work on everything.
    Nothing,
}

/// The hub's records in one list.
#[derive(Clone, Debug)]
pub struct Records {
    /// When the list was asked for.
    pub begun: Instant,
    /// The view in this process's own record; `None` where there is none, or no such record.
    pub own: Option<View>,
    /// What the others say, by the number of the shard; the record of a hub that is not divided has none.
    pub others: BTreeMap<Option<Shard>, Says>,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Tell the engine to stop what is not in this, and go on when it has.
    Settle(Arc<Owned>),
    /// Write this view into the own record.
    Write(View),
    /// Tell the engine to work on this.
    Own(Arc<Owned>),
    /// Nothing until something is new.
    Rest,
}

/// What one instance knows, and what it said.
#[derive(Debug)]
pub struct Member {
    own: Shard,
    /// When the newest list was asked for.
    read: Option<Instant>,
    /// What each of the others' records said last, and when it was seen.
    heard: BTreeMap<Option<Shard>, (Says, Instant)>,
    /// What the own record says, and when the answer came that it does.
    written: Option<(View, Instant)>,
    /// What it may say too, or may come to say: writes that were not answered.
    unsure: Vec<View>,
    /// What the engine was told last, and whether it works by it alone.
    told: Arc<Owned>,
    is_settled: bool,
}

impl Member {
    /// An instance that has just taken this shard's record, which says that it works on nothing.
    #[must_use]
    pub fn new(own: Shard) -> Self {
        Self {
            own,
            read: None,
            heard: BTreeMap::new(),
            written: None,
            unsure: Vec::new(),
            told: Arc::new(Owned::nothing(own)),
            is_settled: false,
        }
    }

    /// What the engine was told last.
    #[must_use]
    pub fn told(&self) -> &Arc<Owned> {
        &self.told
    }

    /// Whether the engine works on everything that falls to this instance, and nobody has any of it still.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let is_whole = match &*self.told {
            Owned::All => true,
            Owned::Part { view, others, .. } => others.is_empty() && !view.0.is_empty(),
        };
        is_whole && self.is_settled && self.unsure.is_empty()
    }

    /// Takes in a list that was answered by `now`.
    pub fn listed(&mut self, records: Records, now: Instant) {
        let is_old = |at: Instant| records.begun < at;
        if self.read.is_some_and(is_old) || self.written.as_ref().is_some_and(|(_, at)| is_old(*at)) {
            return;
        }
        self.read = Some(records.begun);
        // Somebody deleted or changed the own record: the others cannot know any more what is in work here.
        if self.unsure.is_empty() && self.written.as_ref().map(|(view, _)| view) != records.own.as_ref() {
            self.written = None;
        }
        let others = records.others.into_iter();
        self.heard
            .extend(others.map(|(shard, says)| (shard, (says, now))));
        // Hubs never delete a record. Where somebody did, its holder's claim lasts a while all the same.
        self.heard
            .retain(|_, (_, seen)| now.duration_since(*seen) < DURATION);
    }

    /// Takes in by what the engine works now.
    pub fn settled(&mut self, works_by: &Owned) {
        self.is_settled = *works_by == *self.told;
    }

    /// Takes in that this view was written, as was known at this time. Nothing that was sent before can be written after it,
    /// because every write names the version that it replaces.
    pub fn written(&mut self, view: View, at: Instant) {
        self.written = Some((view, at));
        self.unsure.clear();
    }

    /// What is to be done now; asked again after each thing that was taken in, and after each step but [`Step::Rest`].
    pub fn next_step(&mut self) -> Step {
        let Some(read) = self.read else {
            return Step::Rest;
        };
        if self.written.as_ref().is_some_and(|(_, at)| read < *at) {
            return Step::Rest;
        }
        let wanted = self.wanted();
        match &self.written {
            Some((view, _)) if *view == wanted && self.unsure.is_empty() => {
                let owned = self.owned(view, &[]);
                self.tell(owned).map_or(Step::Rest, Step::Own)
            }
            written => {
                let before = written.as_ref().map(|(view, _)| view.clone());
                let after: Vec<View> = [std::slice::from_ref(&wanted), self.unsure.as_slice()].concat();
                let still = self.owned(&before.unwrap_or_default(), &after);
                if let Some(told) = self.tell(still) {
                    return Step::Settle(told);
                }
                if !self.is_settled {
                    return Step::Rest;
                }
                if !self.unsure.contains(&wanted) {
                    self.unsure.push(wanted.clone());
                }
                Step::Write(wanted)
            }
        }
    }

    /// What is to be told, where it is not what was told last.
    fn tell(&mut self, owned: Owned) -> Option<Arc<Owned>> {
        if *self.told == owned {
            return None;
        }
        self.told = Arc::new(owned);
        self.is_settled = false;
        Some(Arc::clone(&self.told))
    }

    /// All who divide the namespaces. Who holds a record and divides nothing yet is not waited for.
    fn wanted(&self) -> View {
        let others = self.heard.iter().filter_map(|(shard, (says, _))| match says {
            Says::Divides(view) => shard.filter(|shard| view.0.contains(shard)),
            Says::Released | Says::Nothing => None,
        });
        View(others.chain([self.own]).collect())
    }

    /// What falls to this instance by its view, by those that its record may have instead, and by what the others say.
    fn owned(&self, view: &View, may_be: &[View]) -> Owned {
        if self.is_somebody_unknown() || view.0.is_empty() {
            return Owned::nothing(self.own);
        }
        let claim = |shard: Shard, claims: &View| {
            let is_new = claims != view && claims.0.contains(&shard);
            is_new.then(|| (shard, claims.clone()))
        };
        let written = self.heard.iter().filter_map(|(shard, (says, _))| match says {
            Says::Divides(claims) => claim((*shard)?, claims),
            Says::Released | Says::Nothing => None,
        });
        // Whoever gains by a view may rely on it as soon as it is written: it counts as though he had it already.
        let ceded = may_be.iter().flat_map(|after| {
            let others = after.0.iter().filter(|shard| **shard != self.own);
            others.filter_map(|shard| claim(*shard, after))
        });
        let others: BTreeSet<_> = written.chain(ceded).collect();
        Owned::Part {
            own: self.own,
            view: view.clone(),
            others: others.into_iter().collect(),
        }
    }

    /// Whether somebody is there of whom nobody knows what he works on: an instance that is not one of several, one that
    /// says nothing, or one that holds this very shard.
    fn is_somebody_unknown(&self) -> bool {
        self.heard.iter().any(|(shard, (says, _))| match says {
            Says::Released => false,
            Says::Nothing => true,
            Says::Divides(_) => shard.is_none_or(|shard| shard == self.own),
        })
    }
}

impl Owned {
    /// What an instance works on that has said nothing yet.
    #[must_use]
    pub const fn nothing(own: Shard) -> Self {
        Self::Part {
            own,
            view: View(BTreeSet::new()),
            others: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
