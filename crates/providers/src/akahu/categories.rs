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
    use bellbird_domain::Category::{
        Entertainment, FoodAndDrink, LoanPayments, Services, Transportation, Travel,
    };

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
        const CAFE: &str = "nzfcc_ckouvvyw1004408mlhy158i7j";
        let lifestyle = |id: &str, name: &str| {
            let group = r#"{"personal_finance": {"_id": "group_clasr0ysw0011hk4m6hlk9fq0", "name": "Lifestyle"}}"#;
            format!(r#"{{"_id": "{id}", "name": "{name}", "groups": {group}}}"#)
        };
        let bare = |id: &str, name: &str| format!(r#"{{"_id": "{id}", "name": "{name}"}}"#);
        let odd = r#"{"_id": "nzfcc_new", "name": "Dividends", "groups": {"personal_finance": {"_id": "group_new"}}}"#;
        for (sent, kind, amount, expected) in [
            // The code decides, before its group; money back keeps it.
            (
                lifestyle(CAFE, "Cafes and restaurants"),
                "EFTPOS",
                "-15.90",
                Ok(Some(FoodAndDrink)),
            ),
            (
                lifestyle(CAFE, "Cafes and restaurants"),
                "CREDIT",
                "15.90",
                Ok(Some(FoodAndDrink)),
            ),
            (
                bare(CAFE, "Cafes and restaurants"),
                "TRANSFER",
                "15.90",
                Ok(Some(FoodAndDrink)),
            ),
            // Then the group, also for money in.
            (
                lifestyle("nzfcc_new", "Loan of toys"),
                "FEE",
                "-1",
                Ok(Some(Entertainment)),
            ),
            (
                lifestyle("nzfcc_new", "Loan of toys"),
                "FEE",
                "1",
                Ok(Some(Entertainment)),
            ),
            // Then the sign and the name.
            (
                bare("nzfcc_new", "Salary or wages"),
                "DIRECT CREDIT",
                "2500",
                Ok(Some(Income)),
            ),
            (
                bare("nzfcc_new", "Tax REFUNDS"),
                "TAX",
                "0.01",
                Ok(Some(TransferIn)),
            ),
            (
                bare("nzfcc_new", "KiwiSaver withdrawal"),
                "CREDIT",
                "1",
                Ok(Some(TransferIn)),
            ),
            (
                bare("nzfcc_new", "Transfers from others"),
                "CREDIT",
                "1",
                Ok(Some(TransferIn)),
            ),
            (
                bare("nzfcc_new", "Home Loan received"),
                "CREDIT",
                "1",
                Ok(Some(TransferIn)),
            ),
            // An unknown group is still a spending group, so money in may be a refund.
            (odd.to_owned(), "CREDIT", "8.20", Err(Unknown)),
            (
                r#"{"_id": "nzfcc_new", "groups": {}}"#.to_owned(),
                "CREDIT",
                "1",
                Ok(Some(Income)),
            ),
            (
                bare("nzfcc_new", "Salary or wages"),
                "DEBIT",
                "-2500",
                Err(Unknown),
            ),
            (
                bare("nzfcc_new", "Salary or wages"),
                "FEE",
                "0.00",
                Err(Unknown),
            ),
            // Without a category only an unambiguous type decides.
            ("null".to_owned(), "FEE", "-5", Ok(Some(BankFees))),
            ("null".to_owned(), "FEE", "5", Ok(Some(BankFees))),
            ("null".to_owned(), "INTEREST", "0.30", Ok(Some(Income))),
            ("null".to_owned(), "INTEREST", "-0.30", Ok(None)),
            ("null".to_owned(), "INTEREST", "0.00", Ok(None)),
            (
                "null".to_owned(),
                "TAX",
                "-3",
                Ok(Some(GovernmentAndNonProfit)),
            ),
            (
                "null".to_owned(),
                "TAX",
                "3",
                Ok(Some(GovernmentAndNonProfit)),
            ),
            ("null".to_owned(), "TRANSFER", "-3", Ok(Some(TransferOut))),
            ("null".to_owned(), "TRANSFER", "3", Ok(Some(TransferIn))),
            ("null".to_owned(), "TRANSFER", "0", Ok(Some(TransferIn))),
            ("null".to_owned(), "LOAN", "-3", Ok(None)),
            ("null".to_owned(), "ATM", "-3", Ok(None)),
            ("null".to_owned(), "CREDIT CARD", "3", Ok(None)),
            ("null".to_owned(), "DIRECT CREDIT", "3", Ok(None)),
            ("null".to_owned(), "SOMETHING NEW", "3", Ok(None)),
            ("null".to_owned(), "", "3", Ok(None)),
        ] {
            let read: Option<wire::Category<'_>> = serde_json::from_str(&sent).unwrap();
            let kind_of_row = (!kind.is_empty()).then_some(kind);
            let found = category(read.as_ref(), kind_of_row, &Decimal::parse(amount).unwrap());
            assert_eq!(found, expected, "{sent} {kind} {amount}");
        }
    }
}
