//! Which copies the operators of one namespace need, and for which `ServiceAccounts`.

use std::collections::{BTreeMap, BTreeSet};

use super::complaint::{ComplaintSubject, PullSecretComplaint};
use super::observed::{ObservedCsv, ObservedNamespace, ObservedOlm, ObservedSubscription, PullSecretLimits};
use crate::api::conditions::Reason;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pull_secrets::ownership::CopyUser;

/// Subscriptions beyond the bound that get a complaint.
const REPORTED: usize = 8;

/// What a `CatalogSource` lists.
pub(super) enum CatalogList<'a> {
    /// These Secrets.
    Named(&'a [ObjectKey]),
    /// It is not known at the moment.
    Unknown,
    /// It is none that counts.
    Elsewhere,
}

/// The Secrets that each catalog names: each once, in its order.
pub(super) struct Catalogs<'a> {
    observed: &'a ObservedOlm,
    lists: BTreeMap<&'a ObjectKey, Vec<ObjectKey>>,
}

impl<'a> Catalogs<'a> {
    /// The lists of these, and what is wrong with them.
    pub fn new(observed: &'a ObservedOlm, limits: &PullSecretLimits) -> (Self, Vec<PullSecretComplaint>) {
        let (mut lists, mut complaints) = (BTreeMap::new(), Vec::new());
        for (key, catalog) in &observed.catalogs {
            let mut named = Vec::new();
            for name in catalog.secrets.iter().filter(|name| !name.is_empty()) {
                let secret = ObjectKey::new(&key.namespace, name);
                if !named.contains(&secret) && named.len() <= limits.secrets {
                    named.push(secret);
                }
            }
            if named.len() > limits.secrets {
                named.truncate(limits.secrets);
                let most = limits.secrets;
                complaints.push(PullSecretComplaint {
                    subject: ComplaintSubject::Catalog(key.clone(), catalog.uid.clone()),
                    reason: Reason::PullSecretLimitExceeded,
                    note: format!("it names more than {most} Secrets; only the first {most} are copied"),
                });
            }
            lists.insert(key, named);
        }
        (Self { observed, lists }, complaints)
    }

    /// What this catalog lists.
    pub fn list(&self, catalog: &ObjectKey) -> CatalogList<'_> {
        match self.observed.catalog_namespaces.get(&catalog.namespace) {
            None => CatalogList::Elsewhere,
            Some(false) => CatalogList::Unknown,
            // What was deleted may be on its way back, and its operators still run.
            Some(true) => match self.lists.get(catalog) {
                Some(named) => CatalogList::Named(named),
                None => CatalogList::Unknown,
            },
        }
    }

    /// Whether catalogs may be in this namespace.
    pub fn may_be_in(&self, namespace: &str) -> bool {
        self.observed.catalog_namespaces.contains_key(namespace)
    }

    /// The catalogs that name this Secret.
    pub fn naming<'b>(&'b self, secret: &'b ObjectKey) -> impl Iterator<Item = ComplaintSubject> + 'b {
        let naming = self.lists.iter().filter(move |(_, named)| named.contains(secret));
        naming.filter_map(|(key, _)| {
            let uid = self.observed.catalogs.get(*key)?.uid.clone();
            Some(ComplaintSubject::Catalog((*key).clone(), uid))
        })
    }
}

/// For what a copy is needed.
#[derive(Clone, Debug, Default)]
pub(super) struct Need {
    /// The operators.
    pub users: BTreeSet<CopyUser>,
    /// The ServiceAccount of each of their Deployments, by the name of the Deployment.
    pub deployments: BTreeSet<(String, String)>,
    /// The Subscriptions that it is for.
    pub subscriptions: BTreeSet<ComplaintSubject>,
    /// Whether links that are there stay, because an operator may be back and nothing says which `ServiceAccounts` it had.
    pub keeps_links: bool,
}

impl Need {
    fn add(&mut self, catalog: &str, csv: &ObservedCsv) {
        self.users.insert(CopyUser {
            catalog: catalog.to_owned(),
            csv_uid: csv.uid.clone(),
        });
        let deployments = csv.deployments.iter();
        self.deployments
            .extend(deployments.map(|(name, account)| (name.clone(), account.clone())));
    }
}

/// What the operators of a namespace need.
#[derive(Debug, Default)]
pub(super) struct NamespaceNeeds {
    /// Of which Secrets, and for what.
    pub of_sources: BTreeMap<ObjectKey, Need>,
    /// Copies by name that stay as they are, because it is not known at the moment what should be in them.
    pub held: BTreeMap<String, Need>,
    /// What is wrong.
    pub complaints: Vec<PullSecretComplaint>,
}

/// What the operators of this namespace need.
pub(super) fn needs(
    namespace: &str,
    seen: &ObservedNamespace,
    catalogs: &Catalogs<'_>,
    limits: &PullSecretLimits,
) -> NamespaceNeeds {
    let mut needs = NamespaceNeeds::default();
    for (name, subscription) in served(namespace, seen, catalogs, limits, &mut needs) {
        let subject =
            ComplaintSubject::Subscription(ObjectKey::new(namespace, name), subscription.uid.clone());
        needs.subscribe(seen, subscription, catalogs, &subject);
    }
    needs.recall(seen, catalogs);
    needs
}

