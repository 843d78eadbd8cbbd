//! What the pages show, and what their forms do.

use bellbird_connections::{ConnectionsError, LinkTarget};
use bellbird_domain::{ConnectionStatus, Plan};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{SignedIn, get, post};
use crate::support::harness::{App, Setup};

/// The text of a page between tags, with single spaces.
fn text_of(html: &str) -> String {
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

/// Every balance of the API is on the overview, to the digit.
#[tokio::test]
async fn overview_shows_what_the_api_says() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in(app.olivia.user.id).await;
    let page = browser.get("/overview").await;
    let text = text_of(&page.text).replace(',', "");
    let accounts = app
        .get_as(&app.olivia.key, "/v1/accounts?limit=100")
        .await
        .data();
    let ids: Vec<&str> = accounts
        .iter()
        .map(|account| account["id"].as_str().unwrap())
        .collect();
    let balances = app
        .get_as(
            &app.olivia.key,
            &format!("/v1/balances?accountIds={}", ids.join(",")),
        )
        .await
        .data();
    assert!(balances.len() > 5);
    for balance in &balances {
        let account = accounts
            .iter()
            .find(|account| account["id"] == balance["accountId"])
            .unwrap();
        let (name, number) = (
            account["name"].as_str().unwrap(),
            account["accountNumber"].as_str().unwrap_or_default(),
        );
        let amount = balance["currentBalance"].as_str().unwrap();
        let line = format!(
            "{name} {number} {} {amount} ",
            balance["currency"].as_str().unwrap()
        );
        let line = line.replace("  ", " ").replace(',', "");
        assert!(text.contains(&line), "{line}\n{text}");
    }
}

/// The sums of the charts are those of the rows that the API gives.
#[tokio::test]
async fn charts_sum_the_rows_of_the_api() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in(app.ben.user.id).await;
    let page = browser.get("/overview").await;
    let accounts = app
        .get_as(&app.ben.key, "/v1/accounts?limit=100")
        .await
        .data();
    let first = app
        .clock
        .now()
        .in_tz("Australia/Sydney")
        .unwrap()
        .date()
        .first_of_month();
    let mut cents: std::collections::BTreeMap<String, (i128, i128)> = Default::default();
    for account in &accounts {
        let (connection, id) = (
            account["connectionId"].as_str().unwrap(),
            account["id"].as_str().unwrap(),
        );
        let mut offset = 0;
        loop {
            let path = format!(
                "/v1/transactions?connectionId={connection}&accountId={id}&from={first}&limit=200&offset={offset}"
            );
            let rows = app.get_as(&app.ben.key, &path).await.data();
            offset += rows.len();
            if rows.is_empty() {
                break;
            }
            for row in rows.iter().filter(|row| !is_transfer(row)) {
                let amount = row["amount"].as_str().unwrap();
                let (whole, places) = amount.split_once('.').unwrap_or((amount, ""));
                let value: i128 = format!("{whole}{places:0<4}").parse().unwrap();
                let sums = cents
                    .entry(row["currency"].as_str().unwrap_or_default().to_owned())
                    .or_default();
                if value < 0 {
                    sums.1 += value;
                } else {
                    sums.0 += value;
                }
            }
        }
    }
    assert!(!cents.is_empty());
    let month = first.strftime("%B %Y").to_string();
    let text = text_of(&page.text).replace(',', "");
    for (currency, (money_in, money_out)) in cents {
        let chart = text
            .split(&format!("By month {currency}"))
            .nth(1)
            .expect("a chart of the currency");
        let row = chart
            .split(&month)
            .nth(2)
            .expect("the row of the table behind the title of the bars");
        let shown: Vec<i128> = row
            .split_whitespace()
            .take(2)
            .map(|amount| {
                let (whole, places) = amount.split_once('.').unwrap_or((amount, ""));
                format!("{whole}{places:0<4}").parse().unwrap()
            })
            .collect();
        assert_eq!(shown, [money_in, money_out], "{currency}: {row}");
    }
}

