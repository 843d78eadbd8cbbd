use std::fmt;

use bellbird_domain::{ApiKey, OperatorKey, SetupToken};
use secrecy::SecretString;
use zeroize::Zeroizing;

use crate::Storage;

/// Which part of a large installation a database is. Keys, tokens and states begin with it, so that
/// a proxy in front of several databases can tell whose a request is: see docs/scaling.md.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cell(u8);

impl Cell {
    /// Parses two lower-case hexadecimal digits, which fit into keys and tokens alike.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let cell = Self(u8::from_str_radix(text, 16).ok()?);
        (cell.to_string() == text).then_some(cell)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:02x}", self.0)
    }
}

impl Storage {
    /// The storage of another cell than `00`.
    #[must_use]
    pub fn in_cell(self, cell: Cell) -> Self {
        Self { cell, ..self }
    }

    #[must_use]
    pub fn new_key(&self) -> ApiKey {
        ApiKey::from_random(self.random_base62())
    }

    #[must_use]
    pub fn new_operator_key(&self) -> OperatorKey {
        OperatorKey::from_random(self.random_base62())
    }

    #[must_use]
    pub fn new_setup_token(&self) -> SetupToken {
        SetupToken::from_random(self.random_base62())
    }

    /// Makes a token for a link, a state, a session or another cookie: 64 hexadecimal digits, of
    /// which 62 are random.
    #[must_use]
    pub fn new_token(&self) -> SecretString {
        format!("{}{}", self.cell, hex::encode(*random_bytes::<31>())).into()
    }

    /// Numbers for the text of a key or setup token: two of the cell, and 30 that are uniformly
    /// distributed over `0..62`, which are 178 bits.
    fn random_base62(&self) -> [u8; 32] {
        // In the alphabet of keys, letters in lower case are the numbers from 36 on.
        let digit = |digit: u8| if digit < 10 { digit } else { digit + 26 };
        let mut numbers = [0; 32];
        numbers[..2].copy_from_slice(&[digit(self.cell.0 >> 4), digit(self.cell.0 & 15)]);
        let mut filled = 2;
        while filled < numbers.len() {
            // 248 is a multiple of 62. Dropping larger bytes makes every number equally likely.
            for byte in random_bytes::<64>()
                .into_iter()
                .filter(|byte| *byte < 248)
                .take(numbers.len() - filled)
            {
                numbers[filled] = byte % 62;
                filled += 1;
            }
        }
        numbers
    }
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
