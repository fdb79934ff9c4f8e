//! The hub.

use std::process::ExitCode;

use clap::Parser;
use renderhub::config::{Cli, Command, PreflightArgs, RunArgs, Settings};
use renderhub::{app, config, telemetry};

#[tokio::main]
async fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => match cli.command {
            Command::Run(args) => run(&args).await,
            Command::Preflight(args) => preflight(&args).await,
        },
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
        Ok((text, is_good)) => {
            print!("{text}");
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

/// Starts logging; the settings, or the exit code of a program whose settings are refused.
fn settings(args: &RunArgs) -> Result<Settings, ExitCode> {
    telemetry::start(args.log_format, args.log_level);
    args.settings().map_err(|error| {
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
