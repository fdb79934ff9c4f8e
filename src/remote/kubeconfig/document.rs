//! The schema of a kubeconfig, which is closed and read within small limits.
//!
//! Every field that Kubernetes defines is named here, so that the error differs for a refused field and an unknown one. Values
//! that the hub does not use are never kept.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, Visitor};
use serde_json::Value;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use serde_saphyr::{Error, Tagged};
use zeroize::Zeroizing;

use super::error::KubeconfigError;

/// Largest kubeconfig in bytes.
pub const MAX_BYTES: usize = 256 * 1024;
/// Deepest nesting; a kubeconfig with extensions needs six levels.
const MAX_DEPTH: usize = 16;
/// Most scalars, lists and mappings.
const MAX_NODES: usize = 2000;

/// A kubeconfig.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct KubeconfigDocument {
    #[serde(rename = "apiVersion")]
    pub api_version: Option<SecretText>,
    pub kind: Option<SecretText>,
    pub current_context: Option<SecretText>,
    pub clusters: Option<Vec<NamedCluster>>,
    pub users: Option<Vec<NamedUser>>,
    pub contexts: Option<Vec<NamedContext>>,
    preferences: Option<Preferences>,
    extensions: Option<Vec<Extension>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NamedCluster {
    pub name: SecretText,
    pub cluster: Option<KubeconfigCluster>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NamedUser {
    pub name: SecretText,
    pub user: Option<KubeconfigUser>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NamedContext {
    pub name: SecretText,
    pub context: Option<KubeconfigContext>,
}

/// Where a cluster is.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct KubeconfigCluster {
    pub server: Option<SecretText>,
    pub tls_server_name: Option<SecretText>,
    pub certificate_authority_data: Option<SecretText>,
    pub certificate_authority: FieldPresence,
    pub insecure_skip_tls_verify: Option<StrictBool>,
    pub proxy_url: FieldPresence,
    #[serde(rename = "disable-compression")]
    _disable_compression: Option<StrictBool>,
    extensions: Option<Vec<Extension>>,
}

/// The credential of a user.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct KubeconfigUser {
    pub token: Option<SecretText>,
    pub client_certificate_data: Option<SecretText>,
    pub client_key_data: Option<SecretText>,
    #[serde(rename = "tokenFile")]
    pub token_file: FieldPresence,
    pub client_certificate: FieldPresence,
    pub client_key: FieldPresence,
    pub username: FieldPresence,
    pub password: FieldPresence,
    #[serde(rename = "as", alias = "act-as", alias = "impersonate")]
    pub impersonate: FieldPresence,
    #[serde(rename = "as-uid", alias = "act-as-uid", alias = "impersonate-uid")]
    pub impersonate_uid: FieldPresence,
    #[serde(rename = "as-groups", alias = "act-as-groups", alias = "impersonate-groups")]
    pub impersonate_groups: FieldPresence,
    #[serde(
        rename = "as-user-extra",
        alias = "act-as-user-extra",
        alias = "impersonate-user-extra"
    )]
    pub impersonate_extra: FieldPresence,
    pub auth_provider: FieldPresence,
    pub exec: FieldPresence,
    extensions: Option<Vec<Extension>>,
}

/// A cluster and a user by name.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KubeconfigContext {
    pub cluster: SecretText,
    pub user: Option<SecretText>,
    /// Default namespace of kubectl; the hub takes the namespace from the RenderCluster or the task.
    #[serde(rename = "namespace")]
    _namespace: Option<SecretText>,
    extensions: Option<Vec<Extension>>,
}

/// Display preferences of kubectl.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Preferences {
    #[serde(rename = "colors")]
    _colors: Option<StrictBool>,
    extensions: Option<Vec<Extension>>,
}

/// Data of a tool, such as minikube.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Extension {
    #[serde(rename = "name")]
    _name: SecretText,
    #[serde(rename = "extension")]
    _extension: IgnoredValue,
}

/// A text. Any may hold a secret by mistake, so it is wiped when it is dropped, and cannot be printed.
pub(super) struct SecretText(Zeroizing<String>);

/// A boolean; a quoted text is refused.
pub(super) struct StrictBool(pub bool);

/// Whether a field is present, with any value.
#[derive(Clone, Copy, Default)]
pub(super) struct FieldPresence(pub bool);

/// Any value that others can read as well, which is dropped at once.
struct IgnoredValue;

impl std::ops::Deref for SecretText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Tagged(SecretCharacters(characters), tag) = Tagged::deserialize(deserializer)?;
        // A tag such as `!!binary` means another text than the written one.
        if tag.is_some() {
            return Err(D::Error::custom("a tag"));
        }
        Ok(Self(characters))
    }
}

struct SecretCharacters(Zeroizing<String>);

impl<'de> Deserialize<'de> for SecretCharacters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;

        impl Visitor<'_> for Scalar {
            type Value = SecretCharacters;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E>(self, characters: &str) -> Result<SecretCharacters, E> {
                Ok(SecretCharacters(Zeroizing::new(characters.to_owned())))
            }

            fn visit_string<E>(self, characters: String) -> Result<SecretCharacters, E> {
                Ok(SecretCharacters(Zeroizing::new(characters)))
            }
        }

        deserializer.deserialize_string(Scalar)
    }
}

impl<'de> Deserialize<'de> for StrictBool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;

        impl Visitor<'_> for Scalar {
            type Value = StrictBool;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a boolean")
            }

            fn visit_bool<E>(self, flag: bool) -> Result<StrictBool, E> {
                Ok(StrictBool(flag))
            }
        }

        deserializer.deserialize_any(Scalar)
    }
}

impl<'de> Deserialize<'de> for FieldPresence {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self(true))
    }
}

impl<'de> Deserialize<'de> for IgnoredValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|_| Self)
    }
}

