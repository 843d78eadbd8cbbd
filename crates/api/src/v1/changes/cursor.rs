//! The cursor of a client that follows changes: how far it has come, sealed for its user.

use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bellbird_connections::following::Owed;
use bellbird_domain::{AccountId, Bound, ConnectionId, RowKey, UserId};
use bellbird_reads::merged::Position;
use bellbird_storage::Storage;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::front::Problem;

/// Longest cursor, in characters.
const CHARS_MAX: usize = 12 * 1024;
/// What the seal is for.
const PURPOSE: &str = "changes";

/// How far a client has come. Holds digests and numbers, and no row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Progress {
    pub(super) connection: Uuid,
    pub(super) account: Option<Uuid>,
    pub(super) since: Since,
    /// Rows that are owed to the client since earlier pages.
    pub(super) owed: Vec<OwedText>,
    /// When the cursor was made, in seconds. Owed rows are looked for once after each later sync.
    pub(super) at: i64,
    /// Set while pages follow.
    pub(super) page: Option<PageProgress>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Since {
    /// The client has nothing yet, and gets the rows from this bound on.
    From(String),
    /// It has all changes up to this mark.
    Mark(u32),
}

/// Where the next page begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PageProgress {
    /// The mark that the client reaches with the last page.
    pub(super) target: u32,
    /// Only this account is read.
    pub(super) read_account: Option<Uuid>,
    /// The last row that was given as gone.
    pub(super) gone: Option<String>,
    /// The position behind the last row that was given, [`Position`] as text.
    pub(super) rows: Option<String>,
    /// Which rows of the day of that position the pages so far have: their number and the sum of their keys.
    pub(super) given: Option<(u32, u64)>,
    /// Rows of the pages so far that the provider did not list.
    pub(super) owed: Vec<OwedText>,
}

/// A key as 16 digits, with `+` if the client never got the row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OwedText(String);

impl From<Owed> for OwedText {
    fn from(owed: Owed) -> Self {
        Self(format!("{}{}", owed.key, if owed.is_new { "+" } else { "" }))
    }
}

impl OwedText {
    pub(super) fn parse(&self) -> Option<Owed> {
        let key = self.0.trim_end_matches('+');
        Some(Owed { key: key.parse().ok()?, is_new: key.len() < self.0.len() })
    }
}

impl Progress {
    pub(super) fn begin(connection: ConnectionId, account: Option<AccountId>, from: Bound) -> Self {
        let from = match from {
            Bound::Day(day) => day.to_string(),
            Bound::Instant(instant) => instant.to_string(),
        };
        let (connection, account) = (connection.uuid(), account.map(AccountId::uuid));
        Self { connection, account, since: Since::From(from), owed: Vec::new(), at: 0, page: None }
    }

    /// Opens a cursor of this user, for this connection and account.
    pub(super) fn open(
        storage: &Storage,
        user: UserId,
        cursor: &str,
        (connection, account): (ConnectionId, Option<AccountId>),
    ) -> Result<Self, Problem> {
        let opened = || {
            let sealed = URL_SAFE_NO_PAD.decode(cursor).ok()?;
            let contents = storage.secrets().open_cursor(user, PURPOSE, &sealed)?;
            serde_json::from_slice::<Self>(&contents).ok()
        };
        let opened = if cursor.len() <= CHARS_MAX { opened() } else { None };
        let ids = (connection.uuid(), account.map(AccountId::uuid));
        opened.filter(|progress| (progress.connection, progress.account) == ids).ok_or(Problem::InvalidCursor)
    }

    pub(super) fn seal(&self, storage: &Storage, user: UserId) -> Result<String, Problem> {
        let contents = serde_json::to_vec(self).map_err(|_| Problem::Internal)?;
        let sealed = storage.secrets().seal_cursor(user, PURPOSE, &contents).map_err(|_| Problem::Internal)?;
        let cursor = URL_SAFE_NO_PAD.encode(sealed);
        if cursor.len() <= CHARS_MAX { Ok(cursor) } else { Err(Problem::Internal) }
    }
}

impl PageProgress {
    pub(super) fn to(target: u32) -> Self {
        Self { target, read_account: None, gone: None, rows: None, given: None, owed: Vec::new() }
    }

    pub(super) fn gone(&self) -> Option<RowKey> {
        self.gone.as_deref().and_then(|key| key.parse().ok())
    }

    pub(super) fn rows(&self) -> Option<Position> {
        self.rows.as_deref().and_then(|position| Position::from_str(position).ok())
    }
}
