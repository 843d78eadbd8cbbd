//! Says what is known of a connection's syncs after a run. Pure.

use bellbird_providers::UnreadableRow;
use bellbird_storage::{SyncState, UnreadableRows};
use jiff::{SignedDuration, Timestamp};

use super::plan::SyncPlan;
use super::pull::Pulled;
use super::start_of_day;
use crate::sync_settings::SyncSettings;

impl SyncSettings {
    /// What is known after a run that began at `now`.
    pub(super) fn next_state(
        &self,
        now: Timestamp,
        state: &SyncState,
        plan: &SyncPlan,
        pulled: &Pulled,
        next_at: Timestamp,
    ) -> SyncState {
        let unreadable_before = state.unreadable.as_ref().filter(|_| plan.continues);
        SyncState {
            linked_at: state.linked_at,
            sequence: plan.sequence,
            synced_at: state.synced_at.filter(|_| plan.continues).or(Some(now)),
            covered_from: Some(plan.from),
            newest_row_at: state.newest_row_at.max(pulled.newest_row_at),
            rows_backfill_began_at: self.backfill_after(now, state, pulled.newest_row_at),
            missing_since: state.missing_since,
            // Only a new date range reaches back so far.
            reread_from: state.reread_from.filter(|_| plan.continues),
            unread: pulled.unread.clone(),
            restore_id: state.restore_id,
            change_version: pulled.change_version,
            removal_hints: pulled.removal_hints.clone(),
            last_changes_poll_at: state.last_changes_poll_at,
            unreadable: add_unreadable(unreadable_before, &pulled.unreadable, plan.from),
            next_at: Some(next_at),
            attempts: 0,
            last_error: None,
        }
    }

    /// When the present backfill began, after a sync at `now` that read rows up to `newest`. It
    /// begins again with the first rows after a gap, since older ones may follow.
    fn backfill_after(
        &self,
        now: Timestamp,
        state: &SyncState,
        newest: Option<Timestamp>,
    ) -> Timestamp {
        let began = state.rows_backfill_began_at;
        let (Some(_), Some(newest)) = (state.synced_at, newest) else {
            return began;
        };
        let ends_gap = match state.newest_row_at {
            Some(before) => newest.duration_since(before) > self.overlap_duration(),
            None => self.notify_initial,
        };
        if ends_gap { now } else { began }
    }

    fn overlap_duration(&self) -> SignedDuration {
        SignedDuration::try_from(self.overlap).unwrap_or(SignedDuration::MAX)
    }
}

/// Adds the unreadable rows of a run to those that the runs `before` it have met. A row without a
/// time counts as one of the start of the date range. Runs overlap by a day, whose unreadable rows
/// count twice.
fn add_unreadable(
    before: Option<&UnreadableRows>,
    found: &[UnreadableRow],
    from: Timestamp,
) -> Option<UnreadableRows> {
    let oldest = found
        .iter()
        .map(|row| (row.at.unwrap_or(from), row.reason))
        .min_by_key(|(at, _)| *at);
    let Some((since, reason)) = oldest else {
        return before.cloned();
    };
    let count = u32::try_from(found.len()).unwrap_or(u32::MAX);
    let rows = UnreadableRows {
        count,
        reason: reason.as_str().to_owned(),
        since: start_of_day(since).max(from),
    };
    Some(match before {
        None => rows,
        Some(before) => UnreadableRows {
            count: before.count.saturating_add(count),
            ..if before.since < rows.since {
                before.clone()
            } else {
                rows
            }
        },
    })
}

#[cfg(test)]
mod tests {
    use bellbird_domain::{Digest, EventType};
    use bellbird_providers::UnreadableReason;
    use bellbird_storage::UnreadRange;

    use super::*;
    use crate::sync::fixtures::{at, state, unread_to, unreadable_since};

