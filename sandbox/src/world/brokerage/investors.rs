//! The invented brokers and investors: who has logins where, and what their accounts hold.

use super::deals::{Plan, Style};
use super::securities::{
    BTC, ETH, EXDV, EXG, EXGB, EXIF, EXIFX, EXMXX, EXPP, EXRB, EXRB_CALL, EXRB_TOKEN, EXS,
    EXS_CALL, EXTM, EXTM_CFD, EXTM_PUT, FABL, MPL, OTTR, SOL, Security, VXB, WREN, WTL,
};

pub(crate) struct Broker {
    pub(crate) slug: &'static str,
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) square_logo: bool,
    pub(crate) trading: bool,
    /// Whether a call reads its data from the broker (docs/providers/snaptrade.md#freshness).
    pub(crate) real_time: bool,
}

static BLUEGUM: Broker = Broker {
    slug: "BLUEGUM-EXAMPLE",
    name: "Bluegum Example Invest",
    description: "An invented online broker.",
    square_logo: true,
    trading: true,
    real_time: false,
};
static LAKESHORE: Broker = Broker {
    slug: "LAKESHORE-EXAMPLE",
    name: "Lakeshore Example Direct",
    description: "An invented discount broker with a wide logo only.",
    square_logo: false,
    trading: false,
    real_time: false,
};
static TIDEPOOL: Broker = Broker {
    slug: "TIDEPOOL-EXAMPLE",
    name: "Tidepool Example Markets",
    description: "An invented broker whose data is a mess.",
    square_logo: true,
    trading: false,
    real_time: false,
};
static HARRIER: Broker = Broker {
    slug: "HARRIER-EXAMPLE",
    name: "Harrier Example Securities",
    description: "An invented broker with real-time data.",
    square_logo: false,
    trading: true,
    real_time: true,
};
/// The slug is SnapTrade's own for its test brokerage
/// (docs/providers/snaptrade.md#connection-portal).
pub(crate) static SANDBOX: Broker = Broker {
    slug: "SANDBOX",
    name: "SnapTrade Sandbox",
    description: "Made-up data.",
    square_logo: true,
    trading: false,
    real_time: false,
};

/// Every broker, in the order of the lists.
pub(crate) static BROKERS: &[&Broker] = &[&BLUEGUM, &LAKESHORE, &TIDEPOOL, &HARRIER, &SANDBOX];

/// A person with logins at brokers.
pub(crate) struct Investor {
    pub(crate) user_id: &'static str,
    pub(crate) role: Role,
    pub(crate) logins: &'static [Login],
}

impl Investor {
    /// Whether `name` is the e-mail address with which this investor signs in at brokers.
    pub(crate) fn signs_in_as(&self, name: &str) -> bool {
        name.strip_suffix("@example.com")
            .is_some_and(|local| local.replace('.', "-") == self.user_id)
    }
}

/// The purpose of an investor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Has ready-made credentials.
    Listed,
    /// Appears in the control routes only.
    Hidden,
    /// Belongs to the personal key.
    Personal,
}

pub(crate) struct Login {
    pub(crate) broker: &'static Broker,
    pub(crate) disabled: bool,
    pub(crate) accounts: Accounts,
}

/// The source of a login's accounts.
pub(crate) enum Accounts {
    Made(&'static [AccountTemplate]),
    /// The fixed JSON of `messy.json`.
    Messy,
}

pub(crate) struct AccountTemplate {
    pub(crate) name: Option<&'static str>,
    pub(crate) raw_type: &'static str,
    /// One of SnapTrade's categories (docs/providers/snaptrade.md#accounts).
    pub(crate) category: &'static str,
    pub(crate) number: &'static str,
    /// Total value and its currency.
    pub(crate) total: (&'static str, &'static str),
    /// Currency, cash and buying power. Values have a fraction, because the official Python models
    /// reject whole numbers here.
    pub(crate) cash: &'static [(&'static str, &'static str, &'static str)],
    pub(crate) holdings: &'static [Holding],
    pub(crate) plan: Plan,
}

/// A position. Decimals are texts, exactly as served.
pub(crate) struct Holding {
    pub(crate) security: &'static Security,
    pub(crate) units: &'static str,
    pub(crate) price: &'static str,
    pub(crate) cost: &'static str,
    pub(crate) currency: &'static str,
    pub(crate) cash_equivalent: bool,
}

const fn held(
    security: &'static Security,
    units: &'static str,
    price: &'static str,
    cost: &'static str,
    currency: &'static str,
) -> Holding {
    Holding {
        security,
        units,
        price,
        cost,
        currency,
        cash_equivalent: false,
    }
}

