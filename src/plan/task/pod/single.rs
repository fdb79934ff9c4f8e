//! Mode `Single`: a foreign renderer that reads the configuration and pushes, with exactly the arguments, files and variables
//! that `SolAr` starts its renderer with, so that an image made for it runs unchanged.
//!
//! The restrictions, limits and scratch space are the hub's.

use k8s_openapi::api::core::v1::{Container, Volume};

use super::certificates::{ca, ca_volume};
use super::layout::{CONFIG_FILE, PASSWORD_KEY, USERNAME_KEY};
use super::parts::{
    self, config_mount, config_volume, empty_dir, file_mount, from_field, from_secret, mount, secret_volume,
    variable,
};
use crate::plan::platform::catalog::credential::CredentialState;
use crate::plan::platform::catalog::resolved::ResolvedTask;
use crate::plan::task::job_state::RENDERER_CONTAINER;

const DOCKER_VOLUME: &str = "dockerconfig";
const DOCKER_KEY: &str = "dockerconfig.json";
/// A file, where docker itself means a directory.
const DOCKER_FILE: &str = "/etc/renderer/dockerconfig.json";
const CA_VOLUME: &str = "ca-bundle";
/// In place of the image's own certificates.
const CA_DIR: &str = "/etc/ssl/certs";
const CA_FILE: &str = "/etc/ssl/certs/ca-bundle.pem";

/// The one container. Without a command in the class it is the image's own: a foreign image knows where its program is.
pub(super) fn container(resolved: &ResolvedTask) -> Container {
    let class = &resolved.class;
    let url = format!("--url={}", resolved.reference.url());
    let mut args = vec![CONFIG_FILE, &url];
    if resolved.plain_http {
        args.push("--plain-http=true");
    }
    let mut env = vec![
        from_field("POD_NAMESPACE", "metadata.namespace"),
        from_field("POD_NAME", "metadata.name"),
    ];
    let mut mounts = vec![config_mount()];
    if ca(resolved).is_some() {
        env.push(variable("SSL_CERT_FILE", CA_FILE));
        mounts.push(mount(CA_VOLUME, CA_DIR, true));
    }
    match &resolved.credential {
        CredentialState::BasicAuth(secret) => {
            env.push(from_secret("REGISTRY_USERNAME", secret, USERNAME_KEY));
            env.push(from_secret("REGISTRY_PASSWORD", secret, PASSWORD_KEY));
        }
        CredentialState::DockerConfig(_) => {
            env.push(variable("DOCKER_CONFIG", DOCKER_FILE));
            mounts.push(file_mount(DOCKER_VOLUME, DOCKER_FILE, DOCKER_KEY));
        }
        CredentialState::Anonymous | CredentialState::Missing | CredentialState::Invalid => {}
    }
    mounts.push(mount("tmp", "/tmp", false));
    let command = (!class.command.is_empty()).then(|| class.command.clone());
    parts::container(RENDERER_CONTAINER, class, command, &args, env, mounts)
}

/// Its volumes, in the order of its mounts.
pub(super) fn volumes(name: &str, resolved: &ResolvedTask) -> Vec<Volume> {
    let mut volumes = vec![config_volume(name)];
    volumes.extend(ca_volume(CA_VOLUME, name, resolved));
    if let CredentialState::DockerConfig(secret) = &resolved.credential {
        volumes.push(secret_volume(
            DOCKER_VOLUME,
            secret,
            &[(".dockerconfigjson", DOCKER_KEY)],
        ));
    }
    volumes.push(empty_dir("tmp", "16Mi"));
    volumes
}
