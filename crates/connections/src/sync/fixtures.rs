//! States of syncs for tests.

use bellbird_storage::{SyncState, UnreadRange, UnreadableRows};
use jiff::Timestamp;

pub(super) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A connection that was linked years ago, and has had rows until its last sync.
pub(super) fn state(synced_at: Option<&str>, covered_from: Option<&str>) -> SyncState {
    SyncState {
        linked_at: at("2020-01-01T00:00:00Z"),
        sequence: u32::from(synced_at.is_some()),
        synced_at: synced_at.map(at),
        covered_from: covered_from.map(at),
        newest_row_at: synced_at.map(at),
        rows_backfill_began_at: at("2020-01-01T00:00:00Z"),
        missing_since: None,
        reread_from: None,
        unread: None,
        restore_id: 0,
        change_version: 0,
        removal_hints: Vec::new(),
        last_changes_poll_at: None,
        unreadable: None,
        next_at: None,
        attempts: 0,
        last_error: None,
    }
}

pub(super) fn unread_to(to: Timestamp) -> Option<UnreadRange> {
    Some(UnreadRange {
        to,
        after_account: None,
    })
}

pub(super) fn unreadable_since(since: Timestamp) -> UnreadableRows {
    UnreadableRows {
        count: 1,
        reason: "invalid_amount".to_owned(),
        since,
    }
}
