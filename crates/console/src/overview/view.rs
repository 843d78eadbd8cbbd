//! What the templates of the overview show.

use askama::Template;
use bellbird_domain::{Connection, ConnectionStatus, Currency, Decimal, EndpointStatus};
use bellbird_management::endpoints::DISABLED_BY_USER;
use bellbird_reads::summary::{Group, GroupTotals};
use bellbird_storage::Endpoint;
use jiff::civil::Date;
use jiff::{SignedDuration, ToSpan as _};

use crate::pages::names::institution_name;
use crate::pages::with_commas;
use crate::pages::{SignedInFrame, why_disabled};
use crate::session::Session;

/// Days before the end of a consent from which the page asks to renew it.
const ENDING_WITHIN: SignedDuration = SignedDuration::from_hours(14 * 24);
/// Categories of one currency. The others are one row.
const CATEGORIES_MAX: usize = 8;
/// The height of the longest bar of a chart, in its own units, and the width of the longest bar of
/// a table.
const BAR_HEIGHT: u32 = 120;
const BAR_WIDTH: u32 = 200;
/// Characters of an amount that fit beside the name of an account on a phone.
const LINE_CHARS_MAX: usize = 16;
const MONTH_WIDTH: u32 = 64;

/// The page, with a mark where its parts go.
#[derive(Template)]
#[template(path = "overview.html")]
pub(super) struct Head<'a> {
    pub(super) frame: &'a SignedInFrame<'a>,
    pub(super) attention: &'a Attention,
    /// Whether the operator has a step of the first start to take.
    pub(super) continues_setup: bool,
    /// Nothing is linked yet.
    pub(super) is_empty: bool,
    /// The part of balances without amounts, which is as high as the one that follows.
    pub(super) expected: &'a str,
}

/// What needs the user, as sentences.
pub(super) struct Attention {
    /// What the page of connections mends.
    pub(super) connections: Vec<String>,
    /// What the page of webhooks mends.
    pub(super) endpoints: Vec<String>,
}

impl Attention {
    fn is_empty(&self) -> bool {
        self.connections.is_empty() && self.endpoints.is_empty()
    }

    pub(super) fn of(
        connections: &[Connection],
        endpoints: &[Endpoint],
        session: &Session,
    ) -> Self {
        let zone = session.zone();
        let mut needed = Vec::new();
        for connection in connections {
            let name = institution_name(connection);
            if connection.status != ConnectionStatus::Active {
                needed.push(format!("{name} has to be reconnected."));
                continue;
            }
            if let Some(end) = connection.consent_expires_at
                && end.duration_since(session.now) <= ENDING_WITHIN
            {
                needed.push(format!(
                    "Your consent for {name} ends on {}.",
                    zone.day(end)
                ));
            }
        }
        let disabled = endpoints.iter().filter(|endpoint| {
            let is_wanted = endpoint.disabled_reason.as_deref() == Some(DISABLED_BY_USER);
            endpoint.status == EndpointStatus::Disabled && !is_wanted
        });
        let sentence = |endpoint: &Endpoint| {
            let why = why_disabled(endpoint.disabled_reason.as_deref());
            format!(
                "Your webhook endpoint {} gets no events. {why}",
                endpoint.url
            )
        };
        Self {
            connections: needed,
            endpoints: disabled.map(sentence).collect(),
        }
    }
}

/// An amount as the API says it, with commas between the thousands.
pub(super) struct Amount {
    pub(super) currency: String,
    pub(super) value: String,
    pub(super) is_negative: bool,
}

impl Amount {
    pub(super) fn new(currency: &str, value: &str) -> Self {
        Self {
            currency: currency.to_owned(),
            value: with_commas(value),
            is_negative: value.starts_with('-'),
        }
    }

    /// Whether a narrow table has to break it.
    pub(super) fn is_long(&self) -> bool {
        self.value.len() > LINE_CHARS_MAX
    }
}

#[derive(Template)]
#[template(path = "overview_balances.html")]
pub(super) struct Balances {
    /// Whether the balances are still being read, so that each has an ellipsis in its place.
    pub(super) is_awaited: bool,
    pub(super) error: Option<String>,
    pub(super) net_worth: Vec<Amount>,
    pub(super) institutions: Vec<InstitutionBalances>,
    /// Accounts without a balance, which are in no sum.
    pub(super) missing: usize,
}

impl Balances {
    pub(super) fn failed(message: String) -> Self {
        let (net_worth, institutions) = (Vec::new(), Vec::new());
        Self {
            is_awaited: false,
            error: Some(message),
            net_worth,
            institutions,
            missing: 0,
        }
    }
}

pub(super) struct InstitutionBalances {
    pub(super) name: String,
    pub(super) is_sandbox: bool,
    pub(super) sums: Vec<Amount>,
    pub(super) rows: Vec<BalanceRow>,
}

pub(super) struct BalanceRow {
    pub(super) name: String,
    pub(super) number: Option<String>,
    /// None: the provider gave none.
    pub(super) amount: Option<Amount>,
}

#[derive(Template)]
#[template(path = "overview_money.html")]
pub(super) struct Money {
    error: Option<String>,
    months: Vec<MonthChart>,
    categories: Vec<CategoryChart>,
    /// Institutions that could not be read to the end of the range.
    pub(super) problems: Vec<String>,
}

impl Money {
    pub(super) fn new(
        months: Vec<MonthChart>,
        categories: Vec<CategoryChart>,
        problems: Vec<String>,
    ) -> Self {
        Self {
            error: None,
            months,
            categories,
            problems,
        }
    }

    pub(super) fn failed(message: String) -> Self {
        Self {
            error: Some(message),
            ..Self::new(Vec::new(), Vec::new(), Vec::new())
        }
    }
}

