//! Finds any of thousands of texts in one pass over bytes.

use aho_corasick::{AhoCorasick, BuildError};

/// Longer texts are searched for by their first bytes, so that blocks that overlap by this much
/// hide none.
pub const LENGTH_MAX: usize = 200;

/// Texts to search for, each with a number. Several may have the same one.
pub struct Texts {
    automaton: AhoCorasick,
    /// Of each text.
    numbers: Vec<usize>,
}

impl Texts {
    /// # Errors
    /// If there are millions of texts.
    pub fn new<'t>(texts: impl IntoIterator<Item = (&'t str, usize)>) -> Result<Self, BuildError> {
        let (texts, numbers): (Vec<_>, _) = texts
            .into_iter()
            .map(|(text, number)| (&text.as_bytes()[..text.len().min(LENGTH_MAX)], number))
            .unzip();
        Ok(Self {
            automaton: AhoCorasick::new(texts)?,
            numbers,
        })
    }

    /// Calls `found` with the number of each text that the bytes contain, and where, as often as
    /// they do.
    pub fn find_in(&self, bytes: &[u8], found: &mut dyn FnMut(usize, usize)) {
        for place in self.automaton.find_overlapping_iter(bytes) {
            found(self.numbers[place.pattern()], place.start());
        }
    }

    /// The number of a text that the bytes contain.
    pub fn first_in(&self, bytes: &[u8]) -> Option<usize> {
        self.automaton
            .find(bytes)
            .map(|place| self.numbers[place.pattern()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_occurrence_of_every_text_is_found() {
        let long = "x".repeat(LENGTH_MAX) + "y";
        let texts =
            Texts::new([("COFFEE SHOP", 0), ("COFFEE", 1), ("shop 1", 2), (&long, 3)]).unwrap();
        let mut found = Vec::new();
        texts.find_in(b"a COFFEE SHOP, shop 12 short", &mut |number, at| {
            found.push((number, at));
        });
        found.sort_unstable();
        assert_eq!(found, [(0, 2), (1, 2), (2, 15)]);
        assert_eq!(texts.first_in(long.as_bytes()), Some(3));
        assert_eq!(texts.first_in(b"COFFE E"), None);
        assert_eq!(Texts::new([]).unwrap().first_in(b"anything"), None);
    }
}
