//! Reads the arguments of a tool, and collects everything that is wrong with them for the model. Pure.

use std::collections::BTreeSet;

use bellbird_domain::{AccountId, Bound, DateFilter};
use bellbird_reads::summary::GroupBy;
use serde_json::{Map, Value};

/// How `group_by` names the groups of a summary.
pub(super) const GROUPS: [(&str, GroupBy); 4] = [
    ("category", GroupBy::Category),
    ("merchant", GroupBy::Merchant),
    ("month", GroupBy::Month),
    ("account", GroupBy::Account),
];
/// As for `/v1/balances`.
pub(super) const ACCOUNT_IDS_MAX: usize = 100;
/// Longest `text` to search for, in bytes.
const TEXT_BYTES_MAX: usize = 200;

/// The arguments of a call. Each reader takes one of them; null counts as absent.
pub(super) struct Arguments {
    values: Map<String, Value>,
    known: Vec<&'static str>,
    faults: Vec<String>,
}

/// Account ids as requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Accounts {
    /// Of all connections.
    All,
    /// At least one, sorted, each once.
    These(Vec<AccountId>),
    /// One of them is no id: the same as one that does not exist.
    Unknown,
}

impl Arguments {
    pub(super) fn new(values: Map<String, Value>) -> Self {
        Self { values, known: Vec::new(), faults: Vec::new() }
    }

    /// Fails with a text for the model if an argument was wrong or is unknown.
    pub(super) fn finish(mut self) -> Result<(), String> {
        let mut unknown: Vec<&String> = self.values.keys().collect();
        unknown.truncate(5);
        for name in unknown {
            let name: String = name.chars().filter(|char| !char.is_control()).take(40).collect();
            self.faults.push(format!("{name}: is no argument; the arguments are {}", self.known.join(", ")));
        }
        if self.faults.is_empty() { Ok(()) } else { Err(self.faults.join("\n")) }
    }

    pub(super) fn switch(&mut self, name: &'static str, default: bool) -> bool {
        match self.take(name) {
            None => default,
            Some(Value::Bool(value)) => value,
            Some(_) => self.fault(name, "true or false").unwrap_or(default),
        }
    }

    pub(super) fn number(&mut self, name: &'static str, default: u32, max: u32) -> u32 {
        let Some(value) = self.take(name) else { return default };
        // 50.0 is an integer of JSON Schema.
        let number = value.is_number().then(|| value.to_string().trim_end_matches(".0").parse::<u32>().ok()).flatten();
        match number.filter(|number| (1..=max).contains(number)) {
            Some(number) => number,
            None => self.fault(name, &format!("an integer between 1 and {max}")).unwrap_or(default),
        }
    }

    pub(super) fn accounts(&mut self) -> Accounts {
        const EXPECTED: &str = "a list of 1 to 100 account ids from list_accounts; leave it out for all accounts";
        let name = "account_ids";
        let texts = match self.take(name) {
            None => return Accounts::All,
            Some(Value::Array(texts)) if !texts.is_empty() && texts.iter().all(Value::is_string) => texts,
            Some(_) => return self.fault(name, EXPECTED).unwrap_or(Accounts::All),
        };
        let ids: BTreeSet<Option<AccountId>> = texts.iter().map(|text| text.as_str()?.parse().ok()).collect();
        if ids.len() > ACCOUNT_IDS_MAX {
            return self.fault(name, EXPECTED).unwrap_or(Accounts::All);
        }
        ids.into_iter().collect::<Option<Vec<_>>>().map_or(Accounts::Unknown, Accounts::These)
    }

    fn bound(&mut self, name: &'static str) -> Option<Bound> {
        const EXPECTED: &str = "a day that exists, YYYY-MM-DD, or a time such as 2026-11-20T09:30:00Z";
        match self.take(name)? {
            Value::String(text) => Bound::parse(&text).ok().or_else(|| self.fault(name, EXPECTED)),
            _ => self.fault(name, EXPECTED),
        }
    }

    /// `from` and `to`.
    pub(super) fn span(&mut self) -> DateFilter {
        let span = DateFilter { from: self.bound("from"), to: self.bound("to") };
        let is_empty = match (span.from, span.to) {
            (Some(Bound::Day(from)), Some(Bound::Day(to))) => from > to,
            (Some(Bound::Instant(from)), Some(Bound::Instant(to))) => from > to,
            _ => false,
        };
        if is_empty {
            self.faults.push("from: must not be after to".to_owned());
        }
        span
    }

