//! The hub's calls to an API server: each with a deadline, counted, and with only what is needed of the answer decoded.
//!
//! Deletes carry a UID precondition; `404` counts as done. Nothing here decides anything.

mod client;
mod error;
mod ledger;
mod list;
mod objects;
mod pipeline;
mod platform;
mod response;
mod secret;
mod transport;
mod transport_stage;
mod write_request;

pub use client::HubClient;
pub use error::{CallError, CreateError};
pub(crate) use error::{done, found};
pub(crate) use list::{LeanPage, PAGE as LIST_PAGE};
pub use list::{ListKind, ListPage, ListedObject, read as read_page};
pub use objects::TaskObjectClient;
pub use pipeline::{CreatedObject, NewObject, SeenTarget, StatusWrite};
pub use platform::PlatformStatusPatch;
pub use secret::{SecretBody, SecretData};
pub use transport::{ApiTransport, OBJECT_MAX, ResponseLimit, fetch, log_call};
pub use transport_stage::TransportStage;
pub use write_request::{json_patch, lean_write, status_patch};
