//! Reads what tenants name, with the rights of the ServiceAccount that the task names.
//!
//! `lookup` knows only a `TenantSession` of one identity; it cannot reach the hub's own client. `identity` makes sessions and is the
//! one place where the hub's client acts on a tenant's request: to get a token, or to impersonate.

#![warn(clippy::wildcard_enum_match_arm)]

mod account_token;
mod identity;
mod lookup;
mod session;

pub use account_token::IdentityError;
pub use identity::TenantSessions;
pub use lookup::look_up;
pub use session::{SecretWatch, TenantReadError, TenantSession};
