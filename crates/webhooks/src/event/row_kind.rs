//! What events need of a kind of rows: which dates are read, and how a row is digested and written.

use std::time::Duration;

use bellbird_domain::{
    Bound, ContentDigest, DateFilter, Digest, EventType, RowDigests, TimestampExt as _, Trade,
    Transaction,
};
use bellbird_providers::pages::{RowKind, Trades, Transactions};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::event::digest::RowHasher;
use crate::event::payload::{RowJson, RowWriter};

/// Trades of a day without a time count as midnight in UTC, which is another day in the user's
/// timezone.
const DAY: Duration = Duration::from_secs(86_400);

/// A kind of rows that events report.
pub trait EventRowKind: RowKind {
    const EVENT_TYPE: EventType;

    /// As [`RowHasher::transaction_if_known`].
    fn digests(
        hasher: &RowHasher,
        row: &Self::Row<'_>,
        known: impl FnOnce(Digest, ContentDigest) -> Option<RowDigests>,
    ) -> RowDigests;

    fn write(writer: &mut RowWriter, row: &Self::Row<'_>, zone: &TimeZone) -> RowJson;

    /// The dates to read for the rows between two instants. No transaction is later than `now`.
    fn dates_around(first: Timestamp, last: Timestamp, now: Timestamp) -> DateFilter;

    /// The dates that a sync reads. Those of trades have no end, so that trades with a future date
    /// are reported at once.
    fn sync_dates((from, to): (Timestamp, Timestamp), zone: &TimeZone) -> Self::Dates {
        let without_end = DateFilter {
            from: Some(Bound::Instant(from)),
            to: None,
        };
        Self::dates(without_end, zone, to).0
    }
}

impl EventRowKind for Transactions {
    const EVENT_TYPE: EventType = EventType::TransactionsSynced;

    fn digests(
        hasher: &RowHasher,
        row: &Transaction<'_>,
        known: impl FnOnce(Digest, ContentDigest) -> Option<RowDigests>,
    ) -> RowDigests {
        hasher.transaction_if_known(row, known)
    }

    fn write(writer: &mut RowWriter, row: &Transaction<'_>, zone: &TimeZone) -> RowJson {
        writer.transaction(row, zone)
    }

    fn dates_around(first: Timestamp, last: Timestamp, now: Timestamp) -> DateFilter {
        between(first, last.min(now))
    }
}

impl EventRowKind for Trades {
    const EVENT_TYPE: EventType = EventType::TradesSynced;

    fn digests(
        hasher: &RowHasher,
        row: &Trade<'_>,
        known: impl FnOnce(Digest, ContentDigest) -> Option<RowDigests>,
    ) -> RowDigests {
        hasher.trade_if_known(row, known)
    }

    fn write(writer: &mut RowWriter, row: &Trade<'_>, _: &TimeZone) -> RowJson {
        writer.trade(row)
    }

    fn dates_around(first: Timestamp, last: Timestamp, _: Timestamp) -> DateFilter {
        between(first.minus(DAY), last.plus(DAY))
    }
}

fn between(first: Timestamp, last: Timestamp) -> DateFilter {
    DateFilter {
        from: Some(Bound::Instant(first)),
        to: Some(Bound::Instant(last)),
    }
}
