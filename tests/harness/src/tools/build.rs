//! What is built once: into a directory of the cache, atomically, by one builder at a time. A module is
//! `go build -o DIR/ tool`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::{Crds, Module, When};
use crate::progress::Progress;
use crate::rundir::hex;

/// Flags that change what comes out; part of the cache key.
const FLAGS: [&str; 3] = ["-trimpath", "-buildvcs=false", "-mod=readonly"];

/// The directory that holds the module's programs, built if needed.
pub(super) fn ensure(sources: &Path, module: &Module, cache: &Path) -> Result<PathBuf> {
    let once = Once {
        cache,
        name: module.dir,
        key: &key(sources, module)?,
        title: module.title,
    };
    once.built(|into| build(sources, module, into))
}

/// The directory that holds the module's CRDs, fetched if needed; its programs are not built for them.
pub(super) fn crds(sources: &Path, module: &Module, cache: &Path) -> Result<PathBuf> {
    let crds = module.crds.context("this module has no CRDs")?;
    let once = Once {
        cache,
        name: &format!("{}-crds", module.dir),
        key: &key(sources, module)?,
        title: &format!("the CRDs of {}", module.title),
    };
    once.built(|into| copy_crds(sources, module, crds, into))
}

/// Something that is built once.
pub(super) struct Once<'a> {
    /// Where it is kept.
    pub(super) cache: &'a Path,
    /// Its name, which its versions share.
    pub(super) name: &'a str,
    /// Hexadecimal digits of the hash of everything that goes into the build.
    pub(super) key: &'a str,
    /// What the progress line calls it.
    pub(super) title: &'a str,
}

impl Once<'_> {
    /// The directory that holds it; `build` fills it where there is none yet.
    pub(super) fn built(&self, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let (cache, name) = (self.cache, self.name);
        let done = cache.join(format!("{name}-{}", self.key));
        if done.is_dir() {
            return Ok(done);
        }
        fs::create_dir_all(cache).with_context(|| format!("cannot create {}", cache.display()))?;
        let _lock = self.lock(&cache.join(format!("{name}.lock")))?;
        if !done.is_dir() {
            // Removed when it is dropped, so a failed build leaves nothing.
            let fresh = tempfile::Builder::new().prefix(".building-").tempdir_in(cache)?;
            build(fresh.path())?;
            fs::rename(fresh.keep(), &done).with_context(|| format!("cannot make {}", done.display()))?;
        }
        Ok(done)
    }

    /// Waits for another builder of the same; the system gives the lock back if that one dies.
    fn lock(&self, path: &Path) -> Result<File> {
        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        if file.try_lock().is_err() {
            let _progress = Progress::start(format!("waiting for another build of {}", self.title));
            file.lock()?;
        }
        Ok(file)
    }
}

/// The first 16 hexadecimal digits of a SHA-256 of everything that goes into the build.
fn key(sources: &Path, module: &Module) -> Result<String> {
    let mut hash = Sha256::new();
    for file in ["go.mod", "go.sum"] {
        let path = sources.join(file);
        hash.update(fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?);
        hash.update([0]);
    }
    for path in own_programs(sources)? {
        hash.update(path.strip_prefix(sources)?.as_os_str().as_encoded_bytes());
        hash.update([0]);
        hash.update(fs::read(&path)?);
    }
    hash.update(FLAGS.join(" "));
    hash.update(module.ldflags);
    for flag in module.flags {
        hash.update(flag);
    }
    if let Some(crds) = module.crds {
        hash.update(crds.module);
    }
    Ok(hex(&hash.finalize()[..8]))
}

/// The Go files of a module's own programs, which have a directory each.
fn own_programs(sources: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(sources)? {
        let dir = entry?.path();
        if dir.is_dir() {
            let files: std::io::Result<Vec<_>> = fs::read_dir(dir)?.map(|file| Ok(file?.path())).collect();
            found.extend(files?);
        }
    }
    found.retain(|path| path.extension().is_some_and(|extension| extension == "go"));
    found.sort();
    Ok(found)
}

fn build(sources: &Path, module: &Module, into: &Path) -> Result<()> {
    let _progress = Progress::start(format!("building {}", module.title));
    let mut command = match module.when {
        When::OnDemand => out_of_the_way(sources),
        When::Always | When::ForAllTests => go(sources, "build"),
    };
    command.args(FLAGS).args(module.flags);
    command.args(["-ldflags", module.ldflags, "-o"]);
    ran(command.arg(into.join("")).arg("tool"), module)?;
    name_etcd(into)?;
    if let Some(crds) = module.crds {
        copy_crds(sources, module, crds, &into.join("crds"))?;
    }
    match module
        .programs
        .iter()
        .find(|program| !into.join(program).is_file())
    {
        Some(missing) => bail!("building {} gave no {missing}", module.title),
        None => Ok(()),
    }
}

