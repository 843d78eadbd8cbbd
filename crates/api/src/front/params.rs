//! Reads a query string into an endpoint's struct, and collects every missing, repeated and invalid parameter. The fuzz
//! target `query` includes this file by path.
//!
//! The struct derives `Deserialize`: the names of its fields are the known parameters. Others are ignored.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use bellbird_domain::page::{self, PageLimits};
use bellbird_domain::{AccountId, Bound, Page};
use serde::de::value::{CowStrDeserializer, U64Deserializer};
use serde::de::{
    self, Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor,
};

use crate::front::problem::Problem;

/// Maximum number of account ids in one request.
pub const ACCOUNT_IDS_MAX: usize = 100;
const DATE_PARAMETERS: [&str; 2] = ["from", "to"];

/// Fails with [`Problem::BadRequest`] if any parameter is wrong: one detail each, in the order of the fields.
pub fn read<T: DeserializeOwned>(query: Option<&str>) -> Result<T, Problem> {
    let query = query.unwrap_or("");
    let mut findings = Vec::new();
    let mut start = 0;
    // A struct stops at its first wrong field. The next attempt starts behind it, so each attempt finds one more.
    loop {
        match T::deserialize(Fields { query, start }) {
            Ok(params) if findings.is_empty() => return Ok(params),
            Err(Error { field: Some((at, name)), fault }) => {
                findings.push((name, fault));
                start = at + 1;
            }
            Ok(_) | Err(_) => return Err(bad_request(&findings)),
        }
    }
}

fn bad_request(findings: &[(&str, Fault)]) -> Problem {
    let message = match findings {
        _ if findings.iter().any(|(name, _)| DATE_PARAMETERS.contains(name)) => "Invalid date parameters".to_owned(),
        _ => findings
            .iter()
            .find_map(|(name, fault)| fault.message(name))
            .unwrap_or("Invalid query parameters".to_owned()),
    };
    let details = findings.iter().map(|(name, fault)| format!("{name}: {fault}")).collect();
    Problem::BadRequest { message: message.into(), details }
}

/// Why a parameter was rejected.
#[derive(Debug)]
enum Fault {
    Missing,
    Repeated,
    TooMany(String),
    Invalid(String),
}

impl Fault {
    /// The message of the whole response, if this fault has one of its own.
    fn message(&self, name: &str) -> Option<String> {
        match self {
            Self::Missing => Some(format!("{name} is required")),
            Self::TooMany(_) => Some(format!("Too many {name}")),
            Self::Repeated | Self::Invalid(_) => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => out.write_str("Must be given"),
            Self::Repeated => out.write_str("Must be given once"),
            Self::TooMany(expected) | Self::Invalid(expected) => write!(out, "Must be {expected}"),
        }
    }
}

/// The error of serde for the parts below. `field` is the index and name of the parameter.
#[derive(Debug)]
struct Error {
    field: Option<(usize, &'static str)>,
    fault: Fault,
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Self { field: None, fault }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fault.fmt(out)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    /// The text completes the sentence "Must be".
    fn custom<T: fmt::Display>(expected: T) -> Self {
        Fault::Invalid(expected.to_string()).into()
    }

    fn invalid_length(_: usize, expected: &dyn de::Expected) -> Self {
        Fault::TooMany(expected.to_string()).into()
    }

    fn missing_field(_: &'static str) -> Self {
        Fault::Missing.into()
    }
}

/// The methods for floats, which no parameter is. The word alone is banned beside amounts, so serde's macro cannot
/// have it.
macro_rules! floats_as_any {
    () => {
        fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.deserialize_any(visitor)
        }

        fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.deserialize_any(visitor)
        }
    };
}

