//! Cursors: for whom they are good, and what they tell.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use uuid::Uuid;

use super::errors::assert_problem;
use super::{STALE, setup};
use crate::support::follower::Follower;
use crate::support::harness::{App, Person};
use crate::support::mcp::Mcp;
use crate::support::process::text;
use crate::support::provider_spec::bank_names;

/// Members of a row that a cursor could tell.
const MEMBERS: [&str; 7] = [
    "id",
    "accountId",
    "accountName",
    "description",
    "amount",
    "merchantName",
    "totalAmount",
];
/// As the service limits it.
const CHARS_MAX: usize = 7 * 1024;

#[tokio::test]
async fn cursor_is_good_for_its_question_only_and_tells_nothing() {
    let app = App::start(setup()).await;
    let (olivia, ben) = (&app.olivia, &app.ben);
    let accounts = app.accounts_of(&olivia.connections[0]).await;
    let whole = Follower::new(&app, olivia, &olivia.connections[0]);
    let other = Follower::new(&app, olivia, &olivia.connections[1]);
    let foreign = Follower::new(&app, ben, &ben.connections[0]);
    let [one, two] = [0, 1].map(|at| whole.of_account(&accounts[at].id));
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
                let follower = question.with_cursor(cursor);
                if asked == made {
                    assert_eq!(follower.ask(&app).await.status, 200, "{asked}");
                } else {
                    assert_problem(&follower.ask(&app).await, 400, "invalid_cursor");
                }
            }
        }
    }
    cursor_tells_nothing_of_rows(&app, &broker).await;
    for bank in bank_names() {
        let person = app.person_at(bank).await;
        if bank == "fiskil" {
            changed_cursor_is_invalid(&app, &person).await;
        }
        cursor_tells_nothing_of_rows(&app, &person).await;
    }
}

async fn changed_cursor_is_invalid(app: &App, person: &Person) {
    let mut copy = Follower::copied(app, person, &person.connections[0]).await;
    let cursor = copy.cursor.clone().unwrap();
    let sealed = URL_SAFE_NO_PAD.decode(&cursor).unwrap();
    let mcp = Mcp::new(app, &app.olivia.key);
    let from = json!({"from": "2000-01-01"});
    let of_mcp = mcp.call("list_transactions", from).await;
    let mut bad = vec![
        text(&of_mcp, "next_cursor").to_owned(),
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
        let follower = copy.with_cursor(&bad);
        assert_problem(&follower.ask(app).await, 400, "invalid_cursor");
    }
    assert_eq!(app.fiskil().total_calls(), 0);
    copy.assert_finds(app, &[], "a good cursor").await;
    // It is no cursor of MCP either.
    let failure = Mcp::new(app, &person.key)
        .failure("list_transactions", json!({"cursor": cursor}))
        .await;
    assert!(failure.contains("begin again"), "{failure}");
}

async fn cursor_tells_nothing_of_rows(app: &App, person: &Person) {
    let connection = &person.connections[0];
    let provider = &connection.provider;
    let id = app.add_recent_row(connection, "TOLD TO NOBODY").await;
    app.advance_clock(STALE);
    let mut copy = Follower::new(app, person, connection).with("&limit=1");
    let mut cursors = Vec::new();
    for _ in 0..4 {
        copy.next_page(app).await;
        cursors.push(copy.cursor.clone().unwrap());
    }
    let mut copy = copy.with("");
    copy.follow(app).await;
    cursors.push(copy.cursor.clone().unwrap());
    app.remove_row(connection, &id);
    app.advance_clock(STALE);
    copy.follow(app).await;
    cursors.push(copy.cursor.clone().unwrap());
    let mut texts = vec![id, connection.id.to_string(), person.user.id.to_string()];
    for row in copy.rows.values() {
        let values = MEMBERS.iter().filter_map(|name| row[*name].as_str());
        texts.extend(values.filter(|text| text.len() > 5).map(str::to_owned));
    }
    let (ids, of_rows): (Vec<&String>, Vec<&String>) =
        texts.iter().partition(|text| text.len() == 36);
    assert!(texts.len() > 20 && ids.len() > 2, "{provider}");
    for cursor in cursors {
        let length = cursor.len();
        assert!(length < 1_000, "{provider}: {length} characters");
        let sealed = URL_SAFE_NO_PAD.decode(&cursor).unwrap();
        let found = |bytes: &[u8], text: &[u8]| memchr::memmem::find(bytes, text).is_some();
        for text in &texts {
            let is_shown = found(&sealed, text.as_bytes()) || cursor.contains(text.as_str());
            assert!(!is_shown, "{provider}: {text}");
        }
        for id in ids.iter().filter_map(|id| Uuid::parse_str(id).ok()) {
            assert!(!found(&sealed, id.as_bytes()), "{provider}");
        }
        // What the seal hides names the connection, perhaps an account, and no row.
        let secrets = app.storage.secrets();
        let opened = secrets.open_cursor(person.user.id, "changes", &sealed);
        let opened = opened.expect("it opens");
        let shown = String::from_utf8_lossy(&opened);
        for text in &of_rows {
            let is_named = found(&opened, text.as_bytes());
            assert!(!is_named, "{provider}: {text} in {shown}");
        }
    }
}
