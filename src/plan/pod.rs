//! The pod of a renderer Job; it passes `PodSecurity` `restricted`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, EmptyDirVolumeSource, EnvVar, EnvVarSource, KeyToPath,
    PodSecurityContext, PodSpec, ResourceRequirements, SeccompProfile, SecretKeySelector, SecretVolumeSource,
    SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::api::{PullPolicy, RendererClassSpec, RendererMode};

use super::catalog::{Certificates, Credential, Resolved};
use super::outcome::{RENDER_CONTAINER, RENDERER_CONTAINER};

/// Key of the config Secret with the tenant's configuration.
pub const CONFIG_KEY: &str = "config.json";
/// Key of the config Secret with the destination.
pub const URL_KEY: &str = "url";
/// Key of a Secret with a user name, as `kubernetes.io/basic-auth` has it.
pub const USERNAME_KEY: &str = "username";
/// Key of a Secret with a password, as `kubernetes.io/basic-auth` has it.
pub const PASSWORD_KEY: &str = "password";
/// Key of the config Secret with the certificates of a tenant's registry.
pub const CA_KEY: &str = "ca.pem";

/// User and group of the images, no user of the node.
const NONROOT: i64 = 65_532;
const CONFIG_FILE: &str = "/etc/renderer/config.json";
const PUSH_DIR: &str = "/etc/renderer/push";
const CREDENTIALS_DIR: &str = "/etc/renderer/credentials";
const CA_DIR: &str = "/etc/renderer/ca";
const CA_FILE: &str = "/etc/renderer/ca/ca-bundle.pem";
const CA_FILE_NAME: &str = "ca-bundle.pem";
const CHART: &str = "/chart/chart.tgz";
const COMMAND: &str = "/renderhub-renderer";
/// Key of a class's certificate ConfigMap.
const CLASS_CA_KEY: &str = "trust-bundle.pem";

/// The pod of the Job and config Secret `name`.
#[must_use]
pub fn spec(service_account: &str, name: &str, resolved: &Resolved) -> PodSpec {
    let class = &resolved.class;
    let (init, main) = match class.mode {
        RendererMode::Split => (Some(vec![render(class)]), push(resolved)),
        RendererMode::Single => (None, single(resolved)),
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
        volumes: Some(volumes(name, resolved)),
        ..PodSpec::default()
    }
}

/// Reads the tenant's configuration; holds no credential.
fn render(class: &RendererClassSpec) -> Container {
    let args = ["render", CONFIG_FILE, "--out", CHART];
    let mounts = vec![
        config_mount(),
        mount("chart", "/chart", false),
        mount("render-tmp", "/tmp", false),
    ];
    container(RENDER_CONTAINER, class, &args, Vec::new(), mounts)
}

/// Holds the credential; takes the chart as bytes and the destination from the hub, and the registry's host once more from
/// its arguments: a destination that came to point elsewhere meets no credential.
fn push(resolved: &Resolved) -> Container {
    let url_file = format!("{PUSH_DIR}/{URL_KEY}");
    let host = resolved.reference.host.as_str();
    let mut args = vec!["push", CHART, "--url-file", &url_file, "--registry", host];
    let (mut env, mut mounts) = (
        Vec::new(),
        vec![mount("chart", "/chart", true), mount("tmp", "/tmp", false)],
    );
    mounts.push(mount("push", PUSH_DIR, true));
    if resolved.plain_http {
        args.push("--plain-http");
    }
    if let Some(realm) = &resolved.token_realm {
        args.extend(["--token-realm", realm]);
    }
    let (username, password) = (
        format!("{CREDENTIALS_DIR}/username"),
        format!("{CREDENTIALS_DIR}/password"),
    );
    match &resolved.credential {
        Credential::BasicAuth(_) => {
            args.extend(["--username-file", &username, "--password-file", &password]);
            mounts.push(mount("credentials", CREDENTIALS_DIR, true));
        }
        Credential::DockerConfig(_) => {
            env.push(variable(
                "DOCKER_CONFIG",
                &format!("{CREDENTIALS_DIR}/config.json"),
            ));
            mounts.push(mount("credentials", CREDENTIALS_DIR, true));
        }
        Credential::Anonymous | Credential::Missing | Credential::Invalid => {}
    }
    trust(resolved, &mut env, &mut mounts);
    container(RENDERER_CONTAINER, &resolved.class, &args, env, mounts)
}

