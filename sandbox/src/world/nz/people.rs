//! The people of New Zealand, with their logins and accounts. All names are invented.

use super::holding::{Holding, holding, with_odd_rows, without_rows};
use super::institutions::{KAHIKATEA, KAURI, POHUTUKAWA, RIMU, TOTARA};
use super::merchants::{CARD_SPENDING, SPENDING, WALLET_SPENDING};
use super::rows::{Plan, QUIET, Times};
use super::{spare, standing_orders};
use crate::world::odd_rows::OddRows;

/// A person with logins at institutions, all under one token.
pub(crate) struct Person {
    pub(crate) name: &'static str,
    pub(crate) email: &'static str,
    pub(crate) logins: &'static [Login],
    /// Whether the logins are among the ready-made credentials.
    pub(crate) is_listed: bool,
}

/// One login, which Akahu calls an authorisation.
pub(crate) struct Login {
    pub(crate) connection: &'static str,
    /// False if the institution rejects the login.
    pub(crate) active: bool,
    pub(crate) accounts: &'static [Holding],
}

/// The first person is the main example. The second is spare and full of oddities; the third cannot
/// be refreshed. The fourth has the odd rows.
pub(crate) static PEOPLE: &[Person] = &[
    Person {
        name: "Olivia Nguyen",
        email: "olivia.nguyen@example.com",
        logins: &[
            Login {
                connection: KAURI,
                active: true,
                accounts: KAURI_ACCOUNTS,
            },
            Login {
                connection: POHUTUKAWA,
                active: true,
                accounts: POHUTUKAWA_ACCOUNTS,
            },
        ],
        is_listed: true,
    },
    Person {
        name: "Aroha Williams",
        email: "aroha.williams@example.com",
        logins: &[Login {
            connection: RIMU,
            active: true,
            accounts: spare::ACCOUNTS,
        }],
        is_listed: true,
    },
    Person {
        name: "Tama Brown",
        email: "tama.brown@example.com",
        logins: &[Login {
            connection: TOTARA,
            active: false,
            accounts: TOTARA_ACCOUNTS,
        }],
        is_listed: false,
    },
    Person {
        name: "Odette Rowe",
        email: "odette.rowe@example.com",
        logins: &[Login {
            connection: KAHIKATEA,
            active: true,
            accounts: ODD_ACCOUNTS,
        }],
        is_listed: true,
    },
];

static KAURI_ACCOUNTS: &[Holding] = &[
    holding(
        r#"{"name":"Kauri Everyday","type":"CHECKING","formatted_account":"01-0842-0123456-00",
            "attributes":["TRANSACTIONS","PAYMENT_TO","PAYMENT_FROM"],
            "balance":{"currency":"NZD","current":4823.55,"available":5323.55,"limit":500,"overdrawn":false},
            "meta":{"holder":"MS O NGUYEN"}}"#,
        482_355,
        Plan {
            fixed: standing_orders::HOUSEHOLD,
            shops: SPENDING,
            spending: 400,
            times: Times::Mixed,
            edges: true,
            pending: 3,
            ..QUIET
        },
    ),
    holding(
        r#"{"name":"Rainy Day Saver","type":"SAVINGS","formatted_account":"01-0842-0123456-30",
            "attributes":["TRANSACTIONS","PAYMENT_TO"],
            "balance":{"currency":"NZD","current":25410.9,"available":25410.9,"overdrawn":false},
            "meta":{"holder":"MS O NGUYEN"}}"#,
        2_541_090,
        Plan {
            fixed: standing_orders::SAVING,
            ..QUIET
        },
    ),
    Holding {
        running: None,
        ..holding(
            r#"{"name":"Low Rate Visa","type":"CREDITCARD","formatted_account":"4988-****-****-1267",
                "attributes":["TRANSACTIONS"],
                "balance":{"currency":"NZD","current":-1842.67,"available":8157.33,"limit":10000,"overdrawn":false},
                "meta":{"holder":"MS O NGUYEN","interest_free_days":55}}"#,
            0,
            Plan {
                fixed: standing_orders::CARD,
                shops: CARD_SPENDING,
                spending: 320,
                times: Times::Mixed,
                pending: 2,
                ..QUIET
            },
        )
    },
    holding(
        r#"{"name":"Home Loan","type":"LOAN","formatted_account":"01-0842-0123456-91",
            "attributes":["TRANSACTIONS"],
            "balance":{"currency":"NZD","current":-412508.11,"overdrawn":false},
            "meta":{"holder":"MS O NGUYEN","loan_details":{"purpose":"HOME","type":"TABLE",
                "interest":{"rate":5.49,"type":"FIXED","expires_at":"2028-03-31T11:00:00.000Z"},
                "is_interest_only":false,"initial_principal":520000,
                "repayment":{"frequency":"FORTNIGHTLY","next_amount":1214.5}}}}"#,
        -41_250_811,
        Plan {
            fixed: standing_orders::LOAN,
            ..QUIET
        },
    ),
    holding(
        r#"{"name":"Term Deposit","type":"TERMDEPOSIT","formatted_account":"01-0842-0123456-70",
            "attributes":["TRANSACTIONS"],
            "balance":{"currency":"NZD","current":50000,"available":0},
            "meta":{"holder":"MS O NGUYEN"}}"#,
        5_000_000,
        Plan {
            fixed: standing_orders::DEPOSIT,
            ..QUIET
        },
    ),
    holding(
        r#"{"name":"US Dollar Account","type":"FOREIGN","formatted_account":"01-0842-0123456-45",
            "attributes":["TRANSACTIONS"],
            "balance":{"currency":"USD","current":3120.4,"available":3120.4,"overdrawn":false},
            "meta":{"holder":"MS O NGUYEN"}}"#,
        312_040,
        Plan {
            fixed: standing_orders::FOREIGN,
            ..QUIET
        },
    ),
    without_rows(
        r#"{"name":"Kauri Rewards","type":"REWARDS","attributes":[],
            "balance":{"currency":"NZD","current":87.2},"meta":{"holder":"MS O NGUYEN"}}"#,
    ),
];