/// The parameters of a query string, from the known one with the index `start` on.
struct Fields<'q> {
    query: &'q str,
    start: usize,
}

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut values: Vec<Value<'_>> = names.iter().map(|_| Value::Absent).collect();
        for (name, value) in pairs(self.query) {
            if let Some(at) = names.iter().position(|known| *known == name) {
                let first = matches!(values[at], Value::Absent);
                values[at] = if first { Value::Once(value) } else { Value::Repeated };
            }
        }
        let fields = names.iter().zip(values).enumerate().skip(self.start);
        visitor.visit_map(FieldAccess { fields, current: None })
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(de::Error::custom("read as a struct"))
    }

    floats_as_any!();
    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct FieldAccess<'q, I> {
    fields: I,
    current: Option<((usize, &'static str), Value<'q>)>,
}

impl<'de, 'q, I> MapAccess<'de> for FieldAccess<'q, I>
where
    I: Iterator<Item = (usize, (&'static &'static str, Value<'q>))>,
{
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((at, (name, value))) = self.fields.next() else { return Ok(None) };
        self.current = Some(((at, name), value));
        // A derived struct accepts the index of a field in place of its name.
        let key: U64Deserializer<Error> = (at as u64).into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let Some((field, value)) = self.current.take() else { return Err(Fault::Missing.into()) };
        seed.deserialize(value).map_err(|error| Error { field: Some(field), ..error })
    }
}

/// The value of a known parameter.
enum Value<'q> {
    Absent,
    Once(Cow<'q, str>),
    Repeated,
}

impl<'de> Deserializer<'de> for Value<'_> {
    type Error = Error;

    /// For a required parameter, which must not be empty.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Once(text) if !text.is_empty() => visitor.visit_str(&text),
            Self::Once(_) | Self::Absent => Err(Fault::Missing.into()),
            Self::Repeated => Err(Fault::Repeated.into()),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Absent => visitor.visit_none(),
            Self::Once(text) => visitor.visit_some::<CowStrDeserializer<'_, Error>>(text.into_deserializer()),
            Self::Repeated => Err(Fault::Repeated.into()),
        }
    }

    floats_as_any!();
    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 char str string bytes byte_buf unit unit_struct newtype_struct seq
        tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// The names and values of a query string.
fn pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    query.split('&').filter(|pair| !pair.is_empty()).filter_map(|pair| {
        let bytes = pair.as_bytes();
        if bytes.contains(&b'%') || bytes.contains(&b'+') {
            return form_urlencoded::parse(bytes).next();
        }
        // Decoding goes byte by byte, and a long list of ids needs none.
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((name.into(), value.into()))
    })
}

/// Passes the text of a parameter to `parse`.
fn parse_text<'de, D: Deserializer<'de>, T>(
    input: D,
    parse: impl FnOnce(&str) -> Result<T, D::Error>,
) -> Result<T, D::Error> {
    struct Text<F>(F);

    impl<T, F: FnOnce(&str) -> T> Visitor<'_> for Text<F> {
        type Value = T;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("text")
        }

        fn visit_str<E>(self, text: &str) -> Result<T, E> {
            Ok((self.0)(text))
        }
    }

    input.deserialize_str(Text(parse))?
}

/// The `limit` of a list, clamped to `MAX`.
#[derive(Debug, Clone, Copy)]
pub struct Limit<const DEFAULT: u32, const MAX: u32>(u32);

/// The `offset` of a list.
#[derive(Debug, Clone, Copy)]
pub struct Offset(u64);

/// The page that a request asks for.
#[must_use]
pub fn page<const DEFAULT: u32, const MAX: u32>(limit: Option<Limit<DEFAULT, MAX>>, offset: Option<Offset>) -> Page {
    Page { limit: limit.map_or(DEFAULT, |limit| limit.0), offset: offset.map_or(0, |offset| offset.0) }
}

impl<'de, const DEFAULT: u32, const MAX: u32> Deserialize<'de> for Limit<DEFAULT, MAX> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let expected = |_| de::Error::custom(format_args!("an integer between 1 and {MAX}"));
        let limits = PageLimits { default: DEFAULT, max: MAX };
        parse_text(input, |text| page::parse_limit(text, limits).map(Self).map_err(expected))
    }
}

