//! The query parameters of each endpoint. A handler reads the struct from which the OpenAPI document describes its
//! parameters.

use bellbird_domain::{AccountId, ConnectionId, page};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::front::parameters::{AccountIds, DateBound, Id, Limit, Offset};

type ConnectionParam = Id<ConnectionId>;
type AccountParam = Id<AccountId>;
type AccountsLimit = Limit<{ page::ACCOUNTS.default }, { page::ACCOUNTS.max }>;
type TransactionsLimit = Limit<{ page::TRANSACTIONS.default }, { page::TRANSACTIONS.max }>;
type TradesLimit = Limit<{ page::TRADES.default }, { page::TRADES.max }>;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AccountsQuery {
    /// Maximum number of items, 1 to 200. Larger values are clamped; `pagination.limit` shows the value applied.
    #[param(inline, example = 50)]
    pub(crate) limit: Option<AccountsLimit>,
    /// Number of items to skip.
    #[param(inline, example = 0)]
    pub(crate) offset: Option<Offset>,
}

#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(crate) struct BalancesQuery {
    /// Account ids from `/v1/accounts`, separated by commas, at most 100. Order and repetition make no difference.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub(crate) account_ids: AccountIds,
}

#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(crate) struct TransactionsQuery {
    /// The connection to read: an `id` from `/v1/connections`.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub(crate) connection_id: ConnectionParam,
    /// One account of the connection: an `id` from `/v1/accounts`. Omitting it is deprecated; it then reads all
    /// accounts of the connection.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub(crate) account_id: Option<AccountParam>,
    /// The oldest end, inclusive. A date means the whole day in the user's timezone, a timestamp that instant.
    /// Timestamps are RFC 3339 with `T`, seconds, and `Z` or an offset (encode `+` as `%2B`). Default: 30 days (720
    /// hours) ago.
    #[param(inline, example = "2026-10-01")]
    pub(crate) from: Option<DateBound>,
    /// The newest end, inclusive. A date means the whole day in the user's timezone, a timestamp that instant.
    /// Timestamps are RFC 3339 with `T`, seconds, and `Z` or an offset (encode `+` as `%2B`). Default: now.
    #[param(inline, example = "2026-10-31T12:59:59Z")]
    pub(crate) to: Option<DateBound>,
    /// Maximum number of items, 1 to 500. Larger values are clamped; `pagination.limit` shows the value applied.
    #[param(inline, example = 200)]
    pub(crate) limit: Option<TransactionsLimit>,
    /// Number of items to skip.
    #[param(inline, example = 0)]
    pub(crate) offset: Option<Offset>,
}

#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(crate) struct HoldingsQuery {
    /// The connection to read: an `id` from `/v1/connections`.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub(crate) connection_id: ConnectionParam,
    /// One account of the connection: an `id` from `/v1/accounts`. Without it, the response contains all accounts of
    /// the connection.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub(crate) account_id: Option<AccountParam>,
}

#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(crate) struct TradesQuery {
    /// The connection to read: an `id` from `/v1/connections`.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub(crate) connection_id: ConnectionParam,
    /// One account of the connection: an `id` from `/v1/accounts`. Without it, the trades of all accounts of the
    /// connection are merged.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub(crate) account_id: Option<AccountParam>,
    /// The oldest end, inclusive. A date means the whole day in the user's timezone, a timestamp that instant.
    /// Timestamps are RFC 3339 with `T`, seconds, and `Z` or an offset (encode `+` as `%2B`). Default: chosen by the
    /// broker.
    #[param(inline, example = "2026-10-01")]
    pub(crate) from: Option<DateBound>,
    /// The newest end, inclusive. A date means the whole day in the user's timezone, a timestamp that instant.
    /// Timestamps are RFC 3339 with `T`, seconds, and `Z` or an offset (encode `+` as `%2B`). Default: chosen by the
    /// broker.
    #[param(inline, example = "2026-10-31T12:59:59Z")]
    pub(crate) to: Option<DateBound>,
    /// Maximum number of items, 1 to 500. Larger values are clamped; `pagination.limit` shows the value applied.
    #[param(inline, example = 200)]
    pub(crate) limit: Option<TradesLimit>,
    /// Number of items to skip.
    #[param(inline, example = 0)]
    pub(crate) offset: Option<Offset>,
}

#[cfg(test)]
mod tests {
    use bellbird_domain::page::PageLimits;

    use super::*;
    use crate::front::parameters::ACCOUNT_IDS_MAX;

    fn description<T: IntoParams>(name: &str) -> String {
        let parameters = T::into_params(|| None);
        parameters.into_iter().find(|parameter| parameter.name == name).unwrap().description.unwrap()
    }

    #[test]
    fn descriptions_have_the_enforced_bounds() {
        let check = |description: String, limits: PageLimits| {
            assert!(description.contains(&format!("1 to {}.", limits.max)), "{description}");
        };
        check(description::<AccountsQuery>("limit"), page::ACCOUNTS);
        check(description::<TransactionsQuery>("limit"), page::TRANSACTIONS);
        check(description::<TradesQuery>("limit"), page::TRADES);
        assert!(description::<BalancesQuery>("accountIds").contains(&format!("at most {ACCOUNT_IDS_MAX}.")));
    }
}