fn is_transfer(row: &Value) -> bool {
    row["category"]
        .as_str()
        .is_some_and(|category| category.starts_with("TRANSFER_"))
}

#[tokio::test]
async fn a_reload_costs_no_provider_call() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in(app.olivia.user.id).await;
    let first = browser.get("/overview").await.text;
    app.reset_calls().await;
    let again = browser.get("/overview").await.text;
    assert_eq!(app.calls().await, Default::default());
    assert_eq!(text_of(&first).len(), text_of(&again).len());
}

/// One provider is down: its institutions say so, and everything else is there.
#[tokio::test]
async fn a_part_that_fails_spoils_no_other() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in(app.olivia.user.id).await;
    app.fault_at(
        "fiskil",
        json!({"match": "/v1/banking/balances", "kind": "status", "status": 500}),
    )
    .await;
    let page = browser.get("/overview").await;
    app.clear_faults().await;
    assert_eq!(page.status, 200);
    assert!(
        page.text.contains("Net worth") && page.text.contains("Money in and out"),
        "{}",
        page.text
    );
    assert!(
        page.text
            .contains("The provider is temporarily unavailable"),
        "{}",
        page.text
    );
    assert!(page.text.contains("By month"), "{}", page.text);
    assert!(page.text.trim_end().ends_with("</html>"));
    let healthy = browser.get("/overview").await.text;
    assert!(!healthy.contains("Not complete"), "a failure is not cached");
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
    assert!(made.text.contains("&#60;b&#62;Sheet"), "{}", made.text);
    assert!(
        !browser.get("/keys").await.text.contains(&key),
        "shown once"
    );
    assert_eq!(app.get_as(&key, "/v1/me").await.status, 200);
    let record = find(&app, "<b>Sheet").await;
    for form in [format!("revoke={record}"), format!("rotate={record}")] {
        let page = other.post("/keys", &form).await;
        assert_eq!(
            page.status, 400,
            "another user's key looks like a missing one: {}",
            page.text
        );
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
    assert_eq!(
        browser
            .post("/keys", &format!("revoke={record}"))
            .await
            .status,
        303
    );
    assert_eq!(app.get_as(&key, "/v1/me").await.status, 401);
    for wrong in [
        "",
        "name=",
        "name=%20",
        "revoke=1",
        "revoke=&rotate=",
        "name=a&name=b",
    ] {
        assert_eq!(browser.post("/keys", wrong).await.status, 400, "{wrong}");
    }
    assert_eq!(
        browser
            .post("/keys", &format!("name={}", "a".repeat(101)))
            .await
            .status,
        400
    );
    assert_eq!(
        browser
            .post("/keys", &format!("name={}", "a".repeat(5_000)))
            .await
            .status,
        413
    );
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
        assert!(
            page.status == 200 && page.text.contains("Your plan (saver) does not include"),
            "{path}: {}",
            page.text
        );
        assert!(
            !page.text.contains("name=\"provider\"") && !page.text.contains("name=\"program\""),
            "{path}"
        );
        assert!(
            !page.text.contains("id=\"name\"") && !page.text.contains("name=\"url\""),
            "{path}"
        );
    }
    let keys = app.storage.keys().list(user).await.unwrap();
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
        assert_eq!(browser.post(path, form).await.status, 403, "{path} {form}");
    }
    assert_eq!(app.storage.keys().list(user).await.unwrap(), keys);
    let revoked = browser
        .post("/keys", &format!("revoke={}", keys[0].id))
        .await;
    assert_eq!(revoked.status, 303, "what is there can be taken away");

    set(Plan::Developer).await;
    let page = browser.get("/connections").await.text;
    assert!(
        page.contains("value=\"akahu\"") && !page.contains("value=\"snaptrade\""),
        "{page}"
    );
    assert!(
        page.contains("does not include reading accounts at brokers"),
        "{page}"
    );
    assert_eq!(
        browser
            .post("/connections", "provider=snaptrade")
            .await
            .status,
        403
    );
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
    assert!(
        browser
            .get("/webhooks")
            .await
            .text
            .contains("trades.synced")
    );
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
    assert_eq!(
        browser
            .post("/settings", "timezone=Pacific%2FAuckland")
            .await
            .status,
        303
    );
    assert!(
        browser
            .get("/settings")
            .await
            .text
            .contains("value=\"Pacific/Auckland\"")
    );
    assert_eq!(browser.post("/settings", "timezone=Mars").await.status, 400);
    let sessions = app
        .storage
        .sessions()
        .list(app.ben.user.id, app.clock.now())
        .await
        .unwrap();
    assert_eq!(sessions.len(), 2);
    for session in &sessions {
        assert_eq!(
            other
                .post("/settings", &format!("end={}", session.id))
                .await
                .status,
            400
        );
    }
    assert_eq!(
        browser.post("/settings", "end-others=yes").await.status,
        303
    );
    second.get("/settings").await.assert_needs_sign_in("ended");
    assert_eq!(
        other.get("/settings").await.status,
        200,
        "another user's session goes on"
    );
    let own = app
        .storage
        .sessions()
        .list(app.ben.user.id, app.clock.now())
        .await
        .unwrap();
    let out = browser
        .post("/settings", &format!("end={}", own[0].id))
        .await;
    assert_eq!(out.location.as_deref(), Some("/sign-in"), "the own session");
    browser.get("/settings").await.assert_needs_sign_in("ended");
}

