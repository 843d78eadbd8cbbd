//! Imports connections: stores the credentials and accounts that linking obtained, or that the
//! command line was given.
//!
//! If no connection has the consent, the import creates one. If one has it, the import renews that
//! connection. If the user repairs a connection with another consent, the connection keeps its id
//! and gets that consent.

use bellbird_domain::{Connection, ConnectionCategory, ConnectionId, ConnectionStatus, UserId};
use jiff::Timestamp;
use secrecy::SecretString;

use crate::connections::account_merge;
use crate::connections::accounts::NewAccount;
use crate::connections::audit::{self, StatusChange};
use crate::connections::connection::{self, select_connections, write_last_refreshed_at};
use crate::connections::{events, syncs};
use crate::db::{Param, Sql, Tx, named, pair, params, statements, strip_nul};
use crate::digest::provider_user_digest;
use crate::error::Result;
use crate::jobs::{self, ClaimedJob, JobKey, job_kinds};
use crate::locks::bump_revision;
use crate::secrets::store::SecretSlot;
use crate::{Connections, StorageError};

statements! {
    FIND_BY_CONSENT = select_connections!("WHERE provider = $1 AND provider_connection_id = $2");

    FIND_CONSENT_OF = "SELECT provider_connection_id, provider_user_digest FROM connections
        WHERE user_id = $1 AND id = $2";

    INSERT = "INSERT INTO connections (user_id, id, provider, category, provider_connection_id, institution_id,
            institution_name, institution_logo, status, created_at, provider_user_digest, consent_expires_at,
            backfill_ends_at)
        VALUES (:user, :connection, :provider, :category, :consent, :institution, :name, :logo, :status, :now,
            :provider_user, :consent_expires_at, :backfill_ends_at)";

    UPDATE = "UPDATE connections SET category = :category, institution_id = :institution, institution_name = :name,
            institution_logo = :logo, status = 'active', provider_connection_id = :consent,
            provider_user_digest = COALESCE(:provider_user, provider_user_digest),
            consent_expires_at = :consent_expires_at, consent_notice_days = NULL, backfill_ends_at = :backfill_ends_at
        WHERE user_id = :user AND id = :connection";
}

const CONSENT_TAKEN: &str = "the consent belongs to another connection";

/// A connection to store.
#[derive(Debug, Clone, Copy)]
pub struct NewConnection<'a> {
    pub user_id: UserId,
    pub provider: &'a str,
    pub category: ConnectionCategory,
    /// The provider's id of the consent. No two connections share one.
    pub provider_connection_id: &'a str,
    /// The provider's id of the institution.
    pub institution_id: &'a str,
    pub institution_name: &'a str,
    pub institution_logo: Option<&'a str>,
    /// JSON that the adapter reads the connection with. It is sealed before it is stored.
    pub credentials: &'a SecretString,
    /// The provider's id of the user who gave the consent. None keeps a known one.
    pub provider_user_id: Option<&'a str>,
    /// When the consent ends. None forgets a known time.
    pub consent_expires_at: Option<Timestamp>,
    /// The connection of the same user that this consent repairs. It keeps its id, and this consent
    /// replaces its own.
    pub repairs: Option<ConnectionId>,
    /// The next refresh. An earlier one that is planned stays. None: only on request.
    pub next_refresh_at: Option<Timestamp>,
    /// Until then, accounts may still appear, and a refresh deletes none.
    pub backfill_ends_at: Option<Timestamp>,
    /// The first sync. If the connection exists and its next sync is earlier, that time stays.
    pub next_sync_at: Timestamp,
    /// When the first attempts to deliver the webhook event of a new or repaired connection are
    /// due.
    pub first_attempt_at: Timestamp,
    /// The audit cause of a new connection, as one word.
    pub cause: &'a str,
}

/// A stored connection, with the change of its status, if there was one.
type Upserted<'a> = (ConnectionId, Option<StatusChange<'a>>);

