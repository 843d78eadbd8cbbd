//! Finds the callers of requests: on PostgreSQL those that wait at the same moment, with one
//! statement.
//!
//! A request may use nothing older than itself. A statement that begins after it came is new
//! enough, so what comes while one runs waits for the next, which finds all of them. Alone, a
//! request waits for nobody.

use std::collections::HashMap;
use std::mem::take;
use std::time::Duration;

use bellbird_domain::Caller;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use crate::db::postgres::Postgres;
use crate::db::{Db, Param, Row, params, statements};
use crate::error::Result;
use crate::users::timezone::parse_timezone;

/// Who waits longer than this for the statement before begins one beside it, because its connection
/// may be lost.
const WAIT_MAX: Duration = Duration::from_millis(20);

macro_rules! find_caller {
    ($hash:literal) => {
        concat!(
            "SELECT k.id, k.user_id, k.last_used_at, u.plan, u.timezone, u.revision, k.key_hash
            FROM api_keys k JOIN users u ON u.id = k.user_id
            WHERE k.key_hash = ",
            $hash,
            " AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $2)"
        )
    };
}

statements! {
    /// On PostgreSQL, `$1` is a list.
    FIND_CALLER = find_caller!("$1"), on_postgres = find_caller!("ANY($1)");
}

/// The user of a valid key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCaller {
    pub caller: Caller,
    /// The recorded last use. It lets the caller decide whether to call `storage.keys().touch`.
    pub last_used_at: Option<Timestamp>,
}

type Found = Result<Option<FoundCaller>>;

struct Waiting {
    key_hash: Vec<u8>,
    answer: oneshot::Sender<Found>,
}

pub(crate) struct CallerLookups {
    waiting: Mutex<Vec<Waiting>>,
    turn: Semaphore,
}

impl Default for CallerLookups {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            turn: Semaphore::new(1),
        }
    }
}

impl CallerLookups {
    pub(crate) async fn find(&self, db: &Db, key_hash: &[u8], now: Timestamp) -> Found {
        match db {
            Db::Sqlite(_) => {
                db.one(FIND_CALLER, params![key_hash, now], found_caller)
                    .await
            }
            Db::Postgres(db) => Box::pin(self.find_with_others(db, key_hash, now)).await,
        }
    }

    async fn find_with_others(&self, db: &Postgres, key_hash: &[u8], now: Timestamp) -> Found {
        loop {
            let (answer, mut found) = oneshot::channel();
            self.waiting.lock().push(Waiting {
                key_hash: key_hash.to_vec(),
                answer,
            });
            let turn = tokio::select! {
                received = &mut found => match received {
                    Ok(found) => return found,
                    // The request whose turn it was is gone.
                    Err(_) => continue,
                },
                turn = timeout(WAIT_MAX, self.turn.acquire()) => turn,
            };
            let waiting = take(&mut *self.waiting.lock());
            find_all(db, waiting, now).await;
            drop(turn);
            if let Ok(found) = found.await {
                return found;
            }
        }
    }
}

async fn find_all(db: &Postgres, waiting: Vec<Waiting>, now: Timestamp) {
    if waiting.is_empty() {
        return;
    }
    let hashes: Vec<&[u8]> = waiting
        .iter()
        .map(|waiting| waiting.key_hash.as_slice())
        .collect();
    let by_hash = |row: &Row<'_>| Ok((row.get(6)?, found_caller(row)));
    let rows = db
        .all(FIND_CALLER, params![Param::Blobs(&hashes), now], by_hash)
        .await;
    let rows: Result<HashMap<Vec<u8>, Result<FoundCaller>>> =
        rows.map(|rows| rows.into_iter().collect());
    for Waiting { key_hash, answer } in waiting {
        let found = match rows.as_ref().map(|rows| rows.get(&key_hash)) {
            Ok(Some(Ok(found))) => Ok(Some(found.clone())),
            Ok(None) => Ok(None),
            Ok(Some(Err(error))) | Err(error) => Err(error.repeated()),
        };
        // A request that is gone needs no answer.
        let _ = answer.send(found);
    }
}

pub(crate) fn found_caller(row: &Row<'_>) -> Result<FoundCaller> {
    Ok(FoundCaller {
        caller: caller(row)?,
        last_used_at: row.get(2)?,
    })
}

/// Reads the id of the key or session, the user's id, and from the column 3 on plan, timezone and
/// revision.
pub(crate) fn caller(row: &Row<'_>) -> Result<Caller> {
    Ok(Caller {
        key_id: row.get(0)?,
        user_id: row.get(1)?,
        plan: row.get(3)?,
        timezone: parse_timezone(row.opt_text(4)?)?,
        revision: row.get(5)?,
    })
}
