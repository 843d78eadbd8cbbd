//! The people of Australia, with their banks and accounts. All names are invented.

use super::odd_rows::OddRows;
use super::rows::{Oddity, Plan};
use super::standing_orders;

/// A bank or an energy company. Ids are digit strings, as on the wire.
pub(crate) struct Institution {
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    pub(crate) industry: &'static str,
    pub(crate) status: &'static str,
}

const fn bank(id: &'static str, name: &'static str, status: &'static str) -> Institution {
    Institution {
        id,
        name,
        industry: "banking",
        status,
    }
}

/// `88888` is the provider's own test bank (docs/providers/fiskil.md#institutions); the others are
/// invented.
pub(crate) static INSTITUTIONS: &[Institution] = &[
    bank("11", "Ironbark Example Bank", "HEALTHY"),
    bank("22", "Kurrajong Example Mutual", "HEALTHY"),
    bank("40", "Tidewater Example Credit Union", "DEGRADED"),
    bank("10", "Lyrebird Example Savings", "HEALTHY"),
    bank("1", "Farpost Example Bank", "OUTAGE"),
    Institution {
        id: "140",
        name: "Mallee Example Energy",
        industry: "energy",
        status: "HEALTHY",
    },
    bank("88888", "Banking Sandbox Data Holder", "HEALTHY"),
];

/// A person with an e-mail address and consents at banks.
pub(crate) struct Person {
    pub(crate) name: &'static str,
    pub(crate) email: &'static str,
    pub(crate) phone: &'static str,
    pub(crate) consents: &'static [(&'static str, &'static [Holding])],
}

pub(crate) struct Holding {
    pub(crate) name: &'static str,
    pub(crate) nickname: Option<&'static str>,
    /// A product category of the Consumer Data Standards.
    pub(crate) category: &'static str,
    pub(crate) kind: HoldingKind,
    /// Current balance in cents.
    pub(crate) cents: i64,
    /// Credit limit in cents.
    pub(crate) limit: Option<i64>,
}

/// The kind of account, which decides its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldingKind {
    /// The busiest account has exactly the number of rows in `Options::rows`.
    Busiest,
    Everyday {
        spending: u32,
        pending: u32,
        oddity: Oddity,
    },
    Saver,
    Card,
    Mortgage,
    Deposit,
    Trust,
    Closed,
    Travel,
    /// Only the rows of `odd_rows.rs`.
    Odd(OddRows),
}

/// About three years.
pub(crate) const YEARS_DAYS: u32 = 1095;

impl HoldingKind {
    /// How its rows are generated.
    pub(crate) fn plan(self, busiest_rows: u32) -> Plan {
        let quiet = |fixed, nearest| Plan {
            fixed,
            spending: 0,
            exact: false,
            days: (nearest, YEARS_DAYS),
            pending: 0,
            oddity: Oddity::None,
        };
        match self {
            Self::Busiest => Plan {
                spending: busiest_rows,
                exact: true,
                pending: 3,
                ..quiet(standing_orders::HOUSEHOLD, 1)
            },
            Self::Everyday {
                spending,
                pending,
                oddity,
            } => Plan {
                spending,
                pending,
                oddity,
                ..quiet(standing_orders::HOUSEHOLD, 1)
            },
            Self::Saver => quiet(standing_orders::SAVING, 1),
            Self::Card => Plan {
                spending: 320,
                pending: 2,
                oddity: Oddity::ExecutionOnly,
                ..quiet(standing_orders::CARD, 1)
            },
            Self::Mortgage => quiet(standing_orders::MORTGAGE, 1),
            Self::Deposit => quiet(standing_orders::DEPOSIT, 1),
            Self::Trust => quiet(standing_orders::TRUST, 1),
            Self::Closed => Plan {
                spending: 20,
                ..quiet(&[], 500)
            },
            Self::Travel => Plan {
                pending: 1,
                ..quiet(standing_orders::TRAVELLING, 1)
            },
            Self::Odd(_) => quiet(&[], 1),
        }
    }
}

const TRANS: &str = "TRANS_AND_SAVINGS_ACCOUNTS";

