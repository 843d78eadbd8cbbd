//! `bellbird user`: adds, shows, changes and removes users.

mod remove;

use anyhow::{anyhow, bail};
use bellbird_domain::user::DEFAULT_TIMEZONE;
use bellbird_domain::{Plan, User, UserId};
use bellbird_management::{Refusal, users};
use bellbird_storage::{NewUser, REFERENCE_IN_USE, Storage, UserChange};
use clap::{Args, Subcommand};

use super::arguments::{self, SettingArgs};
use super::{actor, output};
use crate::failure::Failure;
use crate::wiring;
use remove::RemoveArgs;

/// Add, show, change and remove users.
#[derive(Subcommand)]
pub(super) enum UserCommand {
    Add(AddArgs),
    /// List all users.
    #[command(after_long_help = "Example:
  bellbird user list --json | jq -r '.[].email'")]
    List,
    /// Show one user.
    #[command(override_usage = "bellbird user show [OPTIONS] <USER>")]
    #[command(after_long_help = "Example:
  bellbird user show me@example.com")]
    Show(UserRef),
    Set(SetArgs),
    Remove(RemoveArgs),
}

/// Add a user.
#[derive(Args)]
#[command(after_long_help = "Example:
  bellbird user add --email me@example.com --plan professional --timezone Australia/Perth")]
pub(super) struct AddArgs {
    /// E-mail address; must be unique
    #[arg(long, value_parser = arguments::email)]
    email: String,

    /// Plan: saver has no API access, developer has banks only, professional has banks and brokers
    #[arg(long, default_value = "professional", value_parser = arguments::one_of(Plan::ALL, Plan::as_str))]
    plan: Plan,

    /// IANA timezone of the user, in which days begin and end; Australia/Sydney if not set
    #[arg(long, value_name = "TZ", value_parser = arguments::timezone)]
    timezone: Option<String>,

    /// Your own name of the user; must be unique
    #[arg(long, value_parser = arguments::reference)]
    reference: Option<String>,
}

/// Change a user's e-mail address, plan, timezone or reference, make the user an operator, or allow
/// to sign in to the console. A running service applies the change from the next request on.
///
/// A new e-mail address ends the user's sessions in the console. A provider at which the user is
/// registered keeps the old address.
#[derive(Args)]
#[command(
    override_usage = "bellbird user set <USER> [--email <EMAIL>] [--plan <PLAN>] [--timezone <TZ> | --no-timezone] \
                      [--reference <REFERENCE> | --no-reference] \
                      [--operator | --no-operator] [--console-sign-in | --no-console-sign-in]"
)]
#[command(after_long_help = "Example:
  bellbird user set me@example.com --plan developer")]
#[command(group(clap::ArgGroup::new("change").required(true).multiple(true)))]
pub(super) struct SetArgs {
    #[command(flatten)]
    user: UserRef,

    /// New e-mail address; must be unique
    #[arg(long, value_parser = arguments::email, group = "change")]
    email: Option<String>,

    /// New plan
    #[arg(long, value_parser = arguments::one_of(Plan::ALL, Plan::as_str), group = "change")]
    plan: Option<Plan>,

    /// New IANA timezone
    #[arg(long, value_name = "TZ", value_parser = arguments::timezone, group = "change")]
    timezone: Option<String>,

    /// Reset the timezone to the default
    #[arg(long, conflicts_with = "timezone", group = "change")]
    no_timezone: bool,

    /// New name of your own; must be unique
    #[arg(long, value_parser = arguments::reference, group = "change")]
    reference: Option<String>,

    /// Remove the reference
    #[arg(long, conflicts_with = "reference", group = "change")]
    no_reference: bool,

    /// Show the user the pages for operators, which manage all users, after the next sign-in
    #[arg(long, group = "change")]
    operator: bool,

    /// Hide the pages for operators again
    #[arg(long, conflicts_with = "operator", group = "change")]
    no_operator: bool,

    /// Let the user sign in to the console and get e-mails, because the e-mail address is verified
    /// to be the user's
    #[arg(long, group = "change")]
    console_sign_in: bool,