/// A foreign renderer that does both, with the arguments, paths and environment it expects.
fn single(resolved: &Resolved) -> Container {
    let url = format!("--url={}", resolved.reference.url());
    let mut args = vec![CONFIG_FILE, &url];
    if resolved.plain_http {
        args.push("--plain-http=true");
    }
    let mut mounts = vec![config_mount(), mount("tmp", "/tmp", false)];
    let mut env = Vec::new();
    match &resolved.credential {
        Credential::BasicAuth(secret) => {
            env.push(from_secret("REGISTRY_USERNAME", secret, USERNAME_KEY));
            env.push(from_secret("REGISTRY_PASSWORD", secret, PASSWORD_KEY));
        }
        Credential::DockerConfig(_) => {
            env.push(variable(
                "DOCKER_CONFIG",
                &format!("{CREDENTIALS_DIR}/config.json"),
            ));
            mounts.push(mount("credentials", CREDENTIALS_DIR, true));
        }
        Credential::Anonymous | Credential::Missing | Credential::Invalid => {}
    }
    trust(resolved, &mut env, &mut mounts);
    container(RENDERER_CONTAINER, &resolved.class, &args, env, mounts)
}

fn trust(resolved: &Resolved, env: &mut Vec<EnvVar>, mounts: &mut Vec<VolumeMount>) {
    if ca(resolved).is_some() {
        env.push(variable("SSL_CERT_FILE", CA_FILE));
        mounts.push(mount("ca", CA_DIR, true));
    }
}

/// The certificates of the registry, else those of the class.
fn ca(resolved: &Resolved) -> Option<Certificates> {
    let of_class = || {
        let name = resolved.class.ca_config_map_name.clone()?;
        Some(Certificates::ConfigMap(name, CLASS_CA_KEY.to_owned()))
    };
    resolved.ca.clone().or_else(of_class)
}

fn container(
    name: &str,
    class: &RendererClassSpec,
    args: &[&str],
    env: Vec<EnvVar>,
    mounts: Vec<VolumeMount>,
) -> Container {
    let command = if class.command.is_empty() {
        vec![COMMAND.to_owned()]
    } else {
        class.command.clone()
    };
    let own = args.iter().map(|a| (*a).to_owned());
    Container {
        name: name.to_owned(),
        image: Some(class.image.clone()),
        image_pull_policy: class.image_pull_policy.map(pull_policy).map(str::to_owned),
        command: Some(command),
        args: Some(class.args.iter().cloned().chain(own).collect()),
        env: (!env.is_empty()).then_some(env),
        resources: Some(class.resources.clone().unwrap_or_else(default_resources)),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                add: None,
                drop: Some(vec!["ALL".to_owned()]),
            }),
            privileged: Some(false),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            ..SecurityContext::default()
        }),
        // The default policy, stated: a log tail must never become the message.
        termination_message_policy: Some("File".to_owned()),
        volume_mounts: Some(mounts),
        ..Container::default()
    }
}

const fn pull_policy(policy: PullPolicy) -> &'static str {
    match policy {
        PullPolicy::Always => "Always",
        PullPolicy::IfNotPresent => "IfNotPresent",
        PullPolicy::Never => "Never",
    }
}

