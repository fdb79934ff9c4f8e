//! The commands: from arguments to an exit code, lines on the terminal, and a termination message.

use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};

use super::archive;
use super::auth::{Authenticator, TokenScope};
use super::chart::{Chart, check_template};
use super::cli::{
    ConnectionArgs, OneShotArgs, PushArgs, RenderArgs, RendererCli, RendererCommand, TERMINATION_LOG,
};
use super::config::{ChartConfig, ChartDescription};
use super::credentials::{self, CredentialError, CredentialSource};
use super::document;
use super::error::PushError;
use super::failure::{PushCommandError, RendererError};
use super::file::{self, FileError};
use super::manifest::Artifact;
use super::origin::{Origin, is_all_plain};
use super::registry::{PushOutcome, RegistryClient};
use super::tls;
use super::transport::{Transport, TransportLimits};
use crate::api::basic_auth::{self, BasicAuthError, BasicCredential};
use crate::api::input_hashes::{CONFIG_SHA256, URL_SHA256, sha256};
use crate::api::oci::{OciError, OciReference};
use crate::api::termination::{PERMANENT_FAILURE, Termination, TerminationPhase, TerminationReason};
use crate::base::hardening;

/// Largest file with a destination in bytes.
const MAX_URL: u64 = 4096;

/// Runs the program with the process's arguments and environment.
#[must_use]
pub fn main() -> ExitCode {
    let protected = hardening::protect_memory();
    let cli = match RendererCli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let log = cli.termination_log.clone();
    hardening::silence_panics(|place| {
        let _ = writeln!(io::stderr(), "Error: internal error at {place}");
    });
    let phase = if matches!(cli.command, Some(RendererCommand::Render(_))) {
        TerminationPhase::Render
    } else {
        TerminationPhase::Push
    };
    let is_container = cli.command.is_some();
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        protected.map_err(|_| RendererError::Start)?;
        execute(cli, phase)
    }));
    let message = match &outcome {
        Ok(Ok(message)) => message.clone(),
        Ok(Err(failure)) => failure.termination(),
        Err(_) => Termination::failed(phase, TerminationReason::Internal),
    };
    if let Ok(Err(failure)) = &outcome {
        let _ = writeln!(io::stderr(), "Error: {failure}\nFailed with: {failure}");
    }
    let path = log.as_deref().unwrap_or(Path::new(TERMINATION_LOG));
    // A failure here cannot be reported; the exit code is the result.
    let _ = file::write_message(path, &message.to_json(), log.is_some());
    exit_code(message.reason, is_container)
}

/// The one-shot form knows 0 and 1 only; the containers of a Job say besides whether a second attempt can help.
fn exit_code(reason: TerminationReason, is_container: bool) -> ExitCode {
    if reason.is_success() {
        ExitCode::SUCCESS
    } else if is_container && reason.is_permanent() {
        ExitCode::from(PERMANENT_FAILURE)
    } else {
        ExitCode::FAILURE
    }
}

/// Help and version are answers; everything else is exit code 1, never clap's 2.
fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn execute(cli: RendererCli, phase: TerminationPhase) -> Result<Termination, RendererError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|_| RendererError::Start)?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(|_| RendererError::Start)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(|_| RendererError::Start)?;
        // The branch that loses is dropped, and temporary files with it.
        tokio::select! {
            biased;
            _ = terminate.recv() => Err(RendererError::Interrupted(phase)),
            _ = interrupt.recv() => Err(RendererError::Interrupted(phase)),
            outcome = dispatch(cli) => outcome,
        }
    })
}

async fn dispatch(cli: RendererCli) -> Result<Termination, RendererError> {
    match cli.command {
        Some(RendererCommand::Render(args)) => render(&args),
        Some(RendererCommand::Push(args)) => push(*args).await,
        None => one_shot(cli.one_shot).await,
    }
}

fn say(line: &str) {
    // A closed pipe is no reason to fail.
    let _ = writeln!(io::stdout(), "{line}");
}

// === render ===

fn load(path: &Path, pin: Option<&OsStr>) -> Result<ChartConfig, RendererError> {
    let bytes = file::read(path, document::MAX_BYTES as u64).map_err(|error| RendererError::ReadConfig {
        path: path.to_owned(),
        error,
    })?;
    if !is_as_pinned(&bytes, pin) {
        return Err(RendererError::ConfigReplaced);
    }
    ChartConfig::parse(&bytes).map_err(RendererError::Config)
}