const fn holding(
    name: &'static str,
    category: &'static str,
    kind: HoldingKind,
    cents: i64,
) -> Holding {
    Holding {
        name,
        nickname: None,
        category,
        kind,
        cents,
        limit: None,
    }
}

const fn everyday(
    name: &'static str,
    spending: u32,
    pending: u32,
    oddity: Oddity,
    cents: i64,
) -> Holding {
    holding(
        name,
        TRANS,
        HoldingKind::Everyday {
            spending,
            pending,
            oddity,
        },
        cents,
    )
}

const fn card(name: &'static str, cents: i64, limit: i64) -> Holding {
    Holding {
        limit: Some(limit),
        ..holding(name, "CRED_AND_CHRG_CARDS", HoldingKind::Card, cents)
    }
}

/// In the order of the credentials. From the third on they are spare: only tests use them.
pub(crate) static PEOPLE: &[Person] = &[
    Person {
        name: "Olivia Nguyen",
        email: "olivia.nguyen@example.com",
        phone: "+61491570156",
        consents: &[
            (
                "11",
                &[
                    Holding {
                        nickname: Some("Bills"),
                        ..holding("Ironbark Everyday", TRANS, HoldingKind::Busiest, 482_355)
                    },
                    holding(
                        "Ironbark Rainy Day Saver",
                        TRANS,
                        HoldingKind::Saver,
                        2_541_090,
                    ),
                    card("Ironbark Low Rate Card", -184_267, 1_000_000),
                    holding(
                        "Ironbark Home Loan",
                        "RESIDENTIAL_MORTGAGES",
                        HoldingKind::Mortgage,
                        -41_250_811,
                    ),
                ],
            ),
            (
                "22",
                &[
                    everyday("Kurrajong Access", 240, 1, Oddity::Decimals, 91_740),
                    holding(
                        "Kurrajong Term Deposit",
                        "TERM_DEPOSITS",
                        HoldingKind::Deposit,
                        5_000_000,
                    ),
                    holding(
                        "Kurrajong Solicitor Trust",
                        "REGULATED_TRUST_ACCOUNTS",
                        HoldingKind::Trust,
                        1_250_000,
                    ),
                    holding("Kurrajong Old Everyday", TRANS, HoldingKind::Closed, 0),
                    holding(
                        "Kurrajong Globe Card",
                        "TRAVEL_CARDS",
                        HoldingKind::Travel,
                        64_215,
                    ),
                ],
            ),
        ],
    },
    Person {
        name: "Jack Thompson",
        email: "jack.thompson@example.com",
        phone: "+61491570157",
        consents: &[(
            "88888",
            &[
                everyday("Sandbox Everyday", 420, 2, Oddity::None, 215_038),
                holding("Sandbox eSaver", TRANS, HoldingKind::Saver, 880_412),
                card("Sandbox Platinum Card", -52_960, 600_000),
            ],
        )],
    },
    Person {
        name: "Priya Sharma",
        email: "priya.sharma@example.com",
        phone: "+61491570158",
        consents: &[(
            "40",
            &[everyday(
                "Tidewater Everyday",
                120,
                1,
                Oddity::Digits,
                73_311,
            )],
        )],
    },
    Person {
        name: "Zoë O'Keefe",
        email: "zoe.okeefe@example.com",
        phone: "+61491570159",
        consents: &[(
            "10",
            &[
                everyday("Lyrebird Daily", 90, 0, Oddity::None, 18_204),
                holding(
                    "Lyrebird Savings Maximiser",
                    TRANS,
                    HoldingKind::Saver,
                    402_577,
                ),
            ],
        )],
    },
    Person {
        name: "Odette Rowe",
        email: "odette.rowe@example.com",
        phone: "+61491570110",
        consents: &[(
            "40",
            &[
                holding(
                    "Odd \"Everyday\"; <A> & #B | C:D",
                    TRANS,
                    HoldingKind::Odd(OddRows::All),
                    12_345,
                ),
                holding(
                    "=Odd Card",
                    "CRED_AND_CHRG_CARDS",
                    HoldingKind::Odd(OddRows::Texts),
                    -98_765,
                ),
            ],
        )],
    },
];
