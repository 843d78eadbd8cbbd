//! `list_new_transactions`: bank transactions that appeared since a day, by the fingerprints of
//! syncs (docs/adr/0016-following.md).

use std::collections::HashMap;

use bellbird_domain::{Bound, ConnectionCategory, DateFilter, DateRange, Transaction};
use bellbird_reads::Transactions;
use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::ToolCall;
use super::merged::{self, ListProgress, Listing};
use super::transactions::{COLUMNS, Row};
use crate::mcp::arguments::{Accounts, Choice, DayOrTime, Detail, RowLimit, date_filter};
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
    let arguments: NewArguments = resumed.read()?;
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
    let _permit = call.admit(|quotas| &quotas.live).await?;
    let (selected, missing) = call
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
    let listing = Listing {
        name: "transactions",
        range: " that are new".to_owned(),
        columns: if detail == Detail::Brief { COLUMNS } else { "" },
        limit,
        is_counted: true,
        is_filtered: true,
    };
    merged::result::<Transactions, _>(
        call,
        &resumed,
        (selected, missing),
        &listing,
        |list| DateFilter {
            from: Some(Bound::Instant(known[&list.context.connection.id].begins)),
            to: None,
        },
        |row: &Transaction<'_>, day| {
            known
                .get(&row.account.connection_id)
                .is_some_and(|known| known.is_new(row))
                .then(|| Row::of(row, day, detail))
        },
    )
    .await
}
