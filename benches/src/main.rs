//! Measures the program `bellbird` from outside, always beside something else in the same run: `docs/benchmarks.md`
//! says what and why.

#![allow(clippy::float_arithmetic, reason = "figures are ratios; no amount of money comes near them")]

mod bare;
mod client;
mod compare;
mod fan_out;
mod figures;
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

/// The same allocator as the service's, so that the bare handler is no slower than it has to be.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure the service.
#[derive(Parser)]
#[command(about, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compare the service with a bare handler, nginx and a provider call; start, memory, provider calls
    Http(HttpArgs),
    /// Run one endpoint under `perf record` and print where the time went
    Profile(ProfileArgs),
    /// Compare the rate of signed events with that of sending them alone; bad receivers beside good ones
    Webhooks(WebhooksArgs),
    /// A receiver of events (started by `webhooks`)
    #[command(hide = true)]
    Receiver,
    /// A server of fixed bytes on the service's HTTP library (started by `http`)
    #[command(hide = true)]
    Bare {
        /// Where the bytes are
        folder: PathBuf,
    },
    /// A provider of fixed bytes (started by `http`)
    #[command(hide = true)]
    Provider {
        /// Where the bytes are
        folder: PathBuf,
    },
}

/// What is measured.
#[derive(Args)]
pub(crate) struct HttpArgs {
    #[command(flatten)]
    program: ProgramArgs,

    /// Only what has this text in its name, such as health, accounts, transactions, start, memory
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Rounds of each comparison, the two sides in turn
    #[arg(long, value_name = "N", default_value_t = 9)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,

    /// Keep-alive connections
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=256))]
    connections: u32,

    /// Keep-alive connections of the memory figure
    #[arg(long, value_name = "N", default_value_t = 256)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    clients: u32,

    /// Requests of each side in a round: the whole number for small answers, a tenth of it for transactions
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(100..))]
    requests: u32,

    /// Print one JSON value instead of a table
    #[arg(long)]
    json: bool,
}

impl HttpArgs {
    /// Whether `name` is to be measured.
    pub(crate) fn is_selected(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }
}

/// What is measured of events.
#[derive(Args)]
pub(crate) struct WebhooksArgs {
    /// Only what has this text in its name, such as postgres, sqlite, one row, 500 rows, bad receivers
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Rounds of each comparison, the two sides in turn
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// Per cent of the events and seconds of a whole round
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    size: u32,

    /// Print one JSON value instead of a table
    #[arg(long)]
    json: bool,
}

impl WebhooksArgs {
    /// Whether `name` is to be measured.
    pub(crate) fn is_selected(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }
}

/// What is profiled.
#[derive(Args)]
pub(crate) struct ProfileArgs {
    #[command(flatten)]
    program: ProgramArgs,

    /// health, connections, categories, balances, accounts or transactions
    endpoint: String,

    /// How long
    #[arg(long, value_name = "N", default_value_t = 10)]
    seconds: u64,

    /// Keep-alive connections
    #[arg(long, value_name = "N", default_value_t = 8)]
    connections: u32,

    /// Where perf's recording goes
    #[arg(long, value_name = "FILE", default_value = "target/perf.data")]
    output: PathBuf,

    /// Record the callers of each sample too (slower)
    #[arg(long)]
    callers: bool,
}

/// Which program is measured.
#[derive(Args)]
pub(crate) struct ProgramArgs {
    /// The program `bellbird`; without it, `target/release/bellbird`
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    // One thread for every role: a load generator that takes both cores would starve what it measures.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match Cli::parse().command {
        Command::Http(args) => {
            let report = runtime.block_on(http(&args))?;
            if args.json { report.print_json() } else { report.print_table() }
        }
        Command::Profile(args) => runtime.block_on(perf::run(&args)),
        // As many threads as the service has.
        Command::Webhooks(args) => {
            let report = tokio::runtime::Runtime::new()?.block_on(webhooks::run(&args))?;
            if args.json { report.print_json() } else { report.print_table() }
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
    Ok(report)
}
