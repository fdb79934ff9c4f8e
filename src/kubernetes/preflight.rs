//! Collects the facts on which the preflight decides, each with the smallest right that gives a real answer.
//!
//! Every request but those about the hub itself is made in the rendering namespace, so a Role there is enough. A fact that the
//! hub may not learn counts as withheld; a server that does not answer is asked again.

mod pipeline;
mod questions;

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{
    LocalSubjectAccessReview, ResourceAttributes, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota, Secret};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::api::labels::{TASK_NAMESPACE, all_objects};
use crate::api::{ClusterRegistry, ClusterRegistrySpec, RenderTask};
use crate::base::metrics::Metrics;
use crate::plan::pipeline::references::ReferenceRules;
use crate::plan::preflight::tenants::{
    RIGHTS, RestrictedPermission, TenantPermissions, TenantSubject, subjects,
};
use crate::plan::preflight::{
    Fact, FactError, HubPermissions, PipelineFacts, PreflightCheck, PreflightFacts,
};

use pipeline::pipeline_facts;
use questions::{AT_ONCE, Questions};

/// Objects that are read of a kind that may have many.
const LOOKED_AT: u32 = 500;
/// Pages of tasks that are read.
const PAGES: usize = 100;
/// A namespace that the hub has nothing to do with, to see what it may do anywhere.
const ELSEWHERE: &str = "default";

/// The clients and settings of the collector.
#[derive(Clone)]
pub struct FactCollector {
    /// The hub's own cluster.
    pub client: Client,
    /// Counts the questions.
    pub metrics: Metrics,
    /// Name of the rendering namespace.
    pub rendering: String,
    /// Name of the namespace of the kubeconfigs; may be the same.
    pub kubeconfigs: String,
    /// Namespaces that the hub serves; empty is all.
    pub watched: Vec<String>,
    /// Whether one team owns the whole cluster.
    pub is_single_tenant: bool,
    /// What governs the pipeline; `None` where it is off.
    pub pipeline: Option<ReferenceRules>,
    /// The checks that are skipped.
    pub skipped: BTreeSet<PreflightCheck>,
    /// Pause between two questions about tenants' rights, which are asked one at a time then; without one many are asked at once.
    pub pause: Option<Duration>,
}

impl FactCollector {
    /// All facts. Ends only when the API server has answered each question, one way or the other.
    pub async fn facts(&self) -> PreflightFacts {
        let registries = self.registries().await;
        let user = self.user().await;
        let rights = match self.asks(PreflightCheck::TenantRights) {
            Ok(()) => {
                self.rights(registries.as_deref().unwrap_or_default(), user.as_deref())
                    .await
            }
            Err(why) => Err(why),
        };
        PreflightFacts {
            rendering: self.rendering.clone(),
            is_single_tenant: self.is_single_tenant,
            namespace: self.namespace().await,
            has_tasks: self.has_tasks().await,
            bindings: self
                .all::<RoleBinding>(PreflightCheck::RoleBindings, "rolebindings")
                .await,
            policies: self
                .all::<NetworkPolicy>(PreflightCheck::NetworkPolicy, "networkpolicies")
                .await
                .map(|all| all.into_iter().filter_map(|policy| policy.spec).collect()),
            quotas: self
                .all::<ResourceQuota>(PreflightCheck::ResourceQuota, "resourcequotas")
                .await
                .map(|all| all.into_iter().filter_map(|quota| quota.spec).collect()),
            own_rules: self.own_rules().await,
            pipeline: self.pipeline().await,
            user,
            rights,
            registries,
        }
    }

    fn asks(&self, check: PreflightCheck) -> Fact<()> {
        if self.skipped.contains(&check) {
            Err(FactError::NotAsked)
        } else {
            Ok(())
        }
    }

    async fn namespace(&self) -> Fact<Option<std::collections::BTreeMap<String, String>>> {
        let api: Api<PartialObjectMeta<Namespace>> = Api::all(self.client.clone());
        let found = self
            .questions()
            .ask("get", "namespaces", || api.get_metadata_opt(&self.rendering))
            .await?;
        Ok(found.map(|namespace| namespace.metadata.labels.unwrap_or_default()))
    }

