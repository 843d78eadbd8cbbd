//! Helpers for the rows of a page that several adapters share.

use std::cmp::Reverse;

use bellbird_domain::{Account, ProviderName, Transaction};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;
use serde::Deserialize;

use crate::TransactionQuery;
use crate::json::{self, Invalid, Token};
use crate::text::Text;
use crate::unreadable::{UnreadableReason, UnreadableRow};

/// Sorts the rows of a page if the provider did not, newest first. Rows of one instant keep their
/// order: a page can end between them, so in any other order their places would depend on where
/// pages end.
fn newest_first(rows: &mut [Transaction<'_>]) {
    let newer = |row: &Transaction<'_>| Reverse(row.instant);
    if !rows.is_sorted_by_key(newer) {
        rows.sort_by_key(newer);
    }
}

/// The account with this id of the provider.
pub(crate) fn find_account<'a>(accounts: &'a [Account], id: &Text<'_>) -> Option<&'a Account> {
    accounts
        .iter()
        .find(|account| account.provider_account_id == id.as_str())
}

/// Parses a timestamp as jiff does. Reads the form that providers send, `2026-11-19T21:15:42Z` with
/// or without milliseconds, in a tenth of the time.
pub(crate) fn parse_instant(text: &str) -> Option<Timestamp> {
    utc_instant(text.as_bytes()).or_else(|| text.parse().ok())
}

fn utc_instant(text: &[u8]) -> Option<Timestamp> {
    let (second, millis) = match text {
        [second @ .., b'Z'] if text.len() == 20 => (second, 0),
        [second @ .., b'.', a, b, c, b'Z'] if text.len() == 24 => (second, number(&[*a, *b, *c])?),
        _ => return None,
    };
    let &[
        y1,
        y2,
        y3,
        y4,
        b'-',
        m1,
        m2,
        b'-',
        d1,
        d2,
        b'T',
        h1,
        h2,
        b':',
        n1,
        n2,
        b':',
        s1,
        s2,
    ] = second
    else {
        return None;
    };
    let two = |tens, ones| i8::try_from(number(&[tens, ones])?).ok();
    let year = i16::try_from(number(&[y1, y2, y3, y4])?).ok()?;
    let (month, day, hour, minute) = (two(m1, m2)?, two(d1, d2)?, two(h1, h2)?, two(n1, n2)?);
    let local = DateTime::new(
        year,
        month,
        day,
        hour,
        minute,
        two(s1, s2)?,
        millis * 1_000_000,
    )
    .ok()?;
    Offset::UTC.to_timestamp(local).ok()
}

fn number(digits: &[u8]) -> Option<i32> {
    digits.iter().try_fold(0, |number, digit| {
        digit
            .is_ascii_digit()
            .then(|| number * 10 + i32::from(digit - b'0'))
    })
}

/// Counts a row that is left out in the metrics.
pub(crate) fn count_dropped(provider: ProviderName, reason: &'static str) {
    metrics::counter!("bellbird_dropped_rows_total", "provider" => provider.as_str(), "reason" => reason).increment(1);
}

/// Counts a row that cannot be read in the metrics, each time that it is met. A read drops a row
/// with an invalid date as it does one without, and counts it by `undated`.
fn count_unreadable(provider: ProviderName, reason: UnreadableReason, undated: &'static str) {
    if reason == UnreadableReason::InvalidDate {
        count_dropped(provider, undated);
    }
    let labels = [("provider", provider.as_str()), ("reason", reason.as_str())];
    metrics::counter!("bellbird_unreadable_rows_total", &labels).increment(1);
}

/// Why a row of a page is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Skipped {
    /// The row belongs to an account that was not requested, or to another consent of the same
    /// provider user.
    OtherAccount,
    Pending,
    NoTime,
    Unreadable(UnreadableRow),
}

impl Skipped {
    pub(crate) fn unreadable(reason: UnreadableReason, at: Option<Timestamp>) -> Self {
        Self::Unreadable(UnreadableRow { reason, at })
    }
}

/// Counts a row that is left out, by `undated` if it has no time. One that cannot be read goes to
/// `unreadable`.
pub(crate) fn leave_out(
    provider: ProviderName,
    skipped: Skipped,
    undated: &'static str,
    unreadable: &mut Vec<UnreadableRow>,
) {
    match skipped {
        Skipped::OtherAccount => count_dropped(provider, "other_account"),
        Skipped::Pending => count_dropped(provider, "pending"),
        Skipped::NoTime => count_dropped(provider, undated),
        Skipped::Unreadable(row) => {
            count_unreadable(provider, row.reason, undated);
            unreadable.push(row);
        }
    }
}

/// The rows of a page that match the query, newest first. Those that cannot be read go to
/// `unreadable`.
pub(crate) fn matching<'a, R>(
    provider: ProviderName,
    page: Vec<R>,
    query: &TransactionQuery<'_>,
    unreadable: &mut Vec<UnreadableRow>,
    map: impl Fn(R) -> Result<Transaction<'a>, Skipped>,
) -> Vec<Transaction<'a>> {
    let mut kept = Vec::with_capacity(page.len());
    for row in page {
        match map(row) {
            Ok(row) => kept.push(row),
            // The lists of several accounts have the rows of other consents, so they are not
            // counted.
            Err(Skipped::OtherAccount) if !query.one_account => {}
            Err(skipped) => leave_out(provider, skipped, "no_time", unreadable),
        }
    }
    newest_first(&mut kept);
    kept
}

