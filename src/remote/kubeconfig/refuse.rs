//! Refuses unsafe fields in every entry, as an edit of one name can make an unused entry the current one.

use std::collections::BTreeSet;

use crate::api::conditions::Reason;

use super::document::{KubeconfigCluster, KubeconfigDocument, KubeconfigUser, NamedEntry, contents};
use super::endpoint;
use super::error::KubeconfigError;

/// Most entries of a list.
const MAX_ENTRIES: usize = 16;

/// Refuses unsafe fields in any entry, then ambiguous names.
///
/// # Errors
/// The first flaw.
pub(super) fn refuse(document: &KubeconfigDocument) -> Result<(), KubeconfigError> {
    let users = document.users.as_deref().unwrap_or_default();
    let clusters = document.clusters.as_deref().unwrap_or_default();
    let contexts = document.contexts.as_deref().unwrap_or_default();
    let unsafe_user = contents(document.users.as_deref()).find_map(unsafe_user);
    let unsafe_cluster = || contents(document.clusters.as_deref()).find_map(unsafe_cluster);
    if let Some(error) = unsafe_user.or_else(unsafe_cluster) {
        return Err(error);
    }
    let is = |field: Option<&str>, expected: &str| field.is_none_or(|field| field == expected);
    if !is(document.api_version.as_deref(), "v1") || !is(document.kind.as_deref(), "Config") {
        return Err(KubeconfigError::WrongKind);
    }
    if document.extensions().any(|length| length > MAX_ENTRIES) {
        return Err(KubeconfigError::TooManyEntries);
    }
    unambiguous(users)?;
    unambiguous(clusters)?;
    unambiguous(contexts)
}

fn unsafe_user(user: &KubeconfigUser) -> Option<KubeconfigError> {
    let impersonates = [
        user.impersonate,
        user.impersonate_uid,
        user.impersonate_groups,
        user.impersonate_extra,
    ];
    let files = [user.token_file, user.client_certificate, user.client_key];
    let rules = [
        (user.exec.0, KubeconfigError::Exec),
        (user.auth_provider.0, KubeconfigError::AuthProvider),
        (files.iter().any(|seen| seen.0), KubeconfigError::FilePath),
        (
            impersonates.iter().any(|seen| seen.0),
            KubeconfigError::Impersonation,
        ),
        (user.username.0 || user.password.0, KubeconfigError::BasicAuth),
    ];
    rules
        .into_iter()
        .find_map(|(is_there, error)| is_there.then_some(error))
}

fn unsafe_cluster(cluster: &KubeconfigCluster) -> Option<KubeconfigError> {
    let rules = [
        (cluster.certificate_authority.0, KubeconfigError::FilePath),
        (
            cluster
                .insecure_skip_tls_verify
                .as_ref()
                .is_some_and(|flag| flag.0),
            KubeconfigError::SkipsVerification,
        ),
        (cluster.proxy_url.0, KubeconfigError::Proxy),
    ];
    let rule = rules
        .into_iter()
        .find_map(|(is_there, error)| is_there.then_some(error));
    // An unreadable server is an error only in the current cluster.
    let server = cluster.server.as_deref().filter(|url| !url.is_empty());
    let insecure = |error: &KubeconfigError| error.reason() == Reason::InsecureKubeconfig;
    rule.or_else(|| endpoint::server(server?).err().filter(insecure))
}

/// Checks that entries are few and their names unique: of two with one name, some parsers take the first and some the last.
fn unambiguous<T: NamedEntry>(list: &[T]) -> Result<(), KubeconfigError> {
    if list.len() > MAX_ENTRIES {
        return Err(KubeconfigError::TooManyEntries);
    }
    let names: BTreeSet<&str> = list.iter().map(NamedEntry::name).collect();
    if names.len() < list.len() {
        return Err(KubeconfigError::DuplicateName);
    }
    Ok(())
}
