//! What operators changed: who, when, and about whom. Kept for two years.

use bellbird_domain::{OperatorKeyId, UserId};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use uuid::Uuid;

use crate::OperatorAudit;
use crate::db::{Param, Row, Tx, params, statements};
use crate::error::{Result, StorageError};

const RETENTION: SignedDuration = SignedDuration::from_hours(2 * 365 * 24);

statements! {
    INSERT = "INSERT INTO operator_audit (id, operator_key_id, operator_user_id, action, user_id, subject, recorded_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7)";

    /// Ids are UUIDv7, so the newest come first.
    LIST = "SELECT id, operator_key_id, operator_user_id, action, user_id, subject, recorded_at FROM operator_audit
        WHERE id < $1 ORDER BY id DESC LIMIT $2";

    LIST_OF_USER = "SELECT id, operator_key_id, operator_user_id, action, user_id, subject, recorded_at
        FROM operator_audit WHERE user_id = $3 AND id < $1 ORDER BY id DESC LIMIT $2";

    DELETE_OUTDATED = "DELETE FROM operator_audit WHERE recorded_at <= $1";
}

/// Who changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangedBy {
    /// By API.
    Key(OperatorKeyId),
    /// In the console.
    User(UserId),
}

/// What an operator did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperatorAction<'a> {
    /// Such as `user.create`.
    pub name: &'static str,
    pub user_id: UserId,
    /// The id of what it was about, if that is not the user.
    pub subject: Option<&'a str>,
}

/// A row of the audit, serialized as the API and `--json` show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatorAuditRow {
    pub id: Uuid,
    pub at: Timestamp,
    /// None: a change in the console.
    pub operator_key_id: Option<OperatorKeyId>,
    /// Who was signed in to the console. None: a change by API.
    pub operator_user_id: Option<UserId>,
    pub action: String,
    /// None: it was about an endpoint for all users.
    pub user_id: Option<UserId>,
    pub subject: Option<String>,
}

impl OperatorAudit<'_> {
    /// Rows before this one, newest first, of one user or of all.
    pub async fn list_before(
        self,
        before: Option<Uuid>,
        user: Option<UserId>,
        limit: u32,
    ) -> Result<Vec<OperatorAuditRow>> {
        let (before, limit) = (Param::Id(before.unwrap_or(Uuid::max())), i64::from(limit));
        match user {
            Some(user) => self.0.db.all(LIST_OF_USER, params![before, limit, user], row).await,
            None => self.0.db.all(LIST, params![before, limit], row).await,
        }
    }

    /// Deletes rows that are older than two years. Returns their number.
    pub async fn delete_outdated(self, now: Timestamp) -> Result<u64> {
        let until = now.saturating_sub(RETENTION).map_err(StorageError::unavailable)?;
        self.0.db.run(DELETE_OUTDATED, params![until]).await
    }
}

/// Records an action, in the transaction of the change.
pub(crate) async fn insert(tx: &mut Tx, by: ChangedBy, action: &OperatorAction<'_>, now: Timestamp) -> Result<()> {
    let (key, user) = match by {
        ChangedBy::Key(key) => (Some(key), None),
        ChangedBy::User(user) => (None, Some(user)),
    };
    let OperatorAction { name, user_id, subject } = *action;
    let values = params![Param::Id(Uuid::now_v7()), key, user, name, user_id, subject, now];
    tx.run(INSERT, values).await.map(|_| ())
}

fn row(row: &Row<'_>) -> Result<OperatorAuditRow> {
    Ok(OperatorAuditRow {
        id: row.id(0)?,
        operator_key_id: row.opt_id(1)?,
        operator_user_id: row.opt_id(2)?,
        action: row.text(3)?.to_owned(),
        user_id: Some(row.id(4)?).filter(|user| *user != UserId::INSTALLATION),
        subject: row.opt_text(5)?.map(str::to_owned),
        at: row.time(6)?,
    })
}
