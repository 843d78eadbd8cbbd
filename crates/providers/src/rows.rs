//! What adapters do with the rows of a page.

use std::cmp::Reverse;

use bellbird_domain::{AccountId, ProviderName, Transaction};
use jiff::Timestamp;

/// Brings the rows of a page into order where the provider did not: newest first; those of one instant by account, then
/// as they came.
pub(crate) fn newest_first(rows: &mut [Transaction<'_>]) {
    if !rows.is_sorted_by_key(place) {
        rows.sort_by_key(place);
    }
}

fn place(row: &Transaction<'_>) -> (Reverse<Timestamp>, AccountId) {
    (Reverse(row.instant), row.account.id)
}

/// Counts a row that was left out, for the metrics.
pub(crate) fn count_dropped(provider: ProviderName, reason: &'static str) {
    metrics::counter!("bellbird_dropped_rows_total", "provider" => provider.as_str(), "reason" => reason).increment(1);
}
