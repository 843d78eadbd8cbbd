//! E-mails, by a mail server that is a program of its own.

mod server;

use std::collections::BTreeSet;

use bellbird_domain::{ConnectionStatus, Plan, UserId};
use bellbird_sandbox::ConsentState;
use bellbird_storage::DueEmail;
use jiff::SignedDuration;
use serde_json::{Value, json};

use self::server::MailServer;
use crate::console::{Page, get, post, provider_of_operators};
use crate::support::browser;
use crate::support::chromium::Browser;
use crate::support::harness::{App, Setup};
use crate::support::process::text;

impl App {
    async fn due_emails(&self) -> Vec<DueEmail> {
        let due = self.storage.emails().list_due(None, self.clock.now());
        due.await.unwrap()
    }
}

/// The link in an e-mail.
fn link(email: &Value) -> String {
    let text = text(email, "text");
    let link = text.lines().find(|line| line.contains("/sign-in/"));
    link.unwrap_or_else(|| panic!("no link: {text}")).to_owned()
}

/// Asks for a link, and returns the page and the cookies of the browser.
async fn ask(app: &App, email: &str) -> (Page, String) {
    let (url, form) = (
        format!("{}/sign-in", app.console_url),
        format!("email={email}"),
    );
    let page = post(&url, None, &form).await;
    let cookies = page.set_cookies();
    (page, cookies)
}

async fn open(url: &str, cookies: &str) -> Page {
    browser::browse_elsewhere(browser::client().get(url).header("cookie", cookies)).await
}

#[tokio::test]
async fn link_by_email_signs_in_the_browser_that_asked() {
    let mail = MailServer::start();
    let app = App::start(Setup::with(|settings| mail.configure(settings, ""))).await;
    let page = get(&format!("{}/sign-in", app.console_url), None).await;
    assert!(page.text.contains("name=\"email\""), "{}", page.text);

    let (page, cookies) = ask(&app, "%20BEN%40example.com").await;
    assert_eq!(page.status, 200, "{}", page.text);
    let email = mail.take(1).await.remove(0);
    assert_eq!(email["to"], json!(["ben@example.com"]));
    assert_eq!(email["from"], "Bellbird <bellbird@example.com>");
    assert_eq!(email["subject"], "Sign in to Bellbird");
    assert_eq!(email["automatic"], "auto-generated");

    let url = link(&email);
    let other = get(&url, None).await;
    // Another browser is asked first.
    assert_eq!((other.status, &other.cookie), (200, &None));
    let own = open(&url, &cookies).await;
    let led_to = (own.status, own.location.as_deref());
    assert_eq!(led_to, (303, Some("/keys?first")), "{}", own.text);
    assert_eq!(open(&url, &cookies).await.status, 410, "used");

    // The browser is new, of which another e-mail tells, and the next time it is not.
    app.send_emails().await;
    let email = mail.take(1).await.remove(0);
    assert_eq!(email["subject"], "A new browser has signed in to Bellbird");
    let known = own.set_cookies();
    ask(&app, "ben@example.com").await;
    let url = link(&mail.take(1).await[0]);
    open(&url, &format!("{cookies}; {known}")).await;
    let again = app.sign_in_link(app.ben.user.id).await;
    assert_eq!(browser_post(&again, &known).await.status, 303);
    app.send_emails().await;
    assert_eq!(mail.arrived(), Vec::<Value>::new());

    // An operator sends a user a link.
    let operator = app.sign_in_operator().await;
    let path = format!("/operator/users/{}", app.olivia.user.id);
    let sent = operator.post(&path, "send-link=yes").await;
    sent.assert_leads_to(&format!("{path}?done=link-sent&at=access#done"));
    let led_to = format!("{path}?done=link-sent&at=access");
    let page = operator.get(&led_to).await;
    page.assert_has("It works once, for a day.");
    let email = mail.take(1).await.remove(0);
    assert_eq!(email["to"], json!(["olivia@example.com"]));
    assert_eq!(email["subject"], "Your link to Bellbird");
    let url = link(&email);
    assert!(!sent.text.contains(&url), "only the user gets it");
    // So no other e-mail has to tell of it.
    let due = app.due_emails().await;
    assert!(
        due.iter()
            .all(|email| email.key.user_id != app.olivia.user.id)
    );
    app.advance_clock(SignedDuration::from_hours(23));
    assert_eq!(browser_post(&url, "").await.status, 303);
    assert_eq!(browser_post(&url, "").await.status, 410, "used");

    // An e-mail that no server takes is no sent one.
    drop(mail);
    let failed = operator.post(&path, "send-link=yes").await;
    failed.assert_shows(400, "The e-mail was not sent");
}

