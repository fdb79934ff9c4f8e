//! A user name and a password as a `kubernetes.io/basic-auth` Secret holds them: one rule for the hub, which judges the
//! Secret, and for the renderer, which reads the files it is mounted as.

use std::collections::BTreeMap;
use std::fmt;

use secrecy::SecretString;

use super::labels::REGISTRY_HOST;
use super::oci::RegistryHost;

/// Longest user name or password in bytes.
pub const MAX_BYTES: usize = 64 * 1024;

/// A user name and a password; `Debug` shows neither.
#[derive(Clone)]
pub struct BasicCredential {
    /// Sent in clear inside the Basic header, so it is not treated as public either.
    pub username: String,
    /// The password or access token.
    pub password: SecretString,
}

impl fmt::Debug for BasicCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(redacted)")
    }
}

/// Why a user name and a password are no credential; never with any of their text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BasicAuthError {
    /// An empty user name or password, or one that is not text.
    #[error("user name or password is empty or not text")]
    Empty,
    /// More than 64 KiB.
    #[error("user name or password is too long")]
    TooLong,
    /// A colon in the user name, which Basic authentication cannot carry.
    #[error("the user name holds a colon")]
    Colon,
}

/// The host that a Secret says its user name and password are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretHostMatch {
    /// It names none.
    Absent,
    /// The registry's.
    Same,
    /// Another one, or what is no host.
    Another,
}

impl SecretHostMatch {
    /// What these annotations of a Secret say to a registry of this hostname.
    #[must_use]
    pub fn of(annotations: Option<&BTreeMap<String, String>>, hostname: &str) -> Self {
        let Some(named) = annotations.and_then(|all| all.get(REGISTRY_HOST)) else {
            return Self::Absent;
        };
        let named = named.parse::<RegistryHost>().ok();
        if named.is_some() && named == hostname.parse().ok() {
            Self::Same
        } else {
            Self::Another
        }
    }
}

/// The credential in two files or two keys of a Secret; a line break at the end of either is how people make such files, and is
/// not part of the value.
///
/// # Errors
/// When one is empty, not text or too long, or the user name holds a colon.
pub fn parse(username: &[u8], password: &[u8]) -> Result<BasicCredential, BasicAuthError> {
    pair(word(username)?, word(password)?)
}

/// The credential of a user name and a password, taken as they are.
///
/// # Errors
/// When one is empty or the user name holds a colon.
pub fn pair(username: &str, password: &str) -> Result<BasicCredential, BasicAuthError> {
    if username.is_empty() || password.is_empty() {
        Err(BasicAuthError::Empty)
    } else if username.contains(':') {
        Err(BasicAuthError::Colon)
    } else {
        Ok(BasicCredential {
            username: username.to_owned(),
            password: password.into(),
        })
    }
}

fn word(bytes: &[u8]) -> Result<&str, BasicAuthError> {
    if bytes.len() > MAX_BYTES {
        return Err(BasicAuthError::TooLong);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| BasicAuthError::Empty)?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    Ok(text.strip_suffix('\r').unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret as _;

    /// Holds: B18.
    #[test]
    fn a_secret_is_for_the_host_that_it_names_with_its_port() {
        let host = "registry.test:5000";
        for (named, expected) in [
            (None, SecretHostMatch::Absent),
            (Some("registry.test:5000"), SecretHostMatch::Same),
            (Some("Registry.TEST:5000"), SecretHostMatch::Same),
            (Some("registry.test"), SecretHostMatch::Another),
            (Some("registry.test:5001"), SecretHostMatch::Another),
            (Some("registry.test:5000.evil.test"), SecretHostMatch::Another),
            (Some("https://registry.test:5000"), SecretHostMatch::Another),
            (Some("registry.test:5000,other.test"), SecretHostMatch::Another),
            (Some(" registry.test:5000"), SecretHostMatch::Another),
            (Some(""), SecretHostMatch::Another),
        ] {
            let annotations = named.map(|host| [(REGISTRY_HOST.to_owned(), host.to_owned())].into());
            assert_eq!(
                SecretHostMatch::of(annotations.as_ref(), host),
                expected,
                "{named:?}"
            );
        }
        // What is no host is the registry's in no case, even where both say it.
        let both = [(REGISTRY_HOST.to_owned(), "https://x".to_owned())].into();
        assert_eq!(
            SecretHostMatch::of(Some(&both), "https://x"),
            SecretHostMatch::Another
        );
    }

    #[test]
    fn two_words_or_nothing() {
        let long = vec![b'p'; MAX_BYTES + 1];
        for (username, password, expected) in [
            (&b"u"[..], &b"p"[..], Ok(("u", "p"))),
            (b"u\n", b" p w \r\n", Ok(("u", " p w "))),
            (b"u", b"p\n\n", Ok(("u", "p\n"))),
            (b"u", b":", Ok(("u", ":"))),
            (b"", b"p", Err(BasicAuthError::Empty)),
            (b"u", b"", Err(BasicAuthError::Empty)),
            (b"u", b"\n", Err(BasicAuthError::Empty)),
            (b"\r\n", b"p", Err(BasicAuthError::Empty)),
            (b"u", b"\xff", Err(BasicAuthError::Empty)),
            (b"a:b", b"p", Err(BasicAuthError::Colon)),
            (b"u", &long, Err(BasicAuthError::TooLong)),
            (&long, b"p", Err(BasicAuthError::TooLong)),
        ] {
            let found = parse(username, password);
            let words = found
                .as_ref()
                .map(|one| (one.username.as_str(), one.password.expose_secret()));
            assert_eq!(words.map_err(|error| *error), expected);
        }
    }
}
