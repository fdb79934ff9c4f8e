//! The entries of the ledger, and their encoding.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::api::names::{TaskUid, hex};
use crate::plan::remote::site::{ClusterName, Site, TenantKubeconfig};
use crate::plan::task::tenant::read_identity::{ReadIdentity, RecordedIdentity};

/// Most orphans that an instance remembers; of more, the oldest are dropped. The bounds of the ledger allow fewer, so this is a
/// second safeguard.
pub const MAX_ORPHANS: usize = 2_000;

/// Prefix of the key of a loss.
pub(super) const LOST: &str = "lost.";
/// Prefix of the key of an orphan.
pub(super) const ORPHAN: &str = "orphan.";

/// What a deleted task may have left on a cluster that was not reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanRecord {
    /// The site where the objects may be.
    pub site: Site,
    /// UID of the task.
    pub task: TaskUid,
    /// Its namespace, which the record counts for; empty for the platform's own tasks.
    pub tenant: String,
    /// Name of the Job and of the config Secret.
    pub name: String,
    /// UID of the Job, if it was known.
    pub job_uid: Option<String>,
    /// UID of the config Secret, if it was known.
    pub secret_uid: Option<String>,
    /// When the hub removed the task's finalizer.
    pub since: Timestamp,
}

/// All entries of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Each lost site, with the time of its first loss.
    pub lost: Vec<(Site, Timestamp)>,
    /// Orphans, the oldest first.
    pub orphans: Vec<OrphanRecord>,
}

