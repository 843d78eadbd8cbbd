//! Beancount 3. It sorts by date itself.

use bellbird_domain::{Account, Category, Transaction};
use jiff::ToSpan as _;
use jiff::civil::Date;

use super::accounts::{AccountNames, OtherSide, is_liability, label};
use super::text::{end_comments, line, one_line};
use super::{FormatError, Head, LeftOut, WriteFile, amounts};

/// Beancount rounds negative numbers to the precision of Python's decimals.
const DIGITS_MAX: usize = 28;

#[derive(Default)]
pub(super) struct Beancount {
    names: AccountNames,
}

impl WriteFile for Beancount {
    fn start(&mut self, head: &Head<'_>, out: &mut Vec<u8>) -> Result<(), FormatError> {
        self.names = AccountNames::new(head.accounts, account_name);
        line(
            &[
                "; Transactions of Bellbird, read at ",
                &head.read_at.strftime("%FT%TZ").to_string(),
            ],
            out,
        );
        // Opens the accounts of a file that stands alone. Beancount ignores it in an included file,
        // so that `open` of the including file is not repeated.
        line(&["plugin \"beancount.plugins.auto_accounts\""], out);
        let Some((account, balance)) = head.account.zip(head.balance) else {
            return Ok(());
        };
        if let Some(amount) = &balance.current {
            let currency = balance.currency.unwrap_or(account.currency);
            // A balance counts at the start of its day.
            let day = head.today.saturating_add(1.day()).to_string();
            let name = self.names.get(account, account_name);
            line(
                &["; The balance then, as an assertion that holds once the ledger is complete:"],
                out,
            );
            line(
                &[
                    "; ",
                    &day,
                    " balance ",
                    name,
                    "  ",
                    amount.as_str(),
                    " ",
                    currency.as_str(),
                ],
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
        line(
            &["\n", &date.to_string(), " * ", &merchant, &description],
            out,
        );
        line(&["  id: ", &quoted(&row.id)], out);
        if let Some(category) = row.category {
            line(&["  category: \"", category.key(), "\""], out);
        }
        let currency = row.currency.unwrap_or(row.account.currency);
        let name = self.names.get(row.account, account_name);
        line(
            &[
                "  ",
                name,
                "  ",
                row.amount.as_str(),
                " ",
                currency.as_str(),
            ],
            out,
        );
        // Both amounts are given, because an inferred one would be rounded to the precision of
        // Python's decimals.
        for part in ["  ", &other_side(OtherSide::of(row)), "  "] {
            out.extend_from_slice(part.as_bytes());
        }
        amounts::write_negated(&row.amount, out);
        line(&[" ", currency.as_str()], out);
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

/// `Assets:Institution:Account-1234`.
fn account_name(account: &Account, suffix: &str) -> String {
    let kind = if is_liability(account) {
        "Liabilities"
    } else {
        "Assets"
    };
    let institution = part(
        account.institution_name.as_deref().unwrap_or_default(),
        "Bank",
    );
    format!(
        "{kind}:{institution}:{}",
        part(&label(account, suffix), "Account")
    )
}

/// Letters, digits and single hyphens, beginning with a capital or a digit.
fn part(text: &str, default: &str) -> String {
    let kept: String = text
        .chars()
        .map(|character| if is_letter(character) { character } else { '-' })
        .collect();
    let words: Vec<_> = kept.split('-').filter(|word| !word.is_empty()).collect();
    let name = words.join("-");
    let Some(first) = name.chars().next() else {
        return default.to_owned();
    };
    first.to_uppercase().chain(name.chars().skip(1)).collect()
}

/// Latin letters and ASCII digits. Other scripts lack capitals, which beancount demands.
const fn is_letter(character: char) -> bool {
    let is_latin = matches!(character, '\u{c0}'..='\u{24f}') && !matches!(character, '×' | '÷');
    character.is_ascii_alphanumeric() || is_latin
}

fn other_side(side: OtherSide) -> String {
    match side {
        OtherSide::Transfers => "Equity:Transfers".to_owned(),
        OtherSide::UnknownIncome => "Income:Unknown".to_owned(),
        OtherSide::UnknownExpenses => "Expenses:Unknown".to_owned(),
        OtherSide::Expenses(category) => format!("Expenses:{}", words_of(category)),
    }
}

/// `FOOD_AND_DRINK` as `Food-And-Drink`.
fn words_of(category: Category) -> String {
    let key = category.key().to_ascii_lowercase();
    let words = key.split('_').map(|word| part(word, ""));
    words.collect::<Vec<_>>().join("-")
}
