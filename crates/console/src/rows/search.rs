//! The windows of the API, and a search in the rows of the chosen days. The API has none, so all
//! windows are read.

use bellbird_domain::{Category, Decimal, Transaction};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::choice::Choice;
use crate::api_client::ApiError;
use crate::session::Session;
use crate::state::Console;

/// Rows of one read: as many as the API gives.
const WINDOW: u64 = 500;
/// Rows that a search reads at most.
const SEARCHED_MAX: u64 = 5_000;
/// Rows that a search shows at most.
const FOUND_MAX: usize = 200;

/// A response of the API with rows.
#[derive(Deserialize)]
pub(super) struct Window<T> {
    pub(super) data: Vec<T>,
    pub(super) pagination: Pagination,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pagination {
    /// Negative: nobody has counted the rows.
    total: i64,
    pub(super) has_more: bool,
}

impl Pagination {
    pub(super) fn total(&self) -> Option<u64> {
        u64::try_from(self.total).ok()
    }
}

/// What a search looks for.
pub(super) struct Wanted {
    /// In lower case.
    text: String,
    /// If the text is one, such as `-1,042.5`, `$12.50` or `AUD 12.50`.
    amount: Option<Decimal<'static>>,
}

impl From<&str> for Wanted {
    fn from(text: &str) -> Self {
        Self {
            text: text.to_lowercase(),
            amount: amount_of(without_currency(text)),
        }
    }
}

impl Wanted {
    /// Whether a row has the text, or this amount whatever its sign. A whole number finds its
    /// places too: 12 finds -12.50.
    pub(super) fn is_in(&self, row: &Transaction<'_>) -> bool {
        let texts = [
            Some(&*row.description),
            row.merchant_name.as_deref(),
            row.category.map(Category::label),
        ];
        self.amount
            .as_ref()
            .is_some_and(|amount| is_amount(&row.amount, amount))
            || texts
                .into_iter()
                .flatten()
                .any(|text| text.to_lowercase().contains(&self.text))
    }
}

fn is_amount(amount: &Decimal<'_>, wanted: &Decimal<'_>) -> bool {
    if wanted.as_str().contains('.') {
        return amount.cmp_absolute(wanted).is_eq();
    }
    let text = amount.as_str();
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    Decimal::parse(whole).is_ok_and(|whole| whole.cmp_absolute(wanted).is_eq())
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

/// `text` may have commas between the thousands.
fn amount_of(text: &str) -> Option<Decimal<'static>> {
    let digits = text.replace(',', "");
    Decimal::parse(&digits).ok().map(Decimal::into_owned)
}

/// A row of a table.
pub(super) trait Searched {
    /// As the page shows them.
    fn texts(&self) -> impl Iterator<Item = &str>;

    /// An amount is found with its commas and without them, whatever its sign and the zeros at its
    /// end, because banks write these differently.
    fn has(&self, wanted: &Wanted) -> bool {
        let is_equal = |text: &str| match (&wanted.amount, amount_of(text)) {
            (Some(wanted), Some(amount)) => wanted.cmp_absolute(&amount).is_eq(),
            _ => false,
        };
        self.texts().any(|text| {
            text.to_lowercase().contains(&wanted.text)
                || text.replace(',', "").contains(&wanted.text)
                || is_equal(text)
        })
    }
}

/// The rows that have the text, newest first, and how many they are. `path` is that of the API.
pub(super) async fn search<T: DeserializeOwned, R: From<T> + Searched>(
    console: &Console,
    session: &Session,
    choice: &Choice,
    path: &str,
) -> Result<(Vec<R>, String), ApiError> {
    let wanted = Wanted::from(&*choice.search);
    let (mut rows, mut found, mut searched, mut has_more) = (Vec::new(), 0_u64, 0, true);
    while has_more && searched < SEARCHED_MAX {
        let Some(window) = choice.window_of(WINDOW, searched) else {
            break;
        };
        let read = console
            .inner
            .api
            .get::<Window<T>>(&session.caller, &format!("{path}?{window}"))
            .await?;
        searched += read.data.len() as u64;
        has_more = read.pagination.has_more && !read.data.is_empty();
        for row in read
            .data
            .into_iter()
            .map(R::from)
            .filter(|row| row.has(&wanted))
        {
            found += 1;
            if rows.len() < FOUND_MAX {
                rows.push(row);
            }
        }
    }
    let shown = match found > FOUND_MAX as u64 {
        true => format!("The newest {FOUND_MAX} of {found} found"),
        false => format!("{found} found"),
    };
    let of = match has_more {
        true => format!("in the newest {searched} rows: choose other days for the rest"),
        false => format!("in {searched} rows"),
    };
    Ok((rows, format!("{shown}, {of}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Amount(&'static str);

    impl Searched for Amount {
        fn texts(&self) -> impl Iterator<Item = &str> {
            [self.0].into_iter()
        }
    }

    #[test]
    fn amount_is_found_whatever_its_sign_and_zeros() {
        for (wanted, amount, is_found) in [
            ("12.50", "-12.5", true),
            ("-12.5", "12.50", true),
            ("$1,042.5", "-1,042.50", true),
            ("1042.5", "1,042.50", true),
            ("12.5", "12.51", true),
            ("12.50", "12.51", false),
            ("cafe", "12.5", false),
        ] {
            assert_eq!(
                Amount(amount).has(&Wanted::from(wanted)),
                is_found,
                "{wanted} {amount}"
            );
        }
    }

    #[test]
    fn amount_is_found_in_a_row_whatever_its_sign_and_currency() {
        let found = |wanted: &str, amount: &str| {
            let (Some(wanted), amount) =
                (Wanted::from(wanted).amount, Decimal::parse(amount).unwrap())
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
            ("12", "-12.50", true),
            ("12", "12", true),
            ("12", "112.50", false),
            ("12.5", "112.5", false),
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
