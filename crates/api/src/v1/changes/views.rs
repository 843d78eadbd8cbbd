//! Parameters of a page of changes, and its changes.

use bellbird_domain::AccountId;
use serde::{Deserialize, Serialize};

use crate::http::extract::ConnectionQuery;
use crate::http::parameters::{AccountParam, ConnectionParam, DateBound, Limit};
use crate::v1::trades::TradeView;
use crate::v1::transactions::TransactionView;

/// Entries of a page.
const LIMIT_MAX: u32 = 500;

type ChangesLimit = Limit<LIMIT_MAX, LIMIT_MAX>;

impl ConnectionQuery for ChangesQuery {
    fn ids(&self) -> (ConnectionParam, Option<AccountParam>) {
        (self.connection_id, self.account_id)
    }
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(crate) struct ChangesQuery {
    /// The connection to follow: an `id` from `/v1/connections`.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub connection_id: ConnectionParam,
    /// One account of the connection: an `id` from `/v1/accounts`. A cursor is for the account that
    /// it was made for.
    #[param(inline, example = "0191e7a0-91d4-7a01-8000-00aabbccddee")]
    pub account_id: Option<AccountParam>,
    /// The `cursor` of the last response. Without it, the first copy.
    #[param(inline, value_type = Option<String>, example = "dGhlIHNlYWxlZCBwbGFjZSBvZiBhIGNsaWVudA")]
    pub cursor: Option<String>,
    /// How far back the first copy reaches: a date in the user's timezone, or a timestamp. It
    /// reaches back to `watchedFrom` at least. Ignored with a cursor. Default: 30 days (720 hours)
    /// ago.
    #[param(inline, example = "2026-10-01")]
    pub from: Option<DateBound>,
    /// Maximum number of entries, 1 to 500. Larger values are clamped.
    #[param(inline, example = 500)]
    pub limit: Option<ChangesLimit>,
}

/// A change of a transaction.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(super) enum TransactionChange<'a> {
    /// Insert the row, or replace the one with this key.
    Upsert {
        /// Names the row among those of its connection.
        #[schema(example = "9f3b2c61d07a4e58")]
        key: String,
        /// Whether the row was first seen after the cursor was made.
        #[serde(rename = "isNew")]
        #[schema(example = true)]
        is_new: bool,
        transaction: TransactionView<'a>,
    },
    /// Remove the row with this key, if it is there.
    Remove {
        /// Names the row among those of its connection.
        #[schema(example = "9f3b2c61d07a4e58")]
        key: String,
        /// The row's account. Null if the connection has lost it.
        #[serde(rename = "accountId")]
        #[schema(
            value_type = Option<Uuid>, required = true,
            example = "0191e7a0-91d4-7a01-8000-00aabbccddee"
        )]
        account_id: Option<AccountId>,
    },
}

/// A change of a trade.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(super) enum TradeChange<'a> {
    /// Insert the row, or replace the one with this key.
    Upsert {
        /// Names the row among those of its connection, unlike its `id`.
        #[schema(example = "9f3b2c61d07a4e58")]
        key: String,
        /// Whether the row was first seen after the cursor was made.
        #[serde(rename = "isNew")]
        #[schema(example = true)]
        is_new: bool,
        trade: TradeView<'a>,
    },
    /// Remove the row with this key, if it is there.
    Remove {
        /// Names the row among those of its connection.
        #[schema(example = "9f3b2c61d07a4e58")]
        key: String,
        /// The row's account. Null if the connection has lost it.
        #[serde(rename = "accountId")]
        #[schema(
            value_type = Option<Uuid>, required = true,
            example = "0191e7a0-91d4-7a01-8000-00aabbccddee"
        )]
        account_id: Option<AccountId>,
    },
}
