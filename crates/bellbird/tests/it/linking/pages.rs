//! What the pages offer after a consent session: the same result again, the return to the link,
//! late accounts, and removal by the user.

use bellbird_connections::LinkTarget;
use bellbird_domain::ConnectionStatus;
use jiff::SignedDuration;
use reqwest::Url;
use serde_json::json;

use crate::support::browser::{
    answer_elsewhere, browse, browse_elsewhere, client, open, open_elsewhere, post, submit,
};
use crate::support::harness::{App, Setup, simulated_providers};

/// Starts a session at a provider from a link URL, answers its page, and returns the callback URL.
async fn callback_from(link_url: &str, provider: &str, answer: &str) -> Url {
    let form = format!("provider={provider}");
    let mut page = submit(link_url, &form).await.location();
    page.query_pairs_mut().append_pair("sandbox_auto", answer);
    open(&page).await.location()
}

fn token_of(link_url: &str) -> &str {
    link_url.rsplit('/').next().unwrap()
}

#[tokio::test]
async fn result_stays_the_same() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let (user, before) = (app.ben.user.id, app.connections_of(app.ben.user.id).await);
        let link_url = app.link_url(user, LinkTarget::UserChoice).await;
        let callback_url = callback_from(&link_url, provider, "accept").await;
        let shown = open(&callback_url).await;
        shown.assert_shows(200, "linked");
        let new = app.new_connections(user, &before).await;
        let account = &app.accounts_of(&new[0]).await[0];
        shown.assert_shows(200, &new[0].institution_name);
        shown.assert_shows(200, &account.name);
        for _ in 0..2 {
            assert_eq!(open(&callback_url).await.text, shown.text, "{provider}");
        }
        // Another browser sees the outcome, but no name.
        let elsewhere = open_elsewhere(&callback_url).await;
        elsewhere.assert_shows(200, "Your accounts are linked");
        for name in [&new[0].institution_name, &account.name] {
            elsewhere.assert_lacks(name.as_str());
        }
        for connection in new {
            app.remove(connection.id).await;
        }
        let shown = open(&callback_url).await;
        shown.assert_shows(200, "This is not linked any more");
    }
    let link_url = app.link_url(app.ben.user.id, LinkTarget::UserChoice).await;
    let failed = callback_from(&link_url, "fiskil", "error").await;
    let shown = open(&failed).await;
    shown.assert_shows(200, "Linking through Fiskil did not work");
    shown.assert_lacks("The provider could not complete it.");
    assert_eq!(open(&failed).await.text, shown.text);

    // For another browser that answers, too.
    for provider in simulated_providers() {
        let (user, before) = (app.ben.user.id, app.connections_of(app.ben.user.id).await);
        let callback_url = app.callback_url(user, provider, "accept").await;
        let answered = answer_elsewhere(&callback_url, "yes").await;
        let name = &app.new_connections(user, &before).await[0].institution_name;
        answered.assert_shows(200, name);
        let cookie = answered.headers["set-cookie"].to_str().unwrap();
        let cookie = cookie.split(';').next().unwrap();
        let reload = client().get(callback_url.as_str()).header("cookie", cookie);
        let reloaded = browse_elsewhere(reload).await;
        assert_eq!(reloaded.text, answered.text, "{provider}");
        // This browser has not had the link.
        reloaded.assert_lacks("value=\"again\"");
        open(&callback_url).await.assert_lacks(name);
    }
}