static POHUTUKAWA_ACCOUNTS: &[Holding] = &[
    without_rows(
        r#"{"name":"KiwiSaver Growth Fund","type":"KIWISAVER","attributes":[],
            "balance":{"currency":"NZD","current":38214.77},
            "meta":{"holder":"MS O NGUYEN","breakdown":{"returns":6120.4,"member_contribution":21000.37}}}"#,
    ),
    holding(
        r#"{"name":"Index Portfolio","type":"INVESTMENT","attributes":["TRANSACTIONS"],
            "balance":{"currency":"NZD","current":15980.02},"meta":{"holder":"MS O NGUYEN"}}"#,
        1_598_002,
        Plan {
            fixed: standing_orders::INVESTING,
            ..QUIET
        },
    ),
    holding(
        r#"{"name":"Pocket Wallet","type":"WALLET","attributes":["TRANSACTIONS"],
            "balance":{"currency":"NZD","current":64.5},"meta":{}}"#,
        6450,
        Plan {
            shops: WALLET_SPENDING,
            spending: 90,
            pending: 1,
            ..QUIET
        },
    ),
    without_rows(
        r#"{"name":"Income Tax","type":"TAX","formatted_account":"049-091-850","attributes":[],
            "balance":{"currency":"NZD","current":-312.08}}"#,
    ),
    holding(
        r#"{"name":"Cash Hub","type":"CHECKING","formatted_account":"31-2840-0765432-00",
            "attributes":["TRANSACTIONS","PAYMENT_TO"],
            "balance":{"currency":"NZD","current":917.4,"available":917.4,"overdrawn":false},
            "meta":{"holder":"MS O NGUYEN"}}"#,
        91_740,
        Plan {
            fixed: standing_orders::SAVING,
            shops: SPENDING,
            spending: 160,
            times: Times::Mixed,
            pending: 1,
            ..QUIET
        },
    ),
];

static TOTARA_ACCOUNTS: &[Holding] = &[
    holding(
        r#"{"name":"Tōtara Everyday","type":"CHECKING","formatted_account":"15-3947-0246810-00",
            "attributes":["TRANSACTIONS","PAYMENT_TO"],
            "balance":{"currency":"NZD","current":182.04,"available":182.04,"overdrawn":false},
            "meta":{"holder":"MR T BROWN"}}"#,
        18_204,
        Plan {
            shops: SPENDING,
            spending: 90,
            times: Times::Mixed,
            days: (12, 400),
            ..QUIET
        },
    ),
    holding(
        r#"{"name":"Tōtara Saver","type":"SAVINGS","formatted_account":"15-3947-0246810-30",
            "attributes":["TRANSACTIONS"],
            "balance":{"currency":"NZD","current":4025.77,"available":4025.77,"overdrawn":false},
            "meta":{"holder":"MR T BROWN"}}"#,
        402_577,
        Plan {
            fixed: standing_orders::SAVING,
            days: (12, 400),
            ..QUIET
        },
    ),
];

static ODD_ACCOUNTS: &[Holding] = &[
    with_odd_rows(
        r#"{"name":"Odd \"Everyday\"; <A> & #B | C:D","type":"CHECKING","formatted_account":"03-0123-0135791-00",
            "attributes":["TRANSACTIONS"],
            "balance":{"currency":"NZD","current":123.45,"available":123.45,"overdrawn":false},
            "meta":{"holder":"MS O ROWE"}}"#,
        OddRows::All,
    ),
    with_odd_rows(
        r#"{"name":"=Odd 円","type":"FOREIGN","formatted_account":"03-0123-0135791-45",
            "attributes":["TRANSACTIONS"],"balance":{"currency":"JPY","current":152000},
            "meta":{"holder":"MS O ROWE"}}"#,
        OddRows::Whole,
    ),
    with_odd_rows(
        r#"{"name":"@Odd account without a balance","type":"SAVINGS","formatted_account":"03-0123-0135791-50",
            "attributes":["TRANSACTIONS"],"meta":{"holder":"MS O ROWE"}}"#,
        OddRows::Texts,
    ),
];
