//! Parses query strings of `/v1/transactions` and `/v1/balances` as the handlers do. It checks bounds and the order of
//! error details.

#![no_main]

#[allow(dead_code, reason = "the descriptions for the OpenAPI document are not called")]
#[path = "../../crates/api/src/params.rs"]
mod params;

/// Replaces the module that `params.rs` uses from its own crate.
mod problem {
    pub enum Problem {
        BadRequest { message: &'static str, details: Vec<String> },
    }
}

use bellbird_domain::{AccountId, ConnectionId, page};
use libfuzzer_sys::fuzz_target;
use params::{ACCOUNT_IDS_MAX, Params, split_ids};
use problem::Problem;

const PARAMETER_NAMES: &[&str] = &["connectionId", "accountId", "from", "to", "limit", "offset"];

fuzz_target!(|query: &str| {
    parse_transactions(query);
    parse_balances(query);
});

fn parse_transactions(query: &str) {
    let mut params = Params::read(Some(query), PARAMETER_NAMES);
    let connection_id = params.required("connectionId", "connectionId is required");
    let account_id = params.take("accountId");
    let (from_text, from) = params.bound("from");
    let (to_text, to) = params.bound("to");
    let page = params.page(page::TRANSACTIONS);
    assert!((1..=page::TRANSACTIONS.max).contains(&page.limit) && page.end() > page.offset);
    match params.finish() {
        Err(Problem::BadRequest { message, details }) => {
            assert!(!message.is_empty() && !details.is_empty());
            let positions: Vec<_> = details.iter().map(|detail| position(detail)).collect();
            assert!(positions.is_sorted_by(|above, below| above < below), "parameters are in order: {details:?}");
        }
        Ok(()) => {
            assert!(!connection_id.is_empty());
            assert_eq!((from_text.is_some(), to_text.is_some()), (from.is_some(), to.is_some()));
            if let Ok(id) = connection_id.parse::<ConnectionId>() {
                assert!(id.to_string().eq_ignore_ascii_case(&connection_id));
            }
            if let Some(Ok(id)) = account_id.as_deref().map(str::parse::<AccountId>) {
                assert_eq!(Some(id.to_string()), account_id.map(|text| text.to_ascii_lowercase()));
            }
        }
    }
}

/// The index in [`PARAMETER_NAMES`] of the parameter that a detail names.
fn position(detail: &str) -> usize {
    let name = detail.split_once(": ").map(|(name, _)| name);
    PARAMETER_NAMES.iter().position(|known| Some(*known) == name).expect("a detail names its parameter")
}

fn parse_balances(query: &str) {
    let mut params = Params::read(Some(query), &["accountIds"]);
    let list = params.required("accountIds", "accountIds is required");
    if params.finish().is_ok() {
        let ids = split_ids(&list);
        assert!(ids.len() <= ACCOUNT_IDS_MAX + 1);
        assert!(ids.iter().enumerate().all(|(at, id)| !id.is_empty() && *id == id.trim() && !ids[..at].contains(id)));
    }
}
