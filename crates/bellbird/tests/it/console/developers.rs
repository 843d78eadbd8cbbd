//! The pages of keys, programs and settings.

use bellbird_domain::{EmailKind, KeyStatus};
use jiff::SignedDuration;

use super::SIGNED_OUT;
use super::pages::text_of;
use crate::support::chromium::Browser;
use crate::support::harness::{App, Setup};
use crate::support::receiver::Reply;
use crate::support::words::{assert_has, assert_lacks};

/// After a takeover, its user finds which session made which key.
#[tokio::test]
async fn programs_and_what_they_did_are_shown() {
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
        assert_has(happened, words);
    }
    let (_, sessions) = text.split_once("Where you are signed in").unwrap();
    let (since, _) = sessions.split_once(". Last used").unwrap();
    assert!(
        since.contains(':'),
        "the time tells sessions apart: {since}"
    );
    assert_has(
        &text,
        "This service sends none, because it has no mail server.",
    );
    let (audit, user) = (app.storage.audit(), Some(app.ben.user.id));
    let rows = audit.list_before(None, user, 9).await.unwrap();
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
    let is_of_one_session = rows.iter().all(|row| row.actor == rows[0].actor);
    assert!(is_of_one_session);
    let other = app.sign_in(app.olivia.user.id).await.get("/settings").await;
    other.assert_lacks("Sheet");

    // Keys say what they were used for.
    let browser = app.sign_in(app.ben.user.id).await;
    for path in ["/v1/me", "/v1/me", "/v1/accounts?limit=1", "/v1/none"] {
        app.get_as(&app.ben.key, path).await;
    }
    app.get_as(&app.olivia.key, "/v1/me").await;
    browser.get("/overview").await;
    app.write_key_reads().await;
    let page = browser.get("/keys").await;
    let text = text_of(&page.text);
    assert_has(&text, "4 requests in 30 days");
    assert_has(&text, "/v1/me 2");
    assert_has(&text, "/v1/accounts 1");
    assert_lacks(&text, "limit=1");
    assert_lacks(&text, "/v1/none");

    // What the page of programs makes is what a program takes.
    let browser = app.sign_in(app.ben.user.id).await;
    let codes = |page: &str| -> Vec<String> {
        page.split("<code>")
            .skip(1)
            .map(|code| code.split('<').next().unwrap().to_owned())
            .collect()
    };
    let claim = async |text: &str| {
        use base64::Engine as _;
        let url = base64::engine::general_purpose::STANDARD.decode(text);
        let url = String::from_utf8(url.unwrap()).unwrap();
        let url = url.replace("https://bellbird.example", &app.url);
        let response = app.http.post(url).send().await.unwrap();
        response.status().as_u16()
    };
    let shown_codes = async |program: &str| {
        let form = format!("program={program}");
        codes(&browser.try_submit("/programs", &form, 200).await.text)
    };
    let token = async |program: &str| shown_codes(program).await.remove(0);
    let first = token("Actual+Budget").await;
    assert_eq!(claim(&first).await, 200);
    assert_eq!(claim(&first).await, 403, "only once");
    let names = app.keys_of(app.ben.user.id).await;
    assert!(names.iter().any(|key| key.name == "Actual Budget"));
    let unused = token("Home+Assistant").await;
    browser
        .submit("/programs", "void=yes", "tokens-revoked&at=void")
        .await;
    assert_eq!(claim(&unused).await, 403);
    browser
        .submit("/programs", "void=yes", "no-unused-tokens&at=void")
        .await;
    for (program, path) in [
        (
            "Google+Sheets",
            "/v1/export/transactions.jsonl?partial=true",
        ),
        ("Excel", "/v1/connections"),
        ("Claude+Code", "/v1/me"),
        ("Another+assistant", "/v1/me"),
        ("My+program", "/v1/accounts"),
    ] {
        let steps = shown_codes(program).await.join("\n");
        assert_has(&steps, "https://bellbird.example");
        let (_, key) = steps.split_once("bb_").expect("a key");
        let key = key.split(|letter: char| !letter.is_ascii_alphanumeric());
        let key = format!("bb_{}", key.take(1).collect::<String>());
        let status = app.get_as(&key, path).await.status;
        assert_eq!(status, 200, "{program}");
    }
    let page = browser.get("/programs").await.text;
    assert_eq!(codes(&page), [""; 0], "shown once");
    for wrong in ["", "program=", "program=Other", "program=GnuCash"] {
        browser.try_submit("/programs", wrong, 400).await;
    }
    let (account, _) = app.accounts_by(&app.ben).await.remove(0);
    let file = async |account: &str| {
        let path = format!("/transactions.ofx?account={account}&from=2026-11-01");
        browser.get(&path).await
    };
    file(&account.id).await.assert_shows(200, "<OFX>");
    // Not the file of another one in place of an account that is gone.
    let other = file("0191e7a0-7c3b-7def-8000-00aabbccddee").await;
    other.assert_shows(400, "Choose an account");
}

