//! The pod of a renderer Job; it passes `PodSecurity` `restricted`.

#![warn(clippy::wildcard_enum_match_arm)]

use k8s_openapi::api::core::v1::{
    Container, EnvVar, PodSecurityContext, PodSpec, SeccompProfile, Volume, VolumeMount,
};

use crate::api::input_hashes::{CONFIG_SHA256, URL_SHA256, sha256};
use crate::api::{RendererClassSpec, RendererMode};

use super::job_state::{RENDER_CONTAINER, RENDERER_CONTAINER};
use crate::plan::platform::catalog::credential::CredentialState;
use crate::plan::platform::catalog::resolved::ResolvedTask;

mod certificates;
pub(in crate::plan) mod layout;
mod parts;
mod single;

use certificates::{ca, ca_volume};
use layout::{CONFIG_FILE, PASSWORD_KEY, URL_KEY, USERNAME_KEY};
use parts::{config_mount, config_volume, container, empty_dir, mount, secret_volume, variable};

/// User and group of the images, no user of the node.
const NONROOT: i64 = 65_532;
const PUSH_DIR: &str = "/etc/renderer/push";
const CREDENTIALS_DIR: &str = "/etc/renderer/credentials";
const USERNAME_FILE: &str = "/etc/renderer/credentials/username";
const PASSWORD_FILE: &str = "/etc/renderer/credentials/password";
const DOCKER_FILE: &str = "/etc/renderer/credentials/config.json";
const CA_DIR: &str = "/etc/renderer/ca";
const CA_FILE: &str = "/etc/renderer/ca/ca-bundle.pem";
const CHART: &str = "/chart/chart.tgz";
const COMMAND: &str = "/renderhub-renderer";

/// The pod of the Job and config Secret `name`, which holds this configuration.
#[must_use]
pub fn spec(service_account: &str, name: &str, config: &str, resolved: &ResolvedTask) -> PodSpec {
    let class = &resolved.class;
    let (init, main, volumes) = match class.mode {
        RendererMode::Split => (
            Some(vec![render(class, config)]),
            push(resolved),
            volumes(name, resolved),
        ),
        RendererMode::Single => (None, single::container(resolved), single::volumes(name, resolved)),
    };
    PodSpec {
        automount_service_account_token: Some(false),
        containers: vec![main],
        enable_service_links: Some(false),
        image_pull_secrets: (!class.image_pull_secrets.is_empty()).then(|| class.image_pull_secrets.clone()),
        init_containers: init,
        node_selector: (!class.node_selector.is_empty()).then(|| class.node_selector.clone()),
        priority_class_name: class.priority_class_name.clone(),
        restart_policy: Some("Never".to_owned()),
        runtime_class_name: class.runtime_class_name.clone(),
        security_context: Some(PodSecurityContext {
            fs_group: Some(NONROOT),
            run_as_group: Some(NONROOT),
            run_as_non_root: Some(true),
            run_as_user: Some(NONROOT),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        service_account_name: Some(service_account.to_owned()),
        tolerations: (!class.tolerations.is_empty()).then(|| class.tolerations.clone()),
        volumes: Some(volumes),
        ..PodSpec::default()
    }
}

/// The class's command, or that of our own renderer.
fn command(class: &RendererClassSpec) -> Vec<String> {
    if class.command.is_empty() {
        vec![COMMAND.to_owned()]
    } else {
        class.command.clone()
    }
}

/// Reads the tenant's configuration, if it is still the one that the hub wrote; holds no credential.
fn render(class: &RendererClassSpec, config: &str) -> Container {
    let args = ["render", CONFIG_FILE, "--out", CHART];
    let mounts = vec![
        config_mount(),
        mount("chart", "/chart", false),
        mount("render-tmp", "/tmp", false),
    ];
    container(
        RENDER_CONTAINER,
        class,
        Some(command(class)),
        &args,
        vec![variable(CONFIG_SHA256, &sha256(config.as_bytes()))],
        mounts,
    )
}

/// Holds the credential; takes the chart as bytes and the destination from the hub, and the registry's host and prefix once more
/// from its arguments: a destination that came to point elsewhere meets no credential.
fn push(resolved: &ResolvedTask) -> Container {
    let url_file = format!("{PUSH_DIR}/{URL_KEY}");
    let host = resolved.reference.host.as_str();
    let mut args = vec!["push", CHART, "--url-file", &url_file, "--registry", host];
    // One argument with its flag, because the prefix of a whole registry is an empty argument.
    let prefix = format!("--repository-prefix={}", resolved.prefix.as_str());
    args.push(&prefix);
    let (mut env, mut mounts) = (
        vec![variable(URL_SHA256, &sha256(resolved.reference.url().as_bytes()))],
        vec![mount("chart", "/chart", true), mount("tmp", "/tmp", false)],
    );
    mounts.push(mount("push", PUSH_DIR, true));
    if resolved.plain_http {
        args.push("--plain-http");
    }
    // One argument with its flag, so that a value of a tenant's registry cannot become a flag.
    let realm = resolved
        .token_realm
        .as_ref()
        .map(|realm| format!("--token-realm={realm}"));
    args.extend(realm.as_deref());
    match &resolved.credential {
        CredentialState::BasicAuth(_) => {
            args.extend(["--username-file", USERNAME_FILE, "--password-file", PASSWORD_FILE]);
            mounts.push(mount("credentials", CREDENTIALS_DIR, true));
        }
        CredentialState::DockerConfig(_) => {
            env.push(variable("DOCKER_CONFIG", DOCKER_FILE));
            mounts.push(mount("credentials", CREDENTIALS_DIR, true));
        }
        CredentialState::Anonymous | CredentialState::Missing | CredentialState::Invalid => {}
    }
    trust(resolved, &mut env, &mut mounts);
    let class = &resolved.class;
    container(
        RENDERER_CONTAINER,
        class,
        Some(command(class)),
        &args,
        env,
        mounts,
    )
}

fn trust(resolved: &ResolvedTask, env: &mut Vec<EnvVar>, mounts: &mut Vec<VolumeMount>) {
    if ca(resolved).is_some() {
        env.push(variable("SSL_CERT_FILE", CA_FILE));
        mounts.push(mount("ca", CA_DIR, true));
    }
}

fn volumes(name: &str, resolved: &ResolvedTask) -> Vec<Volume> {
    let mut volumes = vec![
        config_volume(name),
        empty_dir("tmp", "16Mi"),
        secret_volume("push", name, &[(URL_KEY, URL_KEY)]),
        empty_dir("chart", "16Mi"),
        // Of its own, so that what reads the tenant's input leaves nothing but the chart for what holds the credential.
        empty_dir("render-tmp", "16Mi"),
    ];
    match &resolved.credential {
        CredentialState::BasicAuth(secret) => {
            let items = [(USERNAME_KEY, USERNAME_KEY), (PASSWORD_KEY, PASSWORD_KEY)];
            volumes.push(secret_volume("credentials", secret, &items));
        }
        CredentialState::DockerConfig(secret) => {
            let items = [(".dockerconfigjson", "config.json")];
            volumes.push(secret_volume("credentials", secret, &items));
        }
        CredentialState::Anonymous | CredentialState::Missing | CredentialState::Invalid => {}
    }
    volumes.extend(ca_volume("ca", name, resolved));
    volumes
}
