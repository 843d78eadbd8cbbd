//! What the part of money in and out shows of the sums, in one currency.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use askama::Template;
use bellbird_domain::{Category, Currency, ExactSum};
use jiff::civil::Date;

use super::chart::{labels_of, scaled, size_of_amount, top_of};
use super::query::{OverviewQuery, PERIODS};
use crate::money_cache::{InAndOut, MoneySums};
use crate::months::Months;
use crate::pages::{BankTrouble, Frame, Number};
use crate::rows::filter::CategoryChoice;

/// Categories of which each has a row. Those of more are behind one row, with the smallest.
const CATEGORIES_MAX: usize = 8;

#[derive(Template)]
#[template(path = "overview_money.html")]
pub(super) struct MoneyPart<'a> {
    pub(super) frame: &'a Frame,
    pub(super) query: &'a OverviewQuery,
    pub(super) months: Months,
    pub(super) today: Date,
    pub(super) state: MoneyState,
}

pub(super) enum MoneyState {
    Awaited,
    Failed(String),
    Read(Box<ShownMoney>),
}

impl MoneyPart<'_> {
    /// The query of the page of transactions whose rows are in a sum.
    fn rows_of(&self, months: &Months, category: &str, currency: &Currency) -> String {
        let (from, to) = (months.first, months.end(self.today));
        format!("?category={category}&currency={currency}&from={from}&to={to}")
    }

    /// `Currency::UNKNOWN` in words.
    fn currency_name<'c>(&self, currency: &'c Currency) -> &'c str {
        match *currency == Currency::UNKNOWN {
            true => "unknown currency",
            false => currency.as_str(),
        }
    }
}

pub(super) struct ShownMoney {
    /// Those with rows, and the wanted one if an account of it could not be read.
    currencies: Vec<Currency>,
    /// The one with most rows, unless the query names another.
    chosen: Option<Currency>,
    /// Institutions that could not be read to the end of the period.
    troubles: Vec<BankTrouble>,
    /// None: there is no row.
    shown: Option<MoneyInCurrency>,
}

struct MoneyInCurrency {
    currency: Currency,
    total: InAndOut,
    /// Empty if the period is one month.
    months: Vec<MonthOfMoney>,
    /// The labels at the top and in the middle of the bars of the months.
    scale: Option<[String; 2]>,
    categories: Vec<CategoryRow>,
    /// The sum of the smaller ones, which are behind it.
    others: Option<(CategoryRow, Vec<CategoryRow>)>,
}

struct MonthOfMoney {
    month: Months,
    sums: InAndOut,
    in_height: u32,
    out_height: u32,
}

struct CategoryRow {
    category: CategoryChoice,
    /// Without its sign, because its heading says it.
    money_out: ExactSum,
    width: u32,
}

/// Of a sum that is 0 or negative.
fn without_sign(sum: &ExactSum) -> ExactSum {
    ExactSum::default().minus(sum)
}

impl ShownMoney {
    fn is_in(&self, currency: &Currency) -> bool {
        self.chosen == Some(*currency)
    }

    fn may_pass(&self) -> bool {
        self.troubles.iter().any(BankTrouble::may_pass)
    }

    /// Of those months. `wanted` means nothing if there are no rows in it, unless an account that
    /// could not be read is in it: those are `unread`.
    pub(super) fn new(
        sums: &MoneySums,
        months: Months,
        wanted: Option<Currency>,
        unread: &[Currency],
        troubles: Vec<BankTrouble>,
    ) -> Self {
        let month = |first: Date| Months { first, count: 1 };
        let groups = || {
            let groups = sums.groups.iter();
            groups.filter(|((_, first, _), _)| months.contain(month(*first)))
        };
        let mut rows: BTreeMap<Currency, u64> = BTreeMap::new();
        for ((currency, ..), sums) in groups() {
            *rows.entry(*currency).or_default() += sums.rows;
        }
        if let Some(wanted) = wanted.filter(|wanted| unread.contains(wanted)) {
            rows.entry(wanted).or_default();
        }
        let most = rows.iter().min_by_key(|(_, count)| Reverse(**count));
        let most = most.map(|(currency, _)| *currency);
        let chosen = wanted.filter(|wanted| rows.contains_key(wanted)).or(most);
        let shown = chosen.filter(|chosen| rows[chosen] > 0);
        let shown = shown.map(|currency| {
            let mut by_month: BTreeMap<Date, InAndOut> = BTreeMap::new();
            let mut by_category: BTreeMap<Option<Category>, InAndOut> = BTreeMap::new();
            for ((_, first, category), sums) in groups().filter(|(key, _)| key.0 == currency) {
                by_month.entry(*first).or_default().merge(sums);
                by_category.entry(*category).or_default().merge(sums);
            }
            MoneyInCurrency::new(currency, months, &by_month, by_category)
        });
        Self {
            currencies: rows.into_keys().collect(),
            chosen,
            troubles,
            shown,
        }
    }
}

impl MoneyInCurrency {
    fn new(
        currency: Currency,
        months: Months,
        by_month: &BTreeMap<Date, InAndOut>,
        by_category: BTreeMap<Option<Category>, InAndOut>,
    ) -> Self {
        let mut total = InAndOut::default();
        by_month.values().for_each(|sums| total.merge(sums));
        let size = |sum: &ExactSum| size_of_amount(&sum.to_decimal());
        let sums = by_month.values();
        let max = sums.flat_map(|sums| [size(&sums.money_in), size(&sums.money_out)]);
        let top = top_of(max.max().unwrap_or_default());
        let month = |first: Date| {
            let sums = by_month.get(&first).cloned().unwrap_or_default();
            MonthOfMoney {
                month: Months { first, count: 1 },
                in_height: scaled(size(&sums.money_in), top),
                out_height: scaled(size(&sums.money_out), top),
                sums,
            }
        };
        let spent = by_category.into_iter().map(|(category, sums)| {
            let category = category.map_or(CategoryChoice::Without, CategoryChoice::Of);
            (category, without_sign(&sums.money_out))
        });
        let mut spent: Vec<_> = spent.filter(|(_, sum)| !sum.is_zero()).collect();
        spent.sort_by(|(_, one), (_, other)| other.cmp(one));
        let max = spent.first().map(|(_, sum)| size(sum)).unwrap_or_default();
        let row = |(category, money_out): (CategoryChoice, ExactSum)| CategoryRow {
            category,
            width: scaled(size(&money_out), max),
            money_out,
        };
        let small = match spent.len() > CATEGORIES_MAX {
            true => spent.split_off(CATEGORIES_MAX - 1),
            false => Vec::new(),
        };
        let rest = small
            .iter()
            .fold(ExactSum::default(), |rest, (_, sum)| rest.plus(sum));
        Self {
            currency,
            total,
            months: match months.count {
                1 => Vec::new(),
                _ => months.iter().map(month).collect(),
            },
            scale: labels_of(top),
            categories: spent.into_iter().map(row).collect(),
            others: (!small.is_empty()).then(|| {
                let sum = row((CategoryChoice::Without, rest));
                (sum, small.into_iter().map(row).collect())
            }),
        }
    }

    fn number(&self, sum: &ExactSum) -> Number {
        Number::sum(sum, self.currency.as_str())
    }

    fn net(&self, sums: &InAndOut) -> Number {
        self.number(&sums.net())
    }

    /// Without its sign, because its heading says it.
    fn money_out(&self, sums: &InAndOut) -> Number {
        self.number(&without_sign(&sums.money_out))
    }
}
