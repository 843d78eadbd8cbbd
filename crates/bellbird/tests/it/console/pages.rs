//! What the pages show, and what their forms do.

use bellbird_connections::{ConnectionsError, LinkTarget};
use bellbird_domain::Plan;
use secrecy::ExposeSecret as _;
use serde_json::Value;

use super::{SIGNED_OUT, get, post};
use crate::support::client::Transaction;
use crate::support::harness::{App, Setup};

/// The text of a page between tags, with single spaces.
pub(super) fn text_of(html: &str) -> String {
    let text: String = html
        .split('<')
        .map(|part| part.split_once('>').map_or(part, |(_, text)| text))
        .fold(String::new(), |mut text, part| {
            text.push_str(part);
            text.push(' ');
            text
        });
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn keys_are_made_replaced_and_revoked() {
    let app = App::start(Setup::default()).await;
    let (browser, other) = (
        app.sign_in(app.ben.user.id).await,
        app.sign_in(app.olivia.user.id).await,
    );
    let made = browser.post("/keys", "name=%3Cb%3ESheet").await;
    let key = shown_key(&made.text).expect("the new key");
    made.assert_has("&#60;b&#62;Sheet");
    assert!(
        !browser.get("/keys").await.text.contains(&key),
        "shown once"
    );
    assert_eq!(app.get_as(&key, "/v1/me").await.status, 200);
    let record = find(&app, "<b>Sheet").await;
    for form in [format!("revoke={record}"), format!("rotate={record}")] {
        let page = other.post("/keys", &form).await;
        page.assert_status(400);
    }
    let replaced = shown_key(
        &browser
            .post("/keys", &format!("rotate={record}"))
            .await
            .text,
    )
    .expect("a new key");
    for key in [&key, &replaced] {
        assert_eq!(
            app.get_as(key, "/v1/me").await.status,
            200,
            "the old one works for a day"
        );
    }
    browser
        .post("/keys", &format!("revoke={record}"))
        .await
        .assert_status(303);
    assert_eq!(app.get_as(&key, "/v1/me").await.status, 401);
    for wrong in [
        "",
        "name=",
        "name=%20",
        "revoke=1",
        "revoke=&rotate=",
        "name=a&name=b",
    ] {
        browser.post("/keys", wrong).await.assert_status(400);
    }
    browser
        .post("/keys", &format!("name={}", "a".repeat(101)))
        .await
        .assert_status(400);
    browser
        .post("/keys", &format!("name={}", "a".repeat(5_000)))
        .await
        .assert_status(413);
}

/// Nothing is offered, made or linked that the plan cannot use.
#[tokio::test]
async fn plan_decides_what_is_offered() {
    let app = App::start(Setup::default()).await;
    let user = app.ben.user.id;
    let set = async |plan| {
        app.set_plan(user, plan).await;
    };
    let browser = app.sign_in(user).await;
    set(Plan::Saver).await;
    for path in [
        "/overview",
        "/transactions",
        "/investments",
        "/programs",
        "/keys",
        "/webhooks",
        "/connections",
    ] {
        let page = browser.get(path).await;
        page.assert_shows(200, "Your plan (saver) does not include");
        assert!(
            !page.text.contains("name=\"provider\"") && !page.text.contains("name=\"program\""),
            "{path}"
        );
        assert!(
            !page.text.contains("id=\"name\"") && !page.text.contains("name=\"url\""),
            "{path}"
        );
    }
    let keys = app.keys_of(user).await;
    let rotate = format!("rotate={}", keys[0].id);
    let endpoint = "url=https%3A%2F%2Fhooks.example.com&event=transactions.synced";
    for (path, form) in [
        ("/keys", "name=x"),
        ("/keys", &*rotate),
        ("/programs", "program=Actual+Budget"),
        ("/webhooks", endpoint),
        ("/connections", "provider=akahu"),
        ("/connections", "provider=snaptrade"),
    ] {
        browser.post(path, form).await.assert_status(403);
    }
    assert_eq!(app.keys_of(user).await, keys);
    let revoked = browser
        .post("/keys", &format!("revoke={}", keys[0].id))
        .await;
    // What is there can be taken away.
    revoked.assert_status(303);

    set(Plan::Developer).await;
    let page = browser.get("/connections").await.text;
    assert!(
        page.contains("value=\"akahu\"") && !page.contains("value=\"snaptrade\""),
        "{page}"
    );
    assert!(page.contains("Brokers: not in your plan"), "{page}");
    browser
        .post("/connections", "provider=snaptrade")
        .await
        .assert_status(403);
    assert!(
        !browser
            .get("/webhooks")
            .await
            .text
            .contains("trades.synced")
    );
    // A link by API or command, too.
    let refused = app
        .create_link(user, LinkTarget::Provider("snaptrade"))
        .await;
    assert!(matches!(refused, Err(ConnectionsError::NotInPlan { .. })));
    let link = app.create_link(user, LinkTarget::UserChoice).await.unwrap();
    let link = link.url.expose_secret();
    let page = get(link, None).await.text;
    assert!(
        page.contains("value=\"akahu\"") && !page.contains("value=\"snaptrade\""),
        "{page}"
    );
    assert!(page.contains("not in your plan"), "{page}");
    assert_eq!(post(link, None, "provider=snaptrade").await.status, 403);
    set(Plan::Professional).await;
    assert!(get(link, None).await.text.contains("value=\"snaptrade\""));
    browser.get("/webhooks").await.assert_has("trades.synced");
}

/// After a takeover, its user finds which session made which key.
#[tokio::test]
async fn settings_show_what_happened() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in(app.ben.user.id).await;
    browser.post("/keys", "name=Sheet").await;
    let key = find(&app, "Sheet").await;
    browser.post("/keys", &format!("revoke={key}")).await;
    browser.post("/programs", "program=Actual+Budget").await;
    let text = text_of(&browser.get("/settings").await.text);
    let (_, happened) = text.split_once("What happened").unwrap();
    for words in [
        "Setup token made Actual Budget",
        "Key revoked Sheet",
        "Key made Sheet",
        "Signed in",
    ] {
        assert!(happened.contains(words), "{words}: {happened}");
    }
    let rows = app
        .storage
        .audit()
        .list_before(None, Some(app.ben.user.id), 9)
        .await
        .unwrap();
    let actions: Vec<_> = rows
        .iter()
        .rev()
        .map(|row| (&*row.action, row.detail.as_deref()))
        .collect();
    let expected = [
        ("key.create", Some("Sheet")),
        ("key.revoke", Some("Sheet")),
        ("setup_token.create", Some("Actual Budget")),
    ];
    assert_eq!(actions[1..], expected);
    assert_eq!(actions[0].0, "session.create");
    assert!(
        rows.iter().all(|row| row.actor == rows[0].actor),
        "one session"
    );
    let other = app.sign_in(app.olivia.user.id).await.get("/settings").await;
    assert!(!other.text.contains("Sheet"), "{}", other.text);
}

