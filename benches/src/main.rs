//! Measures the `bellbird` program from outside, always beside something else in the same run.
//! `docs/benchmarks.md` explains what is measured and why.

#![allow(
    clippy::float_arithmetic,
    reason = "figures are ratios; no amount of money comes near them"
)]

mod bare;
mod client;
mod compare;
mod export;
mod fan_out;
mod figures;
mod instances;
mod memory;
mod nginx;
mod perf;
mod process;
mod provider;
mod recording;
mod service;
mod webhooks;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use figures::Report;

/// The service's allocator, so that the bare handler gets the same memory performance.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure the service
#[derive(Parser)]
#[command(about, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compare the service with a bare handler, nginx and a provider call; measure start, memory
    /// and provider calls
    Http(HttpArgs),
    /// Run one endpoint under `perf record` and print where the time goes
    Profile(ProfileArgs),
    /// Compare webhook delivery with sending alone; measure good receivers beside bad ones
    Webhooks(WebhooksArgs),
    /// Receive webhook events (started by `webhooks`)
    #[command(hide = true)]
    Receiver,
    /// Serve fixed bytes with the service's HTTP library (started by `http`)
    #[command(hide = true)]
    Bare {
        /// Folder of the recorded responses
        folder: PathBuf,
    },
    /// Serve fixed bytes as a provider (started by `http`)
    #[command(hide = true)]
    Provider {
        /// Folder of the recorded responses
        folder: PathBuf,
    },
}

#[derive(Args)]
pub(crate) struct HttpArgs {
    #[command(flatten)]
    program: ProgramArgs,

    /// Measure only names that contain this text, such as health, accounts, transactions, start,
    /// memory, export, two instances
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Rounds of each comparison; the two sides alternate
    #[arg(long, value_name = "N", default_value_t = 9)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,

    /// Number of keep-alive connections
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=256))]
    connections: u32,

    /// Number of keep-alive connections for the memory figure
    #[arg(long, value_name = "N", default_value_t = 256)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    clients: u32,

    /// Requests of each side in a round; transactions use a tenth of it
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(100..))]
    requests: u32,

    /// Print one JSON value instead of a table
    #[arg(long)]
    json: bool,
}

impl HttpArgs {
    pub(crate) fn is_selected(&self, name: &str) -> bool {
        self.only
            .as_ref()
            .is_none_or(|only| name.contains(only.as_str()))
    }
}

#[derive(Args)]
pub(crate) struct WebhooksArgs {
    #[command(flatten)]
    program: ProgramArgs,

    /// Measure only names that contain this text, such as postgres, one row, 500 rows, first sync,
    /// bad receivers, dead endpoints
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Rounds of each comparison; the two sides alternate
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// Percentage of the events and seconds of a full round
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    size: u32,

    /// Print one JSON value instead of a table
    #[arg(long)]
    json: bool,
}

impl WebhooksArgs {
    pub(crate) fn is_selected(&self, name: &str) -> bool {
        self.only
            .as_ref()
            .is_none_or(|only| name.contains(only.as_str()))
    }
}

#[derive(Args)]
pub(crate) struct ProfileArgs {
    #[command(flatten)]
    program: ProgramArgs,

    /// Endpoint: health, connections, categories, balances, accounts or transactions
    endpoint: String,

    /// Duration in seconds
    #[arg(long, value_name = "N", default_value_t = 10)]
    seconds: u64,

    /// Number of keep-alive connections
    #[arg(long, value_name = "N", default_value_t = 8)]
    connections: u32,

    /// File for the recording
    #[arg(long, value_name = "FILE", default_value = "target/perf.data")]
    output: PathBuf,

    /// Record the call stack of each sample (slower)
    #[arg(long)]
    callers: bool,
}

#[derive(Args)]
pub(crate) struct ProgramArgs {
    /// Path of the `bellbird` program [default: target/release/bellbird]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    // The load generator uses one thread: on both cores it would starve the service that it
    // measures.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match Cli::parse().command {
        Command::Http(args) => {
            let report = runtime.block_on(http(&args))?;
            if args.json {
                report.print_json()
            } else {
                report.print_table()
            }
        }
        Command::Profile(args) => runtime.block_on(perf::run(&args)),
        // This process delivers as the service does, so it has as many threads.
        Command::Webhooks(args) => {
            let report = tokio::runtime::Runtime::new()?.block_on(webhooks::run(&args))?;
            if args.json {
                report.print_json()
            } else {
                report.print_table()
            }
        }
        Command::Receiver => runtime.block_on(webhooks::receiver::run()),
        Command::Bare { folder } => tokio::runtime::Runtime::new()?.block_on(bare::run(&folder)),
        Command::Provider { folder } => runtime.block_on(provider::run(&folder)),
    }
}

async fn http(args: &HttpArgs) -> anyhow::Result<Report> {
    let mut report = Report::new(args.rounds, args.connections);
    memory::start(args, &mut report).await?;
    compare::run(args, &mut report).await?;
    fan_out::run(args, &mut report).await?;
    memory::walk(args, &mut report).await?;
    memory::many_clients(args, &mut report).await?;
    export::run(args, &mut report).await?;
    instances::run(args, &mut report).await?;
    Ok(report)
}
