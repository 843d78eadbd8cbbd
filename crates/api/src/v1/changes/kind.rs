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

use super::views::{TradeChange, TransactionChange};
use crate::http::QuotaClass;
use crate::http::json::write_json;
use crate::http::quota::Quotas;
use crate::v1::trades::TradeView;
use crate::v1::transactions::TransactionView;

/// Trades of a day without a time count as midnight in UTC, which is another day in the user's
/// timezone.
const DAY: Duration = Duration::from_secs(86_400);

/// Rows whose changes clients follow.
pub(super) trait ChangeKind: RowKind {
    /// The limits of a request that reads rows.
    fn quota(quotas: &Quotas) -> &QuotaClass;

    fn digests(hasher: &RowHasher, row: &Self::Row<'_>) -> RowDigests;

    /// The first and last instant to read for rows of these days.
    fn dates_around(days: RangeInclusive<UtcDay>, now: Timestamp) -> (Timestamp, Timestamp);

    /// The change as JSON.
    fn upsert(key: RowKey, is_new: bool, row: &Self::Row<'_>, place: Self::Place) -> Vec<u8>;

    /// The change as JSON. `account_id` is absent if the connection has lost the account.
    fn remove(key: RowKey, account_id: Option<AccountId>) -> Vec<u8>;
}

impl ChangeKind for Transactions {
    fn quota(quotas: &Quotas) -> &QuotaClass {
        &quotas.live
    }

    fn digests(hasher: &RowHasher, row: &Transaction<'_>) -> RowDigests {
        hasher.transaction(row)
    }

    fn dates_around(days: RangeInclusive<UtcDay>, now: Timestamp) -> (Timestamp, Timestamp) {
        (days.start().start(), days.end().end().min(now))
    }

    fn upsert(key: RowKey, is_new: bool, row: &Transaction<'_>, day: Date) -> Vec<u8> {
        json(&TransactionChange::Upsert {
            key: key.to_string(),
            is_new,
            transaction: TransactionView::new(row, day),
        })
    }

    fn remove(key: RowKey, account_id: Option<AccountId>) -> Vec<u8> {
        json(&TransactionChange::Remove {
            key: key.to_string(),
            account_id,
        })
    }
}

impl ChangeKind for Trades {
    fn quota(quotas: &Quotas) -> &QuotaClass {
        &quotas.brokerage
    }

    fn digests(hasher: &RowHasher, row: &Trade<'_>) -> RowDigests {
        hasher.trade(row)
    }

    fn dates_around(days: RangeInclusive<UtcDay>, _: Timestamp) -> (Timestamp, Timestamp) {
        (days.start().start().minus(DAY), days.end().end().plus(DAY))
    }

    fn upsert(key: RowKey, is_new: bool, row: &Trade<'_>, _: u64) -> Vec<u8> {
        json(&TradeChange::Upsert {
            key: key.to_string(),
            is_new,
            trade: TradeView::new(row),
        })
    }

    fn remove(key: RowKey, account_id: Option<AccountId>) -> Vec<u8> {
        json(&TradeChange::Remove {
            key: key.to_string(),
            account_id,
        })
    }
}

fn json(change: &impl Serialize) -> Vec<u8> {
    let mut json = Vec::new();
    write_json(change, &mut json);
    json
}
