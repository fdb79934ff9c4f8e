//! Where servers keep their files while they run, and who removes them.
//!
//! One directory per process, below the system's temporary directory, readable by its owner only. A small cleaner
//! process (a shell that reads a pipe which only we hold) removes it when we end, for whatever reason: an orderly
//! exit, a panic, Ctrl-C or SIGKILL. The cleaner sits in a session of its own, so a Ctrl-C does not reach it.
//!
//! What may stay: if the cleaner itself is killed with SIGKILL or the machine stops, the directory. The next test
//! process removes it: each directory holds a locked file, and the lock of a dead process is free.

use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

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

const PREFIX: &str = "renderhub-";
/// Locked by the process that the directory belongs to.
const LOCK: &str = "lock";
const YOUNG: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct RunDir {
    path: PathBuf,
    name: String,
    /// Locked as long as we live; see [`sweep`].
    _lock: File,
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
    sweep(&std::env::temp_dir());
    let name = format!("{PREFIX}{}-{}", std::process::id(), random_hex(4)?);
    let path = std::env::temp_dir().join(&name);
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .with_context(|| format!("cannot create {}", path.display()))?;
    let lock = File::create(path.join(LOCK))?;
    lock.lock()?;
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
        name,
        _lock: lock,
        _cleaner: cleaner,
    })
}

/// Removes what processes left whose cleaner was killed too: directories of the harness whose lock is free.
fn sweep(temp: &Path) {
    let entries = std::fs::read_dir(temp).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with(PREFIX) && is_abandoned(&path) {
            let _ = std::fs::remove_dir_all(&path);
            hierarchies().for_each(|hierarchy| remove_groups_of(&hierarchy, &name));
        }
    }
}

/// A young directory may belong to a process that is about to lock its file.
fn is_abandoned(path: &Path) -> bool {
    let lock = path.join(LOCK);
    let age = std::fs::metadata(&lock)
        .and_then(|m| m.modified())
        .ok()
        .and_then(|time| time.elapsed().ok());
    age.is_some_and(|age| age > YOUNG) && File::open(&lock).is_ok_and(|file| file.try_lock().is_ok())
}

fn remove_groups_of(hierarchy: &Path, name: &str) {
    let groups = std::fs::read_dir(hierarchy).into_iter().flatten().flatten();
    let ours = |group: &std::fs::DirEntry| {
        group
            .file_name()
            .to_string_lossy()
            .starts_with(&format!("{name}-"))
    };
    groups.filter(ours).for_each(|group| remove_group(&group.path()));
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
    Ok(format!("{}-{}", run_dir()?.name, random_hex(4)?))
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
    use std::io::Read as _;
    let mut buffer = vec![0_u8; bytes];
    File::open("/dev/urandom")?
        .read_exact(&mut buffer)
        .context("no random numbers")?;
    Ok(hex(&buffer))
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])
        .collect()
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
    // With version 2 the first is the root, and the others are groups of other owners. A link is a second name.
    let is_group = |path: &PathBuf| path.join("cgroup.procs").exists() && !path.is_symlink();
    let version_2 = all.first().is_some_and(is_group);
    all.into_iter()
        .filter(is_group)
        .take(if version_2 { 1 } else { usize::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn only_directories_without_a_lock_are_swept() {
        let temp = tempfile::tempdir().unwrap();
        let long_ago = std::time::SystemTime::now() - 2 * YOUNG;
        let make = |name: &str, modified: std::time::SystemTime| {
            std::fs::create_dir(temp.path().join(name)).unwrap();
            let lock = File::create(temp.path().join(name).join(LOCK)).unwrap();
            lock.set_modified(modified).unwrap();
            lock
        };
        make("renderhub-1-dead", long_ago);
        make("renderhub-2-young", std::time::SystemTime::now());
        let held = make("renderhub-3-held", long_ago);
        held.lock().unwrap();
        make("somebody-else", long_ago);
        std::fs::create_dir(temp.path().join("renderhub-without-lock")).unwrap();
        sweep(temp.path());
        let mut left: Vec<_> = std::fs::read_dir(temp.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(
            left,
            [
                "renderhub-2-young",
                "renderhub-3-held",
                "renderhub-without-lock",
                "somebody-else"
            ]
        );
    }

    #[test]
    fn directories_and_files_are_for_their_owner_only() {
        let dir = fresh("mine").unwrap();
        write_private(&dir.join("key"), b"secret").unwrap();
        assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(
            dir.join("key").metadata().unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(
            write_private(&dir.join("key"), b"again").is_err(),
            "nothing is overwritten"
        );
    }

    #[test]
    fn digits_are_those_of_the_bytes() {
        assert_eq!(hex(&[0, 15, 16, 255]), "000f10ff");
        assert_ne!(random_hex(8).unwrap(), random_hex(8).unwrap());
    }
}
