//! The spare person's accounts: legal but unusual values of every kind
//! (docs/providers/akahu.md#accounts,
//! #transactions, #sandbox-choices).

use super::holding::Holding;
use super::merchants::SPENDING;
use super::rows::{Plan, QUIET, Times};
use crate::world::odd_rows::OddRows;

pub(crate) static ACCOUNTS: &[Holding] = &[
    Holding {
        account: r#"{"_migrated":"acc_cjspare000000000000000001","name":"Rimu Everyday","type":"CHECKING",
            "formatted_account":"12-3456-0000001-051","attributes":["TRANSACTIONS","PAYMENT_TO","PAYMENT_FROM"],
            "balance":{"currency":"NZD","current":733.1,"available":-266.9,"overdrawn":true},
            "meta":{"holder":"MRS A WILLIAMS","has_unlisted_holders":true}}"#,
        running: Some(73_310),
        synced: true,
        plan: Plan {
            shops: SPENDING,
            spending: 220,
            times: Times::Mixed,
            days: (1, 90),
            pending: 2,
            ..QUIET
        },
        odd: ROWS,
        odd_rows: OddRows::None,
    },
    Holding {
        account: r#"{"name":"Pay Later","type":"BUY_NOW_PAY_LATER","formatted_account":"PL-0042",
            "attributes":["TRANSACTIONS","TRANSFER_TO","LOYALTY_FROM"],
            "balance":{"currency":"NZD","current":-120},"meta":{"mystery":[1.10,null]},"new_member":{"deep":true}}"#,
        running: None,
        synced: true,
        plan: Plan {
            shops: SPENDING,
            spending: 20,
            ..QUIET
        },
        odd: &[],
        odd_rows: OddRows::None,
    },
    Holding {
        account: r#"{"name":"Account without a balance","type":"SAVINGS","formatted_account":"12-3456-0000001-50",
            "attributes":["TRANSACTIONS"],"meta":{"holder":"MRS A WILLIAMS"}}"#,
        running: None,
        synced: true,
        plan: Plan {
            shops: SPENDING,
            spending: 10,
            times: Times::Mixed,
            ..QUIET
        },
        odd: &[],
        odd_rows: OddRows::None,
    },
    Holding {
        account: r#"{"name":"Card without a number","type":"CREDITCARD","attributes":["TRANSACTIONS"],
            "balance":{"currency":"NZD","current":-4300.59,"available":561.57,"limit":5000,"overdrawn":false}}"#,
        running: None,
        synced: true,
        plan: Plan {
            shops: SPENDING,
            spending: 40,
            times: Times::UtcMidnight,
            days: (1, 600),
            pending: 1,
            ..QUIET
        },
        odd: &[],
        odd_rows: OddRows::None,
    },
    Holding {
        account: r#"{"name":"Personal Loan","type":"LOAN","formatted_account":"12-3456-0000001-090",
            "attributes":["TRANSACTIONS"],"balance":{"currency":"NZD","current":-8000.00},
            "meta":{"loan_details":{"purpose":"PERSONAL","type":"UNKNOWN","interest":{"rate":13.95,"type":"FLOATING"},
                "is_interest_only":false,"term":{"years":4,"months":6}}}}"#,
        running: None,
        synced: false,
        plan: QUIET,
        odd: &[],
        odd_rows: OddRows::None,
    },
];

/// The ids of credit codes and of unknown codes are invented, because no real ones are known
/// (docs/providers/akahu.md#categories).
static ROWS: &[&str] = &[
    r#"{"amount":-1000}"#,
    r#"{"amount":15.9,"type":"CREDIT"}"#,
    r#"{"amount":-1.59e1}"#,
    r#"{"amount":2E3,"type":"CREDIT"}"#,
    r#"{"amount":-12.500}"#,
    r#"{"amount":-0.00}"#,
    r#"{"amount":0}"#,
    r#"{"amount":-12345678901234567890123456789012345678.91}"#,
    r#"{"amount":1234567.8900,"balance":-0.10,"type":"CREDIT"}"#,
    r#"{"amount":-3.141}"#,
    r#"{"amount":-25.5,"description":"CATEGORY WITHOUT GROUPS","merchant":{"_id":"merchant_cspare0000000000000000001",
        "name":"Groupless"},"category":{"_id":"nzfcc_ckouvvyw1004408mlhy158i7j","name":"Cafes and restaurants"}}"#,
    r#"{"amount":-31,"description":"UNKNOWN CODE KNOWN GROUP","merchant":{"_id":"merchant_cspare0000000000000000002",
        "name":"Newcomer"},"category":{"_id":"nzfcc_cspare0000000000000000001","name":"Space travel agencies",
        "groups":{"personal_finance":{"_id":"group_clasr0ysw000whk4m577xhmf3","name":"Transport"}}}}"#,
    r#"{"amount":-32,"description":"UNKNOWN CODE UNKNOWN GROUP","type":"EFTPOS",
        "merchant":{"_id":"merchant_cspare0000000000000000003","name":"Stranger"},
        "category":{"_id":"nzfcc_cspare0000000000000000002","name":"Dream interpretation",
        "groups":{"personal_finance":{"_id":"group_cspare0000000000000000001","name":"Inner life"}}}}"#,
    r#"{"amount":-33,"description":"GROUPS OF ANOTHER KIND","merchant":{"_id":"merchant_cspare0000000000000000004",
        "name":"Otherwise"},"category":{"_id":"nzfcc_cspare0000000000000000003","name":"Odd jobs",
        "groups":{"lending":{"_id":"group_cspare0000000000000000002","name":"Discretionary"}}}}"#,
    r#"{"amount":2846.15,"description":"KERERU SCHOOLS SALARY","type":"DIRECT CREDIT","meta":{},
        "merchant":{"_id":"merchant_cspare0000000000000000005","name":"Kererū Schools"},
        "category":{"_id":"nzfcc_cspare0000000000000000010","name":"Salary or wages"}}"#,
    r#"{"amount":64.2,"description":"WHOLESALER REFUND","type":"CREDIT",
        "merchant":{"_id":"merchant_cspare0000000000000000006","name":"Wholesaler"},
        "category":{"_id":"nzfcc_cspare0000000000000000011","name":"Refunds and reimbursements","groups":{}}}"#,
    r#"{"amount":18.9,"description":"LONG WHITE COFFEE REFUND","type":"CREDIT",
        "merchant":{"_id":"merchant_cspare0000000000000000007","name":"Long White Coffee"},
        "category":{"_id":"nzfcc_ckouvvyw1004408mlhy158i7j","name":"Cafes and restaurants",
        "groups":{"personal_finance":{"_id":"group_clasr0ysw0011hk4m6hlk9fq0","name":"Lifestyle"}}}}"#,
    r#"{"meta":{},"merchant":null,"category":null}"#,
    r#"{"meta":null,"merchant":null,"category":null}"#,
    r#"{"_migrated":"trans_cjspare0000000000000000001","_migrated_account":"acc_cjspare000000000000000001"}"#,
    r#"{"type":"CRYPTO SWAP","merchant":null,"category":null,"amount":-7}"#,
    r#"{"balance":null,"hash":"acc_cjspare-6f1d","new_member":{"n":1.50}}"#,
    r#"{"description":"CAFÉ “ŌTAUTAHI” 🥝 \u0026 \"co\" \\ slash","amount":-6.5}"#,
];
