//! Flags of `renderhub pull-secrets`.

use std::net::SocketAddr;

use clap::Args as ClapArgs;

use super::error::SettingsError;
use super::log_format::LogFormat;
use super::parse::{label, level, trimmed};
use crate::api::names::is_dns_label;

/// Flags of `renderhub pull-secrets`.
#[derive(Debug, ClapArgs)]
pub struct PullSecretArgs {
    /// Namespaces that copies of pull Secrets may go to, comma-separated.
    #[arg(
        long,
        env = "RENDERHUB_OLM_NAMESPACES",
        value_delimiter = ',',
        required = true
    )]
    pub namespaces: Vec<String>,
    /// Namespaces of `CatalogSources` and their pull Secrets, comma-separated.
    #[arg(
        long,
        env = "RENDERHUB_OLM_CATALOG_NAMESPACES",
        value_delimiter = ',',
        required = true
    )]
    pub catalog_namespaces: Vec<String>,
    /// Namespace of the ConfigMap with what is wrong and with the namespaces that were used.
    #[arg(long, env = "RENDERHUB_OLM_RECORD_NAMESPACE")]
    pub record_namespace: String,
    /// Namespaces with a copy of one Secret at most.
    #[arg(long, env = "RENDERHUB_OLM_MAX_DESTINATIONS", default_value_t = 1_000)]
    pub max_destinations: usize,
    /// Address of /livez, /readyz and /metrics.
    #[arg(long, env = "RENDERHUB_ADMIN_ADDRESS", default_value = "0.0.0.0:8080")]
    pub admin_address: SocketAddr,
    /// How logs are written.
    #[arg(long, env = "RENDERHUB_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
    /// Least level that is logged: error, warn, info, debug, trace.
    #[arg(long, env = "RENDERHUB_LOG_LEVEL", default_value = "info", value_parser = level)]
    pub log_level: tracing::Level,
}

/// What `renderhub pull-secrets` runs with; every value is legal.
#[derive(Clone, Debug)]
pub struct PullSecretSettings {
    /// Namespaces that copies may go to.
    pub namespaces: Vec<String>,
    /// Namespaces of catalogs.
    pub catalog_namespaces: Vec<String>,
    /// Namespace of the ConfigMap.
    pub record_namespace: String,
    /// Namespaces with a copy of one Secret at most.
    pub max_destinations: usize,
    /// Address of the admin server.
    pub admin_address: SocketAddr,
}

impl PullSecretArgs {
    /// The settings.
    ///
    /// # Errors
    /// The first flag that is illegal.
    pub fn settings(&self) -> Result<PullSecretSettings, SettingsError> {
        let record_namespace = label("record-namespace", self.record_namespace.trim())?;
        if self.max_destinations == 0 {
            return Err(SettingsError::Zero("max-destinations"));
        }
        Ok(PullSecretSettings {
            namespaces: names("namespaces", &self.namespaces)?,
            catalog_namespaces: names("catalog-namespaces", &self.catalog_namespaces)?,
            record_namespace,
            max_destinations: self.max_destinations,
            admin_address: self.admin_address,
        })
    }
}

/// The names of a list, at least one.
fn names(flag: &'static str, list: &[String]) -> Result<Vec<String>, SettingsError> {
    let names = trimmed(list);
    let wrong = names.iter().find(|name| !is_dns_label(name));
    match wrong {
        None if !names.is_empty() => Ok(names),
        wrong => Err(SettingsError::NotALabel {
            flag,
            value: wrong.cloned().unwrap_or_default(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::app::config::{HubCli, HubCommand};

    fn settings(flags: &[&str]) -> Result<PullSecretSettings, SettingsError> {
        let all = ["renderhub", "pull-secrets"].iter().chain(flags);
        match HubCli::try_parse_from(all).unwrap().command {
            HubCommand::PullSecrets(args) => args.settings(),
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn namespaces_are_names_and_at_least_one_of_each_kind() {
        let flags = |namespaces: &'static str, catalogs: &'static str, record: &'static str| {
            [
                "--namespaces",
                namespaces,
                "--catalog-namespaces",
                catalogs,
                "--record-namespace",
                record,
            ]
        };
        let good = settings(&flags("b, a,,a", "olm", "renderhub")).unwrap();
        assert_eq!(
            (good.namespaces, good.catalog_namespaces),
            (vec!["a".to_owned(), "b".to_owned()], vec!["olm".to_owned()])
        );
        for (namespaces, catalogs, record, flag) in [
            (",", "olm", "renderhub", "namespaces"),
            ("*", "olm", "renderhub", "namespaces"),
            ("a", "O", "renderhub", "catalog-namespaces"),
            ("a", "olm", "a.b", "record-namespace"),
        ] {
            let error = settings(&flags(namespaces, catalogs, record)).unwrap_err();
            assert!(
                matches!(error, SettingsError::NotALabel { flag: named, .. } if named == flag),
                "{error}"
            );
        }
        let mut none = flags("a", "olm", "renderhub").to_vec();
        none.extend(["--max-destinations", "0"]);
        assert_eq!(
            settings(&none).unwrap_err(),
            SettingsError::Zero("max-destinations")
        );
        assert!(
            HubCli::try_parse_from(["renderhub", "pull-secrets"]).is_err(),
            "no list means no namespace"
        );
    }
}
