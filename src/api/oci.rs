//! The terms of an OCI registry: host, repository, tag, reference, digest.
//!
//! Everything here is parsed once into a type that can only hold legal text, so that a prefix check, a URL or a comparison
//! further down needs no second check. Errors name the part that is wrong and never quote it: the text may be a tenant's.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use sha2::{Digest as _, Sha256};

/// Longest repository path, as the distribution registry has it.
const MAX_REPOSITORY: usize = 255;
/// Longest tag, from the OCI distribution specification.
const MAX_TAG: usize = 128;
/// Longest host name, from DNS.
const MAX_HOST: usize = 253;
/// Longest label of a host name, from DNS.
const MAX_HOST_LABEL: usize = 63;

/// Which part of a reference is not legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OciError {
    /// Not `host` or `host:port`.
    #[error("invalid registry host")]
    Host,
    /// Not lower-case path components separated by single slashes.
    #[error("invalid repository")]
    Repository,
    /// Not `[A-Za-z0-9_][A-Za-z0-9._-]{0,127}` (after `+` became `_`).
    #[error("invalid tag")]
    Tag,
    /// Not `[oci://]host[:port]/repository:tag`.
    #[error("invalid reference")]
    Reference,
    /// Not `sha256:` and 64 lower-case hexadecimal digits.
    #[error("invalid digest")]
    Digest,
}

/// A registry's `host` or `host:port`, in lower case; the key credentials are bound to.
///
/// DNS names, IPv4 addresses and bracketed IPv6 addresses. No scheme, no user information, no path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegistryHost(String);

/// A repository path such as `team-a/shop`: lower-case components separated by single slashes, at most 255 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Repository(String);

/// Where repositories may be: a whole registry (empty), below a path (`team-a/`), or at and below it (`team-a`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RepositoryPrefix(String);

/// A tag as a registry stores it.
///
/// Parsing accepts `+`, which chart versions may hold and tags may not, and turns it into `_` as Helm does; no two
/// versions meet in one tag, because a version cannot hold `_`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(String);

/// A tagged artifact: `host[:port]/repository:tag`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OciReference {
    /// Registry that holds the artifact.
    pub host: RegistryHost,
    /// Repository within the registry.
    pub repository: Repository,
    /// Tag within the repository.
    pub tag: Tag,
}

/// `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(String);

// === impl RegistryHost ===

impl RegistryHost {
    /// The host as text, `host` or `host:port`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Host name or address without the port; IPv6 keeps its brackets.
    #[must_use]
    pub fn name(&self) -> &str {
        split_port(&self.0).0
    }

    /// The port, if one was given.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        split_port(&self.0).1.and_then(|port| port.parse().ok())
    }
}

impl FromStr for RegistryHost {
    type Err = OciError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, port) = split_port(text);
        if port.is_some_and(|port| !is_port(port)) || !(is_ipv6(name) || is_dns_name(name)) {
            return Err(OciError::Host);
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

/// Splits at the colon of the port, which for IPv6 is the one after the bracket.
fn split_port(text: &str) -> (&str, Option<&str>) {
    let from = text.rfind(']').unwrap_or(0);
    match text[from..].find(':') {
        Some(colon) => (&text[..from + colon], Some(&text[from + colon + 1..])),
        None => (text, None),
    }
}

fn is_port(text: &str) -> bool {
    let decimal = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    decimal && text.parse::<u16>().is_ok()
}

fn is_ipv6(text: &str) -> bool {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok())
}

