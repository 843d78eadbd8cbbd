//! Parses query strings with the parameters of `/v1/transactions` and `/v1/balances`, and JSON
//! objects with the same members. It checks bounds and the order of error details.

#![no_main]

#[path = "../../crates/api/src/http/parameters/mod.rs"]
mod parameters;

/// Replaces the module that `parameters/mod.rs` uses from its own crate.
mod problem {
    use std::borrow::Cow;

    pub enum Problem {
        BadRequest {
            message: Cow<'static, str>,
            details: Vec<String>,
        },
    }
}

mod http {
    pub(crate) use crate::problem;
}

use bellbird_domain::{Bound, page};
use libfuzzer_sys::fuzz_target;
use parameters::{
    ACCOUNT_IDS_MAX, AccountIds, AccountParam, ConnectionParam, DateBound, Limit, Members, Offset,
    RawParams,
};
use problem::Problem;
use serde::Deserialize;
use serde_json::{Map, Value};

const PARAMETER_NAMES: &[&str] = &["connectionId", "accountId", "from", "to", "limit", "offset"];
const LIMIT_MAX: u32 = page::TRANSACTIONS.max;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Transactions {
    connection_id: ConnectionParam,
    account_id: Option<AccountParam>,
    from: Option<DateBound>,
    to: Option<DateBound>,
    limit: Option<Limit<200, LIMIT_MAX>>,
    offset: Option<Offset>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Balances {
    account_ids: AccountIds,
}

fuzz_target!(|query: &str| {
    parse_transactions(query);
    parse_members(query);
    parse_balances(query);
});

fn parse_transactions(query: &str) {
    let sent = |name: &str| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs
            .find(|pair| pair.0 == name)
            .map(|(_, value)| value.into_owned())
    };
    let is_valid_but_for_unknown =
        parameters::read_known::<Transactions>(RawParams::Query(query)).is_ok();
    match parameters::read::<Transactions>(RawParams::Query(query)).map_err(Problem::from) {
        Err(Problem::BadRequest { message, details }) => {
            assert!(!message.is_empty() && !details.is_empty());
            let are_unknown = details.iter().all(|detail| detail.contains(": unknown; "));
            assert_eq!(is_valid_but_for_unknown, are_unknown, "{details:?}");
            let known = details
                .iter()
                .filter(|detail| !detail.contains(": unknown; "));
            let positions: Vec<_> = known.map(|detail| position(detail)).collect();
            assert!(
                positions.is_sorted_by(|above, below| above < below),
                "parameters are in order: {details:?}"
            );
        }
        Ok(read) => {
            assert!(is_valid_but_for_unknown);
            let page = parameters::page(read.limit, read.offset);
            assert!((1..=LIMIT_MAX).contains(&page.limit) && page.end() > page.offset);
            let is_same =
                |id: Option<String>, text: &str| id.is_none_or(|id| id.eq_ignore_ascii_case(text));
            let connection_id = sent("connectionId").expect("required");
            assert!(!connection_id.is_empty());
            assert!(is_same(
                read.connection_id.0.map(|id| id.to_string()),
                &connection_id
            ));
            assert_eq!(read.account_id.is_some(), sent("accountId").is_some());
            let account_id = read.account_id.and_then(|id| id.0).map(|id| id.to_string());
            assert!(is_same(account_id, &sent("accountId").unwrap_or_default()));
            let bound =
                |name| sent(name).map(|text| Bound::parse(&text).expect("an accepted bound"));
            assert_eq!(read.from.map(|date| date.0), bound("from"));
            assert_eq!(read.to.map(|date| date.0), bound("to"));
        }
    }
}

/// As members of a JSON object, the same parameters have the same faults.
fn parse_members(query: &str) {
    let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    let members: Map<String, Value> = pairs
        .iter()
        .map(|(name, text)| (name.clone(), text.as_str().into()))
        .collect();
    // This object has no repeated members, and an empty one of its texts is not missing.
    if members.len() < pairs.len() || members.get("connectionId").is_some_and(|id| id == "") {
        return;
    }
    let body: Members = serde_json::from_value(members.clone().into()).expect("an object");
    let faults = |input| parameters::read::<Transactions>(input).err();
    let of_query = faults(RawParams::Query(query));
    for of_members in [
        faults(RawParams::Arguments(&members)),
        faults(RawParams::Body(&body)),
    ] {
        match (&of_query, of_members) {
            (None, None) => assert!(
                members
                    .keys()
                    .all(|name| PARAMETER_NAMES.contains(&name.as_str()))
            ),
            (Some(of_query), Some(of_members)) => {
                assert_eq!(of_members.names, PARAMETER_NAMES);
                assert_eq!(of_members.known, of_query.known);
                assert_eq!(of_members.unknown.is_empty(), of_query.unknown.is_empty());
                assert!(
                    of_members
                        .unknown
                        .iter()
                        .all(|name| !PARAMETER_NAMES.contains(&name.as_str()))
                );
            }
            (of_query, of_members) => panic!("{of_query:?} {of_members:?}"),
        }
    }
}

/// The index in [`PARAMETER_NAMES`] of the parameter that a detail names.
fn position(detail: &str) -> usize {
    let name = detail.split_once(": ").map(|(name, _)| name);
    PARAMETER_NAMES
        .iter()
        .position(|known| Some(*known) == name)
        .expect("a detail names its parameter")
}

fn parse_balances(query: &str) {
    if let Ok(Balances {
        account_ids: AccountIds(Some(ids)),
    }) = parameters::read::<Balances>(RawParams::Query(query))
    {
        assert!((1..=ACCOUNT_IDS_MAX).contains(&ids.len()));
        assert!(ids.is_sorted_by(|above, below| above < below));
    }
}
