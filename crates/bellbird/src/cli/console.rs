//! `bellbird console`: signs users in to the console without e-mail, and forgets their identities.

use anyhow::Context as _;
use bellbird_console::create_sign_in_link;
use bellbird_storage::{Storage, StorageError};
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
    ForgetIdentity(ForgetIdentityArgs),
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

/// Forget with which account of the identity provider a user signs in.
///
/// The next account there that has the user's e-mail address, verified, becomes the one of the user. Sessions that have
/// begun continue.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  bellbird console forget-identity --user me@example.com")]
pub(super) struct ForgetIdentityArgs {
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
        ConsoleCommand::ForgetIdentity(args) => forget_identity(&storage, &args).await,
    };
    storage.close().await;
    result
}

async fn login(settings: &Settings, storage: &Storage, args: &LoginArgs) -> anyhow::Result<()> {
    let console_url = console_url(settings, storage)
        .await?
        .context("the link needs the URL of the console: set console.public_url, or start the service first")?;
    let user = find_user(storage, &args.user).await?;
    let url =
        create_sign_in_link(storage, user.id, &console_url, Timestamp::now()).await.map_err(|error| match error {
            StorageError::Conflict(why) => anyhow::anyhow!("{why}"),
            error => error.into(),
        })?;
    output::print(args.format, &json!({"url": url.expose_secret()}), |_| url.expose_secret().to_owned())?;
    if !args.format.json {
        output::note(&format!(
            "Open this link in a browser within ten minutes, while the service is running. It signs in {}.",
            user.email
        ));
    }
    Ok(())
}

async fn forget_identity(storage: &Storage, args: &ForgetIdentityArgs) -> anyhow::Result<()> {
    let user = find_user(storage, &args.user).await?;
    let forgotten = storage.sessions().forget_identities(user.id).await?;
    output::print(args.format, &json!({"userId": user.id, "forgotten": forgotten}), |_| match forgotten {
        0 => format!("{} has no account of an identity provider.", user.email),
        _ => format!("The account of {} at the identity provider is forgotten.", user.email),
    })
}
