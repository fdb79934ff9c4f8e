//! Grants by the name of a namespace: which tasks a list admits, and which namespaces are recorded for it.
//!
//! A name is granted to the namespace that had it when the grant was first used. A recreated namespace is another one, with
//! another UID, and inherits nothing; labels decide nothing at all.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::api::AllowedNamespace;
use crate::api::names::TaskKind;

use crate::plan::task::model::TaskId;

/// Every namespace in a list, also those that are made later, so nothing is recorded for it.
const EVERY: &str = "*";
/// Names in a message, at most.
const NAMED: usize = 5;
/// The text before the names of recreated namespaces in a message, and after them.
const RECREATED: (&str, &str) = (
    "; refused because they were deleted and recreated: ",
    "; to grant one again, take it off allowedNamespaces and put it back",
);

/// UIDs of namespaces by name.
pub type NamespaceUids = BTreeMap<String, String>;

/// What is to be changed in a record: names with their UID, or with nothing where they leave it.
pub type NamespaceUidPatch = BTreeMap<String, Option<String>>;

/// Whether a list of namespaces, of which `recorded` were seen, admits the task whose namespace has the UID `current` now.
/// The platform's own tasks are admitted everywhere.
#[must_use]
pub fn is_allowed(
    allowed: &[AllowedNamespace],
    recorded: &NamespaceUids,
    current: Option<&String>,
    task: &TaskId,
) -> bool {
    let is_same = current.is_some() && recorded.get(&task.namespace) == current;
    let admits = |name: &AllowedNamespace| name == EVERY || (*name == task.namespace && is_same);
    task.kind == TaskKind::ClusterRenderTask || allowed.iter().any(admits)
}

/// The names a list grants one by one.
pub fn named(allowed: &[AllowedNamespace]) -> impl Iterator<Item = &String> {
    allowed.iter().filter(|name| *name != EVERY)
}

/// What a record holds of names that are no longer listed; where it holds none, what it lacks of the namespaces that exist.
///
/// The two are written one after the other: what leaves is taken off whatever else was written meanwhile, so that a name
/// that is put back at once is granted again, while a first use is recorded only over the version it was decided on.
/// `is_own` says which names this hub answers for: hubs with other namespaces keep theirs in the same record.
#[must_use]
pub fn record(
    allowed: &[AllowedNamespace],
    recorded: &NamespaceUids,
    existing: &NamespaceUids,
    is_own: impl Fn(&str) -> bool,
) -> NamespaceUidPatch {
    let is_unlisted = |name: &&String| is_own(name) && !allowed.contains(name);
    let leaving: NamespaceUidPatch = recorded
        .keys()
        .filter(is_unlisted)
        .map(|name| (name.clone(), None))
        .collect();
    if !leaving.is_empty() || allowed.iter().any(|name| name == EVERY) {
        return leaving;
    }
    named(allowed)
        .filter(|name| is_own(name) && !recorded.contains_key(*name))
        .filter_map(|name| Some((name.clone(), Some(existing.get(name)?.clone()))))
        .collect()
}

/// What no hub can have changed in a record, as the patch that puts it right: with an unchanged list no name that is
/// on it leaves the record, and none gets another UID.
#[must_use]
pub fn tampered(
    allowed: &[AllowedNamespace],
    believed: &NamespaceUids,
    seen: &NamespaceUids,
) -> NamespaceUidPatch {
    if allowed.iter().any(|name| name == EVERY) {
        return NamespaceUidPatch::new();
    }
    let changed = named(allowed).filter_map(|name| {
        let uid = believed.get(name)?;
        (seen.get(name) != Some(uid)).then(|| (name.clone(), Some(uid.clone())))
    });
    changed.collect()
}

/// Lays a patch over a record.
pub fn apply(recorded: &mut NamespaceUids, patch: &NamespaceUidPatch) {
    for (name, uid) in patch {
        match uid {
            Some(uid) => _ = recorded.insert(name.clone(), uid.clone()),
            None => _ = recorded.remove(name),
        }
    }
}

/// The listed names under which another namespace exists than the one recorded. Of namespaces that this hub does not watch,
/// those that the hub which does has `mentioned`.
#[must_use]
pub fn recreated(
    allowed: &[AllowedNamespace],
    recorded: &NamespaceUids,
    existing: &NamespaceUids,
    mentioned: &[&str],
) -> Vec<String> {
    let is_other = |name: &&String| match (recorded.get(*name), existing.get(*name)) {
        (Some(recorded), Some(existing)) => recorded != existing,
        (Some(_), None) => mentioned.contains(&name.as_str()),
        (None, _) => false,
    };
    let is_open = allowed.iter().any(|name| name == EVERY);
    named(allowed)
        .filter(|name| !is_open && is_other(name))
        .cloned()
        .collect()
}

