//! `bellbird key`: creates, lists, rotates and revokes API keys.

mod find;

use anyhow::{Context as _, anyhow};
use bellbird_domain::{KeyStatus, TimestampExt as _, User};
use bellbird_management::Refusal;
use bellbird_management::keys::{self, CreatedKey, NewKey};
use bellbird_management::values::KeyName;
use bellbird_storage::{KeyRecord, Storage};
use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::json;

use super::actor;
use super::arguments::{self, SettingArgs};
use super::output::{self, format_instant};
use super::user::{UserArgs, UserFilter, note_plan};
use crate::wiring;
use find::KeyRef;

/// Create, list, show, rotate and revoke API keys.
#[derive(Subcommand)]
pub(super) enum KeyCommand {
    Create(CreateArgs),
    /// List API keys, without the keys themselves.
    #[command(after_long_help = "Example:
  bellbird key list --user me@example.com")]
    List(UserFilter),
    /// Show one API key, without the key itself.
    #[command(after_long_help = "Example:
  bellbird key show laptop")]
    Show(KeyRef),
    Rotate(RotateArgs),
    /// Revoke a key immediately.
    ///
    /// If a key and the one that replaces it have the same name, the name is that of the old key.
    #[command(after_long_help = "Examples:
  bellbird key revoke laptop --user me@example.com
  bellbird key revoke 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f")]
    Revoke(KeyRef),
}

/// Create an API key. It is shown only once; the database stores only its hash.
#[derive(Args)]
#[command(after_long_help = "Example:
  bellbird key create --user me@example.com --name laptop --expires 90d")]
pub(super) struct CreateArgs {
    #[command(flatten)]
    user: UserArgs,

    /// Name of the key, to recognise it in lists
    #[arg(long, default_value = "default", value_parser = arguments::key_name)]
    name: KeyName,

    /// Lifetime of the key, such as 30s, 15m, 24h or 90d; by default it does not expire
    #[arg(long, value_name = "DURATION", value_parser = arguments::positive_duration)]
    expires: Option<SignedDuration>,
}

/// Replace a key; the old one stays valid for a grace period.
///
/// The new key has the name and the expiry of the old one.
#[derive(Args)]
#[command(after_long_help = "Examples:
  bellbird key rotate laptop --grace 1h
  bellbird key rotate 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f")]
pub(super) struct RotateArgs {
    #[command(flatten)]
    key: KeyRef,

    /// How long the old key stays valid; 0h ends it immediately
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = arguments::duration)]
    grace: SignedDuration,
}

/// A created key of a user or an operator, as `--json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewKeyView<'a> {
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<&'a str>,
    pub key: &'a str,
    pub name: &'a str,
    pub prefix: &'a str,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
}

impl<'a> NewKeyView<'a> {
    fn new(user: &'a str, created: &'a CreatedKey) -> Self {
        let record = &created.record;
        Self {
            id: record.id.to_string(),
            user: Some(user),
            key: created.key.expose(),
            name: &record.name,
            prefix: &record.prefix,
            created_at: record.created_at,
            expires_at: record.expires_at,
        }
    }

    fn advice(&self) -> String {
        let until = self
            .expires_at
            .map_or_else(|| "until revoked".to_owned(), |at| format!("until {at:.0}"));
        format!(
            "Store this key: it is not shown again. Id {}, valid {until}.",
            self.id
        )
    }

    pub(super) fn print(&self) -> anyhow::Result<()> {
        output::print_with_note(self, self.key, &self.advice())
    }
}

/// A key in a list, as `--json` prints it.
#[derive(Serialize)]
struct KeyView {
    user: String,
    status: KeyStatus,
    #[serde(flatten)]
    record: KeyRecord,
}

impl KeyView {
    fn row(&self) -> [String; 8] {
        let record = &self.record;
        output::row![
            self.user,
            record.name,
            format_args!("{}...", record.prefix),
            self.status,
            format_instant(record.created_at),
            format_instant(record.last_used_at),
            format_instant(record.expires_at),
            record.id,
        ]
    }
}

fn is_active(key: &KeyRecord, now: Timestamp) -> bool {
    key.status(now) == KeyStatus::Active
}

pub(super) async fn run(settings: &SettingArgs, command: KeyCommand) -> anyhow::Result<()> {
    let storage = wiring::open_storage(&settings.load(None)?).await?;
    let result = match command {
        KeyCommand::Create(args) => create(&storage, &args).await,
        KeyCommand::List(args) => list(&storage, &args).await,
        KeyCommand::Show(key) => show(&storage, &key).await,
        KeyCommand::Rotate(args) => rotate(&storage, &args).await,
        KeyCommand::Revoke(key) => revoke(&storage, &key).await,
    };
    storage.close().await;
    result
}

