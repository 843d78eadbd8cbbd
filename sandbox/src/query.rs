//! Query strings that keep the order and repetition of parameters, in which `%5B` and `[` are
//! equal, and the credentials of a call.

use http::{HeaderMap, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What is encoded in a value. A space becomes `%20`.
const IN_VALUE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');
/// What is encoded in a name, which keeps its brackets.
const IN_NAME: &AsciiSet = &IN_VALUE.remove(b'[').remove(b']');

#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: Option<&str>) -> Self {
        let pairs = form_urlencoded::parse(text.unwrap_or_default().as_bytes());
        Self(pairs.into_owned().collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// A parameter that is not empty.
    pub(crate) fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// In order, including repetitions.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Writes the parameters as a query string, except those with this name.
    pub(crate) fn without(&self, left_out: &str) -> String {
        let kept = self.0.iter().filter(|(name, _)| name != left_out);
        kept.map(|(name, value)| {
            let name = utf8_percent_encode(name, IN_NAME);
            format!("{name}={}&", utf8_percent_encode(value, IN_VALUE))
        })
        .collect()
    }
}

/// The credentials of this scheme in the header `Authorization`.
pub(crate) fn credentials<'a>(headers: &'a HeaderMap, scheme: &str) -> Option<&'a str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (known, credentials) = value.split_once(' ')?;
    known.eq_ignore_ascii_case(scheme).then_some(credentials)
}

/// Writes pairs as a query string.
pub(crate) fn write(pairs: &[(&str, &str)]) -> String {
    let pair = |(name, value): &(&str, &str)| {
        let name = utf8_percent_encode(name, IN_VALUE);
        format!("{name}={}", utf8_percent_encode(value, IN_VALUE))
    };
    pairs.iter().map(pair).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::Query;

    #[test]
    fn brackets_parse_raw_and_escaped() {
        let query = Query::parse(Some("page%5Bsize%5D=5&page[after]=a%2Bb&x=1+2&x=%zz&flag"));
        assert_eq!(query.get("page[size]"), Some("5"));
        assert_eq!(query.get("page[after]"), Some("a+b"));
        assert_eq!(query.all("x").collect::<Vec<_>>(), ["1 2", "%zz"]);
        assert_eq!(query.get("flag"), Some(""));
        assert_eq!(
            query.without("page[after]"),
            "page[size]=5&x=1%202&x=%25zz&flag=&"
        );
    }
}
