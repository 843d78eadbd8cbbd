//! `bellbird operator-key`: creates, lists and revokes keys for the operator's API, and shows what
//! was done with them.

use std::collections::HashMap;

use bellbird_domain::{ActorKind, KeyStatus, OperatorKeyId, TimestampExt as _};
use bellbird_management::values::KeyName;
use bellbird_management::{Refusal, operator_keys};
use bellbird_storage::{AuditRow, OperatorKeyRecord, Storage};
use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::actor;
use super::arguments::{self, SettingArgs};
use super::key::NewKeyView;
use super::output::{self, format_instant, or_dash};
use super::user::UserFilter;
use crate::failure::Failure;
use crate::wiring;

/// Create, list and revoke keys of the operator's API, and show what was done with them.
///
/// Keep such a key as safe as the master key, because it opens everything: its holder manages all
/// users by API. The key itself reads no balance and no transaction, but it makes keys that do, and
/// endpoints that get every row.
#[derive(Subcommand)]
pub(super) enum OperatorKeyCommand {
    Create(CreateArgs),
    /// List operator keys, without the keys themselves.
    #[command(after_long_help = "Example:
  bellbird operator-key list")]
    List,
    Revoke(RevokeArgs),
    Audit(AuditArgs),
}

/// Create an operator key. It is shown only once; the database stores only its hash.
#[derive(Args)]
#[command(after_long_help = "Example:
  bellbird operator-key create --name backend --expires 365d")]
pub(super) struct CreateArgs {
    /// Name of the key, to recognise it in lists
    #[arg(long, value_parser = arguments::key_name)]
    name: KeyName,

    /// Lifetime of the key, such as 30s, 15m, 24h or 90d; by default it does not expire
    #[arg(long, value_name = "DURATION", value_parser = arguments::positive_duration)]
    expires: Option<SignedDuration>,
}

/// Revoke an operator key immediately.
#[derive(Args)]
#[command(after_long_help = "Example:
  bellbird operator-key revoke 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f")]
pub(super) struct RevokeArgs {
    /// Id of the key, as `operator-key list` shows it
    #[arg(value_parser = arguments::operator_key_id)]
    id: OperatorKeyId,
}

/// Show what operators and commands changed, newest first: of the last two years, also of users who
/// are gone.
///
/// With --user, also what the user did in the console.
#[derive(Args)]
#[command(after_long_help = "Example:
  bellbird operator-key audit --user me@example.com")]
pub(super) struct AuditArgs {
    /// Show at most this many changes
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    #[command(flatten)]
    filter: UserFilter,
}

/// A key in a list, as `--json` prints it.
#[derive(Serialize)]
struct KeyView {
    status: KeyStatus,
    #[serde(flatten)]
    record: OperatorKeyRecord,
}

impl KeyView {
    fn row(&self) -> [String; 7] {
        let record = &self.record;
        output::row![
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

pub(super) async fn run(settings: &SettingArgs, command: OperatorKeyCommand) -> anyhow::Result<()> {
    let storage = wiring::open_storage(&settings.load(None)?).await?;
    let result = match command {
        OperatorKeyCommand::Create(args) => create(&storage, &args).await,
        OperatorKeyCommand::List => list(&storage).await,
        OperatorKeyCommand::Revoke(args) => revoke(&storage, &args).await,
        OperatorKeyCommand::Audit(args) => audit(&storage, &args).await,
    };
    storage.close().await;
    result
}

async fn create(storage: &Storage, args: &CreateArgs) -> anyhow::Result<()> {
    let mut change = actor::begin_change(storage).await?;
    let now = change.now();
    let expires_at = args.expires.map(|length| now.plus(length));
    let created = operator_keys::create(&mut change, &args.name, expires_at).await?;
    change.commit().await?;
    let record = &created.record;
    let view = NewKeyView {
        id: record.id.to_string(),
        user: None,
        key: created.key.expose(),
        name: &record.name,
        prefix: &record.prefix,
        created_at: record.created_at,
        expires_at: record.expires_at,
    };
    view.print()
}

async fn list(storage: &Storage) -> anyhow::Result<()> {
    let now = Timestamp::now();
    let keys = storage.operator_keys().list().await?;
    let views: Vec<_> = keys
        .into_iter()
        .map(|record| KeyView {
            status: record.status(now),
            record,
        })
        .collect();
    let none = "No operator keys yet. Create one with `bellbird operator-key create --name NAME`.";
    let head = [
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

async fn revoke(storage: &Storage, args: &RevokeArgs) -> anyhow::Result<()> {
    let mut change = actor::begin_change(storage).await?;
    let now = change.now();
    let record = match operator_keys::revoke(&mut change, args.id).await {
        Err(Refusal::NotFound(_)) => {
            let list = "operator-key list";
            return Err(Failure::unknown_id("operator key", args.id, list));
        }
        other => other?,
    };
    change.commit().await?;
    let status = record.status(now);
    let view = KeyView { status, record };
    output::print_done(&view, |view| {
        format!("Revoked the operator key {}.", view.record.name)
    })
}

async fn audit(storage: &Storage, args: &AuditArgs) -> anyhow::Result<()> {
    let user = args.filter.find(storage).await?.map(|user| user.id);
    let rows = storage.audit().list_before(None, user, args.limit).await?;
    let names = Names::of(storage).await?;
    let head = ["at", "action", "user", "subject", "detail", "by"];
    let row = |row: &AuditRow| names.row(row);
    output::print_list(&rows, "No changes yet.", head, row, &[])
}

/// E-mail addresses of users and names of operator keys, by id. Those that are removed have none.
struct Names(HashMap<String, String>);

impl Names {
    async fn of(storage: &Storage) -> anyhow::Result<Self> {
        let users = storage.users().list().await?.into_iter();
        let keys = storage.operator_keys().list().await?.into_iter();
        let users = users.map(|user| (user.id.to_string(), user.email));
        let keys = keys.map(|key| (key.id.to_string(), key.name));
        Ok(Self(users.chain(keys).collect()))
    }

    fn name(&self, id: &str) -> String {
        self.0.get(id).map_or(id, String::as_str).to_owned()
    }

    fn row(&self, row: &AuditRow) -> [String; 6] {
        let by = match row.actor.kind {
            ActorKind::Command => format!("command of {}", row.actor.id),
            ActorKind::OperatorKey => format!("key {}", self.name(&row.actor.id)),
            ActorKind::Operator => self.name(&row.actor.id),
            ActorKind::User => "the user".to_owned(),
        };
        let detail = row.detail.as_ref().filter(|detail| !detail.is_empty());
        output::row![
            format_instant(row.at),
            row.action,
            or_dash(row.user_id.map(|id| self.name(&id.to_string()))),
            or_dash(row.subject.as_ref()),
            or_dash(detail),
            by,
        ]
    }
}
