//! Invented people for user names that the world does not define. The same seed and user name give
//! the same person.

use super::people::{Holding, HoldingKind};
use super::rng::{Rng, label};
use super::rows::Oddity;

static FIRST: [&str; 16] = [
    "Amelia", "Hemi", "Grace", "Rohan", "Mia", "Tāne", "Chloe", "Arjun", "Isla", "Wiremu", "Ruby",
    "Kenji", "Leila", "Oscar", "Noor", "Felix",
];
static LAST: [&str; 16] = [
    "Campbell",
    "Ngata",
    "Fraser",
    "Mehta",
    "Walsh",
    "Parata",
    "Osei",
    "Lindqvist",
    "Haddad",
    "Moreau",
    "Tui",
    "Yamada",
    "Kelly",
    "Petrov",
    "Silva",
    "Brennan",
];

/// The full name of the person with this user name.
pub(crate) fn full_name(seed: u64, user_name: &str) -> String {
    let mut rng = Rng::new(seed, label(&["name", user_name]));
    let [first, last] = [FIRST, LAST].map(|names| names[rng.next() as usize % names.len()]);
    format!("{first} {last}")
}

/// The random stream for one thing of a user at one institution.
pub(crate) fn stream(seed: u64, user_name: &str, institution: &str, thing: &str) -> Rng {
    Rng::new(seed, label(&[user_name, institution, thing]))
}

/// The first word of an institution's name, which starts the names of its products.
pub(crate) fn first_word(name: &str) -> &str {
    name.split(' ').next().unwrap_or_default()
}

/// The accounts of every unknown user name at an Australian bank. Real balances vary around these.
pub(crate) static AUSTRALIAN: [Holding; 4] = [
    holding(
        "Everyday",
        "TRANS_AND_SAVINGS_ACCOUNTS",
        HoldingKind::Everyday {
            spending: 180,
            pending: 1,
            oddity: Oddity::None,
        },
        240_000,
        None,
    ),
    holding(
        "Saver",
        "TRANS_AND_SAVINGS_ACCOUNTS",
        HoldingKind::Saver,
        1_250_000,
        None,
    ),
    holding(
        "Low Rate Card",
        "CRED_AND_CHRG_CARDS",
        HoldingKind::Card,
        -120_000,
        Some(800_000),
    ),
    holding(
        "Home Loan",
        "RESIDENTIAL_MORTGAGES",
        HoldingKind::Mortgage,
        -38_000_000,
        None,
    ),
];

const fn holding(
    name: &'static str,
    category: &'static str,
    kind: HoldingKind,
    cents: i64,
    limit: Option<i64>,
) -> Holding {
    Holding {
        name,
        nickname: None,
        category,
        kind,
        cents,
        limit,
    }
}

/// Varies an amount between half and one and a half times its value.
pub(crate) fn vary(rng: &mut Rng, cents: i64) -> i64 {
    cents / 1000 * rng.between(500, 1500) as i64 + rng.between(0, 99) as i64 * cents.signum()
}
