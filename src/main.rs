//! The hub.

use std::process::ExitCode;

use clap::Parser;
use renderhub::config::{Cli, Command};
use renderhub::probe::{Patience, ProbeArgs};
use renderhub::{app, config, hardening, probe, telemetry};

#[tokio::main]
async fn main() -> ExitCode {
    let protected = hardening::protect_memory();
    let args = match Cli::try_parse().map(|cli| cli.command) {
        Ok(Command::Run(args)) => args,
        Ok(Command::Probe(args)) => return look(&args).await,
        Err(error) => return refuse(&error),
    };
    telemetry::start(args.log_format, args.log_level);
    hardening::silence_panics(|place| tracing::error!(place, "a panic"));
    if let Err(error) = protected {
        tracing::error!(%error, "the hub ends");
        return ExitCode::FAILURE;
    }
    let settings = match args.settings() {
        Ok(settings) => settings,
        Err(error) => {
            tracing::error!(%error, "the settings are refused");
            return ExitCode::from(2);
        }
    };
    match app::run(settings).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the hub ends");
            ExitCode::FAILURE
        }
    }
}

async fn look(args: &ProbeArgs) -> ExitCode {
    match probe::run(args, Patience::default()).await {
        Ok(()) => {
            println!("everything is as it should be");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Says in one line why a command line is refused; help and the version are shown as they are.
fn refuse(error: &clap::Error) -> ExitCode {
    match config::refusal(error) {
        Some(line) => eprintln!("{line}"),
        None => error.exit(),
    }
    ExitCode::from(2)
}