fn is_dns_name(text: &str) -> bool {
    let label = |label: &str| {
        let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        label.len() <= MAX_HOST_LABEL
            && edge(label.as_bytes().first())
            && edge(label.as_bytes().last())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    text.len() <= MAX_HOST && text.split('.').all(label)
}

// === impl Repository ===

impl Repository {
    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last path component, which Helm wants to be the chart's name.
    #[must_use]
    pub fn last_segment(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// Whether this repository is inside `prefix`, compared component by component: `team-a2/x` is not within `team-a`.
    #[must_use]
    pub fn is_within(&self, prefix: &RepositoryPrefix) -> bool {
        if prefix.0.is_empty() || self.0 == prefix.0 {
            return true;
        }
        let path = prefix.0.strip_suffix('/').unwrap_or(&prefix.0);
        self.0
            .strip_prefix(path)
            .is_some_and(|rest| rest.starts_with('/'))
    }
}

impl FromStr for Repository {
    type Err = OciError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MAX_REPOSITORY || !text.split('/').all(is_path_component) {
            return Err(OciError::Repository);
        }
        Ok(Self(text.to_owned()))
    }
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`, the grammar of the distribution specification.
fn is_path_component(text: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut runs = text
        .as_bytes()
        .chunk_by(|a, b| alphanumeric(*a) == alphanumeric(*b));
    let separator = |run: &[u8]| matches!(run, b"." | b"_" | b"__") || run.iter().all(|byte| *byte == b'-');
    let edges = [text.bytes().next(), text.bytes().next_back()];
    edges.iter().all(|edge| edge.is_some_and(alphanumeric))
        && runs.all(|run| alphanumeric(run[0]) || separator(run))
}

// === impl RepositoryPrefix ===

impl RepositoryPrefix {
    /// The prefix as text; empty means the whole registry.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RepositoryPrefix {
    type Err = OciError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if !text.is_empty() {
            text.strip_suffix('/').unwrap_or(text).parse::<Repository>()?;
        }
        Ok(Self(text.to_owned()))
    }
}

// === impl Tag ===

impl Tag {
    /// The tag as a registry stores it, `_` for `+`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the tag Helm wants for a chart of that version.
    #[must_use]
    pub fn matches_version(&self, version: &str) -> bool {
        version.replace('+', "_") == self.0
    }
}

impl FromStr for Tag {
    type Err = OciError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let tag = text.replace('+', "_");
        let legal = tag.bytes().next().is_some_and(word)
            && tag.len() <= MAX_TAG
            && tag.bytes().all(|byte| word(byte) || byte == b'.' || byte == b'-');
        if legal { Ok(Self(tag)) } else { Err(OciError::Tag) }
    }
}

// === impl Reference ===

impl OciReference {
    /// `oci://host[:port]/repository:tag`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("oci://{self}")
    }
}

impl FromStr for OciReference {
    type Err = OciError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bare = text.strip_prefix("oci://").unwrap_or(text);
        let (host, rest) = bare.split_once('/').ok_or(OciError::Reference)?;
        let (repository, tag) = rest.rsplit_once(':').ok_or(OciError::Reference)?;
        Ok(Self {
            host: host.parse()?,
            repository: repository.parse()?,
            tag: tag.parse()?,
        })
    }
}

impl fmt::Display for OciReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.host, self.repository, self.tag)
    }
}

// === impl Digest ===

impl Digest {
    /// The digest of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(format!("sha256:{:x}", Sha256::digest(bytes)))
    }

    /// The digest as text, `sha256:<64 hex>`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Digest {
    type Err = OciError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hex = text.strip_prefix("sha256:").ok_or(OciError::Digest)?;
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if hex.len() == 64 && hex.bytes().all(digit) {
            Ok(Self(text.to_owned()))
        } else {
            Err(OciError::Digest)
        }
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