    /// A text to search for.
    pub(super) fn text(&mut self, name: &'static str) -> Option<String> {
        match self.take(name)? {
            Value::String(text) if !text.trim().is_empty() && text.len() <= TEXT_BYTES_MAX => Some(text),
            _ => self.fault(name, &format!("a text of 1 to {TEXT_BYTES_MAX} bytes")),
        }
    }

    /// One of several words.
    pub(super) fn choice<T: Copy>(&mut self, name: &'static str, choices: &[(&'static str, T)]) -> Option<T> {
        let value = self.take(name)?;
        let found = choices.iter().find(|(word, _)| value.as_str() == Some(word)).map(|(_, choice)| *choice);
        found.or_else(|| {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            self.fault(name, &format!("one of {}", words.join(", ")))
        })
    }

    /// An amount of money as a string: a number in JSON would pass a float in most programs.
    pub(super) fn amount<T>(&mut self, name: &'static str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        const DIGITS_MAX: usize = 60;
        let amount = match self.take(name)? {
            Value::String(text) if text.len() <= DIGITS_MAX => parse(&text),
            _ => None,
        };
        amount.or_else(|| self.fault(name, "a decimal number of 0 or more as a string, such as \"12.50\""))
    }

    fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.values.remove(name).filter(|value| !value.is_null())
    }

    fn fault<T>(&mut self, name: &str, expected: &str) -> Option<T> {
        self.faults.push(format!("{name}: must be {expected}"));
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn arguments(value: Value) -> Arguments {
        Arguments::new(value.as_object().unwrap().clone())
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let mut read = arguments(json!({
            "limit": 0, "from": "2026-02-30", "account_ids": [], "direction": "out", "min_amount": 5,
            "include_balances": "yes", "text": "", "surprise": true
        }));
        assert_eq!(read.number("limit", 50, 200), 50);
        assert_eq!(read.bound("from"), None);
        assert_eq!(read.accounts(), Accounts::All);
        assert_eq!(read.choice("direction", &[("credit", 1), ("debit", 2)]), None);
        assert_eq!(read.amount("min_amount", |text| Some(text.to_owned())), None);
        assert!(read.switch("include_balances", true));
        assert_eq!(read.text("text"), None);
        let faults = read.finish().unwrap_err();
        assert_eq!(faults.lines().count(), 8, "{faults}");
        assert!(faults.contains("limit: must be an integer between 1 and 200"));
        assert!(faults.contains("direction: must be one of credit, debit"));
        assert!(faults.contains("surprise: is no argument; the arguments are limit, from,"));
    }

    #[test]
    fn null_counts_as_absent() {
        assert_eq!(arguments(json!({"limit": 20.0})).number("limit", 50, 200), 20);
        let mut read = arguments(json!({"limit": null, "from": null, "account_ids": null}));
        assert_eq!(read.number("limit", 50, 200), 50);
        assert_eq!(read.bound("from"), None);
        assert_eq!(read.accounts(), Accounts::All);
        assert_eq!(read.finish(), Ok(()));
    }

    #[test]
    fn ranges_end_after_they_begin() {
        let is_good = |from: &str, to: &str| {
            let mut read = arguments(json!({"from": from, "to": to}));
            read.span();
            read.finish().is_ok()
        };
        assert!(is_good("2026-11-20", "2026-11-20") && !is_good("2026-11-20", "2026-11-19"));
        assert!(is_good("2026-11-20T09:30:00Z", "2026-11-20T09:30:00Z"));
        assert!(!is_good("2026-11-20T09:30:01Z", "2026-11-20T09:30:00Z"));
        // The day in the user's timezone may last longer than that in UTC.
        assert!(is_good("2026-11-20T03:00:00Z", "2026-11-19"));
    }

    #[test]
    fn account_ids_are_a_set() {
        let (one, two) = ("0191e7a0-7c3b-7def-8000-00aabbccddee", "0191E7A0-91D4-7A01-8000-00AABBCCDDEE");
        let of = |ids: Value| arguments(json!({ "account_ids": ids })).accounts();
        assert_eq!(of(json!([two, one, two])), Accounts::These(vec![one.parse().unwrap(), two.parse().unwrap()]));
        assert_eq!(of(json!([one, "mine"])), Accounts::Unknown);
        let mut read =
            arguments(json!({"account_ids": (0..101).map(|_| AccountId::new().to_string()).collect::<Vec<_>>()}));
        read.accounts();
        assert!(read.finish().is_err());
    }
}