/// Says in a condition's message which namespaces are refused because they were recreated.
pub fn mention(message: &mut String, recreated: &[String]) {
    if recreated.is_empty() {
        return;
    }
    let shown = recreated.len().min(NAMED);
    message.push_str(RECREATED.0);
    message.push_str(&recreated[..shown].join(", "));
    if recreated.len() > shown {
        _ = write!(message, " and {} more", recreated.len() - shown);
    }
    message.push_str(RECREATED.1);
}

/// The names that [`mention`] put into a message.
pub fn mentioned(message: &str) -> impl Iterator<Item = &str> {
    let after = message.split_once(RECREATED.0).map(|(_, after)| after);
    let names = after.and_then(|after| after.split_once(RECREATED.1));
    let names = names.map_or("", |(names, _)| names).split(", ");
    names.filter_map(|name| name.split(' ').next().filter(|name| !name.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::TaskUid;

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn uids(pairs: &[(&str, &str)]) -> NamespaceUids {
        pairs
            .iter()
            .map(|(name, uid)| ((*name).to_owned(), (*uid).to_owned()))
            .collect()
    }

    fn task(kind: TaskKind) -> TaskId {
        TaskId {
            kind,
            namespace: "a".to_owned(),
            name: "shop".to_owned(),
            uid: TaskUid::new("1"),
        }
    }

    type Names = &'static [&'static str];
    type Pairs = &'static [(&'static str, &'static str)];
    type Patch = &'static [(&'static str, Option<&'static str>)];

    /// Holds: T8.
    #[test]
    fn a_name_is_granted_to_the_namespace_that_had_it_first() {
        let table: &[(Names, Pairs, Option<&str>, bool)] = &[
            (&["a"], &[("a", "1")], Some("1"), true),
            (&["a"], &[("a", "1")], Some("2"), false),
            // Not recorded yet, unknown, or gone: refused like one that is not listed.
            (&["a"], &[], Some("1"), false),
            (&["a"], &[("a", "1")], None, false),
            (&["a"], &[], None, false),
            (&["b"], &[("a", "1"), ("b", "1")], Some("1"), false),
            (&[], &[("a", "1")], Some("1"), false),
            (&["*"], &[], Some("2"), true),
            (&["*"], &[("a", "1")], Some("2"), true),
            (&["*"], &[], None, true),
            (&["b", "*"], &[], None, true),
        ];
        for (allowed, recorded, current, admitted) in table {
            let current = current.map(str::to_owned);
            let (allowed, recorded) = (list(allowed), uids(recorded));
            let ask = |kind| is_allowed(&allowed, &recorded, current.as_ref(), &task(kind));
            assert_eq!(ask(TaskKind::RenderTask), *admitted, "{allowed:?} {recorded:?}");
            assert!(ask(TaskKind::ClusterRenderTask), "{allowed:?}");
        }
    }

    /// Holds: T8.
    #[test]
    fn each_namespace_is_recorded_once_and_forgotten_with_its_name() {
        let existing = uids(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let is_own = |name: &str| name != "other";
        let table: &[(Names, Pairs, Patch)] = &[
            (&["a"], &[], &[("a", Some("1"))]),
            (&["a", "b"], &[("a", "1")], &[("b", Some("2"))]),
            (&["a"], &[("a", "1")], &[]),
            // Another namespace has the name now: the record stays as it is.
            (&["a"], &[("a", "0")], &[]),
            // One that does not exist is recorded when it does.
            (&["z"], &[], &[]),
            (&["z"], &[("z", "0")], &[]),
            (&[], &[("a", "1")], &[("a", None)]),
            (&["b"], &[("a", "1")], &[("a", None)]),
            (&["b"], &[], &[("b", Some("2"))]),
            // What another hub answers for is left alone, listed or not.
            (&[], &[("other", "9")], &[]),
            (&["other"], &[("other", "9")], &[]),
            (&["other"], &[], &[]),
            // Every namespace is meant, also later ones.
            (&["*"], &[], &[]),
            (&["*", "a"], &[], &[]),
            (&["*", "a"], &[("a", "1"), ("b", "2")], &[("b", None)]),
        ];
        for (allowed, recorded, expected) in table {
            let (allowed, mut recorded) = (list(allowed), uids(recorded));
            let patch = record(&allowed, &recorded, &existing, is_own);
            let expected: NamespaceUidPatch = expected
                .iter()
                .map(|(name, uid)| ((*name).to_owned(), uid.map(str::to_owned)))
                .collect();
            assert_eq!(patch, expected, "{allowed:?} {recorded:?}");
            for _ in 0..2 {
                let patch = record(&allowed, &recorded, &existing, is_own);
                apply(&mut recorded, &patch);
            }
            let rest = record(&allowed, &recorded, &existing, is_own);
            assert!(rest.is_empty(), "{allowed:?} does not come to rest");
        }
    }

    /// Holds: T8.
    #[test]
    fn taking_a_name_off_and_putting_it_back_grants_it_again() {
        let (existing, mut recorded) = (uids(&[("a", "2")]), uids(&[("a", "1")]));
        let current = existing.get("a");
        let step = |allowed: &[&str], recorded: &mut NamespaceUids| {
            let allowed = list(allowed);
            let patch = record(&allowed, recorded, &existing, |_| true);
            apply(recorded, &patch);
            is_allowed(&allowed, recorded, current, &task(TaskKind::RenderTask))
        };
        assert!(!step(&["a"], &mut recorded));
        assert!(!step(&[], &mut recorded));
        assert!(step(&["a"], &mut recorded));
    }

    /// Holds: B12.
    #[test]
    fn what_no_hub_changed_in_a_record_is_put_right() {
        let believed = uids(&[("a", "1"), ("b", "1")]);
        let table: [(&[&str], Pairs, Pairs); 7] = [
            (&["a", "b"], &[("a", "1"), ("b", "1")], &[]),
            (&["a", "b"], &[("a", "2"), ("b", "1")], &[("a", "1")]),
            (&["a", "b"], &[("b", "1")], &[("a", "1")]),
            (&["a", "b"], &[], &[("a", "1"), ("b", "1")]),
            // What was never recorded is a first use, which any hub may record.
            (&["a", "b", "c"], &[("a", "1"), ("b", "1"), ("c", "9")], &[]),
            // Unlisted names leave the record, and where every namespace is admitted nothing is recorded.
            (&["a"], &[("a", "1")], &[]),
            (&["a", "*"], &[], &[]),
        ];
        for (allowed, seen, expected) in table {
            let patch = tampered(&list(allowed), &believed, &uids(seen));
            let expected: NamespaceUidPatch = expected
                .iter()
                .map(|(name, uid)| ((*name).to_owned(), Some((*uid).to_owned())))
                .collect();
            assert_eq!(patch, expected, "{allowed:?} {seen:?}");
        }
    }

    #[test]
    fn a_message_names_the_recreated_and_stays_short() {
        let existing: NamespaceUids = (0..40)
            .map(|n| (format!("{n:02}{}", "x".repeat(61)), "2".to_owned()))
            .collect();
        let recorded: NamespaceUids = existing
            .keys()
            .map(|name| (name.clone(), "1".to_owned()))
            .collect();
        let mut allowed: Vec<String> = existing.keys().cloned().collect();
        let mut message = "tasks push with the Secret".to_owned();
        mention(&mut message, &recreated(&allowed, &recorded, &existing, &[]));
        assert!(
            message.contains(&allowed[0]) && message.contains(" and 35 more"),
            "{message}"
        );
        assert!(message.len() < 600, "{}", message.len());

        let mut quiet = "tasks push anonymously".to_owned();
        mention(&mut quiet, &recreated(&allowed, &recorded, &recorded, &[]));
        allowed.push(EVERY.to_owned());
        mention(&mut quiet, &recreated(&allowed, &recorded, &existing, &[]));
        assert_eq!(quiet, "tasks push anonymously");
        assert_eq!(mentioned(&message).collect::<Vec<_>>(), allowed[..NAMED]);
        assert_eq!(mentioned(&quiet).next(), None);
    }

    #[test]
    fn a_hub_keeps_what_another_says_of_namespaces_it_does_not_see() {
        let (recorded, existing) = (uids(&[("a", "1"), ("b", "1")]), uids(&[("a", "1")]));
        let reported = |allowed: &[&str], before: &str| {
            let before: Vec<&str> = mentioned(before).collect();
            let mut message = "tasks push anonymously".to_owned();
            let recreated = recreated(&list(allowed), &recorded, &existing, &before);
            mention(&mut message, &recreated);
            mentioned(&message).map(str::to_owned).collect::<Vec<_>>()
        };
        let mut of_another = String::new();
        mention(&mut of_another, &list(&["a", "b", "c"]));
        // Of a it knows better, and c was never recorded.
        assert_eq!(reported(&["a", "b", "c"], &of_another), ["b"]);
        assert_eq!(reported(&["a", "b", "c"], "tasks push anonymously"), [""; 0]);
        assert_eq!(reported(&["a"], &of_another), [""; 0], "it is off the list");
        assert_eq!(reported(&["a", "b", "*"], &of_another), [""; 0]);
    }
}
