//! What fuzz targets and benchmarks call.

use bellbird_domain::{Account, DateRange};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{posted, webhook, wire};
use crate::http::parse_json;
use crate::json::test_support::fuzz;
use crate::rows::assert_page_invariants;
use crate::{Error, TransactionQuery, TransactionSink};

/// Parses a page of transactions and passes its rows to `rows`.
pub fn read_transactions_page(
    body: &[u8],
    arrangement_id: &str,
    query: &TransactionQuery<'_>,
    rows: &mut TransactionSink<'_>,
) -> Result<(), Error> {
    let page: wire::TransactionsPage<'_> = parse_json(body)?;
    posted(page.transactions, arrangement_id, query, &mut Vec::new())?
        .into_iter()
        .for_each(rows);
    Ok(())
}

/// As [`read_transactions_page`], parsed by serde_json.
pub fn read_transactions_page_by_serde_json(
    body: &[u8],
    arrangement_id: &str,
    query: &TransactionQuery<'_>,
    rows: &mut TransactionSink<'_>,
) -> Result<(), Error> {
    let page: wire::TransactionsPage<'_> =
        serde_json::from_slice(body).map_err(|_| Error::Malformed("not JSON"))?;
    posted(page.transactions, arrangement_id, query, &mut Vec::new())?
        .into_iter()
        .for_each(rows);
    Ok(())
}

/// Parses any bytes as a page of transactions and asserts the invariants of every page.
pub fn fuzz_transactions_page(body: &[u8], account: Account) {
    let dates = DateRange::resolve(None, None, Timestamp::UNIX_EPOCH);
    let accounts = [account];
    let zone = TimeZone::UTC;
    let query = TransactionQuery {
        accounts: &accounts,
        one_account: false,
        dates: &dates,
        zone: &zone,
    };
    fuzz::<wire::TransactionsPage<'_>>(body);
    let Ok(page) = parse_json::<wire::TransactionsPage<'_>>(body) else {
        return;
    };
    let rows = page.transactions.len();
    let Ok(kept) = posted(page.transactions, "arrangement", &query, &mut Vec::new()) else {
        return;
    };
    assert_page_invariants(&kept, rows);
    for row in &kept {
        let _ = row.local_day(&zone);
    }
}

/// Parses any bytes as an event with a valid signature.
pub fn fuzz_event(body: &[u8]) {
    let _ = webhook::parse_event(body);
}
