//! What a task names of its tenant: the identity as which it is read, and the destination that results.
//!
//! [`wanted`] lists what to read; the identity has the rights of the task's ServiceAccount and no others.

#![warn(clippy::wildcard_enum_match_arm)]

mod destination_source;
pub(in crate::plan) mod missing;
pub(in crate::plan) mod read_identity;
mod reference;
pub(in crate::plan) mod tenant_credential;
pub(in crate::plan) mod tenant_destination;

pub use destination_source::{DestinationSource, ReferrerGrants, wanted};
pub use missing::{MissingReference, crossing, no_account, uncrossed};
pub(in crate::plan) use read_identity::identity_in;
pub use read_identity::{ReadIdentity, ServiceAccount};
pub use reference::{NamedDestination, TenantReference};
pub use tenant_credential::{TenantCredential, login};
pub use tenant_destination::{PushAccess, TenantDestination};
