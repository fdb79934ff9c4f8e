//! Every right there is, asked for one by one: all verbs on all resources that the API server serves.

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::core::ApiResource;
use kube::discovery::{Discovery, Scope};
use kube::{Api, Client};

/// Verbs of the API, and those that only exist as rights.
const VERBS: [&str; 12] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "impersonate",
    "bind",
    "escalate",
    "approve",
];

/// A subject as the API server knows it.
pub struct Subject {
    pub user: String,
    pub groups: Vec<String>,
}

impl Subject {
    /// A `ServiceAccount`, with the groups that its tokens carry.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let groups = [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ];
        Self {
            user: format!("system:serviceaccount:{namespace}:{name}"),
            groups: groups.to_vec(),
        }
    }

    /// A user without groups of their own.
    pub fn user(name: &str) -> Self {
        Self {
            user: name.to_owned(),
            groups: vec!["system:authenticated".to_owned()],
        }
    }
}

/// What `subject` may do in `namespace` and in the whole cluster, as `verb group/resource`.
pub async fn rights(client: &Client, subject: &Subject, namespace: &str) -> Result<Vec<String>> {
    let mut asked = Vec::new();
    for (group, resource, is_namespaced) in resources(client).await? {
        for verb in VERBS {
            asked.push((verb, group.clone(), resource.clone(), is_namespaced));
        }
    }
    ensure!(asked.len() > 1000, "only {} rights to ask for", asked.len());
    let answers = stream::iter(asked).map(async |(verb, group, resource, is_namespaced)| {
        let place = if is_namespaced { namespace } else { "" };
        let allowed = is_allowed(client, subject, place, (verb, &group, &resource)).await?;
        anyhow::Ok(allowed.then(|| format!("{verb} {group}/{resource}")))
    });
    let mut found: Vec<String> = answers
        .buffer_unordered(16)
        .try_filter_map(async |r| Ok(r))
        .try_collect()
        .await?;
    found.sort();
    Ok(found)
}

/// Group, resource with subresource, and whether it is namespaced.
async fn resources(client: &Client) -> Result<Vec<(String, String, bool)>> {
    let discovery = Discovery::new(client.clone()).run().await?;
    let mut found = Vec::new();
    for (resource, capabilities) in discovery
        .groups()
        .flat_map(kube::discovery::ApiGroup::recommended_resources)
    {
        let is_namespaced = capabilities.scope == Scope::Namespaced;
        let ApiResource { group, plural, .. } = resource;
        let subresources = capabilities.subresources.iter();
        let names = subresources.map(|(sub, _)| match sub.plural.split_once('/') {
            Some(_) => sub.plural.clone(),
            None => format!("{plural}/{}", sub.plural),
        });
        found.extend(names.map(|name| (group.clone(), name, is_namespaced)));
        found.push((group, plural, is_namespaced));
    }
    for needed in [
        "pods/exec",
        "pods/log",
        "pods/portforward",
        "pods/attach",
        "pods/ephemeralcontainers",
    ] {
        ensure!(
            found.iter().any(|(_, name, _)| name == needed),
            "{needed} is not asked for"
        );
    }
    Ok(found)
}

async fn is_allowed(
    client: &Client,
    subject: &Subject,
    namespace: &str,
    (verb, group, resource): (&str, &str, &str),
) -> Result<bool> {
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, sub)) => (resource, Some(sub.to_owned())),
        None => (resource, None),
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(subject.user.clone()),
            groups: Some(subject.groups.clone()),
            resource_attributes: Some(ResourceAttributes {
                namespace: Some(namespace.to_owned()),
                verb: Some(verb.to_owned()),
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                subresource,
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let answer = Api::all(client.clone())
        .create(&PostParams::default(), &review)
        .await?;
    Ok(answer.status.context("no answer")?.allowed)
}
