//! Query parameters: parsing, validation, and their description in the OpenAPI document, side by side. The fuzz target
//! `query` includes this file by path.

use std::borrow::Cow;

use bellbird_domain::page::{self, PageLimits};
use bellbird_domain::{Bound, Page};
use serde_json::{Value, json};

use crate::problem::Problem;

const BAD_PARAMETERS: &str = "Invalid query parameters";
const BAD_DATES: &str = "Invalid date parameters";
/// Maximum number of account ids in one request.
pub const ACCOUNT_IDS_MAX: usize = 100;

/// The parameters of one request. Names that the endpoint does not know are ignored.
///
/// Errors are collected, so that one 400 lists every invalid parameter.
pub struct Params<'q> {
    known: &'static [&'static str],
    values: Vec<Option<Cow<'q, str>>>,
    message: Option<&'static str>,
    details: Vec<String>,
}

impl<'q> Params<'q> {
    /// Splits a query string. `known` lists the endpoint's parameters in the order in which errors name them. Repeating
    /// a known parameter is an error.
    #[must_use]
    pub fn read(query: Option<&'q str>, known: &'static [&'static str]) -> Self {
        let mut params = Self { known, values: vec![None; known.len()], message: None, details: Vec::new() };
        let mut repeated = vec![false; known.len()];
        for (name, value) in form_urlencoded::parse(query.unwrap_or("").as_bytes()) {
            if let Some(at) = known.iter().position(|known| *known == name) {
                repeated[at] |= params.values[at].is_some();
                params.values[at] = Some(value);
            }
        }
        for (at, name) in known.iter().enumerate().filter(|(at, _)| repeated[*at]) {
            params.values[at] = None;
            params.reject(format!("{name}: Must be given once"));
        }
        params
    }

    /// Removes and returns a parameter's value.
    pub fn take(&mut self, name: &str) -> Option<Cow<'q, str>> {
        let at = self.known.iter().position(|known| *known == name)?;
        self.values[at].take()
    }

    /// Like [`Self::take`], for a parameter that must be present and not empty. Otherwise it records an error with the
    /// message `missing` and returns an empty string.
    pub fn required(&mut self, name: &'static str, missing: &'static str) -> Cow<'q, str> {
        let value = self.take(name).filter(|value| !value.is_empty());
        value.unwrap_or_else(|| {
            if !self.is_rejected(name) {
                self.message.get_or_insert(missing);
                self.details.push(format!("{name}: Must be given"));
            }
            Cow::Borrowed("")
        })
    }

    /// Parses `from` or `to`. Returns the text beside the parsed value, because equal concurrent requests are
    /// recognised by the text.
    pub fn bound(&mut self, name: &'static str) -> (Option<String>, Option<Bound>) {
        let Some(text) = self.take(name) else {
            if self.is_rejected(name) {
                self.message = Some(BAD_DATES);
            }
            return (None, None);
        };
        match Bound::parse(&text) {
            Ok(bound) => (Some(text.into_owned()), Some(bound)),
            Err(_) => {
                self.message = Some(BAD_DATES);
                self.details
                    .push(format!("{name}: Must be a valid ISO 8601 date string (YYYY-MM-DD or YYYY-MM-DDTHH:mm:ssZ)"));
                (None, None)
            }
        }
    }

    /// Parses `limit` and `offset`.
    pub fn page(&mut self, limits: PageLimits) -> Page {
        let limit = self.take("limit").map_or(Ok(limits.default), |text| page::parse_limit(&text, limits));
        if limit.is_err() {
            self.reject(format!("limit: Must be an integer between 1 and {}", limits.max));
        }
        let offset = self.take("offset").map_or(Ok(0), |text| page::parse_offset(&text));
        if offset.is_err() {
            self.reject("offset: Must be an integer of at least 0".to_owned());
        }
        Page { limit: limit.unwrap_or(limits.default), offset: offset.unwrap_or(0) }
    }

    /// Fails with [`Problem::BadRequest`] if any parameter was invalid: one detail each, in the order of `known`.
    pub fn finish(mut self) -> Result<(), Problem> {
        if self.details.is_empty() {
            return Ok(());
        }
        let position = |detail: &String| self.known.iter().position(|known| detail.starts_with(&format!("{known}: ")));
        self.details.sort_by_key(position);
        Err(Problem::BadRequest { message: self.message.unwrap_or(BAD_PARAMETERS), details: self.details })
    }

    fn reject(&mut self, detail: String) {
        self.details.push(detail);
    }

    fn is_rejected(&self, name: &str) -> bool {
        self.details.iter().any(|detail| detail.strip_prefix(name).is_some_and(|rest| rest.starts_with(": ")))
    }
}

/// Splits a list at commas. Trims the ids, drops empty and repeated ones, and keeps their order. Returns at most one id
/// more than [`ACCOUNT_IDS_MAX`].
#[must_use]
pub fn split_ids(list: &str) -> Vec<&str> {
    let mut ids: Vec<&str> = Vec::new();
    for id in list.split(',').map(str::trim).filter(|id| !id.is_empty()) {
        if !ids.contains(&id) {
            ids.push(id);
        }
        // The request fails past the limit, so the rest does not matter.
        if ids.len() > ACCOUNT_IDS_MAX {
            break;
        }
    }
    ids
}

