//! The copy of a pull Secret: what of it goes to where pods are, and under which name.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use zeroize::{Zeroize as _, ZeroizeOnDrop, Zeroizing};

use super::image_repository::ImageRepository;
use super::keyring::is_tried;
use crate::api::PullSecretEntries;
use crate::api::labels::{HUB_ID, MANAGED_BY, MANAGED_BY_VALUE, PULL_COPY, PULL_SECRET, pull_copy};
use crate::api::names::{HubId, hex};
use crate::api::zeroized::ZeroizedSecret;

/// Most bytes of a copy; the entries of one host take a few hundred.
pub const MAX_COPY_BYTES: usize = 64 * 1024;
/// Bytes of the hash in a copy's name.
const HASH_BYTES: usize = 16;
/// How the name of a copy begins.
const NAME: &str = "renderhub-pull-";

/// Type of a Secret with docker's file of credentials, and the key of that file.
pub(super) const DOCKER_CONFIG: (&str, &str) = ("kubernetes.io/dockerconfigjson", ".dockerconfigjson");
/// Type of a Secret with the older file, and the key of that file.
pub(super) const LEGACY_CONFIG: (&str, &str) = ("kubernetes.io/dockercfg", ".dockercfg");

/// Base64 as the kubelet takes it: with or without the padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Why a Secret cannot be pulled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullSecretFault {
    /// There is no such Secret in the hub's release namespace.
    Missing,
    /// It is of another type than the two of pull Secrets.
    AnotherType,
    /// The kubelet could not decode it, and would pull no image at all with it.
    Undecodable,
    /// What would be copied is larger than 64 KiB.
    TooLarge,
    /// It has no entry for the host of the image.
    NoEntry,
    /// The hub could not read it yet.
    Unread,
}

/// Which copy it is: a hash of the hub and of the copy's content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PullCopyId(String);

impl PullCopyId {
    fn of(hub: &HubId, type_: &str, value: &[u8]) -> Self {
        let mut hash = Sha256::new();
        for part in [hub.as_str().as_bytes(), type_.as_bytes(), value] {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        Self(hex(hash.finalize().split_at(HASH_BYTES).0))
    }

    /// The copy that an object is by its label; `None` where its name is another's.
    #[must_use]
    pub fn of_object(meta: &ObjectMeta) -> Option<Self> {
        let labels = meta.labels.as_ref()?;
        let hash = labels.get(PULL_COPY).filter(|hash| is_hash(hash))?;
        let id = Self(hash.clone());
        (meta.name.as_deref() == Some(&id.object_name())).then_some(id)
    }

    /// Name of the Secret.
    #[must_use]
    pub fn object_name(&self) -> String {
        format!("{NAME}{}", self.0)
    }

    /// Label on the Jobs that name it.
    #[must_use]
    pub fn job_label(&self) -> String {
        pull_copy(&self.0)
    }
}

fn is_hash(text: &str) -> bool {
    let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    text.len() == 2 * HASH_BYTES && text.bytes().all(is_digit)
}

/// A copy with its content, which is wiped with it.
pub struct PullCopy {
    id: PullCopyId,
    type_: &'static str,
    key: &'static str,
    value: Zeroizing<Vec<u8>>,
}

impl ZeroizeOnDrop for PullCopy {}

impl fmt::Debug for PullCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PullCopy").field(&self.id).finish()
    }
}

impl PullCopy {
    /// The copy of a Secret for an image: the entries that the kubelet tries for it, or all.
    ///
    /// # Errors
    /// Why nothing can be pulled with it; nothing of the Secret is in that.
    pub fn of(
        hub: &HubId,
        secret: &Secret,
        image: &ImageRepository,
        entries: PullSecretEntries,
    ) -> Result<Self, PullSecretFault> {
        let (type_, key) = [DOCKER_CONFIG, LEGACY_CONFIG]
            .into_iter()
            .find(|(type_, _)| secret.type_.as_deref() == Some(type_))
            .ok_or(PullSecretFault::AnotherType)?;
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        let bytes = bytes.map(|bytes| bytes.0.as_slice()).unwrap_or_default();
        let tried = tried(type_, bytes, image, entries)?;
        let ((type_, key), value) = match entries {
            PullSecretEntries::All => ((type_, key), bytes.to_vec()),
            PullSecretEntries::Needed => {
                let file = PullSecretFile { auths: Some(tried) };
                let file = serde_json::to_vec(&file).map_err(|_| PullSecretFault::Undecodable)?;
                (DOCKER_CONFIG, file)
            }
        };
        let value = Zeroizing::new(value);
        if value.len() > MAX_COPY_BYTES {
            return Err(PullSecretFault::TooLarge);
        }
        let id = PullCopyId::of(hub, type_, &value);
        Ok(Self {
            id,
            type_,
            key,
            value,
        })
    }

    /// Which copy it is.
    #[must_use]
    pub const fn id(&self) -> &PullCopyId {
        &self.id
    }

