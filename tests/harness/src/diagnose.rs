//! What a failed test prints: conditions, pod states, events and the end of the hub's log; never a secret.
//!
//! Objects are read as generic values and only named fields of their status are printed, so nothing under `data` or `stringData`
//! is ever read. Besides, every value of every Secret in these namespaces is blotted out of the whole text, as it is and in
//! base64, in case a program logged one.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::discovery::{ApiResource, Discovery, Scope};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use crate::control_plane::ControlPlane;
use crate::hub::Hub;
use crate::identity::Identity;

/// The API group whose objects are part of the picture: those in these namespaces, and the cluster-scoped ones that name one of them.
const GROUP: &str = "renderhub.dev";
/// Lines of the hub's log.
const LOG_LINES: usize = 100;
/// Values shorter than this are too common to blot out.
const SHORTEST_SECRET: usize = 5;
/// A control plane that is gone must not keep a failed test waiting.
const LIMIT: Duration = Duration::from_secs(15);

/// Prints the picture when a test ends early, by a panic or by `?`; call [`Watch::passed`] at the end of the test.
#[derive(Debug)]
#[must_use = "it prints when it is dropped"]
pub struct Watch {
    admin: Identity,
    namespaces: Vec<String>,
    hub_logs: Vec<PathBuf>,
    armed: bool,
}

impl Watch {
    /// Watches over these namespaces.
    pub fn new(plane: &ControlPlane, namespaces: &[&str]) -> Self {
        let namespaces = namespaces.iter().map(|name| (*name).to_owned()).collect();
        Self {
            admin: plane.admin().clone(),
            namespaces,
            hub_logs: Vec::new(),
            armed: true,
        }
    }

    /// The end of this hub's log is part of the picture.
    pub fn with_hub(mut self, hub: &Hub) -> Self {
        self.hub_logs.push(hub.log_path().to_owned());
        self
    }

    /// The test has passed; nothing is printed.
    pub fn passed(mut self) {
        self.armed = false;
    }

    /// The picture as text.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub async fn picture(&self) -> Result<String> {
        let client = self.admin.client().await?;
        let mut text = String::new();
        own_objects(&client, &self.namespaces, &mut text).await?;
        for namespace in &self.namespaces {
            writeln!(text, "== namespace {namespace}")?;
            for (group, kind, plural) in [("batch", "Job", "jobs"), ("", "Pod", "pods")] {
                let resource = api_resource(group, kind, plural);
                let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
                objects(&api, kind, &mut text).await?;
            }
            events(&client, namespace, &mut text).await?;
        }
        for path in &self.hub_logs {
            let log = String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
            writeln!(text, "== the hub's log\n{tail}")?;
        }
        Ok(blot(&text, &self.secrets(&client).await?))
    }

    async fn secrets(&self, client: &Client) -> Result<Vec<String>> {
        let mut values = Vec::new();
        for namespace in &self.namespaces {
            let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
            for secret in api.list(&ListParams::default()).await? {
                for value in secret.data.into_iter().flatten().map(|(_, value)| value.0) {
                    values.push(STANDARD.encode(&value));
                    let text = String::from_utf8_lossy(&value).into_owned();
                    // A log shows a file of several lines as several lines.
                    values.extend(text.lines().map(str::to_owned));
                    values.push(text);
                }
            }
        }
        Ok(values)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        // The test's own runtime may be going down, so the picture is taken by another.
        let picture = std::thread::scope(|scope| scope.spawn(|| picture_now(self)).join());
        match picture {
            Ok(Ok(text)) => eprintln!("{text}"),
            Ok(Err(error)) => eprintln!("no picture of the failed test: {error:#}"),
            Err(_) => eprintln!("no picture of the failed test"),
        }
    }
}

fn picture_now(watch: &Watch) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async { tokio::time::timeout(LIMIT, watch.picture()).await? })
}

