//! What the tools share that list rows of several accounts, newest first: where the result begins,
//! where it ends, and how many rows there are.

use std::sync::Arc;

use bellbird_domain::{AccountId, Bound, DateFilter};
use bellbird_reads::merged::{ListReport, ListState, MergedPosition, PositionLost, stop_at};
use bellbird_reads::{Merged, Range, ReadError, RowKind, SelectedAccounts};
use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{AccountNames, LeftOut, Missing, PROBLEM_BYTES_MAX, TOO_LONG, ToolCall, Total};
use crate::mcp::cursor::{BEGIN_AGAIN, Resumed};
use crate::mcp::output::{self, Room, Rows};

/// All rows of a shorter range are counted. Counting reads them.
const COUNTED_RANGE: SignedDuration = SignedDuration::from_hours(100 * 24);
const NO_TIME: &str =
    "Time ran short before the first row. Ask for fewer accounts or a shorter range.";

/// How far a list was shown.
#[derive(Default, Clone, Serialize, Deserialize)]
pub(super) struct ListProgress {
    pub(super) after: Option<MergedPosition>,
    /// Rows of all results so far.
    shown: u64,
    /// Rows altogether, as counted for the first result.
    total: u64,
    is_total_exact: bool,
    pub(super) left_out: LeftOut,
}

pub(super) trait ResultRow: Serialize + Send {
    fn account_id(&self) -> AccountId;

    /// As a line of the text. `account` is the name of its account.
    fn line(&self, account: &str) -> String;
}

/// The rows of a result, and what it says above them.
pub(super) struct Listing {
    /// The member with the rows, and the noun for them.
    pub(super) name: &'static str,
    /// Which rows these are, if no argument says it: ` of ...`.
    pub(super) range: String,
    /// The head of the table. Empty if the lines are none.
    pub(super) columns: &'static str,
    pub(super) limit: u32,
    pub(super) is_counted: bool,
    /// Whether many rows are read for a few.
    pub(super) is_filtered: bool,
}

/// Reads all lists of these accounts until the result is full or the lists end, and builds the
/// result. `dates_of` selects rows of a list, and `map` makes the rows. A list that cannot be read
/// is missing.
pub(super) async fn result<K: RowKind, T: ResultRow>(
    call: &ToolCall<'_>,
    resumed: &Resumed<ListProgress>,
    (selected, mut missing): (Vec<SelectedAccounts>, Vec<Missing>),
    listing: &Listing,
    dates_of: impl Fn(&SelectedAccounts) -> DateFilter + Send + Sync,
    map: impl for<'row> FnMut(&K::Row<'row>, K::Place) -> Option<T> + Send,
) -> Result<Vec<u8>, String> {
    let ranges = ranges(call, resumed, &selected, &mut missing, listing, dates_of).await;
    let before = &resumed.position;
    let mut merged = Merged::<K, T>::new(ranges, before.after, stop_at(&call.context), map);
    // Every list may fail.
    let lists: Vec<SelectedAccounts> = merged
        .lists()
        .filter_map(|list| accounts_of(&list, &selected))
        .collect();
    let missing_bytes =
        super::missing_bytes(&missing) + lists.iter().map(bytes_if_missing).sum::<usize>();
    let left_out_bytes = before
        .left_out
        .bytes_if_missing(missing.len() + lists.len());
    let reserved = missing_bytes.min(PROBLEM_BYTES_MAX) + left_out_bytes;
    let mut rows = Rows::new(
        listing.limit,
        super::HEAD_BYTES + reserved + resumed.cursor_bytes(),
    );
    let mut named = AccountNames::new(&selected);
    let (mut after, mut unshown) = (merged.position(), 0);
    let has_more = loop {
        match merged.next(&call.context).await {
            Err(PositionLost) => return Err(BEGIN_AGAIN.to_owned()),
            Ok(None) => {
                after = merged.position();
                break merged.is_stopped();
            }
            Ok(Some(row)) => {
                if named.push(&mut rows, &row) == Room::Full {
                    unshown = 1;
                    break true;
                }
                after = merged.position();
            }
        }
    };
    for (list, error) in failed_lists(&merged, &selected) {
        missing.push(call.missing(&list, &error).await);
    }
    let (left_out, is_whole) = (before.left_out.with(&missing), missing.is_empty());
    let not_named = super::fit(&mut missing);
    let shown = before.shown + u64::from(rows.shown);
    let (total, is_total_exact) = if !has_more {
        // What was counted before is missing now.
        (
            if is_whole {
                shown
            } else {
                shown.max(before.total)
            },
            is_whole,
        )
    } else if before.shown > 0 {
        (
            before.total.max(shown + unshown),
            before.is_total_exact && is_whole,
        )
    } else if listing.is_counted {
        let rest = merged.count_rest(&call.context).await;
        (shown + unshown + rest.rows, rest.is_exact && is_whole)
    } else {
        (shown + unshown, false)
    };
    if has_more && rows.shown == 0 && after == before.after {
        return Err(if unshown > 0 { TOO_LONG } else { NO_TIME }.to_owned());
    }
    let cursor = has_more.then(|| {
        let progress = ListProgress {
            after,
            shown,
            total,
            is_total_exact,
            left_out: left_out?,
        };
        resumed.cursor(&call.seal(), progress)
    });
    let cursor = cursor.transpose()?;
    let total = if is_total_exact {
        Total::Exact(total)
    } else {
        Total::AtLeast(total)
    };
    let what = format!("{}{}", listing.name, listing.range);
    let order = ", newest first";
    let (head, mut others) = call.outline(&what, order, rows.shown, total, cursor, &missing);
    others.insert("accounts".to_owned(), named.into_json());
    let head = head + &not_named;
    Ok(output::members(
        &head,
        listing.columns,
        &rows,
        listing.name,
        &others,
    ))
}