#[tokio::test]
async fn result_leads_back_to_a_link_of_the_same_user() {
    let app = App::start(Setup::default()).await;
    let user = app.ben.user.id;
    for (provider, answer, label) in [
        ("fiskil", "deny", "Try again"),
        ("akahu", "deny", "Try again"),
        ("snaptrade", "accept", "Back to your banks"),
    ] {
        let link_url = app.link_url(user, LinkTarget::UserChoice).await;
        let callback_url = callback_from(&link_url, provider, answer).await;
        let page = open(&callback_url).await;
        page.assert_shows(200, label);
        page.assert_lacks(token_of(&link_url));
        let again = || post(callback_url.as_str(), "answer=again");
        let cross_site = again().header("sec-fetch-site", "cross-site");
        assert_eq!(browse(cross_site).await.status, 403);
        assert_eq!(browse_elsewhere(again()).await.status, 410);
        let back = browse(again()).await;
        assert_eq!(back.status, 303, "{}", back.text);
        let location = back.headers["location"].to_str().unwrap();
        assert!(link_url.ends_with(location), "{provider}: {location}");

        // Another browser cannot return, and reads what to do.
        let elsewhere = open_elsewhere(&callback_url).await;
        elsewhere.assert_lacks("value=\"again\"");
    }

    let bens = app.link_url(app.ben.user.id, LinkTarget::UserChoice).await;
    let callback_url = callback_from(&bens, "fiskil", "deny").await;
    // The browser starts a session for another user, in another tab.
    let olivia = app.olivia.user.id;
    let olivias = app.link_url(olivia, LinkTarget::UserChoice).await;
    submit(&olivias, "provider=fiskil").await.location();
    let page = open(&callback_url).await;
    page.assert_shows(200, "open your link again");
    page.assert_lacks("value=\"again\"");
    assert_eq!(submit(&callback_url, "answer=again").await.status, 410);

    let bens_bank = LinkTarget::Connection(app.ben.connections[0].id);
    let repair = app.link_url(app.ben.user.id, bens_bank).await;
    let declined = app.answer_consent_page(&repair, "deny").await;
    open(declined).await.assert_shows(200, "Try again");
    let failed = open(app.answer_consent_page(&repair, "error").await).await;
    let name = &app.ben.connections[0].institution_name;
    failed.assert_shows(200, &format!("Reconnecting {name} did not work"));
    let repaired = app.answer_consent_page(&repair, "accept").await;
    let repaired = open(repaired).await;
    repaired.assert_shows(200, "is reconnected");
    repaired.assert_lacks("value=\"again\"");
    // An expired link leads nowhere.
    app.advance_clock(SignedDuration::from_mins(31));
    assert_eq!(submit(&callback_url, "answer=again").await.status, 410);
}

#[tokio::test]
async fn pages_name_connections_and_accounts_that_come_late() {
    let app = App::start(Setup::default()).await;
    let user = app.olivia.user.id;
    let page = open(&app.link_url(user, LinkTarget::UserChoice).await).await;
    // The tests start at 20:30 in Sydney.
    page.assert_shows(200, ">21:00 Sydney time</time>");
    for connection in &app.olivia.connections {
        let accounts = app.accounts_of(connection).await;
        for account in &accounts {
            page.assert_shows(200, &account.name);
        }
        if accounts.len() > 1 {
            page.assert_shows(200, &format!("<bdi>{} accounts</bdi>", accounts.len()));
        }
    }
    page.assert_shows(200, "class=\"number\">xxxx");
    // The logos are those of a sandbox that runs elsewhere, and the policy names its origin.
    let (_, logo) = page
        .text
        .split_once("<img src=\"http://127.0.0.1:")
        .expect("a logo");
    let logo: Url = format!("http://127.0.0.1:{}", logo.split('"').next().unwrap())
        .parse()
        .unwrap();
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    let origin = logo.origin().ascii_serialization();
    let images = format!("img-src 'self' data: {origin}; ");
    assert!(policy.contains(&images), "{policy}");
    let image = open(&logo).await;
    assert_eq!(image.status, 200);
    assert_eq!(image.headers["content-type"], "image/svg+xml");
    for words in ["bellbird connection", app.url.as_str()] {
        page.assert_lacks(words);
    }

    // Late accounts fill in.
    app.set_options("fiskil", &json!({"lagSeconds": 60}));
    let (user, before) = (app.ben.user.id, app.connections_of(app.ben.user.id).await);
    let link_url = app.link_url(user, LinkTarget::UserChoice).await;
    let callback_url = callback_from(&link_url, "fiskil", "accept").await;
    let early = open(&callback_url).await;
    early.assert_shows(200, "not listed the accounts yet");
    assert_eq!(early.headers["refresh"], "5");
    let linked = app.new_connections(user, &before).await.remove(0);
    assert_eq!(linked.status, ConnectionStatus::Active);
    assert!(app.accounts_of(&linked).await.is_empty());
    app.run_jobs_after(SignedDuration::from_secs(20)).await;
    assert!(app.accounts_of(&linked).await.is_empty(), "not yet");
    app.run_jobs_after(SignedDuration::from_secs(60)).await;
    assert!(!app.accounts_of(&linked).await.is_empty());
    let late = open(&callback_url).await;
    late.assert_shows(200, "class=\"number\"");
    assert!(!late.headers.contains_key("refresh"));

    // The page stops to refresh if none come.
    app.set_options("fiskil", &json!({"lagSeconds": 7200}));
    let link_url = app
        .link_url(app.olivia.user.id, LinkTarget::UserChoice)
        .await;
    let callback_url = callback_from(&link_url, "fiskil", "accept").await;
    assert!(open(&callback_url).await.headers.contains_key("refresh"));
    app.advance_clock(SignedDuration::from_mins(11));
    let page = open(&callback_url).await;
    page.assert_shows(200, "listed no accounts yet");
    assert!(!page.headers.contains_key("refresh"));
}

