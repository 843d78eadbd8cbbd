//! What of a row is searched for, and in which pieces.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use aho_corasick::BuildError;
use bellbird_domain::ApiKey;
use jiff::civil::Date;
use serde::Serialize;
use serde_json::Value;

use super::texts::Texts;

/// Shorter pieces of texts occur elsewhere by chance.
const TEXT_MIN: usize = 10;
/// The digits of an amount that nothing else has by chance.
const AMOUNT_DIGITS_MIN: usize = 8;
/// The digits of an account number in a text.
const NUMBER_DIGITS_MIN: usize = 8;
/// Members of rows with texts.
const TEXTS: [&str; 4] = [
    "description",
    "merchantName",
    "reference",
    "extendedDescription",
];
/// Members of rows with decimals.
const AMOUNTS: [&str; 5] = ["amount", "totalAmount", "quantity", "price", "fees"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    Description,
    RowId,
    Amount,
    /// A number of an account that a description contains.
    AccountNumber,
    Key,
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Description => "description",
            Self::RowId => "row id",
            Self::Amount => "amount",
            Self::AccountNumber => "account number",
            Self::Key => "key",
        })
    }
}

/// How many different strings of each kind.
pub type Counts = BTreeMap<Kind, u64>;

/// The strings that must be in no table, log or memory. Nothing shows them.
#[derive(Default)]
pub struct Strings {
    /// What is searched for, each with the index of its string.
    pieces: Vec<(String, usize)>,
    /// Of each string, also of those without a piece.
    kinds: Vec<Kind>,
    seen: BTreeSet<(Kind, String)>,
}

impl Strings {
    /// Adds the sensitive members of a row of `/v1`.
    pub fn add_row(&mut self, row: &Value) {
        let texts: Vec<&str> = TEXTS
            .iter()
            .filter_map(|name| row[*name].as_str())
            .collect();
        for text in &texts {
            self.add(Kind::Description, text, pieces(text));
        }
        for text in &texts {
            for number in text
                .split(|c: char| !c.is_ascii_digit())
                .filter(|digits| digits.len() >= NUMBER_DIGITS_MIN)
            {
                self.add(Kind::AccountNumber, number, vec![number]);
            }
        }
        if let Some(id) = row["id"].as_str() {
            self.add(Kind::RowId, id, pieces(id));
        }
        for amount in AMOUNTS.iter().filter_map(|name| row[*name].as_str()) {
            let amount = amount.trim_start_matches('-');
            let digits = amount.bytes().filter(u8::is_ascii_digit).count();
            let is_long = digits >= AMOUNT_DIGITS_MIN && amount.contains('.');
            self.add(
                Kind::Amount,
                amount,
                is_long.then_some(amount).into_iter().collect(),
            );
        }
    }

    /// Adds the key without its first characters, which the database stores.
    pub fn add_key(&mut self, key: &ApiKey) {
        let rest = key.expose().strip_prefix(key.prefix()).unwrap_or_default();
        self.add(Kind::Key, rest, vec![rest]);
    }

    fn add(&mut self, kind: Kind, text: &str, pieces: Vec<&str>) {
        if !self.seen.insert((kind, text.to_owned())) {
            return;
        }
        let string = self.kinds.len();
        self.pieces
            .extend(pieces.into_iter().map(|piece| (piece.to_owned(), string)));
        self.kinds.push(kind);
    }

    /// Leaves out the pieces that any of these texts contains, because they are stored or published
    /// by design.
    ///
    /// # Errors
    /// If there are millions of strings.
    pub fn leave_out(&mut self, known: &[String]) -> Result<(), BuildError> {
        let pieces = self.pieces.iter().enumerate();
        let texts = Texts::new(pieces.map(|(number, (piece, _))| (piece.as_str(), number)))?;
        let mut is_known = vec![false; self.pieces.len()];
        for text in known {
            texts.find_in(text.as_bytes(), &mut |number, _| is_known[number] = true);
        }
        let mut is_known = is_known.into_iter();
        self.pieces.retain(|_| is_known.next() == Some(false));
        Ok(())
    }

    /// Of those that are searched for.
    pub fn counts(&self) -> Counts {
        count(self.searched().map(|string| self.kinds[string]))
    }

    /// The number of strings that are too short or legitimately elsewhere.
    pub fn left_out(&self) -> usize {
        self.kinds.len() - self.searched().count()
    }

    fn searched(&self) -> impl Iterator<Item = usize> {
        let strings = self.pieces.iter().map(|(_, string)| *string);
        strings.collect::<BTreeSet<_>>().into_iter()
    }

    /// # Errors
    /// If there are millions of strings.
    pub fn searcher(&self) -> Result<Searcher<'_>, BuildError> {
        let pieces = self
            .pieces
            .iter()
            .map(|(piece, string)| (piece.as_str(), *string));
        Ok(Searcher {
            texts: Texts::new(pieces)?,
            kinds: &self.kinds,
        })
    }
}

/// Searches any number of places.
pub struct Searcher<'a> {
    texts: Texts,
    kinds: &'a [Kind],
}

impl Searcher<'_> {
    /// Starts a search of one place.
    pub fn search(&self) -> Search<'_> {
        Search {
            searcher: self,
            found: BTreeSet::new(),
        }
    }
}

