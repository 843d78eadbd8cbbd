//! Helpers for the rows of a page that several adapters share.

use std::cmp::Reverse;

use bellbird_domain::{AccountId, Decimal, ProviderName, Transaction};
use jiff::Timestamp;

/// Sorts the rows of a page if the provider did not: newest first, then by account. Equal rows keep their order.
pub(crate) fn newest_first(rows: &mut [Transaction<'_>]) {
    if !rows.is_sorted_by_key(sort_key) {
        rows.sort_by_key(sort_key);
    }
}

fn sort_key(row: &Transaction<'_>) -> (Reverse<Timestamp>, AccountId) {
    (Reverse(row.instant), row.account.id)
}

/// Counts a row that is left out in the metrics.
pub(crate) fn count_dropped(provider: ProviderName, reason: &'static str) {
    metrics::counter!("bellbird_dropped_rows_total", "provider" => provider.as_str(), "reason" => reason).increment(1);
}

/// Asserts the invariants of every page, for the fuzz targets. `page_rows` is the number of rows that the provider
/// sent.
pub(crate) fn assert_page_invariants(rows: &[Transaction<'_>], page_rows: usize) {
    assert!(rows.len() <= page_rows, "a page never grows");
    assert!(rows.is_sorted_by_key(|row| Reverse(row.instant)), "newest first");
    for row in rows {
        let amount = row.amount.as_str();
        assert_eq!(Decimal::parse(amount).as_ref().map(Decimal::as_str), Ok(amount), "in plain form");
        let is_zero = !amount.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
        assert!(!(row.amount.is_negative() && is_zero), "no negative zero");
    }
}
