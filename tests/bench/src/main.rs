//! What renderhub costs, measured against a bare writer in the same run; see `docs/benchmarks.md`.
//!
//! The program is the bench, with the subcommand `soak` the soak, and with a hidden one one of the processes that the bench starts
//! besides the hub: the Job finisher, the bare writer, and one that does nothing.

mod audit;
mod bare;
mod burst;
mod finisher;
mod instances;
mod measure;
mod names;
mod objects;
mod options;
mod paced;
mod pipeline;
mod pull_secrets;
mod remote;
mod report;
mod restart;
mod rights;
mod share;
mod soak;
mod wire;
mod world;

use anyhow::Result;
use clap::Parser;

use options::{Cli, Command, Options};
use report::Report;
use world::World;

#[tokio::main]
async fn main() -> Result<()> {
    let cli = Cli::parse();
    match cli.command {
        Some(Command::Finisher(args)) => finisher::run(&args).await,
        Some(Command::Bare { part, in_flight }) => bare::run(&part, in_flight).await,
        Some(Command::BareFleet {
            part,
            writes,
            in_flight,
        }) => pipeline::run_bare(&part, writes, in_flight).await,
        Some(Command::Soak(soak)) => soak::run(&cli.options, &soak).await,
        Some(Command::Idle) => std::future::pending().await,
        None => measure_all(&cli.options).await,
    }
}

/// Measures everything, prints the tables and writes them as JSON. A missed target is a line of the table, not an error.
async fn measure_all(options: &Options) -> Result<()> {
    if options.names.only_names {
        return names::measure(options).await;
    }
    if options.pipeline.only_pipeline {
        return pipeline::measure(options).await;
    }
    if options.pull_secrets.only_pull_secrets {
        return pull_secrets::measure(options).await;
    }
    let (remote, instances) = (&options.remote, &options.instances);
    let is_only_remote = remote.only_remote || remote.only_dead;
    if !is_only_remote && !instances.only_instances {
        measure_local(options).await?;
    }
    if !remote.without_remote && !instances.only_instances {
        let report = remote::measure(options).await?;
        println!("{report}");
        report.write(&remote.output()?)?;
    }
    if !instances.without_instances && !is_only_remote {
        let report = instances::measure(options).await;
        println!("{report}");
        report.write(&instances.output()?)?;
        report.check()?;
    }
    Ok(())
}

async fn measure_local(options: &Options) -> Result<()> {
    let mut report = Report::new(options);
    let world = World::start(options, true).await?;
    report.burst = Some(burst::measure(&world, options.rounds).await?);
    for rate in options.rates() {
        report.paced.push(paced::measure(&world, rate).await?);
    }
    if options.restart_tasks > 0 {
        report.restart = Some(restart::measure(&world).await?);
    }
    drop(world);
    if !options.only_with_policy {
        let world = World::start(options, false).await?;
        report.burst_without_policy = Some(burst::measure(&world, options.rounds).await?);
    }
    println!("{report}");
    report.write(&options.output()?)
}
