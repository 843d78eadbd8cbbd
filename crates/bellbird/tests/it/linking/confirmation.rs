//! Whose consent it is: pages that name the user, the cookie of a browser, the question in any
//! other browser, and the denial afterwards.

use bellbird_connections::LinkTarget;
use bellbird_domain::UserId;
use bellbird_sandbox::ConsentState;
use jiff::SignedDuration;
use reqwest::Url;

use crate::support::browser::{
    BrowserPage, answer_elsewhere, browse, browse_elsewhere, client, open, open_elsewhere, post,
    start,
};
use crate::support::harness::{App, Setup, simulated_providers};

const QUESTION: &str = "Is that you?";
const WITHDRAWN: &str = "This user has no access to your accounts";
const DENY_BUTTON: &str = "This was not me";

/// The routes with which consents are withdrawn.
const WITHDRAWALS: [&str; 3] = [
    "/v1/consent/{arrangement_id}",
    "/v1/authorisations/{id}",
    "/connection/{id}",
];

/// Linking by Ben, up to the callback, which is not opened yet.
async fn callback_of_ben(app: &App, provider: &str) -> Url {
    app.callback_url(app.ben.user.id, provider, "accept").await
}

/// Runs the removals. Returns the audit trail's causes of those that were waiting.
async fn complete_removals(app: &App) -> Vec<String> {
    let removals = app.removals().await;
    app.connections.jobs().run_due("removal").await.unwrap();
    assert_eq!(app.removals().await.len(), 0);
    let mut causes = Vec::new();
    for removal in removals {
        let audit = app.audit_of(removal.connection.id).await;
        let hidden = audit
            .iter()
            .find(|row| row.to.is_some_and(|to| to.as_str() == "deleting"));
        causes.push(hidden.expect("an audit row").cause.clone());
    }
    causes
}

async fn count_of(app: &App, user: UserId) -> usize {
    app.connections_of(user).await.len()
}

/// The button of the only session that the page of a link URL offers to confirm.
fn session_button(page: &BrowserPage) -> String {
    let (_, rest) = page
        .text
        .split_once("name=\"session\"")
        .expect("a session to confirm");
    format!("session={}", rest.split('"').nth(1).unwrap())
}

#[tokio::test]
async fn opening_a_link_url_uses_nothing_up() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        app.reset_calls();
        let link_url = app
            .link_url(app.ben.user.id, LinkTarget::Provider(provider))
            .await;
        for _ in 0..25 {
            open_elsewhere(&link_url)
                .await
                .assert_shows(200, "ben@example.com");
            assert_eq!(browse_elsewhere(client().head(&link_url)).await.status, 200);
        }
        assert_eq!(
            app.bank(provider).total_calls(),
            0,
            "{provider}: the user is not registered"
        );
        let page = open(&link_url).await;
        assert!(page.headers.get("set-cookie").is_none());
        start(&link_url).await.location();
    }
    let connection = &app.ben.connections[0];
    let link_url = app
        .link_url(app.ben.user.id, LinkTarget::Connection(connection.id))
        .await;
    let page = open(&link_url).await;
    page.assert_shows(200, &connection.institution_name);
    page.assert_shows(200, "ben@example.com");
}

#[tokio::test]
async fn another_browser_is_asked_first() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let (user, before) = (app.ben.user.id, count_of(&app, app.ben.user.id).await);
        let callback_url = callback_of_ben(&app, provider).await;
        app.reset_calls();
        for _ in 0..2 {
            let page = open_elsewhere(callback_url.as_str()).await;
            page.assert_shows(200, QUESTION);
            page.assert_shows(200, "ben@example.com");
            assert_eq!(
                page.text.contains("within a minute"),
                provider == "akahu",
                "{provider}"
            );
        }
        assert_eq!(
            app.bank(provider).total_calls(),
            0,
            "{provider}: the code is not exchanged"
        );
        app.run_due_jobs().await;
        assert_eq!(count_of(&app, user).await, before, "{provider}");
        let cross_site =
            post(callback_url.as_str(), "answer=yes").header("sec-fetch-site", "cross-site");
        assert_eq!(browse_elsewhere(cross_site).await.status, 403, "{provider}");
        assert_eq!(
            answer_elsewhere(callback_url.as_str(), "maybe")
                .await
                .status,
            400,
            "{provider}"
        );
        assert_eq!(count_of(&app, user).await, before, "{provider}");

        let shown = answer_elsewhere(callback_url.as_str(), "yes").await;
        shown.assert_shows(200, "linked");
        shown.assert_shows(200, "ben@example.com");
        assert!(count_of(&app, user).await > before, "{provider}");
        open_elsewhere(callback_url.as_str())
            .await
            .assert_shows(200, "linked");
    }
}

