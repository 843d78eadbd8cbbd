//! The values that the tools take as arguments, for the parser of parameters that all interfaces
//! share. Pure.

use std::collections::BTreeSet;
use std::fmt;

use bellbird_api::http::parameters::{self, Fault, RawParams};
use bellbird_domain::{AccountId, Bound, Category, DateFilter, Decimal, Direction};
use bellbird_reads::TransactionFilter;
use bellbird_reads::summary::GroupBy;
use serde::de::{self, Deserialize, DeserializeOwned, Deserializer};
use serde_json::{Map, Value};

use super::ROWS_MAX;

/// Rows of a result without `limit`.
pub(super) const ROWS_DEFAULT: u32 = 50;
/// As for `/v1/balances`.
pub(super) const ACCOUNT_IDS_MAX: usize = 100;
const TEXT_BYTES_MAX: usize = 200;
const AMOUNT_BYTES_MAX: usize = 60;
/// Unknown arguments that a failure names.
const UNKNOWN_MAX: usize = 5;

/// Reads the arguments of a call. Fails with a text for the model that names every mistake.
/// `others` are arguments of the tool that are not among these.
pub(super) fn read<T: DeserializeOwned>(
    arguments: &Map<String, Value>,
    others: &[&'static str],
) -> Result<T, String> {
    parameters::read(RawParams::Arguments(arguments)).map_err(|faults| {
        let known = faults.known.iter().map(|(name, fault)| match fault {
            Fault::Invalid(expected) | Fault::TooMany(expected) => {
                format!("{name}: must be {expected}")
            }
            Fault::Missing | Fault::Repeated => format!("{name}: must be given once"),
        });
        let names = [faults.names, others].concat().join(", ");
        let unknown = faults.unknown.iter().take(UNKNOWN_MAX).map(|name| {
            let name: String = name
                .chars()
                .filter(|char| !char.is_control())
                .take(40)
                .collect();
            format!("{name}: is not an argument; the arguments are {names}")
        });
        known.chain(unknown).collect::<Vec<_>>().join("\n")
    })
}

/// Reads a value as `T` and converts it. `expected` completes the sentence "must be".
fn read_as<'de, D: Deserializer<'de>, T: Deserialize<'de>, U>(
    input: D,
    expected: impl fmt::Display,
    convert: impl FnOnce(T) -> Option<U>,
) -> Result<U, D::Error> {
    T::deserialize(input)
        .ok()
        .and_then(convert)
        .ok_or_else(|| de::Error::custom(expected))
}

/// Account ids as requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Accounts {
    /// At least one, sorted, each once.
    These(Vec<AccountId>),
    /// One of them is not an id: the same as one that does not exist.
    Unknown,
}

impl<'de> Deserialize<'de> for Accounts {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        const EXPECTED: &str =
            "a list of 1 to 100 account ids from list_accounts; leave it out for all accounts";
        read_as(input, EXPECTED, |texts: Vec<String>| {
            let ids: BTreeSet<Option<AccountId>> =
                texts.iter().map(|text| text.parse().ok()).collect();
            let is_good = (1..=ACCOUNT_IDS_MAX).contains(&ids.len());
            is_good.then(|| {
                ids.into_iter()
                    .collect::<Option<Vec<_>>>()
                    .map_or(Self::Unknown, Self::These)
            })
        })
    }
}

/// The most rows of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowLimit(pub(super) u32);

impl Default for RowLimit {
    fn default() -> Self {
        Self(ROWS_DEFAULT)
    }
}

impl<'de> Deserialize<'de> for RowLimit {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        read_as(
            input,
            format_args!("an integer between 1 and {ROWS_MAX}"),
            |number: i64| {
                u32::try_from(number)
                    .ok()
                    .filter(|number| (1..=ROWS_MAX).contains(number))
                    .map(Self)
            },
        )
    }
}

/// `from` or `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DayOrTime(Bound);

impl<'de> Deserialize<'de> for DayOrTime {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        const EXPECTED: &str =
            "a day that exists, YYYY-MM-DD, or a time such as 2026-11-20T09:30:00Z";
        read_as(input, EXPECTED, |text: String| {
            Bound::parse(&text).ok().map(Self)
        })
    }
}

/// The range between `from` and `to`. Fails with a text for the model.
pub(super) fn date_filter(
    from: Option<DayOrTime>,
    to: Option<DayOrTime>,
) -> Result<DateFilter, String> {
    let filter = DateFilter {
        from: from.map(|from| from.0),
        to: to.map(|to| to.0),
    };
    let is_empty = match (filter.from, filter.to) {
        (Some(Bound::Day(from)), Some(Bound::Day(to))) => from > to,
        (Some(Bound::Instant(from)), Some(Bound::Instant(to))) => from > to,
        _ => false,
    };
    if is_empty {
        Err("from: must not be after to".to_owned())
    } else {
        Ok(filter)
    }
}

pub(super) fn transaction_filter(
    text: Option<SearchText>,
    category: Option<Choice<Category>>,
    direction: Option<Choice<Direction>>,
    min_amount: Option<Amount>,
    max_amount: Option<Amount>,
) -> TransactionFilter {
    let mut filter = TransactionFilter::default();
    filter.category = category.map(|category| category.0);
    filter.direction = direction.map(|direction| direction.0);
    filter.min_amount = min_amount.map(|amount| amount.0);
    filter.max_amount = max_amount.map(|amount| amount.0);
    text.into_iter()
        .fold(filter, |filter, text| filter.with_text(&text.0))
}

/// A text to search for. Without `Debug`, so that it is not logged.
#[cfg_attr(test, derive(Debug, PartialEq, Eq))]
pub(super) struct SearchText(pub(super) String);

