//! Who changed what, when, and about whom: operators, commands, and users in the console. Kept for
//! two years.

use bellbird_domain::{Actor, ActorKind, TimestampExt as _, UserId};
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use crate::Audit;
use crate::connections::audit::AUDIT_RETENTION;
use crate::db::{Row, Tx, named, params, statements};
use crate::error::Result;
use crate::outdated::{delete_in_steps, delete_some};

/// The columns that [`row`] expects, in its order.
macro_rules! columns {
    () => {
        "id, actor_kind, actor_id, action, user_id, subject, detail, recorded_at"
    };
}

/// The filter, and the page.
macro_rules! filtered {
    () => {
        "id < :before AND action LIKE :action AND (:kind = '' OR actor_kind = :kind)
            AND (:actor = '' OR actor_id = :actor) AND recorded_at >= :since AND recorded_at < :until
            ORDER BY id DESC LIMIT :limit"
    };
}

/// Rows of what a user did that are kept: those of five hours in which forms are sent all the time.
const OWN_ROWS_MAX: i64 = 10_000;

statements! {
    INSERT = "INSERT INTO audit
            (id, actor_kind, actor_id, action, user_id, subject, detail, is_reported, recorded_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

    /// Ids are UUIDv7, so the newest come first.
    LIST_OF_OPERATORS = concat!(
        "SELECT ", columns!(), " FROM audit WHERE actor_kind <> 'user' AND ", filtered!()
    );

    LIST_OF_USER = concat!("SELECT ", columns!(), " FROM audit WHERE user_id = :user AND ", filtered!());

    FIND_LAST_BACKUP = "SELECT MAX(recorded_at) FROM audit WHERE action = 'database.backup' AND recorded_at <= $1";

    FIND_CREATED_AT = "SELECT MIN(applied_at) FROM schema_migrations";

    DELETE_OWN = "DELETE FROM audit WHERE user_id = $1 AND actor_kind = 'user'";

    DELETE_EXCESS = "DELETE FROM audit WHERE user_id = $1 AND actor_kind = 'user' AND id <= (
            SELECT id FROM audit WHERE user_id = $1 AND actor_kind = 'user' ORDER BY id DESC LIMIT 1 OFFSET $2)";

    HAS_OUTDATED = "SELECT id FROM audit WHERE recorded_at <= $1 LIMIT 1";

    DELETE_OUTDATED = delete_some!("audit", "id", "recorded_at <= $1", ""),
        on_postgres = delete_some!("audit", "id", "recorded_at <= $1", " FOR UPDATE SKIP LOCKED");
}

/// What somebody did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditAction<'a> {
    /// The subject and the verb, such as `user.create`.
    pub name: &'static str,
    /// [`UserId::INSTALLATION`]: it was about no user.
    pub user_id: UserId,
    /// The id of what it was about, if that is not the user.
    pub subject: Option<String>,
    /// What the user calls that, for a list and for an e-mail. Stored if the user did it.
    pub detail: &'a str,
    /// What changed, without secrets and without what would name the user, because it outlives
    /// them. Stored if the user did not do it.
    pub changed: &'a str,
}

impl<'a> AuditAction<'a> {
    /// An action that is about a user, and nothing of theirs.
    #[must_use]
    pub const fn of_user(name: &'static str, user_id: UserId) -> Self {
        Self {
            name,
            user_id,
            subject: None,
            detail: "",
            changed: "",
        }
    }

    /// An action that is about no user.
    #[must_use]
    pub const fn of_installation(name: &'static str) -> Self {
        Self::of_user(name, UserId::INSTALLATION)
    }

    /// With the id of what it was about.
    #[must_use]
    pub fn about(self, subject: impl ToString) -> Self {
        Self {
            subject: Some(subject.to_string()),
            ..self
        }
    }

    /// With what the user calls the subject.
    #[must_use]
    pub fn called(self, detail: &'a str) -> Self {
        Self { detail, ..self }
    }

    /// With what changed, such as `plan: saver → developer`.
    #[must_use]
    pub fn changing(self, changed: &'a str) -> Self {
        Self { changed, ..self }
    }

    /// Whether an e-mail tells the user of it: somebody else may have done it, and it reads the
    /// accounts.
    fn is_reported(&self, by: ActorKind) -> bool {
        match by {
            ActorKind::User => matches!(
                self.name,
                "key.create"
                    | "key.rotate"
                    | "setup_token.create"
                    | "webhook_endpoint.create"
                    | "webhook_endpoint.update"
            ),
            _ => self.name == "sign_in_link.create",
        }
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditRow {
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub id: Uuid,
    #[schema(value_type = String, format = "date-time", example = "2026-08-01T02:10:00.25Z")]
    pub at: Timestamp,
    pub actor: Actor,
    /// The subject and the verb, such as `key.create`. The list may grow.
    #[schema(example = "key.create")]
    pub action: String,
    /// Null: the action is about the installation, such as an endpoint for all users.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    #[schema(example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub user_id: Option<UserId>,
    /// The id of what it was about, such as a key; of `key.rotate` the old one. Null: the action is
    /// about the user.
    #[schema(required = true, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub subject: Option<String>,
    /// What the user calls it: the browser, the name of the key or the URL of the endpoint. Of
    /// `user.update`, or if an operator did it, what changed, such as `plan: saver → developer`.
    /// Null: neither is known.
    #[schema(required = true, example = "Firefox on Linux")]
    pub detail: Option<String>,
}

/// Which rows a list has. The default has all that operators did.
#[derive(Debug, Clone, Copy, Default)]
pub struct AuditFilter<'a> {
    /// All that was done to this user, also by the user.
    pub user: Option<UserId>,
    /// The subject of the actions, such as `key`. Empty: any.
    pub subject: &'a str,
    pub actor_kind: Option<ActorKind>,
    pub actor_id: Option<&'a str>,
    pub since: Option<Timestamp>,
    /// Rows of this time are not listed.
    pub until: Option<Timestamp>,
}

impl Audit<'_> {
    /// Rows before this one, newest first: of what operators did, or of all that was done to one
    /// user, also by that user in the console.
    pub async fn list_before(
        self,
        before: Option<Uuid>,
        user: Option<UserId>,
        limit: u32,
    ) -> Result<Vec<AuditRow>> {
        let filter = AuditFilter {
            user,
            ..AuditFilter::default()
        };
        self.list_matching(&filter, before, limit).await
    }