fn shown_key(page: &str) -> Option<String> {
    let key = page.split("<code>").nth(1)?.split('<').next()?;
    key.starts_with("bb_").then(|| key.to_owned())
}

async fn find(app: &App, name: &str) -> String {
    let keys = app.storage.keys().list(app.ben.user.id).await.unwrap();
    keys.iter()
        .find(|key| key.name == name)
        .unwrap()
        .id
        .to_string()
}

#[tokio::test]
async fn connections_are_synced_and_removed_by_their_user_only() {
    let app = App::start(Setup::with(|settings| settings.sync.enabled = true)).await;
    let (browser, other) = (
        app.sign_in(app.ben.user.id).await,
        app.sign_in(app.olivia.user.id).await,
    );
    let connection = app.connections_of(app.ben.user.id).await.remove(0);
    let removed = |connected: &[bellbird_domain::Connection]| connected.is_empty();
    for form in ["sync", "remove", "confirm-removal", "connection"] {
        let page = other
            .post("/connections", &format!("{form}={}", connection.id))
            .await;
        assert_eq!(
            page.status, 404,
            "{form}: another user's looks like a missing one: {}",
            page.text
        );
    }
    assert_eq!(
        browser
            .post("/connections", &format!("sync={}", connection.id))
            .await
            .status,
        303
    );
    let page = browser.get("/connections").await;
    assert!(page.text.contains("running now"), "{}", page.text);
    let asked = browser
        .post("/connections", &format!("remove={}", connection.id))
        .await;
    assert!(
        asked.status == 200 && asked.text.contains("name=\"confirm-removal\""),
        "{}",
        asked.text
    );
    assert!(
        !removed(&app.connections_of(app.ben.user.id).await),
        "it only asks"
    );
    let done = browser
        .post(
            "/connections",
            &format!("confirm-removal={}", connection.id),
        )
        .await;
    assert!(
        done.status == 200 && done.text.contains("href=\"/connections\""),
        "{}",
        done.text
    );
    assert!(removed(&app.connections_of(app.ben.user.id).await));
    for wrong in ["", "sync=1", "provider=none", "provider=", "x=1"] {
        assert_eq!(
            browser.post("/connections", wrong).await.status,
            400,
            "{wrong}"
        );
    }
    let empty = browser.get("/overview").await;
    assert!(
        empty.text.contains("Nothing is linked yet"),
        "{}",
        empty.text
    );
}