macro_rules! display_as_text {
    ($($name:ident),+) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+};
}
display_as_text!(RegistryHost, Repository, RepositoryPrefix, Tag, Digest);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hosts() {
        let good =
            "a localhost 127.0.0.1:5000 r.example.com Registry.Example.com:443 [::1]:5000 [fe80::1] xn--a.b";
        for host in good.split(' ') {
            assert_eq!(
                host.parse::<RegistryHost>().unwrap().as_str(),
                host.to_lowercase()
            );
        }
    }

    #[test]
    fn what_is_not_a_host() {
        let bad = ". a. .a a..b -a a- a_b u@h h: h:0 h:65536 h:080 h:+80 h:80:80 a/b http://a [::1 ::1 [a]:1 [::1]x:1 ä a%2e [::1%eth0]";
        let long = format!("{}.example", "a".repeat(64));
        for host in bad.split(' ').chain(["", "a b", "a\n", long.as_str()]) {
            assert_eq!(host.parse::<RegistryHost>(), Err(OciError::Host), "{host:?}");
        }
    }

    #[test]
    fn host_parts() {
        let host: RegistryHost = "[::1]:5000".parse().unwrap();
        assert_eq!((host.name(), host.port()), ("[::1]", Some(5000)));
        let host: RegistryHost = "R.example:443".parse().unwrap();
        assert_eq!((host.name(), host.port()), ("r.example", Some(443)));
        let host: RegistryHost = "[::1]".parse().unwrap();
        assert_eq!((host.name(), host.port()), ("[::1]", None));
    }

    #[test]
    fn repositories() {
        let longest = "a".repeat(255);
        for good in ["a", "a/b", "team-a/shop", "a.b/c_d/e__f/g--h", "0/1", &longest] {
            assert_eq!(good.parse::<Repository>().unwrap().as_str(), good);
        }
        let long = "a".repeat(256);
        for bad in [
            "", "/", "/a", "a/", "a//b", "A", "a/../b", "..", "a/.", "a..b", "a___b", "a._b", "-a", "a-",
            "a b", "a:b", "a@b", "a%2fb", "ä", "a\n", &long,
        ] {
            assert_eq!(bad.parse::<Repository>(), Err(OciError::Repository), "{bad:?}");
        }
    }

    /// Holds: C3.
    #[test]
    fn prefixes_are_compared_by_component() {
        let within = |repository: &str, prefix: &str| {
            repository
                .parse::<Repository>()
                .unwrap()
                .is_within(&prefix.parse::<RepositoryPrefix>().unwrap())
        };
        for (repository, prefix) in [
            ("team-a/x", "team-a/"),
            ("team-a/x/y", "team-a"),
            ("team-a", "team-a"),
            ("x", ""),
        ] {
            assert!(within(repository, prefix), "{repository} {prefix}");
        }
        for (repository, prefix) in [
            ("team-a2/x", "team-a"),
            ("team-a2/x", "team-a/"),
            ("team-a", "team-a/"),
            ("x/team-a/y", "team-a/"),
        ] {
            assert!(!within(repository, prefix), "{repository} {prefix}");
        }
        for bad in ["/", "a//", "A/", "../", "/a/"] {
            assert!(bad.parse::<RepositoryPrefix>().is_err(), "{bad}");
        }
    }

    #[test]
    fn tags() {
        for (text, tag) in [
            ("1.0.0", "1.0.0"),
            ("v0.0.1-abc", "v0.0.1-abc"),
            ("1.0.0+b.1", "1.0.0_b.1"),
            ("_x", "_x"),
        ] {
            assert_eq!(text.parse::<Tag>().unwrap().as_str(), tag);
            assert!(text.parse::<Tag>().unwrap().matches_version(text));
        }
        let long = "a".repeat(129);
        for bad in [
            "", ".a", "-a", "--url", "a b", "a/b", "a:b", "a@b", "ä", "a\n", &long,
        ] {
            assert_eq!(bad.parse::<Tag>(), Err(OciError::Tag), "{bad:?}");
        }
    }

    #[test]
    fn references() {
        let reference: OciReference = "oci://127.0.0.1:5000/team-a/shop:1.0.0+x".parse().unwrap();
        assert_eq!(reference.to_string(), "127.0.0.1:5000/team-a/shop:1.0.0_x");
        assert_eq!(reference.url(), "oci://127.0.0.1:5000/team-a/shop:1.0.0_x");
        assert_eq!(reference.repository.last_segment(), "shop");
        for bad in [
            "",
            "oci://",
            "h",
            "h/r",
            "h:1/r",
            "h/r:",
            "h//r:1",
            "https://h/r:1",
            "oci://https://h/r:1",
            "oci://oci://h/r:1",
            "u:p@h/r:1",
            "h/r@sha256:a",
            "h/r:1?x",
            "h/r:1#x",
            "oci:h/r:1",
            "h/r:a:b",
            "h\\x/r:1",
        ] {
            assert!(bad.parse::<OciReference>().is_err(), "{bad}");
        }
    }

    proptest! {
        /// Holds: C3.
        #[test]
        fn nothing_illegal_parses_and_everything_parsed_prints_itself(text in "\\PC{0,40}") {
            if let Ok(reference) = text.parse::<OciReference>() {
                prop_assert_eq!(reference.url().parse::<OciReference>().unwrap(), reference);
            }
            if let Ok(repository) = text.parse::<Repository>() {
                prop_assert!(repository.as_str().split('/').all(|part| !part.is_empty() && part != "." && part != ".."));
            }
        }

        #[test]
        fn legal_references_parse(host in "[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?(\\.[a-z0-9]{1,5}){0,3}", port in prop::option::of(1u16..),
            path in "[a-z0-9]{1,5}((\\.|_|__|-{1,3})[a-z0-9]{1,3}){0,2}(/[a-z0-9]{1,5}){0,3}", tag in "[A-Za-z0-9_][A-Za-z0-9._-]{0,127}") {
            let host = port.map_or(host.clone(), |port| format!("{host}:{port}"));
            let text = format!("{host}/{path}:{tag}");
            prop_assert_eq!(text.parse::<OciReference>().unwrap().to_string(), text);
        }

        /// Holds: C3.
        #[test]
        fn a_prefix_admits_only_itself_and_what_is_below(path in "[a-c]{1,2}(/[a-c]{1,2}){0,2}", prefix in "[a-c]{1,2}(/[a-c]{1,2}){0,2}") {
            let below = path.split('/').zip(prefix.split('/')).all(|(a, b)| a == b) && path.split('/').count() >= prefix.split('/').count();
            prop_assert_eq!(path.parse::<Repository>().unwrap().is_within(&prefix.parse().unwrap()), below);
        }
    }

    #[test]
    fn digests() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").as_str(), empty);
        assert_eq!(empty.parse::<Digest>().unwrap(), Digest::of(b""));
        for bad in [
            "",
            "sha256:",
            "sha512:00",
            &empty.to_uppercase(),
            &empty[..70],
            &format!("{empty}0"),
        ] {
            assert_eq!(bad.parse::<Digest>(), Err(OciError::Digest), "{bad}");
        }
    }
}