    /// As [`Self::list_before`], the rows that match.
    pub async fn list_matching(
        self,
        filter: &AuditFilter<'_>,
        before: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<AuditRow>> {
        // An underscore in a subject matches itself too, and no two subjects differ by one only.
        let action = match filter.subject {
            "" => "%".to_owned(),
            subject => format!("{subject}.%"),
        };
        let mut values = named![
            before = before.unwrap_or(Uuid::max()),
            action = &action,
            kind = filter.actor_kind.map_or("", |kind| kind.as_str()),
            actor = filter.actor_id.unwrap_or_default(),
            since = filter.since.unwrap_or(Timestamp::UNIX_EPOCH),
            until = filter.until.unwrap_or(Timestamp::MAX),
            limit = limit
        ]
        .to_vec();
        let list = match filter.user {
            Some(user) => {
                values.push(("user", user.into()));
                LIST_OF_USER
            }
            None => LIST_OF_OPERATORS,
        };
        let (list, values) = list.with(&values);
        self.db.all(list, &values, row).await
    }

    /// When the last backup was recorded. One of a clock that was ahead would hide for as long that
    /// none is made.
    pub async fn last_backup_at(self, now: Timestamp) -> Result<Option<Timestamp>> {
        self.db.value(FIND_LAST_BACKUP, params![now]).await
    }

    /// As [`Self::last_backup_at`]. Without one, when a SQLite database was created, because only
    /// Bellbird itself can copy it safely. PostgreSQL may have backups that nobody records.
    pub async fn unsaved_since(self, now: Timestamp) -> Result<Option<Timestamp>> {
        match self.last_backup_at(now).await? {
            None if self.kind() == "sqlite" => self.db.value(FIND_CREATED_AT, params![]).await,
            last => Ok(last),
        }
    }

    /// Deletes rows that are older than two years. Returns their number.
    pub async fn delete_outdated(self, now: Timestamp) -> Result<u64> {
        let until = now.minus(AUDIT_RETENTION);
        delete_in_steps(&self.db, HAS_OUTDATED, DELETE_OUTDATED, until.into()).await
    }
}

/// Records an action, in the transaction of the change.
pub(crate) async fn insert(
    tx: &mut Tx,
    by: &Actor,
    action: &AuditAction<'_>,
    now: Timestamp,
) -> Result<()> {
    let what = (action.name, action.user_id, action.subject.as_deref());
    let detail = match by.kind {
        ActorKind::User => Some(action.detail),
        _ => Some(action.changed).filter(|changed| !changed.is_empty()),
    };
    insert_row(tx, by, what, detail, action.is_reported(by.kind), now).await?;
    if by.kind == ActorKind::User {
        delete_excess(tx, action.user_id, OWN_ROWS_MAX).await?;
    }
    Ok(())
}

/// Deletes the oldest rows of what a user did in the console, beyond a number of them.
pub(crate) async fn delete_excess(tx: &mut Tx, user: UserId, kept: i64) -> Result<()> {
    tx.execute(DELETE_EXCESS, params![user, kept]).await
}

/// Records the begin of a session. An e-mail tells of a browser in which the user was never signed
/// in.
pub(crate) async fn insert_sign_in(
    tx: &mut Tx,
    (user, session): (UserId, Uuid),
    browser: &str,
    is_new_browser: bool,
    now: Timestamp,
) -> Result<()> {
    let what = ("session.create", user, None);
    insert_row(
        tx,
        &Actor::user(session),
        what,
        Some(browser),
        is_new_browser,
        now,
    )
    .await
}

/// Deletes what a user did in the console.
pub(crate) async fn delete_own(tx: &mut Tx, user: UserId) -> Result<()> {
    tx.execute(DELETE_OWN, params![user]).await
}

async fn insert_row(
    tx: &mut Tx,
    by: &Actor,
    (action, user, subject): (&str, UserId, Option<&str>),
    detail: Option<&str>,
    is_reported: bool,
    now: Timestamp,
) -> Result<()> {
    let id = Uuid::now_v7();
    let values = params![
        id,
        by.kind,
        &by.id,
        action,
        user,
        subject,
        detail,
        is_reported,
        now
    ];
    tx.execute(INSERT, values).await
}

fn row(row: &Row<'_>) -> Result<AuditRow> {
    Ok(AuditRow {
        id: row.get(0)?,
        actor: Actor {
            kind: row.get(1)?,
            id: row.get(2)?,
        },
        action: row.get(3)?,
        user_id: Some(row.get(4)?).filter(|user| *user != UserId::INSTALLATION),
        subject: row.get(5)?,
        detail: row.get(6)?,
        at: row.get(7)?,
    })
}
