//! Connections and their grants.
//!
//! A connection being deleted is seen by nobody but its removal, [`Storage::find_grant`], by which its consent is
//! withdrawn, and the command line.

use bellbird_domain::{Connection, ConnectionCategory, ConnectionId, ConnectionStatus, UserId};
use jiff::Timestamp;
use secrecy::SecretString;

use crate::accounts::{self, NewAccount, storable};
use crate::audit::{self, Step};
use crate::db::{Row, Tx, params, statements};
use crate::users::bump;
use crate::{Storage, StorageError};

type Result<T> = std::result::Result<T, StorageError>;

/// The columns of every read of connections, in the order that [`connection`] expects.
macro_rules! select_connections {
    ($rest:literal) => {
        concat!(
            "SELECT id, user_id, provider, category, institution_id, institution_name, institution_logo, status,
                last_refreshed_at, created_at
            FROM connections ",
            $rest
        )
    };
}

statements! {
    LIST = select_connections!("WHERE user_id = $1 AND status <> 'deleting' ORDER BY created_at DESC, id");

    LIST_ALL = select_connections!("ORDER BY created_at DESC, id");

    FIND = select_connections!("WHERE user_id = $1 AND id = $2 AND status <> 'deleting'");

    FIND_ANY = select_connections!("WHERE id = $1");

    FIND_BY_GRANT = select_connections!("WHERE provider = $1 AND provider_connection_id = $2");

    INSERT = "INSERT INTO connections (user_id, id, provider, category, provider_connection_id, institution_id,
            institution_name, institution_logo, status, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

    UPDATE = "UPDATE connections SET category = $3, institution_id = $4, institution_name = $5, institution_logo = $6,
            status = $7
        WHERE user_id = $1 AND id = $2";

    MARK_REFRESHED = "UPDATE connections SET last_refreshed_at = $3
        WHERE user_id = $1 AND id = $2 AND status <> 'deleting'";

    SET_STATUS = "UPDATE connections SET status = $4 WHERE user_id = $1 AND id = $2 AND status = $3";
}

/// A connection to adopt.
#[derive(Debug, Clone, Copy)]
pub struct NewConnection<'a> {
    /// Whose it will be.
    pub user_id: UserId,
    /// Which adapter reads it.
    pub provider: &'a str,
    /// Bank or broker.
    pub category: ConnectionCategory,
    /// The provider's own id of the consent; one connection of one user has it.
    pub provider_connection_id: &'a str,
    /// The provider's id of the institution.
    pub institution_id: &'a str,
    /// Display name.
    pub institution_name: &'a str,
    /// URL of the logo.
    pub institution_logo: Option<&'a str>,
    /// What the adapter needs to read it: JSON text, sealed before it is stored.
    pub grant: &'a SecretString,
}

impl Storage {
    /// Takes a connection over with its accounts, or, when the same user adopts the same consent again, renews it: new
    /// grant, institution and accounts, `active` again, all ids kept. Where accounts came with it, the provider
    /// answered just now. One transaction; no account is removed.
    ///
    /// # Errors
    /// [`StorageError::Conflict`] when the consent is another user's or its connection is being deleted,
    /// [`StorageError::NotFound`] without such a user.
    pub async fn adopt_connection(
        &self,
        new: &NewConnection<'_>,
        accounts: &[NewAccount<'_>],
        now: Timestamp,
    ) -> Result<Connection> {
        let mut tx = self.db.begin().await?;
        bump(&mut tx, new.user_id).await?;
        let consent = storable(new.provider_connection_id);
        let user = new.user_id;
        let id = match tx.one(FIND_BY_GRANT, params![new.provider, &*consent], connection).await? {
            Some(before) => renew(&mut tx, &before, new, now).await?,
            None => insert(&mut tx, &consent, new, now).await?,
        };
        self.store_grant(&mut tx, user, id, new.grant).await?;
        accounts::merge(&mut tx, user, id, accounts, false).await?;
        if !accounts.is_empty() {
            note_refresh(&mut tx, user, id, now).await?;
        }
        let adopted = tx.one(FIND, params![user, id], connection).await?;
        tx.commit().await?;
        adopted.ok_or(StorageError::NotFound("connection"))
    }

    /// The user's connections, newest first, then by id.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn list_connections(&self, user: UserId) -> Result<Vec<Connection>> {
        self.db.all(LIST, params![user], connection).await
    }

