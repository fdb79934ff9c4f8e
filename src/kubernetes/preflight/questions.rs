//! Asks the API server until there is an answer.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, ResourceRule, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
    SelfSubjectRulesReview, SelfSubjectRulesReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};

use crate::api::labels::GROUP;
use crate::base::metrics::Metrics;
use crate::plan::preflight::{Fact, FactError};

/// Longest a question may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// Pause before it is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// Questions at once, where none has to wait for another.
pub(super) const AT_ONCE: usize = 8;

/// How the API server is asked.
#[derive(Clone, Copy)]
pub(super) struct Questions<'c> {
    pub client: &'c Client,
    pub metrics: &'c Metrics,
    /// Pause between two questions that are many; without one they are asked at once.
    pub pause: Option<Duration>,
}

impl Questions<'_> {
    /// Asks until there is an answer, and counts.
    pub async fn ask<T, F>(
        self,
        verb: &'static str,
        resource: &'static str,
        question: impl Fn() -> F,
    ) -> Fact<T>
    where
        F: Future<Output = kube::Result<T>>,
    {
        loop {
            let answer = tokio::time::timeout(DEADLINE, question()).await;
            let (code, withheld) = match answer {
                Ok(Ok(fact)) => {
                    self.metrics.call(verb, resource, 200);
                    return Ok(fact);
                }
                Ok(Err(kube::Error::Api(status))) => (status.code, withheld(status.code)),
                Ok(Err(kube::Error::SerdeError(_))) => (200, Some(FactError::Unreadable)),
                _ => (0, None),
            };
            self.metrics.call(verb, resource, code);
            if let Some(why) = withheld {
                return Err(why);
            }
            tracing::warn!("the API server does not answer; it is asked again");
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// The rules by which the hub may do something in a namespace, those of the whole cluster included.
    pub async fn rules_in(self, namespace: &str) -> Fact<Vec<ResourceRule>> {
        let api: Api<SelfSubjectRulesReview> = Api::all(self.client.clone());
        let asked = SelfSubjectRulesReview {
            spec: SelfSubjectRulesReviewSpec {
                namespace: Some(namespace.to_owned()),
            },
            ..SelfSubjectRulesReview::default()
        };
        let post = PostParams::default();
        let answer = self
            .ask("create", "selfsubjectrulesreviews", || api.create(&post, &asked))
            .await?;
        Ok(answer
            .status
            .map(|status| status.resource_rules)
            .unwrap_or_default())
    }

    /// Whether the hub may do this with a resource of renderhub's, in a namespace or in all.
    pub async fn may(self, namespace: Option<&str>, verb: &str, resource: &str) -> Fact<bool> {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let asked = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    namespace: namespace.map(str::to_owned),
                    verb: Some(verb.to_owned()),
                    group: Some(GROUP.to_owned()),
                    resource: Some(resource.to_owned()),
                    subresource: Some(subresource.to_owned()).filter(|s| !s.is_empty()),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let post = PostParams::default();
        let answer = self
            .ask("create", "selfsubjectaccessreviews", || api.create(&post, &asked))
            .await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}

/// What an error says about a fact; `None` where another time may bring another answer.
const fn withheld(code: u16) -> Option<FactError> {
    match code {
        401 | 403 => Some(FactError::Forbidden),
        400 | 404..=406 | 415 | 422 => Some(FactError::Unreadable),
        _ => None,
    }
}
