//! An OCI layout with one image of one layer, in bytes that depend on nothing but its content.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::BuiltImage;
use crate::rundir;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// One image.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Name with tag, as pods refer to it.
    pub(crate) name: String,
    /// Program and arguments.
    pub(crate) entrypoint: Vec<String>,
    /// `user:group`, as numbers.
    pub(crate) user: String,
    /// Its file system.
    pub(crate) root: Entries,
}

impl Layout {
    /// Writes it to `dir/<name without registry and tag>`, and as a tar next to it.
    pub(crate) fn write(self, dir: &Path) -> Result<BuiltImage> {
        let name = self.name.clone();
        let (layout, tar) = (dir.join(short(&name)), dir.join(format!("{}.tar", short(&name))));
        let (digest, files) = self.files()?;
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        // Made beside its place and moved there, so that a reader never meets half an image.
        let fresh = tempfile::Builder::new().prefix(".image-").tempdir_in(dir)?;
        files.write(&fresh.path().join("layout"))?;
        let packed = fresh.path().join("tar");
        fs::write(&packed, files.archive()?)?;
        if layout.exists() {
            fs::remove_dir_all(&layout)?;
        }
        fs::rename(fresh.path().join("layout"), &layout)?;
        fs::rename(packed, &tar).with_context(|| format!("cannot write {}", tar.display()))?;
        Ok(BuiltImage {
            name,
            digest,
            layout,
            tar,
        })
    }

    /// The manifest's digest and every file of the layout.
    fn files(self) -> Result<(String, Entries)> {
        let layer = Blob::new(self.root.archive()?);
        let config = Blob::new(serde_json::to_vec(&self.config(&layer.digest))?);
        let manifest = Blob::new(serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(CONFIG),
            "layers": [layer.descriptor(LAYER)],
        }))?);
        let digest = manifest.digest.clone();
        let mut files = Entries::default();
        files.file("oci-layout", 0o644, r#"{"imageLayoutVersion":"1.0.0"}"#);
        files.file("index.json", 0o644, serde_json::to_vec(&self.index(&manifest))?);
        for blob in [layer, config, manifest] {
            let path = format!("blobs/{}", blob.digest.replace(':', "/"));
            files.file(&path, 0o644, blob.bytes);
        }
        Ok((digest, files))
    }

    fn config(&self, layer: &str) -> Value {
        json!({
            "architecture": architecture(),
            "os": "linux",
            "config": { "User": self.user, "Entrypoint": self.entrypoint, "WorkingDir": "/" },
            "rootfs": { "type": "layers", "diff_ids": [layer] },
        })
    }

    fn index(&self, manifest: &Blob) -> Value {
        let mut entry = manifest.descriptor(MANIFEST);
        entry["platform"] = json!({ "architecture": architecture(), "os": "linux" });
        entry["annotations"] = json!({
            // What containerd calls the image once it is imported; the OCI annotation holds the tag alone.
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": self.name.rsplit(':').next(),
        });
        json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [entry] })
    }
}

/// `renderhub` of `renderhub.dev/renderhub:0.1.0`.
fn short(name: &str) -> &str {
    let last = name.rsplit('/').next().unwrap_or(name);
    last.split_once(':').map_or(last, |(name, _)| name)
}

/// Files and directories by path, without a leading slash; the order of the map is the order in an archive.
#[derive(Debug, Default)]
pub(crate) struct Entries(BTreeMap<String, Entry>);

#[derive(Debug)]
enum Entry {
    Directory { mode: u32 },
    File { mode: u32, bytes: Vec<u8> },
}

impl Entries {
    /// Adds a file and the directories above it.
    pub(crate) fn file(&mut self, path: &str, mode: u32, bytes: impl Into<Vec<u8>>) {
        for (at, _) in path.match_indices('/') {
            let above = self.0.entry(path[..at].to_owned());
            above.or_insert(Entry::Directory { mode: 0o755 });
        }
        let bytes = bytes.into();
        self.0.insert(path.to_owned(), Entry::File { mode, bytes });
    }

    /// Adds an empty directory.
    pub(crate) fn directory(&mut self, path: &str, mode: u32) {
        self.0.insert(path.to_owned(), Entry::Directory { mode });
    }

    /// A tar that depends neither on the time, nor on the machine, nor on the user.
    fn archive(&self) -> Result<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, entry) in &self.0 {
            let mut header = tar::Header::new_ustar();
            header.set_mtime(0);
            header.set_uid(0);
            header.set_gid(0);
            match entry {
                Entry::Directory { mode } => {
                    header.set_entry_type(tar::EntryType::Directory);
                    header.set_mode(*mode);
                    header.set_size(0);
                    archive.append_data(&mut header, format!("{path}/"), std::io::empty())?;
                }
                Entry::File { mode, bytes } => {
                    header.set_mode(*mode);
                    header.set_size(u64::try_from(bytes.len())?);
                    archive.append_data(&mut header, path, bytes.as_slice())?;
                }
            }
        }
        Ok(archive.into_inner()?)
    }

    /// Writes all of it into a new directory.
    fn write(&self, dir: &Path) -> Result<()> {
        fs::create_dir(dir)?;
        for (path, entry) in &self.0 {
            let target = dir.join(path);
            let written = match entry {
                Entry::Directory { .. } => fs::create_dir(&target),
                Entry::File { bytes, .. } => fs::write(&target, bytes),
            };
            written.with_context(|| format!("cannot write {}", target.display()))?;
        }
        Ok(())
    }
}

/// Bytes and their digest, which is computed once: in a test's own profile that takes seconds.
struct Blob {
    digest: String,
    bytes: Vec<u8>,
}

impl Blob {
    fn new(bytes: Vec<u8>) -> Self {
        Self {
            digest: digest_of(&bytes),
            bytes,
        }
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({ "mediaType": media_type, "digest": self.digest, "size": self.bytes.len() })
    }
}

/// `sha256:` and 64 hexadecimal digits.
pub(super) fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{}", rundir::hex(&Sha256::digest(bytes)))
}

/// The machine's architecture as OCI names it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
