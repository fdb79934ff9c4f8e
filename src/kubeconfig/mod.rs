//! What the hub takes from a kubeconfig, which is hostile input: a few validated values, and nothing else of it.
//!
//! No command of it is run, no file that it names is opened, and none of its text is ever shown.

mod remote;

pub use remote::{Fingerprint, Host, Key, Login, RemoteConfig};
