//! Maps Akahu's categories and transaction types to the sixteen categories of the domain.
//!
//! Ids and names are NZFCC codes and their groups (docs/providers/akahu.md#spending-codes). The
//! mapping is our own. Codes and groups do not cover income, transfers and fees
//! (docs/providers/akahu.md#categories), so type and sign decide there.

use std::collections::HashMap;
use std::sync::LazyLock;

use bellbird_domain::Category::{
    self, BankFees, GovernmentAndNonProfit, Income, TransferIn, TransferOut,
};
use bellbird_domain::Decimal;

use super::wire;
use crate::text::Text;

/// The provider's category has no counterpart in the domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unknown;

/// The category of a row. None if neither category nor type determines it.
pub(super) fn category(
    sent: Option<&wire::Category<'_>>,
    kind: Option<&str>,
    amount: &Decimal<'_>,
) -> Result<Option<Category>, Unknown> {
    match sent {
        Some(sent) => by_category(sent, amount).ok_or(Unknown).map(Some),
        None => Ok(kind.and_then(|kind| by_type(kind, amount))),
    }
}

fn by_category(sent: &wire::Category<'_>, amount: &Decimal<'_>) -> Option<Category> {
    let group = sent
        .groups
        .as_ref()
        .and_then(|groups| groups.personal_finance.as_ref());
    find(sent.id.as_ref())
        .or_else(|| find(group?.id.as_ref()))
        .or_else(|| {
            (group.is_none() && is_positive(amount))
                .then(|| by_name_of_credit(sent.name.as_ref().map_or("", Text::as_str)))
        })
}

/// A category without a spending group is one of money received
/// (docs/providers/akahu.md#categories).
fn by_name_of_credit(name: &str) -> Category {
    let name = name.to_lowercase();
    if ["refund", "withdrawal", "transfer", "loan"]
        .iter()
        .any(|word| name.contains(word))
    {
        TransferIn
    } else {
        Income
    }
}

/// Types that determine a category without doubt.
fn by_type(kind: &str, amount: &Decimal<'_>) -> Option<Category> {
    match kind {
        "FEE" => Some(BankFees),
        "INTEREST" if is_positive(amount) => Some(Income),
        "TAX" => Some(GovernmentAndNonProfit),
        "TRANSFER" if amount.is_negative() => Some(TransferOut),
        "TRANSFER" => Some(TransferIn),
        _ => None,
    }
}

fn is_positive(amount: &Decimal<'_>) -> bool {
    !amount.is_negative()
        && amount
            .as_str()
            .bytes()
            .any(|byte| (b'1'..=b'9').contains(&byte))
}

fn find(id: Option<&Text<'_>>) -> Option<Category> {
    CATEGORIES.get(id?.as_str()).copied()
}

/// The categories of all groups of `personal_finance` and all spending codes, by id.
static CATEGORIES: LazyLock<HashMap<&str, Category>> = LazyLock::new(|| {
    include_str!("categories.txt")
        .lines()
        .filter_map(entry)
        .collect()
});

fn entry(line: &str) -> Option<(&str, Category)> {
    let mut words = line.split(' ');
    Some((words.next()?, Category::from_key(words.next()?)?))
}

#[cfg(test)]
mod tests {
    use bellbird_domain::Category::{FoodAndDrink, LoanPayments, Services, Transportation, Travel};
    use bellbird_domain::table::table;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn table_is_complete() {
        let lines = include_str!("categories.txt").lines().skip(1);
        assert!(lines.clone().all(|line| entry(line).is_some()));
        let ids: Vec<&str> = lines.filter_map(entry).map(|(id, _)| id).collect();
        let count = |prefix: &str| {
            ids.iter()
                .filter(|id| id.starts_with(prefix) && id.len() == prefix.len() + 25)
                .count()
        };
        assert_eq!(
            (
                count("group_"),
                count("nzfcc_"),
                ids.len(),
                CATEGORIES.len()
            ),
            (10, 181, 191, 191)
        );
        for (id, expected) in [
            ("nzfcc_ckouvvyw1004408mlhy158i7j", FoodAndDrink), // Cafes and restaurants
            ("nzfcc_cmdnn9y8k000008l2hv032iec", TransferOut),  // Cash withdrawals
            ("nzfcc_cmdnn5som001608ky71g13j00", LoanPayments), // Debt repayments
            ("nzfcc_ckouvvyux003x08mlgwyo6uq6", Travel),       // Hotels
            ("nzfcc_ckouvvytq003o08mlbcy57jft", Transportation), // Fuel stations
            ("nzfcc_ckouvvz1k004y08ml25j2erby", Services),     // Insurance
        ] {
            assert_eq!(find(Some(&Text(id.into()))), Some(expected), "{id}");
        }
        assert_eq!(find(Some(&Text("nzfcc_".into()))), None);
    }

