//! Flags and environment, validated once into [`Settings`].

use std::time::Duration;

use clap::error::ErrorKind;
use clap::{ArgAction, Args as ClapArgs, Parser, Subcommand, ValueEnum};

use crate::api::RendererClassSpec;
use crate::api::names::{is_dns_label, is_dns_subdomain};
use crate::app::probe::ProbeArgs;
use crate::controllers::pipeline::PipelineSettings;
use crate::controllers::tasks::controller::TaskControllerLimits;
use crate::plan::platform::identity_method::IdentityMethod;
use crate::plan::platform::posture::SecurityPosture;
use crate::plan::platform::tenancy::TenancyPolicy;
use crate::plan::queue::ConcurrencyLimits;

mod admin;
mod clusters;
mod error;
mod failed_jobs;
mod log_format;
mod parse;
mod pipeline;
mod pull_secrets;
mod registries;
mod renderer;
mod start;
mod stop;

pub use admin::AdminArgs;
pub use clusters::{ClusterArgs, ClusterSettings};
pub use error::{CatalogError, SettingsError};
pub use failed_jobs::FailedJobArgs;
pub use log_format::LogFormat;
pub use pipeline::PipelineArgs;
pub use pull_secrets::{PullSecretArgs, PullSecretSettings};
pub use registries::RegistryArgs;
pub use renderer::RendererArgs;
pub use start::{StartArgs, StartSettings};
pub use stop::StopArgs;

use parse::{duration, label, level, trimmed};

/// Passes at once: the API server is saturated at about eight writes in flight, more only wait there.
const WORKERS: usize = 16;
/// Of one namespace: a flood there is as fast with them as with all, and others wait less (docs/benchmarks.md, the flood).
const WORKERS_OF_NAMESPACE: usize = 4;
/// For tasks on other clusters, in addition to the workers: they mostly wait for those clusters, so there may be more of them,
/// and each holds a response of 256 KiB at most.
const PASSES_ELSEWHERE: usize = 4 * WORKERS;
/// Of one cluster that answers: with the defaults it does its 20 requests a second also where each takes 400 ms. One of which
/// nothing is known, or that was slow, has fewer, so that thirty which answer nothing leave all others room.
const PASSES_OF_CLUSTER: usize = PASSES_ELSEWHERE / 8;
/// For large tasks, in addition to the workers: each may hold 4.7 MiB, so memory bounds them, and not the API server.
const LARGE_PASSES: usize = 4;
/// For such tasks on other clusters.
const LARGE_PASSES_ELSEWHERE: usize = 8;
/// For such tasks of one namespace, or on one other cluster, so that one that does not answer leaves the others room.
const LARGE_PASSES_OF_ONE: usize = 2;

/// A hub controller that renders charts with credentials no tenant can reach.
#[derive(Debug, Parser)]
#[command(name = "renderhub", version, about, propagate_version = true)]
pub struct HubCli {
    /// What to do.
    #[command(subcommand)]
    pub command: HubCommand,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum HubCommand {
    /// Run the hub until a signal stops it.
    Run(Box<RunArgs>),
    /// Look at what would keep the hub from starting, and change nothing.
    Preflight(Box<PreflightArgs>),
    /// Look at the network, and fail unless it is as it should be.
    Probe(ProbeArgs),
    /// End a hub that is about to be uninstalled, while it may still release its Lease.
    Stop(StopArgs),
    /// Give operators that OLM installed the pull Secrets of their catalogs, until a signal stops it.
    PullSecrets(PullSecretArgs),
}

/// How findings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    Table,
    /// A list of objects.
    Json,
}

/// Flags of `renderhub preflight`: those of the hub it speaks of, and how it tells what it found.
#[derive(Debug, ClapArgs)]
pub struct PreflightArgs {
    /// The hub's own flags.
    #[command(flatten)]
    pub hub: RunArgs,
    /// How the findings are written.
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    pub output: OutputFormat,
}

