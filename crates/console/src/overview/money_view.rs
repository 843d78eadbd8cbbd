//! What the part of money in and out shows of the sums, in one currency.

use std::collections::BTreeMap;

use askama::Template;
use bellbird_domain::{Category, Currency, Decimal, ExactSum};
use bellbird_reads::summary::Group;
use jiff::civil::Date;

use super::chart::{LENGTH, labels_of, scaled, size_of_amount, top_of};
use super::query::{OverviewQuery, Period};
use crate::money_cache::MoneySums;
use crate::months::Months;
use crate::pages::{BankTrouble, Frame, Number};

/// Categories of which each has a row. Those of more are behind one row, with the smallest.
const CATEGORIES_MAX: usize = 8;

#[derive(Template)]
#[template(path = "overview_money.html")]
pub(super) struct MoneyPart<'a> {
    pub(super) frame: &'a Frame,
    pub(super) query: &'a OverviewQuery,
    pub(super) months: Months,
    pub(super) state: MoneyState,
}

pub(super) enum MoneyState {
    Awaited,
    Failed(String),
    Read(Box<ShownMoney>),
}

impl MoneyPart<'_> {
    fn is_awaited(&self) -> bool {
        matches!(self.state, MoneyState::Awaited)
    }

    fn period_link(&self, period: &Period) -> String {
        self.query.link(*period, self.query.currency.as_deref())
    }

    fn currency_link(&self, currency: &str) -> String {
        self.query.link(self.query.period, Some(currency))
    }

    /// `Currency::UNKNOWN` in words.
    fn currency_name<'c>(&self, code: &'c str) -> &'c str {
        if code == Currency::UNKNOWN.as_str() {
            "unknown currency"
        } else {
            code
        }
    }
}

pub(super) struct ShownMoney {
    /// Those with rows, the one with most rows first.
    currencies: Vec<String>,
    chosen: Option<String>,
    /// Institutions that could not be read to the end of the period.
    troubles: Vec<BankTrouble>,
    /// None: there is no row.
    shown: Option<MoneyInCurrency>,
}

struct MoneyInCurrency {
    currency: String,
    total: InAndOut,
    /// The query of the transactions of the whole period.
    rows: String,
    /// Empty if the period is one month.
    months: Vec<Month>,
    /// The labels at the top and in the middle of the bars of the months.
    scale: Option<[String; 2]>,
    categories: Vec<CategoryRow>,
    /// The sum of the smaller ones, which are behind it.
    others: Option<(CategoryRow, Vec<CategoryRow>)>,
}

/// `money_out` is without its sign, because its heading says it.
struct InAndOut {
    money_in: Number,
    money_out: Number,
    net: Number,
}

struct Month {
    /// Such as `Nov`, and `Nov 2026`.
    short: String,
    name: String,
    /// The query of its transactions.
    rows: String,
    sums: InAndOut,
    in_height: u32,
    out_height: u32,
}

impl Month {
    fn in_top(&self) -> u32 {
        LENGTH - self.in_height
    }

    fn out_top(&self) -> u32 {
        LENGTH - self.out_height
    }
}

struct CategoryRow {
    name: &'static str,
    /// The query of its transactions.
    rows: String,
    money_out: Number,
    width: u32,
}

/// Exact sums of one currency.
#[derive(Clone, Default)]
struct Sums {
    money_in: ExactSum,
    money_out: ExactSum,
}

impl Sums {
    fn add(&mut self, money_in: &Decimal<'_>, money_out: &Decimal<'_>) {
        // Leaves out sums of more than 512 characters only.
        let _ = self.money_in.add(money_in);
        let _ = self.money_out.add(money_out);
    }

    fn plus(&self, other: &Self) -> Self {
        Self {
            money_in: self.money_in.plus(&other.money_in),
            money_out: self.money_out.plus(&other.money_out),
        }
    }

    fn shown(&self, currency: &str) -> InAndOut {
        let number = |sum: &ExactSum| Number::money(sum.to_decimal().as_str(), currency);
        InAndOut {
            money_in: number(&self.money_in),
            money_out: number(&without_sign(&self.money_out)),
            net: number(&self.money_in.plus(&self.money_out)),
        }
    }
}

/// Of a sum that is 0 or negative.
fn without_sign(sum: &ExactSum) -> ExactSum {
    ExactSum::default().minus(sum)
}

impl ShownMoney {
    fn is_in(&self, currency: &str) -> bool {
        self.chosen.as_deref() == Some(currency)
    }