const UUID_EXAMPLE: &str = "0191e7a0-7c3b-7def-8000-00aabbccddee";

/// `limit` and `offset` for the OpenAPI document. There is no `maximum`, because larger values are accepted and
/// clamped.
#[must_use]
pub fn describe_page(limits: PageLimits) -> Vec<Value> {
    vec![
        json!({
            "name": "limit", "in": "query", "required": false,
            "description": format!(
                "Maximum number of items, 1 to {}. Larger values are clamped; `pagination.limit` shows the value \
                 applied.",
                limits.max
            ),
            "schema": {"type": "integer", "minimum": 1, "default": limits.default}, "example": limits.default,
        }),
        json!({
            "name": "offset", "in": "query", "required": false,
            "description": "Number of items to skip.",
            "schema": {"type": "integer", "minimum": 0, "default": 0}, "example": 0,
        }),
    ]
}

/// `connectionId` and `accountId` for the OpenAPI document.
#[must_use]
pub fn describe_connection_and_account(without_account: &str) -> Vec<Value> {
    vec![
        json!({
            "name": "connectionId", "in": "query", "required": true,
            "description": "The connection to read: an `id` from `/v1/connections`.",
            "schema": {"type": "string", "format": "uuid"}, "example": UUID_EXAMPLE,
        }),
        json!({
            "name": "accountId", "in": "query", "required": false,
            "description": format!("One account of the connection: an `id` from `/v1/accounts`. {without_account}"),
            "schema": {"type": "string", "format": "uuid"}, "example": UUID_EXAMPLE,
        }),
    ]
}

/// `from` and `to` for the OpenAPI document.
#[must_use]
pub fn describe_bounds(from_default: &str, to_default: &str) -> Vec<Value> {
    let bound = |name: &str, end: &str, default: &str, example: &str| {
        json!({
            "name": name, "in": "query", "required": false,
            "description": format!(
                "The {end} end, inclusive. A date means the whole day in the user's timezone, a timestamp that \
                 instant. Timestamps are RFC 3339 with `T`, seconds, and `Z` or an offset (encode `+` as `%2B`). \
                 {default}"
            ),
            "schema": {"type": "string", "anyOf": [{"format": "date"}, {"format": "date-time"}]}, "example": example,
        })
    };
    vec![bound("from", "oldest", from_default, "2026-10-01"), bound("to", "newest", to_default, "2026-10-31T12:59:59Z")]
}

/// `accountIds` for the OpenAPI document.
#[must_use]
pub fn describe_account_ids() -> Vec<Value> {
    vec![json!({
        "name": "accountIds", "in": "query", "required": true,
        "description": format!(
            "Account ids from `/v1/accounts`, separated by commas, at most {ACCOUNT_IDS_MAX}. Order and repetition \
             make no difference."
        ),
        "schema": {"type": "string", "minLength": 1}, "example": UUID_EXAMPLE,
    })]
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETER_NAMES: &[&str] = &["connectionId", "accountId", "from", "to", "limit", "offset"];

    fn rejection(query: &str) -> Option<(&'static str, Vec<String>)> {
        let mut params = Params::read(Some(query), PARAMETER_NAMES);
        // Deliberately not in the order of `PARAMETER_NAMES`.
        params.page(page::TRANSACTIONS);
        params.bound("to");
        params.bound("from");
        params.required("connectionId", "connectionId is required");
        params.take("accountId");
        match params.finish() {
            Err(Problem::BadRequest { message, details }) => Some((message, details)),
            _ => None,
        }
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
        assert_eq!(rejection("connectionId=a&to=").unwrap(), ("Invalid date parameters", vec![format!("to: {DATE}")]));
    }

    #[test]
    fn repeated_known_parameter_is_rejected() {
        let rejected = |query: &str| rejection(query).unwrap();
        assert_eq!(
            rejected("connectionId=a&connectionId=a"),
            ("Invalid query parameters", vec!["connectionId: Must be given once".to_owned()])
        );
        assert_eq!(rejected("connectionId=a&limit=1&limit=1").1, ["limit: Must be given once"]);
        assert_eq!(
            rejected("connectionId=a&from=2026-01-01&from=2026-01-01"),
            ("Invalid date parameters", vec!["from: Must be given once".to_owned()])
        );
        assert_eq!(rejected("connectionId=a&accountId=b&accountId=b").1, ["accountId: Must be given once"]);
    }

    #[test]
    fn unencoded_plus_is_read_as_a_space() {
        assert_eq!(rejection("connectionId=a&from=2026-01-01T00:00:00+11:00").unwrap().1, [format!("from: {DATE}")]);
    }

    #[test]
    fn id_lists_are_split_and_deduplicated() {
        assert_eq!(split_ids(" a ,b,,a, b ,"), ["a", "b"]);
        assert!(split_ids(" , ,").is_empty());
        let many: Vec<String> = (0..500).map(|id| id.to_string()).collect();
        assert_eq!(split_ids(&many.join(",")).len(), ACCOUNT_IDS_MAX + 1);
    }
}
