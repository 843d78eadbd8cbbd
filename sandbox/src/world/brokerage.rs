//! The invented brokers and investors: who has logins where, what their accounts hold, and the
//! kinds of rows that they have, in SnapTrade's terms (docs/providers/snaptrade.md#activities).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

pub(crate) static BROKERAGE: LazyLock<Brokerage> =
    LazyLock::new(|| super::load(include_str!("data/brokerage.json")));

/// Accounts with fixed JSON and all unusual values; `<3>` stands for the day three days before the
/// start.
pub(crate) static MESSY: &str = include_str!("data/messy.json");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Brokerage {
    /// In the order of the lists. `SANDBOX` is SnapTrade's own test brokerage
    /// (docs/providers/snaptrade.md#connection-portal).
    pub(crate) brokers: Vec<Broker>,
    /// In the order of the credentials. The second investor is spare: only tests use her.
    pub(crate) investors: Vec<Investor>,
    /// The accounts of an unknown user name. Names and numbers are set when the user signs in.
    pub(crate) new_login: Vec<AccountTemplate>,
    /// The plan for an account that a test fills.
    pub(crate) fill: Plan,
    /// Lists of kinds by name; repeated kinds are more likely. `ALL` has every documented type.
    #[serde(borrow)]
    deals: BTreeMap<&'static str, Vec<Deal>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Broker {
    pub(crate) slug: &'static str,
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    #[serde(default)]
    pub(crate) square_logo: bool,
}

impl Brokerage {
    /// All kinds of rows.
    pub(crate) fn deals(&'static self) -> impl Iterator<Item = &'static Deal> {
        self.deals.values().flatten()
    }
}

pub(crate) fn broker(slug: &str) -> Option<&'static Broker> {
    BROKERAGE.brokers.iter().find(|broker| broker.slug == slug)
}

/// The brokerage of links that name none.
pub(crate) fn test_broker() -> &'static Broker {
    broker("SANDBOX").expect("the world has the test brokerage")
}

/// A person with logins at brokers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Investor {
    pub(crate) user_id: &'static str,
    pub(crate) name: &'static str,
    /// The user name at brokers.
    pub(crate) email: &'static str,
    pub(crate) role: Role,
    pub(crate) logins: Vec<Login>,
}

/// The purpose of an investor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum Role {
    /// Has ready-made credentials.
    Listed,
    /// Appears in the control routes only.
    Hidden,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Login {
    /// The broker's slug.
    pub(crate) broker: &'static str,
    #[serde(default)]
    pub(crate) disabled: bool,
    /// `None` for the fixed JSON of `messy.json`.
    pub(crate) accounts: Option<Vec<AccountTemplate>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
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
    pub(crate) cash: Vec<(&'static str, &'static str, &'static str)>,
    pub(crate) holdings: Vec<Holding>,
    pub(crate) plan: Plan,
}

/// A position, as an array in the file. Decimals are texts, exactly as served.
#[derive(Deserialize)]
pub(crate) struct Holding {
    /// The security's symbol.
    pub(crate) security: &'static str,
    pub(crate) units: &'static str,
    pub(crate) price: &'static str,
    pub(crate) cost: &'static str,
    pub(crate) currency: &'static str,
    #[serde(default)]
    pub(crate) cash_equivalent: bool,
}

/// How the rows of an account are generated.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Plan {
    pub(crate) rows: u32,
    /// How many days the rows reach back.
    pub(crate) days: u32,
    pub(crate) style: Style,
    /// The symbols of the securities that rows are about.
    pub(crate) securities: Vec<&'static str>,
    pub(crate) options: Vec<&'static str>,
    pub(crate) daily: &'static str,
    pub(crate) rotation: &'static str,
}

impl Plan {
    /// Kinds drawn at random.
    pub(crate) fn daily(&self) -> &'static [Deal] {
        &BROKERAGE.deals[self.daily]
    }

    /// Rare kinds, used in rotation so that each occurs.
    pub(crate) fn rotation(&self) -> &'static [Deal] {
        &BROKERAGE.deals[self.rotation]
    }

    /// Coins have many decimals, and trades of coins are paid in a coin.
    pub(crate) fn is_crypto(&self) -> bool {
        self.securities.first() == Some(&"BTC")
    }
}

/// How a broker writes the time of a trade (docs/providers/snaptrade.md#activity-dates).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum Style {
    /// With the time of day; rows that are no trades have midnight UTC.
    Exact,
    #[default]
    UtcMidnight,
    NewYorkMidnight,
}

/// A kind of row, as an array in the file.
#[derive(Deserialize)]
pub(crate) struct Deal {
    /// The `type` member.
    pub(crate) kind: &'static str,
    pub(crate) flow: Flow,
    /// The start of the description.
    pub(crate) text: &'static str,
    /// The `option_type` member; empty unless an option is traded.
    #[serde(default)]
    pub(crate) option_type: &'static str,
}

/// How a deal moves shares and money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
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

impl Flow {
    pub(crate) const fn is_option(self) -> bool {
        matches!(self, Self::OptionBuy | Self::OptionSell | Self::OptionEnd)
    }
}
