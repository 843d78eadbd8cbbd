//! What fuzz targets call.

use bellbird_domain::date::day_of;
use bellbird_domain::{Account, DateRange};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{api, auckland, posted, webhook, wire};
use crate::TransactionQuery;
use crate::json::test_support::fuzz;
use crate::rows::assert_page_invariants;

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
    fuzz::<wire::List<wire::Transaction<'_>>>(body);
    let (Ok(auckland), Ok(page)) = (auckland(), api::list::<wire::Transaction<'_>>(body)) else {
        return;
    };
    let rows = page.items.len();
    let kept = posted(page.items, &query, &auckland, &mut Vec::new());
    assert_page_invariants(&kept, rows);
    for row in &kept {
        let day = row.local_day(&zone);
        let local_day = day_of(row.instant, &auckland);
        assert!(
            row.day.is_none() || day == local_day,
            "the day is that of New Zealand"
        );
    }
}

/// Parses any bytes as an event with a valid signature.
pub fn fuzz_event(body: &[u8]) {
    let _ = webhook::parse_event(body);
}