impl<'de> Deserialize<'de> for SearchText {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        read_as(
            input,
            format_args!("a text of 1 to {TEXT_BYTES_MAX} bytes"),
            |text: String| {
                (!text.trim().is_empty() && text.len() <= TEXT_BYTES_MAX).then_some(Self(text))
            },
        )
    }
}

/// An amount of money without its sign, as a string: a number in JSON would pass a float in most
/// programs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Amount(pub(super) Decimal<'static>);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a decimal number of 0 or more as a string, such as \"12.50\"";
        read_as(input, EXPECTED, |text: String| {
            let amount = Decimal::parse(&text)
                .ok()
                .filter(|amount| !amount.is_negative())?
                .into_owned();
            (text.len() <= AMOUNT_BYTES_MAX).then_some(Self(amount))
        })
    }
}

/// One of a few words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Choice<T>(pub(super) T);

pub(super) trait Words: Sized {
    fn words() -> Vec<(&'static str, Self)>;
}

impl Words for Category {
    fn words() -> Vec<(&'static str, Self)> {
        Self::ALL
            .iter()
            .map(|category| (category.key(), *category))
            .collect()
    }
}

impl Words for Direction {
    fn words() -> Vec<(&'static str, Self)> {
        vec![("credit", Self::Credit), ("debit", Self::Debit)]
    }
}

/// How much of a row is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    Brief,
    Full,
}

impl Words for Detail {
    fn words() -> Vec<(&'static str, Self)> {
        vec![("brief", Self::Brief), ("full", Self::Full)]
    }
}

/// How `group_by` names the groups of a summary.
impl Words for GroupBy {
    fn words() -> Vec<(&'static str, Self)> {
        vec![
            ("category", Self::Category),
            ("merchant", Self::Merchant),
            ("month", Self::Month),
            ("account", Self::Account),
        ]
    }
}

impl<'de, T: Words> Deserialize<'de> for Choice<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let names: Vec<&str> = T::words().iter().map(|(word, _)| *word).collect();
        read_as(
            input,
            format_args!("one of {}", names.join(", ")),
            |text: String| {
                T::words()
                    .into_iter()
                    .find(|(word, _)| *word == text)
                    .map(|(_, value)| Self(value))
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Eq, Default, serde::Deserialize)]
    struct All {
        limit: Option<RowLimit>,
        from: Option<DayOrTime>,
        to: Option<DayOrTime>,
        account_ids: Option<Accounts>,
        direction: Option<Choice<Direction>>,
        min_amount: Option<Amount>,
        include_balances: Option<bool>,
        text: Option<SearchText>,
    }

    fn read(arguments: Value) -> Result<All, String> {
        super::read(arguments.as_object().unwrap(), &["cursor"])
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let faults = read(json!({
            "limit": 0, "from": "2026-02-30", "account_ids": [], "direction": "out", "min_amount": 5,
            "include_balances": "yes", "text": "", "surprise": true
        }))
        .unwrap_err();
        assert_eq!(faults.lines().count(), 8, "{faults}");
        assert!(
            faults.contains("limit: must be an integer between 1 and 500"),
            "{faults}"
        );
        assert!(
            faults.contains("direction: must be one of credit, debit"),
            "{faults}"
        );
        assert!(
            faults.contains("surprise: is not an argument; the arguments are limit, from,"),
            "{faults}"
        );
        assert!(faults.ends_with(", text, cursor"), "{faults}");
        for value in [
            json!({}),
            json!([]),
            json!(1.5),
            json!(-1),
            json!("20"),
            json!(u64::MAX),
        ] {
            assert!(read(json!({ "limit": value })).is_err(), "{value}");
        }
        assert!(
            read(json!({"min_amount": "-1"})).is_err()
                && read(json!({"account_ids": ["a", 1]})).is_err()
        );
    }

    #[test]
    fn null_counts_as_absent() {
        assert_eq!(
            read(json!({"limit": 20.0})).unwrap().limit,
            Some(RowLimit(20))
        );
        assert_eq!(
            read(json!({"limit": null, "from": null, "account_ids": null})).unwrap(),
            All::default()
        );
    }

    #[test]
    fn ranges_end_after_they_begin() {
        let is_good = |from: &str, to: &str| {
            let arguments = read(json!({"from": from, "to": to})).unwrap();
            date_filter(arguments.from, arguments.to).is_ok()
        };
        assert!(is_good("2026-11-20", "2026-11-20") && !is_good("2026-11-20", "2026-11-19"));
        assert!(is_good("2026-11-20T09:30:00Z", "2026-11-20T09:30:00Z"));
        assert!(!is_good("2026-11-20T09:30:01Z", "2026-11-20T09:30:00Z"));
        // The day in the user's timezone may last longer than that in UTC.
        assert!(is_good("2026-11-20T03:00:00Z", "2026-11-19"));
    }

    #[test]
    fn account_ids_are_a_set() {
        let (one, two) = (
            "0191e7a0-7c3b-7def-8000-00aabbccddee",
            "0191E7A0-91D4-7A01-8000-00AABBCCDDEE",
        );
        let of = |ids: Value| {
            read(json!({ "account_ids": ids }))
                .unwrap()
                .account_ids
                .unwrap()
        };
        assert_eq!(
            of(json!([two, one, two])),
            Accounts::These(vec![one.parse().unwrap(), two.parse().unwrap()])
        );
        assert_eq!(of(json!([one, "mine"])), Accounts::Unknown);
        let many: Vec<_> = (0..101).map(|_| AccountId::new().to_string()).collect();
        assert!(read(json!({ "account_ids": many })).is_err());
    }
}