/// Flags of `renderhub run`; each can be given as an environment variable, the flag wins.
#[derive(Debug, ClapArgs)]
pub struct RunArgs {
    /// Namespace that Jobs run in and that holds the platform's credentials.
    #[arg(long, env = "RENDERHUB_RENDERING_NAMESPACE")]
    pub rendering_namespace: String,
    /// Name of this hub among those of the cluster, a DNS label; part of the hub id.
    #[arg(long, env = "RENDERHUB_SHARD_NAME", default_value = "main")]
    pub shard_name: String,
    /// Namespaces whose tasks this hub serves, comma-separated. Default: all, and the platform's own tasks.
    #[arg(long, env = "RENDERHUB_WATCH_NAMESPACES", value_delimiter = ',')]
    pub watch_namespaces: Vec<String>,
    /// What runs in Jobs where a task names no class.
    #[command(flatten)]
    pub renderer: RendererArgs,
    /// Jobs at once.
    #[arg(long, env = "RENDERHUB_MAX_ACTIVE_JOBS", default_value_t = 256)]
    pub max_active_jobs: usize,
    /// Jobs at once for the tasks of one namespace.
    #[arg(long, env = "RENDERHUB_MAX_ACTIVE_JOBS_PER_NAMESPACE", default_value_t = 32)]
    pub max_active_jobs_per_namespace: usize,
    /// What tenants' references are read with: a short-lived token of the task's ServiceAccount, or impersonation of it.
    #[arg(long, env = "RENDERHUB_TENANT_IDENTITY", value_enum, default_value_t)]
    pub tenant_identity: IdentityMethod,
    /// `ServiceAccount` in the task's namespace for tasks that name none.
    #[arg(long, env = "RENDERHUB_DEFAULT_SERVICE_ACCOUNT")]
    pub default_service_account: Option<String>,
    /// Whether every reference must stay in the task's namespace; false lets a `ReferenceGrant` allow others.
    #[arg(
        long,
        env = "RENDERHUB_NO_CROSS_NAMESPACE_REFS",
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = ArgAction::Set
    )]
    pub no_cross_namespace_refs: bool,
    /// Whether the hub reads as itself what a task without a ServiceAccount names; only where one team owns the cluster.
    #[arg(
        long,
        env = "RENDERHUB_SINGLE_TENANT",
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = ArgAction::Set
    )]
    pub single_tenant: bool,
    /// Where tenants may push with registries of their own.
    #[command(flatten)]
    pub registries: RegistryArgs,
    /// Whether the hub makes tasks for Targets, and how.
    #[command(flatten)]
    pub pipeline: PipelineArgs,
    /// How the hub looks around before it starts.
    #[command(flatten)]
    pub start: StartArgs,
    /// Which other clusters the hub reaches.
    #[command(flatten)]
    pub clusters: ClusterArgs,
    /// Time between sweeps for objects whose task is gone, such as 90s, 5m or 1h.
    #[arg(long, env = "RENDERHUB_GC_INTERVAL", default_value = "5m", value_parser = duration)]
    pub gc_interval: Duration,
    /// Finished tasks that are kept in a namespace; the oldest beyond them are removed. Default: all are kept.
    #[arg(long, env = "RENDERHUB_KEEP_FINISHED_PER_NAMESPACE")]
    pub keep_finished_per_namespace: Option<usize>,
    /// What failed tasks leave to be looked at.
    #[command(flatten)]
    pub kept: FailedJobArgs,
    /// Longest time that work under way may take after SIGTERM.
    #[arg(long, env = "RENDERHUB_GRACE_PERIOD", default_value = "20s", value_parser = duration)]
    pub grace_period: Duration,
    /// What it tells on its admin port.
    #[command(flatten)]
    pub admin: AdminArgs,
    /// How logs are written.
    #[arg(long, env = "RENDERHUB_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
    /// Least level that is logged: error, warn, info, debug, trace.
    #[arg(long, env = "RENDERHUB_LOG_LEVEL", default_value = "info", value_parser = level)]
    pub log_level: tracing::Level,
}

/// What the hub runs with; every value is legal.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of Jobs and platform credentials.
    pub rendering_namespace: String,
    /// Name of this hub among those of the cluster.
    pub shard_name: String,
    /// Namespaces whose tasks it serves; empty is every namespace and the platform's own tasks.
    pub watch_namespaces: Vec<String>,
    /// ServiceAccount of renderer pods.
    pub renderer_service_account: String,
    /// Namespace of the pull Secrets that classes name; without one they are where the Jobs run.
    pub pull_secret_namespace: Option<String>,
    /// How the hub becomes the ServiceAccount of a task.
    pub identity_method: IdentityMethod,
    /// What tenants' references may do.
    pub tenancy: TenancyPolicy,
    /// What governs the pipeline in front of tasks; `None` where it is off.
    pub pipeline: Option<PipelineSettings>,
    /// How it looks around before it starts.
    pub start: StartSettings,
    /// The renderer of tasks without a class.
    pub fallback_class: RendererClassSpec,
    /// What bounds the controller.
    pub limits: TaskControllerLimits,
    /// Longest that a failed Job is kept.
    pub max_failed_job_ttl: Duration,
    /// Longest time that work under way may take after SIGTERM.
    pub grace_period: Duration,
    /// Which other clusters it reaches.
    pub clusters: ClusterSettings,
    /// What it tells on its admin port.
    pub admin: AdminArgs,
}