    /// Of those months. `wanted` is the code of a currency, and means nothing if there are no rows
    /// in it, unless an account that could not be read is in it: those are `unread`.
    pub(super) fn new(
        sums: &MoneySums,
        months: Months,
        today: Date,
        wanted: Option<&str>,
        unread: &[Currency],
        troubles: Vec<BankTrouble>,
    ) -> Self {
        let is_shown = |month: Date| months.iter().any(|one| one == month);
        let groups = || {
            let of_months = sums.by_month.iter().filter(|(month, _)| is_shown(*month));
            of_months.flat_map(|(month, groups)| groups.iter().map(|group| (*month, group)))
        };
        let mut rows: BTreeMap<Currency, u64> = BTreeMap::new();
        for (_, group) in groups() {
            *rows.entry(group.currency).or_default() += group.rows;
        }
        let mut currencies: Vec<(Currency, u64)> = rows.into_iter().collect();
        currencies.sort_by_key(|(_, rows)| std::cmp::Reverse(*rows));
        if let Some(wanted) = wanted.and_then(Currency::parse)
            && unread.contains(&wanted)
            && currencies.iter().all(|(currency, _)| *currency != wanted)
        {
            currencies.push((wanted, 0));
        }
        let mut found = currencies.iter().map(|(currency, _)| *currency);
        let chosen = found
            .clone()
            .find(|currency| Some(currency.as_str()) == wanted)
            .or_else(|| found.next());
        let has_rows = |chosen: &Currency| {
            let mut currencies = currencies.iter();
            currencies.any(|(currency, rows)| currency == chosen && *rows > 0)
        };
        let shown = chosen.filter(has_rows).map(|currency| {
            let mut by_month: BTreeMap<Date, Sums> = BTreeMap::new();
            let mut by_category: BTreeMap<Option<Category>, Sums> = BTreeMap::new();
            for (month, group) in groups().filter(|(_, group)| group.currency == currency) {
                // There are fewer categories than groups, so the rest is empty.
                let category = match &group.group {
                    Group::Category(category) => *category,
                    _ => None,
                };
                for sums in [
                    by_month.entry(month).or_default(),
                    by_category.entry(category).or_default(),
                ] {
                    sums.add(&group.money_in, &group.money_out);
                }
            }
            MoneyInCurrency::new(currency.as_str(), months, today, &by_month, &by_category)
        });
        let codes = currencies.iter();
        Self {
            currencies: codes.map(|(currency, _)| currency.to_string()).collect(),
            chosen: chosen.map(|currency| currency.to_string()),
            troubles,
            shown,
        }
    }
}

impl MoneyInCurrency {
    fn new(
        currency: &str,
        months: Months,
        today: Date,
        by_month: &BTreeMap<Date, Sums>,
        by_category: &BTreeMap<Option<Category>, Sums>,
    ) -> Self {
        let total = by_month
            .values()
            .fold(Sums::default(), |total, sums| total.plus(sums));
        let size = |sum: &ExactSum| size_of_amount(&sum.to_decimal());
        let sums = by_month.values();
        let max = sums.flat_map(|sums| [size(&sums.money_in), size(&sums.money_out)]);
        let top = top_of(max.max().unwrap_or_default());
        let none = Sums::default();
        let month = |first: Date| {
            let sums = by_month.get(&first).unwrap_or(&none);
            let one = Months { first, count: 1 };
            Month {
                short: first.strftime("%b").to_string(),
                name: first.strftime("%b %Y").to_string(),
                rows: rows_of(one, today, NO_TRANSFERS, currency),
                in_height: scaled(size(&sums.money_in), top),
                out_height: scaled(size(&sums.money_out), top),
                sums: sums.shown(currency),
            }
        };
        let mut spent: Vec<(Option<Category>, ExactSum)> = by_category
            .iter()
            .filter(|(_, sums)| !sums.money_out.is_zero())
            .map(|(category, sums)| (*category, without_sign(&sums.money_out)))
            .collect();
        spent.sort_by(|(_, one), (_, other)| other.cmp(one));
        let shown = match spent.len() {
            count if count <= CATEGORIES_MAX => count,
            _ => CATEGORIES_MAX - 1,
        };
        let max = spent.first().map(|(_, sum)| size(sum)).unwrap_or_default();
        let row = |name, rows, sum: &ExactSum| CategoryRow {
            name,
            rows,
            money_out: Number::money(sum.to_decimal().as_str(), currency),
            width: scaled(size(sum), max),
        };
        let (large, small) = spent.split_at(shown);
        let of_category = |(category, sum): &(Option<Category>, ExactSum)| {
            let name = category.map_or("No category", Category::label);
            let key = category.map_or("none", Category::key);
            row(name, rows_of(months, today, key, currency), sum)
        };
        let rest = small
            .iter()
            .fold(ExactSum::default(), |rest, (_, sum)| rest.plus(sum));
        Self {
            currency: currency.to_owned(),
            total: total.shown(currency),
            rows: rows_of(months, today, NO_TRANSFERS, currency),
            months: match months.count {
                1 => Vec::new(),
                _ => months.iter().map(month).collect(),
            },
            scale: labels_of(top),
            categories: large.iter().map(of_category).collect(),
            others: (!small.is_empty()).then(|| {
                let sum = row("Other", String::new(), &rest);
                (sum, small.iter().map(of_category).collect())
            }),
        }
    }
}

/// The choice of category that leaves out what the sums leave out.
const NO_TRANSFERS: &str = "no-transfers";

/// The query of the page of transactions whose rows are in a sum.
fn rows_of(months: Months, today: Date, category: &str, currency: &str) -> String {
    let (from, to) = (months.first, months.end(today));
    format!("?category={category}&currency={currency}&from={from}&to={to}")
}
