//! What adapters do with the rows of a page.

use std::cmp::Reverse;

use bellbird_domain::{AccountId, Decimal, ProviderName, Transaction};
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

/// Checks what must hold of the rows of every page: for the fuzz targets.
///
/// # Panics
/// When it does not.
pub(crate) fn assert_promises(rows: &[Transaction<'_>], on_the_page: usize) {
    assert!(rows.len() <= on_the_page, "a page never grows");
    assert!(rows.is_sorted_by_key(|row| Reverse(row.instant)), "newest first");
    for row in rows {
        let amount = row.amount.as_str();
        assert_eq!(Decimal::parse(amount).as_ref().map(Decimal::as_str), Ok(amount), "in plain form");
        let is_zero = !amount.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
        assert!(!(row.amount.is_negative() && is_zero), "no negative zero");
    }
}
