//! What the pages offer after a consent session: the same result again, the return to the link,
//! late accounts, and removal by the user.

use bellbird_connections::LinkTarget;
use bellbird_domain::{ConnectionStatus, Plan};
use bellbird_storage::in_tx;
use jiff::SignedDuration;
use reqwest::Url;
use serde_json::json;

use crate::support::browser::{
    answer_elsewhere, browse, browse_elsewhere, client, open, open_elsewhere, post,
};
use crate::support::harness::{App, Setup, simulated_providers};

/// Starts a session at a provider from a link URL, answers its page, and returns the callback URL.
async fn callback_from(link_url: &str, provider: &str, answer: &str) -> Url {
    let mut page = browse(post(link_url, &format!("provider={provider}")))
        .await
        .location();
    page.query_pairs_mut().append_pair("sandbox_auto", answer);
    open(&page).await.location()
}

fn token_of(link_url: &str) -> &str {
    link_url.rsplit('/').next().unwrap()
}

#[tokio::test]
async fn result_stays_the_same_on_reload() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let (user, before) = (app.ben.user.id, app.connections_of(app.ben.user.id).await);
        let link_url = app.link_url(user, LinkTarget::UserChoice).await;
        let callback_url = callback_from(&link_url, provider, "accept").await;
        let shown = open(&callback_url).await;
        shown.assert_shows(200, "linked");
        let mut new = app.connections_of(user).await;
        new.retain(|connection| !before.contains(connection));
        let account = &app.accounts_of(&new[0]).await[0];
        shown.assert_shows(200, &new[0].institution_name);
        shown.assert_shows(200, &account.name);
        for _ in 0..2 {
            assert_eq!(open(&callback_url).await.text, shown.text, "{provider}");
        }
        // Another browser sees the outcome, but no name.
        let elsewhere = open_elsewhere(callback_url.as_str()).await;
        elsewhere.assert_shows(200, "Your accounts are linked");
        for name in [&new[0].institution_name, &account.name] {
            assert!(
                !elsewhere.text.contains(name.as_str()),
                "{provider}: {}",
                elsewhere.text
            );
        }
        for connection in new {
            app.remove(connection.id).await;
        }
        open(&callback_url)
            .await
            .assert_shows(200, "Nothing is linked any more");
    }
    let link_url = app.link_url(app.ben.user.id, LinkTarget::UserChoice).await;
    let failed = callback_from(&link_url, "fiskil", "error").await;
    let shown = open(&failed).await;
    shown.assert_shows(200, "That did not work");
    assert!(
        !shown.text.contains("The provider could not complete it."),
        "a reason: {}",
        shown.text
    );
    assert_eq!(open(&failed).await.text, shown.text);
}

#[tokio::test]
async fn browser_that_answers_sees_the_result_again() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let before = app.connections_of(app.ben.user.id).await;
        let link_url = app
            .link_url(app.ben.user.id, LinkTarget::Provider(provider))
            .await;
        let callback_url = app.answer_consent_page(&link_url, "accept").await;
        let answered = answer_elsewhere(callback_url.as_str(), "yes").await;
        let mut new = app.connections_of(app.ben.user.id).await;
        new.retain(|connection| !before.contains(connection));
        let name = new.remove(0).institution_name;
        answered.assert_shows(200, &name);
        let cookie = answered.headers["set-cookie"]
            .to_str()
            .unwrap()
            .split(';')
            .next()
            .unwrap()
            .to_owned();
        let reloaded =
            browse_elsewhere(client().get(callback_url.as_str()).header("cookie", cookie)).await;
        assert_eq!(reloaded.text, answered.text, "{provider}");
        assert!(
            !reloaded.text.contains("value=\"again\""),
            "this browser has not had the link"
        );
        assert!(
            !open(&callback_url).await.text.contains(&name),
            "{provider}"
        );
    }
}

