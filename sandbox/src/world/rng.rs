//! A small deterministic random generator: splitmix64. Not for secrets.

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes the bits of a number; equal input always gives equal output.
pub(crate) const fn mix(value: u64) -> u64 {
    let a = value.wrapping_add(GOLDEN);
    let b = (a ^ (a >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let c = (b ^ (b >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    c ^ (c >> 31)
}

/// Hashes several texts, in their order, into one number.
pub(crate) fn label(texts: &[&str]) -> u64 {
    let letters = texts
        .iter()
        .flat_map(|text| text.bytes().map(u64::from).chain([256]));
    letters.fold(0, |label, letter| mix(label ^ letter))
}

/// A repeatable stream of numbers.
pub(crate) struct Rng(u64);

impl Rng {
    /// Each label has its own stream, so that more draws in one place change nothing in another.
    pub(crate) const fn new(seed: u64, label: u64) -> Self {
        Self(mix(mix(seed) ^ label.wrapping_mul(GOLDEN)))
    }

    /// A stream that cannot be repeated.
    pub(crate) fn random() -> Self {
        let (seed, label) = uuid::Uuid::new_v4().as_u64_pair();
        Self::new(seed, label)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// True in `percent` of a hundred cases.
    pub(crate) const fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// `length` characters of `alphabet`.
    pub(crate) fn text(&mut self, alphabet: &[u8], length: usize) -> String {
        (0..length)
            .map(|_| char::from(alphabet[self.next() as usize % alphabet.len()]))
            .collect()
    }

    /// An id in the format of a random UUID.
    pub(crate) fn uuid(&mut self) -> String {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next().to_be_bytes());
        bytes[8..].copy_from_slice(&self.next().to_be_bytes());
        uuid::Builder::from_random_bytes(bytes)
            .into_uuid()
            .to_string()
    }
}

/// The characters of a KSUID.
pub(crate) const BASE62: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
pub(crate) const DIGITS: &[u8] = b"0123456789";