    #[test]
    fn category_rules_apply_in_order() {
        let found = |sent: &str, kind: &str, amount: &str| {
            let sent: Option<wire::Category<'_>> = serde_json::from_str(sent).unwrap();
            let kind = (!kind.is_empty()).then_some(kind);
            match category(sent.as_ref(), kind, &Decimal::parse(amount).unwrap()) {
                Ok(category) => category.map_or("-", Category::key),
                Err(Unknown) => "unknown",
            }
        };
        const CAFE: &str = "nzfcc_ckouvvyw1004408mlhy158i7j";
        const LIFESTYLE: &str = "group_clasr0ysw0011hk4m6hlk9fq0";
        for [code, name, group, kind, amount, expected] in table(
            "// The code decides, before its group; money back keeps it.
            cafe | Cafes and restaurants | lifestyle | EFTPOS | -15.90 | FOOD_AND_DRINK
            cafe | Cafes and restaurants | lifestyle | CREDIT | 15.90 | FOOD_AND_DRINK
            cafe | Cafes and restaurants | | TRANSFER | 15.90 | FOOD_AND_DRINK
            // Then the group, also for money in.
            new | Loan of toys | lifestyle | FEE | -1 | ENTERTAINMENT
            new | Loan of toys | lifestyle | FEE | 1 | ENTERTAINMENT
            // Then the sign and the name.
            new | Salary or wages | | DIRECT CREDIT | 2500 | INCOME
            new | Tax REFUNDS | | TAX | 0.01 | TRANSFER_IN
            new | KiwiSaver withdrawal | | CREDIT | 1 | TRANSFER_IN
            new | Transfers from others | | CREDIT | 1 | TRANSFER_IN
            new | Home Loan received | | CREDIT | 1 | TRANSFER_IN
            // An unknown group is still a spending group, so money in may be a refund.
            new | Dividends | new | CREDIT | 8.20 | unknown
            new | Salary or wages | | DEBIT | -2500 | unknown
            new | Salary or wages | | FEE | 0.00 | unknown
            // Without a category only an unambiguous type decides.
            none | | | FEE | -5 | BANK_FEES
            none | | | FEE | 5 | BANK_FEES
            none | | | INTEREST | 0.30 | INCOME
            none | | | INTEREST | -0.30 | -
            none | | | INTEREST | 0.00 | -
            none | | | TAX | -3 | GOVERNMENT_AND_NON_PROFIT
            none | | | TAX | 3 | GOVERNMENT_AND_NON_PROFIT
            none | | | TRANSFER | -3 | TRANSFER_OUT
            none | | | TRANSFER | 3 | TRANSFER_IN
            none | | | TRANSFER | 0 | TRANSFER_IN
            none | | | LOAN | -3 | -
            none | | | ATM | -3 | -
            none | | | CREDIT CARD | 3 | -
            none | | | DIRECT CREDIT | 3 | -
            none | | | SOMETHING NEW | 3 | -
            none | | | | 3 | -",
        ) {
            let mut sent = match code {
                "none" => Value::Null,
                "cafe" => json!({"_id": CAFE, "name": name}),
                _ => json!({"_id": "nzfcc_new", "name": name}),
            };
            if !group.is_empty() {
                let id = if group == "new" {
                    "group_new"
                } else {
                    LIFESTYLE
                };
                sent["groups"] = json!({"personal_finance": {"_id": id}});
            }
            let found = found(&sent.to_string(), kind, amount);
            assert_eq!(found, expected, "{sent} {kind} {amount}");
        }
        let nameless = r#"{"_id": "nzfcc_new", "groups": {}}"#;
        assert_eq!(found(nameless, "CREDIT", "1"), "INCOME");
    }
}