#[tokio::test]
async fn result_leads_back_to_the_link() {
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
        assert!(
            !page.text.contains(token_of(&link_url)),
            "the token is a secret: {}",
            page.text
        );
        let again = post(callback_url.as_str(), "answer=again");
        let cross_site =
            post(callback_url.as_str(), "answer=again").header("sec-fetch-site", "cross-site");
        assert_eq!(browse(cross_site).await.status, 403);
        assert_eq!(
            browse_elsewhere(post(callback_url.as_str(), "answer=again"))
                .await
                .status,
            410
        );
        let back = browse(again).await;
        assert_eq!(back.status, 303, "{}", back.text);
        assert!(
            link_url.ends_with(back.headers["location"].to_str().unwrap()),
            "{provider}"
        );

        // Another browser cannot return, and reads what to do.
        let elsewhere = open_elsewhere(callback_url.as_str()).await;
        assert!(
            !elsewhere.text.contains("value=\"again\""),
            "{}",
            elsewhere.text
        );
    }
}

#[tokio::test]
async fn result_leads_back_to_a_link_of_the_same_user_only() {
    let app = App::start(Setup::default()).await;
    let bens = app.link_url(app.ben.user.id, LinkTarget::UserChoice).await;
    let callback_url = callback_from(&bens, "fiskil", "deny").await;
    // The browser starts a session for another user, in another tab.
    let olivias = app
        .link_url(app.olivia.user.id, LinkTarget::UserChoice)
        .await;
    browse(post(&olivias, "provider=fiskil")).await.location();
    let page = open(&callback_url).await;
    page.assert_shows(200, "open your link again");
    assert!(!page.text.contains("value=\"again\""), "{}", page.text);
    assert_eq!(
        browse(post(callback_url.as_str(), "answer=again"))
            .await
            .status,
        410
    );

    let repair = app
        .link_url(
            app.ben.user.id,
            LinkTarget::Connection(app.ben.connections[0].id),
        )
        .await;
    let declined = open(app.answer_consent_page(&repair, "deny").await.as_str()).await;
    declined.assert_shows(200, "Try again");
    let repaired = open(app.answer_consent_page(&repair, "accept").await.as_str()).await;
    repaired.assert_shows(200, "is reconnected");
    assert!(
        !repaired.text.contains("value=\"again\""),
        "this link connects nothing else: {}",
        repaired.text
    );
    // An expired link leads nowhere.
    app.advance_clock(SignedDuration::from_mins(31));
    assert_eq!(
        browse(post(callback_url.as_str(), "answer=again"))
            .await
            .status,
        410
    );
}

#[tokio::test]
async fn late_accounts_fill_in() {
    let app = App::start(Setup::default()).await;
    app.fiskil()
        .set_options(&json!({"lagSeconds": 60}))
        .unwrap();
    let link_url = app.link_url(app.ben.user.id, LinkTarget::UserChoice).await;
    let callback_url = callback_from(&link_url, "fiskil", "accept").await;
    let early = open(&callback_url).await;
    early.assert_shows(200, "not listed the accounts yet");
    assert_eq!(early.headers["refresh"], "5");
    app.advance_clock(SignedDuration::from_secs(90));
    app.run_due_jobs().await;
    let late = open(&callback_url).await;
    assert!(
        late.headers.get("refresh").is_none() && late.text.contains("class=\"number\""),
        "{}",
        late.text
    );
}

#[tokio::test]
async fn page_without_accounts_stops_to_refresh() {
    let app = App::start(Setup::default()).await;
    app.fiskil()
        .set_options(&json!({"lagSeconds": 7200}))
        .unwrap();
    let link_url = app.link_url(app.ben.user.id, LinkTarget::UserChoice).await;
    let callback_url = callback_from(&link_url, "fiskil", "accept").await;
    assert!(open(&callback_url).await.headers.contains_key("refresh"));
    app.advance_clock(SignedDuration::from_mins(11));
    let page = open(&callback_url).await;
    page.assert_shows(200, "listed no accounts yet");
    assert!(!page.headers.contains_key("refresh"));
}

