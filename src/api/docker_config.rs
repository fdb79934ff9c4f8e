//! Docker's credential file, as in a `kubernetes.io/dockerconfigjson` Secret: which credential belongs to which host.
//!
//! Only what is in the file counts: `credsStore`, `credHelpers` and identity tokens are not used, since they would start
//! programs or need a second protocol. Errors carry no content.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::basic_auth::{self, BasicCredential};
use super::oci::RegistryHost;

/// Largest file in bytes; a Kubernetes Secret cannot be larger.
const MAX_BYTES: usize = 1024 * 1024;
/// Most entries; a person has tens.
const MAX_ENTRIES: usize = 4096;

/// Base64 as people write it by hand: with or without the padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Why a credential file is refused; never with any of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DockerConfigError {
    /// More than 1 MiB, or more than 4096 entries.
    #[error("credential file is too large")]
    TooLarge,
    /// Not a JSON object with an `auths` object.
    #[error("credential file is not a docker config")]
    Malformed,
    /// The host's entry is not one: no object, an `auth` that is not base64 of `username:password`, or a colon in `username`.
    #[error("credential file has an entry for the registry that cannot be decoded")]
    BadEntry,
}

/// A parsed credential file.
#[derive(Clone, Default)]
pub struct DockerConfig {
    // A broken entry is an error for its own host only.
    entries: BTreeMap<String, Result<BasicCredential, DockerConfigError>>,
}

impl fmt::Debug for DockerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DockerConfig({} entries)", self.entries.len())
    }
}

/// Entries are text until they are decoded: as values, a file of 1 MiB would take 130.
#[derive(Deserialize)]
struct DockerConfigFile<'a> {
    #[serde(borrow, default)]
    auths: Option<BTreeMap<String, Option<&'a RawValue>>>,
}

#[derive(Deserialize)]
struct DockerAuthEntry {
    #[serde(default)]
    auth: Option<String>,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password: Option<String>,
}

impl DockerConfig {
    /// Parses the file's bytes.
    ///
    /// # Errors
    /// When the file is too large or is not a docker config.
    pub fn parse(bytes: &[u8]) -> Result<Self, DockerConfigError> {
        if bytes.len() > MAX_BYTES {
            return Err(DockerConfigError::TooLarge);
        }
        // serde also reads a struct from an array, which no docker config is.
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(DockerConfigError::Malformed);
        }
        let file: DockerConfigFile =
            serde_json::from_slice(bytes).map_err(|_| DockerConfigError::Malformed)?;
        let auths = file.auths.unwrap_or_default();
        if auths.len() > MAX_ENTRIES {
            return Err(DockerConfigError::TooLarge);
        }
        let entries = auths
            .into_iter()
            .filter_map(|(key, entry)| Some((key, credential(entry).transpose()?)));
        Ok(Self {
            entries: entries.collect(),
        })
    }

    /// The credential for exactly this host and port.
    ///
    /// A key that is the host itself wins over one with a scheme or a path, such as `https://host/v1/`.
    ///
    /// # Errors
    /// When the host's entry cannot be decoded.
    pub fn lookup(&self, host: &RegistryHost) -> Result<Option<&BasicCredential>, DockerConfigError> {
        let matches = |key: &str| key.eq_ignore_ascii_case(host.as_str());
        let exact = self.entries.iter().find(|(key, _)| matches(key));
        let found = exact.or_else(|| self.entries.iter().find(|(key, _)| matches(host_of(key))));
        found
            .map(|(_, entry)| entry.as_ref().map_err(|error| *error))
            .transpose()
    }

    /// Whether the file has no entry that holds anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// `https://host/v1/` → `host`, as docker reads its own keys.
fn host_of(key: &str) -> &str {
    let bare = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"))
        .unwrap_or(key);
    bare.split('/').next().unwrap_or(bare)
}

