//! From what the watches know to what should be where.

use std::collections::{BTreeMap, BTreeSet};

use super::complaint::{ComplaintSubject, PullSecretComplaint};
use super::evictions;
use super::needs::{Catalogs, NamespaceNeeds, Need, needs};
use super::observed::{NamespaceGrant, ObservedNamespace, ObservedOlm, PullSecretLimits, PullSecretState};
use super::settle;
use super::wanted::{PullSecretPlan, WantedCopy};
use crate::api::conditions::Reason;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pull_secrets::ownership::{CopyMarks, copy_name};

/// Decides what should be where. Nothing outside of the namespaces that were observed is ever wanted.
#[must_use]
pub fn decide(observed: &ObservedOlm, limits: &PullSecretLimits) -> PullSecretPlan {
    let mut plan = PullSecretPlan::default();
    let (catalogs, complaints) = Catalogs::new(observed, limits);
    plan.complaints.extend(complaints);
    let mut all = BTreeMap::new();
    for (name, seen) in &observed.namespaces {
        let of_namespace = needs(name, seen, &catalogs, limits);
        plan.complaints.extend(of_namespace.complaints.iter().cloned());
        plan.complaints
            .extend(of_whole_namespace(name, seen, &of_namespace));
        if seen.grant == NamespaceGrant::Granted {
            all.insert(name, of_namespace);
        }
    }
    plan.complaints.extend(unreadable(observed));
    plan.complaints.extend(settle::bound_destinations(
        &mut all,
        observed,
        &catalogs,
        limits.destinations,
    ));
    for (name, of_namespace) in &all {
        let Some(seen) = observed.namespaces.get(*name) else {
            continue;
        };
        let mut here = PlanOfNamespace {
            name,
            seen,
            plan: &mut plan,
        };
        for (source, need) in &of_namespace.of_sources {
            here.want(source, need, observed, &catalogs);
        }
        for (copy, need) in &of_namespace.held {
            here.hold(copy, need);
        }
        evictions::find(name, seen, of_namespace, &mut plan);
    }
    plan
}

/// What is wrong with a namespace, to each of its Subscriptions that need a copy.
fn of_whole_namespace(
    name: &str,
    seen: &ObservedNamespace,
    needs: &NamespaceNeeds,
) -> BTreeSet<PullSecretComplaint> {
    let (reason, note) = if seen.grant == NamespaceGrant::Recreated {
        let note = format!(
            "namespace {name} was deleted and made again since it was listed, and gets no pull secret"
        );
        (Reason::NamespaceRecreated, note)
    } else if seen.is_refused {
        let note = format!(
            "the API server refuses a copy or a link in namespace {name}; look for a quota, an admission policy or a missing right; the \
             program tries again"
        );
        (Reason::CreateRefused, note)
    } else {
        return BTreeSet::new();
    };
    let all = needs.of_sources.values().flat_map(|need| &need.subscriptions);
    let complaint = |subject: &ComplaintSubject| PullSecretComplaint {
        subject: subject.clone(),
        reason,
        note: note.clone(),
    };
    all.map(complaint).collect()
}

/// The listed namespaces that cannot be read.
fn unreadable(observed: &ObservedOlm) -> BTreeSet<PullSecretComplaint> {
    let catalogs = observed.catalog_namespaces.iter();
    let unlisted = catalogs
        .filter(|(_, is_listed)| !**is_listed)
        .map(|(name, _)| name);
    let complaint = |name: &String| {
        PullSecretComplaint {
        subject: ComplaintSubject::Namespace(ObjectKey::new("", name)),
        reason: Reason::Forbidden,
        note: "it is listed, and is not there, or the program may not read what the chart lets it read; the program looks again".to_owned(),
    }
    };
    observed
        .unreadable
        .iter()
        .chain(unlisted)
        .map(complaint)
        .collect()
}

/// The plan for one namespace.
struct PlanOfNamespace<'a> {
    name: &'a str,
    seen: &'a ObservedNamespace,
    plan: &'a mut PullSecretPlan,
}

impl PlanOfNamespace<'_> {
    /// Wants a copy of this Secret, if there is something to copy.
    fn want(&mut self, source: &ObjectKey, need: &Need, observed: &ObservedOlm, catalogs: &Catalogs<'_>) {
        let copy = copy_name(source);
        let found = observed.sources.get(source);
        let fault = match found.map(|found| &found.state) {
            Some(PullSecretState::Usable(content)) => {
                let marks = CopyMarks {
                    source: source.clone(),
                    source_uid: found.map(|found| found.uid.clone()).unwrap_or_default(),
                    users: need.users.clone(),
                };
                return self.place(
                    &copy,
                    WantedCopy {
                        marks,
                        content: *content,
                    },
                    need,
                );
            }
            Some(PullSecretState::Unread) => None,
            Some(PullSecretState::Faulty(fault)) => {
                let note = format!(
                    "Secret {}, which it names, is not copied: {}",
                    source.name,
                    fault.as_str()
                );
                Some((Reason::PullSecretInvalid, note))
            }
            None => {
                let note = format!("Secret {}, which it names, is not there", source.name);
                Some((Reason::PullSecretNotFound, note))
            }
        };
        if let Some((reason, note)) = fault {
            let subjects = catalogs.naming(source);
            self.complain(subjects, reason, &note);
        }
        self.hold(&copy, need);
    }

    fn complain(&mut self, subjects: impl Iterator<Item = ComplaintSubject>, reason: Reason, note: &str) {
        let complaint = |subject| PullSecretComplaint {
            subject,
            reason,
            note: note.to_owned(),
        };
        self.plan.complaints.extend(subjects.map(complaint));
    }

    /// Wants this copy and its links, unless a Secret of another writer has the name.
    fn place(&mut self, copy: &str, wanted: WantedCopy, need: &Need) {
        if self
            .seen
            .copies
            .get(copy)
            .is_some_and(|there| there.marks.is_none())
        {
            let note = format!("Secret {copy}, which it needs, is there and not ours; it is left as it is");
            let subjects = need.subscriptions.iter().cloned();
            return self.complain(subjects, Reason::PullSecretNameConflict, &note);
        }
        let key = ObjectKey::new(self.name, copy);
        self.plan.copies.insert(key, wanted);
        self.link(copy, need);
    }

    /// Leaves this copy as it is, if it is there. Where another operator wants it too, it stays known for whom it was made before: the
    /// catalog of those may be back.
    fn hold(&mut self, copy: &str, need: &Need) {
        let there = self.seen.copies.get(copy);
        let Some(marks) = there.and_then(|there| there.marks.as_ref()) else {
            return;
        };
        let key = ObjectKey::new(self.name, copy);
        if let Some(wanted) = self.plan.copies.get_mut(&key) {
            wanted.marks.users.extend(marks.users.iter().cloned());
        } else {
            self.plan.held.insert(key);
        }
        self.link(copy, need);
    }

    fn link(&mut self, copy: &str, need: &Need) {
        if need.keeps_links {
            self.plan.held_links.insert(ObjectKey::new(self.name, copy));
        }
        for (_, account) in &need.deployments {
            if self.seen.accounts.contains_key(account) {
                let links = self
                    .plan
                    .links
                    .entry(ObjectKey::new(self.name, account))
                    .or_default();
                links.insert(copy.to_owned());
            }
        }
    }
}