#[tokio::test]
async fn link_page_distinguishes_connections_in_the_users_time() {
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
    assert!(page.text.contains("class=\"number\">xxxx"), "{}", page.text);
    // The logos are those of a sandbox that runs elsewhere, and the policy names its origin.
    let logo = page
        .text
        .split_once("<img src=\"http://127.0.0.1:")
        .expect("a logo")
        .1
        .split('"')
        .next()
        .unwrap();
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    let origin = format!(" http://127.0.0.1:{}", logo.split('/').next().unwrap());
    assert!(
        policy.contains(&format!("img-src 'self' data:{origin}; ")),
        "{policy}"
    );
    let image = browse(client().get(format!("http://127.0.0.1:{logo}"))).await;
    assert_eq!(
        (
            image.status,
            image.headers["content-type"].to_str().unwrap()
        ),
        (200, "image/svg+xml")
    );
    for words in ["bellbird connection", app.url.as_str()] {
        assert!(!page.text.contains(words), "{words}: {}", page.text);
    }
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
        open(&link_url)
            .await
            .assert_shows(200, &format!("name=\"remove\" value=\"{id}\""));
        let asked = browse(post(&link_url, &ask)).await;
        asked.assert_shows(200, &format!("Remove {name}?"));
        asked.assert_shows(200, &email);
        let cross_site = post(&link_url, &confirm).header("sec-fetch-site", "cross-site");
        assert_eq!(browse(cross_site).await.status, 403);
        let still = app
            .storage
            .connections()
            .find(user, id)
            .await
            .unwrap()
            .expect("nothing was removed yet");
        assert_eq!(still.status, ConnectionStatus::Active);

        browse(post(&link_url, &confirm))
            .await
            .assert_shows(200, &format!("{name} is removed"));
        assert_eq!(
            app.connections_of(user).await.len(),
            linked.len() - 1,
            "{provider}: hidden at once"
        );
        app.connections.jobs().run_due("removal").await.unwrap();
        assert_eq!(app.removals().await.len(), 0, "{provider}: withdrawn");
        let causes: Vec<String> = app
            .audit_of(id)
            .await
            .into_iter()
            .map(|row| row.cause)
            .collect();
        assert_eq!(
            causes,
            ["linked", "removed_by_user", "deleted"],
            "{provider}"
        );
        browse(post(&link_url, &confirm))
            .await
            .assert_shows(404, "removed already");
    }
}

#[tokio::test]
async fn link_removes_only_what_it_is_for() {
    let app = App::start(Setup::default()).await;
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
            assert_eq!(
                browse(post(link_url, &format!("{field}={id}")))
                    .await
                    .status,
                status,
                "{field}"
            );
        }
    }
    assert_eq!(app.connections_of(user).await.len(), 2);
    browse(post(&repair, &format!("confirm-removal={own}")))
        .await
        .assert_shows(200, "is removed");
    // The link was for this connection.
    open(&repair).await.assert_shows(404, "has been removed");
    let choice = app.link_url(user, LinkTarget::UserChoice).await;
    app.advance_clock(SignedDuration::from_mins(31));
    assert_eq!(
        browse(post(&choice, &format!("confirm-removal={other}")))
            .await
            .status,
        410
    );
    assert_eq!(app.connections_of(user).await.len(), 1);
}

#[tokio::test]
async fn link_of_a_removed_user_says_so_at_once() {
    let app = App::start(Setup::default()).await;
    let person = app
        .add_person("leaving@example.com", Plan::Professional, &[])
        .await;
    let link_url = app.link_url(person.user.id, LinkTarget::UserChoice).await;
    in_tx!(app.storage, user::delete(person.user.id, app.clock.now()))
        .await
        .unwrap();
    let page = open(&link_url).await;
    page.assert_shows(404, "This link does not work");
    assert!(!page.text.contains("<button"), "{}", page.text);
}
