//! Query strings that keep the order and repetition of parameters. `%5B` and `[` are equal.

#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: Option<&str>) -> Self {
        let pairs = text
            .unwrap_or_default()
            .split('&')
            .filter(|part| !part.is_empty());
        Self(
            pairs
                .map(|part| part.split_once('=').unwrap_or((part, "")))
                .map(|(name, value)| (decode(name), decode(value)))
                .collect(),
        )
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
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

    /// Writes the parameters as a query string, except those in `names`.
    pub(crate) fn without(&self, names: &[&str]) -> String {
        let mut text = String::new();
        for (name, value) in self
            .0
            .iter()
            .filter(|(name, _)| !names.contains(&name.as_str()))
        {
            encode(&mut text, name, b"[]");
            text.push('=');
            encode(&mut text, value, b"");
            text.push('&');
        }
        text
    }
}

/// Writes pairs as a query string.
pub(crate) fn write(pairs: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        if !text.is_empty() {
            text.push('&');
        }
        encode(&mut text, name, b"");
        text.push('=');
        encode(&mut text, value, b"");
    }
    text
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = tail.get(..2).filter(|_| first == b'%').and_then(hex_pair);
        match escaped {
            Some(byte) => bytes.push(byte),
            None if first == b'+' => bytes.push(b' '),
            None => bytes.push(first),
        }
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex_pair(pair: &[u8]) -> Option<u8> {
    let high = char::from(pair[0]).to_digit(16)?;
    let low = char::from(pair[1]).to_digit(16)?;
    u8::try_from(high * 16 + low).ok()
}

fn encode(into: &mut String, text: &str, also: &[u8]) {
    const HEX: &[u8] = b"0123456789ABCDEF";
    for &byte in text.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || also.contains(&byte) {
            into.push(char::from(byte));
        } else {
            into.push('%');
            into.push(char::from(HEX[usize::from(byte >> 4)]));
            into.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
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
            query.without(&["x"]),
            "page[size]=5&page[after]=a%2Bb&flag=&"
        );
    }
}