/// An entry of a list, which others refer to by its name.
pub(super) trait NamedEntry {
    /// The content of the entry.
    type Content;

    /// The name.
    fn name(&self) -> &str;

    /// The content of the entry, if there is one.
    fn content(&self) -> Option<&Self::Content>;
}

impl NamedEntry for NamedCluster {
    type Content = KubeconfigCluster;

    fn name(&self) -> &str {
        &self.name
    }

    fn content(&self) -> Option<&KubeconfigCluster> {
        self.cluster.as_ref()
    }
}

impl NamedEntry for NamedUser {
    type Content = KubeconfigUser;

    fn name(&self) -> &str {
        &self.name
    }

    fn content(&self) -> Option<&KubeconfigUser> {
        self.user.as_ref()
    }
}

impl NamedEntry for NamedContext {
    type Content = KubeconfigContext;

    fn name(&self) -> &str {
        &self.name
    }

    fn content(&self) -> Option<&KubeconfigContext> {
        self.context.as_ref()
    }
}

impl KubeconfigDocument {
    /// Parses a kubeconfig.
    ///
    /// # Errors
    /// When it is not one document of the schema, within the limits.
    pub fn parse(bytes: &[u8]) -> Result<Self, KubeconfigError> {
        let characters = std::str::from_utf8(bytes).map_err(|_| KubeconfigError::NotUtf8)?;
        serde_saphyr::from_str_with_options(characters, options()).map_err(|error| why(&error))
    }

    /// Cluster and user of the current context.
    ///
    /// # Errors
    /// When the current context is ambiguous, or a name has no entry.
    pub fn current(&self) -> Result<(&KubeconfigCluster, &KubeconfigUser), KubeconfigError> {
        let contexts = self.contexts.as_deref().unwrap_or_default();
        // kubectl writes an empty name where none is set.
        let wanted = self.current_context.as_deref().filter(|name| !name.is_empty());
        let context = match (contexts, wanted) {
            ([], _) => return Err(KubeconfigError::NoContext),
            (_, Some(wanted)) => by_name(contexts, wanted).ok_or(KubeconfigError::UnknownContext)?,
            ([only], None) => only,
            (_, None) => return Err(KubeconfigError::NoCurrentContext),
        };
        let context = context.content().ok_or(KubeconfigError::UnknownCluster)?;
        let clusters = self.clusters.as_deref().unwrap_or_default();
        let users = self.users.as_deref().unwrap_or_default();
        let cluster = by_name(clusters, &context.cluster).ok_or(KubeconfigError::UnknownCluster)?;
        let user = context.user.as_deref().and_then(|name| by_name(users, name));
        let user = user.ok_or(KubeconfigError::UnknownUser)?;
        Ok((
            cluster.content().ok_or(KubeconfigError::NoServer)?,
            user.content().ok_or(KubeconfigError::NoLogin)?,
        ))
    }

    /// The length of every list of extensions.
    pub fn extensions(&self) -> impl Iterator<Item = usize> {
        let preferences = self.preferences.iter().map(|preferences| &preferences.extensions);
        let clusters = contents(self.clusters.as_deref()).map(|cluster| &cluster.extensions);
        let users = contents(self.users.as_deref()).map(|user| &user.extensions);
        let contexts = contents(self.contexts.as_deref()).map(|context| &context.extensions);
        let own = std::iter::once(&self.extensions);
        let all = own
            .chain(preferences)
            .chain(clusters)
            .chain(users)
            .chain(contexts);
        all.flatten().map(Vec::len)
    }
}

/// The contents of the entries of a list; empty entries are skipped.
pub(super) fn contents<E: NamedEntry>(list: Option<&[E]>) -> impl Iterator<Item = &E::Content> {
    list.into_iter().flatten().filter_map(NamedEntry::content)
}

fn by_name<'a, T: NamedEntry>(list: &'a [T], name: &str) -> Option<&'a T> {
    list.iter().find(|entry| entry.name() == name)
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 2 * MAX_NODES,
            max_documents: 1,
            max_anchors: 0,
            max_aliases: 0,
            max_merge_keys: 0,
            max_recorded_anchor_events: 0,
            max_recorded_anchor_bytes: 0,
            max_inclusion_depth: 0,
            max_total_scalar_bytes: MAX_BYTES,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
        reject_tagged_field_names: true,
        // A value that other parsers read as a number or a boolean is refused as a text.
        no_schema: true,
        emit_comments: false,
        // Errors must not hold lines of the kubeconfig.
        with_snippet: false,
    }
}

/// The error of the parser, without any text of the kubeconfig.
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "the parser has dozens of errors, and each is a refusal"
)]
fn why(error: &Error) -> KubeconfigError {
    match error {
        Error::MultipleDocuments { .. }
        | Error::Budget {
            breach: BudgetBreach::Documents { .. },
            ..
        } => KubeconfigError::SeveralDocuments,
        Error::Budget {
            breach:
                BudgetBreach::Anchors { .. } | BudgetBreach::Aliases { .. } | BudgetBreach::MergeKeys { .. },
            ..
        }
        | Error::MergeKeyNotAllowed { .. }
        | Error::UnknownAnchor { .. }
        | Error::AliasError { .. } => KubeconfigError::Alias,
        Error::Budget { .. } => KubeconfigError::TooComplex,
        Error::UnsupportedTag { .. } | Error::TaggedStructFieldName { .. } => KubeconfigError::Tag,
        Error::SerdeUnknownField { .. } => KubeconfigError::UnknownField,
        Error::SerdeMissingField { .. } => KubeconfigError::MissingField,
        Error::DuplicateMappingKey { .. } => KubeconfigError::DuplicateField,
        _ => KubeconfigError::Unreadable,
    }
}
