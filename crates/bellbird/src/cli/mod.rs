//! The command line. Each command has its own module.

mod actor;
mod arguments;
mod ask;
mod audit;
mod backup;
mod completions;
mod connection;
mod console;
#[cfg(feature = "sandbox")]
mod demo;
mod doctor;
mod export;
mod init;
mod key;
mod listener;
mod man;
mod mcp;
mod migrate;
mod openapi;
mod operator_key;
mod output;
mod ready;
mod record;
mod restore;
#[cfg(feature = "sandbox")]
mod sandbox;
mod secrets;
mod serve;
mod service_client;
mod simplefin;
mod status;
mod user;
mod webhook;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser, Subcommand};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::instances::VERSION;
use arguments::{ListenArgs, SettingArgs};

/// First example of the help text, if this build has the command.
const DEMO_EXAMPLE: &str = if cfg!(feature = "sandbox") {
    "Begin here, without an account anywhere and without settings:\n  bellbird demo\n\n"
} else {
    ""
};

const HOST_EXAMPLE: &str = "\
Host it. The first start makes all that it needs, and prints the address of a page that goes on from there:
  bellbird serve

The same in a terminal:
  bellbird init

See what is missing or wrong:
  bellbird doctor

Exit status: 0 success, 1 failure, 2 invalid usage.";

/// A self-hosted, read-only JSON API over the bank and brokerage accounts that users have linked.
///
/// Balances, transactions, holdings and trades are fetched live from the providers and never
/// stored.
#[derive(Parser)]
#[command(name = "bellbird", version = VERSION, disable_help_subcommand = true)]
#[command(after_long_help = format!("{DEMO_EXAMPLE}{HOST_EXAMPLE}"))]
struct Cli {
    #[command(flatten)]
    settings: SettingArgs,

    /// Print a single JSON value on standard output
    #[arg(long, global = true, display_order = output::JSON_POSITION)]
    json: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[cfg(feature = "sandbox")]
    Demo(demo::DemoArgs),
    Init(init::InitArgs),
    Serve(serve::ServeArgs),
    #[cfg(feature = "sandbox")]
    Sandbox(sandbox::SandboxArgs),
    /// Create the database or apply pending migrations.
    ///
    /// `serve` and `demo` also do this when they start. Run it separately before a rolling update
    /// of several instances.
    #[command(after_long_help = "Example:
  BELLBIRD_DATABASE__URL=postgres://bellbird@db/bellbird bellbird migrate")]
    Migrate,
    Backup(backup::BackupArgs),
    Restore(restore::RestoreArgs),
    /// Show the running instances, and the settings file and database of this command.
    ///
    /// Also shows what differs between the instances and the settings of this command. An instance
    /// that was killed is shown for 20 more seconds. Changes nothing and calls no provider. Exits
    /// with status 1 only if the database cannot be read.
    #[command(after_long_help = "Example:
  bellbird status --json | jq '.instances[].apiUrl'")]
    Status,
    /// Ask the running service whether it can serve, for health checks.
    ///
    /// Asks `/ready` of the ops listener of these settings, on this machine. Opens no database.
    /// Exits with status 1, and the reason, if the service is not ready or does not run.
    #[command(after_long_help = "Example, in compose.yaml:
  healthcheck: {test: [CMD, bellbird, ready]}")]
    Ready,
    /// Check settings, database, secrets, instances, providers, jobs and ports.
    ///
    /// Changes nothing. Exits with status 1 if a check fails.
    #[command(after_long_help = "Example:
  bellbird doctor --config /etc/bellbird.toml")]
    Doctor(ListenArgs),
    Audit(audit::AuditArgs),
    Record(record::RecordArgs),
    Export(export::ExportArgs),
    /// Let an assistant read the accounts: MCP over standard input and output.
    ///
    /// Passes messages to a running service, which it finds at BELLBIRD_URL (default
    /// http://127.0.0.1:8080). It calls with the API key in BELLBIRD_KEY. Uses no settings and no
    /// database. Ends when standard input ends.
    #[command(after_long_help = "Example, as an assistant starts it:
  BELLBIRD_URL=https://bank.example.com BELLBIRD_KEY=bb_... bellbird mcp")]
    Mcp,
    Openapi(openapi::OpenapiArgs),
    Completions(completions::CompletionsArgs),
    /// For packages.
    #[command(hide = true)]
    Man(man::ManArgs),
    #[command(subcommand)]
    User(user::UserCommand),
    #[command(subcommand)]
    Key(key::KeyCommand),
    #[command(subcommand)]
    OperatorKey(operator_key::OperatorKeyCommand),
    #[command(subcommand)]
    Connection(connection::ConnectionCommand),
    #[command(subcommand)]
    Console(console::ConsoleCommand),
    #[command(subcommand)]
    Webhook(webhook::WebhookCommand),
    #[command(subcommand)]
    Simplefin(simplefin::SimplefinCommand),
    #[command(subcommand)]
    Secrets(secrets::SecretsCommand),
}