    /// End the user's sessions in the console, forget the account at the identity provider, and
    /// send no e-mails
    #[arg(long, conflicts_with = "console_sign_in", group = "change")]
    no_console_sign_in: bool,
}

/// The user that a command is about.
#[derive(Args)]
pub(super) struct UserArgs {
    /// E-mail address or id of the user
    #[arg(long)]
    user: String,
}

impl UserArgs {
    pub(super) async fn find(&self, storage: &Storage) -> anyhow::Result<User> {
        find_user(storage, &self.user).await
    }
}

#[derive(Args)]
pub(super) struct UserRef {
    /// E-mail address or id of the user
    #[arg(value_name = "USER", required_unless_present = "flag")]
    positional: Option<String>,

    /// The same as USER
    #[arg(long = "user", value_name = "USER", conflicts_with = "positional")]
    flag: Option<String>,
}

/// Arguments of lists that can be limited to one user.
#[derive(Args)]
pub(super) struct UserFilter {
    /// Show only those of this user: e-mail address or id
    #[arg(long)]
    user: Option<String>,
}

impl UserFilter {
    /// `None`: all users.
    pub(super) async fn find(&self, storage: &Storage) -> anyhow::Result<Option<User>> {
        find_optional_user(storage, self.user.as_deref()).await
    }
}

impl UserRef {
    async fn find(&self, storage: &Storage) -> anyhow::Result<User> {
        let given = self
            .positional
            .as_deref()
            .or(self.flag.as_deref())
            .unwrap_or_default();
        find_user(storage, given).await
    }
}

/// A remark for who makes a key of a user whose plan has no API access.
pub(super) fn note_plan(user: &User) {
    if user.plan == Plan::Saver {
        output::note(&format!(
            "The plan {} reads no accounts by API: `bellbird user set {} --plan developer` changes that",
            user.plan, user.email
        ));
    }
}

fn details(user: &User) -> String {
    let timezone = user
        .timezone
        .clone()
        .unwrap_or_else(|| format!("{DEFAULT_TIMEZONE} (by default)"));
    output::details(&[
        ("id", &user.id),
        ("e-mail", &user.email),
        ("plan", &user.plan),
        ("timezone", &timezone),
        ("reference", &output::or_dash(user.reference.as_ref())),
        ("operator", &yes_or_no(user.is_operator)),
        ("console sign-in", &yes_or_no(user.console_sign_in)),
        ("created", &output::format_instant(user.created_at)),
    ])
}

fn yes_or_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

pub(super) async fn run(settings: &SettingArgs, command: UserCommand) -> anyhow::Result<()> {
    let settings = settings.load(None)?;
    let storage = wiring::open_storage(&settings).await?;
    if let UserCommand::Remove(_) = command {
        // It calls providers.
        wiring::require_ready(&settings, &storage).await?;
    }
    let result = match command {
        UserCommand::Add(args) => add(&storage, &args).await,
        UserCommand::List => list(&storage).await,
        UserCommand::Show(user) => {
            let user = user.find(&storage).await?;
            output::print(&user, details)
        }
        UserCommand::Set(args) => set(&storage, &args).await,
        UserCommand::Remove(args) => remove::run(&settings, &storage, &args).await,
    };
    storage.close().await;
    result
}

/// Finds a user by e-mail address or id.
pub(super) async fn find_user(storage: &Storage, given: &str) -> anyhow::Result<User> {
    let found = match given.parse::<UserId>() {
        Ok(id) => storage.users().find(id).await?,
        Err(_) => storage.users().find_by_email(given.trim()).await?,
    };
    found.ok_or_else(|| {
        Failure::not_found(format!(
            "there is no user {given}: `bellbird user list` shows all of them"
        ))
    })
}

/// As [`find_user`]. `None`: no user is named.
pub(super) async fn find_optional_user(
    storage: &Storage,
    given: Option<&str>,
) -> anyhow::Result<Option<User>> {
    match given {
        Some(given) => find_user(storage, given).await.map(Some),
        None => Ok(None),
    }
}

