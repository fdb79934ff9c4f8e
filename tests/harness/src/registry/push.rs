//! Pushing images: what a client of OCI's distribution sends.

use std::fs;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Request, Response, StatusCode, Uri, header};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use super::{Registry, USERNAME};
use crate::image::BuiltImage;

/// The tag of every image that is pushed.
const TAG: &str = "1";

impl Registry {
    /// What pods call the image of a repository.
    #[must_use]
    pub fn image(&self, repository: &str) -> String {
        format!("{}/{repository}:{TAG}", self.host())
    }

    /// Pushes an image to a repository, over what is there.
    ///
    /// # Errors
    /// If the registry refuses it.
    pub async fn push_image(&self, repository: &str, image: &BuiltImage) -> Result<()> {
        let client = self.client().await?;
        let blob = |digest: &str| fs::read(image.layout.join("blobs").join(digest.replace(':', "/")));
        let manifest = blob(&image.digest)?;
        let parts: Value = serde_json::from_slice(&manifest)?;
        let layers = parts["layers"].as_array().into_iter().flatten();
        for part in layers.chain([&parts["config"]]) {
            let digest = part["digest"].as_str().context("a part without a digest")?;
            push_blob(&client, repository, digest, blob(digest)?).await?;
        }
        let media_type = parts["mediaType"].as_str().context("a manifest without a type")?;
        let request = Request::put(format!("/v2/{repository}/manifests/{TAG}"))
            .header(header::CONTENT_TYPE, media_type)
            .body(Body::from(manifest))?;
        sent(&client, request, StatusCode::CREATED).await.map(drop)
    }

    /// A client with the password of the pusher; kube's is one for any server.
    async fn client(&self) -> Result<Client> {
        let scheme = if self.ca_pem.is_some() { "https" } else { "http" };
        let mut cluster = json!({ "server": format!("{scheme}://{}", self.host()) });
        if let Some(ca) = &self.ca_pem {
            cluster["certificate-authority-data"] = json!(STANDARD.encode(ca));
        }
        let kubeconfig: Kubeconfig = serde_json::from_value(json!({
            "current-context": "registry",
            "clusters": [{ "name": "registry", "cluster": cluster }],
            "users": [{ "name": "registry", "user": { "username": USERNAME, "password": self.password } }],
            "contexts": [{ "name": "registry", "context": { "cluster": "registry", "user": "registry" } }],
        }))?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        config.proxy_url = None;
        Ok(Client::try_from(config)?)
    }
}

async fn push_blob(client: &Client, repository: &str, digest: &str, bytes: Vec<u8>) -> Result<()> {
    let opening = Request::post(format!("/v2/{repository}/blobs/uploads/")).body(Body::from(Vec::new()))?;
    let begun = sent(client, opening, StatusCode::ACCEPTED).await?;
    let location = begun
        .headers()
        .get(header::LOCATION)
        .context("no place to push to")?;
    let location: Uri = location.to_str()?.parse()?;
    let place = location.path_and_query().context("no place to push to")?;
    let joint = if place.query().is_some() { '&' } else { '?' };
    let request = Request::put(format!("{place}{joint}digest={digest}"))
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .body(Body::from(bytes))?;
    sent(client, request, StatusCode::CREATED).await.map(drop)
}

async fn sent(client: &Client, request: Request<Body>, expected: StatusCode) -> Result<Response<Body>> {
    let (method, path): (Method, _) = (request.method().clone(), request.uri().path().to_owned());
    let response = client.send(request).await?;
    let status = response.status();
    ensure!(
        status == expected,
        "the registry answers {status} to {method} {path}"
    );
    Ok(response)
}
