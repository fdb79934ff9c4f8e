//! A client for unit tests that reach no API server: nothing listens at its address.

use kube::{Client, Config};

/// The configuration of such a client.
pub(crate) fn config_to_nowhere() -> Config {
    Config::new("http://127.0.0.1:9".parse().unwrap())
}

/// A client whose calls all fail. Needs a tokio runtime.
pub(crate) fn client_to_nowhere() -> Client {
    Client::try_from(config_to_nowhere()).unwrap()
}
