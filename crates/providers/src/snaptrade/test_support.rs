//! What fuzz targets call.

use std::collections::HashSet;

use bellbird_domain::Account;
use jiff::Timestamp;

use super::{api, cursor_at, map, place_of, sign, trades, webhook, wire};
use crate::http::parse_json;
use crate::json::test_support::fuzz;

/// Parses any bytes as a page of activities and asserts the invariants of every page.
pub fn fuzz_activities_page(body: &[u8], account: &Account) {
    fuzz::<wire::Activities<wire::Activity<'_>>>(body);
    let Ok(page) = parse_json::<wire::Activities<wire::Activity<'_>>>(body) else {
        return;
    };
    let Ok(place) = place_of(&page, 0, 7, api::ACTIVITIES_MAX) else {
        return;
    };
    let rows = page.data.len() as u64;
    assert!(
        rows == 0 || place.total >= Some(7 + rows),
        "the total includes all rows seen"
    );
    assert!(
        place
            .next
            .is_none_or(|next| rows > 0 && next == cursor_at(7 + rows)),
        "the next page follows"
    );
    let trades = trades(page, account, &mut Vec::new());
    assert!(
        trades.iter().all(|(index, _)| *index < rows),
        "the index is on the page"
    );
    assert!(
        trades.is_sorted_by(|(index, _), (next, _)| index < next),
        "in the provider's order, each once"
    );
    for (_, trade) in &trades {
        assert!(
            trade
                .trade_date
                .as_bytes()
                .get(10)
                .is_none_or(|byte| *byte == b'T'),
            "a valid date"
        );
        let (id, _) = (trade.id().to_string(), trade.time.instant());
        assert!(id.starts_with(&*trade.trade_date));
    }
}

/// Parses any bytes as the positions of an account and asserts their invariants.
pub fn fuzz_positions_page(body: &[u8], account: &Account) {
    fuzz::<wire::Positions<'_>>(body);
    let Ok(page) = parse_json::<wire::Positions<'_>>(body) else {
        return;
    };
    let rows = page.results.len();
    let mut skipped = 0;
    let Ok(holdings) = map::holdings(page.results, account, |_| skipped += 1) else {
        return;
    };
    assert_eq!(
        holdings.len() + skipped,
        rows,
        "every row is mapped or counted"
    );
    let mut seen = HashSet::new();
    for holding in &holdings {
        assert!(
            !holding.symbol.is_empty() && !holding.currency.is_empty(),
            "symbol and currency are set"
        );
        assert!(
            holding.current_price.is_some() || holding.market_value.is_none(),
            "no value without a price"
        );
        assert!(
            seen.insert((&holding.instrument_id, holding.occurrence)),
            "holdings are distinct"
        );
    }
}

/// Parses any bytes as an event, without and with a valid signature.
pub fn fuzz_event(body: &[u8]) {
    if let Some(canonical) = sign::canonical_text(body) {
        assert_eq!(
            sign::canonical_text(canonical.as_bytes()),
            Some(canonical),
            "a canonical text is its own canonical form"
        );
    }
    let _ = webhook::parse_event(body, Timestamp::UNIX_EPOCH, |_| true);
}