const INVESTMENT: &str = "INVESTMENT";

/// Olivia's first login covers everything that a stock broker offers.
static AT_BLUEGUM: &[AccountTemplate] = &[
    AccountTemplate {
        name: Some("Bluegum Individual Margin"),
        raw_type: "Margin",
        category: INVESTMENT,
        number: "BG48213307",
        total: ("152363.23", "USD"),
        cash: &[
            ("USD", "-4210.71", "18400.05"),
            ("CAD", "300.5", "300.5"),
            ("AUD", "0.0", "0.0"),
        ],
        holdings: &[
            held(&EXRB, "10.53817", "184.32", "118.2", "USD"),
            held(&WREN, "40", "612.75", "590.1034", "USD"),
            held(&FABL, "-75", "39.14", "44.025", "USD"),
            held(&OTTR, "120", "52.07", "47.9", "USD"),
            held(&EXTM, "210.00417", "291.18", "204.336718", "USD"),
            held(&EXDV, "85", "108.44", "108.44", "USD"),
            held(&EXIF, "500", "11.63", "12.8", "USD"),
            held(&EXIFX, "31.207", "488.06", "366.901", "USD"),
            held(&EXRB_CALL, "3", "6.40", "4.15", "USD"),
            held(&EXTM_PUT, "-2", "11.20", "8.75", "USD"),
            Holding {
                cash_equivalent: true,
                ..held(&EXMXX, "2500.37", "1", "1", "USD")
            },
        ],
        plan: Plan::busiest(
            1500,
            1095,
            &[&EXRB, &WREN, &FABL, &OTTR, &EXTM, &EXDV, &EXIF, &EXIFX],
        ),
    },
    AccountTemplate {
        name: Some("Bluegum Futures"),
        raw_type: "Futures",
        category: INVESTMENT,
        number: "****5521",
        total: ("41877.5", "USD"),
        cash: &[("USD", "39002.5", "22115.0")],
        holdings: &[
            held(&EXS, "1", "6124.50", "6088.25", "USD"),
            held(&EXG, "-2", "451.25", "460.5", "USD"),
            held(&EXS_CALL, "1", "88.5", "92.25", "USD"),
        ],
        plan: Plan::futures(60, 400, &[&EXS, &EXG]),
    },
    AccountTemplate {
        name: Some("Bluegum Cash Management"),
        raw_type: "Cash Management",
        category: "DEPOSIT",
        number: "BG77120914",
        total: ("12840.09", "USD"),
        cash: &[("USD", "12840.09", "12840.09")],
        holdings: &[],
        plan: Plan::cash(70, 700),
    },
    AccountTemplate {
        name: Some("Bluegum Line of Credit"),
        raw_type: "Securities-Backed Line",
        category: "LOC",
        number: "BG90330058",
        total: ("-8250.0", "USD"),
        cash: &[("USD", "-8250.0", "16750.0")],
        holdings: &[],
        plan: Plan::loan(26, 760),
    },
];

/// Olivia's second login covers other countries and other kinds of securities.
static AT_LAKESHORE: &[AccountTemplate] = &[
    AccountTemplate {
        name: Some("Lakeshore TFSA"),
        raw_type: "TFSA",
        category: INVESTMENT,
        number: "29584410",
        total: ("27905.66", "CAD"),
        cash: &[("CAD", "1204.11", "1204.11"), ("USD", "88.02", "88.02")],
        holdings: &[
            held(&VXB, "640", "23.81", "22.0333", "CAD"),
            held(&MPL, "61", "158.6", "131.27", "CAD"),
            held(&EXDV, "12", "108.44", "99.105", "USD"),
        ],
        plan: Plan::stocks(180, 1000, Style::NewYorkMidnight, &[&VXB, &MPL, &EXDV]),
    },
    AccountTemplate {
        name: Some("Lakeshore Crypto"),
        raw_type: "Crypto",
        category: INVESTMENT,
        number: "LC-0077-3810",
        total: ("24870.114", "USD"),
        cash: &[("USD", "15.004471", "15.004471")],
        holdings: &[
            held(&BTC, "0.123456789", "91843.10", "60250.5", "USD"),
            held(&ETH, "3.500000000000000001", "3122.66", "2410.004", "USD"),
            held(&SOL, "14.25", "164.07", "188.9", "USD"),
            held(&EXRB_TOKEN, "1.5", "184.30", "170", "USD"),
        ],
        plan: Plan::crypto(120, 500, &[&BTC, &ETH, &SOL]),
    },
    AccountTemplate {
        name: None,
        raw_type: "International Cash",
        category: INVESTMENT,
        number: "60071932",
        total: ("61004.42", "AUD"),
        cash: &[("AUD", "5120.4", "5120.4"), ("USD", "40.31", "40.31")],
        holdings: &[
            held(&WTL, "900", "22.31", "19.8027", "AUD"),
            held(&EXGB, "250", "98.12", "100.03", "AUD"),
            held(&EXPP, "8000", "1", "1", "AUD"),
            held(&EXTM_CFD, "5", "291.18", "288.4", "USD"),
        ],
        plan: Plan::stocks(90, 800, Style::UtcMidnight, &[&WTL, &EXGB, &EXTM]),
    },
];

