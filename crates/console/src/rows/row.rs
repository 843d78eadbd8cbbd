//! A row of a page: one line that opens.

use std::fmt::Display;

use bellbird_domain::AccountId;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::pages::names::sanitized_up_to;
use crate::pages::{Money, Number, shown_day};

/// Of a value that an opened row shows. A longer one is cut off.
const FACT_CHARS_MAX: usize = 300;
/// Of one on a page with many long ones.
const SHORT_FACT_CHARS_MAX: usize = 40;

/// A row as the page shows it.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) day: Date,
    pub(crate) account: AccountId,
    pub(crate) title: String,
    /// None: no cash was moved.
    pub(crate) amount: Option<Money>,
    /// Below the title, before the account.
    pub(crate) detail: Vec<String>,
    /// Behind the account.
    pub(crate) text: Option<String>,
    /// What else is known, for a row that is opened.
    pub(crate) facts: Facts,
}

impl Row {
    /// About how many bytes of memory it takes.
    pub(super) fn bytes(&self) -> usize {
        let detail = self.detail.iter().map(String::len).sum::<usize>();
        let text = self.text.as_ref().map_or(0, String::len);
        size_of::<Self>() + self.title.len() + detail + text + self.facts.bytes()
    }
}

/// Names and values.
#[derive(Default, Clone)]
pub(crate) struct Facts(Vec<(&'static str, String)>);

impl Facts {
    /// Adds a text if the line has another one, or a shorter one.
    pub(super) fn and_unless(self, shown: &str, name: &'static str, text: &str) -> Self {
        self.and(name, Some(text).filter(|text| *text != shown))
    }

    /// Adds a value if there is one.
    pub(super) fn and(mut self, name: &'static str, value: Option<impl Display>) -> Self {
        let value = value.map(|value| sanitized_up_to(FACT_CHARS_MAX, &value.to_string()));
        let value = value.filter(|value| !value.trim().is_empty());
        self.0.extend(value.map(|value| (name, value)));
        self
    }

    /// Adds the exact text of a number that the line has shortened.
    pub(super) fn and_exact(mut self, name: &'static str, number: Option<&Number>) -> Self {
        let exact = number.and_then(|number| number.exact.clone());
        self.0.extend(exact.map(|exact| (name, exact)));
        self
    }

    /// About how many bytes of a page they are.
    pub(super) fn bytes(&self) -> usize {
        const MARKUP: usize = 45;
        let of_char = |c: char| match c {
            '&' | '<' | '>' | '"' | '\'' => 5,
            c => c.len_utf8(),
        };
        let of_fact = |(name, value): &(&str, String)| {
            MARKUP + name.len() + value.chars().map(of_char).sum::<usize>()
        };
        self.0.iter().map(of_fact).sum()
    }

    /// Cuts long texts off, and no number.
    pub(super) fn shorten(&mut self) {
        let is_text = |value: &str| !value.bytes().all(|byte| b"-.0123456789".contains(&byte));
        for (_, value) in &mut self.0 {
            if is_text(value) {
                *value = sanitized_up_to(SHORT_FACT_CHARS_MAX, value);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, &**value))
    }
}

/// Such as `20 Nov 2026, 20:54`.
pub(super) fn shown_time(at: Timestamp, zone: &TimeZone) -> String {
    let at = at.to_zoned(zone.clone());
    format!("{}, {}", shown_day(at.date()), at.strftime("%H:%M"))
}

/// A provider's text of a day or time, as [`shown_time`], or else as it is. A time of only zeros is
/// a day without a time.
pub(super) fn shown_text(text: &str, zone: &TimeZone) -> String {
    let (day, time) = text
        .split_at_checked("2026-11-29".len())
        .unwrap_or((text, ""));
    let is_midnight = time.bytes().all(|byte| b"T00:.Z+".contains(&byte));
    if let (Ok(day), true) = (day.parse(), is_midnight) {
        return shown_day(day);
    }
    let instant = text.parse();
    instant.map_or_else(|_| text.to_owned(), |instant| shown_time(instant, zone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_providers_are_readable() {
        let zone = TimeZone::get("Australia/Sydney").unwrap();
        for (text, shown) in [
            ("2026-11-29", "29 Nov 2026"),
            ("2026-11-29T00:00:00Z", "29 Nov 2026"),
            ("2026-11-29T00:00:00.000Z", "29 Nov 2026"),
            ("2026-11-29T00:00:00+00:00", "29 Nov 2026"),
            ("2026-11-29T00:00:00", "29 Nov 2026"),
            ("2026-11-29T13:30:00.5Z", "30 Nov 2026, 00:30"),
            ("2026-11-29T13:30:00+13:00", "29 Nov 2026, 11:30"),
            ("yesterday", "yesterday"),
            ("", ""),
        ] {
            assert_eq!(shown_text(text, &zone), shown, "{text}");
        }
    }

    #[test]
    fn a_fact_says_more_than_the_line() {
        let facts = Facts::default()
            .and_unless("Shop", "Description", "Shop")
            .and_unless("Shop", "Description", "SHOP \u{202e}1")
            .and("Reference", Some(" "))
            .and("Type", None::<&str>)
            .and("Id", Some("x".repeat(400)));
        let facts: Vec<(&str, &str)> = facts.iter().collect();
        assert_eq!(facts[0], ("Description", "SHOP 1"));
        assert_eq!(
            (facts.len(), facts[1].1.chars().count()),
            (2, FACT_CHARS_MAX + 1)
        );
        let number = Number::money(&format!("0.{}", "1".repeat(400)), "AUD");
        let mut facts = Facts::default()
            .and_exact("Amount", Some(&number))
            .and("More", Some("&".repeat(300)));
        assert!(facts.bytes() > 400 + 5 * 300);
        facts.shorten();
        let lengths = facts.iter().map(|(_, value)| value.chars().count());
        assert_eq!(lengths.collect::<Vec<_>>(), [402, SHORT_FACT_CHARS_MAX + 1]);
    }
}