fn api_resource(group: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() {
        "v1".to_owned()
    } else {
        format!("{group}/v1")
    };
    ApiResource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        api_version,
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

async fn own_objects(client: &Client, namespaces: &[String], text: &mut String) -> Result<()> {
    let discovery = Discovery::new(client.clone()).filter(&[GROUP]).run().await?;
    for (resource, capabilities) in discovery
        .groups()
        .flat_map(kube::discovery::ApiGroup::recommended_resources)
    {
        writeln!(text, "== {}", resource.kind)?;
        for object in Api::<DynamicObject>::all_with(client.clone(), &resource)
            .list(&ListParams::default())
            .await?
        {
            let is_shown = match (&capabilities.scope, object.namespace()) {
                (Scope::Cluster, _) => names_one(&object, namespaces),
                (Scope::Namespaced, namespace) => namespace.is_some_and(|n| namespaces.contains(&n)),
            };
            if is_shown {
                show(&object, &resource.kind, text)?;
            }
        }
    }
    Ok(())
}

/// Whether one of these namespaces is anywhere in an object: other tests of the plane have theirs.
fn names_one(object: &DynamicObject, namespaces: &[String]) -> bool {
    let whole = serde_json::to_string(object).unwrap_or_default();
    namespaces
        .iter()
        .any(|namespace| whole.contains(namespace.as_str()))
}

async fn objects(api: &Api<DynamicObject>, kind: &str, text: &mut String) -> Result<()> {
    for object in api.list(&ListParams::default()).await? {
        show(&object, kind, text)?;
    }
    Ok(())
}

fn show(object: &DynamicObject, kind: &str, text: &mut String) -> Result<()> {
    let place = object
        .namespace()
        .map(|namespace| format!("{namespace}/"))
        .unwrap_or_default();
    let deleting = if object.metadata.deletion_timestamp.is_some() {
        " (being deleted)"
    } else {
        ""
    };
    writeln!(text, "{kind} {place}{}{deleting}", object.name_any())?;
    let status = &object.data["status"];
    for condition in status["conditions"].as_array().into_iter().flatten() {
        let part = |name: &str| condition[name].as_str().unwrap_or_default().to_owned();
        writeln!(
            text,
            "  {}={} {} {}",
            part("type"),
            part("status"),
            part("reason"),
            part("message")
        )?;
    }
    for list in ["initContainerStatuses", "containerStatuses"] {
        for container in status[list].as_array().into_iter().flatten() {
            writeln!(text, "  container {}", container_state(container))?;
        }
    }
    Ok(())
}

/// Name, state, reason and exit code; not the message, which is the container's own text.
fn container_state(container: &Value) -> String {
    let name = container["name"].as_str().unwrap_or_default();
    let state = container["state"]
        .as_object()
        .and_then(|state| state.iter().next());
    let Some((state, detail)) = state else {
        return format!("{name} has no state");
    };
    let reason = detail["reason"].as_str().unwrap_or_default();
    let code = detail["exitCode"]
        .as_i64()
        .map(|code| format!(" exit code {code}"))
        .unwrap_or_default();
    format!(
        "{name} {state} {reason}{code}, restarts {}",
        container["restartCount"]
    )
}

async fn events(client: &Client, namespace: &str, text: &mut String) -> Result<()> {
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    for event in api.list(&ListParams::default()).await? {
        let about = event.regarding.unwrap_or_default();
        writeln!(
            text,
            "event {} {} on {} {}: {}",
            event.type_.unwrap_or_default(),
            event.reason.unwrap_or_default(),
            about.kind.unwrap_or_default(),
            about.name.unwrap_or_default(),
            event.note.unwrap_or_default()
        )?;
    }
    Ok(())
}

fn blot(text: &str, secrets: &[String]) -> String {
    let mut secrets: Vec<&str> = secrets
        .iter()
        .map(|s| s.trim())
        .filter(|s| s.len() >= SHORTEST_SECRET)
        .collect();
    // Longest first, so that no part of a longer one stays.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets
        .iter()
        .fold(text.to_owned(), |text, secret| text.replace(secret, "[secret]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_secrets_go_first_and_short_ones_stay() {
        let secrets = [
            "hunter2".to_owned(),
            "hunter2-and-more".to_owned(),
            "a".to_owned(),
        ];
        assert_eq!(
            blot("a hunter2-and-more, hunter2", &secrets),
            "a [secret], [secret]"
        );
    }

    #[test]
    fn of_cluster_scoped_objects_those_of_a_test_are_shown() {
        let cluster = |tenant: &str| -> DynamicObject {
            let object = serde_json::json!({
                "metadata": {"name": "east"}, "spec": {"allowedNamespaces": [tenant]},
            });
            serde_json::from_value(object).unwrap()
        };
        let namespaces = ["shop-1".to_owned(), "rendering-1".to_owned()];
        assert!(names_one(&cluster("shop-1"), &namespaces));
        assert!(!names_one(&cluster("shop-2"), &namespaces));
    }

    #[test]
    fn a_container_is_shown_without_its_message() {
        let status = serde_json::json!({
            "name": "render", "restartCount": 1,
            "state": {"terminated": {"exitCode": 3, "reason": "Error", "message": "foreign text"}}
        });
        assert_eq!(
            container_state(&status),
            "render terminated Error exit code 3, restarts 1"
        );
    }
}
