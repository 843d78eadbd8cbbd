//! The sixteen transaction categories of the public API, with their keys and display labels.

macro_rules! categories {
    ($($name:ident $key:literal $label:literal,)*) => {
        /// The purpose of a transaction. The API contract fixes the set; any other provider value
        /// maps to no category.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Category { $($name,)* }

        impl Category {
            /// All categories, sorted by key.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code on the wire, such as `FOOD_AND_DRINK`.
            #[must_use]
            pub fn key(self) -> &'static str {
                match self { $(Self::$name => $key,)* }
            }

            /// The display name, such as `Food & Drink`.
            #[must_use]
            pub fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// Finds a category by its exact key.
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

impl Category {
    /// Whether the money stays the user's, in another account.
    #[must_use]
    pub fn is_transfer(self) -> bool {
        matches!(self, Self::TransferIn | Self::TransferOut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_and_round_trip() {
        assert_eq!(Category::ALL.len(), 16);
        assert!(Category::ALL.is_sorted_by_key(|category| category.key()));
        for category in Category::ALL {
            assert_eq!(Category::from_key(category.key()), Some(*category));
        }
        assert_eq!(Category::from_key("food_and_drink"), None);
    }
}
