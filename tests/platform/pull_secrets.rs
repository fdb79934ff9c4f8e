//! Pull Secrets of a class: copied for its Jobs, rotated, removed, and explained.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use renderhub::api::labels::{PULL_COPY, PULL_SECRET};

use super::*;

/// Where the platform's pull Secrets are.
struct Sources<'a> {
    stage: &'a Stage,
    namespace: String,
}

impl Sources<'_> {
    fn api(&self) -> Api<Secret> {
        Api::namespaced(self.stage.admin.clone(), &self.namespace)
    }

    /// A Secret with an entry for each of these hosts, all with this password.
    async fn put(&self, name: &str, hosts: &[&str], password: &str) -> Result<()> {
        let entry = json!({"username": "puller", "password": password});
        let auths: BTreeMap<_, _> = hosts.iter().map(|host| (*host, &entry)).collect();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson", "metadata": {"name": name},
            "stringData": {".dockerconfigjson": json!({"auths": auths}).to_string()},
        });
        let apply = PatchParams::apply("test").force();
        self.api().patch(name, &apply, &Patch::Apply(&secret)).await?;
        Ok(())
    }
}

async fn put_class(stage: &Stage, secrets: &[&str]) -> Result<Api<DynamicObject>> {
    let classes: Api<DynamicObject> = Api::all_with(stage.admin.clone(), &raw::<RendererClass>());
    let secrets: Vec<_> = secrets.iter().map(|name| json!({"name": name})).collect();
    let class = json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": "RendererClass", "metadata": {"name": "private"},
        "spec": {"image": "registry.example.com:5000/team/renderer:1", "imagePullSecrets": secrets},
    });
    let apply = PatchParams::apply("test").force();
    classes.patch("private", &apply, &Patch::Apply(&class)).await?;
    Ok(classes)
}

trait Copies {
    /// A task of the class; the names of the Secrets that its pod has, and its Job.
    async fn pulled_with(&self, task: &str) -> Result<(RenderTask, Vec<String>)>;
    /// The copies in the rendering namespace, by their names.
    async fn copies(&self) -> Result<BTreeMap<String, Secret>>;
    async fn until_copies(&self, wanted: &[&String]) -> Result<()>;
}

impl Copies for Stage {
    async fn pulled_with(&self, task: &str) -> Result<(RenderTask, Vec<String>)> {
        let task = self
            .submit_with(task, json!({"rendererClassName": "private"}))
            .await?;
        let job = self.job_of(&task).await?;
        Ok((task, names(&job)))
    }

    async fn copies(&self) -> Result<BTreeMap<String, Secret>> {
        let all = self
            .secrets()
            .list(&ListParams::default().labels(PULL_COPY))
            .await?;
        Ok(all
            .into_iter()
            .map(|secret| (secret.name_any(), secret))
            .collect())
    }

    async fn until_copies(&self, wanted: &[&String]) -> Result<()> {
        wait_for(&format!("these copies alone: {wanted:?}"), LIMIT, async || {
            let found = self.copies().await?;
            Ok(found.keys().eq(wanted.iter().copied()).then_some(()))
        })
        .await
    }
}

fn names(job: &Job) -> Vec<String> {
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let secrets = pod.and_then(|pod| pod.image_pull_secrets.clone());
    secrets
        .unwrap_or_default()
        .into_iter()
        .map(|secret| secret.name)
        .collect()
}

fn content(copy: &Secret) -> Result<Value> {
    let bytes = copy.data.as_ref().and_then(|data| data.get(".dockerconfigjson"));
    Ok(serde_json::from_slice(
        &bytes.context("a copy has a docker config")?.0,
    )?)
}

/// A stage whose pull Secrets are in a namespace of their own.
async fn stage(prefix: &str) -> Result<(Stage, String)> {
    let plane = plane::own_plane(&["crds"]).await?;
    let namespace = plane.namespace(prefix).await?;
    let sources = format!("--pull-secret-namespace={namespace}");
    let mut stage = Stage::on(plane, prefix, &[&sources, "--gc-interval=2s"]).await?;
    stage.make_registry().await?;
    stage.start_hub().await?;
    Ok((stage, namespace))
}

