//! What somebody whom the world does not know has at any institution of New Zealand. Numbers, balances and holders are
//! put in place when somebody signs in.

use super::holding::Holding;
use super::merchants::{CARD_SPENDING, SPENDING};
use super::rows::{Plan, QUIET, Times};
use super::standing_orders;

/// An account, and the middle of what its balance may be, in cents.
pub(crate) static HOLDINGS: [(Holding, i64); 4] = [
    (
        holding(
            r#"{"name":"Everyday","type":"CHECKING","attributes":["TRANSACTIONS","PAYMENT_TO","PAYMENT_FROM"]}"#,
            Plan {
                fixed: standing_orders::HOUSEHOLD,
                shops: SPENDING,
                spending: 180,
                times: Times::Mixed,
                pending: 1,
                ..QUIET
            },
        ),
        240_000,
    ),
    (
        holding(
            r#"{"name":"Saver","type":"SAVINGS","attributes":["TRANSACTIONS","PAYMENT_TO"]}"#,
            Plan { fixed: standing_orders::SAVING, ..QUIET },
        ),
        1_250_000,
    ),
    (
        holding(
            r#"{"name":"Visa","type":"CREDITCARD","attributes":["TRANSACTIONS"]}"#,
            Plan {
                fixed: standing_orders::CARD,
                shops: CARD_SPENDING,
                spending: 140,
                times: Times::Mixed,
                pending: 1,
                ..QUIET
            },
        ),
        -120_000,
    ),
    (
        holding(
            r#"{"name":"Home Loan","type":"LOAN","attributes":["TRANSACTIONS"]}"#,
            Plan { fixed: standing_orders::LOAN, ..QUIET },
        ),
        -38_000_000,
    ),
];

const fn holding(account: &'static str, plan: Plan) -> Holding {
    Holding { account, running: None, synced: true, plan, odd: &[] }
}
