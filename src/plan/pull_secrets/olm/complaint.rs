//! What is not as it should be, and who is told.

use std::fmt;

use crate::plan::pipeline::object::ObjectKey;

/// The object that an event about it is attached to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ComplaintSubject {
    /// A `CatalogSource`, with its UID.
    Catalog(ObjectKey, String),
    /// A `Subscription`, with its UID.
    Subscription(ObjectKey, String),
}

impl ComplaintSubject {
    /// The kind of the object.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Catalog(..) => "CatalogSource",
            Self::Subscription(..) => "Subscription",
        }
    }

    /// Its namespace and name.
    #[must_use]
    pub const fn key(&self) -> &ObjectKey {
        let (Self::Catalog(key, _) | Self::Subscription(key, _)) = self;
        key
    }

    /// Its UID.
    #[must_use]
    pub fn uid(&self) -> &str {
        let (Self::Catalog(_, uid) | Self::Subscription(_, uid)) = self;
        uid
    }
}

/// Why a copy or a link is not where it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ComplaintReason {
    /// A Secret that is not ours has the name of the copy.
    NameConflict,
    /// A catalog names a pull secret that is not there.
    SourceSecretNotFound,
    /// A catalog names a Secret that is no pull secret, or too large.
    SourceSecretUnusable,
    /// A catalog names more pull secrets than are copied.
    TooManyPullSecrets,
    /// A namespace has more Subscriptions than are served.
    TooManySubscriptions,
    /// More namespaces need a copy of a pull secret than get one.
    TooManyDestinations,
    /// A namespace that may get copies was deleted and made again.
    NamespaceRecreated,
}

impl fmt::Display for ComplaintReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Something that keeps a copy or a link from being where it should be.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PullSecretComplaint {
    /// Who is told.
    pub subject: ComplaintSubject,
    /// Why.
    pub reason: ComplaintReason,
    /// The same for people: names of objects, and nothing of what is in them.
    pub note: String,
}

impl PullSecretComplaint {
    /// The complaint as a line.
    #[must_use]
    pub fn line(&self) -> String {
        let Self {
            subject,
            reason,
            note,
        } = self;
        format!("{} {}: {reason}: {note}", subject.kind(), subject.key())
    }
}