#[tokio::test]
async fn user_removes_a_connection() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let email = format!("{provider}.remover@example.com");
        let (user, linked) = app.linked_user(&email, provider).await;
        let (id, name) = (linked[0].id, linked[0].institution_name.as_str());
        let link_url = app.link_url(user, LinkTarget::UserChoice).await;
        let (ask, confirm) = (format!("remove={id}"), format!("confirm-removal={id}"));
        let button = format!("name=\"remove\" value=\"{id}\"");
        open(&link_url).await.assert_shows(200, &button);
        let asked = submit(&link_url, &ask).await;
        asked.assert_shows(200, &format!("Remove {name}?"));
        asked.assert_shows(200, &email);
        let cross_site = post(&link_url, &confirm).header("sec-fetch-site", "cross-site");
        assert_eq!(browse(cross_site).await.status, 403);
        // Nothing was removed yet.
        let status = app.connection(user, id).await.status;
        assert_eq!(status, ConnectionStatus::Active);

        let removed = submit(&link_url, &confirm).await;
        removed.assert_shows(200, &format!("{name} is removed"));
        removed.assert_has("<span class=\"badge\">Sandbox</span></h1>");
        let left = app.connections_of(user).await.len();
        assert_eq!(left, linked.len() - 1, "{provider}: hidden at once");
        app.connections.jobs().run_due("removal").await.unwrap();
        assert_eq!(app.removals().await.len(), 0, "{provider}: withdrawn");
        let audit = app.audit_of(id).await.into_iter();
        let causes: Vec<String> = audit.map(|row| row.cause).collect();
        assert_eq!(causes, ["linked", "removed", "deleted"], "{provider}");
        let rows = app.storage.audit().list_before(None, Some(user), 1).await;
        let rows = rows.unwrap();
        let (action, subject) = (&rows[0].action, rows[0].subject.as_deref());
        assert_eq!(action, "connection.remove", "{provider}");
        assert_eq!(subject, Some(&*id.to_string()), "{provider}");
        let again = submit(&link_url, &confirm).await;
        again.assert_shows(404, "removed already");
    }

    // A link removes only what it is for.
    let user = app.olivia.user.id;
    let (own, other) = (app.olivia.connections[0].id, app.olivia.connections[1].id);
    let provider = app.link_url(user, LinkTarget::Provider("fiskil")).await;
    let repair = app.link_url(user, LinkTarget::Connection(own)).await;
    let bens = app.link_url(app.ben.user.id, LinkTarget::UserChoice).await;
    for (link_url, id, status) in [
        (&provider, own, 410),
        (&repair, other, 410),
        (&bens, own, 404),
    ] {
        for field in ["remove", "confirm-removal"] {
            let refused = submit(link_url, &format!("{field}={id}")).await;
            assert_eq!(refused.status, status, "{field}");
        }
    }
    assert_eq!(app.connections_of(user).await.len(), 2);
    let removed = submit(&repair, &format!("confirm-removal={own}")).await;
    removed.assert_shows(200, "is removed");
    // The link was for this connection.
    open(&repair).await.assert_shows(404, "has been removed");
    let choice = app.link_url(user, LinkTarget::UserChoice).await;
    app.advance_clock(SignedDuration::from_mins(31));
    let expired = submit(&choice, &format!("confirm-removal={other}")).await;
    assert_eq!(expired.status, 410);
    assert_eq!(app.connections_of(user).await.len(), 1);
}