    /// The Secret: immutable, with the marks of the hub. The name of its source is for people.
    #[must_use]
    pub fn manifest(&self, hub: &HubId, namespace: &str, source: &str) -> ZeroizedSecret {
        let labels = [
            (MANAGED_BY, MANAGED_BY_VALUE),
            (HUB_ID, hub.as_str()),
            (PULL_COPY, &self.id.0),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let metadata = ObjectMeta {
            name: Some(self.id.object_name()),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels.into()),
            annotations: Some([(PULL_SECRET.to_owned(), source.to_owned())].into()),
            ..ObjectMeta::default()
        };
        ZeroizedSecret::from(Secret {
            metadata,
            immutable: Some(true),
            type_: Some(self.type_.to_owned()),
            data: Some([(self.key.to_owned(), ByteString(self.value.to_vec()))].into()),
            ..Secret::default()
        })
    }
}

type Entries<'a> = BTreeMap<String, &'a RawValue>;

#[derive(Deserialize, Serialize)]
struct PullSecretFile<'a> {
    #[serde(borrow, default)]
    auths: Option<Entries<'a>>,
}

/// The entries of a file by their keys; `None` where the kubelet could not decode it.
fn read<'a>(type_: &str, bytes: &'a [u8]) -> Option<Entries<'a>> {
    // serde also reads a struct from an array.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return None;
    }
    if type_ == LEGACY_CONFIG.0 {
        return serde_json::from_slice(bytes).ok();
    }
    let file: PullSecretFile<'_> = serde_json::from_slice(bytes).ok()?;
    Some(file.auths.unwrap_or_default())
}

/// The entries that the kubelet tries for an image, where it can decode those that are copied.
fn tried<'a>(
    type_: &str,
    bytes: &'a [u8],
    image: &ImageRepository,
    entries: PullSecretEntries,
) -> Result<Entries<'a>, PullSecretFault> {
    let all = read(type_, bytes).ok_or(PullSecretFault::Undecodable)?;
    let is_copied = |key: &str| entries == PullSecretEntries::All || is_tried(key, image);
    let mut copied = all.iter().filter(|(key, _)| is_copied(key));
    if !copied.all(|(_, entry)| is_decodable(entry)) {
        return Err(PullSecretFault::Undecodable);
    }
    let tried: Entries<'a> = all.into_iter().filter(|(key, _)| is_tried(key, image)).collect();
    if tried.is_empty() {
        return Err(PullSecretFault::NoEntry);
    }
    Ok(tried)
}

/// What the kubelet reads of an entry.
#[derive(Deserialize)]
struct DockerEntry {
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password: Option<String>,
    #[serde(default)]
    email: Option<String>,
    #[serde(default)]
    auth: Option<String>,
}

impl Drop for DockerEntry {
    fn drop(&mut self) {
        for text in [
            &mut self.username,
            &mut self.password,
            &mut self.email,
            &mut self.auth,
        ] {
            text.zeroize();
        }
    }
}

