//! The fingerprint of a row: what is stored of a transaction or trade that a sync has seen.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};

use crate::{AccountId, Digest};

const DAY_SECONDS: i64 = 86_400;

/// The start of a SipHash-2-4 of 128 bits with the connection's own key.
///
/// Contents are compared only with those that the same row had before, and with those of rows that
/// have just disappeared, so 8 bytes are enough: one change in 2^64 goes unnoticed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ContentDigest(pub [u8; 8]);

/// Names a row of a connection to its clients, also after a renewed consent has given the row
/// another id: a SipHash of its first digest, with a key of the connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey(pub [u8; 8]);

/// Names an account among those of its connection: the random end of its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountTag(pub u32);

impl From<AccountId> for AccountTag {
    fn from(account: AccountId) -> Self {
        let [.., a, b, c, d] = *account.uuid().as_bytes();
        Self(u32::from_be_bytes([a, b, c, d]))
    }
}

/// One number, because an event writes 500 of them.
fn hex(bytes: [u8; 8], out: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(out, "{:016x}", u64::from_be_bytes(bytes))
}

impl fmt::Debug for ContentDigest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(self.0, out)
    }
}

impl fmt::Debug for RowKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(self.0, out)
    }
}

/// 16 hexadecimal digits.
impl fmt::Display for RowKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(self.0, out)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a row key")]
pub struct RowKeyError;

impl FromStr for RowKey {
    type Err = RowKeyError;

    fn from_str(text: &str) -> Result<Self, RowKeyError> {
        let number = u64::from_str_radix(text, 16).map_err(|_| RowKeyError)?;
        if text.len() == 16 {
            Ok(Self(number.to_be_bytes()))
        } else {
            Err(RowKeyError)
        }
    }
}

/// A day in UTC, counted from 1970. Earlier days count as the first, and days after 2149 as the
/// last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtcDay(pub u16);

impl UtcDay {
    #[must_use]
    pub fn of(at: Timestamp) -> Self {
        let days = at.as_second().div_euclid(DAY_SECONDS);
        Self(u16::try_from(days.max(0)).unwrap_or(u16::MAX))
    }

    /// The first day that is watched whole by syncs that read from this instant: providers and
    /// users count days in other time zones.
    #[must_use]
    pub fn first_whole(from: Timestamp) -> Self {
        Self(Self::of(from).0.saturating_add(2))
    }

    #[must_use]
    pub fn start(self) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(i64::from(self.0) * DAY_SECONDS)
    }

    /// The last instant of the day. The last day has no end.
    #[must_use]
    pub fn end(self) -> Timestamp {
        self.0.checked_add(1).map_or(Timestamp::MAX, |next| {
            Self(next).start() - SignedDuration::from_nanos(1)
        })
    }
}

/// The keyed digests of a row that was read, and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowDigests {
    /// Digest of the account and the row's id.
    pub row: Digest,
    /// Digest of all other fields that the provider sends.
    pub content: ContentDigest,
    /// Digest of what a row keeps when it gets another id: account, day, amount, currency and
    /// description. For a trade, its security, type, quantity and price too.
    pub likeness: ContentDigest,
    pub account: AccountTag,
    pub day: UtcDay,
}

/// The stored trace of a row: its identity and its content as keyed digests, and which runs saw it.
/// Sorted by row and occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint {
    /// Of the last read that had the row.
    pub digests: RowDigests,
    /// Counts from 0 the rows with the same id, because ids of trades may repeat.
    pub occurrence: u32,
    pub key: RowKey,
    /// When the row was last seen, at most a day too early: seconds since 1970. While reads lack
    /// the row, when the first of them lacked it.
    pub seen_at: u32,
    /// How many complete reads have lacked the row since one had it. Counting ends at three.
    pub misses: u8,
    /// Whether the row is gone. Its trace stays, so that clients learn of it.
    pub is_gone: bool,
    /// The change version of the run that saw the row first.
    pub first_version: u32,
    /// The change version of the run that saw its present content first, or that found it gone.
    pub changed_version: u32,
}

impl Fingerprint {
    /// Identifies a fingerprint among those of a connection.
    #[must_use]
    pub fn id(&self) -> (Digest, u32) {
        (self.digests.row, self.occurrence)
    }

    /// A time as [`Self::seen_at`] holds it. Its range ends in 2106.
    #[must_use]
    pub fn seconds(at: Timestamp) -> u32 {
        u32::try_from(at.as_second().max(0)).unwrap_or(u32::MAX)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovedRow {
    pub key: RowKey,
    pub account_id: AccountId,
}

/// All fingerprints of a connection, and how far back clients can follow its changes.
///
/// A change version names a run that found changes: the time of the run in seconds since 1970, or
/// one more than the change version before it. So a run of a history that was lost with a database
/// has no change version of the present one. A client's mark is the one that it has reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fingerprints {
    /// Sorted by [`Fingerprint::id`].
    pub rows: Vec<Fingerprint>,
    /// Of the runs that found changes, the last of them at the end. Older ones are forgotten.
    pub change_versions: Vec<u32>,
    /// The largest [`Fingerprint::changed_version`] of all fingerprints that were deleted. A client
    /// that has followed up to an earlier change version may have missed a change.
    pub forgotten_version: u32,
}

impl Fingerprints {
    /// The change version of the last run that found changes; 0 before the first.
    #[must_use]
    pub fn change_version(&self) -> u32 {
        self.change_versions.last().copied().unwrap_or(0)
    }

    /// Whether every change after a change version is still known. False for one that this history
    /// has never had.
    #[must_use]
    pub fn reach_back_to(&self, change_version: u32) -> bool {
        change_version >= self.forgotten_version
            && (change_version == 0 || self.change_versions.binary_search(&change_version).is_ok())
    }
}