impl Settings {
    /// The strictness of the settings.
    #[must_use]
    pub fn posture(&self) -> SecurityPosture {
        SecurityPosture {
            tenancy: self.tenancy.clone(),
            identity_method: self.identity_method,
            skipped: self.start.skipped.clone(),
            gates: self.clusters.feature_gates.clone(),
            allows_refused_addresses: !self.clusters.allowed.is_empty(),
            names_namespaces: self.admin.metrics_by_namespace,
        }
    }
}

impl RunArgs {
    /// The settings.
    ///
    /// # Errors
    /// The first flag that is illegal or contradicts another.
    pub fn settings(&self) -> Result<Settings, SettingsError> {
        for (flag, value) in [
            ("rendering-namespace", &self.rendering_namespace),
            ("shard-name", &self.shard_name),
            (
                "renderer-service-account",
                &self.renderer.renderer_service_account,
            ),
        ] {
            label(flag, value)?;
        }
        let watch_namespaces = self.watched()?;
        let (crosses, rendering) = (!self.no_cross_namespace_refs, &self.rendering_namespace);
        let pipeline = self.pipeline.settings(crosses, &watch_namespaces, rendering)?;
        let limits = self.limits()?;
        Ok(Settings {
            rendering_namespace: self.rendering_namespace.clone(),
            shard_name: self.shard_name.clone(),
            watch_namespaces,
            renderer_service_account: self.renderer.renderer_service_account.clone(),
            pull_secret_namespace: self.renderer.pull_secret_namespace(rendering)?,
            identity_method: self.tenant_identity,
            tenancy: self.tenancy()?,
            pipeline,
            start: self.start.settings(&self.rendering_namespace)?,
            clusters: self.clusters.settings(&self.rendering_namespace)?,
            fallback_class: self.renderer.fallback_class(),
            limits,
            max_failed_job_ttl: self.kept.max_failed_job_ttl,
            grace_period: self.grace_period,
            admin: self.admin,
        })
    }

    fn watched(&self) -> Result<Vec<String>, SettingsError> {
        let names = trimmed(&self.watch_namespaces);
        if names.is_empty() && !self.watch_namespaces.is_empty() {
            return Err(SettingsError::NoNamespaces(self.watch_namespaces.join(",")));
        }
        if let Some(other) = names.iter().find(|name| !is_dns_label(name)) {
            return Err(SettingsError::NotANamespace(other.clone()));
        }
        if names.contains(&self.rendering_namespace) {
            return Err(SettingsError::WatchesRendering);
        }
        Ok(names)
    }

    fn limits(&self) -> Result<TaskControllerLimits, SettingsError> {
        let caps = self.caps()?;
        if self.gc_interval < Duration::from_secs(1) {
            return Err(SettingsError::TooShort("gc-interval"));
        }
        Ok(TaskControllerLimits {
            caps,
            workers: WORKERS,
            workers_of_namespace: WORKERS_OF_NAMESPACE,
            passes_elsewhere: PASSES_ELSEWHERE,
            passes_of_cluster: PASSES_OF_CLUSTER,
            large_passes: LARGE_PASSES,
            large_passes_elsewhere: LARGE_PASSES_ELSEWHERE,
            large_passes_of_one: LARGE_PASSES_OF_ONE,
            gc_interval: self.gc_interval,
            keep_finished: self.keep_finished_per_namespace,
            has_pipeline: self.pipeline.pipeline,
            keep_failed: self.kept.settings()?,
        })
    }

    fn tenancy(&self) -> Result<TenancyPolicy, SettingsError> {
        let account = self.default_service_account.as_deref().unwrap_or_default().trim();
        if !account.is_empty() && !is_dns_subdomain(account) {
            return Err(SettingsError::NotAServiceAccount);
        }
        Ok(TenancyPolicy {
            default_service_account: (!account.is_empty()).then(|| account.to_owned()),
            crosses_namespaces: !self.no_cross_namespace_refs,
            is_single_tenant: self.single_tenant,
            own_hosts: self.registries.settings(self.single_tenant)?,
        })
    }

