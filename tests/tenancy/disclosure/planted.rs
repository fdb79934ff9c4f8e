//! The scan that every stage ends with finds a leak of every kind, in every place where it looks.

use std::io::Write as _;
use std::process::Command;

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use renderhub::api::conditions::ConditionType::JobScheduled;
use renderhub::api::labels::FIELD_MANAGER;
use renderhub_harness::canary::Hit;
use renderhub_harness::process::Process;
use renderhub_harness::{apply, reach, wait_for};
use serde_json::json;

use support::scan::{AUTH, FOREIGN, IDENTITY_TOKEN, OTHER_KEY, REGISTRY_TOKEN, VALUE, platforms, served};
use support::{CANARY, LIMIT, Stage};

/// A secret as a name may be.
fn hex(text: &str) -> String {
    let all: Vec<_> = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    all.concat()
}

/// Whether there is a hit in this place, and none anywhere else.
fn only_in(hits: &[Hit], place: &str) -> bool {
    !hits.is_empty() && hits.iter().all(|hit| hit.place.starts_with(place))
}

pub trait Planted {
    /// Asserts that this, and nothing else, is found.
    async fn finds(&self, place: &str) -> Result<()>;
    /// Changes an object as the hub would, asserts that it is found, and takes it back.
    async fn finds_patched<K>(
        &self,
        api: &Api<K>,
        name: &str,
        part: &str,
        leak: serde_json::Value,
    ) -> Result<()>
    where
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned + kube::Resource<DynamicType = ()>;
}

impl Planted for Stage {
    async fn finds(&self, place: &str) -> Result<()> {
        let hits = self.hits().await?;
        ensure!(
            only_in(&hits, place),
            "a leak in {place} was planted, and found were {hits:?}"
        );
        Ok(())
    }

