//! Names of people for user names that the world does not define. The same seed and user name give
//! the same person.

use super::rng::{Rng, label};
use crate::store::NUMBERS_PER_ACCOUNT;

const FIRST: &str = "Amelia Hemi Grace Rohan Mia Tāne Chloe Arjun Isla Wiremu Ruby Kenji Leila Oscar \
                     Noor Felix";
const LAST: &str = "Campbell Ngata Fraser Mehta Walsh Parata Osei Lindqvist Haddad Moreau Tui Yamada \
                    Kelly Petrov Silva Brennan";

/// The full name of the person with this user name.
pub(crate) fn full_name(seed: u64, user_name: &str) -> String {
    let mut rng = Rng::new(seed, label(&["name", user_name]));
    let mut draw = |names: &'static str| {
        let names: Vec<&str> = names.split(' ').collect();
        names[rng.next() as usize % names.len()]
    };
    let (first, last) = (draw(FIRST), draw(LAST));
    format!("{first} {last}")
}

/// The random stream for one thing of a user at one institution.
pub(crate) fn stream(seed: u64, user_name: &str, institution: &str, thing: &str) -> Rng {
    Rng::new(seed, label(&[user_name, institution, thing]))
}

/// The number of the first row of a user's account at an institution. It follows from their names
/// alone, so earlier links do not change it.
pub(crate) fn first_row(user_name: &str, institution: &str, account: &str) -> u64 {
    label(&[user_name, institution, account]) / NUMBERS_PER_ACCOUNT * NUMBERS_PER_ACCOUNT
}

/// The first word of an institution's name, which starts the names of its products.
pub(crate) fn first_word(name: &str) -> &str {
    name.split(' ').next().unwrap_or_default()
}

/// Varies an amount between half and one and a half times its value.
pub(crate) fn vary(rng: &mut Rng, cents: i64) -> i64 {
    cents / 1000 * rng.between(500, 1500) as i64 + rng.between(0, 99) as i64 * cents.signum()
}
