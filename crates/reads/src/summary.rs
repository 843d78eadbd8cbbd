//! Exact sums of transactions by currency and group, made while rows pass by. Pure.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bellbird_domain::{AccountId, Category, Currency, Decimal, ExactSum, Transaction};
use jiff::civil::Date;

/// Groups of all currencies together. Rows of further groups are in [`Group::Rest`].
const GROUPS_MAX: usize = 1_000;
/// Names of merchants that agree in as many characters are one group.
const MERCHANT_CHARS_MAX: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupBy {
    Category,
    Merchant,
    /// Of the row's day in the user's timezone.
    Month,
    Account,
}

/// Has no `Debug`, because it may name a merchant.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// No grouping.
    All,
    Category(Option<Category>),
    Merchant(Option<String>),
    /// The first day of the month.
    Month(Date),
    Account(AccountId),
    /// All groups for which there was no place. Never dropped, so that the groups add up to the
    /// whole.
    Rest,
}

/// The sums of one currency and group. Has no `Debug`, because it holds amounts.
pub struct GroupTotals {
    pub currency: Currency,
    pub group: Group,
    pub rows: u64,
    /// The sum of the amounts that are not negative.
    pub money_in: Decimal<'static>,
    /// The sum of the negative amounts: 0 or negative.
    pub money_out: Decimal<'static>,
    /// The sum of both.
    pub net: Decimal<'static>,
    /// Rows that are in no sum, because their amounts have more than 512 characters.
    pub rows_too_long: u64,
}

/// Sums up any number of rows in memory that does not grow with them.
pub struct Summary {
    group_by: Option<GroupBy>,
    groups: BTreeMap<(Currency, Group), Totals>,
    /// Of rows that the provider calls transfers. They are in the groups, too.
    transfers: BTreeMap<Currency, Totals>,
}

#[derive(Clone, Default)]
struct Totals {
    rows: u64,
    money_in: ExactSum,
    money_out: ExactSum,
    rows_too_long: u64,
}

impl Totals {
    fn add(&mut self, amount: &Decimal<'_>) {
        self.rows += 1;
        let sum = if amount.is_negative() {
            &mut self.money_out
        } else {
            &mut self.money_in
        };
        self.rows_too_long += u64::from(!sum.add(amount));
    }

    fn merge(&mut self, other: &Self) {
        self.rows += other.rows;
        self.money_in = self.money_in.plus(&other.money_in);
        self.money_out = self.money_out.plus(&other.money_out);
        self.rows_too_long += other.rows_too_long;
    }

    fn net(&self) -> ExactSum {
        self.money_in.plus(&self.money_out)
    }

    fn of_group(&self, currency: Currency, group: Group) -> GroupTotals {
        GroupTotals {
            currency,
            group,
            rows: self.rows,
            money_in: self.money_in.to_decimal(),
            money_out: self.money_out.to_decimal(),
            net: self.net().to_decimal(),
            rows_too_long: self.rows_too_long,
        }
    }
}

impl Summary {
    pub fn new(group_by: Option<GroupBy>) -> Self {
        Self {
            group_by,
            groups: BTreeMap::new(),
            transfers: BTreeMap::new(),
        }
    }

