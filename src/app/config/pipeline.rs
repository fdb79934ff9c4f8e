//! Flags of the pipeline in front of tasks.

use clap::{ArgAction, Args};

use super::error::{CatalogError, SettingsError};
use super::parse::trimmed;
use crate::api::names::is_dns_label;
use crate::controllers::pipeline::PipelineSettings;
use crate::plan::pipeline::references::ReferenceRules;

/// Whether the hub makes tasks for Targets, and how it resolves what they get.
#[derive(Clone, Debug, Args)]
pub struct PipelineArgs {
    /// Whether the hub makes tasks for Targets and their Releases. It then has the right to make tasks in the namespaces that it
    /// serves.
    #[arg(
        long,
        env = "RENDERHUB_PIPELINE",
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = ArgAction::Set
    )]
    pub pipeline: bool,
    /// Whether a `RegistryBinding` of the Target must name each host that a Release pulls from. False: a host without one is pulled
    /// from without a Secret.
    #[arg(
        long,
        env = "RENDERHUB_REGISTRY_BINDING_STRICT",
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = ArgAction::Set
    )]
    pub registry_binding_strict: bool,
    /// Namespaces of catalogs, comma-separated: Components, their versions, Releases and Profiles there are read, and nothing is
    /// written. Only with a list of namespaces that are served.
    #[arg(long, env = "RENDERHUB_CATALOG_NAMESPACES", value_delimiter = ',')]
    pub catalog_namespaces: Vec<String>,
}

impl PipelineArgs {
    /// What governs the pipeline of a hub that serves these namespaces; `None` where it is off.
    ///
    /// # Errors
    /// The catalogs are no names of namespaces, or nothing of them could be used.
    pub(super) fn settings(
        &self,
        crosses_namespaces: bool,
        served: &[String],
        rendering: &str,
    ) -> Result<Option<PipelineSettings>, SettingsError> {
        let catalogs = self.catalogs(crosses_namespaces, served, rendering)?;
        Ok(self.pipeline.then(|| PipelineSettings {
            rules: ReferenceRules {
                crosses_namespaces,
                served: served.to_vec(),
                catalogs,
                is_registry_binding_strict: self.registry_binding_strict,
                ..ReferenceRules::default()
            },
        }))
    }

    fn catalogs(
        &self,
        crosses_namespaces: bool,
        served: &[String],
        rendering: &str,
    ) -> Result<Vec<String>, SettingsError> {
        if self.catalog_namespaces.is_empty() {
            return Ok(Vec::new());
        }
        let names = trimmed(&self.catalog_namespaces);
        let error = if names.is_empty() {
            CatalogError::Empty(self.catalog_namespaces.join(","))
        } else if let Some(other) = names.iter().find(|name| !is_dns_label(name)) {
            CatalogError::NotANamespace(other.clone())
        } else if names.iter().any(|name| name == rendering) {
            CatalogError::Rendering
        } else if served.is_empty() {
            CatalogError::ServesAll
        } else if !self.pipeline {
            CatalogError::NoPipeline
        } else if !crosses_namespaces {
            CatalogError::NothingCrosses
        } else {
            return Ok(names);
        };
        Err(SettingsError::Catalogs(error))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::*;

    #[test]
    fn the_pipeline_is_off_until_it_is_asked_for_and_crosses_namespaces_as_tasks_do() {
        let of = |flags: &[&str]| settings(flags).unwrap().pipeline.map(|found| found.rules);
        assert!(of(&[]).is_none());
        let rules = of(&["--pipeline", "--watch-namespaces=a,b"]).unwrap();
        assert_eq!(
            (rules.crosses_namespaces, rules.is_registry_binding_strict),
            (false, false)
        );
        assert_eq!(rules.served, ["a", "b"]);
        let flags = [
            "--pipeline",
            "--registry-binding-strict",
            "--no-cross-namespace-refs=false",
        ];
        let rules = of(&flags).unwrap();
        assert_eq!(
            (rules.crosses_namespaces, rules.is_registry_binding_strict),
            (true, true)
        );
    }
    /// What a hub that serves two namespaces makes of a list of catalogs and more flags.
    fn catalogs(list: &str, more: &[&str]) -> Result<Vec<String>, SettingsError> {
        let list = format!("--catalog-namespaces={list}");
        let found = settings(&[more, &[list.as_str()]].concat())?.pipeline;
        Ok(found.map(|found| found.rules.catalogs).unwrap_or_default())
    }

    const LISTS: [&str; 3] = [
        "--pipeline",
        "--watch-namespaces=a,b",
        "--no-cross-namespace-refs=false",
    ];

    #[test]
    fn catalogs_are_trimmed_and_may_be_served_too() {
        assert_eq!(catalogs("c, d,,c", &LISTS).unwrap(), ["c", "d"]);
        assert_eq!(catalogs("a", &LISTS).unwrap(), ["a"]);
        assert!(
            settings(&LISTS)
                .unwrap()
                .pipeline
                .unwrap()
                .rules
                .catalogs
                .is_empty()
        );
    }

    #[test]
    fn catalogs_of_which_nothing_could_be_used_are_refused_and_what_is_none() {
        let table: &[(&str, &[&str], CatalogError)] = &[
            (",", &LISTS, CatalogError::Empty(",".to_owned())),
            ("", &LISTS, CatalogError::Empty(String::new())),
            ("c,*", &LISTS, CatalogError::NotANamespace("*".to_owned())),
            ("c,rendering", &LISTS, CatalogError::Rendering),
            (
                "c",
                &["--pipeline", "--no-cross-namespace-refs=false"],
                CatalogError::ServesAll,
            ),
            (
                "c",
                &["--watch-namespaces=a", "--no-cross-namespace-refs=false"],
                CatalogError::NoPipeline,
            ),
            (
                "c",
                &["--pipeline", "--watch-namespaces=a"],
                CatalogError::NothingCrosses,
            ),
        ];
        for (list, flags, error) in table {
            let refused = catalogs(list, flags).unwrap_err();
            assert_eq!(
                refused,
                SettingsError::Catalogs(error.clone()),
                "{list} {flags:?}"
            );
            let said = refused.to_string();
            assert!(said.starts_with("--catalog-namespaces"), "{said}");
        }
    }
}
