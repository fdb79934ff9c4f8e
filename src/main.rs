//! The hub.

use std::process::ExitCode;

use clap::Parser;
use renderhub::app;
use renderhub::app::config::{
    HubCli, HubCommand, LogFormat, PreflightArgs, PullSecretArgs, RunArgs, Settings, SettingsError, StopArgs,
};
use renderhub::app::probe::ProbeArgs;
use renderhub::app::{config, probe, telemetry};
use renderhub::base::hardening;

/// Threads that share the work: it waits for servers, and on a node of many cores one for each would wake the others for nothing.
const WORKERS: usize = 2;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        eprintln!("threads cannot be started");
        return ExitCode::FAILURE;
    };
    let code = runtime.block_on(start());
    // At once: a hub that lost its Lease must not wait for running work.
    runtime.shutdown_background();
    code
}

async fn start() -> ExitCode {
    match HubCli::try_parse().map(|cli| cli.command) {
        Ok(HubCommand::Run(args)) => run(&args).await,
        Ok(HubCommand::Preflight(args)) => preflight(&args).await,
        Ok(HubCommand::Probe(args)) => look(&args).await,
        Ok(HubCommand::Stop(args)) => stop(&args).await,
        Ok(HubCommand::PullSecrets(args)) => pull_secrets(&args).await,
        Err(error) => refuse(&error),
    }
}

async fn run(args: &RunArgs) -> ExitCode {
    let settings = match settings(args) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    match app::run(settings).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the hub ends");
            ExitCode::FAILURE
        }
    }
}

async fn preflight(args: &PreflightArgs) -> ExitCode {
    let settings = match settings(&args.hub) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    match app::preflight(settings, args.output).await {
        Ok((findings, is_good)) => {
            print!("{findings}");
            if is_good {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            tracing::error!(%error, "nothing was looked at");
            ExitCode::FAILURE
        }
    }
}

async fn look(args: &ProbeArgs) -> ExitCode {
    let found = match app::probe_network(args).await {
        Ok(found) => found,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    // On one stream and in order: they are read as the log of a pod.
    for one in &found {
        match one {
            Ok(fact) => println!("{fact}"),
            Err(error) => println!("{error}"),
        }
    }
    ExitCode::from(probe::exit_code(&found))
}

/// Always succeeds: a failure would make an uninstall fail.
async fn stop(args: &StopArgs) -> ExitCode {
    match app::stop_hub(&args.hub(), args.timeout).await {
        Ok(outcome) => println!("{outcome}"),
        Err(error) => println!("{error}"),
    }
    ExitCode::SUCCESS
}

async fn pull_secrets(args: &PullSecretArgs) -> ExitCode {
    let settings = match protected(args.log_format, args.log_level, || args.settings()) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    match app::pull_secrets(settings).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the program ends");
            ExitCode::FAILURE
        }
    }
}

fn settings(args: &RunArgs) -> Result<Settings, ExitCode> {
    protected(args.log_format, args.log_level, || args.settings())
}

/// Protects the process's memory before anything secret is in it, and starts logging; the settings, or the exit code of a
/// program that may not go on.
fn protected<S>(
    format: LogFormat,
    level: tracing::Level,
    settings: impl FnOnce() -> Result<S, SettingsError>,
) -> Result<S, ExitCode> {
    let protected = hardening::protect_memory();
    telemetry::start(format, level);
    hardening::silence_panics(|place| tracing::error!(place, "a panic"));
    if let Err(error) = protected {
        tracing::error!(%error, "the program ends");
        return Err(ExitCode::FAILURE);
    }
    settings().map_err(|error| {
        tracing::error!(%error, "the settings are refused");
        ExitCode::from(2)
    })
}

/// Says in one line why a command line is refused; help and the version are shown as they are.
fn refuse(error: &clap::Error) -> ExitCode {
    match config::refusal(error) {
        Some(line) => eprintln!("{line}"),
        None => error.exit(),
    }
    ExitCode::from(2)
}