#[tokio::test]
async fn overview_says_what_needs_the_user() {
    let app = App::start(Setup::default()).await;
    let browser: SignedIn<'_> = app.sign_in(app.ben.user.id).await;
    let connection = app.connections_of(app.ben.user.id).await.remove(0);
    app.set_consent(&connection, "revoked").await;
    let _ = app
        .connections
        .refreshes()
        .run(app.ben.user.id, connection.id)
        .await;
    let now = app.connections_of(app.ben.user.id).await.remove(0);
    assert_ne!(now.status, ConnectionStatus::Active);
    let page = browser.get("/overview").await;
    let words = format!("{} has to be reconnected.", connection.institution_name);
    assert!(page.text.contains(&words), "{}", page.text);
    let page = browser.get("/connections").await;
    assert!(page.text.contains(">Reconnect<"));
    let changed = [
        "<summary>History</summary>",
        "<li>Your consent was withdrawn <span",
    ];
    assert!(
        changed.iter().all(|words| page.text.contains(words)),
        "{}",
        page.text
    );
}

/// Each row of a window is the API's, to the digit, and the windows follow each other.
#[tokio::test]
async fn transactions_are_those_of_the_api() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in(app.olivia.user.id).await;
    let (account, _) = app.busiest().await;
    let id = &account.id;
    let mut query = format!("account={id}&from=2026-01-01&to=");
    for offset in [0, 50, 100] {
        let read = app.transactions(&account).from("2026-01-01").limit(50);
        let rows = read.offset(offset).send().await.data();
        assert_eq!(rows.len(), 50);
        let page = browser.get(&format!("/transactions?{query}")).await.text;
        let text = text_of(&page).replace(',', "");
        let mut rest = text.as_str();
        for row in &rows {
            let word = |name: &str| row[name].as_str().unwrap_or_default();
            for part in [word("date"), word("currency"), word("amount")] {
                let (_, after) = rest
                    .split_once(part)
                    .unwrap_or_else(|| panic!("{part} of {row} in order: {text}"));
                rest = after;
            }
        }
        assert!(
            text.contains(&format!("{} to {} of ", offset + 1, offset + 50)),
            "{text}"
        );
        let older = page
            .split("\" rel=\"next\"")
            .next()
            .unwrap()
            .rsplit("href=\"?")
            .next()
            .unwrap();
        query = older.replace("&#38;", "&");
    }
    let file = browser.get(&format!("/transactions.csv?{query}")).await;
    let same = format!(
        "/v1/export/transactions.csv?connectionId={}&accountId={id}&from=2026-01-01&byteOrderMark=true\
         &quoteFormulas=true",
        account.connection_id
    );
    assert_eq!(file.text, app.get_as(&app.olivia.key, &same).await.text);
    assert!(file.text.starts_with('\u{feff}'), "a spreadsheet opens it");
    assert!(
        file.headers["content-disposition"]
            .to_str()
            .unwrap()
            .starts_with("attachment"),
        "{:?}",
        file.headers
    );
    assert!(file.headers.contains_key("trailer"), "{:?}", file.headers);

    // With an old version of HTTP, a file that is cut off would look whole.
    let host = app.console_url.trim_start_matches("http://");
    let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
    let head = format!(
        "GET /transactions.csv?{query} HTTP/1.0\r\ncookie: bellbird-session={}\r\n\r\n",
        browser.cookie
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(
        text.contains("There is no file") && text.contains("HTTP/1.1"),
        "{text}"
    );
}

/// A last day alone is the end of thirty days, and days in the wrong order are an error and no
/// empty list.
#[tokio::test]
async fn days_of_a_table_are_what_they_say() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in(app.olivia.user.id).await;
    let (account, _) = app.busiest().await;
    let id = account.id;
    let (only_to, both) = ("to=2026-02-15", "from=2026-01-16&to=2026-02-15");
    let pages = [only_to, both].map(|days| format!("/transactions?account={id}&{days}"));
    let shown = [browser.get(&pages[0]).await, browser.get(&pages[1]).await]
        .map(|page| text_of(&page.text));
    assert_eq!(shown[0], shown[1]);
    assert!(shown[0].contains("2026-02-15"), "{}", shown[0]);
    for path in ["/transactions", "/investments"] {
        let reversed = browser
            .get(&format!(
                "{path}?account={id}&from=2026-02-15&to=2026-02-14"
            ))
            .await
            .text;
        let is_said = reversed.contains("The first day is after the last one")
            || reversed.contains("No broker");
        assert!(
            is_said && !reversed.contains("lists no"),
            "{path}: {reversed}"
        );
    }
}

