//! The hub.

use std::process::ExitCode;

use clap::Parser;
use renderhub::config::{Cli, Command};
use renderhub::{app, config, hardening, telemetry};

#[tokio::main]
async fn main() -> ExitCode {
    let protected = hardening::protect_memory();
    let Command::Run(args) = match Cli::try_parse() {
        Ok(cli) => cli.command,
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

/// Says in one line why a command line is refused; help and the version are shown as they are.
fn refuse(error: &clap::Error) -> ExitCode {
    match config::refusal(error) {
        Some(line) => eprintln!("{line}"),
        None => error.exit(),
    }
    ExitCode::from(2)
}
