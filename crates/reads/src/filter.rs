//! Selects transactions by what is in them, while they pass by. Pure.

use bellbird_domain::{Category, Decimal, Direction, Transaction};

/// All conditions that are set must hold. Has no `Debug`, because clients search for texts and
/// amounts.
#[derive(Clone, Default)]
pub struct TransactionFilter {
    text: Option<String>,
    pub category: Option<Category>,
    pub direction: Option<Direction>,
    /// The smallest amount, without its sign: 20 finds -20.00 and 20.00.
    pub min_amount: Option<Decimal<'static>>,
    /// The largest amount, without its sign.
    pub max_amount: Option<Decimal<'static>>,
}

impl TransactionFilter {
    /// Finds a part of the description, the merchant's name or the reference. Upper and lower case
    /// are the same. The caller bounds the length.
    #[must_use]
    pub fn with_text(self, text: &str) -> Self {
        Self {
            text: Some(text.to_lowercase()),
            ..self
        }
    }

    pub fn matches(&self, row: &Transaction<'_>) -> bool {
        self.category
            .is_none_or(|category| row.category == Some(category))
            && self
                .direction
                .is_none_or(|direction| row.direction() == direction.as_str())
            && self
                .min_amount
                .as_ref()
                .is_none_or(|min| row.amount.cmp_absolute(min).is_ge())
            && self
                .max_amount
                .as_ref()
                .is_none_or(|max| row.amount.cmp_absolute(max).is_le())
            && self.text.as_ref().is_none_or(|text| has_text(row, text))
    }
}

fn has_text(row: &Transaction<'_>, text: &str) -> bool {
    let texts = [
        Some(&row.description),
        row.merchant_name.as_ref(),
        row.reference.as_ref(),
    ];
    texts
        .into_iter()
        .flatten()
        .any(|found| found.to_lowercase().contains(text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_support::{NOW, Row, account};

    fn decimal(text: &str) -> Option<Decimal<'static>> {
        Some(Decimal::parse(text).unwrap().into_owned())
    }

    fn row(description: &str, amount: &str) -> Row {
        Row {
            description: description.to_owned(),
            amount: amount.to_owned(),
            ..Row::new("1", "1", NOW)
        }
    }

    fn matches(filter: &TransactionFilter, row: &Row) -> bool {
        filter.matches(&row.transaction(&account("1")))
    }

    #[test]
    fn text_is_found_in_any_case_in_three_texts() {
        let filter = |text: &str| TransactionFilter::default().with_text(text);
        let row = Row {
            merchant: Some("Café Ōtautahi".to_owned()),
            ..row("EFTPOS 1234", "-4.50")
        };
        for (text, expected) in [
            ("eftpos", true),
            ("S 12", true),
            ("CAFÉ ō", true),
            ("cafe", false),
            ("EFTPOS  1", false),
            ("", true),
        ] {
            assert_eq!(matches(&filter(text), &row), expected, "{text:?}");
        }
        let account = account("1");
        let mut transaction = row.transaction(&account);
        transaction.reference = Some("Rent May".into());
        transaction.extended_description = Some("not searched".into());
        assert!(filter("RENT").matches(&transaction));
        assert!(!filter("searched").matches(&transaction));
        assert!(
            !filter("1234rent").matches(&transaction),
            "texts are not joined"
        );
    }

    #[test]
    fn amounts_are_compared_without_sign_and_exactly() {
        let filter = |min: &str, max: &str| TransactionFilter {
            min_amount: decimal(min),
            max_amount: decimal(max),
            ..TransactionFilter::default()
        };
        for (min, max, amount, expected) in [
            ("20", "20", "-20.00", true),
            ("20", "20", "20", true),
            ("-20", "-20", "20", true),
            ("20.000000000000000001", "30", "20", false),
            ("9", "10.00", "-10.001", false),
            ("0", "0", "0.00", true),
            (
                "99999999999999999999",
                "100000000000000000000",
                "99999999999999999999.5",
                true,
            ),
            ("30", "20", "25", false),
        ] {
            let found = matches(&filter(min, max), &row("", amount));
            assert_eq!(found, expected, "{min} to {max}: {amount}");
        }
    }

    #[test]
    fn all_conditions_must_hold() {
        let filter = TransactionFilter {
            category: Some(Category::Travel),
            direction: Some(Direction::Debit),
            min_amount: decimal("5"),
            max_amount: decimal("6"),
            ..TransactionFilter::default()
        }
        .with_text("bus");
        let good = Row {
            category: Some(Category::Travel),
            ..row("Bus", "-5.50")
        };
        assert!(matches(&filter, &good));
        assert!(matches(&TransactionFilter::default(), &row("", "0")));
        let changes: [fn(&mut Row); 6] = [
            |row| row.category = None,
            |row| row.category = Some(Category::Income),
            |row| row.amount = "5.50".to_owned(),
            |row| row.amount = "-4.99".to_owned(),
            |row| row.amount = "-6.01".to_owned(),
            |row| row.description = "Train".to_owned(),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut bad = good.clone();
            change(&mut bad);
            assert!(!matches(&filter, &bad), "change {number}");
        }
        let credit = TransactionFilter {
            direction: Some(Direction::Credit),
            ..TransactionFilter::default()
        };
        assert!(matches(&credit, &row("", "0")) && !matches(&credit, &good));
    }

    proptest! {
        /// Each part of a text is found, whatever its case.
        #[test]
        fn every_part_is_found(before in "\\PC{0,8}", part in "\\PC{0,8}", behind in "\\PC{0,8}") {
            // A capital sigma has another small letter at the end of a word.
            prop_assume!(!part.contains('Σ'));
            let row = row(&format!("{before}{part}{behind}"), "1");
            prop_assert!(matches(&TransactionFilter::default().with_text(&part), &row));
        }
    }
}