#[tokio::test]
async fn settings_change_the_user_alone() {
    let app = App::start(Setup::default()).await;
    let (browser, second) = (
        app.sign_in(app.ben.user.id).await,
        app.sign_in(app.ben.user.id).await,
    );
    let other = app.sign_in(app.olivia.user.id).await;
    browser
        .post("/settings", "timezone=Pacific%2FAuckland")
        .await
        .assert_status(303);
    browser
        .get("/settings")
        .await
        .assert_has("value=\"Pacific/Auckland\"");
    browser
        .post("/settings", "timezone=Mars")
        .await
        .assert_status(400);
    let sessions = app
        .storage
        .sessions()
        .list(app.ben.user.id, app.clock.now())
        .await
        .unwrap();
    assert_eq!(sessions.len(), 2);
    for session in &sessions {
        other
            .post("/settings", &format!("end={}", session.id))
            .await
            .assert_status(400);
    }
    browser
        .post("/settings", "end-others=yes")
        .await
        .assert_status(303);
    second.get("/settings").await.assert_needs_sign_in("ended");
    // Another user's session goes on.
    other.get("/settings").await.assert_status(200);
    let own = app
        .storage
        .sessions()
        .list(app.ben.user.id, app.clock.now())
        .await
        .unwrap();
    let out = browser
        .post("/settings", &format!("end={}", own[0].id))
        .await;
    assert_eq!(out.location.as_deref(), Some(SIGNED_OUT), "the own session");
    browser.get("/settings").await.assert_needs_sign_in("ended");
}

fn shown_key(page: &str) -> Option<String> {
    let key = page.split("<code>").nth(1)?.split('<').next()?;
    key.starts_with("bb_").then(|| key.to_owned())
}

async fn find(app: &App, name: &str) -> String {
    let keys = app.keys_of(app.ben.user.id).await;
    keys.iter()
        .find(|key| key.name == name)
        .unwrap()
        .id
        .to_string()
}

#[tokio::test]
async fn investments_need_their_plan() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in(app.ben.user.id).await;
    browser
        .get("/investments")
        .await
        .assert_has("Not in your plan");
}

