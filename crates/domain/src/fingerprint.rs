//! The fingerprint of a row: what is stored of a transaction or trade that a sync has seen.

use std::fmt;

use jiff::Timestamp;

use crate::Digest;

/// Length of a [`ContentDigest`].
pub const CONTENT_DIGEST_BYTES: usize = 8;

/// The start of an HMAC-SHA256 with the connection's own key.
///
/// It is compared only with the contents that the same row had before, so 8 bytes are enough: one change in 2^64 goes
/// unnoticed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentDigest(pub [u8; CONTENT_DIGEST_BYTES]);

impl fmt::Debug for ContentDigest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// The stored trace of a row: its identity and its content as keyed digests, and which syncs saw it. Sorted by row and
/// occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint {
    /// Digest of the row's account and id.
    pub row: Digest,
    /// Counts from 0 the rows with the same id, because ids of trades may repeat.
    pub occurrence: u32,
    /// Digest of all other fields that the provider sends.
    pub content: ContentDigest,
    /// When the row was last seen, at most a day too early: seconds since 1970.
    pub seen_at: u32,
    /// The sequence number of the sync that saw the row first.
    pub first_sequence: u32,
    /// The sequence number of the sync that saw its present content first.
    pub changed_sequence: u32,
}

impl Fingerprint {
    /// Identifies a fingerprint among those of a connection.
    #[must_use]
    pub fn key(&self) -> (Digest, u32) {
        (self.row, self.occurrence)
    }

    /// A time as [`Self::seen_at`] holds it. Its range ends in 2106.
    #[must_use]
    pub fn seconds(at: Timestamp) -> u32 {
        u32::try_from(at.as_second().max(0)).unwrap_or(u32::MAX)
    }
}