#[tokio::test]
async fn denied_consent_is_withdrawn() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let (user, before) = (app.ben.user.id, count_of(&app, app.ben.user.id).await);
        let callback_url = callback_of_ben(&app, provider).await;
        app.reset_calls();
        answer_elsewhere(callback_url.as_str(), "no")
            .await
            .assert_shows(200, WITHDRAWN);
        assert_eq!(
            count_of(&app, user).await,
            before,
            "{provider}: hidden at once"
        );
        let causes = complete_removals(&app).await;
        assert!(
            !causes.is_empty() && causes.iter().all(|cause| cause == "denied"),
            "{provider}: {causes:?}"
        );
        let calls = app.bank(provider).calls();
        assert!(
            WITHDRAWALS.iter().any(|route| calls.contains_key(*route)),
            "{provider}: {calls:?}"
        );
        // The browser that started the session cannot confirm it any more.
        open(&callback_url).await.assert_shows(200, WITHDRAWN);
        answer_elsewhere(callback_url.as_str(), "yes")
            .await
            .assert_shows(200, WITHDRAWN);
        app.advance_clock(SignedDuration::from_mins(40));
        app.run_due_jobs().await;
        assert_eq!(count_of(&app, user).await, before, "{provider}");
    }
}

#[tokio::test]
async fn unconfirmed_consent_is_withdrawn_at_its_end() {
    let app = App::start(Setup::default()).await;
    for provider in ["fiskil", "snaptrade"] {
        let (user, before) = (app.ben.user.id, count_of(&app, app.ben.user.id).await);
        let callback_url = callback_of_ben(&app, provider).await;
        open_elsewhere(callback_url.as_str())
            .await
            .assert_shows(200, QUESTION);
        for _ in 0..4 {
            app.advance_clock(SignedDuration::from_mins(7));
            app.connections
                .jobs()
                .run_due("consent_session")
                .await
                .unwrap();
            assert_eq!(
                count_of(&app, user).await,
                before,
                "{provider}: not readable"
            );
            assert_eq!(
                app.removals().await.len(),
                0,
                "{provider}: not withdrawn yet"
            );
        }
        app.advance_clock(SignedDuration::from_mins(7));
        app.connections
            .jobs()
            .run_due("consent_session")
            .await
            .unwrap();
        assert_eq!(complete_removals(&app).await, ["unconfirmed"], "{provider}");
        assert_eq!(count_of(&app, user).await, before, "{provider}");
        open(&callback_url).await.assert_shows(200, WITHDRAWN);
    }
}

#[tokio::test]
async fn link_page_confirms_a_session_of_its_browser() {
    let app = App::start(Setup::default()).await;
    for provider in ["fiskil", "snaptrade"] {
        let (user, before) = (app.ben.user.id, count_of(&app, app.ben.user.id).await);
        let link_url = app.link_url(user, LinkTarget::UserChoice).await;
        let mut page = browse(post(&link_url, &format!("provider={provider}")))
            .await
            .location();
        page.query_pairs_mut().append_pair("sandbox_auto", "accept");
        let callback_url = open(&page).await.location();
        assert!(
            !open_elsewhere(&link_url)
                .await
                .text
                .contains("Not finished yet"),
            "another browser"
        );
        let form = session_button(&open(&link_url).await);
        assert_eq!(
            browse_elsewhere(post(&link_url, &form)).await.status,
            400,
            "no cookie"
        );
        assert_eq!(count_of(&app, user).await, before, "{provider}");

        let confirmed = browse(post(&link_url, &form)).await;
        assert_eq!(confirmed.status, 303, "{}", confirmed.text);
        assert!(count_of(&app, user).await > before, "{provider}");
        let page = open(&link_url).await;
        assert!(!page.text.contains("Not finished yet"), "{provider}");
        page.assert_shows(200, &app.connections_of(user).await[0].institution_name);
        assert_eq!(
            browse(post(&link_url, &form)).await.status,
            410,
            "confirmed already"
        );

        // The person who gave the consent is asked all the same, and can deny it.
        open_elsewhere(callback_url.as_str())
            .await
            .assert_shows(200, QUESTION);
        answer_elsewhere(callback_url.as_str(), "no")
            .await
            .assert_shows(200, WITHDRAWN);
        assert_eq!(count_of(&app, user).await, before, "{provider}");
        complete_removals(&app).await;
    }
}

