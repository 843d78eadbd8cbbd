//! Makes names from providers safe to show on a page.

use bellbird_domain::{Account, Connection, MaskedNumber};

/// Longer names are truncated.
const NAME_CHARS_MAX: usize = 80;

/// The sanitized name of the institution, or a placeholder if nothing is left of it.
pub(crate) fn institution_name(connection: &Connection) -> String {
    let name = sanitized(&connection.institution_name);
    if name.trim().is_empty() {
        "Unnamed institution".to_owned()
    } else {
        name
    }
}

/// The masked number of an account, unless its name ends with its digits.
pub(crate) fn number_of(account: &Account) -> Option<&str> {
    let number = account.number.as_ref().map(MaskedNumber::as_str);
    number.filter(|number| !account.name.ends_with(number.trim_start_matches('x')))
}

/// A name with the masked number of its account behind it.
pub(crate) fn with_number(name: &str, account: &Account) -> String {
    match number_of(account) {
        Some(number) => format!("{name} {number}"),
        None => name.to_owned(),
    }
}

/// Removes control characters and bidirectional controls, which could reverse the text around the
/// name, and truncates the name.
pub(crate) fn sanitized(name: &str) -> String {
    sanitized_up_to(NAME_CHARS_MAX, name)
}

/// As [`sanitized`], for a longer text.
pub(crate) fn sanitized_up_to(chars_max: usize, name: &str) -> String {
    let is_bidi_control = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = name
        .chars()
        .filter(|c| !c.is_control() && !is_bidi_control(*c));
    let mut name: String = shown.take(chars_max + 1).collect();
    if let Some((end, _)) = name.char_indices().nth(chars_max) {
        name.replace_range(end.., "…");
    }
    name
}

#[cfg(test)]
mod tests {
    use bellbird_domain::ConnectionStatus;

    use super::*;
    use crate::pages::fixtures::{account, connection};

    #[test]
    fn institution_names_are_sanitized() {
        let shown = |name: &str| institution_name(&connection(name, ConnectionStatus::Active));
        assert_eq!(shown("Bank of Māori Bay"), "Bank of Māori Bay");
        assert_eq!(shown("\u{202e}abc\n\0"), "abc");
        assert_eq!(shown(" \u{200f} "), "Unnamed institution");
        assert_eq!(shown(&"ā".repeat(81)), format!("{}…", "ā".repeat(80)));
        assert_eq!(shown(&"ā".repeat(80)), "ā".repeat(80));
    }

    #[test]
    fn number_of_an_account_is_said_once() {
        let bank = connection("Bank", ConnectionStatus::Active);
        let said = [
            ("Card", "Card xxxx5678"),
            ("Card xxxx5678", "Card xxxx5678"),
            ("Card 5678", "Card 5678"),
        ];
        for (name, expected) in said {
            let account = account(&bank, name);
            assert_eq!(with_number(name, &account), expected);
        }
    }
}
