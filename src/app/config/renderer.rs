//! Flags of the renderer of tasks that name no class, and of what all renderers' images are pulled with.

use clap::Args;
use k8s_openapi::api::core::v1::LocalObjectReference;

use super::error::SettingsError;
use super::parse::{label, pull_policy, pull_secret_entries};
use crate::api::{PullPolicy, PullSecretEntries, RendererClassSpec};

/// What runs in Jobs where a task names no class, and where pull Secrets are.
#[derive(Debug, Args)]
pub struct RendererArgs {
    /// ServiceAccount of renderer pods, in the rendering namespace.
    #[arg(
        long,
        env = "RENDERHUB_RENDERER_SERVICE_ACCOUNT",
        default_value = "renderhub-renderer"
    )]
    pub renderer_service_account: String,
    /// Image of the renderer for tasks without a class.
    #[arg(
        long,
        env = "RENDERHUB_RENDERER_IMAGE",
        default_value = "renderhub.dev/renderer:0.1.0"
    )]
    pub renderer_image: String,
    /// When that image is pulled: Always, `IfNotPresent` or Never.
    #[arg(long, env = "RENDERHUB_RENDERER_IMAGE_PULL_POLICY", value_parser = pull_policy)]
    pub renderer_image_pull_policy: Option<PullPolicy>,
    /// Secrets that the image is pulled with, comma-separated, in `--pull-secret-namespace`.
    #[arg(long, env = "RENDERHUB_RENDERER_IMAGE_PULL_SECRETS", value_delimiter = ',')]
    pub renderer_image_pull_secrets: Vec<String>,
    /// What of them is copied to where Jobs run: Needed, the entries for the image, or All, for nodes with mirrors.
    #[arg(long, env = "RENDERHUB_RENDERER_IMAGE_PULL_SECRET_ENTRIES", value_parser = pull_secret_entries)]
    pub renderer_image_pull_secret_entries: Option<PullSecretEntries>,
    /// Namespace of the pull Secrets that this flag and `RendererClasses` name. Default: none, they are where the Jobs run.
    #[arg(long, env = "RENDERHUB_PULL_SECRET_NAMESPACE")]
    pub pull_secret_namespace: Option<String>,
}

impl RendererArgs {
    /// The renderer of tasks without a class.
    pub(super) fn fallback_class(&self) -> RendererClassSpec {
        // In the order given: the kubelet tries them so.
        let secrets = self
            .renderer_image_pull_secrets
            .iter()
            .map(|name| name.trim().to_owned());
        RendererClassSpec {
            image: self.renderer_image.clone(),
            image_pull_policy: self.renderer_image_pull_policy,
            image_pull_secrets: secrets
                .filter(|name| !name.is_empty())
                .map(|name| LocalObjectReference { name })
                .collect(),
            image_pull_secret_entries: self.renderer_image_pull_secret_entries,
            ..RendererClassSpec::default()
        }
    }

    /// The namespace of pull Secrets, where that is not the one that the Jobs run in.
    pub(super) fn pull_secret_namespace(&self, rendering: &str) -> Result<Option<String>, SettingsError> {
        let name = self.pull_secret_namespace.as_deref().unwrap_or_default().trim();
        if name.is_empty() || name == rendering {
            return Ok(None);
        }
        label("pull-secret-namespace", name).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::*;

    #[test]
    fn empty_names_of_pull_secrets_are_dropped_and_the_order_stays() {
        let flags = [
            "--renderer-image-pull-secrets",
            " b,, a ,",
            "--renderer-image-pull-secret-entries",
            "All",
        ];
        let class = settings(&flags).unwrap().fallback_class;
        let names: Vec<_> = class
            .image_pull_secrets
            .iter()
            .map(|secret| secret.name.as_str())
            .collect();
        assert_eq!(names, ["b", "a"]);
        assert_eq!(class.image_pull_secret_entries, Some(PullSecretEntries::All));
    }

    #[test]
    fn pull_secrets_are_in_another_namespace_or_where_the_jobs_run() {
        let namespace =
            |name: &str| settings(&["--pull-secret-namespace", name]).map(|all| all.pull_secret_namespace);
        assert_eq!(namespace(" platform ").unwrap().as_deref(), Some("platform"));
        for same in ["rendering", ""] {
            assert_eq!(namespace(same).unwrap(), None);
        }
        let value = "a.b".to_owned();
        let flag = "pull-secret-namespace";
        assert_eq!(
            namespace("a.b").unwrap_err(),
            SettingsError::NotALabel { flag, value }
        );
    }
}