fn build(config: &ChartConfig) -> Result<(&'static str, Chart), RendererError> {
    let kind = config.kind();
    let chart = Chart::render(config).map_err(|source| RendererError::Chart { kind, source })?;
    Ok((kind, chart))
}

/// Whether content is what the Job names by its hash, if it names any: what was put in its place is not read.
fn is_as_pinned(content: &[u8], pin: Option<&OsStr>) -> bool {
    pin.is_none_or(|pin| *pin == *sha256(content))
}

fn render(args: &RenderArgs) -> Result<Termination, RendererError> {
    let config = load(&args.config, std::env::var_os(CONFIG_SHA256).as_deref())?;
    config.check().map_err(RendererError::Config)?;
    check_template(&config).map_err(RendererError::Config)?;
    let (kind, chart) = build(&config)?;
    let bytes = archive::pack(&chart).map_err(|_| RendererError::Package)?;
    file::write_atomically(&args.out, &bytes).map_err(RendererError::Write)?;
    say(&format!("Rendered {kind} to {}", args.out.display()));
    Ok(Termination::rendered())
}

// === push ===

async fn push(args: PushArgs) -> Result<Termination, RendererError> {
    let reference = destination(&args)?;
    let archive = file::read_untrusted(&args.archive, archive::MAX_BYTES).map_err(|error| {
        let path = args.archive.clone();
        PushCommandError::ReadArchive { path, error }
    })?;
    let meta = archive::read_meta(&archive).map_err(PushCommandError::NotAChart)?;
    let source = match (args.username_file, args.password_file) {
        (Some(username), Some(password)) => CredentialSource::Files { username, password },
        _ => std::env::var_os("DOCKER_CONFIG")
            .filter(|path| !path.is_empty())
            .map_or(CredentialSource::None, |path| CredentialSource::DockerConfig {
                path: path.into(),
                required: true,
            }),
    };
    let credential = credentials::load(&source, &reference.host).map_err(PushCommandError::Credential)?;
    let artifact = artifact(&reference, &meta, archive)?;
    let mut registry = connect(&reference, credential, &args.connection)?;
    let pushed = registry.push(&reference.tag, &artifact).await;
    let pushed = pushed.map_err(|error| failed(error, &registry))?;
    Ok(report(pushed, &reference, artifact))
}

fn destination(args: &PushArgs) -> Result<OciReference, PushCommandError> {
    let text = match &args.url_file {
        None => args.url.clone().unwrap_or_default(),
        Some(path) => {
            let bytes = file::read(path, MAX_URL).map_err(|error| PushCommandError::UrlFile {
                path: path.clone(),
                error,
            })?;
            if !is_as_pinned(&bytes, std::env::var_os(URL_SHA256).as_deref()) {
                return Err(PushCommandError::UrlReplaced);
            }
            String::from_utf8(bytes).map_err(|_| OciError::Reference)?
        }
    };
    let reference = parse_destination(text.trim())?;
    if args.registry.as_ref().is_some_and(|host| *host != reference.host) {
        return Err(PushCommandError::OtherRegistry);
    }
    let prefix = args.repository_prefix.as_ref();
    if prefix.is_some_and(|prefix| !reference.repository.is_within(prefix)) {
        return Err(PushCommandError::OtherRepository);
    }
    Ok(reference)
}

fn parse_destination(text: &str) -> Result<OciReference, PushCommandError> {
    if text.is_empty() {
        Err(PushCommandError::NoReference)
    } else {
        Ok(text.parse()?)
    }
}

/// Helm fetches a chart by name and version, so it must be pushed under exactly these.
fn artifact(
    reference: &OciReference,
    meta: &ChartDescription,
    archive: Vec<u8>,
) -> Result<Artifact, PushCommandError> {
    if reference.repository.last_segment() != meta.name || !reference.tag.matches_version(&meta.version) {
        return Err(PushCommandError::Strict);
    }
    Artifact::new(meta, archive).map_err(|_| PushCommandError::Manifest)
}

fn connect(
    reference: &OciReference,
    credential: Option<BasicCredential>,
    args: &ConnectionArgs,
) -> Result<RegistryClient, PushCommandError> {
    let private = std::env::var_os("SSL_CERT_FILE")
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    let extra: Vec<_> = args
        .ca_file
        .iter()
        .chain(&private)
        .map(PathBuf::as_path)
        .collect();
    let tls = if is_all_plain(args.plain_http, args.token_realm.as_ref()) {
        tls::no_tls()?
    } else {
        tls::client_config(&extra)?
    };
    let defaults = TransportLimits::default();
    let limits = TransportLimits {
        total: args.timeout,
        call: defaults.call.min(args.timeout),
        ..defaults
    };
    let auth = Authenticator {
        origin: Origin::of_registry(&reference.host, args.plain_http),
        repository: reference.repository.clone(),
        credential,
        token_realm: args.token_realm.clone(),
        access: TokenScope::Push,
    };
    Ok(RegistryClient::new(Transport::new(tls, limits), auth))
}

