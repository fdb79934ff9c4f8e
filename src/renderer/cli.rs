//! The command line: `render`, `push`, and both at once as other renderers of these configurations have it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};
use http::Uri;

use crate::api::oci::{RegistryHost, RepositoryPrefix};

/// Where kubelet looks for the termination message.
pub const TERMINATION_LOG: &str = "/dev/termination-log";

/// Renders a Helm chart from a configuration and pushes it to an OCI registry.
#[derive(Debug, Parser)]
#[command(
    name = "renderhub-renderer",
    version,
    args_conflicts_with_subcommands = true,
    args_override_self = true
)]
pub struct RendererCli {
    /// One half of the work; without it, both.
    #[command(subcommand)]
    pub command: Option<RendererCommand>,
    /// Both halves at once.
    #[command(flatten)]
    pub one_shot: OneShotArgs,
    /// File for the termination message; created if it is named here, otherwise written only where it exists.
    #[arg(long, global = true, env = "RENDERHUB_TERMINATION_LOG", value_name = "FILE")]
    pub termination_log: Option<PathBuf>,
}

/// One half of the work.
#[derive(Debug, Subcommand)]
pub enum RendererCommand {
    /// Render a configuration to a chart archive; needs no network and no credential.
    Render(RenderArgs),
    /// Push a chart archive that `render` wrote; never reads a configuration.
    Push(Box<PushArgs>),
}

/// `render CONFIG --out FILE`.
#[derive(Debug, Args)]
pub struct RenderArgs {
    /// YAML or JSON configuration file.
    pub config: PathBuf,
    /// Chart archive to write; whole or not at all.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// `push FILE --url URL`.
#[derive(Debug, Args)]
pub struct PushArgs {
    /// Chart archive that `render` wrote; must be a regular file.
    pub archive: PathBuf,
    /// Destination, `oci://host[:port]/path/<chart name>:<chart version>`.
    #[arg(long, required_unless_present = "url_file", conflicts_with = "url_file")]
    pub url: Option<String>,
    /// File that holds the destination.
    #[arg(long, value_name = "FILE")]
    pub url_file: Option<PathBuf>,
    /// Registry the destination must be on; any other is refused before a credential is read.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub registry: Option<RegistryHost>,
    /// Path that the destination's repository must lie within, by whole components; any other is refused before a credential is
    /// read. Empty is the whole registry, `team-a/` is below that path, `team-a` is at or below it.
    #[arg(long, value_name = "PREFIX")]
    pub repository_prefix: Option<RepositoryPrefix>,
    /// File that holds the registry user name.
    #[arg(long, value_name = "FILE", requires = "password_file")]
    pub username_file: Option<PathBuf>,
    /// File that holds the registry password.
    #[arg(long, value_name = "FILE", requires = "username_file")]
    pub password_file: Option<PathBuf>,
    /// How to reach the registry.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `[flags] CONFIG`, both halves at once.
#[derive(Debug, Args)]
pub struct OneShotArgs {
    /// YAML or JSON configuration file.
    #[arg(value_name = "CONFIG-FILE")]
    pub config: Option<PathBuf>,
    /// Destination, `oci://host[:port]/path/<chart name>:<chart version>`.
    #[arg(long, default_value = "")]
    pub url: String,
    /// Render only.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true",
          action = ArgAction::Set, value_parser = go_bool)]
    pub skip_push: bool,
    /// Read the password from standard input: one word.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true",
          action = ArgAction::Set, value_parser = go_bool)]
    pub password_stdin: bool,
    /// Registry user name; `REGISTRY_USERNAME` where it is empty.
    #[arg(long, default_value = "")]
    pub username: String,
    /// Registry password; `REGISTRY_PASSWORD` where it is empty.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub password: String,
    /// How to reach the registry.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// How to reach a registry.
#[derive(Clone, Debug, Args)]
pub struct ConnectionArgs {
    /// Use HTTP without TLS for the registry; a token service named with https keeps TLS.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true",
          action = ArgAction::Set, value_parser = go_bool)]
    pub plain_http: bool,
    /// Certificate authorities to trust besides the system's; so is the file `SSL_CERT_FILE` names.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Token service on another origin that may receive the credential.
    #[arg(long, value_name = "URL")]
    pub token_realm: Option<Uri>,
    /// Seconds for all calls to the registry together.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds)]
    pub timeout: Duration,
}

/// The values that Go's flag parsers take for a boolean.
fn go_bool(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false"),
    }
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    match text.parse() {
        Ok(seconds @ 1..=3600) => Ok(Duration::from_secs(seconds)),
        _ => Err("expected 1 to 3600 seconds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_holds_together() {
        RendererCli::command().debug_assert();
    }

    fn one_shot(args: &[&str]) -> OneShotArgs {
        let args = std::iter::once("renderhub-renderer").chain(args.iter().copied());
        RendererCli::try_parse_from(args).unwrap().one_shot
    }

    #[test]
    fn flags_stand_before_or_after_the_argument_and_take_go_booleans() {
        for args in [
            ["--plain-http", "--url=oci://h/a:1", "c"],
            ["c", "--plain-http=T", "--url=oci://h/a:1"],
        ] {
            let parsed = one_shot(&args);
            assert_eq!(parsed.config, Some("c".into()));
            assert!(parsed.connection.plain_http);
            assert_eq!(parsed.url, "oci://h/a:1");
        }
        assert!(!one_shot(&["c", "--skip-push=false"]).skip_push);
        assert!(one_shot(&["--skip-push", "c"]).skip_push);
    }

    #[test]
    fn of_a_flag_that_is_given_twice_the_last_wins() {
        assert!(one_shot(&["--skip-push", "--skip-push", "c"]).skip_push);
        assert!(!one_shot(&["--skip-push", "--skip-push=false", "c"]).skip_push);
        let twice = one_shot(&[
            "--url=oci://h/a:1",
            "--url",
            "oci://h/b:2",
            "--timeout=1",
            "--timeout=2",
            "c",
        ]);
        assert_eq!(twice.url, "oci://h/b:2");
        assert_eq!(twice.connection.timeout, Duration::from_secs(2));
    }

    #[test]
    fn what_is_not_a_command_line() {
        for args in [
            &["a", "b"][..],
            &["--nope", "c"],
            &["--plain-http=x", "c"],
            &["push", "f"],
            &["push", "f", "--url", "u", "--url-file", "v"],
            &["render", "c"],
            &["push", "f", "--url", "u", "--username-file", "n"],
            &["push", "f", "--url", "u", "--timeout", "0"],
            &["push", "f", "--url", "u", "--password", "p"],
        ] {
            let args = std::iter::once(&"renderhub-renderer").chain(args);
            assert!(RendererCli::try_parse_from(args).is_err());
        }
    }
}
