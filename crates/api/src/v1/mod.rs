//! The routes of `/v1`. A resource is one file: its documented handler, query parameters and body.

mod accounts;
mod balances;
mod cache;
mod categories;
mod changes;
mod connections;
mod health;
mod holdings;
mod live;
mod me;
mod metadata_cache;
mod pagination;
mod state;
mod trades;
mod transactions;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::http::Routes;

pub use accounts::{AccountList, AccountView};
pub use balances::{BalanceList, BalanceView};
pub use categories::{CategoryList, CategoryView};
pub use connections::{ConnectionList, ConnectionView};
pub use health::Health;
pub use holdings::{HoldingList, HoldingView};
pub use me::Me;
pub use pagination::{Pagination, TradesPagination};
pub use state::{ApiSettings, V1State};
pub use trades::{TradeList, TradeView};
#[cfg(test)]
pub(crate) use transactions::SUNSET_DATE;
/// Public for benchmarks only.
#[doc(hidden)]
pub use transactions::TransactionsBody;
pub use transactions::{TransactionList, TransactionView};

/// All routes, by what they cost, in the order of the reference page.
pub(crate) fn routes() -> Routes<V1State> {
    let open = OpenApiRouter::default()
        .routes(routes!(health::health))
        .routes(routes!(health::ready));
    let metadata = OpenApiRouter::default()
        .routes(routes!(connections::list_connections))
        .routes(routes!(accounts::list_accounts))
        .routes(routes!(categories::list_categories));
    let balances = OpenApiRouter::default().routes(routes!(balances::list_balances));
    let live = OpenApiRouter::default().routes(routes!(transactions::list_transactions));
    let changes = OpenApiRouter::default().routes(routes!(changes::list_transaction_changes));
    let brokerage = OpenApiRouter::default()
        .routes(routes!(holdings::list_holdings))
        .routes(routes!(trades::list_trades));
    let brokerage_changes = OpenApiRouter::default().routes(routes!(changes::list_trade_changes));
    let every_plan = OpenApiRouter::default().routes(routes!(me::show_me));
    Routes::new()
        .open(open)
        .users(|state| &state.context.quotas().metadata, metadata)
        .users(|state| &state.context.quotas().balances, balances)
        .users(|state| &state.context.quotas().live, live)
        .users_with_codes(|state| &state.context.quotas().metadata, changes)
        .users(|state| &state.context.quotas().brokerage, brokerage)
        .users_with_codes(
            |state| &state.context.quotas().brokerage_metadata,
            brokerage_changes,
        )
        .users_with_codes(|state| &state.context.quotas().every_plan, every_plan)
}

#[cfg(test)]
mod tests {
    use bellbird_domain::page::{self, PageLimits};
    use utoipa::IntoParams;

    use super::*;
    use crate::http::parameters::ACCOUNT_IDS_MAX;

    fn description<T: IntoParams>(name: &str) -> String {
        let parameters = T::into_params(|| None);
        parameters
            .into_iter()
            .find(|parameter| parameter.name == name)
            .unwrap()
            .description
            .unwrap()
    }

    #[test]
    fn descriptions_have_the_enforced_bounds() {
        let check = |description: String, limits: PageLimits| {
            assert!(
                description.contains(&format!("1 to {}.", limits.max)),
                "{description}"
            );
        };
        check(
            description::<accounts::AccountsQuery>("limit"),
            page::ACCOUNTS,
        );
        check(
            description::<transactions::TransactionsQuery>("limit"),
            page::TRANSACTIONS,
        );
        check(description::<trades::TradesQuery>("limit"), page::TRADES);
        assert!(
            description::<balances::BalancesQuery>("accountIds")
                .contains(&format!("at most {ACCOUNT_IDS_MAX}."))
        );
    }
}
