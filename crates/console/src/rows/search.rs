//! What a search looks for in a row. The API has no search, so the page reads the rows.

use bellbird_domain::Decimal;
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

/// What a search looks for: the whole text, or all of its words, such as `billycart AUD 12.50`.
pub(super) struct Wanted {
    whole: Word,
    words: Vec<Word>,
}

struct Word {
    /// As [`folded`].
    text: String,
    /// If the text is one, such as `-1,042.5`, `$12.50` or `AUD 12.50`.
    amount: Option<Decimal<'static>>,
}

impl From<&str> for Wanted {
    fn from(text: &str) -> Self {
        Self {
            whole: Word::new(text),
            words: text.split_whitespace().map(Word::new).collect(),
        }
    }
}

impl Wanted {
    /// Whether a row has it in its own texts, or as its amount whatever the sign. A whole number
    /// finds its places too, and two places those that a page leaves out: 12 finds -12.50, and 3.14
    /// finds 3.1416.
    pub(super) fn is_in<'t>(
        &self,
        texts: impl IntoIterator<Item = &'t str>,
        amount: Option<&Decimal<'_>>,
        currency: &str,
    ) -> bool {
        let texts: Vec<String> = texts.into_iter().map(folded).collect();
        let is_found = |word: &Word| word.is_in(&texts, amount);
        let is_known = |word: &Word| word.text.eq_ignore_ascii_case(currency) || is_found(word);
        is_found(&self.whole) || (self.words.len() > 1 && self.words.iter().all(is_known))
    }
}

impl Word {
    fn new(text: &str) -> Self {
        Self {
            text: folded(text),
            amount: amount_of(without_currency(text)),
        }
    }

    fn is_in(&self, texts: &[String], amount: Option<&Decimal<'_>>) -> bool {
        let is_wanted = |wanted| amount.is_some_and(|amount| is_amount(amount, wanted));
        self.amount.as_ref().is_some_and(is_wanted)
            || texts.iter().any(|text| text.contains(&self.text))
    }
}

/// In lower case and without accents, because few keyboards have all of them: `kowhai` finds
/// Kōwhai.
fn folded(text: &str) -> String {
    let letters = text.nfd().filter(|c| !is_combining_mark(*c));
    letters.flat_map(char::to_lowercase).collect()
}

fn is_amount(amount: &Decimal<'_>, wanted: &Decimal<'_>) -> bool {
    let text = amount.as_str();
    let places = wanted.as_str().split_once('.');
    let places = places.map_or(0, |(_, places)| places.len());
    let end = match (places, text.find('.')) {
        (0, Some(point)) => point,
        (2.., Some(point)) => text.len().min(point + 1 + places),
        _ => text.len(),
    };
    Decimal::parse(&text[..end]).is_ok_and(|cut| cut.cmp_absolute(wanted).is_eq())
}

/// Without the sign, and without the sign or code of a currency, such as `NZ$` or ` AUD`.
fn without_currency(text: &str) -> &str {
    let is_sign =
        |c: char| c.is_whitespace() || matches!(c, '+' | '-' | '\u{2212}' | '$' | '€' | '£' | '¥');
    let is_code = |code: &str| {
        let code = code.trim_matches(is_sign);
        code.len() <= 3 && code.bytes().all(|byte| byte.is_ascii_alphabetic())
    };
    let is_digit = |c: char| c.is_ascii_digit() || c == '.';
    let (Some(first), Some(last)) = (text.find(is_digit), text.rfind(is_digit)) else {
        return text;
    };
    match is_code(&text[..first]) && is_code(&text[last + 1..]) {
        true => &text[first..=last],
        false => text,
    }
}

/// `text` may have commas between the thousands, or one as its decimal point, with dots between the
/// thousands then: three digits follow that of thousands.
fn amount_of(text: &str) -> Option<Decimal<'static>> {
    let is_places = |places: &str| (1..=2).contains(&places.len()) && !places.contains('.');
    let digits = match text.rsplit_once(',') {
        Some((whole, places)) if is_places(places) && !whole.contains(',') => {
            format!("{}.{places}", whole.replace('.', ""))
        }
        _ => text.replace(',', ""),
    };
    Decimal::parse(&digits).ok().map(Decimal::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accents_and_capitals_make_no_difference() {
        for (text, wanted) in [
            ("KŌWHAI BAKEHOUSE", "kowhai"),
            ("Kowhai", "kōwhai"),
            ("Café Ñandú", "cafe nandu"),
            ("Ω", "ω"),
        ] {
            assert!(folded(text).contains(&folded(wanted)), "{text} {wanted}");
        }
        assert!(!folded("Kowhai").contains(&folded("kea")));
    }

    #[test]
    fn words_are_found_wherever_they_are() {
        let amount = Decimal::parse("-12.5").unwrap();
        let texts = ["Billycart Coffee 12 Main St", "Groceries"];
        for (wanted, is_found) in [
            ("billycart 12.50", true),
            ("$12.50 coffee", true),
            ("groceries main", true),
            ("coffee 12 main", true),
            ("NZ$ 12.50", true),
            ("billycart aud \u{2212}12.50", true),
            ("billycart nzd 12.50", false),
            ("billycart 12.60", false),
            ("coffee tea", false),
        ] {
            let wanted_row = Wanted::from(wanted);
            assert_eq!(
                wanted_row.is_in(texts, Some(&amount), "AUD"),
                is_found,
                "{wanted}"
            );
        }
    }

    #[test]
    fn amount_is_found_in_a_row_whatever_its_sign_and_currency() {
        let found = |wanted: &str, amount: &str| {
            let (Some(wanted), amount) =
                (Word::new(wanted).amount, Decimal::parse(amount).unwrap())
            else {
                return false;
            };
            is_amount(&amount, &wanted)
        };
        for (wanted, amount, is_found) in [
            ("12.50", "-12.5", true),
            ("\u{2212}12.5", "12.500", true),
            ("$12.50", "-12.5", true),
            ("NZ$ 12.50", "-12.5", true),
            ("-AUD 1,042.50", "1042.5", true),
            ("12.50 aud", "-12.5", true),
            ("814,20", "-814.2", true),
            ("814,2 €", "-814.2", true),
            ("1.234,56", "1234.56", true),
            ("1.234.567,8 €", "-1234567.8", true),
            ("1,042", "1042", true),
            ("1,042", "1.042", false),
            ("814,20", "81420", false),
            ("12", "-12.50", true),
            ("12", "12", true),
            ("12", "112.50", false),
            ("12.5", "112.5", false),
            ("3.14", "-3.1416", true),
            ("3.1", "3.1416", false),
            ("12.0", "12.50", false),
            ("EFTPOS 12", "-12", false),
            ("12 Main", "-12", false),
            ("€", "0", false),
            ("0", "0.00", true),
            (
                "99999999999999999999999999999999999",
                "99999999999999999999999999999999999.5",
                true,
            ),
        ] {
            assert_eq!(found(wanted, amount), is_found, "{wanted} {amount}");
        }
    }
}
