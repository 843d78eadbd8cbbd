//! Parses what SimpleFIN and MCP clients send: query strings, messages, and the arguments of tools.

#![no_main]
#![expect(dead_code, reason = "the files below hold more than what reads bytes")]

// The files below name the crates that they come from, which would add a web server and both
// databases.
extern crate self as bellbird_api;
extern crate self as bellbird_reads;

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/reads/src/filter.rs"]
pub mod filter;
#[path = "../../crates/reads/src/summary.rs"]
pub mod summary;
pub use filter::TransactionFilter;

#[path = "../../crates/api/src/http"]
pub mod http {
    pub mod parameters;
    pub use problem::Problem;

    pub mod problem {
        use std::borrow::Cow;

        pub enum Problem {
            BadRequest {
                message: Cow<'static, str>,
                details: Vec<String>,
            },
        }
    }
}

#[path = "../../crates/interop/src/simplefin"]
mod simplefin {
    mod params;
    mod posted;

    use crate::http::Problem;
    use params::SetParams;

    const NAMES: [&str; 5] = [
        "start-date",
        "end-date",
        "version",
        "account",
        "balances-only",
    ];

    pub fn check(query: &str) {
        match SetParams::read(Some(query)) {
            Err(Problem::BadRequest { message, details }) => {
                assert!(!message.is_empty() && !details.is_empty());
                let is_named = |detail: &String| {
                    detail
                        .split_once(": ")
                        .is_some_and(|(name, _)| NAMES.contains(&name))
                };
                assert!(
                    details.iter().all(is_named),
                    "a detail names its parameter: {details:?}"
                );
            }
            Ok(params) => {
                let ids = params.accounts.ids.as_deref().unwrap_or_default();
                assert!(ids.len() <= 100 && ids.is_sorted_by(|above, below| above < below));
                assert!(
                    !params.is_mistaken() || params.window().is_empty(),
                    "a mistaken window has no day"
                );
            }
        }
    }
}

#[path = "../../crates/interop/src/mcp"]
mod mcp {
    mod arguments;
    mod message;
    mod revision;
    mod rpc;

    use arguments::{Accounts, Amount, Choice, DayOrTime, Detail, RowLimit, SearchText};
    use bellbird_domain::{Category, Direction};
    use http::HeaderMap;
    use message::Message;
    use rpc::Era;
    use serde::Deserialize;
    use serde_json::{Map, Value};

    const ROWS_MAX: u32 = 500;

    /// Every type of argument.
    #[derive(Deserialize)]
    struct All {
        account_ids: Option<Accounts>,
        from: Option<DayOrTime>,
        to: Option<DayOrTime>,
        text: Option<SearchText>,
        category: Option<Choice<Category>>,
        direction: Option<Choice<Direction>>,
        min_amount: Option<Amount>,
        max_amount: Option<Amount>,
        limit: Option<RowLimit>,
        detail: Option<Choice<Detail>>,
        group_by: Option<Choice<crate::summary::GroupBy>>,
        include_balances: Option<bool>,
    }

    pub fn check(body: &[u8]) {
        match Message::parse(body) {
            Err(unreadable) => check_line(&unreadable.error.body(unreadable.id.as_ref())),
            Ok(Message::Request(request)) => {
                if let Err(error) = Era::of(&HeaderMap::new(), &request) {
                    check_line(&error.body(Some(&request.id)));
                }
                if let Some(Value::Object(arguments)) = request.params.get("arguments") {
                    check_arguments(arguments);
                }
            }
            Ok(Message::Notification(_) | Message::Response) => {}
        }
    }

    /// A message is one line of JSON, because standard input and output have lines.
    fn check_line(message: &[u8]) {
        assert!(!message.contains(&b'\n'));
        serde_json::from_slice::<Value>(message).expect("a response is JSON");
    }

    fn check_arguments(arguments: &Map<String, Value>) {
        match arguments::read::<All>(arguments, &[]) {
            Err(mistakes) => assert!(
                (1..=12 + 5).contains(&mistakes.lines().count()),
                "{mistakes}"
            ),
            Ok(read) => {
                assert!(
                    read.limit
                        .is_none_or(|RowLimit(rows)| (1..=ROWS_MAX).contains(&rows))
                );
                assert!(
                    read.min_amount
                        .is_none_or(|Amount(amount)| !amount.is_negative())
                );
                if let Some(Accounts::These(ids)) = &read.account_ids {
                    assert!(
                        (1..=100).contains(&ids.len())
                            && ids.is_sorted_by(|above, below| above < below)
                    );
                }
                let _ = arguments::date_filter(read.from, read.to);
            }
        }
    }
}

fuzz_target!(|input: &[u8]| {
    mcp::check(input);
    if let Ok(query) = str::from_utf8(input) {
        simplefin::check(query);
    }
});
