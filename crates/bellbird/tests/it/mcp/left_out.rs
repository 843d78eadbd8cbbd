//! Accounts that fail for one response and could be read for the next.

use std::collections::BTreeSet;

use bellbird_sandbox::Fault;
use serde_json::{Value, json};

use super::list;
use super::tools::person_with_all;
use crate::support::harness::{App, Person, Setup};
use crate::support::mcp::Mcp;
use crate::support::words::assert_has;

/// The responses from `first` to the end.
async fn answers_after(mcp: &Mcp<'_>, tool: &str, first: Value, limit: u32) -> Vec<Value> {
    let mut answers = vec![first];
    while let Some(cursor) = answers[answers.len() - 1]["next_cursor"].as_str() {
        let rest = json!({"cursor": cursor, "limit": limit});
        let next = mcp.call(tool, rest).await;
        answers.push(next);
    }
    answers
}

/// Each account that a response names has a row in it.
fn assert_named_are_shown(answer: &Value, member: &str) {
    let ids = |rows: &[Value], name: &str| -> BTreeSet<String> {
        rows.iter().map(|row| row[name].to_string()).collect()
    };
    let named = ids(list(answer, "accounts"), "id");
    assert_eq!(named, ids(list(answer, member), "account_id"));
}

fn rows_of(answers: &[Value], member: &str) -> Vec<Value> {
    let rows = answers.iter().flat_map(|answer| list(answer, member));
    rows.cloned().collect()
}

fn ids_missing(answer: &Value) -> BTreeSet<String> {
    let problems = list(answer, "problems").iter();
    let ids = problems.flat_map(|problem| list(problem, "account_ids"));
    ids.map(Value::to_string).collect()
}

/// The rows of accounts that were never missing are there, each once and in their order, and no
/// others.
fn assert_left_out_to_the_end(answers: &[Value], member: &str, all: &[Value]) {
    assert!(answers.len() > 2, "{} answers", answers.len());
    let missing = ids_missing(&answers[0]);
    for answer in answers {
        assert_named_are_shown(answer, member);
        assert_eq!(ids_missing(answer), missing);
        // The total is not known.
        assert!(answer["total"].is_null() && answer["at_least"].is_u64());
    }
    let is_shown = |row: &&Value| !missing.contains(&row["account_id"].to_string());
    let expected: Vec<Value> = all.iter().filter(is_shown).cloned().collect();
    assert!(!missing.is_empty() && expected.len() < all.len());
    assert_eq!(rows_of(answers, member), expected);
    let last = &answers[answers.len() - 1];
    assert!(last["at_least"].as_u64().unwrap() >= expected.len() as u64);
    assert_has(&last["problems"].to_string(), "begin again");
}

/// Fails all calls about the account of this row.
async fn break_account_of(app: &App, person: &Person, row: &Value) {
    for connection in &person.connections {
        let accounts = app.stored_accounts(person.user.id, connection.id).await;
        for account in accounts {
            if row["account_id"] == account.id.to_string() {
                let path = format!("/accounts/{}/", account.provider_account_id);
                let fault = Fault::status(500).at(path).times(1000);
                app.bank("snaptrade").add_fault(fault);
            }
        }
    }
}

#[tokio::test]
async fn account_that_recovers_stays_left_out_until_the_end() {
    let app = App::start(Setup::default()).await;
    let person = person_with_all(&app).await;
    let mcp = Mcp::new(&app, &person.key);
    let all = mcp.transactions(json!({"limit": 500})).await;
    app.bank("akahu")
        .add_fault(Fault::status(500).at("/v1/").times(1000));
    let first = mcp.call("list_transactions", json!({"limit": 7})).await;
    app.clear_faults();
    let answers = answers_after(&mcp, "list_transactions", first, 7).await;
    assert_left_out_to_the_end(&answers, "transactions", &all);

    for (tool, member, limit) in [
        ("list_holdings", "holdings", 7),
        ("list_trades", "trades", 200),
    ] {
        let (all, _) = mcp.rows(tool, member, json!({"limit": 500})).await;
        break_account_of(&app, &person, &all[0]).await;
        let first = mcp.call(tool, json!({"limit": 3})).await;
        app.clear_faults();
        let answers = answers_after(&mcp, tool, first, limit).await;
        assert_left_out_to_the_end(&answers, member, &all);
    }

    // Holdings that changed before the cursor begin again.
    let first = mcp.call("list_holdings", json!({"limit": 10})).await;
    let cursor = first["next_cursor"].as_str().unwrap();
    break_account_of(&app, &person, &first["holdings"][0]).await;
    let rest = json!({ "cursor": cursor });
    let text = mcp.failure("list_holdings", rest).await;
    assert_has(&text, "begin again");
}
