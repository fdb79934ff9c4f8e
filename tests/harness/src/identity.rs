//! The user of a test's requests: one value that gives clients and kubeconfig files.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::pki::KeyPairPem;
use crate::rundir;

/// Where an API server answers and how its certificate is verified.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) url: String,
    pub(crate) ca_pem: String,
    /// The name that the certificate is for, where that is not in the URL.
    pub(crate) server_name: Option<String>,
    /// Where kubeconfig files go.
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Clone)]
pub(crate) enum Proof {
    Nothing,
    Certificate(KeyPairPem),
    Token(Token),
}

/// A bearer token that never shows in a test's output.
#[derive(Clone)]
pub(crate) struct Token(pub(crate) String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// A user of one control plane. Cheap to clone; clients are made when asked for, because a client belongs to the
/// tokio runtime it was made in and each test has its own.
#[derive(Debug, Clone)]
pub struct Identity {
    name: String,
    proof: Proof,
    endpoint: Arc<Endpoint>,
}

impl Identity {
    pub(crate) fn new(name: impl Into<String>, proof: Proof, endpoint: &Arc<Endpoint>) -> Self {
        Self {
            name: name.into(),
            proof,
            endpoint: Arc::clone(endpoint),
        }
    }

    /// The user's name as the API server and its audit log know it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A fresh client. It does not retry by itself, so that a test sees the server's response.
    ///
    /// # Errors
    /// If the credentials cannot be decoded.
    pub async fn client(&self) -> Result<Client> {
        let kubeconfig: Kubeconfig = serde_json::from_value(self.to_json())?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        // A proxy in the environment is for the outside, never for a server of a test.
        config.proxy_url = None;
        config.connect_timeout = Some(Duration::from_secs(10));
        Ok(Client::try_from(config)?)
    }

    /// A kubeconfig file that holds everything it needs; only its owner can read it. It is removed with the world.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn kubeconfig(&self) -> Result<PathBuf> {
        let safe: String = self
            .name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let path = self
            .endpoint
            .dir
            .join(format!("{safe}-{}.kubeconfig", rundir::random_hex(4)?));
        // JSON is YAML, and kubectl, helm and client-go read it.
        rundir::write_private(&path, serde_json::to_string_pretty(&self.to_json())?.as_bytes())?;
        Ok(path)
    }

    /// A kubeconfig as text that holds everything it needs.
    ///
    /// # Errors
    /// If it cannot be written as YAML.
    pub fn kubeconfig_text(&self) -> Result<String> {
        Ok(serde_saphyr::to_string(&self.to_json())?)
    }

    /// The same user by way of another address, such as that of a proxy, where the same certificate is shown.
    #[must_use]
    pub fn by_way_of(&self, url: impl Into<String>) -> Self {
        let host = self.endpoint.url.trim_start_matches("https://");
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
        let endpoint = Endpoint {
            url: url.into(),
            ca_pem: self.endpoint.ca_pem.clone(),
            server_name: Some(host.to_owned()),
            dir: self.endpoint.dir.clone(),
        };
        Self {
            endpoint: Arc::new(endpoint),
            ..self.clone()
        }
    }

    fn to_json(&self) -> Value {
        let user = match &self.proof {
            Proof::Nothing => json!({}),
            Proof::Token(token) => json!({ "token": token.0 }),
            Proof::Certificate(pair) => json!({
                "client-certificate-data": STANDARD.encode(&pair.cert),
                "client-key-data": STANDARD.encode(&pair.key),
            }),
        };
        let mut cluster = json!({
            "server": self.endpoint.url,
            "certificate-authority-data": STANDARD.encode(&self.endpoint.ca_pem),
        });
        if let Some(name) = &self.endpoint.server_name {
            cluster["tls-server-name"] = json!(name);
        }
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{ "name": "test", "cluster": cluster }],
            "users": [{ "name": "test", "user": user }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        })
    }
}
