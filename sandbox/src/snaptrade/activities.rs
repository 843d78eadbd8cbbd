//! `GET /accounts/{id}/activities`: the rows of an account in pages
//! (docs/providers/snaptrade.md#activities and
//! #pages).

use axum::extract::Path;
use axum::response::Response;
use jiff::tz::TimeZone;
use jiff::{ToSpan, civil};

use super::call::{ClientCall, UserCall};
use super::errors::Failure;
use super::store::Entry;
use crate::clock::nanoseconds;
use crate::respond::ready;

/// Default and maximum (docs/providers/snaptrade.md#activities). Capping larger values is a sandbox
/// choice.
const LIMIT_MAX: usize = 1000;

/// The rows that a call selects.
struct Filter<'a> {
    /// In nanoseconds.
    from: Option<i64>,
    /// The end of the last day, excluded.
    until: Option<i64>,
    kinds: Vec<&'a str>,
}

impl<'a> Filter<'a> {
    fn of(call: &'a ClientCall) -> Result<Self, Failure> {
        let start = day(call, "startDate")?;
        let end = day(call, "endDate")?.map(|day| day.saturating_add(1.day()));
        let midnight = |day: civil::Date| {
            let midnight = TimeZone::UTC.to_timestamp(day.at(0, 0, 0, 0)).ok();
            midnight.map(nanoseconds)
        };
        let kinds = call.query.get("type").unwrap_or_default();
        let kinds = kinds
            .split(',')
            .map(str::trim)
            .filter(|kind| !kind.is_empty())
            .collect();
        Ok(Self {
            from: start.and_then(midnight),
            until: end.and_then(midnight),
            kinds,
        })
    }

    /// The entries in the date range. Sandbox choices: days are UTC days, and a range excludes rows
    /// without a date.
    fn in_range<'b>(&self, entries: &'b [Entry]) -> &'b [Entry] {
        if self.from.is_none() && self.until.is_none() {
            return entries;
        }
        let dated = &entries[..entries.partition_point(|entry| entry.position.at().is_some())];
        let start = dated.partition_point(|entry| {
            self.until
                .is_some_and(|until| entry.position.at() >= Some(until))
        });
        let end = dated.partition_point(|entry| {
            self.from
                .is_none_or(|from| entry.position.at() >= Some(from))
        });
        dated.get(start..end).unwrap_or_default()
    }

    fn keeps(&self, entry: &Entry) -> bool {
        self.kinds.is_empty() || entry.is_kind(&self.kinds)
    }
}

/// Parses a day; the error text is invented.
fn day(call: &ClientCall, name: &str) -> Result<Option<civil::Date>, Failure> {
    let Some(text) = call.query.filled(name) else {
        return Ok(None);
    };
    let shaped = text.len() == 10
        && text.bytes().enumerate().all(|(index, byte)| match index {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    let day = if shaped { text.parse().ok() } else { None };
    day.map(Some)
        .ok_or_else(|| Failure::invalid(format!("{name} must be a date in the form YYYY-MM-DD")))
}

/// Parses an integer of at least `low`; the error text is invented.
fn number(call: &ClientCall, name: &str, low: usize, default: usize) -> Result<usize, Failure> {
    let Some(text) = call.query.filled(name) else {
        return Ok(default);
    };
    let number = text.parse().ok().filter(|number| *number >= low);
    number.ok_or_else(|| Failure::invalid(format!("{name} must be an integer of at least {low}")))
}

/// Lists rows in pages, newest first. Sandbox choices: a page past the end is empty, and the total
/// counts filtered rows.
pub(super) async fn list(Path(id): Path<String>, call: UserCall) -> Result<Response, Failure> {
    let store = call.snaptrade.store.read();
    let account = store.account(call.user, &id, call.now)?;
    let filter = Filter::of(&call)?;
    let offset = number(&call, "offset", 0, 0)?;
    let limit = number(&call, "limit", 1, LIMIT_MAX)?.min(LIMIT_MAX);
    let mut body = b"{\"data\":[".to_vec();
    let mut total = 0;
    for entry in filter
        .in_range(&account.entries)
        .iter()
        .filter(|entry| filter.keeps(entry))
    {
        if total >= offset && total - offset < limit {
            if total > offset {
                body.push(b',');
            }
            entry.write(&mut body, &store, account);
        }
        total += 1;
    }
    let end =
        format!("],\"pagination\":{{\"offset\":{offset},\"limit\":{limit},\"total\":{total}}}}}");
    body.extend_from_slice(end.as_bytes());
    Ok(ready(body))
}