async fn browser_post(url: &str, cookies: &str) -> Page {
    let request = browser::post(url, "")
        .header("sec-fetch-site", "same-origin")
        .header("cookie", cookies);
    Page::of(request.send().await.unwrap()).await
}

#[tokio::test]
async fn nobody_learns_who_is_a_user_and_nobody_fills_a_mailbox() {
    let mail = MailServer::start();
    let app = App::start(Setup::with(|settings| {
        mail.configure(settings, "");
        settings.pages.failed_auth_per_minute = 20;
    }))
    .await;
    let (unknown, _) = ask(&app, "nobody@example.com").await;
    let (known, _) = ask(&app, "ben@example.com").await;
    assert_eq!((unknown.status, &unknown.text), (known.status, &known.text));
    for _ in 0..8 {
        assert_eq!(ask(&app, "ben@example.com").await.0.status, 200);
    }
    mail.take(5).await;
    // Five an hour, and then one each 96 minutes: an e-mail to somebody else arrives after those
    // that are not sent.
    for (minutes, sent) in [(60, 0), (36, 1), (24 * 60, 5)] {
        app.advance_clock(SignedDuration::from_mins(minutes));
        for _ in 0..6 {
            ask(&app, "ben@example.com").await;
        }
        ask(&app, "olivia@example.com").await;
        let mut emails = mail.take(sent + 1).await;
        emails.retain(|email| email["to"][0] == "ben@example.com");
        assert_eq!(emails.len(), sent, "{minutes} minutes");
    }
    app.advance_clock(SignedDuration::from_mins(1));

    let url = format!("{}/sign-in", app.console_url);
    let foreign = browser::foreign_post(&url, "email=ben%40example.com")
        .header("sec-fetch-site", "cross-site");
    assert_eq!(foreign.send().await.unwrap().status(), 403);
    let mut statuses = Vec::new();
    for number in 0..21 {
        statuses.push(ask(&app, &format!("{number}%40example.com")).await.0.status);
    }
    assert_eq!(statuses.last(), Some(&429), "one address asks too often");
    assert_eq!(mail.arrived(), Vec::<Value>::new());
}

/// An address that nobody verified gets none.
#[tokio::test]
async fn emails_tell_once_what_a_verified_user_has_to_know() {
    let mail = MailServer::start();
    let app = App::start(Setup::with(|settings| mail.configure(settings, ""))).await;
    app.set_console_sign_in(app.ben.user.id, false).await;
    let (page, _) = ask(&app, "ben@example.com").await;
    let (unknown, _) = ask(&app, "nobody@example.com").await;
    assert_eq!((page.status, &page.text), (unknown.status, &unknown.text));
    let connection = &app.ben.connections[0];
    app.change_consent(connection, ConsentState::Revoked).await;
    app.send_emails().await;
    app.set_console_sign_in(app.ben.user.id, true).await;
    ask(&app, "ben@example.com").await;
    let email = mail.take(1).await.remove(0);
    assert_eq!(email["subject"], "Sign in to Bellbird", "nothing before it");
    app.send_emails().await;
    let email = mail.take(1).await.remove(0);
    assert!(text(&email, "subject").starts_with("Reconnect "), "{email}");

    // What a user has to know comes once.
    let browser = app.sign_in(app.olivia.user.id).await;
    let page = browser.get("/settings").await;
    let boxes = page.text.matches("type=\"checkbox\"").count();
    assert_eq!(boxes, 2, "{}", page.text);
    let saved = browser.post("/settings", "emails=save&connection=on").await;
    assert_eq!(saved.status, 303, "{}", saved.text);
    let page = browser.get("/settings").await;
    assert_eq!(page.text.matches(" checked").count(), 1);
    // This one is always sent.
    app.send_emails().await;
    let subject = &mail.take(1).await[0]["subject"];
    assert_eq!(subject, "A new browser has signed in to Bellbird");

    let connection = &app.olivia.connections[0];
    let status = app.change_consent(connection, ConsentState::Revoked).await;
    assert_ne!(status, ConnectionStatus::Active);
    for _ in 0..2 {
        app.send_emails().await;
    }
    let email = mail.take(1).await.remove(0);
    let name = &connection.institution_name;
    assert_eq!(email["subject"], format!("Reconnect {name}"));
    let text = text(&email, "text");
    for page in ["connections", "settings"] {
        let url = format!("{}/{page}", app.console_url);
        assert!(text.contains(&url), "{text}");
    }
    let rest = text.replace(&app.console_url, "");
    let has_digits = rest.contains(|character: char| character.is_ascii_digit());
    assert!(!has_digits, "no amount, no account: {text}");

    // A thief who has one sign-in cannot suppress the e-mails, neither by signing out nor by the
    // settings.
    let browser = app.sign_in(app.ben.user.id).await;
    assert_eq!(browser.post("/keys", "name=Spreadsheet").await.status, 200);
    assert_eq!(browser.post("/settings", "emails=save").await.status, 303);
    assert_eq!(browser.post("/sign-out", "").await.status, 303);
    app.send_emails().await;
    let emails = mail.take(2).await;
    let subjects = emails.iter().map(|email| email["subject"].as_str());
    let subjects: BTreeSet<&str> = subjects.map(Option::unwrap).collect();
    let expected = [
        "A new API key can read your accounts",
        "A new browser has signed in to Bellbird",
    ];
    assert_eq!(subjects, BTreeSet::from(expected));
    app.send_emails().await;
    assert_eq!(mail.arrived(), Vec::<Value>::new(), "once");
}

