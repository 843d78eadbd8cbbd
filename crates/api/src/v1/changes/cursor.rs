//! The cursor of a client that follows changes: how far it has come, sealed for its user.

use bellbird_connections::following::{DeliveredDaySum, PendingRow};
use bellbird_domain::{AccountId, Bound, ConnectionId, RowKey, RowKeyError, UserId};
use bellbird_reads::merged::MergedPosition;
use bellbird_storage::Storage;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::http::{Problem, sealed_cursor};

/// Longest cursor, in characters, none of which a URL has to encode. Proxies such as nginx take
/// request lines of 8 KiB.
const CHARS_MAX: usize = 7 * 1024;
/// Rows that a cursor has room for. Between a sync and the read after it, the provider may leave so
/// many out.
pub(super) const PENDING_MAX: usize = 200;
/// What the seal is for.
const PURPOSE: &str = "changes";

/// What a cursor holds: digests and numbers, and no row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChangesCursor {
    pub connection: Uuid,
    pub account: Option<Uuid>,
    /// The restore of the database whose history the marks are of
    /// ([`bellbird_storage::SyncState::restore_id`]).
    pub restore_id: i64,
    pub mark: ClientMark,
    /// Rows that the client is still to get.
    pub pending: Vec<PendingRowText>,
    /// When the cursor was made, in seconds. Pending rows are looked for once after each later
    /// sync.
    pub at: i64,
    /// Set while pages follow.
    pub paging: Option<Paging>,
}

/// What the client has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ClientMark {
    /// Nothing yet. It gets the rows from this bound on.
    From(String),
    /// All changes up to this mark, but for the pending rows.
    Mark(u32),
}

/// Where the next page begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Paging {
    /// The mark that the client reaches with the last page.
    pub target: u32,
    /// Only this account is read.
    pub read_account: Option<Uuid>,
    /// The last row that was delivered as gone.
    pub gone: Option<String>,
    /// The position behind the last row that was delivered.
    pub rows: Option<MergedPosition>,
    /// Which rows of the day of that position the pages so far have.
    pub delivered: DeliveredDaySum,
}

/// A row that the client is still to get. As text, its key, with `+` if the client never got the
/// row, and `*` if it was missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(super) struct PendingRowText {
    pub row: PendingRow,
    /// The provider did not list it when one of the pages so far was read. Otherwise it was missed
    /// before the first.
    is_missed: bool,
}

impl From<PendingRowText> for String {
    fn from(PendingRowText { row, is_missed }: PendingRowText) -> Self {
        format!(
            "{}{}{}",
            row.key,
            if row.is_new { "+" } else { "" },
            if is_missed { "*" } else { "" }
        )
    }
}

impl TryFrom<String> for PendingRowText {
    type Error = RowKeyError;

    fn try_from(text: String) -> Result<Self, RowKeyError> {
        let unmarked = text.trim_end_matches('*');
        let key = unmarked.trim_end_matches('+');
        let row = PendingRow {
            key: key.parse()?,
            is_new: key.len() < unmarked.len(),
        };
        Ok(Self {
            row,
            is_missed: unmarked.len() < text.len(),
        })
    }
}

impl ChangesCursor {
    pub(super) fn begin(
        connection: ConnectionId,
        account: Option<AccountId>,
        from: Bound,
        restore_id: i64,
    ) -> Self {
        let from = match from {
            Bound::Day(day) => day.to_string(),
            Bound::Instant(instant) => instant.to_string(),
        };
        let (connection, account) = (connection.uuid(), account.map(AccountId::uuid));
        Self {
            connection,
            account,
            restore_id,
            mark: ClientMark::From(from),
            pending: Vec::new(),
            at: 0,
            paging: None,
        }
    }

    /// Adds rows that the provider did not list when a page was read. False, and nothing is added,
    /// if there are more than a cursor has room for.
    pub(super) fn miss(&mut self, rows: Vec<PendingRow>) -> bool {
        let mut pending = self.pending.clone();
        for row in rows {
            match pending.iter_mut().find(|known| known.row.key == row.key) {
                Some(known) => known.is_missed = true,
                None => pending.push(PendingRowText {
                    row,
                    is_missed: true,
                }),
            }
        }
        let has_room = pending.len() <= PENDING_MAX;
        if has_room {
            self.pending = pending;
        }
        has_room
    }

    /// After the last page, the client has the changes up to the target. Rows that were missed
    /// stay pending.
    pub(super) fn reach_target(&mut self, now: Timestamp, were_pages_read: bool) {
        if let Some(paging) = self.paging.take() {
            (self.mark, self.at) = (ClientMark::Mark(paging.target), now.as_second());
            if were_pages_read {
                self.keep_missed();
            }
        }
    }