    /// Every user's connections, newest first, those being deleted included. For the command line.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn list_all_connections(&self) -> Result<Vec<Connection>> {
        self.db.all(LIST_ALL, params![], connection).await
    }

    /// The user's connection with this id.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn find_connection(&self, user: UserId, id: ConnectionId) -> Result<Option<Connection>> {
        self.db.one(FIND, params![user, id], connection).await
    }

    /// A connection of whatever user, also one being deleted. For the command line.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn find_connection_any(&self, id: ConnectionId) -> Result<Option<Connection>> {
        self.db.one(FIND_ANY, params![id], connection).await
    }

    /// Notes that the provider answered with data.
    ///
    /// # Errors
    /// Those of the database. A connection that is gone is none.
    pub async fn mark_refreshed(&self, user: UserId, connection: ConnectionId, now: Timestamp) -> Result<()> {
        let mut tx = self.db.begin().await?;
        match bump(&mut tx, user).await {
            Err(StorageError::NotFound(_)) => return Ok(()),
            other => other?,
        }
        if tx.run(MARK_REFRESHED, params![user, connection, now]).await? == 0 {
            tx.rollback().await;
            return Ok(());
        }
        tx.commit().await
    }

    /// Moves a connection from one status to another, if it still has the first, and writes the step down. Whether the
    /// step is one of the allowed ones is the caller's business.
    ///
    /// Gives false, and changes nothing, when it has another status by now, is gone, or is another user's.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn set_connection_status(
        &self,
        user: UserId,
        connection: ConnectionId,
        from: ConnectionStatus,
        to: ConnectionStatus,
        cause: &str,
        now: Timestamp,
    ) -> Result<bool> {
        let mut tx = self.db.begin().await?;
        match bump(&mut tx, user).await {
            Err(StorageError::NotFound(_)) => return Ok(false),
            other => other?,
        }
        if tx.run(SET_STATUS, params![user, connection, from.as_str(), to.as_str()]).await? == 0 {
            tx.rollback().await;
            return Ok(false);
        }
        if from == to {
            // Nothing happened: no new revision, no audit row.
            tx.rollback().await;
            return Ok(true);
        }
        audit::record(&mut tx, &Step { user, connection, from: Some(from), to: Some(to), cause }, now).await?;
        tx.commit().await?;
        Ok(true)
    }
}

/// Notes the time of an answer; false when there is no such connection, or it is being deleted.
pub(crate) async fn note_refresh(tx: &mut Tx, user: UserId, connection: ConnectionId, now: Timestamp) -> Result<bool> {
    Ok(tx.run(MARK_REFRESHED, params![user, connection, now]).await? > 0)
}

async fn insert(tx: &mut Tx, consent: &str, new: &NewConnection<'_>, now: Timestamp) -> Result<ConnectionId> {
    let (id, status) = (ConnectionId::new(), ConnectionStatus::Active);
    let (institution, name) = (storable(new.institution_id), storable(new.institution_name));
    let (logo, category) = (new.institution_logo.map(storable), new.category.as_str());
    let values = params![
        new.user_id,
        id,
        new.provider,
        category,
        consent,
        &*institution,
        &*name,
        logo.as_deref(),
        status.as_str(),
        now
    ];
    // Another user may have adopted it since we looked.
    tx.run(INSERT, values).await.map_err(|error| error.or_conflict(TAKEN))?;
    let step = Step { user: new.user_id, connection: id, from: None, to: Some(status), cause: "adopted" };
    audit::record(tx, &step, now).await?;
    Ok(id)
}

const TAKEN: &str = "the grant belongs to another connection";

async fn renew(tx: &mut Tx, before: &Connection, new: &NewConnection<'_>, now: Timestamp) -> Result<ConnectionId> {
    if before.user_id != new.user_id {
        return Err(StorageError::Conflict(TAKEN));
    }
    if before.status == ConnectionStatus::Deleting {
        return Err(StorageError::Conflict("the connection of this grant is being deleted"));
    }
    let (user, connection, status) = (before.user_id, before.id, ConnectionStatus::Active);
    let (institution, name) = (storable(new.institution_id), storable(new.institution_name));
    let (logo, category) = (new.institution_logo.map(storable), new.category.as_str());
    let values = params![user, connection, category, &*institution, &*name, logo.as_deref(), status.as_str()];
    tx.run(UPDATE, values).await?;
    if before.status != status {
        let step = Step { user, connection, from: Some(before.status), to: Some(status), cause: "reconnected" };
        audit::record(tx, &step, now).await?;
    }
    Ok(connection)
}

/// A connection of the columns that every read of connections begins with.
pub(crate) fn connection(row: &Row<'_>) -> Result<Connection> {
    Ok(Connection {
        id: row.id(0)?,
        user_id: row.id(1)?,
        provider: row.text(2)?.to_owned(),
        category: row.word(3, "a connection category")?,
        institution_id: row.text(4)?.to_owned(),
        institution_name: row.text(5)?.to_owned(),
        institution_logo: row.opt_text(6)?.map(str::to_owned),
        status: row.word(7, "a connection status")?,
        last_refreshed_at: row.opt_time(8)?,
        created_at: row.time(9)?,
    })
}
