//! Programs that come from the distribution: containerd, runc, CNI plugins and what a node's network needs.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::process;
use crate::progress::Progress;
use crate::tools::cache_directory;

/// A file that must be there, and the Debian package that brings it.
#[derive(Debug, Clone, Copy)]
pub struct Package {
    /// The package's name.
    pub name: &'static str,
    /// Files any of which proves that it is installed.
    pub files: &'static [&'static str],
}

/// What a node needs besides the programs we build.
pub(crate) const NODE_PACKAGES: [Package; 8] = [
    Package {
        name: "containerd",
        files: &["/usr/bin/containerd", "/usr/local/bin/containerd"],
    },
    Package {
        name: "runc",
        files: &["/usr/sbin/runc", "/usr/bin/runc", "/usr/local/sbin/runc"],
    },
    Package {
        name: "containernetworking-plugins",
        files: &["/usr/lib/cni/bridge"],
    },
    Package {
        name: "iptables",
        files: &["/usr/sbin/iptables", "/sbin/iptables"],
    },
    Package {
        name: "conntrack",
        files: &["/usr/sbin/conntrack", "/usr/bin/conntrack"],
    },
    Package {
        name: "busybox-static",
        files: &["/bin/busybox", "/usr/bin/busybox"],
    },
    Package {
        name: "iproute2",
        files: &["/usr/sbin/ip", "/sbin/ip", "/bin/ip", "/usr/bin/ip"],
    },
    Package {
        name: "util-linux",
        files: &["/usr/bin/nsenter"],
    },
];

/// Installs those of `packages` that are missing, by apt and only as root.
///
/// # Errors
/// If something is missing and cannot be installed; the text is the one line to run.
pub fn ensure_packages(packages: &[Package]) -> Result<()> {
    if missing(packages).is_empty() {
        return Ok(());
    }
    let _lock = lock()?;
    // Another test may have installed them meanwhile.
    let missing = missing(packages);
    if missing.is_empty() {
        return Ok(());
    }
    let line = format!("apt-get install -y --no-install-recommends {}", missing.join(" "));
    if !rustix::process::geteuid().is_root() || !Path::new("/usr/bin/apt-get").exists() {
        bail!("programs are missing; as root, run: {line}");
    }
    let _progress = Progress::start(format!("installing {}", missing.join(", ")));
    install(&missing, &line)
}

/// Waits for another test that installs something: apt refuses to be started twice.
fn lock() -> Result<File> {
    let directory = cache_directory()?;
    fs::create_dir_all(&directory)?;
    let file = File::create(directory.join("packages.lock"))?;
    file.lock()?;
    Ok(file)
}

fn missing(packages: &[Package]) -> Vec<&'static str> {
    let there = |package: &&Package| package.files.iter().any(|file| Path::new(file).exists());
    packages
        .iter()
        .filter(|package| !there(package))
        .map(|package| package.name)
        .collect()
}

fn install(missing: &[&str], line: &str) -> Result<()> {
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .args(words)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null());
        process::run(&mut command)
    };
    let install = [&["install", "-y", "--no-install-recommends"], missing].concat();
    if apt(&install).is_ok() {
        return Ok(());
    }
    // Nothing known about the packages yet, or their lists are old: fetch the lists, then try once more.
    match apt(&["update"]).and_then(|_| apt(&install)) {
        Ok(_) => Ok(()),
        Err(error) => bail!("`{line}` failed: {error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_named() {
        let here = Package {
            name: "here",
            files: &["/nonexistent", "/bin/sh"],
        };
        let gone = Package {
            name: "gone",
            files: &["/nonexistent"],
        };
        assert_eq!(missing(&[here, gone]), ["gone"]);
        assert!(ensure_packages(&[here]).is_ok());
    }
}
