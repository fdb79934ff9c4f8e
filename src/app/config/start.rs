//! Flags of the checks before a hub starts.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;

use super::error::SettingsError;
use super::parse::{duration, label, trimmed};
use crate::plan::preflight::PreflightCheck;

/// Longest name of an instance.
const INSTANCE_MAX: usize = 253;

/// How a hub looks around before it starts.
#[derive(Debug, Args)]
pub struct StartArgs {
    /// Checks that are left out before the start, comma-separated names: pod-security, network-policy, …
    #[arg(long, env = "RENDERHUB_SKIP_PREFLIGHT", value_delimiter = ',')]
    pub skip_preflight: Vec<String>,
    /// Time between two looks at the same checks while the hub works, such as 90s, 5m or 1h; 0s looks only before the start.
    #[arg(long, env = "RENDERHUB_PREFLIGHT_INTERVAL", default_value = "15m", value_parser = duration)]
    pub preflight_interval: Duration,
    /// Namespace of the Lease by which hubs know of each other. Default: the rendering namespace.
    #[arg(long, env = "RENDERHUB_LEASE_NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// Time that a namespace may be without a hub before the others say so, such as 90s, 5m or 1h.
    #[arg(long, env = "RENDERHUB_UNOWNED_GRACE", default_value = "5m", value_parser = duration)]
    pub unowned_grace: Duration,
    /// Name of this instance, the same when it is started again in its place. Default: the host's name.
    #[arg(long, env = "RENDERHUB_INSTANCE_NAME")]
    pub instance_name: Option<String>,
}

/// How a hub looks around before it starts; every value is legal.
#[derive(Clone, Debug)]
pub struct StartSettings {
    /// Checks that are left out.
    pub skipped: BTreeSet<PreflightCheck>,
    /// Time between two looks while the hub works; zero for none.
    pub preflight_interval: Duration,
    /// Namespace of the Lease.
    pub lease_namespace: String,
    /// Time that a namespace may be without a hub.
    pub unowned_grace: Duration,
    /// Name of this instance.
    pub instance_name: String,
}

impl StartArgs {
    pub(super) fn settings(&self, rendering: &str) -> Result<StartSettings, SettingsError> {
        let lease_namespace = self.lease_namespace.as_deref().unwrap_or(rendering).trim();
        let lease_namespace = label("lease-namespace", lease_namespace)?;
        let instance_name = match &self.instance_name {
            Some(name) => name.trim().to_owned(),
            None => host_name(),
        };
        let is_legal = |c: char| c.is_ascii_graphic();
        if instance_name.is_empty()
            || instance_name.len() > INSTANCE_MAX
            || !instance_name.chars().all(is_legal)
        {
            return Err(SettingsError::NoInstanceName);
        }
        Ok(StartSettings {
            skipped: skipped(&self.skip_preflight)?,
            preflight_interval: self.preflight_interval,
            lease_namespace,
            unowned_grace: self.unowned_grace,
            instance_name,
        })
    }
}

fn skipped(list: &[String]) -> Result<BTreeSet<PreflightCheck>, SettingsError> {
    let check = |name: String| match PreflightCheck::named(&name) {
        Some(check) if check.can_be_skipped() => Ok(check),
        Some(check) => Err(SettingsError::NotSkippable(check)),
        None => Err(SettingsError::NoSuchCheck),
    };
    trimmed(list).into_iter().map(check).collect()
}

/// The host's name; in a pod that is the pod's. Empty where the system has none.
fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::env::var("HOSTNAME").map_err(std::io::Error::other))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(skip: &[&str]) -> StartArgs {
        StartArgs {
            skip_preflight: skip.iter().map(ToString::to_string).collect(),
            lease_namespace: None,
            preflight_interval: Duration::from_secs(900),
            unowned_grace: Duration::from_secs(300),
            instance_name: Some("hub-0".to_owned()),
        }
    }

    #[test]
    fn lists_are_trimmed_and_unknown_checks_are_refused() {
        let settings = args(&[" pod-security ", "", "network-policy"])
            .settings("rendering")
            .unwrap();
        assert_eq!(
            settings.skipped,
            BTreeSet::from([PreflightCheck::PodSecurity, PreflightCheck::NetworkPolicy])
        );
        assert_eq!(settings.lease_namespace, "rendering");
        for (name, error) in [
            ("podsecurity", SettingsError::NoSuchCheck),
            ("peers", SettingsError::NotSkippable(PreflightCheck::Peers)),
            (
                "rendering-namespace",
                SettingsError::NotSkippable(PreflightCheck::RenderingNamespace),
            ),
        ] {
            assert_eq!(args(&[name]).settings("rendering").unwrap_err(), error, "{name}");
        }
    }

    #[test]
    fn an_instance_has_a_name_that_fits_a_lease() {
        let named = |name: &str| {
            let args = StartArgs {
                instance_name: Some(name.to_owned()),
                ..args(&[])
            };
            args.settings("rendering").map(|settings| settings.instance_name)
        };
        assert_eq!(named(" hub-0 ").unwrap(), "hub-0");
        for name in ["", " ", "a b", "a\u{7}", &"a".repeat(254)] {
            assert_eq!(
                named(name).unwrap_err(),
                SettingsError::NoInstanceName,
                "{name:?}"
            );
        }
        assert!(!host_name().is_empty());
    }
}
