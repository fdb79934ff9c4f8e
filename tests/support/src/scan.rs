//! Whether a secret shows: the scan at the end of every stage.
//!
//! It reads everything that this stage's hub wrote and a user may read: objects in the tenant's, the rendering and the default
//! namespace and renderhub's own cluster-wide ones, every log of the hub, what its admin server serves, the audit log of its
//! requests, and what the kernel shows of it. It does not read the places where a secret belongs, nor what a test wrote itself.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::core::DynamicObject;
use kube::{Client, ResourceExt as _};
use renderhub::api::labels::{FIELD_MANAGER, GROUP, PIPELINE};
use renderhub_harness::canary::{Canaries, Hit};
use renderhub_harness::reach::{self, Kind};
use renderhub_harness::{ControlPlane, Identity};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::Stage;

/// The password of every credential a stage makes.
pub const CANARY: &str = "cAnary-p@ss/w+rd\"1";
/// The password inside the `auth` of a docker config.
pub const AUTH: &str = "cAnary-@uth/w+rd'2";
/// The `identitytoken` of a docker config.
pub const IDENTITY_TOKEN: &str = "cAnary-identity\\3";
/// The `registrytoken` of a docker config.
pub const REGISTRY_TOKEN: &str = "cAnary-registry:4";
/// A key of a Secret that no task names.
pub const OTHER_KEY: &str = "cAnary-other{5}";
/// What a tenant has in its values.
pub const VALUE: &str = "cAnary-value~6";
/// A text of a remote server: in a response, or in a termination message.
pub const FOREIGN: &str = "cAnary-foreign!7";

/// What belongs to the platform: no tenant may see it anywhere.
pub fn platforms() -> Canaries {
    let docker = Canaries::new().with("password", CANARY).with("auth", AUTH);
    docker
        .with("identitytoken", IDENTITY_TOKEN)
        .with("registrytoken", REGISTRY_TOKEN)
        .with("another key of a Secret", OTHER_KEY)
        // What every token of a ServiceAccount begins with.
        .with("a token", "eyJhbGciOi")
}

/// What a tenant may see where it wrote it, and no user anywhere else.
pub fn tenants() -> Canaries {
    Canaries::new()
        .with("a tenant's value", VALUE)
        .with("a foreign word", FOREIGN)
        .with("a tenant's own password", super::tenant::OWN)
}

/// The private key of an identity.
///
/// # Errors
/// If its kubeconfig is none.
fn key_of(identity: &Identity) -> Result<Canaries> {
    let file: Value = serde_json::from_slice(&std::fs::read(identity.kubeconfig()?)?)?;
    let key = file["users"][0]["user"]["client-key-data"]
        .as_str()
        .context("a key")?;
    let pem = String::from_utf8(STANDARD.decode(key)?)?;
    let line = pem.lines().nth(2).context("a key of several lines")?;
    Ok(Canaries::new().with("the hub's own key", line))
}

/// An object of the plane, as a scan has it: its kind in the plural, and itself.
pub type Object = (String, DynamicObject);

/// The kinds of a control plane; asked for once in a test binary, as its planes serve the same.
async fn kinds(plane: &ControlPlane) -> Result<&'static Vec<Kind>> {
    static KINDS: OnceCell<Vec<Kind>> = OnceCell::const_new();
    let all = KINDS
        .get_or_try_init(async || reach::kinds(&plane.admin().client().await?).await)
        .await?;
    Ok(all)
}

impl Stage {
    /// Where a secret of this stage shows.
    ///
    /// # Errors
    /// If something cannot be read.
    pub async fn hits(&self) -> Result<Vec<Hit>> {
        let mut hits = hits_in_objects(&self.objects_in_reach().await?);
        let own = key_of(&self.hub_user)?;
        for (place, text) in self.texts().await? {
            for canaries in [&platforms(), &tenants(), &own] {
                hits.extend(canaries.find(&place, &text));
            }
        }
        Ok(hits)
    }

    /// Every object of the stage's namespaces, and renderhub's own of the cluster.
    async fn objects_in_reach(&self) -> Result<Vec<Object>> {
        let client = self.plane.admin().client().await?;
        let kinds = kinds(self.plane).await?;
        let mut all = Vec::new();
        for namespace in self.namespaces_in_reach() {
            all.extend(self.objects_in(&client, namespace).await?);
        }
        // All stages of a plane have one default namespace: what another one planted there is its own to find.
        all.retain(|(_, object)| {
            let planted = object
                .metadata
                .name
                .as_deref()
                .and_then(|name| name.strip_prefix("planted-"));
            planted.is_none_or(|by| by == self.scope.tenant)
        });
        let is_ours = |kind: &&Kind| kind.resource.group == GROUP && !kind.is_namespaced;
        let own: Vec<_> = kinds.iter().filter(is_ours).cloned().collect();
        all.extend(reach::objects(&client, &own, None).await?);
        Ok(all)
    }

    fn namespaces_in_reach(&self) -> impl Iterator<Item = &str> {
        let others = self.others.iter().map(String::as_str);
        [&self.scope.tenant, &self.scope.rendering, "default"]
            .into_iter()
            .chain(others)
    }

