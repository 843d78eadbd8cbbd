//! What differs between the changes of transactions and those of trades.

use bellbird_domain::{AccountId, RowKey, Trade, Transaction};
use bellbird_reads::{Trades, Transactions};
use bellbird_webhooks::event::row_kind::EventRowKind;
use jiff::civil::Date;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use utoipa::ToSchema;

use super::views::{TradeChange, TransactionChange};
use crate::http::QuotaClass;
use crate::http::quota::Quotas;
use crate::v1::trades::TradeView;
use crate::v1::transactions::TransactionView;

/// Rows whose changes clients follow.
pub(super) trait ChangeKind: EventRowKind {
    /// What the JSON of a change is.
    type Change: ToSchema;

    /// The limits of a request that reads rows.
    fn quota(quotas: &Quotas) -> &QuotaClass;

    fn upsert(key: RowKey, is_new: bool, row: &Self::Row<'_>, place: Self::Place) -> Box<RawValue>;

    /// `account_id` is absent if the connection has lost the account.
    fn remove(key: RowKey, account_id: Option<AccountId>) -> Box<RawValue>;
}

impl ChangeKind for Transactions {
    type Change = TransactionChange<'static>;

    fn quota(quotas: &Quotas) -> &QuotaClass {
        &quotas.live
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