    async fn finds_patched<K>(
        &self,
        api: &Api<K>,
        name: &str,
        part: &str,
        leak: serde_json::Value,
    ) -> Result<()>
    where
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned + kube::Resource<DynamicType = ()>,
    {
        let manager = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let plural = K::plural(&()).into_owned();
        let place = format!("{plural} {name}");
        let undo = |value: &serde_json::Value| -> serde_json::Value {
            let keys = value.as_object().into_iter().flatten();
            keys.map(|(key, _)| (key.clone(), json!(null)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        let patch = |leak: serde_json::Value| match part {
            "status" => Patch::Merge(json!({"status": leak})),
            part => Patch::Merge(json!({"metadata": {part: leak}})),
        };
        if part == "status" {
            api.patch_status(name, &manager, &patch(leak.clone())).await?;
            self.finds(&place).await?;
            api.patch_status(name, &manager, &patch(undo(&leak))).await?;
        } else {
            api.patch(name, &manager, &patch(leak.clone())).await?;
            self.finds(&place).await?;
            api.patch(name, &manager, &patch(undo(&leak))).await?;
        }
        ensure!(
            self.hits().await?.is_empty(),
            "the leak in {place} was taken back"
        );
        Ok(())
    }
}

/// Holds: E1, E7.
#[tokio::test]
async fn a_leak_in_an_object_is_found() -> Result<()> {
    let mut stage = Stage::new("planted").await?;
    let task = stage.submit(stage.task("shop")).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    ensure!(stage.hits().await?.is_empty(), "nothing is planted yet");
    // Other tests change the default namespace between two looks.
    wait_for("the scan to read every object", LIMIT, async || {
        let unread = stage.unread_objects().await?;
        ensure!(unread.is_empty(), "not read: {unread:?}");
        Ok(Some(()))
    })
    .await?;
    let (job, name) = (stage.job_of(&task).await?.name_any(), task.name_any());
    // So that it does not put right what is planted.
    stage.kill_hub();
    let json_in_json = json!({"password": CANARY}).to_string();
    let pair = STANDARD.encode(format!("pusher:{AUTH}"));
    let (tasks, jobs, secrets) = (stage.tasks(), stage.jobs(), stage.secrets());
    stage
        .finds_patched(
            &tasks,
            &name,
            "status",
            json!({"chartURL": format!("oci://u:{CANARY}@h/r:1")}),
        )
        .await?;
    stage
        .finds_patched(&tasks, &name, "status", json!({"chartURL": VALUE}))
        .await?;
    stage
        .finds_patched(&tasks, &name, "status", json!({"chartURL": FOREIGN}))
        .await?;
    stage
        .finds_patched(&tasks, &name, "annotations", json!({"x": json_in_json}))
        .await?;
    stage
        .finds_patched(
            &tasks,
            &name,
            "labels",
            json!({"x": URL_SAFE_NO_PAD.encode(IDENTITY_TOKEN)}),
        )
        .await?;
    stage
        .finds_patched(&jobs, &job, "annotations", json!({"x": pair}))
        .await?;
    stage
        .finds_patched(&jobs, &job, "annotations", json!({"x": VALUE}))
        .await?;
    stage
        .finds_patched(&jobs, &job, "labels", json!({"x": hex(REGISTRY_TOKEN)}))
        .await?;
    stage
        .finds_patched(&secrets, &job, "annotations", json!({"x": VALUE}))
        .await?;
    stage
        .finds_patched(&secrets, &job, "annotations", json!({"x": OTHER_KEY}))
        .await?;
    let planted = format!("planted-{}", stage.scope.tenant);
    for namespace in [stage.scope.tenant.as_str(), &stage.scope.rendering, "default"] {
        let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": planted, "namespace": namespace}, "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "x", "reportingInstance": "x", "action": "x", "reason": "x", "type": "Normal",
            "regarding": {"kind": "RenderTask", "name": name, "namespace": namespace}, "note": VALUE});
        let client = stage.plane.admin().client().await?;
        apply::object(&client, event).await?;
        stage.finds(&format!("events {planted}")).await?;
        let events: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(client, namespace);
        events.delete(&planted, &DeleteParams::default()).await?;
    }
    ensure!(stage.hits().await?.is_empty(), "everything was taken back");
    stage.passed();
    Ok(())
}

/// Holds: E7, E8.
#[tokio::test]
async fn a_leak_beside_the_objects_is_found() -> Result<()> {
    let mut stage = Stage::without_hub("planted", &[]).await?;
    stage.plants_leaks();
    let hub = stage.spawn_hub_with(&stage.hub_user.kubeconfig()?, &[("X", &format!("a{CANARY}"))])?;
    hub.wait_ready().await?;
    let environ = format!("/proc/{}/environ", hub.pid());
    let path = hub.log_path().to_owned();
    stage.hub = Some(hub);
    stage.finds(&environ).await?;
    stage.kill_hub();
    ensure!(stage.hits().await?.is_empty(), "its environment went with it");
    // A core file beside the log, which is where the hub works.
    let core = path.with_file_name("core.1");
    std::fs::write(&core, [&[0xff, 0, 0xfe], CANARY.as_bytes(), &[0]].concat())?;
    stage.finds(&core.display().to_string()).await?;
    std::fs::remove_file(&core)?;
    // What the API server writes down of every request.
    let maps: Api<ConfigMap> = Api::namespaced(stage.hub_user.client().await?, &stage.scope.tenant);
    _ = maps.get_opt(&hex(CANARY)).await;
    wait_for("the audit log", LIMIT, async || {
        Ok((!stage.hits().await?.is_empty()).then_some(()))
    })
    .await?;
    stage.finds("the audit log").await?;
    let mut log = std::fs::OpenOptions::new().append(true).open(&path)?;
    writeln!(
        log,
        "{}",
        json!({"message": json!({"body": FOREIGN}).to_string()})
    )?;
    let places: Vec<_> = stage.hits().await?.into_iter().map(|hit| hit.place).collect();
    ensure!(places.iter().any(|place| place == "the hub's log"), "{places:?}");
    stage.passed();
    Ok(())
}

/// Holds: E7.
#[tokio::test]
async fn a_leak_in_arguments_and_on_the_admin_port_is_found() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join(hex(CANARY));
    std::fs::write(&file, "")?;
    let mut command = Command::new("tail");
    command.arg("-f").arg(&file);
    let process = Process::spawn("a leak", &command, &dir.path().join("log"))?;
    wait_for("its arguments", LIMIT, async || {
        let shown = reach::process(process.pid())?;
        let hits: Vec<_> = shown
            .iter()
            .flat_map(|(place, text)| platforms().find(place, text))
            .collect();
        Ok(only_in(&hits, &format!("/proc/{}/cmdline", process.pid())).then_some(()))
    })
    .await?;
    for path in ["/metrics", "/livez", "/readyz", "/"] {
        let leak = async |asked: &str| {
            Ok(if asked == path {
                CANARY.to_owned()
            } else {
                String::new()
            })
        };
        let hits: Vec<_> = served(leak)
            .await?
            .iter()
            .flat_map(|(place, text)| platforms().find(place, text))
            .collect();
        ensure!(only_in(&hits, path), "{path}: {hits:?}");
    }
    Ok(())
}

/// A stage that ends without a word has its checks all the same.
#[tokio::test]
async fn a_leak_fails_a_test_that_does_not_ask_for_its_checks() -> Result<()> {
    let stage = Stage::without_hub("unasked", &[]).await?;
    let maps: Api<ConfigMap> = Api::namespaced(stage.admin.clone(), &stage.scope.tenant);
    let leak: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "leak"}, "data": {"a": CANARY}}))?;
    maps.create(&PostParams::default(), &leak).await?;
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(stage)));
    ensure!(ended.is_err(), "the leak is not seen");
    maps.delete("leak", &DeleteParams::default()).await?;
    Ok(())
}
