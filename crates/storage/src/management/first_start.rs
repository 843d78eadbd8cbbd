//! Stores that this database is of a first start, which a person completes in a browser: with a
//! code from the log, until there is an operator.

use jiff::Timestamp;

use crate::FirstStarts;
use crate::db::{Tx, from_row, params, statements};
use crate::digest::hash;
use crate::error::Result;

statements! {
    /// A database with a user is of no first start.
    INSERT = "INSERT INTO first_start (id) SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM users)
        ON CONFLICT (id) DO NOTHING";

    /// As one statement that locks the row, so that of two codes one is valid.
    SET_CODE = "UPDATE first_start SET code_hash = $1, ends_at = $2, browser_hash = NULL
        WHERE id = 1 AND done_at IS NULL AND NOT EXISTS (SELECT 1 FROM users WHERE is_operator = 1)";

    CLAIM = "UPDATE first_start SET code_hash = NULL, browser_hash = $2
        WHERE id = 1 AND code_hash = $1 AND ends_at > $3 AND done_at IS NULL
            AND NOT EXISTS (SELECT 1 FROM users WHERE is_operator = 1)";

    /// Locks the row, so that of two forms of one browser one makes the operator.
    LEAVE_CLAIM = "UPDATE first_start SET browser_hash = NULL, code_hash = NULL, ends_at = $3
        WHERE id = 1 AND browser_hash = $1 AND ends_at > $2 AND done_at IS NULL
            AND NOT EXISTS (SELECT 1 FROM users WHERE is_operator = 1)";

    /// For a database of no first start too, so that of two at once one makes the operator.
    /// Compares the row with the one that was found, because both have found no operator.
    TAKE = "INSERT INTO first_start (id, done_at) SELECT 1, $1
        WHERE NOT EXISTS (SELECT 1 FROM users WHERE is_operator = 1)
        ON CONFLICT (id) DO UPDATE SET done_at = excluded.done_at, browser_hash = NULL, code_hash = NULL, ends_at = NULL
            WHERE COALESCE(first_start.done_at, -1) = $2 AND COALESCE(first_start.ends_at, -1) = $3";

    /// Once it is done, nothing depends on the operators, and finding one may read all users.
    FIND = "SELECT code_hash, ends_at, browser_hash, key_kept_at, done_at,
            CASE WHEN done_at IS NOT NULL THEN 1
                ELSE (SELECT COUNT(*) FROM (SELECT id FROM users WHERE is_operator = 1 LIMIT 1) AS operators) END
        FROM first_start WHERE id = 1";

    KEEP_KEY = "UPDATE first_start SET key_kept_at = COALESCE(key_kept_at, $1) WHERE id = 1 AND done_at IS NULL";

    FINISH = "UPDATE first_start SET done_at = $1 WHERE id = 1 AND done_at IS NULL";
}

/// How far a first start has come. Has no `Debug`, because of the hashes.
#[derive(Clone)]
pub struct FirstStart {
    code_hash: Option<Vec<u8>>,
    browser_hash: Option<Vec<u8>>,
    ends_at: Option<Timestamp>,
    /// When an operator said that the master key is kept.
    pub key_kept_at: Option<Timestamp>,
    pub done_at: Option<Timestamp>,
    has_operator: bool,
}

impl FirstStart {
    /// Whether a code or a browser may make the first operator.
    #[must_use]
    pub fn awaits_operator(&self) -> bool {
        self.done_at.is_none() && !self.has_operator
    }

    /// Whether an operator may have the master key: once, until it is kept, and soon after the
    /// operator was made.
    #[must_use]
    pub fn offers_key(&self, now: Timestamp) -> bool {
        let is_recent = self.ends_at.is_some_and(|end| end > now);
        self.done_at.is_none() && self.has_operator && self.key_kept_at.is_none() && is_recent
    }

    /// Whether this is the code of the log, which works still.
    #[must_use]
    pub fn has_code(&self, code: &str, now: Timestamp) -> bool {
        self.is_open(self.code_hash.as_deref(), code, now)
    }

    /// Whether this browser has used the code, and may make the first operator.
    #[must_use]
    pub fn has_browser(&self, browser: &str, now: Timestamp) -> bool {
        self.is_open(self.browser_hash.as_deref(), browser, now)
    }

    fn is_open(&self, stored: Option<&[u8]>, value: &str, now: Timestamp) -> bool {
        self.awaits_operator()
            && self.ends_at.is_some_and(|end| end > now)
            && stored == Some(hash(value).as_ref())
    }
}

impl FirstStarts<'_> {
    /// None: this database is of no first start.
    pub async fn find(self) -> Result<Option<FirstStart>> {
        self.db.one(FIND, params![], first_start).await
    }
}

/// Marks an empty database. Returns false if it has users, or is marked already.
pub async fn begin(tx: &mut Tx) -> Result<bool> {
    tx.changes(INSERT, params![]).await
}

/// Replaces the code, which voids the one before and the browser that used it. Returns false, and
/// stores nothing, unless a first start awaits its operator.
pub async fn set_code(tx: &mut Tx, code: &str, ends_at: Timestamp) -> Result<bool> {
    tx.changes(SET_CODE, params![&hash(code), ends_at]).await
}

/// Binds the first start to a browser. Returns false if the code is not valid.
pub async fn claim(tx: &mut Tx, code: &str, browser: &str, now: Timestamp) -> Result<bool> {
    let (code, browser) = (hash(code), hash(browser));
    let values = params![&code, &browser, now];
    tx.changes(CLAIM, values).await
}

/// Ends the claim of a browser, which makes the first operator now. That operator may have the
/// master key until `key_until`. Returns false if this browser has none.
pub async fn leave_claim(
    tx: &mut Tx,
    browser: &str,
    now: Timestamp,
    key_until: Timestamp,
) -> Result<bool> {
    let browser = hash(browser);
    let values = params![&browser, now, key_until];
    tx.changes(LEAVE_CLAIM, values).await
}

/// Completes the first start by a command that makes the first operator now. `found` is from before
/// the operators were looked for. Returns false, and stores nothing, if there is an operator or the
/// row has changed since.
pub async fn take(tx: &mut Tx, found: Option<&FirstStart>, now: Timestamp) -> Result<bool> {
    let micros = |time: Option<Timestamp>| time.map_or(-1, Timestamp::as_microsecond);
    let done = micros(found.and_then(|found| found.done_at));
    let ends = micros(found.and_then(|found| found.ends_at));
    tx.changes(TAKE, params![now, done, ends]).await
}

/// Records that the master key is kept. [`StorageError::NotFound`](crate::StorageError::NotFound)
/// if no first start is going on.
pub async fn keep_key(tx: &mut Tx, now: Timestamp) -> Result<()> {
    tx.execute_or_not_found(KEEP_KEY, params![now], "first start")
        .await
}

/// Ends the first start. [`StorageError::NotFound`](crate::StorageError::NotFound) if none is going
/// on.
pub async fn finish(tx: &mut Tx, now: Timestamp) -> Result<()> {
    tx.execute_or_not_found(FINISH, params![now], "first start")
        .await
}

from_row! {
    fn first_start(row) -> FirstStart {
        code_hash, ends_at, browser_hash, key_kept_at, done_at, has_operator,
    }
}
