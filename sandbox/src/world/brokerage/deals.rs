//! The kinds of rows that an account at a broker has, and the plans that combine them. Texts use
//! SnapTrade's terms (docs/providers/snaptrade.md#activities).

use super::securities::{BTC, EXRB, EXRB_CALL, EXTM, EXTM_PUT, OTTR, Security, WREN_PUT};

/// How a deal moves shares and money.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Buy,
    Sell,
    /// Money paid because of a security.
    Income,
    MoneyIn,
    MoneyOut,
    SharesIn,
    SharesOut,
    OptionBuy,
    OptionSell,
    /// An option ends without a payment.
    OptionEnd,
}

pub(crate) struct Deal {
    /// The `type` member.
    pub(crate) kind: &'static str,
    pub(crate) flow: Flow,
    /// The `option_type` member; empty unless an option is traded.
    pub(crate) option_type: &'static str,
    /// The start of the description.
    pub(crate) text: &'static str,
}

/// How a broker writes the time of a trade (docs/providers/snaptrade.md#activity-dates).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// With the time of day; rows that are no trades have midnight UTC.
    Exact,
    UtcMidnight,
    NewYorkMidnight,
}

/// How the rows of an account are generated.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) rows: u32,
    /// How many days the rows reach back.
    pub(crate) days: u32,
    pub(crate) style: Style,
    /// The securities that rows are about.
    pub(crate) securities: &'static [&'static Security],
    pub(crate) options: &'static [&'static Security],
    /// Kinds drawn at random; repeated entries are more likely.
    pub(crate) daily: &'static [Deal],
    /// Rare kinds, used in rotation so that each occurs.
    pub(crate) rotation: &'static [Deal],
}

impl Plan {
    const fn new(rows: u32, days: u32, daily: &'static [Deal], rotation: &'static [Deal]) -> Self {
        Self {
            rows,
            days,
            style: Style::UtcMidnight,
            securities: &[],
            options: &[],
            daily,
            rotation,
        }
    }

    /// Shares, funds and the rows that come with them.
    pub(crate) const fn stocks(
        rows: u32,
        days: u32,
        style: Style,
        securities: &'static [&'static Security],
    ) -> Self {
        Self {
            style,
            securities,
            ..Self::new(rows, days, SHARES, ALL)
        }
    }

    /// Adds options: every documented type, and every side of an option trade.
    pub(crate) const fn busiest(
        rows: u32,
        days: u32,
        securities: &'static [&'static Security],
    ) -> Self {
        Self {
            options: OPTIONS,
            daily: SHARES_AND_OPTIONS,
            ..Self::stocks(rows, days, Style::Exact, securities)
        }
    }

    /// Buys and sells only, with the time of day.
    pub(crate) const fn futures(
        rows: u32,
        days: u32,
        securities: &'static [&'static Security],
    ) -> Self {
        Self {
            style: Style::Exact,
            securities,
            ..Self::new(rows, days, TRADES, TRADES)
        }
    }

    /// Coins, which trade on every day.
    pub(crate) const fn crypto(
        rows: u32,
        days: u32,
        securities: &'static [&'static Security],
    ) -> Self {
        Self {
            style: Style::Exact,
            securities,
            ..Self::new(rows, days, TRADES, COINS)
        }
    }

    /// Deposits, withdrawals and interest.
    pub(crate) const fn cash(rows: u32, days: u32) -> Self {
        Self::new(rows, days, MONEY, MONEY)
    }

    /// Borrowed money.
    pub(crate) const fn loan(rows: u32, days: u32) -> Self {
        Self::new(rows, days, LOAN, LOAN)
    }

    /// The plan for an account that a test fills.
    pub(crate) const fn fill(rows: u32) -> Self {
        Self::busiest(rows, 1095, COMMON)
    }

    /// Coins have many decimals, and trades of coins are paid in a coin.
    pub(crate) fn is_crypto(&self) -> bool {
        self.securities
            .first()
            .is_some_and(|first| first.symbol == BTC.symbol)
    }
}

static OPTIONS: &[&Security] = &[&EXRB_CALL, &EXTM_PUT, &WREN_PUT];
static COMMON: &[&Security] = &[&EXRB, &EXTM, &OTTR];

const fn deal(kind: &'static str, flow: Flow, text: &'static str) -> Deal {
    Deal {
        kind,
        flow,
        option_type: "",
        text,
    }
}

const fn option(
    kind: &'static str,
    flow: Flow,
    option_type: &'static str,
    text: &'static str,
) -> Deal {
    Deal {
        kind,
        flow,
        option_type,
        text,
    }
}

