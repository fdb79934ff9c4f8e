//! Container images without a container engine.
//!
//! An image here is one program and exactly the shared libraries it needs, for a user that is not root. It is
//! written as an OCI layout, once as a directory and once as a tar that `ctr -n k8s.io images import` takes. The same
//! program gives the same bytes each time: entries are sorted, times and owners fixed, and the layer is not compressed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::process;

/// Version of the images, which is that of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// User and group of the program; the number that images without root share by convention.
const USER: &str = "65532";

/// Where distributions keep the certificates of public authorities.
const CA_BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// Looks up hosts in `/etc/hosts` and by DNS. Both are part of libc itself since glibc 2.34, so no plug-in is copied.
const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files dns\n";

/// What goes into an image.
#[derive(Debug, Clone)]
pub struct Image {
    name: String,
    program: PathBuf,
    entrypoint: String,
}

/// An image as it was written.
#[derive(Debug, Clone)]
pub struct BuiltImage {
    /// Name with tag, as pods refer to it.
    pub name: String,
    /// Digest of the manifest: `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// The OCI layout as a directory.
    pub layout: PathBuf,
    /// The same layout as a tar, for `ctr images import`.
    pub tar: PathBuf,
}

impl Image {
    /// The program as `/<entrypoint>` of an image called `name`, e.g. `renderhub.dev/renderhub:0.1.0`.
    #[must_use]
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>, entrypoint: &str) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            entrypoint: entrypoint.to_owned(),
        }
    }

    /// The hub's image, as the chart names it by default.
    #[must_use]
    pub fn hub(program: impl Into<PathBuf>) -> Self {
        Self::new(format!("renderhub.dev/renderhub:{VERSION}"), program, "renderhub")
    }

    /// The renderer's image, as the chart names it by default.
    #[must_use]
    pub fn renderer(program: impl Into<PathBuf>) -> Self {
        Self::new(
            format!("renderhub.dev/renderer:{VERSION}"),
            program,
            "renderhub-renderer",
        )
    }

    /// Writes the layout to `dir/<name without registry and tag>` and its tar next to it.
    ///
    /// # Errors
    /// If the program or a library it needs is missing, if the machine has no certificates, or if writing fails.
    pub fn write(&self, dir: &Path) -> Result<BuiltImage> {
        let (digest, files) = self.layout()?;
        let short = self.short_name();
        let (layout, tar) = (dir.join(short), dir.join(format!("{short}.tar")));
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        // Made beside its place and moved there, so that a reader never meets half an image.
        let fresh = tempfile::Builder::new().prefix(".image-").tempdir_in(dir)?;
        write_files(&files, &fresh.path().join("layout"))?;
        let mut packed = tempfile::NamedTempFile::new_in(dir)?;
        packed.write_all(&archive(files)?)?;
        if layout.exists() {
            fs::remove_dir_all(&layout)?;
        }
        fs::rename(fresh.path().join("layout"), &layout)?;
        packed
            .persist(&tar)
            .with_context(|| format!("cannot write {}", tar.display()))?;
        Ok(BuiltImage {
            name: self.name.clone(),
            digest,
            layout,
            tar,
        })
    }

    /// `renderhub` of `renderhub.dev/renderhub:0.1.0`.
    fn short_name(&self) -> &str {
        let last = self.name.rsplit('/').next().unwrap_or(&self.name);
        last.split_once(':').map_or(last, |(name, _)| name)
    }

    /// The manifest's digest and every file of the OCI layout by its path.
    fn layout(&self) -> Result<(String, Entries)> {
        let layer = archive(self.root_filesystem()?)?;
        let config = serde_json::to_vec(&self.config(&digest_of(&layer)))?;
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
        }))?;
        let digest = digest_of(&manifest);
        let index = serde_json::to_vec(&self.index(&manifest))?;
        let mut files = Entries::new();
        put(
            &mut files,
            "oci-layout",
            0o644,
            br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec(),
        );
        put(&mut files, "index.json", 0o644, index);
        for blob in [layer, config, manifest] {
            let path = format!("blobs/{}", digest_of(&blob).replace(':', "/"));
            put(&mut files, &path, 0o644, blob);
        }
        Ok((digest, files))
    }

    fn config(&self, layer: &str) -> Value {
        json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "User": format!("{USER}:{USER}"),
                "Entrypoint": [format!("/{}", self.entrypoint)],
                "WorkingDir": "/",
            },
            "rootfs": { "type": "layers", "diff_ids": [layer] },
        })
    }

    fn index(&self, manifest: &[u8]) -> Value {
        let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", manifest);
        entry["platform"] = json!({ "architecture": architecture(), "os": "linux" });
        entry["annotations"] = json!({
            // What containerd calls the image once it is imported; the OCI annotation holds the tag alone.
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": self.name.rsplit(':').next(),
        });
        json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [entry],
        })
    }

    fn root_filesystem(&self) -> Result<Entries> {
        let mut files = Entries::new();
        put(&mut files, &self.entrypoint, 0o755, read(&self.program)?);
        for library in libraries(&self.program)? {
            let path = library
                .strip_prefix("/")
                .unwrap_or(&library)
                .to_string_lossy()
                .into_owned();
            put(&mut files, &path, 0o755, read(&library)?);
        }
        let passwd = format!("nonroot:x:{USER}:{USER}:nonroot:/:/sbin/nologin\n");
        put(&mut files, "etc/passwd", 0o644, passwd.into_bytes());
        put(
            &mut files,
            "etc/group",
            0o644,
            format!("nonroot:x:{USER}:\n").into_bytes(),
        );
        put(&mut files, "etc/nsswitch.conf", 0o644, NSSWITCH.into());
        put(
            &mut files,
            "etc/ssl/certs/ca-certificates.crt",
            0o644,
            certificates()?,
        );
        // Programs without a volume there still find a place for temporary files.
        files.insert("tmp".to_owned(), Entry::Directory { mode: 0o1777 });
        Ok(files)
    }
}

