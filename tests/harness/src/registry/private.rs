//! A registry that nodes pull images from with a password, which can change while it runs.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::{Registry, RegistryOptions};
use crate::{Node, rundir};

/// What the kubelet says of a container whose image it could not pull.
const NOT_PULLED: [&str; 2] = ["ErrImagePull", "ImagePullBackOff"];

/// A registry with TLS and users of its own beside the one who pushes; it ends when it is dropped.
#[derive(Debug)]
pub struct PrivateRegistry {
    registry: Registry,
    /// Passwords by user.
    users: Mutex<BTreeMap<String, String>>,
}

impl PrivateRegistry {
    /// Starts one beside `node`, which pulls from it; it has no user who may pull yet.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn start(node: &Node) -> Result<Self> {
        let options = RegistryOptions::new()
            .with_tls()
            .with_address(node.registry_address());
        let private = Self {
            registry: Registry::start(options).await?,
            users: Mutex::default(),
        };
        private.serve(node)?;
        Ok(private)
    }

    /// Lets another node pull from it too.
    ///
    /// # Errors
    /// If that is done already.
    pub fn serve(&self, node: &Node) -> Result<()> {
        node.trust_registry(&self.host(), self.ca_pem()?)
    }

    /// Makes a user, or gives one another password: the one before is refused from now on.
    ///
    /// # Errors
    /// If the list of users cannot be written.
    pub fn change_password(&self, user: &str) -> Result<()> {
        let password = rundir::random_hex(16)?;
        self.change(|users| users.insert(user.to_owned(), password))
    }

    /// Refuses a user from now on.
    ///
    /// # Errors
    /// As [`PrivateRegistry::change_password`].
    pub fn remove_user(&self, user: &str) -> Result<()> {
        self.change(|users| users.remove(user))
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, String>) -> Option<String>) -> Result<()> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut users);
        self.registry.set_users(&users)
    }

    /// The content of a Secret of type `kubernetes.io/dockerconfigjson` with the user's password of now.
    ///
    /// # Errors
    /// If there is no such user.
    pub fn docker_config(&self, user: &str) -> Result<String> {
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let password = users.get(user).context("no such user")?;
        let auth = STANDARD.encode(format!("{user}:{password}"));
        let entry = json!({ "username": user, "password": password, "auth": auth });
        Ok(json!({ "auths": { self.host(): entry } }).to_string())
    }
}

impl Deref for PrivateRegistry {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.registry
    }
}

/// Whether the kubelet could not pull an image of a pod.
#[must_use]
pub fn is_pull_refused(pod: &Pod) -> bool {
    let status = pod.status.iter();
    let mut containers = status.flat_map(|status| {
        let init = status.init_container_statuses.iter().flatten();
        init.chain(status.container_statuses.iter().flatten())
    });
    containers.any(|container| {
        let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
        let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
        reason.is_some_and(|reason| NOT_PULLED.contains(&reason))
    })
}