    /// Adds a row under its own currency, else that of its account. An unknown currency, `XXX`, is
    /// one of its own. `day` is the row's in the user's timezone.
    pub fn add(&mut self, row: &Transaction<'_>, day: Date) {
        let currency = row.currency.unwrap_or(row.account.currency);
        let mut key = (currency, self.group_of(row, day));
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&key) {
            // There are only so many currencies, so these need no limit.
            key.1 = Group::Rest;
        }
        self.groups.entry(key).or_default().add(&row.amount);
        if row.category.is_some_and(Category::is_transfer) {
            self.transfers.entry(currency).or_default().add(&row.amount);
        }
    }

    fn group_of(&self, row: &Transaction<'_>, day: Date) -> Group {
        match self.group_by {
            None => Group::All,
            Some(GroupBy::Category) => Group::Category(row.category),
            Some(GroupBy::Merchant) => {
                let name = |name: &str| name.chars().take(MERCHANT_CHARS_MAX).collect();
                Group::Merchant(row.merchant_name.as_deref().map(name))
            }
            Some(GroupBy::Month) => Group::Month(day.first_of_month()),
            Some(GroupBy::Account) => Group::Account(row.account.id),
        }
    }

    /// The sums of each currency, over all groups.
    pub fn totals(&self) -> Vec<GroupTotals> {
        let mut currencies: BTreeMap<Currency, Totals> = BTreeMap::new();
        for ((currency, _), totals) in &self.groups {
            currencies.entry(*currency).or_default().merge(totals);
        }
        currencies
            .into_iter()
            .map(|(currency, totals)| totals.of_group(currency, Group::All))
            .collect()
    }

    /// The part of [`Self::totals`] that providers call transfers, such as those between the user's
    /// own accounts.
    pub fn transfers(&self) -> Vec<GroupTotals> {
        self.transfers
            .iter()
            .map(|(currency, totals)| totals.of_group(*currency, Group::All))
            .collect()
    }

    /// The sums of each group, currency by currency. Months come in order, other groups by the
    /// largest net sum of either sign. The rest comes last.
    pub fn groups(&self) -> Vec<GroupTotals> {
        let mut groups: Vec<(&(Currency, Group), &Totals, ExactSum)> = self
            .groups
            .iter()
            .map(|(key, totals)| (key, totals, totals.net()))
            .collect();
        groups.sort_by(
            |((currency, group), _, net), ((other_currency, other), _, other_net)| {
                let by_net = match self.group_by {
                    Some(GroupBy::Month) => Ordering::Equal,
                    _ => other_net.cmp_absolute(net),
                };
                let is_rest = (*group == Group::Rest).cmp(&(*other == Group::Rest));
                currency
                    .cmp(other_currency)
                    .then(is_rest)
                    .then(by_net)
                    .then_with(|| group.cmp(other))
            },
        );
        groups
            .into_iter()
            .map(|((currency, group), totals, _)| totals.of_group(*currency, group.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use bellbird_domain::Account;
    use proptest::prelude::*;

    use super::*;
    use crate::test_support::{NOW, Row, account};

    fn row(amount: &str) -> Row {
        Row {
            amount: amount.to_owned(),
            ..Row::new("1", "1", NOW)
        }
    }

    fn day(text: &str) -> Date {
        text.parse().unwrap()
    }

    /// Each group in one line: currency, group, rows, in, out, net.
    fn lines(totals: &[GroupTotals]) -> Vec<String> {
        let line = |totals: &GroupTotals| {
            let group = match &totals.group {
                Group::All => "all".to_owned(),
                Group::Category(category) => category.map_or("none", Category::key).to_owned(),
                Group::Merchant(name) => name.clone().unwrap_or_else(|| "none".to_owned()),
                Group::Month(first) => first.strftime("%Y-%m").to_string(),
                Group::Account(_) => "account".to_owned(),
                Group::Rest => "rest".to_owned(),
            };
            let (currency, rows) = (totals.currency, totals.rows);
            format!(
                "{currency} {group} {rows}: {} {} {}",
                totals.money_in, totals.money_out, totals.net
            )
        };
        totals.iter().map(line).collect()
    }

    fn summary(group_by: Option<GroupBy>, account: &Account, rows: &[(Row, &str)]) -> Summary {
        let mut summary = Summary::new(group_by);
        for (row, on) in rows {
            summary.add(&row.transaction(account), day(on));
        }
        summary
    }

    #[test]
    fn groups_are_summed_exactly_and_apart_by_currency() {
        let named = |name: &str, amount: &str| Row {
            merchant: Some(name.to_owned()),
            ..row(amount)
        };
        let in_currency = |code: &str, row: Row| Row {
            currency: Currency::parse(code),
            ..row
        };
        let travel = |amount: &str| Row {
            category: Some(Category::Travel),
            ..row(amount)
        };
        let rows = [
            (named("Bakery", "-4.50"), "2026-10-31"),
            (named("Bakery", "-0.001"), "2026-11-01"),
            (named("Employer", "5000"), "2026-11-02"),
            (in_currency("JPY", travel("-1500")), "2026-11-03"),
            (in_currency("XXX", row("0.10")), "2025-11-03"),
            (row("0.2"), "2026-11-30"),
        ];
        let account = account("1");
        let of = |group_by| summary(group_by, &account, &rows);
        let aud = "5000.2 -4.501 4995.699";
        let whole = [
            format!("AUD all 4: {aud}"),
            "JPY all 1: 0 -1500 -1500".into(),
            "XXX all 1: 0.10 0 0.10".into(),
        ];
        for group_by in [
            None,
            Some(GroupBy::Category),
            Some(GroupBy::Merchant),
            Some(GroupBy::Month),
            Some(GroupBy::Account),
        ] {
            assert_eq!(lines(&of(group_by).totals()), whole, "{group_by:?}");
        }
        assert_eq!(lines(&of(None).groups()), whole);
        assert_eq!(
            lines(&of(Some(GroupBy::Merchant)).groups()),
            [
                "AUD Employer 1: 5000 0 5000",
                "AUD Bakery 2: 0 -4.501 -4.501",
                "AUD none 1: 0.2 0 0.2",
                "JPY none 1: 0 -1500 -1500",
                "XXX none 1: 0.10 0 0.10",
            ]
        );
        assert_eq!(
            lines(&of(Some(GroupBy::Month)).groups()),
            [
                "AUD 2026-10 1: 0 -4.50 -4.50",
                "AUD 2026-11 3: 5000.2 -0.001 5000.199",
                "JPY 2026-11 1: 0 -1500 -1500",
                "XXX 2025-11 1: 0.10 0 0.10",
            ]
        );
        assert_eq!(
            lines(&of(Some(GroupBy::Category)).groups()),
            [
                format!("AUD none 4: {aud}"),
                "JPY TRAVEL 1: 0 -1500 -1500".into(),
                "XXX none 1: 0.10 0 0.10".into()
            ]
        );
        assert_eq!(
            lines(&of(Some(GroupBy::Account)).groups())[0],
            format!("AUD account 4: {aud}")
        );
    }

    #[test]
    fn transfers_are_also_summed_apart() {
        let of = |category, amount: &str| {
            (
                Row {
                    category,
                    ..row(amount)
                },
                "2026-11-01",
            )
        };
        let rows = [
            of(Some(Category::TransferIn), "300"),
            of(Some(Category::TransferOut), "-300"),
            of(Some(Category::TransferOut), "-20.50"),
            of(Some(Category::Travel), "-7"),
            of(None, "9"),
        ];
        let summary = summary(None, &account("1"), &rows);
        assert_eq!(lines(&summary.totals()), ["AUD all 5: 309 -327.50 -18.50"]);
        assert_eq!(
            lines(&summary.transfers()),
            ["AUD all 3: 300 -320.50 -20.50"]
        );
    }

    #[test]
    fn groups_beyond_the_limit_are_in_the_rest() {
        let of_merchant = |number: usize, amount: &str| Row {
            merchant: Some(number.to_string()),
            ..row(amount)
        };
        let in_dollars = Row {
            currency: Currency::parse("USD"),
            ..of_merchant(0, "7")
        };
        let rows = (0..1_200)
            .chain([0])
            .map(|number| of_merchant(number, "-1.50"));
        let rows = rows.chain([in_dollars]).map(|row| (row, "2026-11-01"));
        let (rows, account) = (rows.collect::<Vec<_>>(), account("1"));
        let summary = summary(Some(GroupBy::Merchant), &account, &rows);
        let groups = lines(&summary.groups());
        assert_eq!(groups.len(), 1_002);
        assert_eq!(
            groups[0], "AUD 0 2: 0 -3.00 -3.00",
            "a group that has a place is added to"
        );
        assert_eq!(
            groups[1_000..],
            ["AUD rest 200: 0 -300.00 -300.00", "USD rest 1: 7 0 7"]
        );
        assert_eq!(
            lines(&summary.totals()),
            ["AUD all 1201: 0 -1801.50 -1801.50", "USD all 1: 7 0 7"]
        );
    }

    #[test]
    fn long_names_and_amounts_are_bounded() {
        let named = |end: &str| Row {
            merchant: Some(format!("{}{end}", "é".repeat(200))),
            ..row("-1")
        };
        let rows = [
            (named("a"), "2026-11-01"),
            (named("b"), "2026-11-01"),
            (row(&"9".repeat(600)), "2026-11-01"),
        ];
        let groups = summary(Some(GroupBy::Merchant), &account("1"), &rows).groups();
        assert_eq!(
            lines(&groups)[0],
            format!("AUD {} 2: 0 -2 -2", "é".repeat(200))
        );
        assert_eq!(
            (
                groups[1].rows,
                groups[1].rows_too_long,
                groups[1].net.as_str()
            ),
            (1, 1, "0")
        );
    }

    proptest! {
        /// Model: whole numbers of the smallest place. The order of the rows does not matter.
        #[test]
        fn sums_are_exact_in_any_order(
            amounts in prop::collection::vec((-100_000_000_i64..100_000_000, 0_usize..19, 0_u8..4), 1..60),
            turn in 0_usize..60,
        ) {
            let account = account("1");
            let rows = |from: usize| {
                let all = amounts.iter().cycle().skip(from % amounts.len()).take(amounts.len());
                all.map(|(digits, places, merchant)| {
                    let merchant = Some(merchant.to_string());
                    (Row { merchant, ..row(&format!("{digits}e-{places}")) }, "2026-11-01")
                }).collect::<Vec<_>>()
            };
            let one = summary(Some(GroupBy::Merchant), &account, &rows(0));
            let other = summary(Some(GroupBy::Merchant), &account, &rows(turn));
            prop_assert_eq!(lines(&one.groups()), lines(&other.groups()));
            for totals in one.groups() {
                let Group::Merchant(Some(name)) = &totals.group else { unreachable!("all have a name") };
                let own = amounts.iter().filter(|(_, _, merchant)| merchant.to_string() == *name);
                let units = |(digits, places, _): &(i64, usize, u8)| {
                    i128::from(*digits) * 10_i128.pow(18 - u32::try_from(*places).unwrap())
                };
                let (mut money_in, mut money_out) = (0, 0);
                for amount in own.clone().map(units) {
                    *if amount < 0 { &mut money_out } else { &mut money_in } += amount;
                }
                prop_assert_eq!(totals.rows, own.count() as u64);
                prop_assert_eq!(units_of(&totals.money_in), money_in);
                prop_assert_eq!(units_of(&totals.money_out), money_out);
                prop_assert_eq!(units_of(&totals.net), money_in + money_out);
            }
        }
    }

    /// A decimal in units of its eighteenth place.
    fn units_of(decimal: &Decimal<'_>) -> i128 {
        let (whole, fraction) = decimal
            .as_str()
            .split_once('.')
            .unwrap_or((decimal.as_str(), ""));
        format!("{whole}{fraction:0<18}").parse().unwrap()
    }
}
