//! `list_new_transactions`: bank transactions that appeared since a day, by the fingerprints of
//! syncs (docs/adr/0016-following.md).

use std::collections::HashMap;

use bellbird_domain::{Bound, ConnectionCategory, DateFilter, DateRange, Transaction};
use bellbird_reads::{Merged, Range, SelectedAccounts, Transactions};
use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::ToolCall;
use super::merged::{self, Heading, ListProgress};
use super::transactions::{COLUMNS, Row};
use crate::mcp::arguments::{self, Accounts, Choice, DayOrTime, Detail, RowLimit, date_filter};
use crate::mcp::cursor::Resumed;
use crate::mcp::known_rows::KnownRows;

/// How far back `since` reaches, which fingerprints do too.
const SINCE_MAX: SignedDuration = SignedDuration::from_hours(31 * 24);

#[derive(Deserialize)]
struct NewArguments {
    since: DayOrTime,
    account_ids: Option<Accounts>,
    limit: Option<RowLimit>,
    detail: Option<Choice<Detail>>,
}

pub(super) async fn list_new_transactions(
    call: &ToolCall<'_>,
    arguments: Map<String, Value>,
) -> Result<Vec<u8>, String> {
    let resumed = Resumed::<ListProgress>::of(&call.seal(), arguments, call.now)?;
    let arguments: NewArguments = arguments::read(&resumed.arguments)?;
    let dates = date_filter(Some(arguments.since), None)?;
    let (since, _) =
        DateRange::resolve(dates.from, None, resumed.asked_at()).instants(&call.caller.timezone);
    if resumed.asked_at().duration_since(since) > SINCE_MAX {
        return Err(
            "since: must be within the last 30 days. list_transactions reads older ones."
                .to_owned(),
        );
    }
    let limit = arguments.limit.unwrap_or_default().0;
    let detail = arguments.detail.map_or(Detail::Brief, |detail| detail.0);
    let after = resumed.position.after;
    let permit = call.admit(|quotas| &quotas.live).await?;
    let (selected, mut missing) = call
        .select(
            arguments.account_ids,
            ConnectionCategory::Banking,
            &resumed.position.left_out,
        )
        .await?;
    let mut known = HashMap::new();
    // Half of the time is left for reading.
    let deadline = call.context.deadline;
    let synced_by = deadline - deadline.saturating_duration_since(Instant::now()) / 2;
    for selected in &selected {
        let (api, id) = (&call.interop.context, selected.context.connection.id);
        let found = KnownRows::before(api, call.caller, id, since, synced_by).await;
        known.insert(id, found.map_err(|problem| super::advice(&problem))?);
    }
    let dates_of = |list: &SelectedAccounts| DateFilter {
        from: Some(Bound::Instant(known[&list.context.connection.id].begins)),
        to: None,
    };
    let ranges: Vec<Range<Transactions>> =
        merged::ranges(call, &resumed, &selected, &mut missing, dates_of).await;
    let rows = Merged::new(
        ranges,
        after,
        merged::stop_at(call),
        |row: &Transaction<'_>, day| {
            known
                .get(&row.account.connection_id)
                .is_some_and(|known| known.is_new(row))
                .then(|| Row::of(row, day, detail))
        },
    );
    let columns = if detail == Detail::Brief { COLUMNS } else { "" };
    let heading = Heading {
        name: "transactions",
        range: " that are new".to_owned(),
        columns,
    };
    let result = merged::result(
        call,
        &resumed,
        rows,
        &selected,
        missing,
        (limit, true, heading),
    )
    .await;
    drop(permit);
    result
}