async fn ranges<K: RowKind>(
    call: &ToolCall<'_>,
    resumed: &Resumed<ListProgress>,
    selected: &[SelectedAccounts],
    missing: &mut Vec<Missing>,
    listing: &Listing,
    dates_of: impl Fn(&SelectedAccounts) -> DateFilter + Send + Sync,
) -> Vec<Range<K>> {
    let (reads, caller) = (call.interop.context.reads(), call.caller);
    let mut ranges = Vec::new();
    for list in selected.iter().flat_map(SelectedAccounts::lists) {
        let (context, id) = (Arc::clone(&list.context), list.account_id());
        // The time of the first call, so that the range stays the same.
        match reads.range(caller, context, id, dates_of(&list), resumed.asked_at()) {
            Ok(range) if listing.is_filtered => ranges.push(range),
            Ok(range) => ranges.push(range.with_first_page_rows(listing.limit + 1)),
            Err(error) => missing.push(call.missing(&list, &error).await),
        }
    }
    ranges
}

/// Whether all rows of a range are counted for the first result. `default` is the length of a range
/// without `from`.
pub(super) fn is_counted(
    dates: &DateFilter,
    asked_at: Timestamp,
    default: Option<SignedDuration>,
) -> bool {
    let start = |bound: Bound| match bound {
        Bound::Instant(instant) => instant,
        Bound::Day(day) => start_of(day),
    };
    let to = dates.to.map_or(asked_at, start).min(asked_at);
    let length = match dates.from {
        Some(from) => Some(to.duration_since(start(from))),
        None => default.map(|default| to.duration_since(asked_at) + default),
    };
    length.is_some_and(|length| length <= COUNTED_RANGE)
}

fn start_of(day: Date) -> Timestamp {
    day.to_zoned(jiff::tz::TimeZone::UTC)
        .map_or(Timestamp::MIN, |start| start.timestamp())
}

/// What the result says if this list fails.
fn bytes_if_missing(list: &SelectedAccounts) -> usize {
    // The longest message of a failed read, twice: as JSON and as text.
    const MESSAGE_BYTES: usize = 2 * 120;
    Missing::of(list, String::new()).bytes() + MESSAGE_BYTES
}

fn accounts_of(list: &ListReport<'_>, selected: &[SelectedAccounts]) -> Option<SelectedAccounts> {
    let found = selected
        .iter()
        .find(|selected| selected.context.connection.id == list.connection_id)?;
    Some(
        list.account_id
            .map_or_else(|| found.clone(), |id| found.with_accounts(vec![id])),
    )
}

fn failed_lists<K: RowKind, T: ResultRow>(
    merged: &Merged<'_, K, T>,
    selected: &[SelectedAccounts],
) -> Vec<(SelectedAccounts, ReadError)> {
    let mut failed = Vec::new();
    for list in merged.lists() {
        if let (ListState::Failed(error), Some(accounts)) =
            (list.state, accounts_of(&list, selected))
        {
            failed.push((accounts, error.clone()));
        }
    }
    failed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ranges_are_counted() {
        let asked_at: Timestamp = "2026-11-20T09:30:00Z".parse().unwrap();
        let month = Some(SignedDuration::from_hours(720));
        let bound = |text: &str| Some(Bound::parse(text).unwrap());
        for (from, to, default, expected) in [
            (None, None, month, true),
            (None, None, None, false),
            (bound("2026-09-01"), None, None, true),
            (bound("2026-01-01"), None, month, false),
            (bound("2020-01-01"), bound("2020-02-01"), month, true),
            (bound("2020-01-01"), bound("2030-02-01"), month, false),
            (None, bound("2000-01-01"), month, true),
        ] {
            assert_eq!(
                is_counted(&DateFilter { from, to }, asked_at, default),
                expected,
                "{from:?} {to:?}"
            );
        }
    }
}
