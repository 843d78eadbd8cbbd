//! Reads the parameters of a request into a struct, and collects every missing, repeated, invalid
//! and unknown one. All interfaces use it: for a query string, or for the members of a JSON object.
//! The fuzz targets `query` and `interop` include this file by path.
//!
//! The struct derives `Deserialize`: the names of its fields are the known parameters. The error of
//! a field's type completes the sentence "Must be".

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use bellbird_domain::page::{self, PageLimits};
use bellbird_domain::{AccountId, Bound, ConnectionId, Page};
use serde::de::value::{CowStrDeserializer, SeqDeserializer, U64Deserializer};
use serde::de::{
    self, Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer,
    MapAccess, Unexpected, Visitor,
};
use serde_json::{Map, Value as Json};

use crate::http::problem::Problem;

/// Maximum number of account ids in one request.
pub const ACCOUNT_IDS_MAX: usize = 100;
const DATE_PARAMETERS: [&str; 2] = ["from", "to"];
/// Unknown parameters that an error names, and the characters of each that it shows.
const UNKNOWN_MAX: usize = 20;
const UNKNOWN_CHARS_MAX: usize = 60;

/// The parameters as a request sends them.
#[derive(Clone, Copy)]
pub enum RawParams<'r> {
    Query(&'r str),
    /// The arguments of a tool. Null counts as absent, because models send it for what they leave
    /// out.
    Arguments(&'r Map<String, Json>),
    /// The body of a request. Null is a value, which only an `Option` within an `Option` takes.
    Body(&'r Members),
}

/// A JSON object that remembers which members it has twice.
#[derive(Debug, Default)]
pub struct Members {
    values: Map<String, Json>,
    repeated: Vec<String>,
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Members, A::Error> {
                let mut members = Members::default();
                while let Some((name, value)) = access.next_entry::<String, Json>()? {
                    if members.values.insert(name.clone(), value).is_some() {
                        members.repeated.push(name);
                    }
                }
                Ok(members)
            }
        }

        input.deserialize_map(Object)
    }
}

/// Everything that is wrong with the parameters of a request.
#[derive(Debug)]
pub struct Faults {
    /// Those of known parameters, in the order of the fields.
    pub known: Vec<(&'static str, Fault)>,
    /// The names of unknown parameters, unless they are ignored.
    pub unknown: Vec<String>,
    /// The names of all known parameters.
    pub names: &'static [&'static str],
}

#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    Missing,
    Repeated,
    /// Too many values: what is expected.
    TooMany(String),
    /// What is expected, such as "an integer of at least 0".
    Invalid(String),
}

/// Reads the parameters. Unknown ones are faults, because a misspelled filter would select every
/// row.
pub fn read<T: DeserializeOwned>(input: RawParams<'_>) -> Result<T, Faults> {
    let (params, faults) = read_fields(input);
    params.filter(|_| faults.unknown.is_empty()).ok_or(faults)
}

/// As [`read`], but ignores unknown parameters, for programs that send some of their own.
pub fn read_known<T: DeserializeOwned>(input: RawParams<'_>) -> Result<T, Faults> {
    let (params, faults) = read_fields(input);
    params.ok_or(Faults {
        unknown: Vec::new(),
        ..faults
    })
}

/// The parameters are absent if one of the known ones is at fault.
fn read_fields<T: DeserializeOwned>(input: RawParams<'_>) -> (Option<T>, Faults) {
    let mut seen = Seen::default();
    let (mut known, mut start) = (Vec::new(), 0);
    // A struct stops at its first wrong field. The next attempt starts behind it, so each attempt
    // finds one more.
    let params = loop {
        match T::deserialize(Fields {
            input,
            start,
            seen: &mut seen,
        }) {
            Ok(params) if known.is_empty() => break Some(params),
            Err(Error {
                field: Some((at, name)),
                fault,
            }) => {
                known.push((name, fault));
                start = at + 1;
            }
            Ok(_) | Err(_) => break None,
        }
    };
    (
        params,
        Faults {
            known,
            unknown: seen.unknown,
            names: seen.names,
        },
    )
}

impl Faults {
    /// One text for each fault.
    pub fn details(&self) -> Vec<String> {
        let known = self
            .known
            .iter()
            .map(|(name, fault)| format!("{name}: {fault}"));
        let unknown = self.unknown.iter().take(UNKNOWN_MAX).map(|name| {
            let shown: String = name.chars().take(UNKNOWN_CHARS_MAX).collect();
            match nearest(&shown, self.names) {
                Some(meant) => format!("{shown}: unknown; did you mean {meant}?"),
                None if self.names.is_empty() => format!("{shown}: unknown; none is known here"),
                None => format!("{shown}: unknown; known are {}", self.names.join(", ")),
            }
        });
        known.chain(unknown).collect()
    }
}

/// The known name that a misspelled one is most like: at most one edit for each three characters.
fn nearest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let distances = known.iter().map(|known| (edits(name, known), *known));
    let (edits, nearest) = distances.min_by_key(|(edits, _)| *edits)?;
    let chars = name.chars().count().max(nearest.len());
    (edits <= (chars / 3).max(1)).then_some(nearest)
}

