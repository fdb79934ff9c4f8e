//! The hub.

use std::process::ExitCode;

use clap::Parser;
use renderhub::config::{Cli, Command};
use renderhub::{app, telemetry};

#[tokio::main]
async fn main() -> ExitCode {
    let Command::Run(args) = Cli::parse().command;
    telemetry::start(args.log_format, args.log_level);
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
