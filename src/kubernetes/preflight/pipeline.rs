//! What a hub that makes tasks for Targets lacks: kinds that the API server does not serve, and rights in its namespaces.

use futures::{StreamExt, TryStreamExt, stream};

use super::questions::{AT_ONCE, Questions};
use crate::api::labels::{GROUP, VERSION};
use crate::plan::pipeline::references::ReferenceRules;
use crate::plan::preflight::needs::{NeededPermission, PipelineNeed, kinds, missing, needed};
use crate::plan::preflight::{Fact, PipelineFacts};

/// A namespace with few rights of its own, in which those of the whole cluster show.
const ANY: &str = "default";

/// What is missing of what a hub with these rules needs.
pub(super) async fn pipeline_facts(questions: Questions<'_>, rules: &ReferenceRules) -> Fact<PipelineFacts> {
    let version = format!("{GROUP}/{VERSION}");
    let listed = || questions.client.list_api_group_resources(&version);
    let served = questions.ask("get", "apiresources", listed).await?.resources;
    let is_served = |kind: &&str| served.iter().any(|resource| resource.name == *kind);
    let at_once = if questions.pause.is_some() { 1 } else { AT_ONCE };
    let missing_permissions: Vec<Vec<(Option<String>, NeededPermission)>> = stream::iter(needed(rules))
        .map(|need| lacking(questions, need))
        .buffered(at_once)
        .try_collect()
        .await?;
    Ok(PipelineFacts {
        missing_kinds: kinds(rules).into_iter().filter(|kind| !is_served(kind)).collect(),
        missing_permissions: missing_permissions.into_iter().flatten().collect(),
    })
}

/// The permissions of a namespace that the hub lacks. Not every authorizer lists its rules, so what they do not show is asked for.
async fn lacking(
    questions: Questions<'_>,
    need: PipelineNeed,
) -> Fact<Vec<(Option<String>, NeededPermission)>> {
    if let Some(pause) = questions.pause {
        tokio::time::sleep(pause).await;
    }
    let namespace = need.namespace.as_deref();
    let rules = questions.rules_in(namespace.unwrap_or(ANY)).await?;
    let mut found = Vec::new();
    for permission in missing(&need, &rules) {
        if !questions
            .may(namespace, permission.verb, permission.resource)
            .await?
        {
            found.push((need.namespace.clone(), permission));
        }
    }
    Ok(found)
}
