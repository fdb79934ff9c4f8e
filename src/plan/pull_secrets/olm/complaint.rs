//! What is not as it should be, and who is told.

use crate::api::conditions::Reason;
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

/// Something that keeps a copy or a link from being where it should be.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PullSecretComplaint {
    /// Who is told.
    pub subject: ComplaintSubject,
    /// Why.
    pub reason: Reason,
    /// The same for people: names of objects, and nothing of what is in them.
    pub note: String,
}
