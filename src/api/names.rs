//! Names that are derived, length-safe and unambiguous: tasks, hubs, Jobs.

use std::fmt;

use sha2::{Digest, Sha256};

/// Longest DNS label, and so the longest name of a Job whose pods carry it as a label.
const LABEL_MAX: usize = 63;
/// Hex digits of the UID's hash in a name: 64 bits, out of reach for a birthday collision or a forger.
const HASH_DIGITS: usize = 16;
/// What a hub id holds of its cluster's UID.
const CLUSTER_DIGITS: usize = 8;
/// What each Job and config Secret starts with.
const PREFIX: &str = "render-";

/// Which of the two task kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaskKind {
    /// In a tenant's namespace.
    RenderTask,
    /// Of the platform.
    ClusterRenderTask,
}

impl TaskKind {
    /// The kind as Kubernetes writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RenderTask => "RenderTask",
            Self::ClusterRenderTask => "ClusterRenderTask",
        }
    }

    /// The same in the plural, as in a path.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::RenderTask => "rendertasks",
            Self::ClusterRenderTask => "clusterrendertasks",
        }
    }
}

/// UID of a task: the hub trusts it, because another object can get the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskUid(Box<str>);

impl TaskUid {
    /// The UID as the API server gave it.
    #[must_use]
    pub fn new(uid: &str) -> Self {
        Self(uid.into())
    }

    /// The UID as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TaskUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Identity of a hub: `<shard name>-<first 8 of the kube-system namespace's UID>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HubId(String);

/// Why a hub id cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum HubIdError {
    /// The shard name is no DNS label, or too long for the id to fit a label value.
    #[error("the shard name must be a lower-case DNS label of at most 54 characters")]
    ShardName,
    /// The UID of the kube-system namespace is missing or too short.
    #[error("the kube-system namespace has no usable UID")]
    ClusterUid,
}

impl HubId {
    /// The id of the hub `shard` on the cluster whose kube-system namespace has the UID.
    ///
    /// # Errors
    /// The shard name is no DNS label of at most 54 characters, or the UID has fewer than 8 characters.
    pub fn new(shard: &str, kube_system_uid: &str) -> Result<Self, HubIdError> {
        if !is_dns_label(shard) || shard.len() > LABEL_MAX - 1 - CLUSTER_DIGITS {
            return Err(HubIdError::ShardName);
        }
        let cluster = kube_system_uid
            .get(..CLUSTER_DIGITS)
            .filter(|part| is_dns_label(part))
            .ok_or(HubIdError::ClusterUid)?;
        Ok(Self(format!("{shard}-{cluster}")))
    }

    /// The id as a label value.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the text is the id of a hub of the same cluster, this one or another.
    #[must_use]
    pub fn is_kin(&self, id: &str) -> bool {
        let (_, cluster) = self.0.split_at(self.0.len() - CLUSTER_DIGITS - 1);
        id.strip_suffix(cluster).is_some_and(is_dns_label)
    }
}

impl fmt::Display for HubId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Name of a task's Job and config Secret: `render-<task name, cut>-<16 hex of SHA-256(task UID)>`.
///
/// The UID makes it unique over tenants and over tasks of one name; the task's name is there for people.
#[must_use]
pub fn job_name(task_name: &str, uid: &TaskUid) -> String {
    let hash = short_hash(uid);
    let room = LABEL_MAX - PREFIX.len() - 1 - HASH_DIGITS;
    let readable: String = task_name
        .chars()
        .map(|c| {
            if c.is_ascii_lowercase() || c.is_ascii_digit() {
                c
            } else {
                '-'
            }
        })
        .take(room)
        .collect();
    let readable = readable.trim_matches('-');
    let dash = if readable.is_empty() { "" } else { "-" };
    format!("{PREFIX}{readable}{dash}{hash}")
}

/// Whether text has the shape of an object's UID: what a server that is not trusted calls one.
#[must_use]
pub fn is_uid(text: &str) -> bool {
    let is_legal = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c) || c == b'-';
    text.len() == 36 && text.bytes().all(is_legal)
}

