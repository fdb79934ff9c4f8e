//! What is decided for tasks whose Job runs on another cluster: before it starts, while that is lost, and when they go.

use crate::plan::remote::site::{ClusterName, Site, TenantKubeconfig};
use crate::plan::task::tenant::{PushAccess, ReadIdentity, ServiceAccount, TenantCredential};

use super::super::{cluster, registry};
use super::*;

pub(super) const JOB: &str = "0a0b0c0d-0000-4000-8000-000000000001";

/// The cluster is lost since then.
pub(super) fn lose(s: &mut Situation, since: i64, reason: Reason) {
    (s.site, s.times.lost_since) = (Some(SiteState::down(reason)), at(since));
}

/// A task of `team-a` for the cluster `east`, which lists the registry.
pub(super) fn to_east() -> Situation {
    let task = task_of(spec_with(json!({"clusterName": "east"})));
    let mut situation = Situation::of(task);
    situation.catalog.clusters = [("east".to_owned(), cluster(json!({})))].into();
    situation.place.cluster = Some("east".to_owned());
    situation.site = Some(SiteState::Up);
    situation
}

/// The same for a cluster of the tenant's own, with a registry that takes pushes without a credential.
pub(super) fn to_own() -> Situation {
    let spec = spec_with(json!({
        "kubeConfig": {"secretRef": {"name": "edge", "key": "eu"}}, "deploymentNamespace": "renders",
        "serviceAccountName": "builder",
    }));
    let mut situation = Situation::of(task_of(spec));
    situation.catalog.registries =
        [("main".to_owned(), registry(json!({}), CredentialState::Anonymous))].into();
    situation.gates = FeatureGates::parse(["ExternalClusterReference=true"]).unwrap();
    situation.site = Some(SiteState::Up);
    situation
}

pub(super) fn running(situation: Situation) -> Situation {
    situation.with(|s| {
        let job = json!({
            "cluster": "east", "apiVersion": "batch/v1", "kind": "Job", "namespace": "renders", "name": "x", "uid": JOB,
        });
        s.task.status.job_ref = Some(serde_json::from_value(job).unwrap());
        s.task.status.start_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(10)));
    })
}

pub(super) fn seen(situation: Situation, uid: &str, may_have_ended: bool) -> Situation {
    situation.with(|s| {
        s.job = JobState::Seen {
            uid: uid.to_owned(),
            spec_hash: s.task.decoded.spec_hash.clone(),
            chart_url: None,
            may_have_ended,
        };
    })
}

fn carried() -> CopiedCredentials {
    let secret = serde_json::from_value(json!({
        "type": "kubernetes.io/basic-auth", "data": {"username": "cHVzaA==", "password": "c2VjcmV0"},
    }));
    let login: TenantCredential =
        crate::plan::task::tenant::login(&secret.unwrap(), "registry.test:5000").unwrap();
    CopiedCredentials {
        login: Some(login),
        certificates: None,
    }
}

/// Holds: C2.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_task_starts_where_the_platform_lets_it_and_its_cluster_is_up() {
    let without_registries = |s: &mut Situation| {
        s.catalog.clusters = [("east".to_owned(), cluster(json!({"registries": []})))].into();
    };
    let not_for_it = cluster(json!({"allowedNamespaces": ["team-b"]}));
    let suspended = cluster(json!({"suspend": true}));
    let disconnected = cluster(json!({"disconnect": true}));
    let table = vec![
        (to_east(), "load Some(\"push\")"),
        (to_east().with(|s| s.carried = Some(Ok(carried()))), "create"),
        (
            to_east().with(|s| s.carried = Some(Err(Refusal::new(Reason::PushSecretInvalid, "x")))),
            "write Pending PushSecretInvalid",
        ),
        (
            to_east().with(|s| s.catalog.clusters.clear()),
            "write Pending ClusterNotFound",
        ),
        (
            to_east().with(|s| s.catalog.clusters = [("east".to_owned(), not_for_it.clone())].into()),
            "write Pending ClusterNotFound",
        ),
        (
            to_east().with(|s| s.catalog.clusters = [("east".to_owned(), suspended)].into()),
            "write Pending WaitingForCluster",
        ),
        (
            to_east().with(|s| s.catalog.clusters = [("east".to_owned(), disconnected)].into()),
            "write Pending WaitingForCluster",
        ),
        (
            to_east().with(|s| s.site = Some(SiteState::Disconnected)),
            "rest for its cluster",
        ),
        (
            to_east().with(without_registries),
            "write Pending CredentialsNotAllowedOnCluster",
        ),
        (to_east().with(|s| s.site = None), "rest for its cluster"),
        (
            to_east().with(|s| lose(s, 98, Reason::Connecting)),
            "rest until 103 for its cluster",
        ),
        (
            to_east().with(|s| lose(s, 95, Reason::Connecting)),
            "write Pending WaitingForCluster",
        ),
        (
            to_east().with(|s| lose(s, 99, Reason::Unreachable)),
            "write Pending WaitingForCluster",
        ),
        (to_east().with(|s| s.has_slot = false), "rest in line"),
        (
            to_east().with(|s| {
                s.has_slot = false;
                lose(s, 0, Reason::Unreachable);
            }),
            "write Pending WaitingForCluster",
        ),
    ];
    for (n, (situation, expected)) in table.into_iter().enumerate() {
        assert_eq!(situation.label(), expected, "{n}");
    }
}