const BUY: Deal = deal("BUY", Flow::Buy, "BOUGHT");
const SELL: Deal = deal("SELL", Flow::Sell, "SOLD");
const DIVIDEND: Deal = deal("DIVIDEND", Flow::Income, "DIVIDEND ON");
const REINVESTED: Deal = deal("REI", Flow::Buy, "REINVESTMENT -");
const CONTRIBUTION: Deal = deal("CONTRIBUTION", Flow::MoneyIn, "ELECTRONIC DEPOSIT");
const WITHDRAWAL: Deal = deal("WITHDRAWAL", Flow::MoneyOut, "ELECTRONIC WITHDRAWAL");
const INTEREST: Deal = deal("INTEREST", Flow::MoneyIn, "CREDIT INTEREST");
const INTEREST_OWED: Deal = deal("INTEREST", Flow::MoneyOut, "MARGIN INTEREST CHARGED");
const FEE: Deal = deal("FEE", Flow::MoneyOut, "REGULATORY FEE");
const TAX: Deal = deal("TAX", Flow::MoneyOut, "NON-RESIDENT TAX WITHHELD");
const CASH_IN: Deal = deal(
    "INTERNAL_CASH_TRANSFER_IN",
    Flow::MoneyIn,
    "TRANSFER FROM OWN ACCOUNT",
);
const CASH_OUT: Deal = deal(
    "INTERNAL_CASH_TRANSFER_OUT",
    Flow::MoneyOut,
    "TRANSFER TO OWN ACCOUNT",
);

static SHARES: &[Deal] = &[
    BUY,
    BUY,
    BUY,
    BUY,
    SELL,
    SELL,
    DIVIDEND,
    DIVIDEND,
    REINVESTED,
    CONTRIBUTION,
    INTEREST,
    FEE,
];
static SHARES_AND_OPTIONS: &[Deal] = &[
    BUY,
    BUY,
    BUY,
    BUY,
    BUY,
    SELL,
    SELL,
    SELL,
    DIVIDEND,
    DIVIDEND,
    REINVESTED,
    CONTRIBUTION,
    INTEREST,
    FEE,
    option("BUY", Flow::OptionBuy, "BUY_TO_OPEN", "BOUGHT TO OPEN"),
    option("SELL", Flow::OptionSell, "SELL_TO_OPEN", "SOLD TO OPEN"),
];
static TRADES: &[Deal] = &[BUY, BUY, SELL];
static COINS: &[Deal] = &[
    BUY,
    SELL,
    deal("EXTERNAL_ASSET_TRANSFER_IN", Flow::SharesIn, "RECEIVED"),
    deal("REI", Flow::Buy, "STAKING"),
];
static MONEY: &[Deal] = &[CONTRIBUTION, WITHDRAWAL, INTEREST, CASH_IN, CASH_OUT, FEE];
static LOAN: &[Deal] = &[
    deal("INTEREST", Flow::MoneyOut, "INTEREST CHARGED"),
    WITHDRAWAL,
    CONTRIBUTION,
    FEE,
];

/// Every documented type.
static ALL: &[Deal] = &[
    BUY,
    SELL,
    DIVIDEND,
    deal("SUBSTITUTE_DIVIDEND", Flow::Income, "PAYMENT IN LIEU ON"),
    CONTRIBUTION,
    WITHDRAWAL,
    REINVESTED,
    deal("STOCK_DIVIDEND", Flow::SharesIn, "STOCK DIVIDEND ON"),
    INTEREST,
    INTEREST_OWED,
    FEE,
    TAX,
    deal("REBATE", Flow::MoneyIn, "COMMISSION REBATE"),
    deal("RETURN_OF_CAPITAL", Flow::Income, "RETURN OF CAPITAL ON"),
    deal("DISTRIBUTION", Flow::Income, "DISTRIBUTION ON"),
    option("OPTIONEXPIRATION", Flow::OptionEnd, "", "EXPIRED"),
    option("OPTIONASSIGNMENT", Flow::OptionEnd, "", "ASSIGNED"),
    option("OPTIONEXERCISE", Flow::OptionEnd, "", "EXERCISED"),
    option("BUY", Flow::OptionBuy, "BUY_TO_CLOSE", "BOUGHT TO CLOSE"),
    option("SELL", Flow::OptionSell, "SELL_TO_CLOSE", "SOLD TO CLOSE"),
    deal("SPLIT", Flow::SharesIn, "SPLIT 2-FOR-1"),
    deal("REVERSE_SPLIT", Flow::SharesOut, "REVERSE SPLIT 1-FOR-10"),
    deal("SPINOFF", Flow::SharesIn, "SPIN-OFF FROM"),
    deal("STOCK_MERGER", Flow::SharesOut, "MERGER OF"),
    deal("ADJUSTMENT", Flow::MoneyOut, "CASH-IN-LIEU CORRECTION"),
    deal("TRANSFER", Flow::MoneyIn, "TRANSFER"),
    deal("EXTERNAL_ASSET_TRANSFER_IN", Flow::SharesIn, "ACAT IN"),
    deal("EXTERNAL_ASSET_TRANSFER_OUT", Flow::SharesOut, "ACAT OUT"),
    CASH_IN,
    CASH_OUT,
    deal("INTERNAL_ASSET_TRANSFER_IN", Flow::SharesIn, "JOURNALED IN"),
    deal(
        "INTERNAL_ASSET_TRANSFER_OUT",
        Flow::SharesOut,
        "JOURNALED OUT",
    ),
];
