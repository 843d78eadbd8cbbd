//! A journal for hledger and ledger. Both sort by date themselves.

use bellbird_domain::Transaction;
use jiff::civil::Date;

use super::accounts::{AccountNames, OtherSide};
use super::text::{end_comments, key, line, one_line, start_comment, words};
use super::{FormatError, Head, LeftOut, WriteFile};

/// An id is the value of a tag, which ends at a comma. Longer ones, and ones with other characters,
/// become a digest.
const ID_MAX: usize = 255;

pub(super) struct Journal {
    names: AccountNames,
}

impl Journal {
    pub(super) fn new() -> Self {
        let names = AccountNames::new(part);
        Self { names }
    }
}

impl WriteFile for Journal {
    fn start(&mut self, head: &Head<'_>, out: &mut Vec<u8>) -> Result<(), FormatError> {
        self.names.reserve(head.accounts);
        start_comment(head, out);
        if let Some((account, amount, currency)) = head.known_balance() {
            let (name, day) = (self.names.get(account), head.today);
            line(
                format_args!(
                    "; The balance then, as an assertion that holds once the journal is complete:\n\
                     ; {day} * balance\n\
                     ;     {name}  0 {currency} = {amount} {currency}"
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
        let text = description(row);
        // An empty code keeps parentheses at the start of a text from being read as one.
        let code = if text.starts_with('(') { " () " } else { " " };
        line(format_args!("\n{date} *{code}{text}"), out);
        let is_plain =
            |character: char| character.is_ascii_graphic() && !matches!(character, ',' | ';');
        let id = key(&row.id, ID_MAX, is_plain);
        line(format_args!("    ; id: {id}"), out);
        if let Some(category) = row.category {
            line(format_args!("    ; category: {}", category.key()), out);
        }
        let currency = row.actual_currency();
        let (name, amount) = (self.names.get(row.account), &row.amount);
        line(format_args!("    {name}  {amount} {currency}"), out);
        let (kind, words) = OtherSide::of(row).words();
        let kind = kind.to_ascii_lowercase();
        // `FOOD_AND_DRINK` as `food and drink`.
        let words = words.to_ascii_lowercase().replace('_', " ");
        line(format_args!("    {kind}:{words}"), out);
        Ok(())
    }

    fn end(&mut self, rows: u64, left_out: Option<&[LeftOut]>, out: &mut Vec<u8>) {
        end_comments(rows, left_out.unwrap_or_default(), out);
    }
}

/// `merchant | description`, which hledger splits into payee and note. A semicolon would begin a
/// comment.
fn description(row: &Transaction<'_>) -> String {
    let plain = |text: &str| {
        let text = one_line(text).replace(';', ",").replace('|', "/");
        words(&text, " ", |character| !character.is_whitespace())
    };
    let merchant = row.merchant_name.as_deref().map(plain).unwrap_or_default();
    let description = plain(&row.description);
    match (merchant.is_empty(), description.is_empty()) {
        (true, _) => description,
        (_, true) => merchant,
        _ => format!("{merchant} | {description}"),
    }
}

/// Letters, digits and a few signs without a meaning, in lower case. Single blanks, because two end
/// a name.
fn part(text: &str, default: &str) -> String {
    let is_kept = |character: char| {
        character.is_alphanumeric() || matches!(character, '-' | '_' | '.' | '&' | '\'')
    };
    let name = words(text, " ", is_kept);
    if name.is_empty() {
        default.to_owned()
    } else {
        name.to_lowercase()
    }
}
