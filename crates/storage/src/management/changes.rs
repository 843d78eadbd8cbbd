//! Changes by an operator, a command, or a user in the console. The change, its row in the audit,
//! and the response to a request that may be repeated commit in one transaction, so a process that
//! is killed leaves all of them or none.

use bellbird_domain::{Actor, OperatorKeyId, UserId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::Storage;
use crate::db::Tx;
use crate::error::{Result, StorageError};
use crate::locks::lock_user;
use crate::management::audit::{self, AuditAction};
use crate::management::requests::{self, Found, Idempotency, StoredResponse};

/// How a change begins whose request may be repeated.
#[expect(
    clippy::large_enum_variant,
    reason = "made once for a request and taken apart at once"
)]
pub enum IdempotentStart<'s> {
    New(ManagementChange<'s>),
    /// The request is repeated: nothing is changed, and the response is the same.
    Repeated(StoredResponse),
    /// The `Idempotency-Key` is that of another request.
    KeyInUse,
}

/// A change in progress, with who makes it. Dropping it changes nothing. On SQLite it holds the one
/// writer, so await nothing but writes.
pub struct ManagementChange<'s> {
    storage: &'s Storage,
    tx: Tx,
    actor: Actor,
    owner: Option<UserId>,
    now: Timestamp,
    request: Option<(OperatorKeyId, Idempotency, Uuid)>,
    /// Whom and what the recorded action is about, with its name. None: nothing is recorded yet.
    recorded: Option<(UserId, &'static str, Option<String>)>,
}

impl Storage {
    /// Begins a change by an operator or a command.
    pub async fn begin_change(&self, actor: Actor, now: Timestamp) -> Result<ManagementChange<'_>> {
        Ok(ManagementChange {
            storage: self,
            tx: self.db.begin().await?,
            actor,
            owner: None,
            now,
            request: None,
            recorded: None,
        })
    }

    /// Begins a change by a user in a session of the console. It locks the user's row, so that a
    /// removal of the user finds all rows of the audit.
    pub async fn begin_own_change(
        &self,
        user: UserId,
        session: Uuid,
        now: Timestamp,
    ) -> Result<ManagementChange<'_>> {
        let mut change = self.begin_change(Actor::user(session), now).await?;
        lock_user(&mut change.tx, user).await?;
        change.owner = Some(user);
        Ok(change)
    }

    /// Begins a change that an operator's key requests, with what identifies the request.
    pub async fn begin_repeatable_change(
        &self,
        operator: OperatorKeyId,
        request: Idempotency,
        now: Timestamp,
    ) -> Result<IdempotentStart<'_>> {
        requests::forget_expired(&self.db, operator, &request, now).await?;
        let mut change = self
            .begin_change(Actor::operator_key(operator), now)
            .await?;
        match requests::begin(&mut change.tx, self.secrets(), operator, &request, now).await? {
            Found::Nothing(id) => {
                change.request = Some((operator, request, id));
                Ok(IdempotentStart::New(change))
            }
            Found::Response(response) => Ok(IdempotentStart::Repeated(response)),
            Found::OtherRequest => Ok(IdempotentStart::KeyInUse),
        }
    }
}

impl<'s> ManagementChange<'s> {
    #[must_use]
    pub fn storage(&self) -> &'s Storage {
        self.storage
    }

    /// The transaction, for the writes of this crate.
    pub fn tx(&mut self) -> &mut Tx {
        &mut self.tx
    }

    /// The user who makes the change, and may change nothing else than what is theirs. None: an
    /// operator or a command, who may change everything.
    #[must_use]
    pub fn owner(&self) -> Option<UserId> {
        self.owner
    }

    #[must_use]
    pub fn actor(&self) -> &Actor {
        &self.actor
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Adds the row of the audit. Nothing commits without one.
    pub async fn record(&mut self, action: &AuditAction<'_>) -> Result<()> {
        audit::insert(&mut self.tx, &self.actor, action, self.now).await?;
        self.recorded = Some((action.user_id, action.name, action.subject.clone()));
        Ok(())
    }

    /// The name and the subject of the recorded action, for the log.
    #[must_use]
    pub fn action(&self) -> Option<(&'static str, Option<&str>)> {
        let (_, name, subject) = self.recorded.as_ref()?;
        Some((name, subject.as_deref()))
    }

    /// Commits the change.
    pub async fn commit(self) -> Result<()> {
        self.about()?;
        self.tx.commit().await
    }

    /// Commits the change. `response` is what a repeated request gets.
    pub async fn commit_with(mut self, response: &StoredResponse) -> Result<()> {
        let about = self.about()?;
        if let Some((operator, request, id)) = &self.request {
            let (secrets, request) = (self.storage.secrets(), (*operator, request, *id));
            requests::finish(&mut self.tx, secrets, request, about, response).await?;
        }
        self.tx.commit().await
    }

    /// Whom the recorded action is about.
    fn about(&self) -> Result<UserId> {
        let (user, ..) = self
            .recorded
            .as_ref()
            .ok_or(StorageError::Corrupt("a change without a row in the audit"))?;
        Ok(*user)
    }
}
