//! `bellbird console`: signs users in to the console without e-mail, forgets their identities, and
//! sends a test e-mail.

use anyhow::{Context as _, bail};
use bellbird_console::Mailer;
use bellbird_management::sign_in;
use clap::{Args, Subcommand};
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::arguments::SettingArgs;
use super::user::UserArgs;
use super::{actor, output};
use crate::config::Settings;
use crate::{instances, wiring};

/// Let users sign in to the console.
#[derive(Subcommand)]
pub(super) enum ConsoleCommand {
    /// Print a link with which a user signs in to the console.
    ///
    /// It works once, for ten minutes, in any browser. Keep it secret until it is used: whoever
    /// opens it first can read the user's accounts and make API keys.
    #[command(after_long_help = "Example:
  bellbird console login --user me@example.com")]
    Login(UserArgs),
    /// Forget with which account of the identity provider a user signs in.
    ///
    /// The next account there that has the user's e-mail address, verified, becomes the one of the
    /// user. Sessions that have begun continue.
    #[command(after_long_help = "Example:
  bellbird console forget-identity --user me@example.com")]
    ForgetIdentity(UserArgs),
    TestEmail(TestEmailArgs),
}

/// Send an e-mail by console.smtp_url, to see that it arrives.
///
/// `bellbird doctor` checks the same connection and login without sending anything.
#[derive(Args)]
#[command(after_long_help = "Example:
  bellbird console test-email me@example.com")]
pub(super) struct TestEmailArgs {
    /// The address that gets the e-mail
    address: String,
}

pub(super) async fn run(settings: &SettingArgs, command: ConsoleCommand) -> anyhow::Result<()> {
    let settings = settings.load(None)?;
    match command {
        ConsoleCommand::Login(args) => login(&settings, &args).await,
        ConsoleCommand::ForgetIdentity(args) => forget_identity(&settings, &args).await,
        ConsoleCommand::TestEmail(args) => test_email(&settings, &args).await,
    }
}

async fn login(settings: &Settings, args: &UserArgs) -> anyhow::Result<()> {
    let storage = wiring::open_storage(settings).await?;
    let console_url = instances::console_url(settings, &storage).await?.context(
        "the link needs the URL of the console: set console.public_url, or start the service first",
    )?;
    let user = args.find(&storage).await?;
    if !settings.pages.lets_in_by_link(user.is_operator) {
        bail!(
            "{} is an operator, and with oidc.operators_only_here no link signs in an operator: \
             sign in at the identity provider",
            user.email
        );
    }
    let mut change = actor::begin_change(&storage).await?;
    let url = sign_in::create_link(&mut change, user.id, &console_url).await?;
    change.commit().await?;
    storage.close().await;
    let advice = format!(
        "Open this link in a browser within ten minutes, while the service is running. It signs in {}.",
        user.email
    );
    output::print_with_note(
        &json!({"url": url.expose_secret()}),
        url.expose_secret(),
        &advice,
    )
}

async fn forget_identity(settings: &Settings, args: &UserArgs) -> anyhow::Result<()> {
    let storage = wiring::open_storage(settings).await?;
    let user = args.find(&storage).await?;
    let mut change = actor::begin_change(&storage).await?;
    let forgotten = sign_in::forget_identities(&mut change, user.id).await?;
    change.commit().await?;
    storage.close().await;
    output::print_done(
        &json!({"userId": user.id, "forgotten": forgotten}),
        |_| match forgotten {
            0 => format!("{} has no account of an identity provider.", user.email),
            _ => format!(
                "The account of {} at the identity provider is forgotten.",
                user.email
            ),
        },
    )
}

async fn test_email(settings: &Settings, args: &TestEmailArgs) -> anyhow::Result<()> {
    let email = settings
        .pages
        .email
        .as_ref()
        .context("console.smtp_url is not set, so no e-mails are sent")?;
    // A test needs no database.
    let console_url = instances::known_console_url(settings).await;
    let mailer = Mailer::new(email, console_url.as_str().into());
    let mailer = mailer.context("cannot set up TLS for the mail server")?;
    mailer
        .send_test(&args.address)
        .await
        .context("could not send the e-mail")?;
    let server = email.server();
    output::print_done(&json!({"server": server, "address": args.address}), |_| {
        format!(
            "{server} took an e-mail for {}. See that it arrives.",
            args.address
        )
    })
}
