//! Names of exported files, and the header that carries one. Pure.
//!
//! A name has letters and digits of any script, and `-`, `_` and `.` of our own. Whatever else a
//! text holds becomes a hyphen. So no text can end a header, leave a folder, hide a suffix or run
//! in a shell.

use http::HeaderValue;
use jiff::civil::Date;

/// Limit of each text in a name. File systems allow 255 bytes for the whole name, and a character
/// has up to four.
const TEXT_CHARS_MAX: usize = 24;

/// What the name of a file says. Texts that are empty, or have no letter or digit, are left out.
pub struct NameParts<'n> {
    pub institution: Option<&'n str>,
    pub account: Option<&'n str>,
    /// The resource, such as `trades`. Absent where institution or account already say enough.
    pub resource: Option<&'static str>,
    /// The first and the last day of the file.
    pub days: (Option<Date>, Option<Date>),
    pub extension: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileName {
    /// `Ironbark-Bank_Everyday-Account_2026-10-21_2026-11-20.csv`
    pub whole: String,
    /// For programs that read ASCII only.
    ascii: String,
}

impl NameParts<'_> {
    pub fn name(&self) -> FileName {
        FileName {
            whole: self.join(char::is_alphanumeric),
            ascii: self.join(|c| c.is_ascii_alphanumeric()),
        }
    }

    fn join(&self, is_kept: impl Fn(char) -> bool) -> String {
        let texts = [self.institution, self.account, self.resource];
        let mut parts: Vec<String> = texts
            .into_iter()
            .flatten()
            .map(|text| words(text, &is_kept))
            .collect();
        let (first, last) = self.days;
        parts.extend(first.map(|day| day.to_string()));
        parts.extend(
            last.filter(|last| first != Some(*last))
                .map(|day| day.to_string()),
        );
        parts.retain(|part| !part.is_empty());
        format!("{}.{}", parts.join("_"), self.extension)
    }
}

impl FileName {
    /// The value of `Content-Disposition` (RFC 6266, RFC 8187).
    pub fn content_disposition(&self) -> HeaderValue {
        let Self { whole, ascii } = self;
        let mut value = format!("attachment; filename=\"{ascii}\"");
        if whole != ascii {
            value.push_str("; filename*=UTF-8''");
            // Percent-encodes all but ASCII letters, digits, `-`, `_` and `.`; a name has no space.
            value.extend(form_urlencoded::byte_serialize(whole.as_bytes()));
        }
        HeaderValue::from_str(&value).unwrap_or(HeaderValue::from_static("attachment"))
    }
}

/// The text with a hyphen for each run of characters that are not kept, cut at [`TEXT_CHARS_MAX`].
fn words(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    let words = text
        .split(|character| !is_kept(character))
        .filter(|word| !word.is_empty());
    let joined = words.collect::<Vec<_>>().join("-");
    let cut: String = joined.chars().take(TEXT_CHARS_MAX).collect();
    cut.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use proptest::prelude::*;

    use super::*;

    fn parts<'n>(institution: &'n str, account: &'n str) -> NameParts<'n> {
        NameParts {
            institution: Some(institution),
            account: Some(account),
            resource: None,
            days: (Some(date(2026, 10, 21)), Some(date(2026, 11, 20))),
            extension: "csv",
        }
    }

    #[test]
    fn name_has_institution_account_and_days() {
        let name = parts("Ironbark Bank", "Everyday (joint)");
        assert_eq!(
            name.name().whole,
            "Ironbark-Bank_Everyday-joint_2026-10-21_2026-11-20.csv"
        );
        let value = name.name().content_disposition();
        let expected =
            r#"attachment; filename="Ironbark-Bank_Everyday-joint_2026-10-21_2026-11-20.csv""#;
        assert_eq!(value.to_str().unwrap(), expected);
    }

    #[test]
    fn absent_parts_leave_no_gap() {
        let day = Some(date(2026, 11, 20));
        let name = NameParts {
            institution: None,
            account: Some("\u{202e}\r\n \"/../"),
            resource: Some("holdings"),
            days: (day, day),
            extension: "jsonl",
        };
        assert_eq!(name.name().whole, "holdings_2026-11-20.jsonl");
    }

    #[test]
    fn name_in_another_script_has_an_ascii_fallback() {
        let value = parts("Kiwibank", "Pūtea 银行").name().content_disposition();
        assert_eq!(
            value.to_str().unwrap(),
            "attachment; filename=\"Kiwibank_P-tea_2026-10-21_2026-11-20.csv\"; \
             filename*=UTF-8''Kiwibank_P%C5%ABtea-%E9%93%B6%E8%A1%8C_2026-10-21_2026-11-20.csv"
        );
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_header_or_the_name(institution in any::<String>(), account in any::<String>()) {
            let FileName { whole: name, .. } = parts(&institution, &account).name();
            let is_plain = |character: char| character.is_alphanumeric() || "-_.".contains(character);
            prop_assert!(name.chars().all(is_plain), "{name:?}");
            prop_assert!(name.len() <= 255 && name.matches('.').count() == 1 && !name.starts_with('-'));
            let value = parts(&institution, &account).name().content_disposition();
            let text = value.to_str().unwrap();
            prop_assert_eq!(text.matches('"').count(), 2);
            prop_assert!(text.starts_with("attachment; filename=\""));
        }
    }
}
