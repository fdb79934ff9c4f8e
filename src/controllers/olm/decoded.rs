//! What is kept of the objects that the watches show.

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::ResourceExt;
use kube::core::PartialObjectMeta;

use crate::api::names::{is_dns_label, is_dns_subdomain};
use crate::api::olm::{
    COPIED, COPIED_FROM, CatalogSourceSpec, ClusterServiceVersionSpec, ClusterServiceVersionStatus,
    SubscriptionSpec, SubscriptionStatus,
};
use crate::kubernetes::object::{LabelledObject, version_of};
use crate::kubernetes::pull_secrets::{COPY_MANAGER, ReadPullSecret};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pull_secrets::olm::{
    ObservedAccount, ObservedCatalog, ObservedCopy, ObservedCsv, ObservedSource, ObservedSubscription,
    PullSecretContent, PullSecretState,
};
use crate::plan::pull_secrets::ownership::{CopyMarks, is_copy_name};

/// Deployments of a version of an operator; those of today have a few.
const MAX_DEPLOYMENTS: usize = 256;

/// Its name.
pub(super) fn named<K: ResourceExt>(object: &K) -> Option<String> {
    object.meta().name.clone()
}

/// The name of a Secret that can be a copy.
pub(super) fn copy_named(secret: &PartialObjectMeta<Secret>) -> Option<String> {
    secret.metadata.name.clone().filter(|name| is_copy_name(name))
}

/// A ServiceAccount; a version that a worker saw later stays.
pub(super) fn account(account: &ServiceAccount, known: Option<&ObservedAccount>) -> Option<ObservedAccount> {
    let new = ObservedAccount::of(account, COPY_MANAGER)?;
    let known = known.filter(|known| known.uid == new.uid && known.version > new.version);
    Some(known.cloned().unwrap_or(new))
}

/// A Subscription, with the versions that OLM says it has.
pub(super) fn subscription(object: LabelledObject) -> Option<ObservedSubscription> {
    let (_, read) = object.into_object::<SubscriptionSpec, SubscriptionStatus>()?;
    let (spec, status) = (read.spec.unwrap_or_default(), read.status);
    // No object has another name, and a name may be as long as an object is.
    if !is_dns_label(&spec.source_namespace) || !is_dns_subdomain(&spec.source) {
        return None;
    }
    let csvs = [status.installed_csv, status.current_csv];
    Some(ObservedSubscription {
        uid: read.uid,
        catalog: ObjectKey::new(&spec.source_namespace, &spec.source),
        csvs: csvs
            .into_iter()
            .flatten()
            .filter(|name| is_dns_subdomain(name))
            .collect(),
    })
}

/// A version of an operator.
pub(super) fn csv(object: LabelledObject) -> Option<ObservedCsv> {
    let (_, read) = object.into_object::<ClusterServiceVersionSpec, ClusterServiceVersionStatus>()?;
    let deployments = read.spec.unwrap_or_default().install.spec.deployments;
    let deployments = deployments.unwrap_or_default();
    let names = deployments
        .iter()
        .flat_map(|deployment| [&*deployment.name, deployment.account()]);
    if deployments.len() > MAX_DEPLOYMENTS || !names.into_iter().all(is_dns_subdomain) {
        return None;
    }
    Some(ObservedCsv {
        uid: read.uid,
        is_copied: read.labels.contains_key(COPIED_FROM) || read.status.reason.as_deref() == Some(COPIED),
        deployments: deployments
            .iter()
            .map(|deployment| (deployment.name.clone(), deployment.account().to_owned()))
            .collect(),
    })
}

/// A catalog.
pub(super) fn catalog(object: LabelledObject) -> Option<ObservedCatalog> {
    let (_, read) = object.into_object::<CatalogSourceSpec, ()>()?;
    Some(ObservedCatalog {
        uid: read.uid,
        secrets: read.spec.unwrap_or_default().secrets.unwrap_or_default(),
    })
}

/// A Secret of a namespace of catalogs; what was read of it counts for its version.
pub(super) fn source(
    secret: &PartialObjectMeta<Secret>,
    known: Option<&ObservedSource>,
) -> Option<ObservedSource> {
    let meta = &secret.metadata;
    let version = version_of(meta)?;
    if let Some(known) =
        known.filter(|known| Some(&known.uid) == meta.uid.as_ref() && known.version >= version)
    {
        return Some(known.clone());
    }
    Some(ObservedSource {
        uid: meta.uid.clone()?,
        version,
        state: PullSecretState::Unread,
    })
}

/// A copy of such a Secret; what was read of it counts for its version.
pub(super) fn copy(secret: &PartialObjectMeta<Secret>, known: Option<&ObservedCopy>) -> Option<ObservedCopy> {
    let meta = &secret.metadata;
    let version = version_of(meta)?;
    if let Some(known) =
        known.filter(|known| Some(&known.uid) == meta.uid.as_ref() && known.version >= version)
    {
        return Some(known.clone());
    }
    Some(ObservedCopy {
        uid: meta.uid.clone()?,
        version,
        marks: CopyMarks::read(meta),
        content: None,
    })
}

/// A Secret with the name of a copy, as it was read.
pub(super) fn copy_as_read(read: &ReadPullSecret) -> ObservedCopy {
    ObservedCopy {
        uid: read.uid.clone(),
        version: read.version,
        marks: read.marks.clone(),
        content: match read.state {
            PullSecretState::Usable(content) => Some(content),
            // It differs from what any copy should have.
            PullSecretState::Faulty(_) | PullSecretState::Unread => Some(PullSecretContent::NONE),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(spec: &Value) -> LabelledObject {
        let metadata = json!({"name": "a", "namespace": "team-a", "uid": "u", "resourceVersion": "1"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    /// Holds: F6.
    #[test]
    fn a_version_of_too_many_deployments_is_not_kept() {
        let of = |deployments: &[Value]| {
            csv(object(
                &json!({"install": {"spec": {"deployments": deployments}}}),
            ))
        };
        for (count, is_kept) in [(MAX_DEPLOYMENTS, true), (MAX_DEPLOYMENTS + 1, false)] {
            let deployments: Vec<_> = (0..count)
                .map(|number| json!({"name": format!("d{number}")}))
                .collect();
            let kept = of(&deployments).map(|kept| kept.deployments.len());
            assert_eq!(kept, is_kept.then_some(count));
        }
        assert!(
            of(&[json!({"name": "a".repeat(254)})]).is_none(),
            "no Deployment has the name"
        );
    }

    /// Holds: F6.
    #[test]
    fn a_subscription_to_what_is_no_name_is_not_kept() {
        let named = |namespace: &str, source: &str| {
            let subscription = subscription(object(&json!({"sourceNamespace": namespace, "source": source})));
            subscription.map(|subscription| subscription.catalog)
        };
        assert_eq!(named("olm", "a.b"), Some(ObjectKey::new("olm", "a.b")));
        for (namespace, source) in [
            ("olm", ""),
            ("", "a"),
            ("olm", &*"a".repeat(254)),
            (&*"a".repeat(64), "a"),
        ] {
            assert_eq!(named(namespace, source), None);
        }
    }
}
