//! Cursors: what they open for, and how long.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::list;
use crate::support::harness::{App, Setup};
use crate::support::mcp::Mcp;
use crate::support::words::assert_has;

#[tokio::test]
async fn cursor_opens_for_its_user_tool_and_question_only() {
    let app = App::start(Setup::default()).await;
    let mcp = Mcp::new(&app, &app.olivia.key);
    cursor_names_no_row_and_survives_new_rows(&app, &mcp).await;
    let question = json!({"from": "2000-01-01", "direction": "debit"});
    let first = mcp.call("list_transactions", question.clone()).await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let with = |mut arguments: Value| {
        arguments["cursor"] = cursor.into();
        arguments
    };
    let go_on = async |more: Value| mcp.call("list_transactions", with(more)).await;
    let fail =
        async |mcp: &Mcp<'_>, arguments: Value| mcp.failure("list_transactions", arguments).await;
    let second = go_on(json!({})).await["transactions"].clone();
    assert_ne!(second, first["transactions"]);
    let again = go_on(question).await;
    assert_eq!(
        again["transactions"], second,
        "the question may be repeated"
    );
    assert_eq!(go_on(json!({"limit": 3})).await["shown"], 3);

    let differs = fail(&mcp, with(json!({"direction": "credit"}))).await;
    assert_has(&differs, "Send the cursor alone");
    let ben = Mcp::new(&app, &app.ben.key);
    let foreign = fail(&ben, with(json!({}))).await;
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
        let failed = fail(&mcp, json!({"cursor": bad})).await;
        assert_eq!(failed, foreign, "{bad}");
    }
    app.advance_own_clock(SignedDuration::from_mins(59));
    assert_eq!(go_on(json!({})).await["transactions"], second);
    app.advance_own_clock(SignedDuration::from_mins(2));
    assert_eq!(fail(&mcp, with(json!({}))).await, foreign);

    // Rows of removed connections are not shown.
    let first = mcp.call("list_transactions", json!({"limit": 2})).await;
    let rest = json!({ "cursor": first["next_cursor"] });
    app.remove(app.olivia.connections[0].id).await;
    app.remove(app.olivia.connections[1].id).await;
    let answer = mcp.call("list_transactions", rest).await;
    assert_eq!(answer["shown"], 0, "{answer}");
}

async fn cursor_names_no_row_and_survives_new_rows(app: &App, mcp: &Mcp<'_>) {
    let before = mcp.transactions(json!({"limit": 500})).await;
    let first = mcp.call("list_transactions", json!({"limit": 10})).await;
    let cursor = first["next_cursor"].as_str().unwrap();
    assert!(cursor.len() < 500, "{} characters", cursor.len());
    let (connection, now) = (&app.olivia.connections[0], app.clock.now());
    app.add_row(connection, "POSTED MEANWHILE", now).await;
    let mut rows = list(&first, "transactions").to_vec();
    let rest = json!({"cursor": cursor, "limit": 500});
    rows.extend(mcp.transactions(rest).await);
    assert_eq!(rows, before);
}
