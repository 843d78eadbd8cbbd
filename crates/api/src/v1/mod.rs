//! The paths of `/v1`. A resource is one file: its path with handler and description, its query
//! parameters, its body.

mod accounts;
mod balances;
mod cache;
mod categories;
mod changes;
mod connections;
pub(crate) mod deprecation;
mod health;
mod holdings;
mod live;
mod me;
mod metadata_cache;
mod pagination;
mod state;
mod trades;
mod transactions;

use crate::front::Path;

pub use accounts::{AccountList, AccountView};
pub use balances::{BalanceList, BalanceView};
pub use categories::{CategoryList, CategoryView};
pub use changes::{TradeChanges, TransactionChanges};
pub use connections::{ConnectionList, ConnectionView};
pub use health::Health;
pub use holdings::{HoldingList, HoldingView};
pub use me::Me;
pub use pagination::{Pagination, TradesPagination};
pub use state::{ApiSettings, V1State};
pub use trades::{TradeList, TradeView};
/// Public for benchmarks only.
#[doc(hidden)]
pub use transactions::TransactionsBody;
pub use transactions::{TransactionList, TransactionView};

/// All paths, in the order of the reference page.
pub(crate) fn paths() -> Vec<Path<V1State>> {
    vec![
        health::path(),
        health::ready_path(),
        connections::path(),
        accounts::path(),
        balances::path(),
        categories::path(),
        transactions::path(),
        changes::transactions_path(),
        holdings::path(),
        trades::path(),
        changes::trades_path(),
        me::path(),
    ]
}

#[cfg(test)]
mod tests {
    use bellbird_domain::page::{self, PageLimits};
    use utoipa::IntoParams;

    use super::*;
    use crate::front::parameters::ACCOUNT_IDS_MAX;

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
