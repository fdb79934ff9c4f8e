//! What containers of both modes are made of: the restrictions, the limits, volumes, mounts and variables.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, EmptyDirVolumeSource, EnvVar, EnvVarSource, KeyToPath,
    ObjectFieldSelector, ResourceRequirements, SecretKeySelector, SecretVolumeSource, SecurityContext,
    Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::api::{PullPolicy, RendererClassSpec};

use super::layout::{CONFIG_FILE, CONFIG_KEY};

/// A restricted container; `command` is the image's own where there is none.
pub(super) fn container(
    name: &str,
    class: &RendererClassSpec,
    command: Option<Vec<String>>,
    args: &[&str],
    env: Vec<EnvVar>,
    mounts: Vec<VolumeMount>,
) -> Container {
    let own = args.iter().map(|a| (*a).to_owned());
    Container {
        name: name.to_owned(),
        image: Some(class.image.clone()),
        image_pull_policy: class.image_pull_policy.map(pull_policy).map(str::to_owned),
        command,
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

/// One key of a ConfigMap, as a file.
pub(super) fn config_map_volume(volume: &str, name: String, key: String, path: &str) -> Volume {
    let item = KeyToPath {
        key,
        mode: None,
        path: path.to_owned(),
    };
    let config_map = ConfigMapVolumeSource {
        name,
        items: Some(vec![item]),
        ..ConfigMapVolumeSource::default()
    };
    Volume {
        name: volume.to_owned(),
        config_map: Some(config_map),
        ..Volume::default()
    }
}

pub(super) fn secret_volume(name: &str, secret: &str, items: &[(&str, &str)]) -> Volume {
    let items = items.iter().map(|(key, path)| KeyToPath {
        key: (*key).to_owned(),
        mode: None,
        path: (*path).to_owned(),
    });
    let source = SecretVolumeSource {
        // Readable for the pod's group and no others.
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

pub(super) fn empty_dir(name: &str, size: &str) -> Volume {
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

pub(super) fn config_volume(name: &str) -> Volume {
    secret_volume("config", name, &[(CONFIG_KEY, CONFIG_KEY)])
}

/// A single file, so that the configuration does not share a directory with anything else.
pub(super) fn config_mount() -> VolumeMount {
    file_mount("config", CONFIG_FILE, CONFIG_KEY)
}

/// The file `key` of a volume, alone.
pub(super) fn file_mount(name: &str, path: &str, key: &str) -> VolumeMount {
    VolumeMount {
        sub_path: Some(key.to_owned()),
        ..mount(name, path, true)
    }
}

pub(super) fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: Some(read_only),
        ..VolumeMount::default()
    }
}

pub(super) fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        value_from: None,
    }
}

pub(super) fn from_secret(name: &str, secret: &str, key: &str) -> EnvVar {
    let selector = SecretKeySelector {
        name: secret.to_owned(),
        key: key.to_owned(),
        optional: Some(false),
    };
    let source = EnvVarSource {
        secret_key_ref: Some(selector),
        ..EnvVarSource::default()
    };
    from(name, source)
}

/// A field of the pod itself.
pub(super) fn from_field(name: &str, path: &str) -> EnvVar {
    let selector = ObjectFieldSelector {
        api_version: None,
        field_path: path.to_owned(),
    };
    let source = EnvVarSource {
        field_ref: Some(selector),
        ..EnvVarSource::default()
    };
    from(name, source)
}

fn from(name: &str, source: EnvVarSource) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(source),
    }
}