impl<'de> Deserialize<'de> for Offset {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let expected = |_| de::Error::custom("an integer of at least 0");
        parse_text(input, |text| page::parse_offset(text).map(Self).map_err(expected))
    }
}

/// `from` or `to`.
#[derive(Debug, Clone)]
pub struct DateBound(pub Bound);

impl<'de> Deserialize<'de> for DateBound {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a valid ISO 8601 date string (YYYY-MM-DD or YYYY-MM-DDTHH:mm:ssZ)";
        parse_text(input, |text| Bound::parse(text).map(Self).map_err(|_| de::Error::custom(EXPECTED)))
    }
}

/// The id of a resource. `None` is text that is not an id, which the handler treats as an unknown one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id<T>(pub Option<T>);

impl<'de, T: FromStr> Deserialize<'de> for Id<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        parse_text(input, |text| Ok(Self(text.parse().ok())))
    }
}

/// A list of account ids, sorted and without repetitions, so that their order makes no difference. `None` if one of
/// them is not an id.
#[derive(Debug, Clone)]
pub struct AccountIds(pub Option<Vec<AccountId>>);

impl<'de> Deserialize<'de> for AccountIds {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        parse_text(input, |list| {
            let texts = || list.split(',').map(str::trim).filter(|id| !id.is_empty());
            let count = texts().count();
            if count == 0 {
                return Err(de::Error::missing_field("accountIds"));
            }
            if count > ACCOUNT_IDS_MAX {
                let distinct = texts().collect::<BTreeSet<_>>().len();
                if distinct > ACCOUNT_IDS_MAX {
                    let expected = format!("at most {ACCOUNT_IDS_MAX} ids");
                    return Err(de::Error::invalid_length(distinct, &expected.as_str()));
                }
            }
            let ids = texts().map(str::parse).collect::<Result<Vec<AccountId>, _>>();
            Ok(Self(ids.ok().map(|mut ids| {
                ids.sort_unstable();
                ids.dedup();
                ids
            })))
        })
    }
}

#[cfg(test)]
mod tests {
    use bellbird_domain::ConnectionId;
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[expect(dead_code, reason = "only the rejection matters")]
    struct All {
        connection_id: Id<ConnectionId>,
        account_id: Option<Id<AccountId>>,
        from: Option<DateBound>,
        to: Option<DateBound>,
        limit: Option<Limit<200, 500>>,
        offset: Option<Offset>,
    }

    fn rejection_of<T: DeserializeOwned>(query: &str) -> Option<(String, Vec<String>)> {
        match read::<T>(Some(query)) {
            Err(Problem::BadRequest { message, details }) => Some((message.into_owned(), details)),
            _ => None,
        }
    }

    fn rejection(query: &str) -> Option<(String, Vec<String>)> {
        rejection_of::<All>(query)
    }

    const DATE: &str = "Must be a valid ISO 8601 date string (YYYY-MM-DD or YYYY-MM-DDTHH:mm:ssZ)";

    #[test]
    fn valid_queries_are_accepted() {
        for query in [
            "connectionId=a",
            "connectionId=a&unknown=1&unknown=2",
            "connectionId=a&from=2026-01-01&to=2026-01-31T00%3A00%3A00%2B11%3A00&limit=9999&offset=-0",
        ] {
            assert_eq!(rejection(query), None, "{query}");
        }
    }

    #[test]
    fn one_rejection_lists_all_details_in_order() {
        let (message, details) = rejection("offset=x&limit=0&to=now&from=2026-02-30").unwrap();
        assert_eq!(message, "Invalid date parameters");
        assert_eq!(
            details,
            [
                "connectionId: Must be given".to_owned(),
                format!("from: {DATE}"),
                format!("to: {DATE}"),
                "limit: Must be an integer between 1 and 500".to_owned(),
                "offset: Must be an integer of at least 0".to_owned(),
            ]
        );
    }

