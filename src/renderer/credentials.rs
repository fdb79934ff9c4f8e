//! Where the push credential comes from: flags, two files, or docker's credential file. All of it is optional.

use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::file::{self, FileError};
use crate::api::basic_auth::{self, BasicAuthError, BasicCredential};
use crate::api::docker_config::{DockerConfig, DockerConfigError};
use crate::api::oci::RegistryHost;

/// Largest docker credential file in bytes, as Kubernetes limits a Secret.
const MAX_CONFIG: u64 = 1024 * 1024;

/// Why there is no usable credential; never with any of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// A file cannot be read.
    #[error("failed to read credentials: {0}")]
    Unreadable(#[source] FileError),
    /// The docker credential file is not one.
    #[error("failed to read credentials: {0}")]
    DockerConfig(#[source] DockerConfigError),
    /// The user name and password are no credential.
    #[error("failed to read credentials: {0}")]
    BasicAuth(#[from] BasicAuthError),
    /// A credential is required, and docker's file has none for the registry.
    #[error("failed to read credentials: docker's file has no entry for the registry")]
    NoEntry,
}

/// Where to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSource {
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
        /// Whether it is an error, rather than "anonymous", that there is no file or no entry for the host in it.
        required: bool,
    },
}

/// The credential for `host`, if there is one.
///
/// # Errors
/// When a file or entry is missing that was asked for, or is something else.
pub fn load(
    source: &CredentialSource,
    host: &RegistryHost,
) -> Result<Option<BasicCredential>, CredentialError> {
    match source {
        CredentialSource::None => Ok(None),
        CredentialSource::Files { username, password } => Ok(Some(basic_auth::parse(
            &read_value(username)?,
            &read_value(password)?,
        )?)),
        CredentialSource::DockerConfig { path, required } => {
            let bytes = match read_config(path) {
                Err(FileError::NotFound) if !required => return Ok(None),
                other => other.map_err(CredentialError::Unreadable)?,
            };
            let config = DockerConfig::parse(&bytes).map_err(CredentialError::DockerConfig)?;
            match config.lookup(host).map_err(CredentialError::DockerConfig)? {
                None if *required => Err(CredentialError::NoEntry),
                found => Ok(found.cloned()),
            }
        }
    }
}

fn read_value(path: &Path) -> Result<Zeroizing<Vec<u8>>, CredentialError> {
    let bytes = file::read(path, basic_auth::MAX_BYTES as u64);
    bytes.map(Zeroizing::new).map_err(CredentialError::Unreadable)
}

fn read_config(path: &Path) -> Result<Zeroizing<Vec<u8>>, FileError> {
    let inside = path.join("config.json");
    file::read(if path.is_dir() { &inside } else { path }, MAX_CONFIG).map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret as _;
    use std::fs;

    fn found(source: &CredentialSource) -> Result<Option<(String, String)>, CredentialError> {
        let credential = load(source, &"h:1".parse().unwrap())?;
        Ok(credential.map(|one| (one.username, one.password.expose_secret().to_owned())))
    }

    #[test]
    fn two_files() {
        let dir = tempfile::tempdir().unwrap();
        let (username, password) = (dir.path().join("username"), dir.path().join("password"));
        let source = CredentialSource::Files {
            username: username.clone(),
            password: password.clone(),
        };
        assert_eq!(
            found(&source),
            Err(CredentialError::Unreadable(FileError::NotFound))
        );
        let with = |user: &[u8], secret: &[u8]| {
            fs::write(&username, user).unwrap();
            fs::write(&password, secret).unwrap();
            found(&source)
        };
        assert_eq!(with(b"u\n", b" p w \r\n"), Ok(Some(("u".into(), " p w ".into()))));
        assert_eq!(
            with(b"", b"p"),
            Err(CredentialError::BasicAuth(BasicAuthError::Empty))
        );
        assert_eq!(
            with(b"u", b"\n"),
            Err(CredentialError::BasicAuth(BasicAuthError::Empty))
        );
        assert_eq!(
            with(b"u", b"\xff"),
            Err(CredentialError::BasicAuth(BasicAuthError::Empty))
        );
        assert_eq!(
            with(b"a:b", b"p"),
            Err(CredentialError::BasicAuth(BasicAuthError::Colon))
        );
        assert_eq!(
            with(b"u", "x".repeat(70_000).as_bytes()),
            Err(CredentialError::Unreadable(FileError::TooLarge))
        );
    }

    #[test]
    fn dockers_file_or_the_directory_that_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.json");
        let source = |path: &Path, required| CredentialSource::DockerConfig {
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
        let elsewhere = |required| {
            let found = load(&source(&file, required), &"h:2".parse().unwrap());
            found.map(|one| one.is_none())
        };
        assert_eq!(elsewhere(false), Ok(true));
        assert_eq!(elsewhere(true), Err(CredentialError::NoEntry));
        fs::write(&file, "canary").unwrap();
        let error = found(&source(&file, true)).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("canary"));
        assert_eq!(found(&CredentialSource::None), Ok(None));
    }
}
