//! Why a kubeconfig is refused, in messages that hold none of its text.

use crate::api::conditions::Reason;

/// Declares [`KubeconfigError`]: each variant with its reason and its message.
macro_rules! errors {
    ($($(#[doc = $doc:literal])+ $variant:ident: $reason:ident, $message:literal;)+) => {
        /// Why a kubeconfig is refused; one variant for each flaw that its author has to correct.
        ///
        /// It has no fields, so that it cannot hold any text of a kubeconfig.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
        pub enum KubeconfigError {
            $($(#[doc = $doc])+ #[error($message)] $variant,)+
        }

        impl KubeconfigError {
            /// Every variant.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Reason of the condition that shows it.
            #[must_use]
            pub const fn reason(self) -> Reason {
                match self {
                    $(Self::$variant => Reason::$reason,)+
                }
            }

            /// What is wrong, and how to correct it.
            #[must_use]
            pub const fn message(self) -> &'static str {
                match self {
                    $(Self::$variant => $message,)+
                }
            }
        }
    };
}

errors! {
    /// Larger than [`super::MAX_BYTES`].
    TooLarge: KubeconfigTooLarge,
        "the kubeconfig is larger than 256 KiB; keep only the one cluster, user and context";

    /// Not UTF-8.
    NotUtf8: BadKubeconfig, "the kubeconfig is not UTF-8 text; write it as such";
    /// Neither YAML nor JSON, or a field with a value of another kind.
    Unreadable: BadKubeconfig,
        "the kubeconfig is not YAML or JSON, or a field of it has a value of the wrong kind; write texts that look like a number or a boolean in quotes";
    /// More than one YAML document.
    SeveralDocuments: BadKubeconfig, "the kubeconfig holds several YAML documents; keep one";
    /// An anchor, an alias or a merge key.
    Alias: BadKubeconfig,
        "the kubeconfig uses YAML anchors, aliases or merge keys; write every value where it belongs";
    /// A YAML tag.
    Tag: BadKubeconfig, "the kubeconfig uses YAML tags; write plain values";
    /// Nested too deep, or of too many parts.
    TooComplex: BadKubeconfig,
        "the kubeconfig is nested too deep or has too many parts; keep only the one cluster, user and context";
    /// A field that no kubeconfig has.
    UnknownField: BadKubeconfig, "the kubeconfig has a field that is not known; remove it";
    /// A name of an entry, the cluster of a context, or the content of an extension.
    MissingField: BadKubeconfig,
        "an entry of the kubeconfig has no name, a context has no cluster, or an extension no content; add it";
    /// A field that is there twice.
    DuplicateField: BadKubeconfig, "the kubeconfig has a field twice in one place; keep one";
    /// Not `v1` `Config`.
    WrongKind: BadKubeconfig, "the kubeconfig is not of apiVersion v1 and kind Config; use one that is";
    /// A list of more than 16 entries.
    TooManyEntries: BadKubeconfig,
        "the kubeconfig has more than 16 entries in a list; keep only the one cluster, user and context";
    /// Two entries of one list with one name.
    DuplicateName: BadKubeconfig, "the kubeconfig has two entries of one name in a list; keep one";
    /// No context at all.
    NoContext: BadKubeconfig, "the kubeconfig has no context; add one that names the cluster and the user";
    /// Several contexts, and none is current.
    NoCurrentContext: BadKubeconfig, "the kubeconfig has several contexts and no current-context; set it";
    /// The current context does not exist.
    UnknownContext: BadKubeconfig, "the kubeconfig has no context of the name that current-context says; correct one of the two";
    /// The context's cluster does not exist.
    UnknownCluster: BadKubeconfig, "the current context names a cluster that the kubeconfig does not have; correct the name, or add the cluster";
    /// The context's user does not exist.
    UnknownUser: BadKubeconfig, "the current context names a user that the kubeconfig does not have; correct the name, or add the user";

    /// No server.
    NoServer: BadKubeconfig, "the cluster has no server; set it to the API server's https:// URL";
    /// The host or the port is not in the one form that every parser reads alike.
    BadServer: BadKubeconfig,
        "the server is not written as https://HOST or https://HOST:PORT with a DNS name, an IPv4 address or an IPv6 address in brackets, in its usual form; write it so";
    /// Something after host and port.
    ServerPath: BadKubeconfig, "the server has a path, a query or a fragment; leave only https://HOST:PORT";
    /// `tls-server-name` is no name.
    BadServerName: BadKubeconfig, "tls-server-name is not a DNS name or an IP address; correct it, or remove it";
    /// No CA.
    NoAuthority: BadKubeconfig, "the cluster has no certificate-authority-data; add it";
    /// The CA cannot be read.
    BadAuthority: BadKubeconfig,
        "certificate-authority-data is not base64 on one line of PEM certificates; correct it";
    /// More than 16 certificates.
    TooManyCertificates: BadKubeconfig, "the kubeconfig has more than 16 certificates in one field; keep those that are needed";
    /// Neither token nor client certificate.
    NoLogin: BadKubeconfig, "the user has neither a token nor client-certificate-data and client-key-data; add one";
    /// Both a token and a client certificate.
    TwoLogins: BadKubeconfig, "the user has a token and a client certificate; keep one";
    /// The certificate without its key, or the key without its certificate.
    HalfCertificate: BadKubeconfig, "the user has only one of client-certificate-data and client-key-data; add the other";
    /// An empty token.
    EmptyToken: BadKubeconfig, "the user's token is empty; put a valid one there";
    /// A token that is no valid header value.
    BadToken: BadKubeconfig,
        "the user's token holds blanks, line breaks or other characters that no token has; remove them";
    /// The client certificate cannot be read.
    BadCertificate: BadKubeconfig,
        "client-certificate-data is not base64 on one line of PEM certificates; correct it";
    /// The key cannot be read, or is of an unsupported kind.
    BadKey: BadKubeconfig,
        "client-key-data is not base64 on one line of one PEM key without a passphrase: RSA of 2048 to 4096 bits, P-256, P-384 or Ed25519; put such a key there";

    /// `exec`.
    Exec: InsecureKubeconfig,
        "the kubeconfig runs a command to log in, and the hub runs none; use a token or a client certificate";
    /// `auth-provider`.
    AuthProvider: InsecureKubeconfig,
        "the kubeconfig logs in by an auth-provider, which the hub does not; use a token or a client certificate";
    /// A file.
    FilePath: InsecureKubeconfig,
        "the kubeconfig names files, and the hub opens none; use the fields that end in -data, and token";
    /// `insecure-skip-tls-verify`.
    SkipsVerification: InsecureKubeconfig,
        "the kubeconfig sets insecure-skip-tls-verify; remove it and add certificate-authority-data";
    /// `proxy-url`.
    Proxy: InsecureKubeconfig, "the kubeconfig sets proxy-url, and the hub uses no proxy; remove it";
    /// `as` and the similar fields.
    Impersonation: InsecureKubeconfig,
        "the kubeconfig acts as another user; remove as, as-uid, as-groups and as-user-extra";
    /// `username` or `password`.
    BasicAuth: InsecureKubeconfig,
        "the kubeconfig has a username or a password; use a token or a client certificate";
    /// No `https`.
    NotHttps: InsecureKubeconfig, "a server of the kubeconfig does not begin with https://; use the API server's https:// URL";
    /// A user in the URL.
    ServerUser: InsecureKubeconfig, "a server of the kubeconfig has a user in its URL; remove it";
    /// The machine itself.
    LocalServer: InsecureKubeconfig,
        "a server of the kubeconfig is localhost, which is the hub itself there; use the API server's own name";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_a_message_of_its_own() {
        let mut messages: Vec<&str> = KubeconfigError::ALL.iter().map(|e| e.message()).collect();
        assert!(messages.iter().all(|message| message.len() > 20));
        for error in KubeconfigError::ALL {
            assert_eq!(error.to_string(), error.message());
        }
        messages.sort_unstable();
        messages.dedup();
        assert_eq!(messages.len(), KubeconfigError::ALL.len());
    }
}
