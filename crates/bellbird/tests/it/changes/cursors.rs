//! Cursors: for whom they are good, and what they tell.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::errors::assert_problem;
use super::{HOUR, STALE, setup};
use crate::support::follower::Follower;
use crate::support::harness::{App, simulated_providers};
use crate::support::mcp::Mcp;

/// As the service limits it.
const CHARS_MAX: usize = 7 * 1024;

#[tokio::test]
async fn cursor_is_good_for_its_question_only() {
    let app = App::start(setup()).await;
    let (olivia, ben) = (&app.olivia, &app.ben);
    let accounts = app
        .storage
        .accounts()
        .list_of_connection(olivia.user.id, olivia.connections[0].id)
        .await;
    let accounts: Vec<String> = accounts
        .unwrap()
        .iter()
        .map(|account| account.id.to_string())
        .collect();
    let whole = Follower::new(&app, olivia, &olivia.connections[0]);
    let other = Follower::new(&app, olivia, &olivia.connections[1]);
    let foreign = Follower::new(&app, ben, &ben.connections[0]);
    let (one, two) = (
        whole.of_account(&accounts[0]),
        whole.of_account(&accounts[1]),
    );
    let broker = app.person_at("snaptrade").await;
    let trades = Follower::new(&app, &broker, &broker.connections[0]);
    let mut cursors = Vec::new();
    let questions = [&whole, &other, &foreign, &one, &two, &trades];
    for question in questions {
        // One between pages, and one at the end.
        let mut begun = question.with("&limit=1");
        assert!(begun.next_page(&app).await.0);
        let mut complete = question.clone();
        complete.follow(&app).await;
        cursors.push([begun.cursor.unwrap(), complete.cursor.unwrap()]);
    }
    app.reset_calls();
    for (asked, question) in questions.into_iter().enumerate() {
        for (made, cursors) in cursors.iter().enumerate() {
            for cursor in cursors {
                let follower = Follower {
                    cursor: Some(cursor.clone()),
                    ..question.clone()
                };
                if asked == made {
                    assert_eq!(follower.ask(&app).await.status, 200, "{asked}");
                } else {
                    assert_problem(&follower.ask(&app).await, 400, "invalid_cursor");
                }
            }
        }
    }
}

#[tokio::test]
async fn changed_cursor_is_invalid() {
    let app = App::start(setup()).await;
    let person = app.person_at("fiskil").await;
    let mut copy = Follower::new(&app, &person, &person.connections[0]);
    copy.follow(&app).await;
    let cursor = copy.cursor.clone().unwrap();
    let sealed = URL_SAFE_NO_PAD.decode(&cursor).unwrap();
    let mcp = Mcp::new(&app, &app.olivia.key);
    let of_mcp = mcp
        .call("list_transactions", json!({"from": "2000-01-01"}))
        .await;
    let mut bad = vec![
        of_mcp["next_cursor"].as_str().unwrap().to_owned(),
        cursor[1..].to_owned(),
        cursor[..cursor.len() - 1].to_owned(),
        cursor[..cursor.len() / 2].to_owned(),
        cursor.chars().rev().collect(),
        format!("{cursor}{cursor}"),
        format!("{cursor}A"),
        format!("{cursor}="),
        format!("{cursor}%20"),
        format!("%00{cursor}"),
        "x".to_owned(),
        "%C3%A9".to_owned(),
        "A".repeat(CHARS_MAX),
        "A".repeat(CHARS_MAX + 1),
    ];
    for at in 0..sealed.len() {
        let mut forged = sealed.clone();
        forged[at] ^= 1 << (at % 8);
        bad.push(URL_SAFE_NO_PAD.encode(forged));
    }
    app.reset_calls();
    for bad in bad {
        let follower = Follower {
            cursor: Some(bad.clone()),
            ..copy.clone()
        };
        assert_problem(&follower.ask(&app).await, 400, "invalid_cursor");
    }
    assert_eq!(app.fiskil().total_calls(), 0);
    assert_eq!(
        copy.follow(&app).await,
        Vec::<Value>::new(),
        "the cursor itself is good"
    );
    // It is no cursor of MCP either.
    let failure = Mcp::new(&app, &person.key)
        .failure("list_transactions", json!({"cursor": cursor}))
        .await;
    assert!(failure.contains("begin again"), "{failure}");
}

#[tokio::test]
async fn cursor_tells_nothing_of_rows() {
    let app = App::start(setup()).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let id = app.add_recent_row(connection, "TOLD TO NOBODY").await;
        let mut copy = Follower::new(&app, &person, connection).with("&limit=1");
        let mut cursors = Vec::new();
        for _ in 0..4 {
            copy.next_page(&app).await;
            cursors.push(copy.cursor.clone().unwrap());
        }
        let mut copy = copy.with("");
        copy.follow(&app).await;
        cursors.push(copy.cursor.clone().unwrap());
        app.remove_row(connection, &id);
        app.advance_clock(STALE);
        copy.follow(&app).await;
        cursors.push(copy.cursor.clone().unwrap());
        let mut texts = vec![id, connection.id.to_string(), person.user.id.to_string()];
        for row in copy.rows.values() {
            let members = [
                "id",
                "accountId",
                "accountName",
                "description",
                "amount",
                "merchantName",
            ];
            let values = members
                .iter()
                .chain(&["totalAmount"])
                .filter_map(|name| row[*name].as_str());
            texts.extend(values.filter(|text| text.len() > 5).map(str::to_owned));
        }
        let ids: Vec<String> = texts
            .iter()
            .filter(|text| text.len() == 36)
            .cloned()
            .collect();
        assert!(texts.len() > 20 && ids.len() > 2, "{provider}");
        let bytes_of = |id: &String| {
            uuid::Uuid::parse_str(id)
                .ok()
                .map(|id| id.as_bytes().to_vec())
        };
        for cursor in cursors {
            assert!(
                cursor.len() < 1_000,
                "{provider}: {} characters",
                cursor.len()
            );
            let sealed = URL_SAFE_NO_PAD.decode(&cursor).unwrap();
            let found = |bytes: &[u8], text: &[u8]| memchr::memmem::find(bytes, text).is_some();
            for text in &texts {
                assert!(
                    !found(&sealed, text.as_bytes()) && !cursor.contains(text.as_str()),
                    "{provider}: {text}"
                );
            }
            for id in ids.iter().filter_map(bytes_of) {
                assert!(!found(&sealed, &id), "{provider}");
            }
            // What the seal hides names the connection, perhaps an account, and no row.
            let opened = app
                .storage
                .secrets()
                .open_cursor(person.user.id, "changes", &sealed)
                .expect("it opens");
            let of_rows = texts.iter().filter(|text| text.len() != 36);
            let shown = String::from_utf8_lossy(&opened);
            for text in of_rows {
                assert!(
                    !found(&opened, text.as_bytes()),
                    "{provider}: {text} in {shown}"
                );
            }
        }
    }
}