/// Files and directories by path, without a leading slash; the order of the map is the order in an archive.
type Entries = BTreeMap<String, Entry>;

#[derive(Debug)]
enum Entry {
    Directory { mode: u32 },
    File { mode: u32, bytes: Vec<u8> },
}

/// Adds a file and the directories above it.
fn put(files: &mut Entries, path: &str, mode: u32, bytes: Vec<u8>) {
    for (at, _) in path.match_indices('/') {
        files
            .entry(path[..at].to_owned())
            .or_insert(Entry::Directory { mode: 0o755 });
    }
    files.insert(path.to_owned(), Entry::File { mode, bytes });
}

/// A tar of the entries in which nothing depends on when, where or by whom it was made.
fn archive(files: Entries) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, entry) in files {
        let mut header = tar::Header::new_ustar();
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        match entry {
            Entry::Directory { mode } => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_mode(mode);
                header.set_size(0);
                archive.append_data(&mut header, format!("{path}/"), std::io::empty())?;
            }
            Entry::File { mode, bytes } => {
                header.set_mode(mode);
                header.set_size(u64::try_from(bytes.len())?);
                archive.append_data(&mut header, path, bytes.as_slice())?;
            }
        }
    }
    Ok(archive.into_inner()?)
}

fn write_files(files: &Entries, dir: &Path) -> Result<()> {
    fs::create_dir(dir)?;
    for (path, entry) in files {
        let target = dir.join(path);
        match entry {
            Entry::Directory { .. } => fs::create_dir(&target)?,
            Entry::File { bytes, .. } => {
                fs::write(&target, bytes).with_context(|| format!("cannot write {}", target.display()))?;
            }
        }
    }
    Ok(())
}

/// The shared libraries of a program, its loader included, as the system's own loader finds them.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    // cargo points the loader at its own directories, where an image has nothing.
    let mut ldd = Command::new("ldd");
    ldd.arg(program)
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("LD_PRELOAD")
        .env("LC_ALL", "C");
    parse_ldd(&process::run(&mut ldd)?)
}