/// Entries to write, or to remove.
pub type LedgerChanges = BTreeMap<String, Option<String>>;

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SiteEntry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kube_config: Option<KubeconfigEntry>,
    namespace: String,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct KubeconfigEntry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    service_account: RecordedIdentity,
    namespace: String,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    crosses: bool,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct LostSiteEntry {
    pub(super) place: SiteEntry,
    pub(super) since: Timestamp,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct OrphanEntry {
    pub(super) place: SiteEntry,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tenant: Option<String>,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job_uid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret_uid: Option<String>,
    pub(super) since: Timestamp,
}

impl Ledger {
    /// Decodes the ledger; an unreadable entry is ignored.
    #[must_use]
    pub fn read(data: &BTreeMap<String, String>) -> Self {
        let lost = data.iter().filter(|(key, _)| key.starts_with(LOST));
        let orphans = data
            .iter()
            .filter_map(|(key, text)| orphan(key.strip_prefix(ORPHAN)?, text));
        let mut ledger = Self {
            lost: lost.filter_map(|(_, text)| loss(text)).collect(),
            orphans: orphans.collect(),
        };
        ledger.orphans.sort_by_key(|orphan| orphan.since);
        ledger
    }
}

/// The change that records a loss.
#[must_use]
pub fn record_loss(site: &Site, since: Timestamp) -> LedgerChanges {
    let entry = LostSiteEntry {
        place: place(site),
        since,
    };
    [(lost_key(site), serde_json::to_string(&entry).ok())].into()
}

/// The change that forgets a loss.
#[must_use]
pub fn forget_loss(site: &Site) -> LedgerChanges {
    [(lost_key(site), None)].into()
}

/// The change that records an orphan.
#[must_use]
pub fn record_orphan(orphan: &OrphanRecord) -> LedgerChanges {
    let place = place(&orphan.site);
    // Set only where the place does not show it: the previous release ignores an entry with an unknown field.
    let tenant = Some(&orphan.tenant).filter(|tenant| !tenant.is_empty() && *tenant != tenant_of(&place));
    let entry = OrphanEntry {
        tenant: tenant.cloned(),
        place,
        name: orphan.name.clone(),
        job_uid: orphan.job_uid.clone(),
        secret_uid: orphan.secret_uid.clone(),
        since: orphan.since,
    };
    [(orphan_key(&orphan.task), serde_json::to_string(&entry).ok())].into()
}

/// The change that forgets an orphan.
#[must_use]
pub fn forget_orphan(task: &TaskUid) -> LedgerChanges {
    [(orphan_key(task), None)].into()
}

fn orphan_key(task: &TaskUid) -> String {
    format!("{ORPHAN}{task}")
}

fn lost_key(site: &Site) -> String {
    let text = serde_json::to_string(&place(site)).unwrap_or_default();
    let digest = hex(&Sha256::digest(text.as_bytes()));
    format!("{LOST}{}", digest.get(..32).unwrap_or(&digest))
}

fn place(site: &Site) -> SiteEntry {
    let (cluster, kube_config) = match &site.cluster {
        ClusterName::Platform(name) => (Some(name.clone()), None),
        ClusterName::Own(own) => (None, Some(kube_config(own))),
    };
    SiteEntry {
        cluster,
        kube_config,
        namespace: site.namespace.clone(),
    }
}

/// The namespace whose tasks are at a place: that of the kubeconfig's identity or Secret, or none for a platform's cluster.
pub(super) fn tenant_of(place: &SiteEntry) -> &str {
    let named = place.kube_config.as_ref();
    named.map_or("", |named| match &named.service_account {
        Some([namespace, _]) => namespace,
        None => &named.namespace,
    })
}

fn kube_config(own: &TenantKubeconfig) -> KubeconfigEntry {
    KubeconfigEntry {
        service_account: own.identity.to_record(),
        namespace: own.namespace.clone(),
        name: own.name.clone(),
        key: own.key.clone(),
        crosses: own.crosses,
    }
}

fn loss(text: &str) -> Option<(Site, Timestamp)> {
    let entry: LostSiteEntry = serde_json::from_str(text).ok()?;
    Some((site(entry.place)?, entry.since))
}

fn orphan(task: &str, text: &str) -> Option<OrphanRecord> {
    let entry: OrphanEntry = serde_json::from_str(text).ok()?;
    let tenant = entry.tenant.unwrap_or_else(|| tenant_of(&entry.place).to_owned());
    Some(OrphanRecord {
        site: site(entry.place)?,
        task: TaskUid::new(task),
        tenant,
        name: entry.name,
        job_uid: entry.job_uid,
        secret_uid: entry.secret_uid,
        since: entry.since,
    })
}

fn site(place: SiteEntry) -> Option<Site> {
    let cluster = match (place.cluster, place.kube_config) {
        (Some(name), None) => ClusterName::Platform(name),
        (None, Some(named)) => ClusterName::Own(TenantKubeconfig {
            identity: ReadIdentity::from_record(named.service_account)?,
            namespace: named.namespace,
            name: named.name,
            key: named.key,
            crosses: named.crosses,
        }),
        _ => return None,
    };
    Some(Site {
        cluster,
        namespace: place.namespace,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::plan::task::tenant::ServiceAccount;

    /// The ledger after changes.
    pub(in crate::plan::remote::ledger) fn apply(
        data: &mut BTreeMap<String, String>,
        changes: LedgerChanges,
    ) {
        for (key, value) in changes {
            match value {
                Some(value) => _ = data.insert(key, value),
                None => _ = data.remove(&key),
            }
        }
    }

    /// One site of the platform, and two of a tenant.
    pub(in crate::plan::remote::ledger) fn sites() -> [Site; 3] {
        let own = |identity, key: Option<&str>| Site {
            cluster: ClusterName::Own(TenantKubeconfig {
                identity,
                namespace: "team-a".to_owned(),
                name: "kubeconfig".to_owned(),
                key: key.map(str::to_owned),
                crosses: false,
            }),
            namespace: "renders".to_owned(),
        };
        let account = ServiceAccount::new("team-a", "builder").unwrap();
        [
            Site {
                cluster: ClusterName::Platform("east".to_owned()),
                namespace: "renders".to_owned(),
            },
            own(ReadIdentity::ServiceAccount(account), Some("eu")),
            own(ReadIdentity::Hub, None),
        ]
    }

    #[test]
    fn what_is_written_is_read_back_and_can_be_forgotten() {
        let at = Timestamp::from_second(1_700_000_000).unwrap();
        let mut data = BTreeMap::new();
        let orphan = |site: &Site, n: i64| OrphanRecord {
            site: site.clone(),
            task: TaskUid::new(&format!("1111-{n}")),
            tenant: if n > 0 { "team-a".to_owned() } else { String::new() },
            name: "render-shop-0011223344556677".to_owned(),
            job_uid: (n > 0).then(|| "j1".to_owned()),
            secret_uid: None,
            since: Timestamp::from_second(1_700_000_100 - n).unwrap(),
        };
        for (n, site) in (0..).zip(&sites()) {
            apply(&mut data, record_loss(site, at));
            apply(&mut data, record_orphan(&orphan(site, n)));
        }
        assert!(data.keys().all(|key| key.len() <= 253 && !key.contains('/')));
        let read = Ledger::read(&data);
        assert_eq!((read.lost.len(), read.orphans.len()), (3, 3));
        assert!(sites().iter().all(|site| read.lost.contains(&(site.clone(), at))));
        assert_eq!(read.orphans[0], orphan(&sites()[2], 2), "the oldest first");
        for site in &sites() {
            apply(&mut data, forget_loss(site));
        }
        for orphan in &read.orphans {
            apply(&mut data, forget_orphan(&orphan.task));
        }
        assert!(data.is_empty());
    }

    #[test]
    fn what_is_left_on_a_tenants_own_cluster_is_known_to_the_release_before_too() {
        for site in &sites()[1..] {
            let changes = record_orphan(&OrphanRecord {
                site: site.clone(),
                task: TaskUid::new("t1"),
                tenant: "team-a".to_owned(),
                name: "render-shop".to_owned(),
                job_uid: Some("j1".to_owned()),
                secret_uid: Some("s1".to_owned()),
                since: Timestamp::UNIX_EPOCH,
            });
            let text = changes.values().flatten().next().unwrap();
            let entry: BTreeMap<String, serde_json::Value> = serde_json::from_str(text).unwrap();
            let fields: Vec<_> = entry.keys().map(String::as_str).collect();
            assert_eq!(fields, ["jobUid", "name", "place", "secretUid", "since"]);
        }
    }

    #[test]
    fn what_cannot_be_read_counts_for_nothing() {
        let entries = [
            ("lost.x", "{}"),
            ("orphan.y", "nonsense"),
            ("other", "{}"),
            (
                "orphan.z",
                r#"{"place":{"namespace":"n"},"name":"a","since":"2026-01-01T00:00:00Z"}"#,
            ),
        ];
        let data = entries
            .map(|(key, text)| (key.to_owned(), text.to_owned()))
            .into();
        assert_eq!(Ledger::read(&data), Ledger::default());
    }
}