/// Holds: C2, I3.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_tenants_cluster_gets_nothing_of_the_platforms() {
    let with_credential = |s: &mut Situation| {
        let main = registry(json!({}), CredentialState::BasicAuth("push".to_owned()));
        s.catalog.registries = [("main".to_owned(), main)].into();
    };
    let refused = SiteState::Refused(Refusal::new(Reason::RBACDenied, "x"));
    let own_registry = |s: &mut Situation| {
        s.task = task_of(spec_with(json!({
            "kubeConfig": {"secretRef": {"name": "edge"}}, "registryRef": {"kind": "Registry", "name": "own"},
            "serviceAccountName": "builder",
        })));
        s.own = Some(Ok(TenantDestination {
            spec: serde_json::from_value(json!({"hostname": "registry.test:5000"})).unwrap(),
            access: PushAccess::Anonymous,
            certificates: None,
        }));
    };
    let anonymous = json!({"kubeConfig": {"secretRef": {"name": "edge"}}});
    let elsewhere = json!({
        "kubeConfig": {"secretRef": {"name": "edge", "namespace": "team-b"}}, "serviceAccountName": "builder",
    });
    let crossing = "ExternalClusterReferenceCrossNamespace=true";
    let table = vec![
        (to_own(), "create"),
        (
            to_own().with(|s| s.gates = FeatureGates::default()),
            "write Pending FeatureDisabled",
        ),
        (
            to_own().with(with_credential),
            "write Pending CredentialsNotAllowedOnCluster",
        ),
        (
            to_own().with(|s| {
                with_credential(s);
                s.site = None;
            }),
            "write Pending CredentialsNotAllowedOnCluster",
        ),
        (to_own().with(own_registry), "create"),
        (
            to_own().with(|s| s.site = Some(refused)),
            "write Pending RBACDenied",
        ),
        (
            to_own().with(|s| s.task = task_of(spec_with(anonymous.clone()))),
            "write Pending RBACDenied",
        ),
        (
            to_own().with(|s| s.task = task_of(spec_with(elsewhere.clone()))),
            "write Pending FeatureDisabled",
        ),
        (
            to_own().with(|s| {
                s.task = task_of(spec_with(elsewhere.clone()));
                s.gates = FeatureGates::parse([crossing]).unwrap();
            }),
            "write Pending CrossNamespaceRefDenied",
        ),
        (
            to_own().with(|s| {
                s.task = task_of(spec_with(elsewhere.clone()));
                s.gates = FeatureGates::parse([crossing]).unwrap();
                s.tenancy.crosses_namespaces = true;
                let grant = json!({
                    "from": [{"group": "renderhub.dev", "kind": "RenderTask", "namespace": "team-a"}],
                    "to": [{"group": "", "kind": "Secret", "name": "edge"}],
                });
                s.grants
                    .put(&None, "team-b", "g", Some(serde_json::from_value(grant).unwrap()));
            }),
            "create",
        ),
    ];
    for (n, (situation, expected)) in table.into_iter().enumerate() {
        assert_eq!(situation.label(), expected, "{n}");
    }
}

#[test]
fn who_acts_on_a_tenants_cluster_is_the_tasks_account() {
    let site = |identity| Site {
        cluster: ClusterName::Own(TenantKubeconfig {
            identity,
            namespace: "team-a".to_owned(),
            name: "edge".to_owned(),
            key: None,
            crosses: false,
        }),
        namespace: "renders".to_owned(),
    };
    let builder = ServiceAccount::new("team-a", "builder").unwrap();
    let user = site(ReadIdentity::ServiceAccount(builder)).user();
    assert_eq!(user.as_deref(), Some("system:serviceaccount:team-a:builder"));
    assert_eq!(site(ReadIdentity::Hub).user(), None);
}