    #[test]
    fn message_names_the_most_important_error() {
        assert_eq!(rejection("limit=1").unwrap().0, "connectionId is required");
        assert_eq!(rejection("connectionId=").unwrap().0, "connectionId is required");
        assert_eq!(rejection("connectionId=a&limit=").unwrap().0, "Invalid query parameters");
        assert_eq!(
            rejection("connectionId=a&to=").unwrap(),
            ("Invalid date parameters".to_owned(), vec![format!("to: {DATE}")])
        );
    }

    #[test]
    fn repeated_known_parameter_is_rejected() {
        let rejected = |query: &str| rejection(query).unwrap();
        assert_eq!(
            rejected("connectionId=a&connectionId=a"),
            ("Invalid query parameters".to_owned(), vec!["connectionId: Must be given once".to_owned()])
        );
        assert_eq!(rejected("connectionId=a&limit=1&limit=1").1, ["limit: Must be given once"]);
        assert_eq!(
            rejected("connectionId=a&from=2026-01-01&from=2026-01-01"),
            ("Invalid date parameters".to_owned(), vec!["from: Must be given once".to_owned()])
        );
        assert_eq!(rejected("connectionId=a&accountId=b&accountId=b").1, ["accountId: Must be given once"]);
    }

    #[test]
    fn unencoded_plus_is_read_as_a_space() {
        assert_eq!(rejection("connectionId=a&from=2026-01-01T00:00:00+11:00").unwrap().1, [format!("from: {DATE}")]);
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Ids {
        account_ids: AccountIds,
    }

    fn ids(count: usize) -> Vec<String> {
        (0..count).map(|id| format!("0191e7a0-7c3b-7def-8000-{id:012x}")).collect()
    }

    #[test]
    fn id_lists_are_sorted_and_deduplicated() {
        let read = |list: &str| read::<Ids>(Some(&format!("accountIds={list}"))).unwrap().account_ids.0;
        let three = ids(3);
        let sorted: Vec<AccountId> = three.iter().map(|id| id.parse().unwrap()).collect();
        let [a, b, c] = &*three else { unreachable!() };
        assert_eq!(read(&format!("{c},,+{a}+,{b},{},", a.to_uppercase())), Some(sorted));
        assert_eq!(read(&format!("{a},nonsense")), None);
        let repeated = [ids(ACCOUNT_IDS_MAX), ids(ACCOUNT_IDS_MAX)].concat().join(",");
        assert_eq!(read(&repeated).unwrap().len(), ACCOUNT_IDS_MAX);
    }

    #[test]
    fn id_lists_are_neither_empty_nor_too_long() {
        for query in ["", "accountIds", "accountIds=", "accountIds=+,+,"] {
            let expected = ("accountIds is required".to_owned(), vec!["accountIds: Must be given".to_owned()]);
            assert_eq!(rejection_of::<Ids>(query), Some(expected), "{query:?}");
        }
        let many = format!("accountIds={}", ids(ACCOUNT_IDS_MAX + 1).join(","));
        let expected = ("Too many accountIds".to_owned(), vec!["accountIds: Must be at most 100 ids".to_owned()]);
        assert_eq!(rejection_of::<Ids>(&many), Some(expected));
        assert_eq!(rejection_of::<Ids>("accountIds=a&accountIds=a").unwrap().1, ["accountIds: Must be given once"]);
    }

    #[test]
    fn text_that_is_no_id_is_read_as_none() {
        let read = |query: &str| read::<All>(Some(query)).unwrap();
        assert_eq!(read("connectionId=a&accountId=").connection_id, Id(None));
        assert_eq!(read("connectionId=a&accountId=").account_id, Some(Id(None)));
        assert_eq!(read("connectionId=a").account_id, None);
    }

    proptest! {
        #[test]
        fn pairs_are_those_of_the_url_standard(query in "[a-c=&%+20é]{0,40}") {
            let expected: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
            prop_assert_eq!(pairs(&query).collect::<Vec<_>>(), expected);
        }
    }
}