    #[test]
    fn gap_ends_with_a_row() {
        let now = at("2026-11-20T00:00:00Z");
        let settings = SyncSettings::default();
        let known = state(Some("2026-11-19T12:00:00Z"), Some("2026-11-01T00:00:00Z"));
        let began = known.rows_backfill_began_at;
        let newest = |text: &str| SyncState {
            newest_row_at: Some(at(text)),
            ..known.clone()
        };
        for (sentence, state, read, expected) in [
            (
                "a row a week later",
                newest("2026-11-12T00:00:00Z"),
                Some("2026-11-19T00:00:00Z"),
                began,
            ),
            (
                "more than a week later",
                newest("2026-11-11T00:00:00Z"),
                Some("2026-11-19T00:00:00Z"),
                now,
            ),
            ("no row", newest("2026-11-01T00:00:00Z"), None, began),
            (
                "the first sync",
                SyncState {
                    synced_at: None,
                    ..known.clone()
                },
                Some("2026-11-19T00:00:00Z"),
                began,
            ),
            (
                "the first row",
                SyncState {
                    newest_row_at: None,
                    ..known.clone()
                },
                Some("2026-11-19T00:00:00Z"),
                now,
            ),
        ] {
            let after = settings.backfill_after(now, &state, read.map(at));
            assert_eq!(after, expected, "{sentence}");
        }
    }

    #[test]
    fn run_leaves_what_the_next_one_needs() {
        let (settings, now, later) = (
            SyncSettings::default(),
            at("2026-11-20T00:00:00Z"),
            at("2026-11-20T06:00:00Z"),
        );
        let day = |text: &str| at(&format!("2026-11-{text}T00:00:00Z"));
        let before = SyncState {
            newest_row_at: Some(day("18")),
            reread_from: Some(day("10")),
            unreadable: Some(unreadable_since(day("15"))),
            attempts: 3,
            last_error: Some("the provider is not available".to_owned()),
            ..state(Some("2026-11-19T12:00:00Z"), Some("2026-11-12T12:00:00Z"))
        };
        let pulled =
            |newest: Option<&str>, unread: Option<UnreadRange>, unreadable: &[&str]| Pulled {
                event_type: EventType::TransactionsSynced,
                is_empty: newest.is_none(),
                new_count: 0,
                updated_count: 0,
                new: Vec::new(),
                updated: Vec::new(),
                gone: Vec::new(),
                fingerprints: None,
                removal_hints: vec![Digest([1; 16])],
                change_version: 9,
                newest_row_at: newest.map(day),
                read_from: day("01"),
                unread,
                wait: None,
                unreadable: unreadable
                    .iter()
                    .map(|text| UnreadableRow {
                        at: Some(at(text)),
                        reason: UnreadableReason::MissingAmount,
                    })
                    .collect(),
            };
        let plan = settings.plan(now, &before, 0);
        let left = unread_to(day("14"));
        let stopped = settings.next_state(
            now,
            &before,
            &plan,
            &pulled(Some("19"), left.clone(), &[]),
            now,
        );
        let expected = SyncState {
            sequence: 2,
            synced_at: Some(now),
            covered_from: Some(plan.from),
            newest_row_at: Some(day("19")),
            reread_from: None,
            unread: left,
            removal_hints: vec![Digest([1; 16])],
            change_version: 9,
            unreadable: None,
            next_at: Some(now),
            attempts: 0,
            last_error: None,
            ..before.clone()
        };
        assert_eq!(stopped, expected, "a new sync");

        // An account returns, and a row becomes unreadable, while the sync is not complete.
        let stopped = SyncState {
            reread_from: Some(day("11")),
            unreadable: Some(unreadable_since(day("15"))),
            ..stopped
        };
        let plan = settings.plan(later, &stopped, 0);
        let found = pulled(
            None,
            None,
            &["2026-11-13T20:00:00Z", "2026-11-13T09:00:00Z"],
        );
        let complete = settings.next_state(later, &stopped, &plan, &found, plan.next_sync_at);
        let oldest = UnreadableRows {
            count: 3,
            reason: "missing_amount".to_owned(),
            since: day("13"),
        };
        let next_at = Some(plan.next_sync_at);
        let expected = SyncState {
            unread: None,
            unreadable: Some(oldest),
            next_at,
            ..stopped
        };
        assert_eq!(complete, expected, "the rest of it");
    }
}
