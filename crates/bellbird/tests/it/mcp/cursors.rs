//! Cursors: what they open for, and how long.

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::support::harness::{App, Setup};
use crate::support::mcp::Mcp;
use crate::support::words::assert_has;

#[tokio::test]
async fn cursor_opens_for_its_user_tool_and_question_only() {
    let app = App::start(Setup::default()).await;
    let mcp = Mcp::new(&app, &app.olivia.key);
    let question = json!({"from": "2000-01-01", "direction": "debit"});
    let first = mcp.call("list_transactions", question.clone()).await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let with = |arguments: Value| {
        let mut arguments = arguments;
        arguments["cursor"] = cursor.into();
        arguments
    };
    let second = mcp.call("list_transactions", with(json!({}))).await;
    let again = mcp.call("list_transactions", with(question)).await;
    assert_eq!(
        again["transactions"], second["transactions"],
        "the question may be repeated"
    );
    assert_eq!(
        mcp.call("list_transactions", with(json!({"limit": 3})))
            .await["shown"],
        3
    );
    assert_ne!(second["transactions"], first["transactions"]);

    let differs = mcp
        .failure("list_transactions", with(json!({"direction": "credit"})))
        .await;
    assert_has(&differs, "Send the cursor alone");
    let foreign = Mcp::new(&app, &app.ben.key)
        .failure("list_transactions", with(json!({})))
        .await;
    assert_has(&foreign, "begin again");
    assert_eq!(mcp.failure("list_trades", with(json!({}))).await, foreign);
    let changed: String = cursor.chars().rev().collect();
    for bad in [
        json!(changed),
        json!(&cursor[1..]),
        json!("x"),
        json!(""),
        json!(7),
        json!("é"),
        json!("A".repeat(20_000)),
    ] {
        assert_eq!(
            mcp.failure("list_transactions", json!({"cursor": bad}))
                .await,
            foreign,
            "{bad}"
        );
    }
    app.advance_own_clock(SignedDuration::from_mins(59));
    assert_eq!(
        mcp.call("list_transactions", with(json!({}))).await["transactions"],
        second["transactions"]
    );
    app.advance_own_clock(SignedDuration::from_mins(2));
    assert_eq!(
        mcp.failure("list_transactions", with(json!({}))).await,
        foreign
    );
}

#[tokio::test]
async fn cursor_names_no_row_and_survives_new_rows() {
    let app = App::start(Setup::with_rows(150)).await;
    let mcp = Mcp::new(&app, &app.olivia.key);
    let (before, _) = mcp
        .rows("list_transactions", "transactions", json!({"limit": 500}))
        .await;
    let first = mcp.call("list_transactions", json!({"limit": 10})).await;
    let cursor = first["next_cursor"].as_str().unwrap();
    assert!(cursor.len() < 500, "{} characters", cursor.len());
    app.add_row(
        &app.olivia.connections[0],
        "POSTED MEANWHILE",
        app.clock.now(),
    )
    .await;
    let mut rows = first["transactions"].as_array().unwrap().clone();
    let (rest, _) = mcp
        .rows(
            "list_transactions",
            "transactions",
            json!({"cursor": cursor, "limit": 500}),
        )
        .await;
    rows.extend(rest);
    assert_eq!(rows, before);
}

#[tokio::test]
async fn accounts_that_changed_begin_again() {
    let app = App::start(Setup::default()).await;
    let mcp = Mcp::new(&app, &app.olivia.key);
    let first = mcp.call("list_transactions", json!({"limit": 2})).await;
    let cursor = first["next_cursor"].as_str().unwrap();
    app.remove(app.olivia.connections[0].id).await;
    app.remove(app.olivia.connections[1].id).await;
    let answer = mcp
        .call("list_transactions", json!({ "cursor": cursor }))
        .await;
    assert_eq!(
        answer["shown"], 0,
        "rows of removed connections are not shown: {answer}"
    );
}
