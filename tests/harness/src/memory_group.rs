//! A control group with a memory limit, as a kubelet gives a container: the kernel kills a process in it that takes more.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::rundir;

/// Names of the files of either version.
#[derive(Clone, Copy, Debug)]
struct Files {
    /// Takes the limit.
    limit: &'static str,
    /// Takes how much of it may be swapped: nothing.
    swap: &'static str,
    /// The file with the number of killed processes.
    kills: &'static str,
}

const VERSION_1: Files = Files {
    limit: "memory.limit_in_bytes",
    swap: "memory.swappiness",
    kills: "memory.oom_control",
};
const VERSION_2: Files = Files {
    limit: "memory.max",
    swap: "memory.swap.max",
    kills: "memory.events",
};

/// The group; it goes with the handle once it is empty, and with this process.
#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
    files: Files,
}

impl MemoryGroup {
    /// Makes one with this many bytes.
    ///
    /// # Errors
    /// If this is not root, or no memory controller is mounted.
    pub fn make(bytes: u64) -> Result<Self> {
        if !rustix::process::getuid().is_root() {
            bail!("a control group with a memory limit needs root: run it with sudo");
        }
        let (root, files) = hierarchy(Path::new("/sys/fs/cgroup"))?;
        let path = root.join(rundir::cgroup_name()?);
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let group = Self { path, files };
        group.write(files.limit, &bytes.to_string())?;
        // A kernel without swap has no such file.
        _ = group.write(files.swap, "0");
        Ok(group)
    }

    /// A program that enters the group and then becomes this one, with the same arguments.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn enter_with(&self, program: &Path) -> Result<PathBuf> {
        let script = rundir::fresh("group")?.join("enter");
        let procs = self.path.join("cgroup.procs");
        let text = format!(
            "#!/bin/sh\necho $$ > '{}' && exec '{}' \"$@\"\n",
            procs.display(),
            program.display()
        );
        fs::write(&script, text)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o700))?;
        Ok(script)
    }

    /// Whether a process is in it.
    ///
    /// # Errors
    /// If the group cannot be read.
    pub fn holds(&self, pid: u32) -> Result<bool> {
        let procs = fs::read_to_string(self.path.join("cgroup.procs"))?;
        Ok(procs.lines().any(|line| line == pid.to_string()))
    }

    /// Processes that the kernel killed because of the limit.
    ///
    /// # Errors
    /// If the group cannot be read.
    pub fn kills(&self) -> Result<u64> {
        let text = fs::read_to_string(self.path.join(self.files.kills))?;
        Ok(killed(&text))
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.path.join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A group that is still busy is removed by the cleaner after our end.
        _ = fs::remove_dir(&self.path);
    }
}

/// Where groups with a memory limit are made, and by which version's files.
fn hierarchy(root: &Path) -> Result<(PathBuf, Files)> {
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    if controllers.split_whitespace().any(|name| name == "memory") {
        // It may be on already, and where it cannot be turned on the limit cannot be written, which says so.
        _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
        return Ok((root.to_owned(), VERSION_2));
    }
    let first = root.join("memory");
    if first.join(VERSION_1.limit).exists() {
        return Ok((first, VERSION_1));
    }
    bail!(
        "no memory controller of control groups is mounted below {}: mount -t cgroup2 none {0}",
        root.display()
    )
}

fn killed(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_counted_in_the_files_of_both_versions() {
        assert_eq!(killed("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), 3);
        assert_eq!(killed("low 0\nhigh 0\nmax 12\noom 2\noom_kill 2\n"), 2);
        assert_eq!(killed(""), 0);
    }

    #[test]
    fn the_version_that_is_mounted_is_found() {
        let temp = tempfile::tempdir().unwrap();
        assert!(hierarchy(temp.path()).unwrap_err().to_string().contains("mount"));
        let first = temp.path().join("memory");
        fs::create_dir(&first).unwrap();
        fs::write(first.join(VERSION_1.limit), "").unwrap();
        assert_eq!(hierarchy(temp.path()).unwrap().0, first);
        fs::write(temp.path().join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        let (root, files) = hierarchy(temp.path()).unwrap();
        assert_eq!((root.as_path(), files.limit), (temp.path(), "memory.max"));
    }
}