impl Connections<'_> {
    /// Stores a new connection, or renews the user's connection with the same consent. Renewing
    /// replaces the credentials, institution and accounts, sets the status to `active`, and keeps
    /// all ids. One transaction; no account is deleted. If `accounts` is not empty,
    /// `last_refreshed_at` becomes `now`.
    ///
    /// With `repairs`, that connection is renewed with this consent. If its former consent differs,
    /// it must be withdrawn: it moves to a new connection with the status `deleting`, whose removal
    /// is due at once. If the connection to repair is gone or being deleted, `repairs` is ignored.
    ///
    /// # Errors
    /// [`StorageError::Conflict`] if the consent belongs to another user or connection, if its
    /// connection is being deleted, or if the connection to repair is at another provider.
    /// [`StorageError::NotFound`] if the user does not exist.
    pub async fn import(
        self,
        new: &NewConnection<'_>,
        accounts: &[NewAccount<'_>],
        now: Timestamp,
    ) -> Result<Connection> {
        let mut tx = self.db.begin().await?;
        let imported = self.import_in(&mut tx, new, accounts, now).await?;
        tx.commit().await?;
        Ok(imported)
    }

    /// As [`Self::import`], for the consent session that a job works on. None, and nothing changes,
    /// if the lease was lost: the user may have denied the session since.
    pub async fn import_for(
        self,
        session: &ClaimedJob,
        new: &NewConnection<'_>,
        accounts: &[NewAccount<'_>],
        now: Timestamp,
    ) -> Result<Option<Connection>> {
        let Some(mut tx) = jobs::begin_held(&self.db, session).await? else {
            return Ok(None);
        };
        let imported = self.import_in(&mut tx, new, accounts, now).await?;
        tx.commit().await?;
        Ok(Some(imported))
    }

    async fn import_in(
        self,
        tx: &mut Tx,
        new: &NewConnection<'_>,
        accounts: &[NewAccount<'_>],
        now: Timestamp,
    ) -> Result<Connection> {
        let user = new.user_id;
        bump_revision(tx, user).await?;
        let (id, status_change) = self.upsert_connection(tx, new, now).await?;
        self.secrets()
            .store(tx, &SecretSlot::credentials(user, id), new.credentials)
            .await?;
        account_merge::merge_accounts(tx, user, id, accounts, None).await?;
        if !accounts.is_empty() {
            write_last_refreshed_at(tx, user, id, now).await?;
        }
        if let Some(change) = status_change {
            events::record(tx, &change, now, new.first_attempt_at).await?;
        }
        let imported = connection::find(tx, user, id).await?;
        imported.ok_or(StorageError::NotFound("connection"))
    }

    /// Stores the removal of a consent that no connection has: a hidden connection, whose removal
    /// withdraws the consent. The audit trail records the cause of `new`. Does nothing if a
    /// connection has the consent. Returns false, and changes nothing, if the lease of the consent
    /// session's job was lost.
    pub async fn withdraw_unconnected(
        self,
        session: &ClaimedJob,
        new: &NewConnection<'_>,
        now: Timestamp,
    ) -> Result<bool> {
        let Some(mut tx) = jobs::begin_held(&self.db, session).await? else {
            return Ok(false);
        };
        bump_revision(&mut tx, new.user_id).await?;
        if find_by_consent(&mut tx, new).await?.is_some() {
            tx.rollback().await;
            return Ok(true);
        }
        let provider_user = new.provider_user_id.map(provider_user_digest);
        let id = insert_hidden(&mut tx, new, provider_user.as_deref(), None, now).await?;
        let credentials = SecretSlot::credentials(new.user_id, id);
        self.secrets()
            .store(&mut tx, &credentials, new.credentials)
            .await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Inserts or updates the connection's row, without its credentials.
    async fn upsert_connection<'a>(
        self,
        tx: &mut Tx,
        new: &NewConnection<'a>,
        now: Timestamp,
    ) -> Result<Upserted<'a>> {
        let existing = find_by_consent(tx, new).await?;
        let broken = match new.repairs {
            Some(id) => connection::find(tx, new.user_id, id).await?,
            None => None,
        };
        match (existing, broken) {
            (Some(existing), Some(broken)) if existing.id != broken.id => {
                Err(StorageError::Conflict(CONSENT_TAKEN))
            }
            (None, Some(broken)) => self.replace(tx, &broken, new, now).await,
            (Some(existing), _) => renew(tx, &existing, new, now).await,
            (None, None) => insert(tx, new, now).await,
        }
    }

    /// Gives a connection another consent, and creates the removal of its former one.
    async fn replace(
        self,
        tx: &mut Tx,
        broken: &Connection,
        new: &NewConnection<'_>,
        now: Timestamp,
    ) -> Result<Upserted<'static>> {
        if broken.provider != new.provider {
            return Err(StorageError::Conflict(
                "the connection to repair belongs to another provider",
            ));
        }
        let user = broken.user_id;
        let former = tx
            .one(FIND_CONSENT_OF, params![user, broken.id], pair)
            .await?;
        let (consent, provider_user): (String, Option<String>) =
            former.ok_or(StorageError::NotFound("connection"))?;
        let renewed = renew(tx, broken, new, now).await?;
        let former = NewConnection {
            category: broken.category,
            provider_connection_id: &consent,
            institution_id: &broken.institution_id,
            institution_name: &broken.institution_name,
            institution_logo: broken.institution_logo.as_deref(),
            cause: "replaced",
            ..*new
        };
        let (digest, from) = (provider_user.as_deref(), Some(broken.status));
        let former_id = insert_hidden(tx, &former, digest, from, now).await?;
        self.secrets()
            .copy(
                tx,
                &SecretSlot::credentials(user, broken.id),
                &SecretSlot::credentials(user, former_id),
            )
            .await?;
        Ok(renewed)
    }
}

