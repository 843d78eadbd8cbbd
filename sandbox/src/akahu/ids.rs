//! Ids of Akahu: a prefix for the kind of object, then `c` and 24 characters
//! (docs/providers/akahu.md#ids).

use crate::world::rng::{Rng, mix};

const BASE36: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// The number of values that twelve base-36 digits can hold.
const HALF: u64 = 36_u64.pow(12);

/// Draws an id from `rng`.
pub(super) fn draw(prefix: &str, rng: &mut Rng) -> String {
    format!("{prefix}c{}", rng.text(BASE36, 24))
}

/// Makes an id that cannot be guessed.
pub(super) fn random(prefix: &str) -> String {
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    of_words(prefix, [high, low])
}

/// Derives an id from a name, independent of the seed. So a merchant has the same id in every
/// sandbox.
pub(super) fn named(prefix: &str, name: &str) -> String {
    let first = name
        .bytes()
        .fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
    of_words(prefix, [first, mix(first ^ 1)])
}

pub(super) fn of_row(seed: u64, number: u64) -> String {
    of_words("trans_", row_words(seed, number))
}

/// The `hash` member, which identifies a row by its content. Its format is invented.
pub(super) fn hash_of_row(seed: u64, number: u64) -> String {
    let [first, second] = row_words(seed, number);
    format!("{second:016x}{first:016x}")
}

/// Whether a row has this id. Comparing half of it first avoids building the id of every row in a
/// search.
pub(super) fn is_of_row(id: &str, seed: u64, number: u64) -> bool {
    let first = id.strip_prefix("trans_c").and_then(|text| text.get(..12));
    first.and_then(|text| u64::from_str_radix(text, 36).ok())
        == Some(row_words(seed, number)[0] % HALF)
        && of_row(seed, number) == id
}

/// Whether an id has the documented format.
pub(super) fn is_well_formed(prefix: &str, id: &str) -> bool {
    let rest = id.strip_prefix(prefix).unwrap_or_default();
    (25..=27).contains(&rest.len())
        && rest
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
}

fn row_words(seed: u64, number: u64) -> [u64; 2] {
    let first = mix(mix(seed ^ 0x0061_6b61_6875) ^ number);
    [first, mix(first ^ 1)]
}

fn of_words(prefix: &str, words: [u64; 2]) -> String {
    let mut id = String::with_capacity(prefix.len() + 25);
    id.push_str(prefix);
    id.push('c');
    for word in words {
        let mut rest = word % HALF;
        let mut digits = [b'0'; 12];
        for digit in digits.iter_mut().rev() {
            *digit = BASE36[(rest % 36) as usize];
            rest /= 36;
        }
        id.extend(digits.map(char::from));
    }
    id
}