/// Whether an object's name is the one of the task's Job and config Secret. A copy with all its labels has another name.
#[must_use]
pub fn is_name_of(name: &str, uid: &TaskUid) -> bool {
    // A cluster that is not trusted may have put anything between the two ends.
    let before = name.strip_suffix(&short_hash(uid)).filter(|_| is_dns_label(name));
    before.is_some_and(|before| before.starts_with(PREFIX) && before.ends_with('-'))
}

fn short_hash(uid: &TaskUid) -> String {
    hex(&Sha256::digest(uid.as_str().as_bytes())[..HASH_DIGITS / 2])
}

/// The 32 bytes of 64 hex digits.
#[must_use]
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> = text
        .chars()
        .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
        .collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits
        .chunks_exact(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect();
    bytes.try_into().ok().filter(|_| digits.len() == 64)
}

/// A value for a query: everything but the unreserved characters of RFC 3986 is percent-encoded.
#[must_use]
pub fn percent_encode(text: &str) -> String {
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte: u8| {
        if unreserved(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(encode).collect()
}

/// Lower-case hex of bytes.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|b| [b >> 4, b & 15])
        .map(|d| char::from(DIGITS[usize::from(d)]))
        .collect()
}

/// Whether the text is a lower-case DNS label (RFC 1123).
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    (1..=LABEL_MAX).contains(&text.len()) && is_label_shaped(text)
}

/// Whether the text is a DNS subdomain (RFC 1123), as Kubernetes wants names of most objects: labels with dots between
/// them, at most 253 characters in all.
#[must_use]
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label_shaped)
}

/// Lower-case letters, digits and hyphens, with no hyphen at an end.
fn is_label_shaped(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = bytes.first().zip(bytes.last());
    ends.is_some_and(|(&first, &last)| inner(first) && inner(last))
        && bytes.iter().all(|&c| inner(c) || c == b'-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_name_is_readable_and_carries_the_uid() {
        let uid = TaskUid::new("0f5a4e0c-0001-4000-8000-000000000001");
        let name = job_name("web.v1", &uid);
        assert!(
            name.starts_with("render-web-v1-") && name.len() == "render-web-v1-".len() + 16,
            "{name}"
        );
        assert_ne!(name, job_name("web.v1", &TaskUid::new("other")));
        assert!(is_name_of(&name, &uid) && is_name_of(&job_name("...", &uid), &uid));
        assert!(!is_name_of(&name, &TaskUid::new("other")) && !is_name_of("debug-copy", &uid));
        assert!(!is_name_of(&format!("{name}-copy"), &uid));
    }

    #[test]
    fn hub_ids_fit_a_label() {
        let uid = "0f5a4e0c-0001-4000-8000-000000000001";
        assert_eq!(HubId::new("main", uid).unwrap().as_str(), "main-0f5a4e0c");
        assert!(HubId::new(&"a".repeat(54), uid).is_ok());
        for bad in ["", "A", "a_b", "-a", &"a".repeat(55)] {
            assert!(HubId::new(bad, uid).is_err(), "{bad}");
        }
        assert!(HubId::new("main", "").is_err());
    }

    proptest! {
        /// Holds: T5.
    #[test]
        fn every_name_is_a_dns_label(name in "[a-z0-9.-]{0,253}", uid in "[a-f0-9-]{36}") {
            prop_assert!(is_dns_label(&job_name(&name, &TaskUid::new(&uid))));
        }

        /// Holds: C5.
    #[test]
        fn names_of_different_tasks_differ(name in "[a-z0-9.]{1,60}", a in "[a-f0-9]{32}", b in "[a-f0-9]{32}") {
            prop_assume!(a != b);
            prop_assert_ne!(job_name(&name, &TaskUid::new(&a)), job_name(&name, &TaskUid::new(&b)));
        }
    }

    #[test]
    fn names_of_objects_are_subdomains() {
        let long = "a".repeat(253);
        for (text, is_one) in [
            ("builder", true),
            ("a.b-c.d", true),
            (long.as_str(), true),
            (&format!("{long}a"), false),
            ("", false),
            (" ", false),
            ("a..b", false),
            (".a", false),
            ("a-", false),
            ("A", false),
            ("a:b", false),
            ("a\r\nb", false),
            ("\u{e4}", false),
            ("a/b", false),
        ] {
            assert_eq!(is_dns_subdomain(text), is_one, "{text:?}");
        }
    }
}
