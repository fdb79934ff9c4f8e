//! Where the push credential comes from: flags, two files, or docker's credential file. All of it is optional.

use std::path::{Path, PathBuf};

use super::file::{self, FileError};
use crate::api::docker_config::{Credential, DockerConfig, DockerConfigError};
use crate::api::oci::RegistryHost;

/// Largest user name or password file in bytes.
const MAX_WORD: u64 = 64 * 1024;
/// Largest docker credential file in bytes, as Kubernetes limits a Secret.
const MAX_CONFIG: u64 = 1024 * 1024;

/// Why there is no usable credential; never with a word of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// A file cannot be read.
    #[error("failed to read credentials: {0}")]
    Unreadable(#[source] FileError),
    /// The docker credential file is not one.
    #[error("failed to read credentials: {0}")]
    DockerConfig(#[source] DockerConfigError),
    /// An empty user name or password, or one that is not text.
    #[error("failed to read credentials: user name or password is empty or not text")]
    Empty,
    /// A colon in the user name, which Basic authentication cannot carry.
    #[error("failed to read credentials: the user name holds a colon")]
    Colon,
}

/// Where to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nowhere: anonymous.
    None,
    /// A file with the user name and one with the password, as a `kubernetes.io/basic-auth` Secret is mounted.
    Files {
        /// File that holds the user name.
        username: PathBuf,
        /// File that holds the password.
        password: PathBuf,
    },
    /// Docker's credential file, or a directory that holds it as `config.json`.
    DockerConfig {
        /// File or directory.
        path: PathBuf,
        /// Whether its absence is an error rather than "anonymous".
        required: bool,
    },
}

/// The credential for `host`, if there is one.
///
/// # Errors
/// When a file is missing that was asked for, or holds something else.
pub fn load(source: &Source, host: &RegistryHost) -> Result<Option<Credential>, CredentialError> {
    match source {
        Source::None => Ok(None),
        Source::Files { username, password } => pair(&word(username)?, &word(password)?).map(Some),
        Source::DockerConfig { path, required } => {
            let bytes = match read_config(path) {
                Err(FileError::NotFound) if !required => return Ok(None),
                other => other.map_err(CredentialError::Unreadable)?,
            };
            let config = DockerConfig::parse(&bytes).map_err(CredentialError::DockerConfig)?;
            config.lookup(host).cloned().map(checked).transpose()
        }
    }
}

/// A credential of two words.
///
/// # Errors
/// When one is empty or the user name holds a colon.
pub fn pair(username: &str, password: &str) -> Result<Credential, CredentialError> {
    if username.is_empty() || password.is_empty() {
        return Err(CredentialError::Empty);
    }
    checked(Credential {
        username: username.to_owned(),
        password: password.into(),
    })
}

fn checked(credential: Credential) -> Result<Credential, CredentialError> {
    if credential.username.contains(':') {
        Err(CredentialError::Colon)
    } else {
        Ok(credential)
    }
}

/// One word; a line break at the end is how people make such files, not part of the word.
fn word(path: &Path) -> Result<String, CredentialError> {
    let bytes = file::read(path, MAX_WORD).map_err(CredentialError::Unreadable)?;
    let text = String::from_utf8(bytes).map_err(|_| CredentialError::Empty)?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}

fn read_config(path: &Path) -> Result<Vec<u8>, FileError> {
    let inside = path.join("config.json");
    file::read(if path.is_dir() { &inside } else { path }, MAX_CONFIG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret as _;
    use std::fs;

    fn found(source: &Source) -> Result<Option<(String, String)>, CredentialError> {
        let credential = load(source, &"h:1".parse().unwrap())?;
        Ok(credential.map(|one| (one.username, one.password.expose_secret().to_owned())))
    }

    #[test]
    fn two_files() {
        let dir = tempfile::tempdir().unwrap();
        let (username, password) = (dir.path().join("username"), dir.path().join("password"));
        let source = Source::Files {
            username: username.clone(),
            password: password.clone(),
        };
        assert_eq!(
            found(&source),
            Err(CredentialError::Unreadable(FileError::NotFound))
        );
        let with = |user: &[u8], word: &[u8]| {
            fs::write(&username, user).unwrap();
            fs::write(&password, word).unwrap();
            found(&source)
        };
        assert_eq!(with(b"u\n", b" p w \r\n"), Ok(Some(("u".into(), " p w ".into()))));
        assert_eq!(with(b"", b"p"), Err(CredentialError::Empty));
        assert_eq!(with(b"u", b"\n"), Err(CredentialError::Empty));
        assert_eq!(with(b"u", b"\xff"), Err(CredentialError::Empty));
        assert_eq!(with(b"a:b", b"p"), Err(CredentialError::Colon));
        assert_eq!(
            with(b"u", "x".repeat(70_000).as_bytes()),
            Err(CredentialError::Unreadable(FileError::TooLarge))
        );
    }

    #[test]
    fn dockers_file_or_the_directory_that_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.json");
        let source = |path: &Path, required| Source::DockerConfig {
            path: path.to_owned(),
            required,
        };
        assert_eq!(found(&source(&file, false)), Ok(None));
        assert_eq!(
            found(&source(&file, true)),
            Err(CredentialError::Unreadable(FileError::NotFound))
        );
        fs::write(&file, r#"{"auths":{"h:1":{"username":"u","password":"p"}}}"#).unwrap();
        let expected = Ok(Some(("u".to_owned(), "p".to_owned())));
        assert_eq!(found(&source(&file, true)), expected);
        assert_eq!(found(&source(dir.path(), true)), expected);
        assert!(
            load(&source(&file, true), &"h:2".parse().unwrap())
                .unwrap()
                .is_none()
        );
        fs::write(&file, "canary").unwrap();
        let error = found(&source(&file, true)).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("canary"));
        assert_eq!(found(&Source::None), Ok(None));
    }
}