/// What the page of programs makes is what a program takes.
#[tokio::test]
async fn programs_get_what_they_take() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in(app.ben.user.id).await;
    let codes = |page: &str| -> Vec<String> {
        page.split("<code>")
            .skip(1)
            .map(|code| code.split('<').next().unwrap().to_owned())
            .collect()
    };
    let claim = async |text: &str| {
        use base64::Engine as _;
        let url = base64::engine::general_purpose::STANDARD
            .decode(text)
            .unwrap();
        let path = String::from_utf8(url)
            .unwrap()
            .replace("https://bellbird.example", "");
        app.http
            .post(format!("{}{path}", app.url))
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
    };
    let token = &codes(
        &browser
            .post("/programs", "program=Actual+Budget")
            .await
            .text,
    )[0];
    assert_eq!((claim(token).await, claim(token).await), (200, 403), "once");
    let names = app.keys_of(app.ben.user.id).await;
    assert!(names.iter().any(|key| key.name == "Actual Budget"));
    let unused = &codes(
        &browser
            .post("/programs", "program=Home+Assistant")
            .await
            .text,
    )[0];
    let voided = browser.post("/programs", "void=yes").await.text;
    assert!(
        voided.contains("No program can use the tokens any more"),
        "{voided}"
    );
    assert_eq!(claim(unused).await, 403);
    for (program, path) in [
        ("Spreadsheet", "/v1/export/transactions.csv"),
        ("My+program", "/v1/accounts"),
    ] {
        let shown = codes(
            &browser
                .post("/programs", &format!("program={program}"))
                .await
                .text,
        );
        assert_eq!(shown[0], format!("https://bellbird.example{path}"));
        let key = shown[1].strip_prefix("Authorization: Bearer ").unwrap();
        assert_eq!(app.get_as(key, path).await.status, 200, "{program}");
    }
    assert!(
        codes(&browser.get("/programs").await.text).is_empty(),
        "shown once"
    );
    for wrong in ["", "program=", "program=Other"] {
        browser.post("/programs", wrong).await.assert_status(400);
    }
    let file = browser.get("/transactions.ofx?from=2026-11-01").await;
    file.assert_shows(200, "<OFX>");
}

#[tokio::test]
async fn user_downloads_what_is_stored_and_it_holds_no_secret() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in(app.ben.user.id).await;
    let file = browser.get("/settings/data.json").await;
    assert_eq!(
        file.headers["content-disposition"],
        "attachment; filename=\"bellbird-data.json\""
    );
    let data: Value = serde_json::from_str(&file.text).unwrap();
    assert_eq!(data["users"][0]["email"], "ben@example.com");
    assert_eq!(data["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(
        data["connections"][0]["id"],
        app.ben.connections[0].id.to_string()
    );
    let accounts = app.accounts_of(&app.ben.connections[0]).await;
    assert_eq!(data["accounts"].as_array().unwrap().len(), accounts.len());
    let numbers = data["accounts"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|account| account["maskedNumber"].as_str());
    let digits: Vec<_> = numbers
        .map(|number| number.chars().filter(char::is_ascii_digit).count())
        .collect();
    assert!(
        !digits.is_empty() && digits.iter().all(|digits| *digits <= 4),
        "{digits:?}"
    );
    for hidden in [&browser.cookie, &app.ben.key, "olivia"] {
        assert!(!file.text.contains(hidden), "{hidden}: {}", file.text);
    }
}

#[tokio::test]
async fn user_deletes_themselves_with_everything() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in(app.ben.user.id).await;
    let asked = browser.get("/settings/leave").await;
    asked.assert_shows(200, "Delete me");
    for wrong in ["", "email=", "email=olivia%40example.com"] {
        let kept = browser.post("/settings/leave", wrong).await;
        kept.assert_status(409);
    }
    assert_eq!(app.get_as(&app.ben.key, "/v1/me").await.status, 200);
    let left = browser
        .post("/settings/leave", "email=Ben%40example.com")
        .await;
    assert_eq!(
        (left.status, left.cookie.as_deref()),
        (200, Some("")),
        "{}",
        left.text
    );
    assert_eq!(left.headers["clear-site-data"], "\"cache\", \"storage\"");
    assert!(
        app.storage
            .users()
            .find(app.ben.user.id)
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(app.connections_of(app.ben.user.id).await, []);
    assert_eq!(app.get_as(&app.ben.key, "/v1/me").await.status, 401);
    browser
        .get("/settings")
        .await
        .assert_needs_sign_in("the user is gone");
    let consent = app.ben.connections[0].id;
    let audit = app.audit_of(consent).await;
    assert_eq!(audit.last().unwrap().to, None, "withdrawn, then deleted");
}

#[tokio::test]
async fn keys_say_what_they_were_used_for() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in(app.ben.user.id).await;
    for path in ["/v1/me", "/v1/me", "/v1/accounts?limit=1", "/v1/none"] {
        app.get_as(&app.ben.key, path).await;
    }
    app.get_as(&app.olivia.key, "/v1/me").await;
    browser.get("/overview").await;
    app.write_key_reads().await;
    let page = browser.get("/keys").await;
    let text = text_of(&page.text);
    assert!(
        text.contains("4 requests in 30 days") && text.contains("/v1/me 2"),
        "{text}"
    );
    assert!(
        text.contains("/v1/accounts 1") && !text.contains("limit=1") && !text.contains("/v1/none"),
        "{text}"
    );
}

#[tokio::test]
}