#[tokio::test]
async fn settings_and_keys_change_the_user_alone() {
    let app = App::start(Setup::default()).await;
    let (ben, olivia) = (app.ben.user.id, app.olivia.user.id);
    let (browser, second) = (app.sign_in(ben).await, app.sign_in(ben).await);
    let other = app.sign_in(olivia).await;
    let sessions = async || {
        let list = app.storage.sessions().list(ben, app.clock.now()).await;
        list.unwrap()
    };
    browser
        .submit("/settings", "timezone=auckland", "timezone-saved&at=you")
        .await;
    let page = browser.get("/settings").await;
    page.assert_has("value=\"Pacific/Auckland\"");
    let shown = text_of(&page.text);
    assert_has(&shown, "User changed, timezone: Pacific/Auckland");
    let page = browser.post("/settings", "timezone=Mars").await;
    page.assert_shows(400, "value=\"Mars\"");
    for _ in 0..2 {
        browser
            .submit("/settings", "emails=save", "saved&at=emails")
            .await;
    }
    let off = app.storage.emails().find_off(ben).await.unwrap();
    assert_eq!(off, [EmailKind::Connection, EmailKind::Endpoint]);
    let newest = app.storage.audit().list_before(None, Some(ben), 2).await;
    let newest = newest.unwrap();
    let changed = (&*newest[0].action, newest[0].detail.as_deref());
    assert_eq!(
        changed,
        ("user.update", Some("e-mails off: connection, endpoint"))
    );
    let before = newest[1].detail.as_deref();
    assert_ne!(
        before,
        newest[0].detail.as_deref(),
        "nothing changed the second time"
    );
    let of_ben = sessions().await;
    assert_eq!(of_ben.len(), 2);
    for session in &of_ben {
        other
            .submit(
                "/settings",
                &format!("end={}", session.id),
                "session-has-ended&at=sessions",
            )
            .await;
    }
    browser
        .submit(
            "/settings",
            "end-others=yes",
            "others-signed-out&at=sessions",
        )
        .await;
    second.get("/settings").await.assert_needs_sign_in("ended");
    // Another user's session goes on.
    other.get("/settings").await.assert_status(200);
    let own = format!("end={}", sessions().await[0].id);
    let out = browser.post("/settings", &own).await;
    assert_eq!(out.location.as_deref(), Some(SIGNED_OUT));
    browser.get("/settings").await.assert_needs_sign_in("ended");

    // What a reload or a second press sends makes nothing.
    let (browser, user) = (app.sign_in(app.ben.user.id).await, app.ben.user.id);
    let newest = app.keys_of(user).await.remove(0).id;
    let form = format!("name=Sheet&newest={newest}");
    let (one, other) = tokio::join!(browser.post("/keys", &form), browser.post("/keys", &form));
    let mut statuses = [one.status, other.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 303]);
    browser
        .submit("/keys", &form, "key-shown-before&at=keys")
        .await;
    let form = format!("program=Excel&newest={newest}");
    browser
        .submit("/programs", &form, "key-shown-before&at=excel")
        .await;
    let path = "/programs?done=key-shown-before&at=excel";
    let page = browser.get(path).await;
    page.assert_has("id=\"excel\" tabindex=\"-1\" open");
    assert_eq!(app.keys_of(user).await.len(), 2);
    let form = "program=Actual+Budget&newest=";
    browser.try_submit("/programs", form, 200).await;
    browser
        .submit("/programs", form, "token-shown-before&at=actual")
        .await;

    // Keys are made, replaced and revoked.
    let browser = app.sign_in(app.ben.user.id).await;
    let other = app.sign_in(app.olivia.user.id).await;
    let made = browser.post("/keys", "name=%3Cb%3ESheet").await;
    let key = shown_key(&made.text).expect("the new key");
    made.assert_has("&#60;b&#62;Sheet");
    // Shown once.
    browser.get("/keys").await.assert_lacks(&key);
    assert_eq!(app.get_as(&key, "/v1/me").await.status, 200);
    let record = find(&app, "<b>Sheet").await;
    for form in [format!("revoke={record}"), format!("rotate={record}")] {
        other.try_submit("/keys", &form, 400).await;
    }
    let rotated = browser.post("/keys", &format!("rotate={record}")).await;
    let replaced = shown_key(&rotated.text).expect("a new key");
    // The old one works for a day, in which nothing takes its place again.
    rotated.assert_lacks(&format!("name=\"rotate\" value=\"{record}\""));
    rotated.assert_has(&format!("name=\"revoke\" value=\"{record}\""));
    rotated.assert_has(" Replaced. Works until ");
    for key in [&key, &replaced] {
        assert_eq!(app.get_as(key, "/v1/me").await.status, 200);
    }
    browser
        .submit("/keys", &format!("revoke={record}"), "key-revoked&at=keys")
        .await;
    let page = browser.get("/keys?done=key-revoked&at=keys").await;
    page.assert_has("The key is revoked");
    page.assert_has("1 key that has ended");
    assert_eq!(app.get_as(&key, "/v1/me").await.status, 401);
    for wrong in [
        "",
        "name=",
        "name=%20",
        "revoke=1",
        "revoke=&rotate=",
        "name=a&name=b",
        "name=a&works=7",
    ] {
        browser.try_submit("/keys", wrong, 400).await;
    }
    browser
        .try_submit("/keys", &format!("name={}", "a".repeat(101)), 400)
        .await;
    browser
        .try_submit("/keys", &format!("name={}", "a".repeat(5_000)), 413)
        .await;

    // A key works as long as its user wants.
    let made = browser.post("/keys", "name=Trial&works=30").await;
    let key = shown_key(&made.text).expect("the new key");
    let named = async |name: &str| {
        let keys = app.keys_of(app.ben.user.id).await;
        keys.into_iter().find(|key| key.name == name).unwrap()
    };
    let trial = named("Trial").await;
    let expires_at = trial.expires_at.unwrap();
    let month = SignedDuration::from_hours(30 * 24);
    assert_eq!(expires_at.duration_since(trial.created_at), month);
    made.assert_has("Works until");
    assert_eq!(app.get_as(&key, "/v1/me").await.status, 200);
    assert_eq!(trial.status(expires_at), KeyStatus::Expired);
    browser
        .try_submit("/keys", "name=Lasting&works=", 200)
        .await;
    assert_eq!(named("Lasting").await.expires_at, None);
}