/// How many characters to insert, delete, replace or swap with the next, without regard to case, to
/// turn one text into the other.
fn edits(one: &str, other: &str) -> usize {
    let chars = |text: &str| -> Vec<char> { text.to_ascii_lowercase().chars().collect() };
    let (one, other) = (chars(one), chars(other));
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for (row, char) in one.iter().enumerate() {
        let mut current = vec![row + 1];
        for (at, known) in other.iter().enumerate() {
            let replaced = rows[row][at] + usize::from(char != known);
            let mut least = replaced.min(rows[row][at + 1] + 1).min(current[at] + 1);
            if row > 0 && at > 0 && *char == other[at - 1] && one[row - 1] == *known {
                least = least.min(rows[row - 1][at - 1] + 1);
            }
            current.push(least);
        }
        rows.push(current);
    }
    rows[one.len()][other.len()]
}

/// The error of a query string: one detail for each parameter.
impl From<Faults> for Problem {
    fn from(faults: Faults) -> Self {
        let is_date = |(name, _): &(&str, Fault)| DATE_PARAMETERS.contains(name);
        let message = if !faults.known.iter().any(is_date) {
            let of_fault = faults
                .known
                .iter()
                .find_map(|(name, fault)| fault.message(name));
            of_fault.map_or("Invalid query parameters".into(), Cow::from)
        } else if faults.unknown.is_empty() && faults.known.iter().all(is_date) {
            "Invalid date parameters".into()
        } else {
            "Invalid date parameters, and others".into()
        };
        Self::BadRequest {
            message,
            details: faults.details(),
        }
    }
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

    fn invalid_type(_: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Fault::Invalid(expected.to_string()).into()
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Fault::Invalid(expected.to_string()).into()
    }

    fn invalid_length(_: usize, expected: &dyn de::Expected) -> Self {
        Fault::TooMany(expected.to_string()).into()
    }

    fn missing_field(_: &'static str) -> Self {
        Fault::Missing.into()
    }
}

/// The parameters of a request, from the known one with the index `start` on.
struct Fields<'r, 's> {
    input: RawParams<'r>,
    start: usize,
    seen: &'s mut Seen,
}

/// What the first attempt learns.
#[derive(Default)]
struct Seen {
    /// The names of the struct's fields.
    names: &'static [&'static str],
    unknown: Vec<String>,
}

impl Seen {
    fn unknown(&mut self, start: usize, name: &str) {
        if start == 0 {
            self.unknown.push(name.to_owned());
        }
    }
}