/// It would sign nobody in.
#[tokio::test]
async fn operator_who_has_to_use_the_identity_provider_gets_no_link() {
    let mail = MailServer::start();
    let app = App::start(Setup::with(|settings| {
        mail.configure(settings, "");
        settings.pages.oidc = Some(provider_of_operators());
    }))
    .await;
    app.set_operator(app.ben.user.id, true).await;
    ask(&app, "ben@example.com").await;
    ask(&app, "olivia@example.com").await;
    let email = mail.take(1).await.remove(0);
    assert_eq!(email["to"], json!(["olivia@example.com"]));
}

#[tokio::test]
async fn what_a_mail_server_does_not_take_is_sent_later() {
    let mail = MailServer::start();
    let app = App::start(Setup::with(|settings| mail.configure(settings, ""))).await;
    for email in [
        "rejected@example.com",
        "busy@example.com",
        "new@example.com",
    ] {
        let user = app.add_user(email, Plan::Developer).await;
        app.sign_in(user.id).await;
    }
    app.send_emails().await;
    // One that fails does not stop the others.
    assert_eq!(mail.take(1).await[0]["to"][0], "new@example.com");
    mail.be_ready();
    app.send_emails().await;
    assert_eq!(mail.take(1).await[0]["to"][0], "busy@example.com");
    let due = app.due_emails().await;
    assert_eq!(due.len(), 0, "what is rejected waits for a day");

    drop(mail);
    let user = app.ben.user.id;
    app.sign_in(user).await;
    app.send_emails().await;
    // The server is down.
    let due = app.due_emails().await.into_iter();
    let users: Vec<UserId> = due.map(|email| email.key.user_id).collect();
    assert_eq!(users, [user]);
}

#[tokio::test]
async fn nothing_is_sent_without_the_tls_that_is_asked_for() {
    let mail = MailServer::start();
    let app = App::start(Setup::with(|settings| {
        mail.configure(settings, "?tls=required");
    }))
    .await;
    app.sign_in(app.ben.user.id).await;
    app.send_emails().await;
    assert_eq!(mail.arrived(), Vec::<Value>::new());
    assert_eq!(app.due_emails().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn browser_asks_for_a_link_and_opens_it() {
    let mail = MailServer::start();
    let app = App::start(Setup::with(|settings| mail.configure(settings, ""))).await;
    let mut browser = Browser::start();
    browser.size(1280, 800, false);
    browser.open(&format!("{}/sign-in", app.console_url));
    browser.assert_accessible("console-sign-in-by-email");
    browser.write("#email", "ben@example.com");
    browser.click("button.strong");
    browser.assert_accessible("console-sign-in-sent");
    browser.open(&link(&mail.take(1).await[0]));
    // No question: this browser has asked.
    let url = browser.url();
    assert!(url.ends_with("/keys?first"), "{url}");
    browser.click("nav a[href='/settings']");
    browser.assert_accessible("console-settings-emails");
    browser.press("input[name=endpoint]");
    browser.wait_for("!document.querySelector('input[name=endpoint]').checked");
    browser.click("button[name=emails]");
    let checked = browser.evaluate("document.querySelectorAll('input:checked').length");
    assert_eq!(checked, 1);
}