    /// Every object of a namespace. Kinds that no request wrote there are not listed: a control plane has dozens, and lists of
    /// nothing were a quarter of the requests of `tasks`.
    async fn objects_in(&self, client: &Client, namespace: &str) -> Result<Vec<Object>> {
        let mut kinds = kinds(self.plane).await?.clone();
        if let Ok(audit) = self.plane.audit() {
            let written = audit.written_in(namespace).await?;
            kinds.retain(|kind| written.contains(&kind.resource.plural));
        }
        reach::objects(client, &kinds, Some(namespace)).await
    }

    /// Kind, namespace and name of the objects of this stage's namespaces that a list of every kind shows and the scan does not
    /// read: none, as long as the audit log names what was written.
    ///
    /// # Errors
    /// If something cannot be read.
    pub async fn unread_objects(&self) -> Result<Vec<String>> {
        let client = self.plane.admin().client().await?;
        let names = |objects: Vec<Object>| -> BTreeSet<String> {
            let name = |(kind, object): Object| {
                format!(
                    "{kind} {} {}",
                    object.namespace().unwrap_or_default(),
                    object.name_any()
                )
            };
            objects.into_iter().map(name).collect()
        };
        let mut unread = Vec::new();
        for namespace in self.namespaces_in_reach() {
            let all = names(reach::objects(&client, kinds(self.plane).await?, Some(namespace)).await?);
            let read = names(self.objects_in(&client, namespace).await?);
            // The API server's own Service, whose writes the log leaves out.
            let others = all
                .difference(&read)
                .filter(|name| !name.ends_with(" default kubernetes"));
            unread.extend(others.cloned());
        }
        Ok(unread)
    }

    /// Every text of this stage's hub, with its place.
    async fn texts(&self) -> Result<Vec<(String, String)>> {
        let mut texts = Vec::new();
        for path in &self.logs {
            let log = String::from_utf8_lossy(&std::fs::read(path)?).into_owned();
            texts.push(("the hub's log".to_owned(), log));
            texts.extend(reach::cores(path.parent().context("a directory of logs")?)?);
        }
        if let Some(hub) = self.hub.as_ref().filter(|hub| hub.exit_status().is_none()) {
            texts.extend(served(async |path| Ok(hub.get(path).await?.1)).await?);
            texts.extend(reach::process(hub.pid())?);
        }
        if let Ok(audit) = self.plane.audit() {
            texts.push((
                "the audit log".to_owned(),
                audit.lines_with(self.hub_user.name())?,
            ));
        }
        Ok(texts)
    }
}

/// What an admin server serves, with its place.
///
/// # Errors
/// If it does not answer.
pub async fn served(get: impl AsyncFn(&str) -> Result<String>) -> Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    for path in ["/metrics", "/livez", "/readyz", "/", "/debug/pprof/"] {
        texts.push((path.to_owned(), get(path).await?));
    }
    Ok(texts)
}

/// Where a secret shows in objects beside its home.
fn hits_in_objects(objects: &[Object]) -> Vec<Hit> {
    let (platforms, tenants) = (platforms(), tenants());
    let of_one = |(kind, object): &Object| {
        let place = format!("{kind} {}", object.metadata.name.as_deref().unwrap_or_default());
        let is_written = is_by_the_hub(kind, object);
        let mut hits = Vec::new();
        if let Some(text) = for_platforms(kind, object, is_written) {
            hits.extend(platforms.find(&place, &text));
        }
        if let Some(text) = for_tenants(kind, object, is_written) {
            hits.extend(tenants.find(&place, &text));
        }
        hits
    };
    objects.iter().flat_map(of_one).collect()
}

fn is_by_the_hub(kind: &str, object: &DynamicObject) -> bool {
    let mut managers = object.metadata.managed_fields.iter().flatten();
    kind == "events" || managers.any(|m| m.manager.as_deref() == Some(FIELD_MANAGER))
}

/// All of an object but the platform's own Secrets, and the states of pods, which tests make up.
fn for_platforms(kind: &str, object: &DynamicObject, is_written: bool) -> Option<String> {
    if kind == "secrets" && !is_written {
        return None;
    }
    let mut value = serde_json::to_value(object).ok()?;
    if kind == "pods" {
        value["status"].take();
    }
    Some(value.to_string())
}

/// What the hub wrote, but for the one Secret in which it hands a tenant's values to the renderer.
fn for_tenants(kind: &str, object: &DynamicObject, is_written: bool) -> Option<String> {
    let mut value = serde_json::to_value(object).ok()?;
    match kind {
        // One that the hub made for a Target: all but what it renders.
        "rendertasks" if object.labels().contains_key(PIPELINE) => {
            value["spec"]["config"].take();
            Some(value.to_string())
        }
        "rendertasks" | "clusterrendertasks" | "clusterregistries" | "rendererclasses" | "targets"
        | "releases" | "releasebindings" | "profiles" | "registrybindings" | "components"
        | "componentversions" => Some(value["status"].to_string()),
        // A version of a Target is made of what the Target and its Profiles say.
        "hydratedtargets" => {
            value["spec"]["userdata"].take();
            value["spec"]["profiles"].take();
            Some(value.to_string())
        }
        // How a Job ended, a test says.
        "jobs" if is_written => {
            value["status"].take();
            Some(value.to_string())
        }
        "secrets" if is_written => {
            value["data"].take();
            Some(value.to_string())
        }
        _ => is_written.then(|| value.to_string()),
    }
}

/// Hits as one text.
pub fn described(hits: &[Hit]) -> String {
    let each: Vec<_> = hits.iter().map(ToString::to_string).collect();
    each.join("; ")
}
