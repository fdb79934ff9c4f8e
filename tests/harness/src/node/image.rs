//! One small image that every node has: a static busybox, for the sandbox of each pod and for pods of tests.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, Header};

use crate::rundir;

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Writes the image as a tar of an OCI layout; its entrypoint sleeps for ever.
pub(super) fn write(name: &str, to: &Path) -> Result<()> {
    let layer = layer()?;
    let config = serde_json::to_vec(&json!({
        "architecture": architecture(),
        "os": "linux",
        "config": { "Entrypoint": ["/bin/busybox", "sleep", "2147483647"], "User": "65532:65532" },
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
    }))?;
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor(CONFIG, &config),
        "layers": [descriptor(LAYER, &layer)],
    }))?;
    let mut entry = descriptor(MANIFEST, &manifest);
    entry["annotations"] = json!({ "io.containerd.image.name": name });
    let index = serde_json::to_vec(&json!({ "schemaVersion": 2, "manifests": [entry] }))?;

    let mut tar = Builder::new(std::fs::File::create(to)?);
    file(
        &mut tar,
        "oci-layout",
        br#"{"imageLayoutVersion":"1.0.0"}"#,
        0o644,
    )?;
    file(&mut tar, "index.json", &index, 0o644)?;
    for blob in [&config, &manifest, &layer] {
        file(
            &mut tar,
            &format!("blobs/{}", digest(blob).replace(':', "/")),
            blob,
            0o644,
        )?;
    }
    tar.into_inner()?.flush()?;
    Ok(())
}

fn layer() -> Result<Vec<u8>> {
    let busybox = ["/bin/busybox", "/usr/bin/busybox"]
        .into_iter()
        .find(|path| Path::new(path).is_file());
    let program = std::fs::read(busybox.context("no busybox: `apt-get install -y busybox-static`")?)?;
    let mut tar = Builder::new(Vec::new());
    file(&mut tar, "bin/busybox", &program, 0o755)?;
    file(
        &mut tar,
        "bin/sh",
        b"#!/bin/busybox sh\nexec /bin/busybox sh \"$@\"\n",
        0o755,
    )?;
    Ok(tar.into_inner()?)
}

fn file<W: std::io::Write>(tar: &mut Builder<W>, path: &str, content: &[u8], mode: u32) -> Result<()> {
    let mut header = Header::new_ustar();
    header.set_size(content.len() as u64);
    header.set_mode(mode);
    Ok(tar.append_data(&mut header, path, content)?)
}

fn descriptor(media_type: &str, content: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest(content), "size": content.len() })
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", rundir::hex(&Sha256::digest(content)))
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
