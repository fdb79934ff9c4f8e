//! Kubeconfigs, good and bad, and the Secrets they are in.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use renderhub_harness::{Identity, apply};
use serde_json::{Value, json};

/// Makes a Secret hold this key and no other.
pub async fn put_secret(admin: &Client, namespace: &str, name: &str, key: &str, value: &str) -> Result<()> {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace},
        "stringData": {key: value}});
    let api: Api<Secret> = Api::namespaced(admin.clone(), namespace);
    if api.get_metadata_opt(name).await?.is_none() {
        return apply::object(admin, secret).await.map(drop);
    }
    let data = json!([
        {"op": "add", "path": "/data", "value": {}},
        {"op": "add", "path": "/stringData", "value": {key: value}},
    ]);
    let patch = Patch::Json::<()>(serde_json::from_value(data)?);
    api.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Memory of this process that is in use, in KiB.
pub fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    Ok(number.context("no VmRSS")?.parse()?)
}

/// The kubeconfig of a user.
pub fn kubeconfig_of(user: &Identity) -> Result<String> {
    Ok(std::fs::read_to_string(user.kubeconfig()?)?)
}

/// A kubeconfig that leads to another port of this machine.
pub fn leading_to(kubeconfig: &str, port: u16) -> Result<String> {
    let mut kubeconfig: Value = serde_json::from_str(kubeconfig)?;
    kubeconfig["clusters"][0]["cluster"]["server"] = json!(format!("https://127.0.0.1:{port}"));
    Ok(kubeconfig.to_string())
}

/// A kubeconfig with a token that is none.
pub fn with_token(kubeconfig: &str, token: &str) -> Result<String> {
    let mut kubeconfig: Value = serde_json::from_str(kubeconfig)?;
    kubeconfig["users"][0]["user"] = json!({"token": token});
    Ok(kubeconfig.to_string())
}

/// A kubeconfig with one thing that is not safe, or that lacks one.
pub fn insecure(kubeconfig: &str, what: &str) -> Result<String> {
    let mut kubeconfig: Value = serde_json::from_str(kubeconfig)?;
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/true", "interactiveMode": "Never"});
    match what {
        "exec" => kubeconfig["users"][0]["user"] = json!({"exec": exec}),
        "file" => kubeconfig["users"][0]["user"]["tokenFile"] = json!("/var/run/token"),
        "skip" => kubeconfig["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = json!(true),
        _ => {
            let cluster = kubeconfig["clusters"][0]["cluster"]
                .as_object_mut()
                .context("a cluster")?;
            cluster.remove("certificate-authority-data");
        }
    }
    Ok(kubeconfig.to_string())
}
