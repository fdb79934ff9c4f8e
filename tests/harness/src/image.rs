//! Container images without a container engine.
//!
//! An image here is one program and exactly the shared libraries it needs, for a user that is not root. It is
//! written as an OCI layout, once as a directory and once as a tar that `ctr -n k8s.io images import` takes. The same
//! program gives the same bytes each time: entries are sorted, times and owners fixed, and the layer is not compressed.

mod layout;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;
pub(crate) use layout::{Entries, Layout};

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
    beside: Vec<(String, PathBuf)>,
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
            beside: Vec::new(),
        }
    }

    /// Adds a static program or a script as `/<path>`.
    #[must_use]
    pub fn with_file(mut self, path: &str, source: impl Into<PathBuf>) -> Self {
        self.beside.push((path.to_owned(), source.into()));
        self
    }

    /// The hub's image, as the chart names it by default.
    #[must_use]
    pub fn hub(program: impl Into<PathBuf>) -> Self {
        Self::new(format!("renderhub.dev/renderhub:{VERSION}"), program, "renderhub")
    }

    /// The renderer's image, as the chart names it by default.
    #[must_use]
    pub fn renderer(program: impl Into<PathBuf>) -> Self {
        let name = format!("renderhub.dev/renderer:{VERSION}");
        Self::new(name, program, "renderhub-renderer")
    }

    /// Writes the layout to `dir/<name without registry and tag>` and its tar next to it.
    ///
    /// # Errors
    /// If the program or a library it needs is missing, if the machine has no certificates, or if writing fails.
    pub fn write(&self, dir: &Path) -> Result<BuiltImage> {
        let layout = Layout {
            name: self.name.clone(),
            entrypoint: vec![format!("/{}", self.entrypoint)],
            user: format!("{USER}:{USER}"),
            root: self.root()?,
        };
        layout.write(dir)
    }

    /// The file system of the image.
    fn root(&self) -> Result<Entries> {
        let mut root = Entries::default();
        root.file(&self.entrypoint, 0o755, read(&self.program)?);
        for (path, source) in &self.beside {
            root.file(path, 0o755, read(source)?);
        }
        for library in libraries(&self.program)? {
            let path = library.strip_prefix("/").unwrap_or(&library);
            root.file(&path.to_string_lossy(), 0o755, read(&library)?);
        }
        let passwd = format!("nonroot:x:{USER}:{USER}:nonroot:/:/sbin/nologin\n");
        root.file("etc/passwd", 0o644, passwd);
        root.file("etc/group", 0o644, format!("nonroot:x:{USER}:\n"));
        root.file("etc/nsswitch.conf", 0o644, NSSWITCH);
        root.file("etc/ssl/certs/ca-certificates.crt", 0o644, certificates()?);
        // Programs without a volume there still find a place for temporary files.
        root.directory("tmp", 0o1777);
        Ok(root)
    }
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

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, UdpSocket};

    use serde_json::{Value, json};

    use super::layout::digest_of;
    use super::*;
    use crate::net;

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
        let root = unpacked(&ls(dir.path()), dir.path());
        let inside = in_root(&root, &["/ls", "-ln", "/etc"]);
        assert!(
            inside.contains("nsswitch.conf") && inside.contains("passwd"),
            "{inside}"
        );
    }

    #[test]
    fn libc_alone_resolves_names() {
        let dir = tempfile::tempdir().unwrap();
        let root = unpacked(&ls(dir.path()), dir.path());
        process::run(Command::new("cp").arg("/usr/bin/getent").arg(root.join("getent"))).unwrap();
        fs::write(root.join("etc/hosts"), "198.18.0.7 file.test\n").unwrap();
        let server = answering_every_name_with([198, 18, 0, 8]);
        fs::write(root.join("etc/resolv.conf"), format!("nameserver {server}\n")).unwrap();
        for (name, address) in [("file.test", "198.18.0.7"), ("dns.test", "198.18.0.8")] {
            let found = in_root(&root, &["/getent", "ahostsv4", name]);
            assert!(found.starts_with(address), "{name}: {found}");
        }
    }

    /// The image's file system as a directory.
    fn unpacked(image: &BuiltImage, dir: &Path) -> PathBuf {
        let manifest = json_of(&blob(image, &json!({ "digest": image.digest })));
        let (layer, root) = (blob(image, &manifest["layers"][0]), dir.join("root"));
        fs::create_dir(&root).unwrap();
        // Written by another process: a child that another test starts meanwhile would hold a program open that was written here, and
        // it could not be run.
        let mut command = Command::new("tar");
        command.args(["-xpf"]).arg(layer).arg("-C").arg(&root);
        process::run(&mut command).unwrap();
        root
    }

    /// A DNS server on a loopback address of its own; port 53 is the only one that libc asks.
    fn answering_every_name_with(address: [u8; 4]) -> IpAddr {
        let ip = net::loopback();
        let socket = UdpSocket::bind((ip, 53)).unwrap();
        std::thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut query) {
                // The question is labels up to an empty one, a type and a class.
                let labels = query[12..length].iter().position(|&byte| byte == 0).unwrap();
                let question = &query[12..12 + labels + 5];
                let header = [0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
                let answer = [0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4];
                let reply = [&query[..2], &header, question, &answer, &address].concat();
                socket.send_to(&reply, from).unwrap();
            }
        });
        ip
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