fn parse_ldd(text: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.contains("not found") {
            bail!("the program needs a library that is missing here: {line}");
        }
        let place = line.split_once("=> ").map_or(line, |(_, place)| place);
        // The rest is the virtual library of the kernel, which has no path, or "statically linked".
        if place.starts_with('/') {
            found.push(PathBuf::from(place.split(" (").next().unwrap_or(place)));
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn certificates() -> Result<Vec<u8>> {
    match CA_BUNDLES.iter().find(|path| Path::new(path).is_file()) {
        Some(path) => read(Path::new(path)),
        None => bail!(
            "no certificates of public authorities here; as root, run: apt-get install -y ca-certificates"
        ),
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest_of(bytes), "size": bytes.len() })
}

fn digest_of(bytes: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(bytes) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The machine's architecture in the words of OCI.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ls(dir: &Path) -> BuiltImage {
        Image::new("example.test/tools/ls:1", "/bin/ls", "ls")
            .write(dir)
            .unwrap()
    }

    fn json_of(path: &Path) -> Value {
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    fn blob(image: &BuiltImage, descriptor: &Value) -> PathBuf {
        let digest = descriptor["digest"].as_str().unwrap();
        image.layout.join("blobs").join(digest.replace(':', "/"))
    }

    #[test]
    fn the_same_program_gives_the_same_bytes() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (a, b) = (ls(first.path()), ls(second.path()));
        assert_eq!(a.digest, b.digest);
        assert_eq!(fs::read(&a.tar).unwrap(), fs::read(&b.tar).unwrap());
        // Written over an older image: the same again, and nothing half-made beside it.
        assert_eq!(ls(first.path()).digest, a.digest);
        assert_eq!(fs::read_dir(first.path()).unwrap().count(), 2);
    }

    #[test]
    fn every_blob_is_what_its_descriptor_says() {
        let dir = tempfile::tempdir().unwrap();
        let image = ls(dir.path());
        let index = json_of(&image.layout.join("index.json"));
        let entry = &index["manifests"][0];
        assert_eq!(
            entry["annotations"]["io.containerd.image.name"],
            "example.test/tools/ls:1"
        );
        assert_eq!(entry["digest"], image.digest.as_str());
        let manifest = json_of(&blob(&image, entry));
        for part in [entry, &manifest["config"], &manifest["layers"][0]] {
            let bytes = fs::read(blob(&image, part)).unwrap();
            assert_eq!(part["digest"], digest_of(&bytes).as_str());
            assert_eq!(part["size"], bytes.len());
        }
        let config = json_of(&blob(&image, &manifest["config"]));
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["config"]["Entrypoint"], json!(["/ls"]));
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
    }

    #[test]
    fn the_program_runs_with_nothing_but_the_image() {
        let dir = tempfile::tempdir().unwrap();
        let image = ls(dir.path());
        let manifest = json_of(&blob(&image, &json!({ "digest": image.digest })));
        let root = dir.path().join("root");
        let mut layer = tar::Archive::new(fs::File::open(blob(&image, &manifest["layers"][0])).unwrap());
        layer.set_preserve_permissions(true);
        layer.unpack(&root).unwrap();
        let inside = in_root(&root, &["/ls", "-ln", "/etc"]);
        assert!(
            inside.contains("nsswitch.conf") && inside.contains("passwd"),
            "{inside}"
        );
        // libc alone resolves names: no plug-in of the name service is in the image.
        fs::write(root.join("etc/hosts"), "198.18.0.7 registry.test\n").unwrap();
        fs::copy("/usr/bin/getent", root.join("getent")).unwrap();
        let address = in_root(&root, &["/getent", "ahostsv4", "registry.test"]);
        assert!(address.starts_with("198.18.0.7"), "{address}");
    }

    /// Runs a program as the image's user with `root` as its whole file system; only root may do so, as with a node.
    fn in_root(root: &Path, words: &[&str]) -> String {
        let mut command = Command::new("chroot");
        command
            .arg(format!("--userspec={USER}:{USER}"))
            .arg(root)
            .args(words);
        process::run(&mut command).unwrap()
    }

    #[test]
    fn ldd_is_read_as_it_prints() {
        let text = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f2)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(parse_ldd(text).unwrap(), expected);
        assert!(parse_ldd("\tstatically linked\n").unwrap().is_empty());
        let error = parse_ldd("\tlibfoo.so.1 => not found\n").unwrap_err().to_string();
        assert!(error.contains("libfoo.so.1"), "{error}");
    }
}