#[tokio::test]
async fn linked_connection_can_be_denied_once() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let (user, before) = (app.ben.user.id, count_of(&app, app.ben.user.id).await);
        let callback_url = callback_of_ben(&app, provider).await;
        let shown = open(&callback_url).await;
        shown.assert_shows(200, DENY_BUTTON);
        shown.assert_shows(200, "ben@example.com");
        assert!(count_of(&app, user).await > before, "{provider}");
        // The callback URL shows it in any browser.
        open_elsewhere(callback_url.as_str())
            .await
            .assert_shows(200, DENY_BUTTON);
        answer_elsewhere(callback_url.as_str(), "no")
            .await
            .assert_shows(200, WITHDRAWN);
        assert_eq!(count_of(&app, user).await, before, "{provider}");
        assert!(
            complete_removals(&app)
                .await
                .iter()
                .all(|cause| cause == "denied"),
            "{provider}"
        );
        let again = answer_elsewhere(callback_url.as_str(), "no").await;
        again.assert_shows(200, WITHDRAWN);
        assert!(!again.text.contains(DENY_BUTTON), "{provider}");

        // A day later it is too late.
        let callback_url = callback_of_ben(&app, provider).await;
        open(&callback_url).await.assert_shows(200, DENY_BUTTON);
        let linked = count_of(&app, user).await;
        app.advance_clock(SignedDuration::from_hours(24));
        assert!(
            !open(&callback_url).await.text.contains(DENY_BUTTON),
            "{provider}"
        );
        answer_elsewhere(callback_url.as_str(), "no")
            .await
            .assert_shows(400, "Nothing was changed");
        assert_eq!(count_of(&app, user).await, linked, "{provider}");
    }
}

#[tokio::test]
async fn denied_reconnect_removes_the_connection() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let (user, linked) = app
            .linked_user(&format!("{provider}.again@example.com"), provider)
            .await;
        app.set_consent(&linked[0], ConsentState::Revoked).await;
        app.refresh(user, linked[0].id).await;
        let link_url = app
            .link_url(user, LinkTarget::Connection(linked[0].id))
            .await;
        let callback_url = app.answer_consent_page(&link_url, "accept").await;
        open(&callback_url).await.assert_shows(200, DENY_BUTTON);
        answer_elsewhere(callback_url.as_str(), "no")
            .await
            .assert_shows(200, WITHDRAWN);
        assert!(
            app.storage
                .connections()
                .find(user, linked[0].id)
                .await
                .unwrap()
                .is_none(),
            "{provider}"
        );
        assert!(
            complete_removals(&app).await.contains(&"denied".to_owned()),
            "{provider}"
        );
    }
}

#[tokio::test]
async fn user_who_declined_elsewhere_removes_nothing() {
    let app = App::start(Setup::default()).await;
    for provider in ["fiskil", "snaptrade"] {
        let (user, linked) = app
            .linked_user(&format!("{provider}.heals@example.com"), provider)
            .await;
        app.set_consent(&linked[0], ConsentState::Revoked).await;
        app.refresh(user, linked[0].id).await;
        let link_url = app
            .link_url(user, LinkTarget::Connection(linked[0].id))
            .await;
        let callback_url = app.answer_consent_page(&link_url, "deny").await;
        // The same consent becomes active again while the user declines a new one.
        app.set_consent(&linked[0], ConsentState::Active).await;
        open_elsewhere(callback_url.as_str())
            .await
            .assert_shows(200, "did not give your consent");
        assert!(
            app.storage
                .connections()
                .find(user, linked[0].id)
                .await
                .unwrap()
                .is_some(),
            "{provider}"
        );
    }
}

#[tokio::test]
async fn user_who_declined_is_not_asked() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let link_url = app
            .link_url(app.ben.user.id, LinkTarget::Provider(provider))
            .await;
        let callback_url = app.answer_consent_page(&link_url, "deny").await;
        open_elsewhere(callback_url.as_str())
            .await
            .assert_shows(200, "did not give your consent");
    }
}