    fn keep_missed(&mut self) {
        self.pending.retain(|pending| pending.is_missed);
        self.pending
            .iter_mut()
            .for_each(|pending| pending.is_missed = false);
    }

    /// Opens a cursor of this user, for this connection and account.
    pub(super) fn open(
        storage: &Storage,
        user: UserId,
        cursor: &str,
        (connection, account): (ConnectionId, Option<AccountId>),
    ) -> Result<Self, Problem> {
        if cursor.len() > CHARS_MAX {
            return Err(Problem::InvalidCursor);
        }
        let ids = (connection.uuid(), account.map(AccountId::uuid));
        sealed_cursor::open(storage, user, PURPOSE, cursor)
            .filter(|cursor: &Self| (cursor.connection, cursor.account) == ids)
            .ok_or(Problem::InvalidCursor)
    }

    pub(super) fn seal(&self, storage: &Storage, user: UserId) -> Result<String, Problem> {
        sealed_cursor::seal(storage, user, PURPOSE, self)
            .filter(|cursor| cursor.len() <= CHARS_MAX)
            .ok_or(Problem::Internal)
    }
}

impl Paging {
    pub(super) fn to(target: u32) -> Self {
        Self {
            target,
            read_account: None,
            gone: None,
            rows: None,
            delivered: DeliveredDaySum::default(),
        }
    }

    pub(super) fn gone(&self) -> Option<RowKey> {
        self.gone.as_deref().and_then(|key| key.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use bellbird_reads::merged::ShownRows;

    use super::*;

    /// Version, length and id of the key, nonce and tag.
    const SEAL_BYTES_MAX: usize = 1 + 1 + 32 + 12 + 16;
    const LARGEST_SUM: &str = r#"{"rows": 4294967295, "keys": 18446744073709551615}"#;
    /// The longest request line without its cursor.
    const REQUEST_LINE: &str = "GET /v1/transactions/changes?connectionId=0191e7a0-7c3b-7def-8000-00aabbccddee\
        &accountId=0191e7a0-7c3b-7def-8000-00aabbccddee&limit=500&from=2026-11-20T09%3A30%3A00.123456789%2B14%3A00\
        &cursor= HTTP/1.1\r\n";

    /// The largest of everything.
    fn largest() -> ChangesCursor {
        let (connection_id, account_id) = (ConnectionId::new(), AccountId::new());
        let from = Bound::Instant(Timestamp::MIN);
        let mut cursor = ChangesCursor::begin(connection_id, Some(account_id), from, i64::MIN);
        let row = |number: usize| PendingRow {
            key: RowKey(number.to_be_bytes()),
            is_new: true,
        };
        assert!(cursor.miss((0..PENDING_MAX).map(row).collect()));
        assert!(!cursor.miss(vec![row(PENDING_MAX)]), "no room");
        let shown = ShownRows {
            connection_id,
            account_id: Some(account_id),
            rows: u32::MAX,
            digest: u64::MAX,
        };
        cursor.at = i64::MIN;
        cursor.paging = Some(Paging {
            target: u32::MAX,
            read_account: Some(account_id.uuid()),
            gone: Some(RowKey([0xff; 8]).to_string()),
            rows: Some(MergedPosition {
                instant: Timestamp::MIN,
                shown: Some(shown),
            }),
            delivered: serde_json::from_str(LARGEST_SUM).unwrap(),
        });
        cursor
    }

    #[test]
    fn largest_cursor_fits_a_request_line() {
        let contents = serde_json::to_vec(&largest()).unwrap();
        let text = URL_SAFE_NO_PAD.encode(vec![0; contents.len() + SEAL_BYTES_MAX]);
        assert!(text.len() <= CHARS_MAX, "{}", text.len());
        assert!(CHARS_MAX + REQUEST_LINE.len() <= 8 * 1024);
    }

    #[test]
    fn missed_rows_are_kept_once() {
        let row = |number: u8| PendingRow {
            key: RowKey([number; 8]),
            is_new: number > 1,
        };
        let mut cursor = ChangesCursor {
            pending: Vec::new(),
            paging: None,
            ..largest()
        };
        assert!(cursor.miss(vec![row(1), row(2)]));
        cursor.keep_missed();
        // The next page finds the first one, and misses the second one again, and another.
        assert!(cursor.miss(vec![row(2), row(3)]));
        let text = serde_json::to_string(&cursor).unwrap();
        assert!(
            text.contains("\"0101010101010101\",\"0202020202020202+*\",\"0303030303030303+*\""),
            "{text}"
        );
        let mut cursor: ChangesCursor = serde_json::from_str(&text).unwrap();
        cursor.keep_missed();
        assert_eq!(
            cursor
                .pending
                .iter()
                .map(|pending| pending.row)
                .collect::<Vec<_>>(),
            [row(2), row(3)]
        );
    }
}
