//! What differs between the changes of transactions and those of trades.

use std::ops::RangeInclusive;
use std::time::Duration;

use bellbird_connections::RowHasher;
use bellbird_domain::{
    AccountId, RowDigests, RowKey, TimestampExt as _, Trade, Transaction, UtcDay,
};
use bellbird_reads::{RowKind, Trades, Transactions};
use jiff::Timestamp;
use jiff::civil::Date;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use utoipa::ToSchema;

use super::views::{TradeChange, TransactionChange};
use crate::http::QuotaClass;
use crate::http::quota::Quotas;
use crate::v1::trades::TradeView;
use crate::v1::transactions::TransactionView;

/// Trades of a day without a time count as midnight in UTC, which is another day in the user's
/// timezone.
const DAY: Duration = Duration::from_secs(86_400);

/// Rows whose changes clients follow.
pub(super) trait ChangeKind: RowKind {
    /// What the JSON of a change is.
    type Change: ToSchema;

    /// The limits of a request that reads rows.
    fn quota(quotas: &Quotas) -> &QuotaClass;

    fn digests(hasher: &RowHasher, row: &Self::Row<'_>) -> RowDigests;

    /// The first and last instant to read for rows of these days.
    fn dates_around(days: RangeInclusive<UtcDay>, now: Timestamp) -> (Timestamp, Timestamp);

    fn upsert(key: RowKey, is_new: bool, row: &Self::Row<'_>, place: Self::Place) -> Box<RawValue>;

    /// `account_id` is absent if the connection has lost the account.
    fn remove(key: RowKey, account_id: Option<AccountId>) -> Box<RawValue>;
}

impl ChangeKind for Transactions {
    type Change = TransactionChange<'static>;

    fn quota(quotas: &Quotas) -> &QuotaClass {
        &quotas.live
    }

    fn digests(hasher: &RowHasher, row: &Transaction<'_>) -> RowDigests {
        hasher.transaction(row)
    }

    fn dates_around(days: RangeInclusive<UtcDay>, now: Timestamp) -> (Timestamp, Timestamp) {
        (days.start().start(), days.end().end().min(now))
    }

    fn upsert(key: RowKey, is_new: bool, row: &Transaction<'_>, day: Date) -> Box<RawValue> {
        json(&TransactionChange::Upsert {
            key: key.to_string(),
            is_new,
            transaction: TransactionView::new(row, day),
        })
    }

    fn remove(key: RowKey, account_id: Option<AccountId>) -> Box<RawValue> {
        json(&TransactionChange::Remove {
            key: key.to_string(),
            account_id,
        })
    }
}

impl ChangeKind for Trades {
    type Change = TradeChange<'static>;

    fn quota(quotas: &Quotas) -> &QuotaClass {
        &quotas.brokerage
    }

    fn digests(hasher: &RowHasher, row: &Trade<'_>) -> RowDigests {
        hasher.trade(row)
    }

    fn dates_around(days: RangeInclusive<UtcDay>, _: Timestamp) -> (Timestamp, Timestamp) {
        (days.start().start().minus(DAY), days.end().end().plus(DAY))
    }

    fn upsert(key: RowKey, is_new: bool, row: &Trade<'_>, _: u64) -> Box<RawValue> {
        json(&TradeChange::Upsert {
            key: key.to_string(),
            is_new,
            trade: TradeView::new(row),
        })
    }

    fn remove(key: RowKey, account_id: Option<AccountId>) -> Box<RawValue> {
        json(&TradeChange::Remove {
            key: key.to_string(),
            account_id,
        })
    }
}

fn json(change: &impl Serialize) -> Box<RawValue> {
    let json = to_raw_value(change);
    debug_assert!(json.is_ok(), "strings and numbers always serialize");
    json.unwrap_or_default()
}