pub fn run() -> ExitCode {
    forbid_core_files();
    crate::telemetry::hide_panic_messages();
    bellbird_providers::http::pool::set_version(VERSION);
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let is_json = std::env::args_os()
                .take_while(|argument| argument != "--")
                .any(|argument| argument == "--json");
            output::set_json(is_json);
            return output::report_usage(&error);
        }
    };
    output::set_json(cli.json);
    output::set_data_dir_flag(cli.settings.data_dir_flag());
    match block_on(execute(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::report_failure(&error),
    }
}

fn block_on(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.enable_all().build();
    let runtime = runtime.context("could not start threads")?;
    let result = runtime.block_on(command);
    // Do not wait for tasks that still run: their shutdown grace period is over.
    runtime.shutdown_background();
    result
}

/// A core file would hold the master keys, and rows of requests in flight.
fn forbid_core_files() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // Lowering a limit is always allowed.
    let _ = setrlimit(Resource::Core, none);
}

async fn execute(cli: Cli) -> anyhow::Result<()> {
    let settings = cli.settings;
    match cli.command {
        #[cfg(feature = "sandbox")]
        Command::Demo(args) => demo::run(&settings, &args).await,
        Command::Init(args) => init::run(&settings, &args).await,
        Command::Serve(args) => serve::run(&settings, &args).await,
        #[cfg(feature = "sandbox")]
        Command::Sandbox(args) => sandbox::run(&settings, &args).await,
        Command::Migrate => migrate::run(&settings).await,
        Command::Backup(args) => backup::run(&settings, &args).await,
        Command::Restore(args) => restore::run(&settings, &args).await,
        Command::Status => status::run(&settings).await,
        Command::Ready => ready::run(&settings).await,
        Command::Doctor(listen) => doctor::run(&settings, &listen).await,
        Command::Audit(args) => audit::run(&settings, &args).await,
        Command::Record(args) => record::run(&settings, &args).await,
        Command::Export(args) => export::run(&settings, &args).await,
        Command::Mcp => mcp::run().await,
        Command::Openapi(args) => openapi::run(&args),
        Command::Completions(args) => completions::run(&args, &mut Cli::command()),
        Command::Man(args) => man::run(&args, Cli::command()),
        Command::User(command) => user::run(&settings, command).await,
        Command::Key(command) => key::run(&settings, command).await,
        Command::OperatorKey(command) => operator_key::run(&settings, command).await,
        Command::Connection(command) => connection::run(&settings, command).await,
        Command::Webhook(command) => webhook::run(&settings, command).await,
        Command::Console(command) => console::run(&settings, command).await,
        Command::Simplefin(command) => simplefin::run(&settings, command).await,
        Command::Secrets(command) => secrets::run(&settings, command).await,
    }
}