async fn add(storage: &Storage, args: &AddArgs) -> anyhow::Result<()> {
    let (timezone, reference) = (args.timezone.as_deref(), args.reference.as_deref());
    let new = NewUser {
        email: &args.email,
        plan: args.plan,
        timezone,
        reference,
        console_sign_in: true,
    };
    let mut change = actor::begin_change(storage).await?;
    let created = users::create(&mut change, &new).await;
    let user = match created {
        Err(Refusal::InUse(REFERENCE_IN_USE)) => {
            drop(change);
            return Err(reference_in_use(storage, reference).await?);
        }
        Err(Refusal::InUse(_)) => {
            let email = &args.email;
            bail!("the user {email} already exists: change it with `bellbird user set {email}`")
        }
        other => other?,
    };
    change.commit().await?;
    let next = format!(
        "Added. Next: `bellbird key create --user {} --name NAME`",
        user.email
    );
    output::print_with_note(&user, &details(&user), &next)
}

/// The error that names who has the reference.
async fn reference_in_use(
    storage: &Storage,
    reference: Option<&str>,
) -> anyhow::Result<anyhow::Error> {
    let reference = reference.unwrap_or_default();
    let found = storage.users().find_by_reference(reference).await?;
    let owner = found.map_or_else(|| "another user".to_owned(), |user| user.email);
    Ok(anyhow!(
        "{owner} has the reference {reference}: choose another one"
    ))
}

async fn list(storage: &Storage) -> anyhow::Result<()> {
    let users = storage.users().list().await?;
    let none = "No users yet. Add one with `bellbird user add --email EMAIL`.";
    let head = ["e-mail", "plan", "timezone", "operator", "created", "id"];
    let row = |user: &User| {
        output::row![
            user.email,
            user.plan,
            output::or_dash(user.timezone.as_ref()),
            yes_or_no(user.is_operator),
            output::format_instant(user.created_at),
            user.id,
        ]
    };
    if users.iter().all(|user| user.reference.is_none()) {
        return output::print_list(&users, none, head, row, &[]);
    }
    let [email, plan, timezone, operator, created, id] = head;
    let head = [email, "reference", plan, timezone, operator, created, id];
    let row = |user: &User| {
        let reference = output::or_dash(user.reference.as_ref());
        let [email, plan, timezone, operator, created, id] = row(user);
        [email, reference, plan, timezone, operator, created, id]
    };
    output::print_list(&users, none, head, row, &[])
}

async fn set(storage: &Storage, args: &SetArgs) -> anyhow::Result<()> {
    let user = args.user.find(storage).await?;
    let timezone = if args.no_timezone {
        Some(None)
    } else {
        args.timezone.as_deref().map(Some)
    };
    let reference = if args.no_reference {
        Some(None)
    } else {
        args.reference.as_deref().map(Some)
    };
    let is_operator = (args.operator || args.no_operator).then_some(args.operator);
    // Whoever runs the command answers for the address.
    let console_sign_in = match (args.console_sign_in, args.no_console_sign_in) {
        (false, false) => user.console_sign_in,
        (allowed, _) => allowed,
    };
    let change = UserChange {
        email: args.email.as_deref(),
        plan: args.plan,
        timezone,
        reference,
        is_operator,
        console_sign_in: Some(console_sign_in),
    };
    let mut update = actor::begin_change(storage).await?;
    let updated = users::update(&mut update, user.id, &change).await;
    let user = match updated {
        Err(Refusal::InUse(REFERENCE_IN_USE)) => {
            drop(update);
            return Err(reference_in_use(storage, args.reference.as_deref()).await?);
        }
        Err(Refusal::InUse(_)) => bail!(
            "another user has the e-mail address {}: `bellbird user list` shows all of them",
            args.email.as_deref().unwrap_or_default()
        ),
        other => other?,
    };
    update.commit().await?;
    output::print_with_note(&user, &details(&user), "Changed.")
}