/// An entry's credential; `None` for one that holds none (an empty entry left behind by a credential helper).
fn credential(entry: Option<&RawValue>) -> Result<Option<BasicCredential>, DockerConfigError> {
    let Some(entry) = entry else { return Ok(None) };
    // serde also reads a struct from an array.
    if !entry.get().starts_with('{') {
        return Err(DockerConfigError::BadEntry);
    }
    let entry: DockerAuthEntry =
        serde_json::from_str(entry.get()).map_err(|_| DockerConfigError::BadEntry)?;
    let auth = entry.auth.map(Zeroizing::new);
    let (username, password) = match auth.filter(|auth| !auth.is_empty()) {
        Some(auth) => decode(&auth)?,
        None => (
            entry.username.unwrap_or_default(),
            Zeroizing::new(entry.password.unwrap_or_default()),
        ),
    };
    if username.is_empty() || password.is_empty() {
        return Ok(None);
    }
    let credential = basic_auth::pair(&username, &password).map_err(|_| DockerConfigError::BadEntry)?;
    Ok(Some(credential))
}

fn decode(auth: &str) -> Result<(String, Zeroizing<String>), DockerConfigError> {
    let compact: Zeroizing<String> =
        Zeroizing::new(auth.chars().filter(|c| !matches!(c, '\r' | '\n')).collect());
    let bytes = BASE64.decode(compact.as_bytes()).map(Zeroizing::new);
    let bytes = bytes.map_err(|_| DockerConfigError::BadEntry)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| DockerConfigError::BadEntry)?;
    // Docker pads the password with zero bytes in old files.
    let (username, password) = text.split_once(':').ok_or(DockerConfigError::BadEntry)?;
    let password = Zeroizing::new(password.trim_end_matches('\0').to_owned());
    Ok((username.to_owned(), password))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use secrecy::ExposeSecret as _;

    fn found(config: &DockerConfig, host: &str) -> Option<(String, String)> {
        let credential = config.lookup(&host.parse().unwrap()).unwrap()?;
        Some((
            credential.username.clone(),
            credential.password.expose_secret().to_owned(),
        ))
    }

    fn parse(text: &str) -> Result<DockerConfig, DockerConfigError> {
        DockerConfig::parse(text.as_bytes())
    }

    #[test]
    fn an_auth_or_a_pair_per_host() {
        // dTpwOnc= is "u:p:w".
        let config = parse(
            r#"{"auths":{"a.example":{"auth":"dTpwOnc="},"b.example:5000":{"username":"x","password":"y","email":"z"},
                "c.example":{"auth":"dTpwOnc","username":"no","password":"no"},"d.example":{},"e.example":null},
                "credsStore":"desktop","HttpHeaders":{"a":"b"}}"#,
        )
        .unwrap();
        assert_eq!(found(&config, "a.example"), Some(("u".into(), "p:w".into())));
        assert_eq!(found(&config, "A.Example"), Some(("u".into(), "p:w".into())));
        assert_eq!(found(&config, "b.example:5000"), Some(("x".into(), "y".into())));
        assert_eq!(found(&config, "c.example"), Some(("u".into(), "p:w".into())));
        for other in [
            "b.example",
            "b.example:5001",
            "a.example:443",
            "sub.a.example",
            "d.example",
            "e.example",
            "example",
        ] {
            assert_eq!(found(&config, other), None, "{other}");
        }
        assert!(!config.is_empty());
    }

    #[test]
    fn dockers_own_keys_are_hosts_too() {
        let config = parse(
            r#"{"auths":{"https://index.docker.io/v1/":{"auth":"dTpwOnc="},"http://h:1":{"auth":"dTpwOnc="},
                "k.example/v2/":{"username":"path","password":"p"},"k.example":{"username":"host","password":"p"},"*.example":{"auth":"dTpwOnc="}}}"#,
        )
        .unwrap();
        assert!(found(&config, "index.docker.io").is_some());
        assert!(found(&config, "h:1").is_some());
        assert_eq!(found(&config, "k.example"), Some(("host".into(), "p".into())));
        assert_eq!(found(&config, "x.example"), None, "no wildcards");
    }

    #[test]
    fn a_broken_entry_of_another_host_is_ignored() {
        for broken in [
            r#"{"auth":"!!"}"#,
            r#"{"auth":1}"#,
            r#"{"username":"a:b","password":"p"}"#,
            "1",
            "[]",
            r#""x""#,
        ] {
            let text = format!(r#"{{"auths":{{"a.example":{broken},"b.example":{{"auth":"dTpwOnc="}}}}}}"#);
            let config = parse(&text).unwrap();
            assert_eq!(
                found(&config, "b.example"),
                Some(("u".into(), "p:w".into())),
                "{broken}"
            );
        }
    }

    #[test]
    fn nothing_in_it_is_not_an_error() {
        for text in [
            "{}",
            r#"{"auths":{}}"#,
            r#"{"auths":null}"#,
            r#"{"auths":{"h":{"identitytoken":"t"}}}"#,
        ] {
            assert!(parse(text).unwrap().is_empty(), "{text}");
        }
    }

    #[test]
    fn what_is_refused_and_how() {
        for text in ["", "[]", "null x", r#"{"auths":[]}"#, &"[".repeat(10_000)] {
            assert_eq!(parse(text).unwrap_err(), DockerConfigError::Malformed, "{text}");
        }
        // "!!" is not base64, "dQ==" is "u" without a colon, "/zo=" is not UTF-8.
        for entry in [
            "1",
            "[]",
            r#"{"auth":1}"#,
            r#"{"auth":"!!"}"#,
            r#"{"auth":"dQ=="}"#,
            r#"{"auth":"/zo="}"#,
            r#"{"username":"a:b","password":"p"}"#,
        ] {
            // The entry of the host itself counts, even where a vaguer key has a good entry.
            let text = format!(r#"{{"auths":{{"h":{entry},"https://h/":{{"auth":"dTpwOnc="}}}}}}"#);
            let config = parse(&text).unwrap();
            let error = config.lookup(&"h".parse().unwrap()).unwrap_err();
            assert_eq!(error, DockerConfigError::BadEntry, "{entry}");
        }
        let many: Vec<String> = (0..=MAX_ENTRIES).map(|n| format!(r#""h{n}":{{}}"#)).collect();
        assert_eq!(
            parse(&format!(r#"{{"auths":{{{}}}}}"#, many.join(","))).unwrap_err(),
            DockerConfigError::TooLarge
        );
        assert_eq!(
            parse(&" ".repeat(MAX_BYTES + 1)).unwrap_err(),
            DockerConfigError::TooLarge
        );
    }

    /// Holds: B11.
    #[test]
    fn a_file_of_many_values_takes_little_more_than_its_text() {
        let deep = format!("{}1{}", r#"{"":"#.repeat(100), "}".repeat(100));
        let entries: Vec<&str> =
            std::iter::repeat_n(deep.as_str(), MAX_BYTES / (deep.len() + 1) - 1).collect();
        for text in [
            format!(r#"{{"auths":{{"a.example":[{}]}}}}"#, entries.join(",")),
            format!(
                r#"{{"auths":{{"a.example":{{"more":[{}]}}}}}}"#,
                entries.join(",")
            ),
            format!(r#"{{"more":[{}]}}"#, entries.join(",")),
        ] {
            assert!(text.len() > MAX_BYTES / 2, "{}", text.len());
            let taken = allocation_counter::measure(|| drop(parse(&text)));
            assert!(taken.bytes_max < 2 * MAX_BYTES as u64, "{taken:?}");
        }
    }

    /// Holds: E2, E7.
    #[test]
    fn nothing_prints_a_credential() {
        let config =
            parse(r#"{"auths":{"h":{"username":"canary-user","password":"canary-password"}}}"#).unwrap();
        let credential = config.lookup(&"h".parse().unwrap()).unwrap().unwrap();
        assert!(!format!("{config:?} {credential:?}").contains("canary"));
    }

    proptest! {
        #[test]
        fn any_pair_survives(user in "[^:\\x00]{1,20}", password in "[^\\x00]{1,40}") {
            let auth = BASE64.encode(format!("{user}:{password}"));
            let text = serde_json::json!({"auths": {"h": {"auth": auth}}}).to_string();
            prop_assert_eq!(found(&parse(&text).unwrap(), "h"), Some((user, password)));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = DockerConfig::parse(&bytes);
        }
    }
}
