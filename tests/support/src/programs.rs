//! The programs of the main package.
//!
//! Cargo builds them for the tests of their own package alone. These are of another one, so that the unit tests there need not wait
//! for the library that the test programs share, which is made of that package.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};

/// Root of the repository.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Set where they have just been built, to any value.
const ARE_BUILT: &str = "RENDERHUB_PROGRAMS_ARE_BUILT";

static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| built().expect("cargo builds the programs"));

/// The hub, as built from what is there now.
///
/// # Panics
/// If it cannot be built.
#[must_use]
pub fn hub() -> PathBuf {
    DIRECTORY.join("renderhub")
}

/// The renderer, likewise.
///
/// # Panics
/// If it cannot be built.
#[must_use]
pub fn renderer() -> PathBuf {
    DIRECTORY.join("renderhub-renderer")
}

/// What writes the CRDs, likewise.
///
/// # Panics
/// If it cannot be built.
#[must_use]
pub fn crdgen() -> PathBuf {
    DIRECTORY.join("crdgen")
}

/// Builds them, so that no test tries an older hub; they are one directory above this test program.
fn built() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let directory = own.ancestors().nth(2).context("a directory of programs")?;
    if std::env::var_os(ARE_BUILT).is_none() {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // With the examples each crate has the features that it has in a test, and is not built once more.
        let all = ["--locked", "--workspace", "--bins", "--examples"];
        cargo.args(["build", "--quiet"]).args(all);
        if directory.ends_with("release") {
            cargo.arg("--release");
        }
        cargo
            .arg("--target-dir")
            .arg(directory.parent().context("a target directory")?);
        // What cargo said to this test program of its package would have crates built again that look at it.
        let is_of_test = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(is_of_test) {
                cargo.env_remove(name);
            }
        }
        let status = cargo
            .current_dir(ROOT)
            .status()
            .context("cargo cannot be started")?;
        ensure!(status.success(), "the programs cannot be built");
    }
    Ok(directory.to_owned())
}
