//! Where servers keep their files while they run, and who removes them.
//!
//! One directory per process, below the system's temporary directory, readable by its owner only. A small cleaner
//! process (a shell that reads a pipe which only we hold) removes it when we end, for whatever reason: an orderly
//! exit, a panic, Ctrl-C or SIGKILL. The cleaner sits in a session of its own, so a Ctrl-C does not reach it.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow};

/// Waits for the end of its input, then removes `$1` and the control groups named `$2…`.
///
/// The servers die at the same moment as the pipe closes, so the first attempts may meet their last writes.
const CLEANER: &str = r#"
trap '' HUP INT TERM
cat >/dev/null
n=0
while [ $n -lt 200 ]; do
    find /sys/fs/cgroup -mindepth 1 -depth -type d -path "*/$2-*" -exec rmdir {} + 2>/dev/null
    rm -rf "$1" 2>/dev/null
    if [ ! -e "$1" ] && [ -z "$(find /sys/fs/cgroup -mindepth 1 -type d -name "$2-*" 2>/dev/null)" ]; then exit 0; fi
    n=$((n + 1))
    sleep 0.1
done
"#;

#[derive(Debug)]
struct RunDir {
    path: PathBuf,
    cgroup_prefix: String,
    /// Holds the write end of the cleaner's pipe; the system closes it when we end.
    _cleaner: Child,
}

fn run_dir() -> Result<&'static RunDir> {
    static RUN_DIR: OnceLock<std::result::Result<RunDir, String>> = OnceLock::new();
    RUN_DIR
        .get_or_init(|| make().map_err(|e| format!("{e:#}")))
        .as_ref()
        .map_err(|e| anyhow!("{e}"))
}

fn make() -> Result<RunDir> {
    let name = format!("renderhub-{}-{}", std::process::id(), random_hex(4)?);
    let path = std::env::temp_dir().join(&name);
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .with_context(|| format!("cannot create {}", path.display()))?;
    let cleaner = Command::new("setsid")
        .args(["sh", "-c", CLEANER, "renderhub-cleaner"])
        .arg(&path)
        .arg(&name)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the cleaner through setsid (missing? `apt-get install -y util-linux`)")?;
    Ok(RunDir {
        path,
        cgroup_prefix: name,
        _cleaner: cleaner,
    })
}

/// A fresh directory for one server, e.g. `…/renderhub-4711-1a2b3c4d/control-plane-9f8e7d6c`.
///
/// # Errors
/// If it cannot be made.
pub fn fresh(prefix: &str) -> Result<PathBuf> {
    let path = run_dir()?.path.join(format!("{prefix}-{}", random_hex(4)?));
    std::fs::DirBuilder::new().mode(0o700).create(&path)?;
    Ok(path)
}

/// The name of a control group that the cleaner removes after our end.
pub(crate) fn cgroup_name() -> Result<String> {
    Ok(format!("{}-{}", run_dir()?.cgroup_prefix, random_hex(4)?))
}

/// The directory that holds everything of this process, for a message or a test that looks for leftovers.
///
/// # Errors
/// If it cannot be made.
pub fn of_this_process() -> Result<&'static Path> {
    Ok(&run_dir()?.path)
}

/// `bytes` random bytes from the system, as lower-case hexadecimal digits.
///
/// # Errors
/// If the system has no random numbers to give.
pub fn random_hex(bytes: usize) -> Result<String> {
    use std::fmt::Write as _;
    use std::io::Read as _;
    let mut buffer = vec![0_u8; bytes];
    std::fs::File::open("/dev/urandom")?
        .read_exact(&mut buffer)
        .context("no random numbers")?;
    let mut text = String::with_capacity(bytes * 2);
    for byte in buffer {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// Writes a file that only its owner can read; keys and kubeconfigs go through here.
///
/// # Errors
/// If the file exists already or cannot be written.
pub fn write_private(path: &Path, content: &[u8]) -> Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot create {}", path.display()))?;
    Ok(file.write_all(content)?)
}

/// Makes a control group of this name in every hierarchy.
pub(crate) fn make_cgroups(name: &str) -> Result<()> {
    for hierarchy in hierarchies() {
        let group = hierarchy.join(name);
        std::fs::create_dir(&group).with_context(|| format!("cannot create {}", group.display()))?;
    }
    Ok(())
}

/// Whether control groups of this name exist, in any hierarchy.
pub(crate) fn has_cgroups(name: &str) -> bool {
    hierarchies().any(|hierarchy| hierarchy.join(name).is_dir())
}

/// Removes the control groups of this name that are empty, children first.
pub(crate) fn remove_cgroups(name: &str) {
    for group in hierarchies().map(|hierarchy| hierarchy.join(name)) {
        remove_group(&group);
    }
}

fn remove_group(group: &Path) {
    let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_group(&entry.path());
    }
    // A group that is still busy stays for the next attempt.
    let _ = std::fs::remove_dir(group);
}

/// The roots of the hierarchies: version 1 has one per controller, version 2 one for all, and there may be both.
fn hierarchies() -> impl Iterator<Item = PathBuf> {
    let root = PathBuf::from("/sys/fs/cgroup");
    let entries = std::fs::read_dir(&root).into_iter().flatten().flatten();
    let all: Vec<PathBuf> = std::iter::once(root)
        .chain(entries.map(|entry| entry.path()))
        .collect();
    // With version 2 the first is the root, and the others are groups that belong to somebody. A link is a second name.
    let is_group = |path: &PathBuf| path.join("cgroup.procs").exists() && !path.is_symlink();
    let version_2 = all.first().is_some_and(is_group);
    all.into_iter()
        .filter(is_group)
        .take(if version_2 { 1 } else { usize::MAX })
}
