//! What the pages show, and what their forms do.

use bellbird_connections::{ConnectionsError, LinkTarget};
use bellbird_domain::{ConnectionId, Plan};
use secrecy::ExposeSecret as _;
use serde_json::Value;

use super::{get, post};
use crate::support::harness::{App, Setup};
use crate::support::words::{assert_has, assert_lacks};

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

/// What is stored can be downloaded, and holds no secret.
#[tokio::test]
async fn user_reads_what_the_plan_offers_and_leaves() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in(app.ben.user.id).await;
    let file = browser.get("/settings/data.json").await;
    let name = "attachment; filename=\"bellbird-data.json\"";
    assert_eq!(file.headers["content-disposition"], name);
    let data: Value = serde_json::from_str(&file.text).unwrap();
    assert_eq!(data["users"][0]["email"], "ben@example.com");
    assert_eq!(data["sessions"].as_array().unwrap().len(), 1);
    let connection = &app.ben.connections[0];
    assert_eq!(data["connections"][0]["id"], connection.id.to_string());
    let accounts = data["accounts"].as_array().unwrap();
    assert_eq!(accounts.len(), app.accounts_of(connection).await.len());
    let numbers = accounts
        .iter()
        .filter_map(|account| account["maskedNumber"].as_str());
    let digits = numbers.map(|number| number.chars().filter(char::is_ascii_digit).count());
    let most = digits.max().expect("a number");
    assert!(most <= 4, "{most} digits of a number");
    for hidden in [&browser.cookie, &app.ben.key, "olivia"] {
        file.assert_lacks(hidden);
    }

    // A page that is not there has the menus of whoever is signed in, and calls no provider.
    let browser = app.sign_in(app.ben.user.id).await;
    app.reset_calls();
    let sync = format!("sync={}", ConnectionId::new());
    for (page, words) in [
        (browser.get("/nothing").await, "Page not found"),
        (browser.get("/webhooks/endpoints/1").await, "Page not found"),
        (
            browser.post("/connections", &sync).await,
            "It is removed already",
        ),
    ] {
        page.assert_shows(404, words);
        page.assert_has("href=\"/transactions\"");
        page.assert_has("Signed in as <bdi>ben@example.com</bdi>");
    }
    assert_eq!(app.fiskil().total_calls(), 0);
    let url = format!("{}/nothing", app.console_url);
    let page = get(&url, None).await;
    page.assert_shows(404, "Page not found");
    assert!(!page.text.contains("/transactions"), "{}", page.text);

    // Nothing is offered, made or linked that the plan cannot use.
    let user = app.olivia.user.id;
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
        page.assert_lacks("name=\"provider\"");
        page.assert_lacks("name=\"program\"");
        page.assert_lacks("id=\"name\"");
        page.assert_lacks("name=\"url\"");
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
        browser.try_submit(path, form, 403).await;
    }
    assert_eq!(app.keys_of(user).await, keys);
    // What is there can be taken away.
    let revoke = format!("revoke={}", keys[0].id);
    browser.try_submit("/keys", &revoke, 303).await;

    set(Plan::Developer).await;
    let page = browser.get("/connections").await.text;
    assert_has(&page, "value=\"akahu\"");
    assert_lacks(&page, "value=\"snaptrade\"");
    assert_has(&page, "Brokers: not in your plan");
    browser
        .try_submit("/connections", "provider=snaptrade", 403)
        .await;
    browser.get("/webhooks").await.assert_lacks("trades.synced");
    let investments = browser.get("/investments").await;
    investments.assert_has("Not in your plan");
    // A link by API or command, too.
    let broker = LinkTarget::Provider("snaptrade");
    let refused = app.create_link(user, broker).await;
    assert!(matches!(refused, Err(ConnectionsError::NotInPlan { .. })));
    let link = app.create_link(user, LinkTarget::UserChoice).await.unwrap();
    let link = link.url.expose_secret();
    let page = get(link, None).await.text;
    assert_has(&page, "value=\"akahu\"");
    assert_lacks(&page, "value=\"snaptrade\"");
    assert_has(&page, "not in your plan");
    assert_eq!(post(link, None, "provider=snaptrade").await.status, 403);
    set(Plan::Professional).await;
    assert_has(&get(link, None).await.text, "value=\"snaptrade\"");
    browser.get("/webhooks").await.assert_has("trades.synced");

    // Deletes themselves with everything.
    let browser = app.sign_in(app.ben.user.id).await;
    let asked = browser.get("/settings/leave").await;
    asked.assert_shows(200, "Delete your account");
    for wrong in ["", "email=", "email=olivia%40example.com"] {
        browser.try_submit("/settings/leave", wrong, 409).await;
    }
    assert_eq!(app.get_as(&app.ben.key, "/v1/me").await.status, 200);
    let own = "email=Ben%40example.com";
    let left = browser.try_submit("/settings/leave", own, 200).await;
    left.assert_shows(200, "Your account is being deleted");
    assert_eq!(left.cookie.as_deref(), Some(""));
    assert_eq!(left.headers["clear-site-data"], "\"cache\", \"storage\"");
    assert_eq!(app.get_as(&app.ben.key, "/v1/me").await.status, 401);
    assert_eq!(app.connections_of(app.ben.user.id).await, [], "hidden");
    app.run_due_jobs().await;
    let user = app.storage.users().find(app.ben.user.id).await.unwrap();
    assert!(user.is_none());
    assert_eq!(app.connections_of(app.ben.user.id).await, []);
    assert_eq!(app.get_as(&app.ben.key, "/v1/me").await.status, 401);
    let page = browser.get("/settings").await;
    page.assert_needs_sign_in("the user is gone");
    let audit = app.audit_of(app.ben.connections[0].id).await;
    assert_eq!(audit.last().unwrap().to, None, "withdrawn, then deleted");
}
