//! The values that people give: their form, and what is expected. Each error completes "must be".

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use bellbird_domain::user::{find_timezone, is_invisible, parse_email};

/// The name of a key, by which its owner recognises it in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyName(String);

impl FromStr for KeyName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        one_line(text, 100)
            .map(Self)
            .ok_or("1 to 100 characters on one line")
    }
}

impl Deref for KeyName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self)
    }
}

/// Checks the form of an e-mail address; whether it exists is unknown.
pub fn email(text: &str) -> Result<String, &'static str> {
    parse_email(text).map_err(|_| "an e-mail address such as me@example.com")
}

/// Finds an IANA timezone.
pub fn timezone(text: &str) -> Result<String, &'static str> {
    find_timezone(text)
        .map(|zone| zone.iana_name().unwrap_or(text).to_owned())
        .map_err(|_| "an IANA timezone such as Australia/Sydney")
}

/// Checks the name of an operator, which stands on every page. None: it is empty.
pub fn operator_name(text: &str) -> Result<Option<String>, &'static str> {
    match text.trim() {
        "" => Ok(None),
        name => one_line(name, 60)
            .map(Some)
            .ok_or("at most 60 characters on one line"),
    }
}

/// Checks the operator's own name of a user.
pub fn reference(text: &str) -> Result<String, &'static str> {
    one_line(text, 200).ok_or("1 to 200 characters on one line")
}

fn one_line(text: &str, chars_max: usize) -> Option<String> {
    let text = text.trim();
    let is_seen = |c: char| !c.is_whitespace() && !is_invisible(c);
    let fits = text.chars().any(is_seen)
        && text.chars().count() <= chars_max
        && !text.chars().any(char::is_control);
    fits.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn email_is_trimmed_and_checked() {
        assert_eq!(email(" Me@Example.com "), Ok("Me@Example.com".to_owned()));
        let long = format!("{}@x", "a".repeat(253));
        for wrong in [
            "",
            "me",
            "@x",
            "me@",
            "a@b@c",
            "a b@c",
            "a@b\n.c",
            "a\"<b>@c",
            "a\u{202e}@c",
            &long,
        ] {
            assert!(email(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_one_line_of_bounded_length() {
        assert_eq!(reference(" customer 17 "), Ok("customer 17".to_owned()));
        assert_eq!(KeyName::from_str(" laptop ").as_deref(), Ok("laptop"));
        for wrong in ["", " \u{200b}\u{202e} ", "a\nb", "a\0", &"x".repeat(201)] {
            assert!(reference(wrong).is_err(), "{wrong:?}");
            assert!(KeyName::from_str(wrong).is_err(), "{wrong:?}");
        }
        assert!(KeyName::from_str(&"x".repeat(101)).is_err());
        assert_eq!(operator_name(" "), Ok(None));
        assert_eq!(operator_name(" Me "), Ok(Some("Me".to_owned())));
        for wrong in ["a\nb", &"x".repeat(61)] {
            assert!(operator_name(wrong).is_err(), "{wrong:?}");
        }
    }
}
