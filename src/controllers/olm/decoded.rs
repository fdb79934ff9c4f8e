//! What is kept of the objects that the watches show.

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::ResourceExt;
use kube::core::PartialObjectMeta;

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
    let csvs = [status.installed_csv, status.current_csv];
    Some(ObservedSubscription {
        uid: read.uid,
        catalog: ObjectKey::new(&spec.source_namespace, &spec.source),
        csvs: csvs
            .into_iter()
            .flatten()
            .filter(|name| !name.is_empty())
            .collect(),
    })
}

/// A version of an operator.
pub(super) fn csv(object: LabelledObject) -> Option<ObservedCsv> {
    let (_, read) = object.into_object::<ClusterServiceVersionSpec, ClusterServiceVersionStatus>()?;
    let deployments = read.spec.unwrap_or_default().install.spec.deployments;
    let deployments = deployments.iter().flatten();
    Some(ObservedCsv {
        uid: read.uid,
        is_copied: read.labels.contains_key(COPIED_FROM) || read.status.reason.as_deref() == Some(COPIED),
        deployments: deployments
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
