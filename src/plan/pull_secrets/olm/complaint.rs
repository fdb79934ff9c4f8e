//! What is not as it should be, and the object that the complaint is about.

use crate::api::conditions::Reason;
use crate::plan::pipeline::object::ObjectKey;

/// The object that it is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ComplaintSubject {
    /// A `CatalogSource`, with its UID.
    Catalog(ObjectKey, String),
    /// A `Subscription`, with its UID.
    Subscription(ObjectKey, String),
    /// A namespace that is listed, and cannot be read: no event is attached to it.
    Namespace(ObjectKey),
}

impl ComplaintSubject {
    /// The kind of the object.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Catalog(..) => "CatalogSource",
            Self::Subscription(..) => "Subscription",
            Self::Namespace(_) => "Namespace",
        }
    }

    /// Its namespace, which is empty for a namespace, and its name.
    #[must_use]
    pub const fn key(&self) -> &ObjectKey {
        let (Self::Catalog(key, _) | Self::Subscription(key, _) | Self::Namespace(key)) = self;
        key
    }

    /// Its UID; `None` where no event can be attached to it.
    #[must_use]
    pub fn uid(&self) -> Option<&str> {
        match self {
            Self::Catalog(_, uid) | Self::Subscription(_, uid) => Some(uid),
            Self::Namespace(_) => None,
        }
    }
}

/// Something that keeps a copy or a link from being where it should be.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PullSecretComplaint {
    /// The object that the complaint is about.
    pub subject: ComplaintSubject,
    /// Why.
    pub reason: Reason,
    /// The same for people: names of objects, and nothing of what is in them.
    pub note: String,
}