/// Enough for a chart of 1 MiB many times over, and a bound on what a hostile one can take.
fn default_resources() -> ResourceRequirements {
    let list = |cpu: &str, memory: &str, disk: &str| {
        BTreeMap::from(
            [("cpu", cpu), ("memory", memory), ("ephemeral-storage", disk)]
                .map(|(k, v)| (k.to_owned(), Quantity(v.to_owned()))),
        )
    };
    ResourceRequirements {
        claims: None,
        limits: Some(list("1", "256Mi", "64Mi")),
        requests: Some(list("10m", "32Mi", "64Mi")),
    }
}

fn volumes(name: &str, resolved: &Resolved) -> Vec<Volume> {
    let mut volumes = vec![
        secret_volume("config", name, &[(CONFIG_KEY, CONFIG_KEY)]),
        empty_dir("tmp", "16Mi"),
    ];
    if resolved.class.mode == RendererMode::Split {
        volumes.push(secret_volume("push", name, &[(URL_KEY, URL_KEY)]));
        volumes.push(empty_dir("chart", "16Mi"));
        // Of its own, so that what reads the tenant's input leaves nothing but the chart for what holds the credential.
        volumes.push(empty_dir("render-tmp", "16Mi"));
    }
    match &resolved.credential {
        Credential::BasicAuth(secret) if resolved.class.mode == RendererMode::Split => {
            let items = [(USERNAME_KEY, USERNAME_KEY), (PASSWORD_KEY, PASSWORD_KEY)];
            volumes.push(secret_volume("credentials", secret, &items));
        }
        Credential::DockerConfig(secret) => {
            volumes.push(secret_volume(
                "credentials",
                secret,
                &[(".dockerconfigjson", "config.json")],
            ));
        }
        _ => {}
    }
    volumes.extend(ca(resolved).map(|ca| match ca {
        Certificates::ConfigMap(name, key) => ca_volume(name, key),
        Certificates::Copied(_) => secret_volume("ca", name, &[(CA_KEY, CA_FILE_NAME)]),
    }));
    volumes
}

fn ca_volume(name: String, key: String) -> Volume {
    let item = KeyToPath {
        key,
        mode: None,
        path: CA_FILE_NAME.to_owned(),
    };
    let config_map = ConfigMapVolumeSource {
        name,
        items: Some(vec![item]),
        ..ConfigMapVolumeSource::default()
    };
    Volume {
        name: "ca".to_owned(),
        config_map: Some(config_map),
        ..Volume::default()
    }
}

fn secret_volume(name: &str, secret: &str, items: &[(&str, &str)]) -> Volume {
    let items = items.iter().map(|(key, path)| KeyToPath {
        key: (*key).to_owned(),
        mode: None,
        path: (*path).to_owned(),
    });
    let source = SecretVolumeSource {
        // Readable for the pod's group and nobody else.
        default_mode: Some(0o440),
        items: Some(items.collect()),
        optional: Some(false),
        secret_name: Some(secret.to_owned()),
    };
    Volume {
        name: name.to_owned(),
        secret: Some(source),
        ..Volume::default()
    }
}

fn empty_dir(name: &str, size: &str) -> Volume {
    let source = EmptyDirVolumeSource {
        medium: None,
        size_limit: Some(Quantity(size.to_owned())),
    };
    Volume {
        name: name.to_owned(),
        empty_dir: Some(source),
        ..Volume::default()
    }
}

/// A single file, so that the configuration does not share a directory with anything else.
fn config_mount() -> VolumeMount {
    VolumeMount {
        sub_path: Some(CONFIG_KEY.to_owned()),
        ..mount("config", CONFIG_FILE, true)
    }
}

fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: Some(read_only),
        ..VolumeMount::default()
    }
}

fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        value_from: None,
    }
}

fn from_secret(name: &str, secret: &str, key: &str) -> EnvVar {
    let selector = SecretKeySelector {
        name: secret.to_owned(),
        key: key.to_owned(),
        optional: Some(false),
    };
    let source = EnvVarSource {
        secret_key_ref: Some(selector),
        ..EnvVarSource::default()
    };
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(source),
    }
}
