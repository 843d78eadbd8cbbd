//! New keys, tokens and other random bytes.
//!
//! Keys and tokens begin with two characters that are the same everywhere today. They are the name
//! of this database, should an installation ever have several: a proxy in front of these could then
//! tell whose a request is without asking anybody (`docs/several-instances.md`).

use bellbird_domain::{ApiKey, OperatorKey, SetupToken};
use secrecy::SecretString;
use zeroize::Zeroizing;

use crate::digest::hash;

/// The name of this database, in hexadecimal digits.
const CELL: &str = "00";
/// The same in the alphabet of keys.
const CELL_NUMBERS: [u8; CELL.len()] = [0; CELL.len()];

#[must_use]
pub fn new_key() -> ApiKey {
    ApiKey::from_random(random_base62())
}

#[must_use]
pub fn new_operator_key() -> OperatorKey {
    OperatorKey::from_random(random_base62())
}

#[must_use]
pub fn new_setup_token() -> SetupToken {
    SetupToken::from_random(random_base62())
}

/// Makes the code of a first start: 32 hexadecimal digits, all of which are random, because it is
/// of no cell yet.
#[must_use]
pub fn new_setup_code() -> SecretString {
    hex::encode(*random_bytes::<16>()).into()
}

/// Makes a token for a link, a state, a session or another cookie: 64 hexadecimal digits, of which
/// 62 are random.
#[must_use]
pub fn new_token() -> SecretString {
    format!("{CELL}{}", hex::encode(*random_bytes::<31>())).into()
}

/// The token of the session that the first operator has in a browser. It follows from the token in
/// that browser's cookie, so that the browser can have it before there is a session.
#[must_use]
pub fn first_session_token(browser: &str) -> SecretString {
    let digest = hash(&format!("session of the first operator in {browser}"));
    format!("{CELL}{}", hex::encode(&digest.as_ref()[1..])).into()
}

/// Numbers for the text of a key or setup token: those of the cell, and 30 that are uniformly
/// distributed over `0..62`, which are 178 bits.
fn random_base62() -> [u8; 32] {
    let mut numbers = [0; 32];
    let (cell, random) = numbers.split_at_mut(CELL_NUMBERS.len());
    cell.copy_from_slice(&CELL_NUMBERS);
    let mut filled = 0;
    while filled < random.len() {
        // 248 is a multiple of 62. Dropping larger bytes makes every number equally likely.
        for byte in random_bytes::<64>()
            .into_iter()
            .filter(|byte| *byte < 248)
            .take(random.len() - filled)
        {
            random[filled] = byte % 62;
            filled += 1;
        }
    }
    numbers
}

/// Random bytes for keys and tokens.
///
/// # Panics
/// Never: AWS-LC aborts the process if the operating system has no random numbers.
#[must_use]
pub fn random_bytes<const N: usize>() -> Zeroizing<[u8; N]> {
    let mut bytes = Zeroizing::new([0; N]);
    #[cfg(feature = "test-support")]
    if bellbird_domain::random::simulation::is_running() {
        bytes.fill_with(|| bellbird_domain::random::number().to_be_bytes()[0]);
        return bytes;
    }
    aws_lc_rs::rand::fill(&mut *bytes).expect("AWS-LC aborts in place of an error");
    bytes
}