/// The strings that one place contains.
pub struct Search<'a> {
    searcher: &'a Searcher<'a>,
    found: BTreeSet<usize>,
}

impl Search<'_> {
    pub fn add(&mut self, bytes: &[u8]) {
        self.searcher.texts.find_in(bytes, &mut |string, _| {
            self.found.insert(string);
        });
    }

    pub fn counts(&self) -> Counts {
        count(self.found.iter().map(|string| self.searcher.kinds[*string]))
    }
}

fn count(kinds: impl Iterator<Item = Kind>) -> Counts {
    let mut counts = Counts::new();
    for kind in kinds {
        *counts.entry(kind).or_default() += 1;
    }
    counts
}

/// The parts of a text that any encoding leaves as they are, since JSON may write quotes,
/// backslashes and letters beyond ASCII in other ways. A long part is searched for by its halves,
/// because an allocator may write over the start of freed memory.
fn pieces(text: &str) -> Vec<&str> {
    let is_plain = |c: char| (c.is_ascii_graphic() || c == ' ') && !matches!(c, '"' | '\\' | '/');
    let parts = text
        .split(|c| !is_plain(c))
        .map(str::trim)
        .filter(|part| part.len() >= TEXT_MIN);
    parts
        .flat_map(|part| {
            let (first, second) = part.split_at(part.len() / 2);
            if first.len() >= TEXT_MIN {
                vec![first, second]
            } else {
                vec![part]
            }
        })
        .filter(|piece| !is_moment(piece))
        .collect()
}

/// A date or a time, such as the first half of `2026-11-29T19:20:55Z-`, which some ids begin with.
/// The service writes the same one for other reasons.
fn is_moment(piece: &str) -> bool {
    let (day, time) = piece.split_once('T').unwrap_or((piece, ""));
    let is_of_time = |byte: u8| byte.is_ascii_digit() || b":.Z-".contains(&byte);
    let is_day = day.trim_end_matches('-').parse::<Date>().is_ok();
    let colons = time.matches(':').count();
    let is_time = time.bytes().all(is_of_time) && (time.is_empty() || colons > 0);
    is_time && (is_day || (day.is_empty() && colons == 2))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn counts(counts: &[(Kind, u64)]) -> Counts {
        counts.iter().copied().collect()
    }

    #[test]
    fn strings_that_occur_by_chance_are_left_out() {
        let mut strings = Strings::default();
        let known = ["Rainy Day Savings".to_owned()];
        let row = json!({
            "id": "trans_cjjjcoi89evkx4aooav0x6w86", "description": "Transfer to 062000 12345678",
            "amount": "-512345.67",
            "merchantName": "Rainy Day Sav", "reference": "Rent", "date": "2026-11-19", "accountName": "Low Rate Visa",
            "price": "38.28",
        });
        strings.add_row(&row);
        strings.add_row(&row);
        strings.leave_out(&known).unwrap();
        let expected = [
            (Kind::Description, 1),
            (Kind::RowId, 1),
            (Kind::Amount, 1),
            (Kind::AccountNumber, 1),
        ];
        assert_eq!(strings.counts(), counts(&expected));
        assert_eq!(
            strings.left_out(),
            3,
            "a known name, a short text and a short amount"
        );
    }

    #[test]
    fn any_half_of_a_description_is_found() {
        let mut strings = Strings::default();
        strings
            .add_row(&json!({"description": "TUI \"STREET\" GROCER WELLINGTON CENTRAL", "amount": "-512345.67"}));
        for (place, expected) in [
            (&b"ROCER WELL"[..], &[][..]),
            (b"\0\0ER WELLINGTON CENTRAL\"", &[(Kind::Description, 1)]),
            (
                b"TUI \\\"STREET\\\" GROCER WELLI",
                &[(Kind::Description, 1)],
            ),
            (b"\"amount\":512345.67", &[(Kind::Amount, 1)]),
            (b"nothing of it", &[]),
        ] {
            let searcher = strings.searcher().unwrap();
            let mut search = searcher.search();
            search.add(place);
            assert_eq!(
                search.counts(),
                counts(expected),
                "{}",
                String::from_utf8_lossy(place)
            );
        }
    }

    #[test]
    fn moment_in_an_id_is_left_out() {
        for (id, expected) in [
            ("2026-11-29T19:20:55Z-/EXSG27-BUY", vec!["EXSG27-BUY"]),
            ("2026-11-29/T19:20:55.5", vec![]),
            ("2026-11-29-BUY", vec!["2026-11-29-BUY"]),
            ("2026-11-29-12345678", vec!["2026-11-29-12345678"]),
            ("4061:20261129:0001", vec!["4061:20261129:0001"]),
            ("20261129192055", vec!["20261129192055"]),
        ] {
            assert_eq!(pieces(id), expected, "{id}");
        }
    }

    #[test]
    fn key_is_found_without_its_shown_part() {
        let key = ApiKey::from_random([7; 32]);
        let mut strings = Strings::default();
        strings.add_key(&key);
        let searcher = strings.searcher().unwrap();
        let mut search = searcher.search();
        search.add(key.prefix().as_bytes());
        assert_eq!(search.counts(), Counts::new());
        search.add(key.expose().as_bytes());
        assert_eq!(search.counts(), counts(&[(Kind::Key, 1)]));
    }
}