/// Money in and out of one currency, month by month.
pub(super) struct MonthChart {
    currency: String,
    width: u32,
    months: Vec<Month>,
}

struct Month {
    /// Such as `Nov`, and `November 2026`.
    short: String,
    name: String,
    money_in: String,
    money_out: String,
    net: String,
    in_height: u32,
    out_height: u32,
    x: u32,
}

impl Month {
    fn in_top(&self) -> u32 {
        BAR_HEIGHT - self.in_height
    }

    fn out_top(&self) -> u32 {
        BAR_HEIGHT - self.out_height
    }

    fn out_x(&self) -> u32 {
        self.x + 22
    }

    fn middle(&self) -> u32 {
        self.x + 21
    }
}

/// Money out of one currency, by category.
pub(super) struct CategoryChart {
    currency: String,
    rows: Vec<CategoryRow>,
}

struct CategoryRow {
    name: String,
    money_out: String,
    width: u32,
}

/// One chart for each currency, with all months from `first` on.
pub(super) fn month_charts(groups: &[GroupTotals], first: Date, months: i32) -> Vec<MonthChart> {
    let mut charts = Vec::new();
    for of_currency in groups.chunk_by(|one, next| one.currency == next.currency) {
        let amounts = of_currency
            .iter()
            .flat_map(|group| [&group.money_in, &group.money_out]);
        let max = amounts.map(size_of_amount).max().unwrap_or_default();
        let shown = (0..months).map(|at| {
            let day = first.saturating_add(at.months());
            let group = of_currency
                .iter()
                .find(|group| group.group == Group::Month(day));
            let text = |of: fn(&GroupTotals) -> &Decimal<'static>| {
                group.map_or_else(|| "0".to_owned(), |group| with_commas(of(group).as_str()))
            };
            let height = |of: fn(&GroupTotals) -> &Decimal<'static>| {
                group.map_or(0, |group| {
                    scaled(size_of_amount(of(group)), max, BAR_HEIGHT)
                })
            };
            Month {
                short: day.strftime("%b").to_string(),
                name: day.strftime("%B %Y").to_string(),
                money_in: text(|group| &group.money_in),
                money_out: text(|group| &group.money_out),
                net: text(|group| &group.net),
                in_height: height(|group| &group.money_in),
                out_height: height(|group| &group.money_out),
                x: u32::try_from(at).unwrap_or_default() * MONTH_WIDTH + 11,
            }
        });
        let months: Vec<Month> = shown.collect();
        let width = u32::try_from(months.len()).unwrap_or_default() * MONTH_WIDTH;
        charts.push(MonthChart {
            currency: shown_currency(of_currency[0].currency),
            width,
            months,
        });
    }
    charts
}

/// One list for each currency, largest first, of the categories with money out.
pub(super) fn category_charts(groups: &[GroupTotals]) -> Vec<CategoryChart> {
    let mut charts = Vec::new();
    for of_currency in groups.chunk_by(|one, next| one.currency == next.currency) {
        let mut spent: Vec<&GroupTotals> = of_currency
            .iter()
            .filter(|group| size_of_amount(&group.money_out) > 0)
            .collect();
        spent.sort_by(|one, other| other.money_out.cmp_absolute(&one.money_out));
        let max = spent
            .first()
            .map(|group| size_of_amount(&group.money_out))
            .unwrap_or_default();
        let rows: Vec<CategoryRow> = spent
            .iter()
            .take(CATEGORIES_MAX)
            .map(|group| CategoryRow {
                name: match &group.group {
                    Group::Category(Some(category)) => category.label().to_owned(),
                    Group::Category(None) => "No category".to_owned(),
                    _ => "All others".to_owned(),
                },
                money_out: with_commas(group.money_out.as_str()),
                width: scaled(size_of_amount(&group.money_out), max, BAR_WIDTH),
            })
            .collect();
        if !rows.is_empty() {
            charts.push(CategoryChart {
                currency: shown_currency(of_currency[0].currency),
                rows,
            });
        }
    }
    charts
}

fn shown_currency(currency: Currency) -> String {
    if currency == Currency::UNKNOWN {
        "unknown currency".to_owned()
    } else {
        currency.to_string()
    }
}

/// An amount without its sign in hundredths, for the length of a bar. A larger one than fits counts
/// as the largest.
fn size_of_amount(amount: &Decimal<'_>) -> u128 {
    let text = amount.as_str().trim_start_matches('-');
    let (whole, places) = text.split_once('.').unwrap_or((text, ""));
    let hundredths: String = places.chars().chain("00".chars()).take(2).collect();
    format!("{whole}{hundredths}")
        .parse()
        .map_or(u128::MAX / 1_000, |size: u128| size.min(u128::MAX / 1_000))
}

/// At least 1 for what is not 0, so that a bar shows.
fn scaled(size: u128, max: u128, length: u32) -> u32 {
    if size == 0 || max == 0 {
        return 0;
    }
    u32::try_from(size * u128::from(length) / max)
        .unwrap_or(length)
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_the_length_of_their_amount() {
        let size = |text: &str| size_of_amount(&Decimal::parse(text).unwrap());
        assert_eq!(size("-12.3"), 1_230);
        assert_eq!(size("12.345"), 1_234);
        assert_eq!(size("7"), 700);
        let huge = size(&"9".repeat(60));
        assert_eq!(scaled(huge, huge, 120), 120);
        assert_eq!(scaled(size("50"), size("100"), 120), 60);
        assert_eq!(scaled(size("0.01"), size("1000000"), 120), 1);
        assert_eq!(scaled(0, 100, 120), 0);
        assert_eq!(scaled(0, 0, 120), 0);
    }
}