/// Whether the kubelet can decode an entry: with one that it cannot it pulls nothing.
fn is_decodable(entry: &RawValue) -> bool {
    let is_object = entry.get().starts_with('{');
    let Some(read) = serde_json::from_str::<DockerEntry>(entry.get())
        .ok()
        .filter(|_| is_object)
    else {
        return false;
    };
    let auth = read.auth.as_deref().unwrap_or_default();
    let decoded = BASE64.decode(auth.trim_end().as_bytes()).map(Zeroizing::new);
    auth.is_empty() || decoded.is_ok_and(|pair| pair.contains(&b':'))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn hub() -> HubId {
        HubId::new("main", "0f5a4e0c-0001").unwrap()
    }

    fn secret(type_: &str, key: &str, file: &str) -> Secret {
        Secret {
            type_: Some(type_.to_owned()),
            data: Some([(key.to_owned(), ByteString(file.as_bytes().to_vec()))].into()),
            ..Secret::default()
        }
    }

    fn docker(file: &Value) -> Secret {
        secret(DOCKER_CONFIG.0, DOCKER_CONFIG.1, &file.to_string())
    }

    fn copied(source: &Secret, entries: PullSecretEntries) -> Result<PullCopy, PullSecretFault> {
        let image = ImageRepository::of("registry.example.com/team/renderer:1").unwrap();
        PullCopy::of(&hub(), source, &image, entries)
    }

    fn content(copy: &PullCopy) -> (String, Value) {
        let made = copy.manifest(&hub(), "rendering", "pull");
        let data = made.data.as_ref().unwrap();
        let (key, value) = data.first_key_value().unwrap();
        assert_eq!(data.len(), 1);
        (key.clone(), serde_json::from_slice(&value.0).unwrap())
    }

    /// Holds: S1.
    #[test]
    fn a_copy_has_the_entries_of_its_image_and_no_other_field_of_the_file() {
        let entry = json!({"auth": "dTpwOnc=", "email": "me@example.com"});
        let file = json!({
            "auths": {"registry.example.com": entry, "*.example.com": entry, "other.example.com": {"auth": "eDp5"},
                "registry.example.com/other": {"auth": "eDp5"}, "broken.example.com": 1},
            "credsStore": "x", "HttpHeaders": {"X": "y"},
        });
        let copy = copied(&docker(&file), PullSecretEntries::Needed).unwrap();
        let expected = json!({"auths": {"registry.example.com": entry, "*.example.com": entry}});
        assert_eq!(content(&copy), (".dockerconfigjson".to_owned(), expected));
        assert!(
            copied(&docker(&file), PullSecretEntries::All).is_err(),
            "the kubelet would fail at the broken one"
        );
    }

    #[test]
    fn the_older_file_becomes_the_newer_one_and_a_whole_secret_stays_as_it_is() {
        let entry = json!({"username": "u", "password": "p"});
        let file = json!({"https://registry.example.com/v1/": entry, "other.example.com": entry});
        let source = secret(LEGACY_CONFIG.0, LEGACY_CONFIG.1, &file.to_string());
        let expected = json!({"auths": {"https://registry.example.com/v1/": entry}});
        let needed = copied(&source, PullSecretEntries::Needed).unwrap();
        assert_eq!(content(&needed), (".dockerconfigjson".to_owned(), expected));
        let whole = copied(&source, PullSecretEntries::All).unwrap();
        assert_eq!(content(&whole), (".dockercfg".to_owned(), file));
    }

    /// Holds: S2.
    #[expect(clippy::too_many_lines, reason = "one line a case")]
    #[test]
    fn what_cannot_be_pulled_with_is_not_copied() {
        let good = json!({"auth": "dTpw"});
        let auths = |key: &str, entry: Value| docker(&json!({"auths": {key: entry}}));
        let large = "x".repeat(MAX_COPY_BYTES);
        for (source, fault) in [
            (
                secret("Opaque", ".dockerconfigjson", "{}"),
                PullSecretFault::AnotherType,
            ),
            (
                secret(DOCKER_CONFIG.0, ".dockercfg", "{}"),
                PullSecretFault::Undecodable,
            ),
            (
                secret(DOCKER_CONFIG.0, DOCKER_CONFIG.1, ""),
                PullSecretFault::Undecodable,
            ),
            (
                secret(DOCKER_CONFIG.0, DOCKER_CONFIG.1, "[{}]"),
                PullSecretFault::Undecodable,
            ),
            (docker(&json!({"auths": []})), PullSecretFault::Undecodable),
            (docker(&json!({})), PullSecretFault::NoEntry),
            (auths("other.example.com", good), PullSecretFault::NoEntry),
            (
                auths("registry.example.com", json!({"auth": "!!"})),
                PullSecretFault::Undecodable,
            ),
            (
                auths("registry.example.com", json!({"auth": "dQ=="})),
                PullSecretFault::Undecodable,
            ),
            (
                auths("registry.example.com", json!(["u", "p"])),
                PullSecretFault::Undecodable,
            ),
            (
                auths(
                    "registry.example.com",
                    json!({"username": "u", "password": large}),
                ),
                PullSecretFault::TooLarge,
            ),
        ] {
            assert_eq!(copied(&source, PullSecretEntries::Needed).unwrap_err(), fault);
        }
    }

    #[test]
    fn the_name_is_of_the_content_and_of_the_hub() {
        let file = |password: &str| {
            docker(&json!({"auths": {"registry.example.com": {"username": "u", "password": password}}}))
        };
        let id = |source: &Secret| copied(source, PullSecretEntries::Needed).unwrap().id().clone();
        assert_eq!(id(&file("a")), id(&file("a")));
        assert_ne!(id(&file("a")), id(&file("b")));
        let mut other = file("a");
        other.metadata.name = Some("other".to_owned());
        assert_eq!(id(&file("a")), id(&other), "the same content is the same copy");
        let image = ImageRepository::of("registry.example.com/team/renderer:1").unwrap();
        let kin = HubId::new("b", "0f5a4e0c-0001").unwrap();
        let of_kin = PullCopy::of(&kin, &file("a"), &image, PullSecretEntries::Needed).unwrap();
        assert_ne!(&id(&file("a")), of_kin.id());
    }

    /// Holds: S4.
    #[test]
    fn a_copy_is_known_by_its_name_and_its_label_together() {
        let copy = copied(
            &docker(&json!({"auths": {"registry.example.com": {"auth": "dTpw"}}})),
            PullSecretEntries::All,
        )
        .unwrap();
        let made = copy.manifest(&hub(), "rendering", "pull");
        assert_eq!(made.immutable, Some(true));
        assert_eq!(PullCopyId::of_object(&made.metadata).as_ref(), Some(copy.id()));
        let mut renamed = made.metadata.clone();
        renamed.name = Some("push".to_owned());
        assert_eq!(PullCopyId::of_object(&renamed), None);
        let mut relabelled = made.metadata.clone();
        relabelled.labels = Some([(PULL_COPY.to_owned(), "push".to_owned())].into());
        relabelled.name = Some("renderhub-pull-push".to_owned());
        assert_eq!(PullCopyId::of_object(&relabelled), None);
        assert!(
            copy.id()
                .job_label()
                .split_once('/')
                .is_some_and(|(_, name)| name.len() <= 63)
        );
        assert!(!format!("{copy:?}").contains("dTpw"));
    }
}