impl<'de> Deserializer<'de> for Fields<'_, '_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.seen.names = names;
        let mut values: Vec<Value<'_>> = names.iter().map(|_| Value::Absent).collect();
        let position = |name: &str| names.iter().position(|known| *known == name);
        match self.input {
            RawParams::Query(query) => {
                for (name, text) in pairs(query) {
                    let Some(at) = position(&name) else {
                        self.seen.unknown(self.start, &name);
                        continue;
                    };
                    values[at] = match std::mem::replace(&mut values[at], Value::Absent) {
                        Value::Once(first) => Value::Repeated(vec![first, text]),
                        Value::Repeated(mut texts) => {
                            texts.push(text);
                            Value::Repeated(texts)
                        }
                        _ => Value::Once(text),
                    };
                }
            }
            RawParams::Arguments(members) => {
                for (name, value) in members {
                    match position(name) {
                        Some(at) if !value.is_null() => values[at] = Value::Json(value),
                        Some(_) => {}
                        None => self.seen.unknown(self.start, name),
                    }
                }
            }
            RawParams::Body(Members {
                values: members,
                repeated,
            }) => {
                for (name, value) in members {
                    match position(name) {
                        Some(at) if repeated.contains(name) => values[at] = Value::Twice,
                        Some(at) => values[at] = Value::Json(value),
                        None => self.seen.unknown(self.start, name),
                    }
                }
            }
        }
        let fields = names.iter().zip(values).enumerate().skip(self.start);
        visitor.visit_map(FieldAccess {
            fields,
            current: None,
        })
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(de::Error::custom("read as a struct"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct FieldAccess<'r, I> {
    fields: I,
    current: Option<((usize, &'static str), Value<'r>)>,
}

impl<'de, 'r, I> MapAccess<'de> for FieldAccess<'r, I>
where
    I: Iterator<Item = (usize, (&'static &'static str, Value<'r>))>,
{
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((at, (name, value))) = self.fields.next() else {
            return Ok(None);
        };
        self.current = Some(((at, name), value));
        // A derived struct accepts the index of a field in place of its name.
        let key: U64Deserializer<Error> = (at as u64).into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let Some((field, value)) = self.current.take() else {
            return Err(Fault::Missing.into());
        };
        seed.deserialize(value).map_err(|error| Error {
            field: Some(field),
            ..error
        })
    }
}

/// The value of a known parameter.
enum Value<'r> {
    Absent,
    Once(Cow<'r, str>),
    Repeated(Vec<Cow<'r, str>>),
    /// A member of an object, as far as parameters have such: no objects, and no numbers with a
    /// fraction.
    Json(&'r Json),
    /// What an optional member, or an array, holds.
    Inner(&'r Json),
    /// A member that its object has twice.
    Twice,
}

impl<'de> IntoDeserializer<'de, Error> for Value<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Value<'_> {
    type Error = Error;

    /// For a required parameter, which must not be empty.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let json = match self {
            Self::Once(text) if !text.is_empty() => return visitor.visit_str(&text),
            Self::Once(_) | Self::Absent => return Err(Fault::Missing.into()),
            Self::Repeated(_) | Self::Twice => return Err(Fault::Repeated.into()),
            Self::Json(json) | Self::Inner(json) => json,
        };
        let other = match json {
            Json::Bool(value) => return visitor.visit_bool(*value),
            Json::String(text) => return visitor.visit_str(text),
            Json::Array(items) => {
                let items = items.iter().map(Value::Inner);
                return visitor.visit_seq(SeqDeserializer::<_, Error>::new(items));
            }
            // 50.0 is an integer of JSON Schema.
            Json::Number(number) => {
                match number.to_string().trim_end_matches(".0").parse::<i64>() {
                    Ok(number) => return visitor.visit_i64(number),
                    Err(_) => "a number",
                }
            }
            Json::Null | Json::Object(_) => "an object",
        };
        Err(de::Error::invalid_type(Unexpected::Other(other), &visitor))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Absent | Self::Inner(Json::Null) => visitor.visit_none(),
            Self::Once(text) => {
                visitor.visit_some::<CowStrDeserializer<'_, Error>>(text.into_deserializer())
            }
            Self::Repeated(_) | Self::Twice => Err(Fault::Repeated.into()),
            Self::Json(json) | Self::Inner(json) => visitor.visit_some(Value::Inner(json)),
        }
    }

    /// A parameter of a query that may be given several times, such as a `Vec<String>`. Absent is
    /// the empty list.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let texts = match self {
            Self::Absent => Vec::new(),
            Self::Once(text) => vec![text],
            Self::Repeated(texts) => texts,
            Self::Json(_) | Self::Inner(_) | Self::Twice => return self.deserialize_any(visitor),
        };
        visitor.visit_seq(SeqDeserializer::<_, Error>::new(texts.into_iter()))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct
        tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// The names and values of a query string.
fn pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .filter_map(|pair| {
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
pub fn parse_text<'de, D: Deserializer<'de>, T>(
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
pub fn page<const DEFAULT: u32, const MAX: u32>(
    limit: Option<Limit<DEFAULT, MAX>>,
    offset: Option<Offset>,
) -> Page {
    Page {
        limit: limit.map_or(DEFAULT, |limit| limit.0),
        offset: offset.map_or(0, |offset| offset.0),
    }
}

impl<'de, const DEFAULT: u32, const MAX: u32> Deserialize<'de> for Limit<DEFAULT, MAX> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let expected = |_| de::Error::custom(format_args!("an integer between 1 and {MAX}"));
        let limits = PageLimits {
            default: DEFAULT,
            max: MAX,
        };
        parse_text(input, |text| {
            page::parse_limit(text, limits).map(Self).map_err(expected)
        })
    }
}

impl<'de> Deserialize<'de> for Offset {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let expected = |_| de::Error::custom("an integer of at least 0");
        parse_text(input, |text| {
            page::parse_offset(text).map(Self).map_err(expected)
        })
    }
}

/// `from` or `to`.
#[derive(Debug, Clone, Copy)]
pub struct DateBound(pub Bound);

impl<'de> Deserialize<'de> for DateBound {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a valid ISO 8601 date string (YYYY-MM-DD or YYYY-MM-DDTHH:mm:ssZ)";
        parse_text(input, |text| {
            Bound::parse(text)
                .map(Self)
                .map_err(|_| de::Error::custom(EXPECTED))
        })
    }
}

/// The id of a resource. `None` is text that is not an id, which the handler treats as an unknown
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id<T>(pub Option<T>);

impl<'de, T: FromStr> Deserialize<'de> for Id<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        parse_text(input, |text| Ok(Self(text.parse().ok())))
    }
}

/// In the query of a connection. A name of its own, because utoipa reads no type parameters.
pub type ConnectionParam = Id<ConnectionId>;
pub type AccountParam = Id<AccountId>;

/// A list of account ids, sorted and without repetitions, so that their order makes no difference.
/// `None` if one of them is not an id.
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
                // In upper or lower case.
                let distinct = texts().map(str::to_ascii_lowercase);
                let distinct = distinct.collect::<BTreeSet<_>>().len();
                if distinct > ACCOUNT_IDS_MAX {
                    let expected = format!("at most {ACCOUNT_IDS_MAX} ids");
                    return Err(de::Error::invalid_length(distinct, &expected.as_str()));
                }
            }
            let ids = texts()
                .map(str::parse)
                .collect::<Result<Vec<AccountId>, _>>();
            Ok(Self(ids.ok().map(|mut ids| {
                ids.sort_unstable();
                ids.dedup();
                ids
            })))
        })
    }
}

#[cfg(test)]
mod tests;
