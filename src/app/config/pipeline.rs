//! Flags of the pipeline in front of tasks.

use clap::{ArgAction, Args};

use crate::controllers::pipeline::PipelineSettings;
use crate::plan::pipeline::references::ReferenceRules;

/// Whether the hub makes tasks for Targets, and how it resolves what they get.
#[derive(Clone, Copy, Debug, Args)]
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
}

impl PipelineArgs {
    /// What governs the pipeline; `None` where it is off.
    pub(super) fn settings(
        self,
        crosses_namespaces: bool,
        namespaces: &[String],
    ) -> Option<PipelineSettings> {
        self.pipeline.then(|| PipelineSettings {
            rules: ReferenceRules {
                crosses_namespaces,
                served: namespaces.to_vec(),
                is_registry_binding_strict: self.registry_binding_strict,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;

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
}