async fn insert<'a>(tx: &mut Tx, new: &NewConnection<'a>, now: Timestamp) -> Result<Upserted<'a>> {
    let (user, connection) = (new.user_id, ConnectionId::new());
    let status = ConnectionStatus::Active;
    let digest = new.provider_user_id.map(provider_user_digest);
    insert_row(tx, connection, new, digest.as_deref(), status, now).await?;
    syncs::begin_backfill(tx, user, connection, now).await?;
    for (key, run_at) in planned_jobs(user, connection, new) {
        jobs::insert(tx, &key, new.provider, run_at).await?;
    }
    let change = StatusChange {
        user,
        connection,
        from: None,
        to: Some(status),
        cause: new.cause,
    };
    Ok((connection, Some(change)))
}

/// Inserts a connection that is being removed, without its credentials and the end of its consent.
/// `from`: of whose consent this is, the status that it had.
async fn insert_hidden(
    tx: &mut Tx,
    new: &NewConnection<'_>,
    provider_user_digest: Option<&str>,
    from: Option<ConnectionStatus>,
    now: Timestamp,
) -> Result<ConnectionId> {
    let (user, connection, to) = (new.user_id, ConnectionId::new(), ConnectionStatus::Deleting);
    let hidden = NewConnection {
        consent_expires_at: None,
        backfill_ends_at: None,
        ..*new
    };
    insert_row(tx, connection, &hidden, provider_user_digest, to, now).await?;
    let removal = JobKey::new(job_kinds::REMOVAL, user, connection);
    jobs::insert(tx, &removal, new.provider, Some(now)).await?;
    let change = StatusChange {
        user,
        connection,
        from,
        to: Some(to),
        cause: new.cause,
    };
    audit::record(tx, &change, now).await?;
    Ok(connection)
}

async fn insert_row(
    tx: &mut Tx,
    connection: ConnectionId,
    new: &NewConnection<'_>,
    provider_user_digest: Option<&str>,
    status: ConnectionStatus,
    now: Timestamp,
) -> Result<()> {
    let more = named![provider = new.provider, status = status, now = now];
    write_row(tx, INSERT, connection, new, provider_user_digest, more).await
}

/// Runs [`INSERT`] or [`UPDATE`], with what both have in common and `more`.
async fn write_row(
    tx: &mut Tx,
    write: Sql,
    connection: ConnectionId,
    new: &NewConnection<'_>,
    provider_user_digest: Option<&str>,
    more: &[(&'static str, Param<'_>)],
) -> Result<()> {
    let consent = strip_nul(new.provider_connection_id);
    let (institution, name) = (
        strip_nul(new.institution_id),
        strip_nul(new.institution_name),
    );
    let logo = new.institution_logo.map(strip_nul);
    let common = named![
        user = new.user_id,
        connection = connection,
        category = new.category,
        consent = &*consent,
        institution = &*institution,
        name = &*name,
        logo = logo.as_deref(),
        provider_user = provider_user_digest,
        consent_expires_at = new.consent_expires_at,
        backfill_ends_at = new.backfill_ends_at,
    ];
    let (write, values) = write.with(&[&common[..], more].concat());
    // Another user may have imported the consent since [`FIND_BY_CONSENT`].
    tx.execute_or_conflict(write, &values, CONSENT_TAKEN).await
}

async fn renew(
    tx: &mut Tx,
    before: &Connection,
    new: &NewConnection<'_>,
    now: Timestamp,
) -> Result<Upserted<'static>> {
    if before.user_id != new.user_id {
        return Err(StorageError::Conflict(CONSENT_TAKEN));
    }
    if before.status == ConnectionStatus::Deleting {
        return Err(StorageError::Conflict(
            "the connection of this consent is being deleted",
        ));
    }
    let (user, connection, status) = (before.user_id, before.id, ConnectionStatus::Active);
    let digest = new.provider_user_id.map(provider_user_digest);
    write_row(tx, UPDATE, connection, new, digest.as_deref(), &[]).await?;
    syncs::begin_backfill(tx, user, connection, now).await?;
    // A running refresh or sync loses its lease: it holds the old credentials, and its result says
    // nothing about the new ones.
    for (key, run_at) in planned_jobs(user, connection, new) {
        jobs::restart(tx, &key, run_at).await?;
    }
    let change = StatusChange {
        user,
        connection,
        from: Some(before.status),
        to: Some(status),
        cause: "reconnected",
    };
    Ok((connection, (before.status != status).then_some(change)))
}

/// The connection of any user that has the consent.
async fn find_by_consent(tx: &mut Tx, new: &NewConnection<'_>) -> Result<Option<Connection>> {
    let consent = strip_nul(new.provider_connection_id);
    let values = params![new.provider, &*consent];
    tx.one(FIND_BY_CONSENT, values, connection::connection)
        .await
}

fn planned_jobs(
    user: UserId,
    connection: ConnectionId,
    new: &NewConnection<'_>,
) -> [(JobKey, Option<Timestamp>); 2] {
    [
        (
            JobKey::new(job_kinds::REFRESH, user, connection),
            new.next_refresh_at,
        ),
        (
            JobKey::new(job_kinds::SYNC, user, connection),
            Some(new.next_sync_at),
        ),
    ]
}