/// The Subscriptions of a namespace that are served: where there are too many, first those that were served before.
fn served<'a>(
    namespace: &str,
    seen: &'a ObservedNamespace,
    catalogs: &Catalogs<'_>,
    limits: &PullSecretLimits,
    needs: &mut NamespaceNeeds,
) -> Vec<(&'a String, &'a ObservedSubscription)> {
    let all = seen.subscriptions.iter();
    let mut all: Vec<_> = all
        .filter(|(_, subscription)| catalogs.may_be_in(&subscription.catalog.namespace))
        .collect();
    if all.len() <= limits.subscriptions {
        return all;
    }
    let marks = seen.copies.values().filter_map(|copy| copy.marks.as_ref());
    let known: BTreeSet<&str> = marks
        .flat_map(|marks| marks.users.iter().map(|user| user.csv_uid.as_str()))
        .collect();
    let is_new = |subscription: &ObservedSubscription| {
        let mut csvs = subscription.csvs.iter().filter_map(|name| seen.csvs.get(name));
        !csvs.any(|csv| known.contains(csv.uid.as_str()))
    };
    all.sort_by_cached_key(|(name, subscription)| (is_new(subscription), (*name).clone()));
    let (count, most) = (all.len(), limits.subscriptions);
    for (name, subscription) in all.split_off(most).into_iter().take(REPORTED) {
        let key = ObjectKey::new(namespace, name);
        needs.complaints.push(PullSecretComplaint {
            subject: ComplaintSubject::Subscription(key, subscription.uid.clone()),
            reason: Reason::PullSecretLimitExceeded,
            note: format!("namespace {namespace} has {count} Subscriptions, and {most} get pull secrets; this one does not"),
        });
    }
    all
}

impl NamespaceNeeds {
    /// What a Subscription's operator needs.
    fn subscribe(
        &mut self,
        seen: &ObservedNamespace,
        subscription: &ObservedSubscription,
        catalogs: &Catalogs<'_>,
        subject: &ComplaintSubject,
    ) {
        let csvs = subscription.csvs.iter().filter_map(|name| seen.csvs.get(name));
        let csvs: Vec<&ObservedCsv> = csvs.filter(|csv| !csv.is_copied).collect();
        let catalog = subscription.catalog.name.as_str();
        match catalogs.list(&subscription.catalog) {
            CatalogList::Elsewhere => {}
            CatalogList::Named(secrets) => {
                for secret in secrets {
                    // Before there is an operator there is nothing to pull, and after it went its Subscription may bring it back.
                    if csvs.is_empty() && !has_copy(seen, secret) {
                        continue;
                    }
                    let need = self.of_sources.entry(secret.clone()).or_default();
                    need.serve(catalog, &csvs, subject);
                }
            }
            CatalogList::Unknown => {
                for (name, copy) in &seen.copies {
                    let marks = copy.marks.as_ref();
                    let is_from = marks.is_some_and(|marks| {
                        marks.source.namespace == subscription.catalog.namespace
                            && marks.users.iter().any(|user| user.catalog == catalog)
                    });
                    if is_from {
                        self.held
                            .entry(name.clone())
                            .or_default()
                            .serve(catalog, &csvs, subject);
                    }
                }
            }
        }
    }

    /// What operators need whose Subscription is gone: they still run. Only a copy knows where they came from.
    fn recall(&mut self, seen: &ObservedNamespace, catalogs: &Catalogs<'_>) {
        let claimed: BTreeSet<&String> = seen.subscriptions.values().flat_map(|s| &s.csvs).collect();
        let left = seen
            .csvs
            .iter()
            .filter(|(name, csv)| !csv.is_copied && !claimed.contains(name));
        let left: BTreeMap<&str, &ObservedCsv> = left.map(|(_, csv)| (csv.uid.as_str(), csv)).collect();
        for (name, copy) in &seen.copies {
            let Some(marks) = &copy.marks else { continue };
            for user in &marks.users {
                let Some(csv) = left.get(user.csv_uid.as_str()) else {
                    continue;
                };
                let catalog = ObjectKey::new(&marks.source.namespace, &user.catalog);
                match catalogs.list(&catalog) {
                    CatalogList::Named(secrets) if secrets.contains(&marks.source) => {
                        let need = self.of_sources.entry(marks.source.clone()).or_default();
                        need.add(&user.catalog, csv);
                    }
                    CatalogList::Unknown => {
                        self.held.entry(name.clone()).or_default().add(&user.catalog, csv);
                    }
                    CatalogList::Named(_) | CatalogList::Elsewhere => {}
                }
            }
        }
    }
}

impl Need {
    fn serve(&mut self, catalog: &str, csvs: &[&ObservedCsv], subject: &ComplaintSubject) {
        self.subscriptions.insert(subject.clone());
        self.keeps_links |= csvs.is_empty();
        for csv in csvs {
            self.add(catalog, csv);
        }
    }
}

fn has_copy(seen: &ObservedNamespace, secret: &ObjectKey) -> bool {
    let mut marks = seen.copies.values().filter_map(|copy| copy.marks.as_ref());
    marks.any(|marks| marks.source == *secret)
}
