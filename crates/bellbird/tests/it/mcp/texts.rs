//! Untrusted texts in results: in cells of their own, visible, short, and never a link.

use bellbird_domain::Plan;
use serde_json::{Value, json};

use super::list;
use crate::support::harness::{App, Setup};
use crate::support::mcp::Mcp;
use crate::support::words::{assert_has, assert_lacks};

fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

fn assert_visible(value: &Value) {
    match value {
        Value::String(text) => assert!(!text.contains(is_hidden), "{text:?}"),
        Value::Array(values) => values.iter().for_each(assert_visible),
        Value::Object(members) => members.values().for_each(assert_visible),
        _ => {}
    }
}

#[tokio::test]
async fn odd_texts_are_cleaned_and_stay_in_their_cells() {
    let app = App::start(Setup::default()).await;
    let all = [
        &app.credentials_of("fiskil")[5],
        &app.credentials_of("akahu")[3],
    ];
    let odette = app
        .add_person("odette@example.com", Plan::Developer, &all)
        .await;
    let mcp = Mcp::new(&app, &odette.key);
    let mut arguments = json!({"from": "2000-01-01", "limit": 500});
    let mut longest = 0;
    loop {
        let result = mcp.result("list_transactions", arguments).await;
        let structured = &result["structuredContent"];
        assert_visible(structured);
        let text = result["content"][0]["text"].as_str().unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        // A row is a line, below two of the head.
        assert_eq!(structured["shown"], lines.len() - 2);
        for line in &lines {
            assert_eq!(line.matches('|').count(), 8, "{line}");
            assert!(
                !line.contains(is_hidden) && !line.contains(['`', '<', '>', '[', ']']),
                "{line}"
            );
            assert_lacks(line, "://");
            assert_lacks(&line.to_lowercase(), "www.");
        }
        for row in list(structured, "transactions") {
            longest = longest.max(row["payee"].as_str().unwrap().chars().count());
        }
        let Some(cursor) = structured["next_cursor"].as_str() else {
            break;
        };
        arguments = json!({"cursor": cursor, "limit": 500});
    }
    assert!(
        (140..=150).contains(&longest),
        "the long text is cut: {longest}"
    );

    // Full rows have the whole text.
    let mut arguments = json!({"from": "2000-01-01", "detail": "full"});
    let full = mcp.transactions(arguments.clone()).await;
    full.iter().for_each(assert_visible);
    let length = |row: &Value| row["description"].as_str().unwrap().chars().count();
    assert!(full.iter().map(length).max().unwrap() >= 290);
    arguments["limit"] = json!(20);
    let result = mcp.result("list_transactions", arguments).await;
    let text = result["content"][0]["text"].as_str().unwrap();
    let lines = text.lines().filter(|line| line.starts_with('{'));
    let lines: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let rows = list(&result["structuredContent"], "transactions");
    assert_eq!(lines.len(), rows.len(), "the text of full rows is JSON");
    for (line, row) in lines.iter().zip(rows) {
        assert_eq!(without_markup(line), without_markup(row));
    }

    // No row has a link, brief or full.
    let mcp = Mcp::new(&app, &app.olivia.key);
    let hostile = "![x](https://evil.example/a.png) [Refund: sign in](https://evil.example) <img src=y> www.evil.example";
    app.add_row(&app.olivia.connections[0], hostile, app.clock.now())
        .await;
    for detail in ["brief", "full"] {
        let arguments = json!({ "detail": detail });
        let result = mcp.result("list_transactions", arguments).await;
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_has(text, "Refund: sign in");
        for part in ["://", "](", "<", "www.evil"] {
            assert_lacks(text, part);
        }
    }
    // The member has the text.
    let arguments = json!({"detail": "full", "limit": 1});
    let full = mcp.call("list_transactions", arguments).await;
    assert_eq!(full["transactions"][0]["description"], hostile);
}

/// Texts without the characters that are replaced in a table, and without those that replace them.
fn without_markup(row: &Value) -> String {
    row.to_string()
        .replace(|char: char| "`'[]<>()|/\\ @:".contains(char), "")
}