    async fn has_tasks(&self) -> Fact<bool> {
        self.asks(PreflightCheck::TenantTasks)?;
        let api: Api<RenderTask> = Api::namespaced(self.client.clone(), &self.rendering);
        let one = ListParams::default().limit(1);
        let tasks = self
            .questions()
            .ask("list", "rendertasks", || api.list_metadata(&one))
            .await?;
        Ok(!tasks.items.is_empty())
    }

    /// Objects of a kind in the rendering namespace.
    async fn all<K>(&self, check: PreflightCheck, resource: &'static str) -> Fact<Vec<K>>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        self.asks(check)?;
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.rendering);
        let every = ListParams::default();
        Ok(self
            .questions()
            .ask("list", resource, || api.list(&every))
            .await?
            .items)
    }

    async fn registries(&self) -> Fact<Vec<(String, ClusterRegistrySpec)>> {
        let api: Api<ClusterRegistry> = Api::all(self.client.clone());
        let every = ListParams::default();
        let listed = self
            .questions()
            .ask("list", "clusterregistries", || api.list(&every))
            .await?;
        Ok(listed.items.into_iter().map(|r| (r.name_any(), r.spec)).collect())
    }

    /// The user name of the hub, as the API server sees it; `None` where it does not return one.
    async fn user(&self) -> Option<String> {
        let api: Api<SelfSubjectReview> = Api::all(self.client.clone());
        let (post, asked) = (PostParams::default(), SelfSubjectReview::default());
        let answer = self
            .questions()
            .ask("create", "selfsubjectreviews", || api.create(&post, &asked))
            .await;
        answer.ok()?.status?.user_info?.username
    }

    async fn own_rules(&self) -> Fact<HubPermissions> {
        self.asks(PreflightCheck::OwnRights)?;
        Ok(HubPermissions {
            rendering: self.questions().rules_in(&self.rendering).await?,
            kubeconfigs: if self.kubeconfigs == self.rendering {
                Vec::new()
            } else {
                self.questions().rules_in(&self.kubeconfigs).await?
            },
            elsewhere: self.questions().rules_in(ELSEWHERE).await?,
        })
    }

    async fn pipeline(&self) -> Fact<Option<PipelineFacts>> {
        let Some(rules) = &self.pipeline else {
            return Ok(None);
        };
        self.asks(PreflightCheck::Pipeline)?;
        pipeline_facts(self.questions(), rules).await.map(Some)
    }

    /// Namespaces of tasks that something is left of, and where the asker may list them, of all tasks.
    pub async fn task_namespaces(&self) -> BTreeSet<String> {
        let mut known = BTreeSet::new();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.rendering);
        let objects = ListParams::default().labels(&all_objects()).limit(LOOKED_AT);
        let left = self
            .questions()
            .ask("list", "secrets", || secrets.list_metadata(&objects))
            .await;
        for object in left.into_iter().flat_map(|list| list.items) {
            let annotations = object.metadata.annotations.unwrap_or_default();
            known.extend(annotations.get(TASK_NAMESPACE).cloned());
        }
        if self.may_list_tasks().await {
            let tasks: Api<RenderTask> = Api::all(self.client.clone());
            let mut page = ListParams::default().limit(LOOKED_AT);
            for _ in 0..PAGES {
                let Ok(list) = self
                    .questions()
                    .ask("list", "rendertasks", || tasks.list_metadata(&page))
                    .await
                else {
                    break;
                };
                let next = next_page(&list.metadata).map(|token| page.clone().continue_token(token));
                known.extend(list.items.into_iter().filter_map(|task| task.metadata.namespace));
                match next {
                    Some(next) => page = next,
                    None => break,
                }
            }
        }
        known
    }

    /// Whether the hub may list the tasks of all namespaces; checked first, so that no request is refused.
    async fn may_list_tasks(&self) -> bool {
        let may = self.questions().may(None, "list", "rendertasks").await;
        may.unwrap_or_default()
    }

    /// How the API server is asked.
    fn questions(&self) -> Questions<'_> {
        Questions {
            client: &self.client,
            metrics: &self.metrics,
            pause: self.pause,
        }
    }

    // === tenants' rights ===

    async fn rights(
        &self,
        registries: &[(String, ClusterRegistrySpec)],
        user: Option<&str>,
    ) -> Fact<TenantPermissions> {
        let is_sample = self.watched.is_empty();
        let (namespaces, is_cut) = if is_sample {
            self.known_namespaces(registries).await
        } else {
            (self.tenants(), false)
        };
        let subjects = subjects(&namespaces, user);
        let of_each = |subject: TenantSubject| RIGHTS.map(|right| (subject.clone(), right));
        let questions: Vec<(TenantSubject, RestrictedPermission)> =
            subjects.into_iter().flat_map(of_each).collect();
        let answers: Vec<Fact<Vec<(TenantSubject, RestrictedPermission)>>> = stream::iter(questions)
            .map(|(subject, right)| async move { self.holders(&subject, right).await })
            .buffered(if self.pause.is_some() { 1 } else { AT_ONCE })
            .collect()
            .await;
        let held: Fact<Vec<_>> = answers.into_iter().collect();
        // Several subjects have it by the same group.
        let mut seen = HashSet::new();
        let mut held: Vec<_> = held?.into_iter().flatten().collect();
        held.retain(|one| seen.insert(one.clone()));
        Ok(TenantPermissions {
            held,
            namespaces: namespaces.len(),
            is_sample,
            is_cut,
        })
    }

    /// The namespaces whose tenants have a word in what this hub does: those that it serves, and those of catalogs.
    fn tenants(&self) -> Vec<String> {
        let catalogs = self.pipeline.iter().flat_map(|rules| &rules.catalogs);
        let all: BTreeSet<&String> = self.watched.iter().chain(catalogs).collect();
        all.into_iter().cloned().collect()
    }

    /// Namespaces that registries and tasks name, where all are served: nothing lists the namespaces of tenants. And whether
    /// there are more tasks than were read.
    async fn known_namespaces(&self, registries: &[(String, ClusterRegistrySpec)]) -> (Vec<String>, bool) {
        let named = registries
            .iter()
            .flat_map(|(_, spec)| spec.allowed_namespaces.iter());
        let mut known: BTreeSet<String> = named.filter(|name| *name != "*").cloned().collect();
        let api: Api<RenderTask> = Api::all(self.client.clone());
        let some = ListParams::default().limit(LOOKED_AT);
        let mut is_cut = false;
        if let Ok(tasks) = self
            .questions()
            .ask("list", "rendertasks", || api.list_metadata(&some))
            .await
        {
            is_cut = next_page(&tasks.metadata).is_some();
            known.extend(tasks.items.into_iter().filter_map(|task| task.metadata.namespace));
        }
        // That it is taken for a tenant's is another finding; its own ServiceAccounts are no tenants here.
        known.remove(&self.rendering);
        (known.into_iter().collect(), is_cut)
    }

    /// What of the subject has the right: nothing, some of its groups, or the user itself.
    async fn holders(
        &self,
        subject: &TenantSubject,
        right: RestrictedPermission,
    ) -> Fact<Vec<(TenantSubject, RestrictedPermission)>> {
        if !self.may(subject, right).await? {
            return Ok(Vec::new());
        }
        if subject.groups.len() < 2 {
            return Ok(vec![(subject.clone(), right)]);
        }
        let mut held = Vec::new();
        for one in subject.single_groups() {
            if self.may(&one, right).await? {
                held.push((one, right));
            }
        }
        if held.is_empty() {
            held.push((subject.clone(), right));
        }
        Ok(held)
    }

    async fn may(&self, subject: &TenantSubject, right: RestrictedPermission) -> Fact<bool> {
        if let Some(pause) = self.pause {
            tokio::time::sleep(pause).await;
        }
        let api: Api<LocalSubjectAccessReview> = Api::namespaced(self.client.clone(), &self.rendering);
        let asked = LocalSubjectAccessReview {
            metadata: ObjectMeta {
                namespace: Some(self.rendering.clone()),
                ..ObjectMeta::default()
            },
            spec: SubjectAccessReviewSpec {
                user: subject.user.clone(),
                groups: Some(subject.groups.clone()),
                resource_attributes: Some(ResourceAttributes {
                    namespace: Some(self.rendering.clone()),
                    verb: Some(right.verb.to_owned()),
                    group: Some(right.group.to_owned()),
                    resource: Some(right.resource.to_owned()),
                    subresource: Some(right.subresource.to_owned()).filter(|s| !s.is_empty()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..LocalSubjectAccessReview::default()
        };
        let post = PostParams::default();
        let answer = self
            .questions()
            .ask("create", "localsubjectaccessreviews", || {
                api.create(&post, &asked)
            })
            .await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}

/// What the next page of a list is asked for with; `None` after the last one.
fn next_page(list: &ListMeta) -> Option<&str> {
    list.continue_.as_deref().filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::http::{Method, Uri};
    use kube::Config;
    use serde_json::{Value, json};

    use super::*;
    use crate::plan::preflight::{CheckResult, judge};

    /// Whether the spec of a review has an answer of yes.
    type Allows = fn(&Value) -> bool;

    /// An API server whose lists have so many pages, each of one object of a namespace of its own. It answers questions about
    /// rights so, and remembers the lists that it was asked for.
    async fn server(pages: usize, allows: Allows) -> (FactCollector, Arc<Mutex<Vec<String>>>) {
        let lists: Arc<Mutex<Vec<String>>> = Arc::default();
        let asked = Arc::clone(&lists);
        let answer = move |method: Method, uri: Uri, body: String| async move {
            if method != Method::GET {
                let mut review: Value = serde_json::from_str(&body).unwrap();
                review["status"] = json!({"allowed": allows(&review["spec"])});
                return review.to_string();
            }
            let path = uri.path_and_query().unwrap().to_string();
            let page = path.split('&').find_map(|part| part.strip_prefix("continue="));
            let number = page.map_or(0, |page| page.parse().unwrap());
            let next = (number + 1 < pages).then(|| (number + 1).to_string());
            let meta = if uri.path().ends_with("/secrets") {
                json!({"name": "a", "namespace": "rendering", "annotations": {TASK_NAMESPACE: "team-left"}})
            } else {
                json!({"name": "a", "namespace": format!("team-{number}")})
            };
            asked.lock().unwrap().push(path);
            json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {"continue": next},
                "items": [{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": meta}],
            })
            .to_string()
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
        (collector(&url), lists)
    }

    fn collector(url: &str) -> FactCollector {
        FactCollector {
            client: Client::try_from(Config::new(url.parse().unwrap())).unwrap(),
            metrics: Metrics::new().0,
            rendering: "rendering".to_owned(),
            kubeconfigs: "rendering".to_owned(),
            watched: Vec::new(),
            is_single_tenant: false,
            pipeline: None,
            skipped: BTreeSet::new(),
            pause: None,
        }
    }

    /// How many lists of a resource were asked for, each of which says how many objects are wanted.
    fn count(lists: &Mutex<Vec<String>>, resource: &str) -> usize {
        let lists = lists.lock().unwrap();
        let of_it: Vec<_> = lists.iter().filter(|path| path.contains(resource)).collect();
        let limit = format!("limit={LOOKED_AT}");
        assert!(of_it.iter().all(|path| path.contains(&limit)), "{of_it:?}");
        of_it.len()
    }

    #[tokio::test]
    async fn of_tasks_without_end_a_number_of_pages_is_looked_at_for_their_namespaces() {
        for (pages, looked_at) in [(1, 1), (PAGES, PAGES), (PAGES + 1, PAGES)] {
            let (inquiry, lists) = server(pages, |_| true).await;
            let found = inquiry.task_namespaces().await;
            assert_eq!(count(&lists, "/rendertasks?"), looked_at);
            let expected = (0..looked_at).map(|page| format!("team-{page}"));
            assert_eq!(found, expected.chain(["team-left".to_owned()]).collect());
        }
    }

    #[tokio::test]
    async fn of_a_kind_that_may_have_many_the_first_objects_are_looked_at_and_a_finding_says_so() {
        for (pages, reported) in [
            (1, "registries and tasks name"),
            (2, "registries and some of the tasks name"),
        ] {
            let (inquiry, lists) = server(pages, |_| false).await;
            let rights = inquiry.rights(&[], None).await.unwrap();
            assert_eq!(count(&lists, "/rendertasks?"), 1);
            assert_eq!(rights.namespaces, 1);
            let facts = PreflightFacts {
                rendering: "rendering".to_owned(),
                is_single_tenant: false,
                user: None,
                namespace: Err(FactError::NotAsked),
                has_tasks: Err(FactError::NotAsked),
                rights: Ok(rights),
                bindings: Err(FactError::NotAsked),
                policies: Err(FactError::NotAsked),
                quotas: Err(FactError::NotAsked),
                own_rules: Err(FactError::NotAsked),
                pipeline: Err(FactError::NotAsked),
                registries: Err(FactError::NotAsked),
            };
            let findings = judge(&facts, &BTreeSet::new());
            let finding = findings
                .into_iter()
                .find(|finding| finding.check == PreflightCheck::TenantRights)
                .unwrap();
            assert_eq!(finding.result, CheckResult::Ok);
            assert!(finding.message.contains(reported), "{}", finding.message);
            inquiry.task_namespaces().await;
            assert_eq!(count(&lists, "/secrets?"), 1);
        }
    }

    #[tokio::test]
    async fn a_right_is_a_groups_where_that_gives_it_and_an_accounts_otherwise() {
        let cases: [(Allows, &[&str]); 4] = [
            (|_| false, &[]),
            (
                |asked| asked["user"] == "system:serviceaccount:a:default",
                &["system:serviceaccount:a:default"],
            ),
            (
                |asked| asked["groups"].to_string().contains("\"system:serviceaccounts\""),
                &["system:serviceaccounts"],
            ),
            (
                |asked| asked["groups"].to_string().contains("system:serviceaccounts:b"),
                &["system:serviceaccounts:b"],
            ),
        ];
        for (allows, expected) in cases {
            let (inquiry, _) = server(1, allows).await;
            let watched = ["a", "b", "c"].map(str::to_owned).into();
            let rights = FactCollector { watched, ..inquiry }
                .rights(&[], None)
                .await
                .unwrap();
            let held = rights.held.iter().map(|(subject, right)| {
                let name = subject.user.as_ref().or(subject.groups.first());
                (name.unwrap().as_str(), *right)
            });
            let all = expected
                .iter()
                .flat_map(|name| RIGHTS.map(|right| (*name, right)));
            assert_eq!(held.collect::<HashSet<_>>(), all.collect(), "{expected:?}");
            assert_eq!(rights.held.len(), expected.len() * RIGHTS.len(), "none twice");
        }
    }

    #[tokio::test]
    async fn authors_of_catalogs_are_tenants_too() {
        let (inquiry, _) = server(1, |_| false).await;
        let pipeline = ReferenceRules {
            catalogs: vec!["c".to_owned(), "a".to_owned()],
            ..ReferenceRules::default()
        };
        let inquiry = FactCollector {
            watched: vec!["a".to_owned(), "b".to_owned()],
            pipeline: Some(pipeline),
            ..inquiry
        };
        assert_eq!(inquiry.tenants(), ["a", "b", "c"]);
        assert_eq!(inquiry.rights(&[], None).await.unwrap().namespaces, 3);
    }
}