fn shown_key(page: &str) -> Option<String> {
    let key = page.split("<code>").nth(1)?.split('<').next()?;
    key.starts_with("bb_").then(|| key.to_owned())
}

async fn find(app: &App, name: &str) -> String {
    let keys = app.keys_of(app.ben.user.id).await;
    let found = keys.iter().find(|key| key.name == name);
    found.unwrap().id.to_string()
}

/// Where the focus and the line of a form are.
const DONE: &str =
    "document.activeElement.id === 'done' && document.activeElement.textContent.trim()";

/// Opens every question.
const OPEN: &str = "document.querySelectorAll('main details').forEach(one => one.open = true)";

mod chromium {
    use super::*;

    /// Each page and what its forms lead to, with axe, at 360 and 1280 pixels, light and dark.
    #[tokio::test(flavor = "multi_thread")]
    async fn pages_of_developers_in_a_browser() {
        let app = App::start(Setup::default()).await;
        let user = app.olivia.user.id;
        let mut browser = Browser::of_user(&app, user, 1280, 800).await;

        browser.open(&format!("{}/programs", app.console_url));
        browser.click("#actual button[name=program]");
        browser.assert_accessible("developers-programs-token");
        assert!(browser.has("#actual[open]"));
        browser.click("#excel button[name=program]");
        browser.wait_for("document.activeElement.id === 'excel'");
        browser.assert_accessible("developers-programs-key");
        browser.evaluate("document.body.click()");
        // A click elsewhere closes menus only.
        assert!(browser.has("#excel[open]"));

        browser.open(&format!("{}/keys", app.console_url));
        browser.write("#name", "Spreadsheet");
        browser.click("form.line button");
        browser.assert_accessible("developers-keys-new");
        let key = browser.evaluate("document.querySelector('.card.good code').textContent");
        let key = key.as_str().unwrap().to_owned();
        browser.evaluate(
            "navigator.clipboard.writeText = text => Promise.resolve(window.copied = text)",
        );
        browser.evaluate("document.querySelector('.card.good .copy button').click()");
        assert_eq!(browser.evaluate("window.copied"), key);
        let reference = browser.evaluate("document.querySelector('.card.good a').href");
        let reference = reference.as_str().unwrap().to_owned();
        browser.evaluate(OPEN);
        browser.assert_accessible("developers-keys-questions");
        browser.open(&reference.replace("https://bellbird.example", &app.url));
        // The key is in its input only.
        let input = browser.evaluate("document.getElementById('key-input').value");
        assert_eq!(input, key);
        assert_eq!(browser.evaluate("location.hash"), "");
        browser.wait_for(
            "document.getElementById('list_transactions-connectionId').value.length === 36",
        );
        // She has no broker, whose id a call of a broker's rows would need.
        let of_broker =
            browser.evaluate("document.getElementById('list_holdings-connectionId').value");
        assert_eq!(of_broker, "");
        browser.click("header .console");
        browser.assert_at("/keys");
        browser.evaluate(OPEN);
        browser.click("button[name=revoke]");
        // The newest is first.
        assert_eq!(app.get_as(&key, "/v1/me").await.status, 401);
        browser.wait_for(DONE);
        browser.assert_accessible("developers-keys-revoked");

        let hook = app.hook(&app.olivia.user).await;
        hook.receiver.reply_with(Reply::Status(503));
        app.sync(&app.olivia.connections[0]).await;
        app.webhooks.run_due_deliveries().await;
        browser.open(&format!("{}/webhooks", app.console_url));
        browser.assert_accessible("developers-webhooks");
        browser.click("button[name=ping]");
        browser.wait_for(DONE);
        browser.assert_accessible("developers-webhooks-pinged");
        browser.evaluate(OPEN);
        browser.assert_accessible("developers-webhooks-questions");
        browser.click("button[name=disable]");
        browser.wait_for(DONE);
        browser.assert_accessible("developers-webhooks-disabled");
        browser.click("button[name=enable]");
        let endpoint = &hook.endpoint.id;
        browser.click(&format!("a[href='/webhooks/endpoints/{endpoint}']"));
        browser.evaluate(OPEN);
        browser.assert_accessible("developers-webhooks-log");
        browser.click("button[name=redeliver]");
        browser.wait_for(DONE);
        browser.assert_accessible("developers-webhooks-sent-again");

        browser.open(&format!("{}/settings", app.console_url));
        browser.write("#timezone", "Mars");
        browser.click("form.line button");
        browser.wait_for("document.activeElement.id === 'timezone'");
        browser.assert_accessible("developers-settings-wrong");
        browser.write("#timezone", "perth");
        browser.click("form.line button");
        browser.wait_for(DONE);
        browser.click("a[href='/settings/leave']");
        browser.assert_accessible("developers-leave");
    }
}
