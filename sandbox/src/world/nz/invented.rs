//! The accounts of every unknown user name at a New Zealand institution. Numbers, balances and
//! holders are set when the user signs in.

use super::holding::Holding;
use super::merchants::{CARD_SPENDING, SPENDING};
use super::rows::{Plan, QUIET, Times};
use super::standing_orders;
use crate::world::odd_rows::OddRows;

/// An account, and the amount in cents around which its balance varies.
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
            Plan {
                fixed: standing_orders::SAVING,
                ..QUIET
            },
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
            Plan {
                fixed: standing_orders::LOAN,
                ..QUIET
            },
        ),
        -38_000_000,
    ),
];

const fn holding(account: &'static str, plan: Plan) -> Holding {
    Holding {
        account,
        running: None,
        synced: true,
        plan,
        odd: &[],
        odd_rows: OddRows::None,
    }
}