/// What is known of a row of another form.
#[derive(Debug, Default)]
pub(crate) struct MalformedRow {
    pub(crate) is_other_account: bool,
    /// None if the time cannot be read.
    pub(crate) at: Option<Timestamp>,
}

/// Parses the rows of a page one by one, after the page could not be parsed whole. Also returns
/// those that have another form. `inspect` gets the text of such a row, if it is not a string or
/// null. Rows of other accounts are left out.
pub(crate) fn parse_each<'a, T: Deserialize<'a>>(
    provider: ProviderName,
    rows: Vec<Token<'a>>,
    inspect: impl Fn(&'a str) -> MalformedRow,
) -> (Vec<T>, Vec<UnreadableRow>) {
    let mut parsed = Vec::with_capacity(rows.len());
    let mut unreadable = Vec::new();
    for row in rows {
        let row = match row {
            Token::Other(text) => json::from_str(text).map_err(|Invalid| inspect(text)),
            Token::Null | Token::String(_) => Err(MalformedRow::default()),
        };
        match row {
            Ok(row) => parsed.push(row),
            Err(MalformedRow {
                is_other_account: true,
                ..
            }) => {}
            Err(MalformedRow { at, .. }) => {
                let reason = UnreadableReason::InvalidForm;
                count_unreadable(provider, reason, "");
                unreadable.push(UnreadableRow { reason, at });
            }
        }
    }
    (parsed, unreadable)
}

/// Asserts the invariants of every page, for the fuzz targets. `page_rows` is the number of rows
/// that the provider sent.
#[cfg(any(test, feature = "test-support"))]
pub(crate) fn assert_page_invariants(rows: &[Transaction<'_>], page_rows: usize) {
    use bellbird_domain::Decimal;

    assert!(rows.len() <= page_rows, "a page never grows");
    assert!(
        rows.is_sorted_by_key(|row| Reverse(row.instant)),
        "newest first"
    );
    for row in rows {
        let amount = row.amount.as_str();
        assert_eq!(
            Decimal::parse(amount).as_ref().map(Decimal::as_str),
            Ok(amount),
            "in plain form"
        );
        let is_zero = !amount.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
        assert!(!(row.amount.is_negative() && is_zero), "no negative zero");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::simulated::{NOW, Row, account};

    fn by_jiff(text: &str) -> Option<Timestamp> {
        text.parse().ok()
    }

    #[test]
    fn forms_that_providers_send_need_no_other_parser() {
        for text in [
            "2026-11-19T21:15:42Z",
            "2026-11-19T21:15:42.007Z",
            "0000-01-01T00:00:00Z",
            "2024-02-29T23:59:59Z",
        ] {
            assert_eq!(utc_instant(text.as_bytes()), by_jiff(text), "{text}");
            assert!(by_jiff(text).is_some(), "{text}");
        }
    }

    #[test]
    fn row_of_any_other_form_is_unreadable() {
        #[derive(Deserialize)]
        struct Row {
            amount: u8,
        }
        let rows = json::from_str(
            r#"[{"amount": 1}, "two", null, 3, [], {"amount": "four"}, {"amount": 5}]"#,
        )
        .unwrap();
        let (parsed, unreadable) = parse_each::<Row>(ProviderName::new("fiskil"), rows, |_| {
            MalformedRow::default()
        });
        assert_eq!(
            parsed.iter().map(|row| row.amount).collect::<Vec<_>>(),
            [1, 5]
        );
        assert_eq!(
            unreadable,
            [UnreadableRow {
                reason: UnreadableReason::InvalidForm,
                at: None
            }; 5]
        );
    }

    proptest! {
        /// A read that continues within an instant has other pages.
        #[test]
        fn order_does_not_depend_on_where_pages_end(
            listed in prop::collection::vec((0..2_usize, 0_i64..4), 1..40),
            page_rows in 1..40_usize,
        ) {
            let accounts = ["a", "b"].map(account);
            let mut rows: Vec<(Row, &Account)> = listed
                .into_iter()
                .enumerate()
                .map(|(number, (at, second))| (Row::new("", number, NOW - second), &accounts[at]))
                .collect();
            rows.sort_by_key(|(row, _)| Reverse(row.second));
            let mut seen = Vec::new();
            for page in rows.chunks(page_rows) {
                let mut page: Vec<_> =
                    page.iter().map(|(row, account)| row.transaction(account)).collect();
                newest_first(&mut page);
                seen.extend(page.into_iter().map(|row| row.id.into_owned()));
            }
            let expected: Vec<&str> = rows.iter().map(|(row, _)| row.id.as_str()).collect();
            prop_assert_eq!(seen, expected);
        }

        #[test]
        fn instants_are_those_of_jiff(
            text in "[0-9]{4}-[01][0-9]-[0-3][0-9][Tt ][012][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{0,4})?(Z|z|\\+10:00|)",
        ) {
            prop_assert_eq!(parse_instant(&text), by_jiff(&text));
        }

        #[test]
        fn damaged_instants_are_those_of_jiff(at in 0_usize..24, byte in " -~") {
            let mut text = "2026-11-19T21:15:42.007Z".to_owned();
            text.replace_range(at..=at, &byte);
            prop_assert_eq!(parse_instant(&text), by_jiff(&text));
        }
    }
}
