//! `bellbird simplefin`: setup tokens for programs that speak SimpleFIN.

use anyhow::Context as _;
use bellbird_domain::UserId;
use bellbird_management::setup_tokens;
use bellbird_management::values::KeyName;
use bellbird_storage::Storage;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use super::arguments::{self, SettingArgs};
use super::user::{UserArgs, note_plan};
use super::{actor, output};
use crate::config::Settings;
use crate::{instances, wiring};

/// Let programs that speak SimpleFIN read accounts.
#[derive(Subcommand)]
pub(super) enum SimplefinCommand {
    Token(TokenArgs),
    /// Revoke the setup tokens of a user that no program has claimed yet.
    ///
    /// For a token that somebody else may have seen. A claimed token is used up, and `bellbird key
    /// revoke` ends the access of the key that its claim created.
    #[command(after_long_help = "Example:
  bellbird simplefin revoke --user me@example.com")]
    Revoke(UserArgs),
}

/// Print a setup token, which a user pastes into a program such as Actual Budget.
///
/// The program claims the token once, within an hour, and gets an API key of this user. `key list`
/// shows the key under the given name, and `key revoke` ends its access. Keep the token secret
/// until it is claimed.
#[derive(Args)]
#[command(after_long_help = "Example:
  bellbird simplefin token --user me@example.com --name Actual")]
pub(super) struct TokenArgs {
    #[command(flatten)]
    user: UserArgs,

    /// Name of the API key that the claim creates
    #[arg(long, default_value = "SimpleFIN", value_parser = arguments::key_name)]
    name: KeyName,
}

pub(super) async fn run(settings: &SettingArgs, command: SimplefinCommand) -> anyhow::Result<()> {
    let settings = settings.load(None)?;
    let storage = wiring::open_storage(&settings).await?;
    let result = match command {
        SimplefinCommand::Token(args) => token(&settings, &storage, &args).await,
        SimplefinCommand::Revoke(args) => revoke(&storage, &args).await,
    };
    storage.close().await;
    result
}

async fn revoke(storage: &Storage, args: &UserArgs) -> anyhow::Result<()> {
    let user = args.find(storage).await?;
    let mut change = actor::begin_change(storage).await?;
    let revoked = setup_tokens::revoke(&mut change, user.id).await?;
    change.commit().await?;
    output::print_done(&json!({"revoked": revoked}), |_| match revoked {
        0 => "No setup token was waiting. `bellbird key list` shows the keys of claimed ones."
            .to_owned(),
        1 => "1 setup token revoked.".to_owned(),
        count => format!("{count} setup tokens revoked."),
    })
}

async fn token(settings: &Settings, storage: &Storage, args: &TokenArgs) -> anyhow::Result<()> {
    let api_url = instances::api_url(settings, storage).await?.context(
        "the token needs the URL of the API: set api.public_url, or start the service first",
    )?;
    let user = args.user.find(storage).await?;
    let (token, expires_at) =
        create_setup_token(storage, user.id, Some(&args.name), &api_url).await?;
    let token = token.expose_secret();
    let advice = format!(
        "Paste this token into the program within an hour, while the service is running. It lets the program \
         read what the plan of {} allows, at {api_url}.",
        user.email
    );
    output::print_with_note(
        &json!({"token": token, "expiresAt": expires_at}),
        token,
        &advice,
    )?;
    note_plan(&user);
    Ok(())
}

/// Stores a new setup token. Returns its text for a program, and when it expires.
pub(super) async fn create_setup_token(
    storage: &Storage,
    user_id: UserId,
    name: Option<&KeyName>,
    api_url: &str,
) -> anyhow::Result<(SecretString, Timestamp)> {
    let mut change = actor::begin_change(storage).await?;
    let created = setup_tokens::create(&mut change, user_id, name).await?;
    change.commit().await?;
    Ok((created.text(api_url), created.expires_at))
}