/// Holds: S1, S3.
#[tokio::test]
async fn a_class_is_pulled_with_copies_of_its_secrets_that_follow_them_and_go() -> Result<()> {
    let (stage, namespace) = stage("pulls").await?;
    let sources = Sources {
        stage: &stage,
        namespace,
    };
    sources
        .put(
            "first",
            &["registry.example.com:5000", "other.example.com"],
            "one",
        )
        .await?;
    sources.put("second", &["*.example.com:5000"], "two").await?;
    sources.put("elsewhere", &["other.example.com"], "three").await?;
    let classes = put_class(&stage, &["second", "first"]).await?;
    until_condition(&classes, "private", "PullSecretsResolved", ("True", "Resolved")).await?;

    let (task, used) = stage.pulled_with("before").await?;
    let copies = stage.copies().await?;
    let found: Vec<_> = used.iter().filter_map(|name| copies.get(name)).collect();
    let sources_of = |copy: &&Secret| copy.annotations().get(PULL_SECRET).cloned();
    let order: Vec<_> = found.iter().filter_map(sources_of).collect();
    assert_eq!(
        (order, copies.len()),
        (vec!["second".to_owned(), "first".to_owned()], 2),
        "in the order of the class"
    );
    let expected = json!({"auths": {"registry.example.com:5000": {"username": "puller", "password": "one"}}});
    assert_eq!(content(found[1])?, expected, "of one host alone");
    assert!(found.iter().all(|copy| copy.immutable == Some(true)));

    // A rotation is a new copy for the next Job; the Job of before keeps its own.
    sources
        .put("first", &["registry.example.com:5000"], "rotated")
        .await?;
    let (next, used_next) = wait_for("a Job with the new copy", LIMIT, async || {
        let name = format!(
            "after-{}",
            stage.tasks().list(&ListParams::default()).await?.items.len()
        );
        let (task, names) = stage.pulled_with(&name).await?;
        Ok((names[1] != used[1]).then_some((task, names)))
    })
    .await?;
    assert_eq!(used_next[0], used[0], "what did not change is the same copy");
    let copies = stage.copies().await?;
    assert!(
        used.iter()
            .chain(&used_next)
            .all(|name| copies.contains_key(name))
    );

    // What no Job names goes, and no other Secret.
    for other in stage.tasks().list(&ListParams::default()).await?.items {
        if ![task.name_any(), next.name_any()].contains(&other.name_any()) {
            stage.delete(&other).await?;
        }
    }
    stage.complete(&task).await?;
    stage.cleared(&task).await?;
    let mut left: Vec<&String> = used_next.iter().collect();
    left.sort();
    stage.until_copies(&left).await?;
    stage.delete(&next).await?;
    stage.until_copies(&[]).await?;
    assert_eq!(
        sources
            .api()
            .list_metadata(&ListParams::default())
            .await?
            .items
            .len(),
        3
    );
    classes.delete("private", &DeleteParams::default()).await?;
    stage.passed();
    Ok(())
}

/// Holds: S2.
#[tokio::test]
async fn a_secret_that_was_made_by_hand_is_used_as_before_and_what_is_wrong_is_said() -> Result<()> {
    let (stage, namespace) = stage("by-hand").await?;
    let sources = Sources {
        stage: &stage,
        namespace,
    };
    let classes = put_class(&stage, &["pull"]).await?;
    let missing = until_condition(
        &classes,
        "private",
        "PullSecretsResolved",
        ("False", "PullSecretNotFound"),
    )
    .await?;
    assert!(missing.contains("pull (does not exist"), "{missing}");
    let (_, used) = stage.pulled_with("missing").await?;
    assert_eq!(used, ["pull"], "as before");

    sources.put("pull", &["other.example.com"], "canary").await?;
    let hostless = until_condition(
        &classes,
        "private",
        "PullSecretsResolved",
        ("False", "PullSecretWithoutHost"),
    )
    .await?;
    assert!(
        hostless.contains("registry.example.com:5000") && !hostless.contains("canary"),
        "{hostless}"
    );

    let by_hand: Secret = serde_json::from_value(json!({
        "metadata": {"name": "pull"}, "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{}"},
    }))?;
    stage.secrets().create(&PostParams::default(), &by_hand).await?;
    let hand = until_condition(&classes, "private", "PullSecretsResolved", ("True", "Resolved")).await?;
    assert!(hand.contains("the one in the rendering namespace"), "{hand}");
    sources
        .put("pull", &["registry.example.com:5000"], "canary")
        .await?;
    let (_, used) = stage.pulled_with("hand").await?;
    assert_eq!(used, ["pull"], "the one that is there already");

    stage.secrets().delete("pull", &DeleteParams::default()).await?;
    wait_for("the class to say that there is a copy", LIMIT, async || {
        let said = until_condition(&classes, "private", "PullSecretsResolved", ("True", "Resolved")).await?;
        Ok(said
            .contains("pull (has registry.example.com:5000)")
            .then_some(()))
    })
    .await?;
    let (_, copied) = stage.pulled_with("copied").await?;
    assert!(stage.copies().await?.contains_key(&copied[0]));
    classes.delete("private", &DeleteParams::default()).await?;
    for task in stage.tasks().list(&ListParams::default()).await?.items {
        stage.delete(&task).await?;
    }
    stage.until_copies(&[]).await?;
    stage.passed();
    Ok(())
}
