//! The sixteen transaction categories.

macro_rules! categories {
    ($($name:ident $key:literal $label:literal,)*) => {
        /// What a transaction was for. The set is the specification's; a provider's value outside it is no category.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "each variant's label says it")]
        pub enum Category { $($name,)* }

        impl Category {
            /// All of them, in the order of their keys.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The upper-case code: `FOOD_AND_DRINK`.
            #[must_use]
            pub fn key(self) -> &'static str {
                match self { $(Self::$name => $key,)* }
            }

            /// The name for people: `Food & Drink`.
            #[must_use]
            pub fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// The category with exactly this key.
            #[must_use]
            pub fn from_key(key: &str) -> Option<Self> {
                match key { $($key => Some(Self::$name),)* _ => None }
            }
        }
    };
}

categories! {
    BankFees "BANK_FEES" "Bank Fees",
    Entertainment "ENTERTAINMENT" "Entertainment",
    FoodAndDrink "FOOD_AND_DRINK" "Food & Drink",
    GovernmentAndNonProfit "GOVERNMENT_AND_NON_PROFIT" "Government & Non-Profit",
    HomeImprovement "HOME_IMPROVEMENT" "Home Improvement",
    Income "INCOME" "Income",
    LoanPayments "LOAN_PAYMENTS" "Loan Payments",
    Medical "MEDICAL" "Medical",
    Merchandise "MERCHANDISE" "Merchandise",
    PersonalCare "PERSONAL_CARE" "Personal Care",
    RentAndUtilities "RENT_AND_UTILITIES" "Rent & Utilities",
    Services "SERVICES" "Services",
    TransferIn "TRANSFER_IN" "Transfer In",
    TransferOut "TRANSFER_OUT" "Transfer Out",
    Transportation "TRANSPORTATION" "Transportation",
    Travel "TRAVEL" "Travel",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_sorted_by_key_and_found_again() {
        assert_eq!(Category::ALL.len(), 16);
        assert!(Category::ALL.is_sorted_by_key(|category| category.key()));
        for category in Category::ALL {
            assert_eq!(Category::from_key(category.key()), Some(*category));
        }
        assert_eq!(Category::from_key("food_and_drink"), None);
    }
}