    fn caps(&self) -> Result<ConcurrencyLimits, SettingsError> {
        let caps = ConcurrencyLimits {
            total: self.max_active_jobs,
            per_namespace: self.max_active_jobs_per_namespace,
        };
        if caps.total == 0 {
            return Err(SettingsError::Zero("max-active-jobs"));
        }
        if caps.per_namespace == 0 {
            return Err(SettingsError::Zero("max-active-jobs-per-namespace"));
        }
        if caps.per_namespace > caps.total {
            return Err(SettingsError::CapsContradict);
        }
        Ok(caps)
    }
}

/// Why a command line is refused, as one line; `None` where help or the version was asked for.
#[must_use]
pub fn refusal(error: &clap::Error) -> Option<String> {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return None;
    }
    let text = error.to_string();
    let reported = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    Some(reported.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
pub(super) mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(flags: &[&str]) -> RunArgs {
        let all = ["renderhub", "run", "--rendering-namespace", "rendering"]
            .iter()
            .chain(flags);
        match HubCli::try_parse_from(all).unwrap().command {
            HubCommand::Run(args) => *args,
            HubCommand::Preflight(args) => args.hub,
            other => unreachable!("{other:?}"),
        }
    }

    pub(super) fn settings(flags: &[&str]) -> Result<Settings, SettingsError> {
        parse(flags).settings()
    }

    #[test]
    fn the_command_line_is_sound() {
        HubCli::command().debug_assert();
    }

    #[test]
    fn illegal_and_contradictory_settings_are_refused() {
        let table: &[(&[&str], SettingsError)] = &[
            (
                &["--shard-name", "A"],
                SettingsError::NotALabel {
                    flag: "shard-name",
                    value: "A".to_owned(),
                },
            ),
            (
                &["--watch-namespaces=,"],
                SettingsError::NoNamespaces(",".to_owned()),
            ),
            (
                &["--watch-namespaces="],
                SettingsError::NoNamespaces(String::new()),
            ),
            (
                &["--watch-namespaces=a,*"],
                SettingsError::NotANamespace("*".to_owned()),
            ),
            (
                &["--max-active-jobs", "0"],
                SettingsError::Zero("max-active-jobs"),
            ),
            (
                &["--max-active-jobs-per-namespace", "0"],
                SettingsError::Zero("max-active-jobs-per-namespace"),
            ),
            (&["--max-active-jobs", "5"], SettingsError::CapsContradict),
            (&["--gc-interval", "10ms"], SettingsError::TooShort("gc-interval")),
            (
                &["--default-service-account", "a:b"],
                SettingsError::NotAServiceAccount,
            ),
        ];
        for (flags, error) in table {
            assert_eq!(parse(flags).settings().unwrap_err(), *error, "{flags:?}");
        }
        assert!(parse(&[]).settings().is_ok());
    }

    #[test]
    fn unknown_flags_and_values_are_refused() {
        let refused: &[&[&str]] = &[
            &["--nonsense"],
            &["--gc-interval", "5"],
            &["--gc-interval", "5d"],
            &["--log-level", "verbose"],
        ];
        for flags in refused {
            let all = ["renderhub", "run", "--rendering-namespace", "rendering"]
                .iter()
                .chain(*flags);
            assert!(HubCli::try_parse_from(all).is_err(), "{flags:?}");
        }
    }

    #[test]
    fn the_safe_mode_needs_no_flag_and_each_relaxation_is_one() {
        let tenancy = |flags: &[&str]| parse(flags).settings().unwrap().tenancy;
        let safe = tenancy(&[]);
        assert!(!safe.crosses_namespaces && !safe.is_single_tenant && safe.default_service_account.is_none());
        assert_eq!(tenancy(&["--no-cross-namespace-refs"]), safe);
        assert!(tenancy(&["--no-cross-namespace-refs=false"]).crosses_namespaces);
        assert!(tenancy(&["--single-tenant"]).is_single_tenant);
        let named = tenancy(&["--default-service-account", " builder "]);
        assert_eq!(named.default_service_account.as_deref(), Some("builder"));
    }

    #[test]
    fn durations_have_units() {
        for (text, expected) in [("0s", 0), ("90s", 90), ("5m", 300), ("2h", 7200)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(expected)), "{text}");
        }
    }
}
