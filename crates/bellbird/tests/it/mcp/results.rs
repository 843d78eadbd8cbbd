//! The result of every tool, as snapshots. `cargo insta accept` accepts a change.

use serde_json::{Value, json};

use super::tools::person_with_all;
use crate::support::harness::{App, Setup};
use crate::support::mcp::Mcp;
use crate::support::redact::redact;

#[tokio::test]
async fn results_of_all_tools() {
    let app = App::start(Setup::default()).await;
    let person = person_with_all(&app).await;
    let mcp = Mcp::new(&app, &person.key);
    let calls = [
        ("list_accounts", json!({})),
        ("list_transactions", json!({"limit": 2})),
        ("list_transactions", json!({"limit": 2, "detail": "full"})),
        (
            "summarize_transactions",
            json!({"group_by": "category", "from": "2026-11-01"}),
        ),
        ("list_holdings", json!({"limit": 2})),
        ("list_trades", json!({"limit": 2})),
        ("list_transactions", json!({"from": "yesterday"})),
        ("list_everything", json!({})),
        (
            "list_new_transactions",
            json!({"since": "2026-11-20", "limit": 2}),
        ),
    ];
    let listed = mcp.modern("tools/list", json!({})).await.json()["result"]["tools"].clone();
    for tool in listed.as_array().unwrap() {
        assert!(
            calls.iter().any(|(name, _)| tool["name"] == *name),
            "{} has no snapshot",
            tool["name"]
        );
    }
    for (at, (tool, arguments)) in calls.into_iter().enumerate() {
        let answer = mcp
            .modern("tools/call", json!({"name": tool, "arguments": arguments}))
            .await;
        let body = redact(&json!({"call": [tool, arguments], "body": answer.json()}));
        insta::assert_json_snapshot!(format!("{}_{tool}", at + 1), with_lines(body));
    }
}

/// A text of several lines as a list of them, which a reader can compare.
fn with_lines(value: Value) -> Value {
    match value {
        Value::String(text) if text.contains('\n') => text.lines().collect(),
        Value::Array(values) => values.into_iter().map(with_lines).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(name, value)| (name, with_lines(value)))
            .collect(),
        other => other,
    }
}