static AT_BLUEGUM_BEFORE: &[AccountTemplate] = &[
    AccountTemplate {
        name: Some("Bluegum Rollover IRA"),
        raw_type: "IRA",
        category: INVESTMENT,
        number: "BG11902277",
        total: ("8804.2", "USD"),
        cash: &[("USD", "104.2", "104.2")],
        holdings: &[held(&EXTM, "29.878", "291.18", "210", "USD")],
        plan: Plan::stocks(40, 400, Style::Exact, &[&EXTM, &EXDV]),
    },
    AccountTemplate {
        name: Some("Bluegum Fixed Annuity"),
        raw_type: "Annuity",
        category: "ANNUITY",
        number: "BG11902285",
        total: ("50000.0", "USD"),
        cash: &[("USD", "50000.0", "0.0")],
        holdings: &[],
        plan: Plan::cash(12, 400),
    },
];

static AT_HARRIER: &[AccountTemplate] = &[AccountTemplate {
    name: Some("Harrier Individual"),
    raw_type: "Cash",
    category: INVESTMENT,
    number: "HX-3321",
    total: ("1948.64", "USD"),
    cash: &[("USD", "105.44", "105.44")],
    holdings: &[held(&EXRB, "10", "184.32", "150", "USD")],
    plan: Plan::stocks(30, 200, Style::Exact, &[&EXRB]),
}];

/// The accounts of an unknown user name. Names and numbers are set when the user signs in.
pub(crate) static LINKED: &[AccountTemplate] = &[
    AccountTemplate {
        name: Some("Individual Margin"),
        raw_type: "Margin",
        category: INVESTMENT,
        number: "LK-20260001",
        total: ("16171.4", "USD"),
        cash: &[("USD", "-348.5", "7410.2")],
        holdings: &[
            held(&EXTM, "20", "291.17", "250", "USD"),
            held(&EXRB, "31.5", "184.32", "122.4", "USD"),
            held(&WREN, "8", "612.75", "580.1", "USD"),
        ],
        plan: Plan::stocks(60, 400, Style::Exact, &[&EXTM, &EXRB, &WREN]),
    },
    AccountTemplate {
        name: Some("Cash Management"),
        raw_type: "Cash Management",
        category: "DEPOSIT",
        number: "LK-20260002",
        total: ("250.1", "USD"),
        cash: &[("USD", "250.1", "250.1")],
        holdings: &[],
        plan: Plan::cash(10, 200),
    },
];

/// In the order of the credentials. The second investor is spare: only tests use her.
pub(crate) static INVESTORS: &[Investor] = &[
    Investor {
        user_id: "olivia-nguyen",
        role: Role::Listed,
        logins: &[
            Login {
                broker: &BLUEGUM,
                disabled: false,
                accounts: Accounts::Made(AT_BLUEGUM),
            },
            Login {
                broker: &LAKESHORE,
                disabled: false,
                accounts: Accounts::Made(AT_LAKESHORE),
            },
        ],
    },
    Investor {
        user_id: "priya-sharma",
        role: Role::Listed,
        logins: &[Login {
            broker: &TIDEPOOL,
            disabled: false,
            accounts: Accounts::Messy,
        }],
    },
    Investor {
        user_id: "jack-thompson",
        role: Role::Hidden,
        logins: &[Login {
            broker: &BLUEGUM,
            disabled: true,
            accounts: Accounts::Made(AT_BLUEGUM_BEFORE),
        }],
    },
    Investor {
        user_id: "zoe-okeefe",
        role: Role::Personal,
        logins: &[Login {
            broker: &HARRIER,
            disabled: false,
            accounts: Accounts::Made(AT_HARRIER),
        }],
    },
];