#[test]
fn what_runs_on_a_lost_cluster_stays_as_it_is_until_its_time_is_over() {
    let lost = |since| running(to_east()).with(|s| lose(s, since, Reason::Unreachable));
    let refused = SiteState::Refused(Refusal::new(Reason::RBACDenied, "x"));
    let table = vec![
        (lost(90), "rest until 990 for its cluster"),
        (seen(lost(90), JOB, true), "rest until 990 for its cluster"),
        (lost(-800), "write Failed JobLost"),
        (seen(lost(-800), JOB, true), "write Failed JobLost"),
        (
            running(to_east()).with(|s| (s.site, s.times.lost_since) = (Some(refused), at(-900))),
            "write Failed JobLost",
        ),
        (running(to_east()), "read"),
        (seen(running(to_east()), JOB, false), "look at pods"),
        (seen(running(to_east()), JOB, true), "read"),
        (
            running(to_east()).with(|s| s.job = JobState::Gone),
            "write Failed JobLost",
        ),
        (
            seen(running(to_east()), "0a0b0c0d-0000-4000-8000-000000000002", true),
            "write Failed JobLost",
        ),
        (running(to_east()).with(|s| s.catalog.clusters.clear()), "read"),
    ];
    for (n, (situation, expected)) in table.into_iter().enumerate() {
        assert_eq!(situation.label(), expected, "{n}");
    }
}

/// Holds: B33.
#[test]
fn of_a_job_that_was_given_up_nothing_is_kept_once_its_cluster_is_reached() {
    let given_up = |site: SiteState| {
        seen(running(to_east()), JOB, false).with(|s| {
            s.task
                .set_status(crate::plan::task::status::cluster_lost(&s.task, at(99)));
            (s.secret, s.site) = (Some("s1"), Some(site));
        })
    };
    let table = vec![
        (given_up(SiteState::down(Reason::Unreachable)), "rest"),
        (
            given_up(SiteState::Up),
            "delete 0a0b0c0d-0000-4000-8000-000000000001",
        ),
        (
            given_up(SiteState::Up).with(|s| s.job = JobState::Gone),
            "delete s1",
        ),
        (
            given_up(SiteState::Up).with(|s| (s.job, s.secret) = (JobState::Gone, None)),
            "rest",
        ),
    ];
    for (n, (situation, expected)) in table.into_iter().enumerate() {
        assert_eq!(situation.label(), expected, "{n}");
    }
}

/// Holds: B1.
#[test]
fn what_runs_on_a_cluster_that_the_hub_keeps_away_from_is_not_given_up_and_can_be_deleted() {
    let away = |situation: Situation| situation.with(|s| s.site = Some(SiteState::Disconnected));
    let by_spec = |situation: Situation| {
        situation.with(|s| {
            s.catalog.clusters = [("east".to_owned(), cluster(json!({"disconnect": true})))].into();
        })
    };
    let lost = || running(to_east()).with(|s| lose(s, -9_000, Reason::Unreachable));
    let deleted = |at_second: i64| {
        away(running(to_east())).with(|s| {
            (s.task.deleting, s.task.deleted_at) = (true, Some(at(at_second)));
            s.leftovers = RemoteLeftovers::Possible;
        })
    };
    let table = vec![
        (away(running(to_east())), "rest for its cluster"),
        (seen(away(running(to_east())), JOB, true), "rest for its cluster"),
        // A hub that starts knows the spec before it knows the site, and the ledger has an old loss.
        (lost(), "write Failed JobLost"),
        (by_spec(lost()), "rest until 400 for its cluster"),
        (deleted(90), "rest until 690 for its cluster"),
        (deleted(-500), "abandon"),
        (
            deleted(-500).with(|s| s.leftovers = RemoteLeftovers::WrittenDown),
            "remove finalizer",
        ),
    ];
    for (n, (situation, expected)) in table.into_iter().enumerate() {
        assert_eq!(situation.label(), expected, "{n}");
    }
}

/// Holds: D3.
#[test]
fn a_deletion_waits_for_a_lost_cluster_but_not_for_ever() {
    let lost = |deleted: i64| {
        running(to_east()).with(|s| {
            (s.task.deleting, s.task.deleted_at) = (true, Some(at(deleted)));
            lose(s, 90, Reason::Unreachable);
            s.leftovers = RemoteLeftovers::Possible;
        })
    };
    let table = vec![
        (lost(90), "rest until 690 for its cluster"),
        (lost(-500), "abandon"),
        (
            lost(-500).with(|s| s.leftovers = RemoteLeftovers::WrittenDown),
            "remove finalizer",
        ),
        (
            lost(90).with(|s| s.leftovers = RemoteLeftovers::None),
            "remove finalizer",
        ),
        (
            seen(lost(90), JOB, false).with(|s| s.leftovers = RemoteLeftovers::None),
            "rest until 690 for its cluster",
        ),
        (
            lost(90).with(|s| (s.leftovers, s.secret) = (RemoteLeftovers::None, Some("s1"))),
            "rest until 690 for its cluster",
        ),
        (
            seen(lost(90), JOB, false).with(|s| s.site = Some(SiteState::Up)),
            "delete 0a0b0c0d-0000-4000-8000-000000000001",
        ),
        (
            lost(90).with(|s| s.site = Some(SiteState::Up)),
            "remove finalizer",
        ),
        (lost(90).with(|s| s.task.finalizers.hub_index = None), "rest"),
    ];
    for (n, (situation, expected)) in table.into_iter().enumerate() {
        assert_eq!(situation.label(), expected, "{n}");
    }
}