async fn create(storage: &Storage, args: &CreateArgs) -> anyhow::Result<()> {
    let user = args.user.find(storage).await?;
    let mut change = actor::begin_change(storage).await?;
    let now = change.now();
    let new = NewKey {
        user_id: user.id,
        name: Some(&args.name),
        expires_at: args.expires.map(|length| now.plus(length)),
    };
    let created = keys::create(&mut change, new).await?;
    change.commit().await?;
    NewKeyView::new(&user.email, &created).print()?;
    note_plan(&user);
    let (record, keys) = (&created.record, storage.keys().list(user.id).await?);
    let namesakes = keys
        .iter()
        .filter(|other| other.name == record.name && is_active(other, now))
        .count();
    if namesakes > 1 {
        let (email, name) = (&user.email, &record.name);
        output::note(&format!(
            "{email} now has {namesakes} active keys with the name {name}, so `key rotate` and `key revoke` need the \
             id of the one that you mean"
        ));
    }
    Ok(())
}

/// The keys of a user, or of all, each with the user's e-mail address.
async fn keys_of(
    storage: &Storage,
    user: Option<User>,
) -> anyhow::Result<Vec<(String, KeyRecord)>> {
    let users = match user {
        Some(user) => vec![user],
        None => storage.users().list().await?,
    };
    let mut keys = Vec::new();
    for user in users {
        let of_user = storage.keys().list(user.id).await?;
        keys.extend(of_user.into_iter().map(|key| (user.email.clone(), key)));
    }
    Ok(keys)
}

async fn list(storage: &Storage, args: &UserFilter) -> anyhow::Result<()> {
    let keys = keys_of(storage, args.find(storage).await?).await?;
    let now = Timestamp::now();
    let views: Vec<_> = keys
        .into_iter()
        .map(|(user, record)| KeyView {
            user,
            status: record.status(now),
            record,
        })
        .collect();
    let none = "No keys yet. Create one with `bellbird key create --user USER --name NAME`.";
    let head = [
        "user",
        "name",
        "key",
        "status",
        "created",
        "last used",
        "expires",
        "id",
    ];
    output::print_list(&views, none, head, KeyView::row, &[])
}

async fn show(storage: &Storage, key: &KeyRef) -> anyhow::Result<()> {
    let record = key.find(storage).await?;
    // Empty unless a setup token created the key.
    let history = storage
        .setup_tokens()
        .list_key_audit(record.user_id, record.id)
        .await?;
    let view = view(storage, record, Timestamp::now()).await?;
    let shown = output::with_members(&view, json!({"history": history}));
    output::print(&shown, |_| {
        let record = &view.record;
        let text = output::details(&[
            ("id", &record.id),
            ("user", &view.user),
            ("name", &record.name),
            ("key", &format_args!("{}...", record.prefix)),
            ("status", &view.status),
            ("created", &format_instant(record.created_at)),
            ("last used", &format_instant(record.last_used_at)),
            ("expires", &format_instant(record.expires_at)),
            ("revoked", &format_instant(record.revoked_at)),
        ]);
        if history.is_empty() {
            return text;
        }
        let events = history
            .iter()
            .map(|row| output::row![format_instant(row.at), row.event]);
        format!("{text}\n\n{}", output::table(["at", "event"], events))
    })
}

async fn rotate(storage: &Storage, args: &RotateArgs) -> anyhow::Result<()> {
    let old = args.key.find(storage).await?;
    let email = email_of(storage, &old).await?;
    let mut change = actor::begin_change(storage).await?;
    let status = old.status(change.now());
    let rotated = keys::rotate(&mut change, old.id, args.grace).await;
    let rotated = rotated.map_err(|refusal| match refusal {
        Refusal::KeyEnded => anyhow!(
            "the key {} is {status}: create a new one with `bellbird key create`",
            old.id
        ),
        other => other.into(),
    })?;
    change.commit().await?;
    let (new, replaced) = (NewKeyView::new(&email, &rotated.new), &rotated.old);
    let old = json!({"oldKeyId": replaced.id, "oldKeyExpiresAt": replaced.expires_at});
    let advice = format!(
        "{}\nThe old key {}... works until {}. To end it now: `bellbird key revoke {}`",
        new.advice(),
        replaced.prefix,
        format_instant(replaced.expires_at),
        replaced.id
    );
    output::print_with_note(&output::with_members(&new, old), new.key, &advice)
}

async fn revoke(storage: &Storage, key: &KeyRef) -> anyhow::Result<()> {
    let record = key.find_to_revoke(storage).await?;
    let mut change = actor::begin_change(storage).await?;
    let now = change.now();
    let revoked = keys::revoke(&mut change, record.id).await?;
    change.commit().await?;
    let view = view(storage, revoked, now).await?;
    output::print_done(&view, |view| {
        format!("Revoked the key {} of {}.", view.record.name, view.user)
    })
}

async fn view(storage: &Storage, record: KeyRecord, now: Timestamp) -> anyhow::Result<KeyView> {
    Ok(KeyView {
        user: email_of(storage, &record).await?,
        status: record.status(now),
        record,
    })
}

async fn email_of(storage: &Storage, key: &KeyRecord) -> anyhow::Result<String> {
    let user = storage.users().find(key.user_id).await?;
    Ok(user.context("the key's user was removed meanwhile")?.email)
}
