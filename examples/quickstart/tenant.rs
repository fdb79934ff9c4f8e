//! What a tenant does, with the rights of Kubernetes' own `admin` role in its namespace and none elsewhere.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt};
use renderhub::api::RenderTask;
use renderhub::api::conditions::{ConditionType, Reason, is_true};
use renderhub::api::pipeline::HydratedTarget;
use renderhub_harness::{Registry, apply, target, wait_for};

use crate::platform::{Platform, RENDERING_NAMESPACE, kubectl, show};

const NAMESPACE: &str = "team-a";
/// A task takes some five seconds; a machine under load several times that.
const LIMIT: Duration = Duration::from_secs(120);

/// A user who works in `team-a`.
pub struct Tenant {
    client: Client,
    kubeconfig: PathBuf,
}

impl Tenant {
    /// Makes the namespace and a user who is its admin.
    pub async fn new(platform: &Platform) -> Result<Self> {
        let namespaces: Api<Namespace> = Api::all(platform.plane().admin().client().await?);
        let metadata = ObjectMeta {
            name: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        };
        let namespace = Namespace {
            metadata,
            ..Namespace::default()
        };
        namespaces.create(&PostParams::default(), &namespace).await?;
        let identity = platform.plane().tenant(NAMESPACE).await?;
        Ok(Self {
            client: identity.client().await?,
            kubeconfig: identity.kubeconfig()?,
        })
    }

    /// Submits both tasks and waits until both charts are in the registry.
    pub async fn submit(&self) -> Result<()> {
        for objects in [
            include_str!("manifests/release.yaml"),
            include_str!("manifests/bootstrap.yaml"),
        ] {
            apply::yaml(&self.client, objects).await?;
        }
        tokio::try_join!(self.finished("web"), self.finished("shop"))?;
        self.table().await
    }

    /// Submits a task that renders on the other cluster.
    pub async fn submit_to_edge(&self, name: &str, version: &str) -> Result<()> {
        let manifest = include_str!("manifests/release-edge.yaml");
        let objects = manifest.replace("${NAME}", name).replace("${VERSION}", version);
        apply::yaml(&self.client, &objects).await?;
        Ok(())
    }

    /// The cluster that a task's Job ran on, as the task says it.
    pub async fn cluster_of(&self, name: &str) -> Result<String> {
        let status = self.tasks().get(name).await?.status.unwrap_or_default();
        let job = status.job_ref.context("the task names no Job")?;
        job.cluster.context("the Job ran on the hub's own cluster")
    }

    /// Prints all tasks as kubectl shows them.
    pub async fn table(&self) -> Result<()> {
        self.run(&["get", "rendertasks"]).await
    }

    /// Runs kubectl as the tenant and shows it.
    pub async fn run(&self, words: &[&str]) -> Result<()> {
        let words = [&["--namespace", NAMESPACE], words].concat();
        show(&self.kubeconfig, &words).await
    }

    /// Applies a file of `examples/pipeline`, for the registry that is here.
    pub async fn apply_example(&self, file: &str, registry: &Registry) -> Result<()> {
        println!("    $ kubectl apply --filename examples/pipeline/{file}");
        let objects = target::example(file, registry)?;
        for object in apply::yaml(&self.client, &objects).await? {
            let kind = object.types.as_ref().map_or("", |types| &types.kind);
            println!("    {kind} {}", object.name_any());
        }
        Ok(())
    }

    /// The first version of a Target.
    pub async fn first_version(&self, target: &str) -> Result<i64> {
        let versions: Api<HydratedTarget> = Api::namespaced(self.client.clone(), NAMESPACE);
        let versions = versions.list(&ListParams::default()).await?.items;
        let of_target = versions
            .iter()
            .filter(|version| version.spec.target_name == target);
        let first = of_target.map(|version| version.spec.version).min();
        first.context("the Target has no version")
    }

    /// Waits for the end of a task and prints each step of its life.
    pub async fn finished(&self, name: &str) -> Result<()> {
        let tasks = self.tasks();
        let seen = RefCell::new(String::new());
        let task = wait_for(&format!("RenderTask {name}"), LIMIT, async || {
            let task = tasks.get(name).await?;
            let now = reason(&task);
            if seen.replace(now.clone()) != now {
                println!("    {name:<11}{now}");
            }
            let ended = [ConditionType::JobSucceeded, ConditionType::JobFailed];
            Ok(ended.iter().any(|type_| holds(&task, *type_)).then_some(task))
        })
        .await?;
        let status = task.status.clone().unwrap_or_default();
        if !holds(&task, ConditionType::Ready) {
            let failure = status.failure.map(|failure| failure.message).unwrap_or_default();
            bail!("RenderTask {} failed. {failure}", task.name_any());
        }
        let url = status.chart_url.context("the task has no chartURL")?;
        println!(
            "    {name:<11}{url}\n               {}",
            status.digest.context("the task has no digest")?
        );
        Ok(())
    }

    /// Waits until a task's `JobScheduled` has a reason.
    pub async fn reached(&self, name: &str, reason: Reason) -> Result<()> {
        let tasks = self.tasks();
        wait_for(&format!("{name} to be {reason}"), LIMIT, async || {
            let status = tasks.get(name).await?.status.unwrap_or_default();
            let is_it = |condition: &Condition| {
                condition.type_ == ConditionType::JobScheduled.as_str() && condition.reason == reason.as_str()
            };
            Ok(status.conditions.iter().any(is_it).then_some(()))
        })
        .await
    }

    fn tasks(&self) -> Api<RenderTask> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Asks for the credential, first politely, then for real.
    pub async fn try_to_read_the_credential(&self) -> Result<()> {
        let words = [
            "auth",
            "can-i",
            "get",
            "secrets",
            "--namespace",
            RENDERING_NAMESPACE,
        ];
        let (_, answer) = kubectl(&self.kubeconfig, &words).await?;
        println!("    $ kubectl {}\n    {}", words.join(" "), answer.trim());
        ensure!(
            answer.trim() == "no",
            "the tenant may read Secrets of the rendering namespace"
        );

        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), RENDERING_NAMESPACE);
        match secrets.get("quickstart-push").await {
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                println!(
                    "    GET …/namespaces/{RENDERING_NAMESPACE}/secrets/quickstart-push: {} {}",
                    status.code, status.reason
                );
                Ok(())
            }
            Err(error) => Err(error).context("this is not the refusal that was expected"),
            Ok(_) => bail!("the tenant has read the credential"),
        }
    }
}

/// How far the task is: the reason of its `Ready` condition.
fn reason(task: &RenderTask) -> String {
    let conditions = task.status.iter().flat_map(|status| &status.conditions);
    let ready = conditions.filter(|condition| condition.type_ == ConditionType::Ready.as_str());
    ready
        .map(|condition| condition.reason.clone())
        .next()
        .unwrap_or_else(|| "submitted".to_owned())
}

fn holds(task: &RenderTask, type_: ConditionType) -> bool {
    task.status
        .as_ref()
        .is_some_and(|status| is_true(&status.conditions, type_))
}