fn go(sources: &Path, verb: &str) -> Command {
    in_module(Command::new("go"), sources, verb)
}

/// A build that leaves the machine to the tests that run beside it: at the lowest priority, and one package at a time.
fn out_of_the_way(sources: &Path) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "19", "go"]);
    let mut command = in_module(command, sources, "build");
    command.args(["-p", "1"]);
    command
}

fn in_module(mut go: Command, sources: &Path, verb: &str) -> Command {
    go.arg(verb).current_dir(sources).env("CGO_ENABLED", "0");
    go
}

/// Runs go; what it printed.
fn ran(command: &mut Command, module: &Module) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("cannot start go: install Go 1.26 or later from https://go.dev/dl and put it on the PATH")?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!(
            "building {} failed ({}):\n{}",
            module.title,
            output.status,
            text.trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Copies the CRDs of a module of Go's cache: its programs are of no use without them.
fn copy_crds(sources: &Path, module: &Module, crds: Crds, into: &Path) -> Result<()> {
    ran(go(sources, "mod").args(["download", crds.module]), module)?;
    let mut command = go(sources, "list");
    let dir = ran(command.args(["-m", "-f", "{{.Dir}}", crds.module]), module)?;
    let bases = Path::new(dir.trim()).join(crds.folder);
    fs::create_dir_all(into)?;
    let files = fs::read_dir(&bases).with_context(|| format!("cannot read {}", bases.display()))?;
    for file in files {
        let path = file?.path();
        // OLM keeps Go files beside them.
        if let (Some(name), true) = (path.file_name(), path.extension().is_some_and(|e| e == "yaml")) {
            fs::write(into.join(name), fs::read(&path)?)?;
        }
    }
    Ok(())
}

/// Go names a program after its import path; etcd's ends in `server/v3`.
fn name_etcd(dir: &Path) -> Result<()> {
    for name in ["server", "v3"] {
        if dir.join(name).is_file() {
            fs::rename(dir.join(name), dir.join("etcd"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(ldflags: &'static str) -> Module {
        Module {
            dir: "tiny",
            title: "a tiny module",
            programs: &["tiny"],
            ldflags,
            flags: &[],
            crds: None,
            when: When::Always,
        }
    }

    fn tiny_sources() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(
            dir.path().join("go.mod"),
            "module example.test/tiny\n\ngo 1.24\n\ntool example.test/tiny/tiny\n",
        )
        .unwrap();
        fs::write(dir.path().join("go.sum"), "").unwrap();
        fs::create_dir(dir.path().join("tiny")).unwrap();
        fs::write(
            dir.path().join("tiny/main.go"),
            "package main\n\nfunc main() {}\n",
        )
        .unwrap();
        dir
    }

    #[test]
    fn the_key_follows_every_input() {
        let sources = tiny_sources();
        let before = key(sources.path(), &module("-s")).unwrap();
        assert_eq!(before, key(sources.path(), &module("-s")).unwrap());
        assert_eq!(before.len(), 16);
        assert_ne!(before, key(sources.path(), &module("-w")).unwrap());
        fs::write(sources.path().join("tiny/main.go"), "package main\n").unwrap();
        let other_program = key(sources.path(), &module("-s")).unwrap();
        assert_ne!(before, other_program);
        fs::write(sources.path().join("go.sum"), "changed").unwrap();
        assert_ne!(other_program, key(sources.path(), &module("-s")).unwrap());
    }

    #[test]
    fn a_second_builder_reuses_the_first_ones_work() {
        let (sources, cache) = (tiny_sources(), tempfile::tempdir().unwrap());
        let paths: Vec<_> = std::thread::scope(|scope| {
            let build = || ensure(sources.path(), &module("-s"), cache.path()).unwrap();
            let both = [scope.spawn(build), scope.spawn(build)];
            both.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(paths[0], paths[1]);
        assert!(paths[0].join("tiny").is_file());
        let entries = fs::read_dir(cache.path()).unwrap().count();
        assert_eq!(
            entries, 2,
            "the programs and the lock, and no half-finished build"
        );
    }

    #[test]
    fn a_failed_build_leaves_nothing_to_be_used() {
        let (sources, cache) = (tiny_sources(), tempfile::tempdir().unwrap());
        fs::write(
            sources.path().join("tiny/main.go"),
            "package main\n\nfunc main() { nonsense }\n",
        )
        .unwrap();
        let error = ensure(sources.path(), &module("-s"), cache.path())
            .unwrap_err()
            .to_string();
        assert!(error.contains("nonsense"), "{error}");
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 1, "only the lock");
    }
}
