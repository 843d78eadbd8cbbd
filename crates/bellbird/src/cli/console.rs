//! `bellbird console`: signs users in to the console without e-mail.

use anyhow::Context as _;
use bellbird_console::create_sign_in_link;
use bellbird_storage::Storage;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::arguments::SettingArgs;
use super::connection::console_url;
use super::output::{self, JsonFlag};
use super::user::find_user;
use crate::config::Settings;
use crate::wiring;

/// Let users sign in to the console.
#[derive(Debug, Subcommand)]
pub(super) enum ConsoleCommand {
    Login(LoginArgs),
}

/// Print a link with which a user signs in to the console.
///
/// It works once, for ten minutes, in any browser. Keep it secret until it is used: whoever opens it first can read the
/// user's accounts and make API keys.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  bellbird console login --user me@example.com")]
pub(super) struct LoginArgs {
    /// E-mail address or id of the user
    #[arg(long)]
    user: String,

    #[command(flatten)]
    format: JsonFlag,
}

pub(super) async fn run(settings: &SettingArgs, command: ConsoleCommand) -> anyhow::Result<()> {
    let settings = settings.load(None)?;
    let storage = wiring::open_storage(&settings).await?;
    let result = match command {
        ConsoleCommand::Login(args) => login(&settings, &storage, &args).await,
    };
    storage.close().await;
    result
}

async fn login(settings: &Settings, storage: &Storage, args: &LoginArgs) -> anyhow::Result<()> {
    let console_url = console_url(settings, storage)
        .await?
        .context("the link needs the URL of the console: set console.public_url, or start the service first")?;
    let user = find_user(storage, &args.user).await?;
    let url = create_sign_in_link(storage, user.id, &console_url, Timestamp::now()).await?;
    output::print(args.format, &json!({"url": url.expose_secret()}), |_| url.expose_secret().to_owned())?;
    if !args.format.json {
        output::note(&format!(
            "Open this link in a browser within ten minutes, while the service is running. It signs in {}.",
            user.email
        ));
    }
    Ok(())
}
