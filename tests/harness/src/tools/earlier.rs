//! The release before this one, from which tests upgrade: built once from this repository's own history.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::build::Once;
use super::cache;
use crate::image::Image;
use crate::process::run;
use crate::progress::Progress;
use crate::rundir::hex;

/// The commit of that release.
const COMMIT: &str = "65aa34176a26f4ba742cc516705ca09764f89136";
const TITLE: &str = "the release before this one (commit 65aa341)";
/// What is kept of it.
const CHART: &str = "charts/renderhub";
const PROGRAMS: [&str; 2] = ["renderhub", "renderhub-renderer"];
/// What is asked of cargo, and how: the quickest programs that fit into an image. Part of the cache key.
const ARGUMENTS: [&str; 4] = ["build", "--locked", "--package", "renderhub"];
const SETTINGS: [(&str, &str); 3] = [
    ("CARGO_PROFILE_DEV_DEBUG", "false"),
    ("CARGO_PROFILE_DEV_STRIP", "symbols"),
    ("CARGO_INCREMENTAL", "0"),
];

/// The chart and the programs of the release before this one.
#[derive(Debug, Clone)]
pub struct Earlier {
    dir: PathBuf,
}

impl Earlier {
    /// What it is called in a test. It calls itself as this one does, and images of both are on one node.
    pub const VERSION: &'static str = "0.0.9";

    /// Builds it where that was not done yet; the first time takes some minutes, then no time.
    ///
    /// # Errors
    /// If the history of this repository is not here, or the build fails.
    pub fn ensure() -> Result<Self> {
        let cache = cache()?;
        let key = hex(&Sha256::digest(format!("{COMMIT} {ARGUMENTS:?} {SETTINGS:?}"))[..8]);
        let once = Once {
            cache: &cache,
            name: "earlier",
            key: &key,
            title: TITLE,
        };
        // The lock is held meanwhile. What was built before an interruption is found again, and what is complete is removed.
        let work = cache.join("earlier.build");
        let dir = once.built(|into| {
            build(&repository()?, COMMIT, &work, into)?;
            fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))
        })?;
        Ok(Self { dir })
    }

    /// The directory of its chart.
    #[must_use]
    pub fn chart(&self) -> PathBuf {
        self.dir.join(CHART)
    }

    /// The hub's image, as the chart of [`Self::VERSION`] names it by default.
    #[must_use]
    pub fn hub(&self) -> Image {
        let name = format!("renderhub.dev/renderhub:{}", Self::VERSION);
        Image::new(name, self.dir.join(PROGRAMS[0]), PROGRAMS[0])
    }

    /// The renderer's image, as the chart of [`Self::VERSION`] names it by default.
    #[must_use]
    pub fn renderer(&self) -> Image {
        let name = format!("renderhub.dev/renderer:{}", Self::VERSION);
        Image::new(name, self.dir.join(PROGRAMS[1]), PROGRAMS[1])
    }
}

/// The root of this repository.
fn repository() -> Result<PathBuf> {
    let harness = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = harness.ancestors().nth(2);
    Ok(root.context("the harness is in no repository")?.to_owned())
}

fn build(repository: &Path, commit: &str, work: &Path, into: &Path) -> Result<()> {
    let _progress = Progress::start(format!("building {TITLE}"));
    let (source, target) = (work.join("source"), work.join("target"));
    if source.exists() {
        fs::remove_dir_all(&source).with_context(|| format!("cannot remove {}", source.display()))?;
    }
    fs::create_dir_all(&source).with_context(|| format!("cannot create {}", source.display()))?;
    unpack(repository, commit, &source)?;
    // In a target directory of its own: cargo would take its packages for those of this release.
    let mut command = Command::new(cargo());
    command.args(ARGUMENTS);
    command.args(PROGRAMS.iter().flat_map(|program| ["--bin", program]));
    command.arg("--target-dir").arg(&target);
    command.envs(SETTINGS).env_remove("CARGO_BUILD_TARGET");
    run(command.current_dir(&source)).with_context(|| format!("building {TITLE}"))?;
    for program in PROGRAMS {
        let built = target.join("debug").join(program);
        fs::copy(&built, into.join(program)).with_context(|| format!("cannot copy {}", built.display()))?;
    }
    let chart = into.join(CHART);
    fs::create_dir_all(chart.parent().unwrap_or(into))?;
    fs::rename(source.join(CHART), &chart).with_context(|| format!("cannot make {}", chart.display()))
}

fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Git in the repository, whose owner may be another user than root, who runs tests with a node.
fn git(repository: &Path) -> Command {
    let mut command = Command::new("git");
    command.args(["-c", "safe.directory=*", "-C"]).arg(repository);
    // A hook of git's, which may run the tests, says of another repository where it is.
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    command
}

/// Writes the files of a commit into a directory.
fn unpack(repository: &Path, commit: &str, into: &Path) -> Result<()> {
    let known = git(repository)
        .args(["cat-file", "-e", &format!("{commit}^{{commit}}")])
        .stdin(Stdio::null())
        .output();
    let is_known = known
        .context("cannot start git, which finds the release that tests upgrade from: install git")?
        .status
        .success();
    if !is_known {
        bail!(
            "tests upgrade from commit {commit}, which is not in the history of {}. Run `git fetch --unshallow` in a shallow \
             clone; in place of a source archive, which has no history, take a clone",
            repository.display()
        );
    }
    let tar = into.with_extension("tar");
    let mut archive = git(repository);
    archive
        .args(["archive", "--format=tar", "--output"])
        .arg(&tar)
        .arg(commit);
    run(&mut archive)?;
    tar::Archive::new(File::open(&tar)?).unpack(into)?;
    fs::remove_file(&tar).with_context(|| format!("cannot remove {}", tar.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository with one commit; its id.
    fn one_commit(dir: &Path) -> String {
        fs::create_dir_all(dir.join(CHART)).unwrap();
        fs::write(dir.join(CHART).join("Chart.yaml"), "name: x\n").unwrap();
        let git = |words: &[&str]| run(git(dir).args(words)).unwrap();
        git(&["init", "--quiet"]);
        git(&["add", "."]);
        let who = [
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.test",
            "-c",
            "commit.gpgsign=false",
        ];
        git(&[&who[..], &["commit", "--quiet", "--message", "one"]].concat());
        git(&["rev-parse", "HEAD"]).trim().to_owned()
    }

    #[test]
    fn the_files_are_those_of_the_commit_and_not_those_that_are_there_now() {
        let (repository, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let commit = one_commit(repository.path());
        fs::write(repository.path().join(CHART).join("Chart.yaml"), "name: y\n").unwrap();
        unpack(repository.path(), &commit, out.path()).unwrap();
        let found = fs::read_to_string(out.path().join(CHART).join("Chart.yaml")).unwrap();
        assert_eq!(found, "name: x\n");
    }

    #[test]
    fn where_the_history_is_not_there_it_is_said_how_to_get_it() {
        let (repository, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // No repository at all, as in a source archive, and one without the commit, as in a shallow clone.
        for has_repository in [false, true] {
            if has_repository {
                one_commit(repository.path());
            }
            let error = unpack(repository.path(), COMMIT, out.path())
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("git fetch --unshallow") && error.contains(COMMIT),
                "{error}"
            );
        }
        assert!(TITLE.contains(&COMMIT[..7]));
    }
}