#[tokio::test]
async fn investments_are_those_of_the_api() {
    let app = App::start(Setup::default()).await;
    let person = app.person_at("snaptrade").await;
    let browser = app.sign_in(person.user.id).await;
    let accounts = app
        .get_as(&person.key, "/v1/accounts?limit=100")
        .await
        .data();
    let opened = browser.get("/investments").await.text;
    let is_chosen = |account: &&Value| {
        let id = account["id"].as_str().unwrap();
        opened.contains(&format!("<option value=\"{id}\" selected>"))
    };
    let chosen: Vec<_> = accounts.iter().filter(is_chosen).collect();
    assert!(
        chosen.len() == 1 && chosen[0]["type"] == "investment",
        "{chosen:?}"
    );
    let mut seen = (0, 0);
    for account in &accounts {
        let (connection, id) = (
            account["connectionId"].as_str().unwrap(),
            account["id"].as_str().unwrap(),
        );
        let ids = format!("connectionId={connection}&accountId={id}");
        let holdings = app
            .get_as(&person.key, &format!("/v1/holdings?{ids}"))
            .await
            .data();
        let trades = app
            .get_as(&person.key, &format!("/v1/trades?{ids}&limit=50"))
            .await
            .data();
        let page = browser.get(&format!("/investments?account={id}")).await;
        let text = text_of(&page.text).replace(',', "");
        let (held, traded) = text.split_once("Trades Day").unwrap_or((&text, &text));
        let words = |row: &Value, names: &[&str]| {
            names
                .iter()
                .map(|name| row[name].as_str().unwrap_or("–").to_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        for row in &holdings {
            let line = words(
                row,
                &[
                    "quantity",
                    "currentPrice",
                    "currency",
                    "marketValue",
                    "unrealizedPnl",
                ],
            );
            assert!(held.contains(&line), "{line}: {held}");
        }
        for row in &trades {
            let line = words(row, &["quantity", "price", "currency", "totalAmount"]);
            assert!(traded.contains(&line), "{line}: {traded}");
        }
        seen = (seen.0 + holdings.len(), seen.1 + trades.len());
    }
    assert!(seen.0 > 5 && seen.1 > 5, "{seen:?}");
}

/// What is wrong in a query is the API's to say, and another user's account is not shown.
#[tokio::test]
async fn tables_take_no_nonsense() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in(app.ben.user.id).await;
    let wrong = browser.get("/transactions?from=yesterday").await;
    assert!(
        wrong.status == 200 && wrong.text.contains("from"),
        "{}",
        wrong.text
    );
    assert!(wrong.text.contains("status attention"), "{}", wrong.text);
    let (account, _) = app.busiest().await;
    let other = browser
        .get(&format!("/transactions?account={}", account.id))
        .await;
    let own = browser.get("/transactions").await;
    assert_eq!(
        text_of(&other.text),
        text_of(&own.text),
        "as if it did not exist"
    );
    assert!(
        browser
            .get("/investments")
            .await
            .text
            .contains("Not in your plan")
    );
    for query in [
        "account=%00",
        "offset=-1",
        "offset=99999999999999999999",
        "from=%22%3E%3Cb%3E",
        "a=b",
    ] {
        let page = browser.get(&format!("/transactions?{query}")).await;
        assert!(
            page.status == 200 && !page.text.contains("\"><b>"),
            "{query}: {}",
            page.text
        );
    }
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
    let names = app.storage.keys().list(app.ben.user.id).await.unwrap();
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
        assert_eq!(
            browser.post("/programs", wrong).await.status,
            400,
            "{wrong}"
        );
    }
    let file = browser.get("/transactions.ofx?from=2026-11-01").await;
    assert!(
        file.status == 200 && file.text.contains("<OFX>"),
        "{}",
        file.text
    );
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
    assert!(
        asked.text.contains("Delete me") && asked.status == 200,
        "{}",
        asked.text
    );
    for wrong in ["", "email=", "email=olivia%40example.com"] {
        let kept = browser.post("/settings/leave", wrong).await;
        assert_eq!(kept.status, 409, "{wrong}");
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
    let audit = app.storage.connections().list_audit(consent).await.unwrap();
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
async fn search_finds_the_rows_of_the_api_that_have_the_text() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in(app.ben.user.id).await;
    let page = browser.get("/transactions?from=2026-01-01").await;
    let connection = &app.ben.connections[0];
    let account = &app.accounts_of(connection).await[0];
    let path = format!(
        "/v1/transactions?connectionId={}&accountId={}&from=2026-01-01&limit=500",
        connection.id, account.id
    );
    let rows = app.get_as(&app.ben.key, &path).await.data().clone();
    assert!(page.text.contains("name=\"search\"") && !rows.is_empty());
    let amount = rows[0]["amount"].as_str().unwrap();
    let word = rows[0]["description"]
        .as_str()
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .to_uppercase();
    let other_sign = match amount.strip_prefix('-') {
        Some(positive) => format!("{positive}0"),
        None => format!("-{amount}0"),
    };
    if amount.contains('.') {
        let url = format!(
            "/transactions?account={}&from=2026-01-01&search={other_sign}",
            account.id
        );
        let found = browser.get(&url).await.text;
        assert!(
            found.contains("<th scope=\"row\">"),
            "{other_sign}: {found}"
        );
    }
    for wanted in [amount, &word] {
        let url = format!(
            "/transactions?account={}&from=2026-01-01&search={wanted}",
            account.id
        );
        let found = browser.get(&url).await;
        let has = |row: &&Value| {
            let text = |name: &str| row[name].as_str().unwrap_or_default().to_uppercase();
            ["description", "merchantName", "amount"]
                .iter()
                .any(|name| text(name).contains(wanted))
        };
        let expected = rows.iter().filter(has).count();
        assert!(
            expected > 0 && expected <= found.text.matches("<th scope=\"row\">").count(),
            "{wanted}: {}",
            found.text
        );
        assert!(found.text.contains(" found, in "), "{}", found.text);
    }
    let none = browser
        .get("/transactions?search=%3Cb%3Eno%20such%20row")
        .await;
    assert!(
        none.text
            .contains("transaction of these days has this text")
            && none.text.contains("0 found"),
        "{}",
        none.text
    );
    assert!(!none.text.contains("<b>no"), "{}", none.text);
}

#[tokio::test]
async fn search_finds_holdings_and_trades() {
    let app = App::start(Setup::default()).await;
    let person = app.person_at("snaptrade").await;
    let browser = app.sign_in(person.user.id).await;
    let rows = |page: &str| page.matches("<th scope=\"row\">").count();
    let mut tried = 0;
    for account in &app
        .get_as(&person.key, "/v1/accounts?limit=100")
        .await
        .data()
    {
        let path = format!("/investments?account={}", account["id"].as_str().unwrap());
        let all = browser.get(&path).await;
        let Some(first) = all.text.split("<th scope=\"row\"><bdi>").nth(1) else {
            continue;
        };
        let symbol = first.split('<').next().unwrap();
        let found = browser
            .get(&format!("{path}&search={}", symbol.to_lowercase()))
            .await;
        let mut shown = found.text.split("<th scope=\"row\">").skip(1);
        assert!(
            rows(&found.text) > 0 && shown.all(|row| row.contains(symbol)),
            "{symbol}: {}",
            found.text
        );
        assert!(found.text.contains(" found, in "), "{}", found.text);
        assert_eq!(
            rows(
                &browser
                    .get(&format!("{path}&search=no-such-row"))
                    .await
                    .text
            ),
            0
        );
        tried += 1;
    }
    assert!(tried > 0, "an account has holdings");
}
