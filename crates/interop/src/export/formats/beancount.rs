//! Beancount 3. It sorts by date itself.

use bellbird_domain::Transaction;
use jiff::ToSpan as _;
use jiff::civil::Date;

use super::accounts::{AccountNames, OtherSide};
use super::text::{end_comments, line, one_line, start_comment, words};
use super::{FormatError, Head, LeftOut, WriteFile, amounts};

/// Beancount rounds negative numbers to the precision of Python's decimals.
const DIGITS_MAX: usize = 28;

pub(super) struct Beancount {
    names: AccountNames,
}

impl Beancount {
    pub(super) fn new() -> Self {
        let names = AccountNames::new(part);
        Self { names }
    }
}

impl WriteFile for Beancount {
    fn start(&mut self, head: &Head<'_>, out: &mut Vec<u8>) -> Result<(), FormatError> {
        self.names.reserve(head.accounts);
        start_comment(head, out);
        // Opens the accounts of a file that stands alone. Beancount ignores it in an included file,
        // so that `open` of the including file is not repeated.
        line(
            format_args!("plugin \"beancount.plugins.auto_accounts\""),
            out,
        );
        if let Some((account, amount, currency)) = head.known_balance() {
            // A balance counts at the start of its day.
            let day = head.today.saturating_add(1.day());
            let name = self.names.get(account);
            line(
                format_args!(
                    "; The balance then, as an assertion that holds once the ledger is complete:\n\
                     ; {day} balance {name}  {amount} {currency}"
                ),
                out,
            );
        }
        Ok(())
    }

    fn transaction(
        &mut self,
        row: &Transaction<'_>,
        date: Date,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        if amounts::significant_digits(&row.amount) > DIGITS_MAX {
            return Err(FormatError::TooManyDigits);
        }
        let merchant = row
            .merchant_name
            .as_deref()
            .map(quoted)
            .filter(|merchant| merchant != "\"\"");
        let description = quoted(&row.description);
        let merchant = merchant.map(|merchant| merchant + " ").unwrap_or_default();
        line(format_args!("\n{date} * {merchant}{description}"), out);
        line(format_args!("  id: {}", quoted(&row.id)), out);
        if let Some(category) = row.category {
            line(format_args!("  category: \"{}\"", category.key()), out);
        }
        let currency = row.actual_currency();
        let (name, amount) = (self.names.get(row.account), &row.amount);
        line(format_args!("  {name}  {amount} {currency}"), out);
        // Both amounts are given, because an inferred one would be rounded to the precision of
        // Python's decimals.
        let (kind, words) = OtherSide::of(row).words();
        let (other, amount) = (capitals(words), amounts::negated(&row.amount));
        line(format_args!("  {kind}:{other}  {amount} {currency}"), out);
        Ok(())
    }

    fn end(&mut self, rows: u64, left_out: Option<&[LeftOut]>, out: &mut Vec<u8>) {
        end_comments(rows, left_out.unwrap_or_default(), out);
    }
}

/// A string literal.
fn quoted(text: &str) -> String {
    let text = one_line(text);
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('"');
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            literal.push('\\');
        }
        literal.push(character);
    }
    literal.push('"');
    literal
}

/// Letters, digits and single hyphens, beginning with a capital or a digit.
fn part(text: &str, default: &str) -> String {
    let name = words(text, "-", is_letter);
    capitalized(if name.is_empty() { default } else { &name })
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).collect()
}

/// Latin letters and ASCII digits. Other scripts lack capitals, which beancount demands.
const fn is_letter(character: char) -> bool {
    let is_latin = matches!(character, '\u{c0}'..='\u{24f}') && !matches!(character, '×' | '÷');
    character.is_ascii_alphanumeric() || is_latin
}

/// `FOOD_AND_DRINK` as `Food-And-Drink`.
fn capitals(words: &str) -> String {
    let words = words.to_ascii_lowercase();
    let words: Vec<_> = words.split('_').map(capitalized).collect();
    words.join("-")
}
