//! `list_new_transactions`: bank transactions that appeared since a day, by the fingerprints of syncs
//! (docs/adr/0016-following.md).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use bellbird_connections::RowHasher;
use bellbird_domain::{
    Bound, ConnectionCategory, ConnectionId, DateFilter, DateRange, Digest, Fingerprint, TimestampExt as _,
    Transaction, UtcDay,
};
use bellbird_reads::SelectedAccounts;
use bellbird_reads::merged::MergedRows;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::ToolCall;
use super::merged::{self, Heading, ListProgress};
use super::transactions::{COLUMNS, Row};
use crate::mcp::arguments::{self, Accounts, Choice, DayOrTime, Detail, RowLimit, date_filter};
use crate::mcp::cursor::Resumed;

/// How far back `since` reaches, which fingerprints do too.
const SINCE_MAX: SignedDuration = SignedDuration::from_hours(31 * 24);
/// How much older than `since` a row may be that no sync has seen yet.
const LATE_MAX: SignedDuration = SignedDuration::from_hours(7 * 24);

#[derive(Deserialize)]
struct NewArguments {
    since: DayOrTime,
    account_ids: Option<Accounts>,
    limit: Option<RowLimit>,
    detail: Option<Choice<Detail>>,
}

/// What syncs before a time have seen of a connection.
struct Seen {
    hasher: RowHasher,
    rows: HashSet<Digest>,
    /// Of earlier days, syncs do not see every row.
    watched_from: UtcDay,
    /// Where the rows begin that syncs have seen since.
    begins: Timestamp,
}

pub(super) async fn list_new_transactions(
    call: &ToolCall<'_>,
    arguments: Map<String, Value>,
) -> Result<Vec<u8>, String> {
    let resumed = Resumed::<ListProgress>::of(&call.seal(), arguments, call.now)?;
    let given: NewArguments = arguments::read(&resumed.arguments)?;
    let span = date_filter(Some(given.since), None)?;
    let (since, _) = DateRange::resolve(span.from, None, resumed.asked_at()).instants(&call.caller.timezone);
    if resumed.asked_at().duration_since(since) > SINCE_MAX {
        return Err("since: must be within the last 30 days. list_transactions reads older ones.".to_owned());
    }
    let limit = given.limit.unwrap_or_default().0;
    let detail = given.detail.map_or(Detail::Brief, |detail| detail.0);
    let after = resumed.position.position()?;
    let permit = call.admit(|quotas| &quotas.live)?;
    let (selected, mut missing) =
        call.select(given.account_ids, ConnectionCategory::Banking, resumed.position.left_out()).await?;
    let (mut ranges, mut seen) = (Vec::new(), HashMap::new());
    for list in selected.iter().flat_map(SelectedAccounts::lists) {
        let id = list.context.connection.id;
        if let Entry::Vacant(entry) = seen.entry(id) {
            entry.insert(seen_before(call, id, since).await.ok_or("Internal error: try again")?);
        }
        let span = DateFilter { from: Some(Bound::Instant(seen[&id].begins)), to: None };
        let (reads, context) = (call.interop.access.reads(), list.context.clone());
        match reads.transaction_range(call.caller, context, list.account_id(), span, resumed.asked_at()) {
            Ok(range) => ranges.push(range),
            Err(error) => missing.push(call.missing(&list, &error).await),
        }
    }
    let rows = MergedRows::transactions(ranges, after, merged::stop_at(call), |row, day| {
        seen.get(&row.account.connection_id)
            .is_some_and(|seen| seen.is_new(row, since))
            .then(|| Row::of(row, day, detail))
    });
    let columns = if detail == Detail::Brief { COLUMNS } else { "" };
    let heading = Heading { name: "transactions", range: " that are new".to_owned(), columns };
    let result = merged::result(call, &resumed, rows, &selected, missing, (limit, true, heading)).await;
    drop(permit);
    result
}

async fn seen_before(call: &ToolCall<'_>, connection: ConnectionId, since: Timestamp) -> Option<Seen> {
    let (syncs, user) = (call.interop.access.connections().syncs(), call.caller.user_id);
    let state = syncs.state(user, connection).await.ok()?;
    let (hasher, fingerprints) = syncs.fingerprints(user, connection).await.ok()?;
    let mark = Fingerprint::seconds(since);
    let (before, later): (Vec<&Fingerprint>, Vec<_>) = fingerprints.rows.iter().partition(|row| row.first_mark < mark);
    let oldest = later.iter().map(|row| row.digests.day.start()).min();
    let late = since.saturating_sub(LATE_MAX).unwrap_or(since);
    Some(Seen {
        hasher,
        rows: before.iter().map(|row| row.digests.row).collect(),
        watched_from: syncs.watched_from(&state),
        begins: oldest.map_or(late, |oldest| oldest.min(late)).max(since.minus(SINCE_MAX.unsigned_abs())),
    })
}

impl Seen {
    fn is_new(&self, row: &Transaction<'_>, since: Timestamp) -> bool {
        let digests = self.hasher.transaction(row);
        !self.rows.contains(&digests.row) && (row.instant >= since || digests.day >= self.watched_from)
    }
}