const fn failed(error: PushError, registry: &RegistryClient) -> PushCommandError {
    PushCommandError::Registry {
        error,
        credential_sent: registry.has_sent_credential(),
    }
}

fn report(pushed: PushOutcome, reference: &OciReference, artifact: Artifact) -> Termination {
    let digest = artifact.manifest.digest;
    match pushed {
        PushOutcome::Uploaded => {
            say(&format!("Pushed result to {reference}"));
            Termination::pushed(digest)
        }
        PushOutcome::AlreadyExists => {
            say(&format!(
                "Chart already exists at {}, skipping render and push",
                reference.url()
            ));
            Termination::already_exists(digest)
        }
    }
}

// === one-shot ===

async fn one_shot(args: OneShotArgs) -> Result<Termination, RendererError> {
    let config = args.config.as_deref().ok_or(RendererError::NoConfig)?;
    // A chart that Helm cannot install is made all the same, as other renderers of these configurations do.
    let (kind, chart) = build(&load(config, None)?)?;
    let directory = tempfile::Builder::new().prefix("renderhub-chart-").tempdir();
    let directory = directory.map_err(|error| RendererError::Write(error.into()))?;
    let place = directory.path().display();
    if args.skip_push {
        unpack(&chart, directory.path()).map_err(RendererError::Write)?;
        say(&format!("Rendered {kind} to {place} (skip-push)"));
        return Ok(Termination::rendered());
    }
    let reference = parse_destination(&args.url)?;
    let bytes = archive::pack(&chart).map_err(|_| RendererError::Package)?;
    let credential = one_shot_credential(&args, &reference).map_err(PushCommandError::Credential)?;
    let artifact = artifact(&reference, &chart.meta, bytes)?;
    let mut registry = connect(&reference, credential, &args.connection)?;
    let held = registry.holds(&reference.tag, &artifact).await;
    if held == Ok(true) {
        return Ok(report(PushOutcome::AlreadyExists, &reference, artifact));
    }
    unpack(&chart, directory.path()).map_err(RendererError::Write)?;
    say(&format!("Rendered {kind} to {place}"));
    // Reported after the rendered output, which is on standard output even if the push fails.
    held.map_err(|error| failed(error, &registry))?;
    let uploaded = registry.upload(&reference.tag, &artifact).await;
    uploaded.map_err(|error| failed(error, &registry))?;
    Ok(report(PushOutcome::Uploaded, &reference, artifact))
}

fn unpack(chart: &Chart, directory: &Path) -> Result<(), FileError> {
    for (path, content) in &chart.files {
        let target = directory.join(path);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(target, content)?;
    }
    Ok(())
}

/// Flags, then variables, then docker's file; a name without a password, or the other way round, counts as neither.
fn one_shot_credential(
    args: &OneShotArgs,
    reference: &OciReference,
) -> Result<Option<BasicCredential>, CredentialError> {
    let or_variable = |flag: &str, variable: &str| match flag {
        "" => std::env::var(variable).unwrap_or_default(),
        given => given.to_owned(),
    };
    let username = or_variable(&args.username, "REGISTRY_USERNAME");
    let password = if args.password_stdin {
        password_from_stdin()?
    } else {
        or_variable(&args.password, "REGISTRY_PASSWORD")
    };
    if !username.is_empty() && !password.is_empty() {
        return Ok(Some(basic_auth::pair(&username, &password)?));
    }
    let file = std::env::var_os("DOCKER_CONFIG")
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    let file =
        file.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".docker/config.json")));
    let source = file.map_or(CredentialSource::None, |path| CredentialSource::DockerConfig {
        path,
        required: false,
    });
    credentials::load(&source, &reference.host)
}

fn password_from_stdin() -> Result<String, CredentialError> {
    let mut text = String::new();
    let read = io::stdin().take(64 * 1024).read_to_string(&mut text);
    read.map_err(|_| BasicAuthError::Empty)?;
    let mut words = text.split_ascii_whitespace();
    match (words.next(), words.next()) {
        (Some(found), None) => Ok(found.to_owned()),
        _ => Err(BasicAuthError::Empty.into()),
    }
}
