//! Whose consent it is: pages that name the user, the cookie of a browser, the question in any
//! other browser, and the denial afterwards.

use bellbird_connections::LinkTarget;
use bellbird_domain::{Plan, UserId};
use bellbird_sandbox::{ConsentState, Fault, FaultKind};
use jiff::SignedDuration;
use reqwest::Url;

use crate::support::browser::{
    answer_elsewhere, browse_elsewhere, client, open, open_elsewhere, post, start, submit,
};
use crate::support::harness::{App, Setup, eventually, simulated_providers};

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

/// Says in another browser that it was somebody else, which withdraws the consent.
async fn deny(callback_url: &Url) {
    let denied = answer_elsewhere(callback_url, "no").await;
    denied.assert_shows(200, WITHDRAWN);
}

#[tokio::test]
async fn link_is_not_used_up_and_another_browser_is_asked() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        app.reset_calls();
        let user = app.ben.user.id;
        let link_url = app.link_url(user, LinkTarget::Provider(provider)).await;
        for _ in 0..25 {
            let page = open_elsewhere(&link_url).await;
            page.assert_shows(200, "ben@example.com");
            assert_eq!(browse_elsewhere(client().head(&link_url)).await.status, 200);
        }
        let calls = app.bank(provider).total_calls();
        assert_eq!(calls, 0, "{provider}: the user is not registered");
        let page = open(&link_url).await;
        assert!(!page.headers.contains_key("set-cookie"));
        start(&link_url).await.location();
    }
    let connection = &app.ben.connections[0];
    let bank = LinkTarget::Connection(connection.id);
    let link_url = app.link_url(app.ben.user.id, bank).await;
    let page = open(&link_url).await;
    page.assert_shows(200, &connection.institution_name);
    page.assert_shows(200, "ben@example.com");

    // Another browser returns.
    for provider in simulated_providers() {
        let (user, before) = (app.ben.user.id, count_of(&app, app.ben.user.id).await);
        let callback_url = callback_of_ben(&app, provider).await;
        app.reset_calls();
        for _ in 0..2 {
            let page = open_elsewhere(&callback_url).await;
            page.assert_shows(200, QUESTION);
            page.assert_shows(200, "ben@example.com");
            let is_urgent = page.text.contains("within a minute");
            assert_eq!(is_urgent, provider == "akahu", "{provider}");
        }
        let calls = app.bank(provider).total_calls();
        assert_eq!(calls, 0, "{provider}: the code is not exchanged");
        app.run_due_jobs().await;
        assert_eq!(count_of(&app, user).await, before, "{provider}");
        let cross_site =
            post(callback_url.as_str(), "answer=yes").header("sec-fetch-site", "cross-site");
        assert_eq!(browse_elsewhere(cross_site).await.status, 403, "{provider}");
        let unclear = answer_elsewhere(&callback_url, "maybe").await;
        assert_eq!(unclear.status, 400, "{provider}");
        assert_eq!(count_of(&app, user).await, before, "{provider}");

        let shown = answer_elsewhere(&callback_url, "yes").await;
        shown.assert_shows(200, "linked");
        shown.assert_shows(200, "ben@example.com");
        assert!(count_of(&app, user).await > before, "{provider}");
        let again = open_elsewhere(&callback_url).await;
        again.assert_shows(200, "linked");
    }
}

#[tokio::test]
async fn denial_withdraws_what_was_given() {
    let app = App::start(Setup::default()).await;
    denial_ends_a_session_that_waits_for_accounts(&app).await;
    user_who_declined_is_not_asked_and_removes_nothing(&app).await;
    denied_consent_is_withdrawn(&app).await;
    denied_reconnect_removes_the_connection(&app).await;
}

async fn denied_consent_is_withdrawn(app: &App) {
    for provider in simulated_providers() {
        let (user, before) = (app.ben.user.id, count_of(app, app.ben.user.id).await);
        let callback_url = callback_of_ben(app, provider).await;
        app.reset_calls();
        deny(&callback_url).await;
        let left = count_of(app, user).await;
        assert_eq!(left, before, "{provider}: hidden at once");
        let causes = complete_removals(app).await;
        let are_denied = causes.iter().all(|cause| cause == "denied");
        assert!(!causes.is_empty() && are_denied, "{provider}: {causes:?}");
        let calls = app.bank(provider).calls();
        let mut routes = WITHDRAWALS.iter();
        let is_withdrawn = routes.any(|route| calls.contains_key(*route));
        assert!(is_withdrawn, "{provider}: {calls:?}");
        // The browser that started the session cannot confirm it any more.
        open(&callback_url).await.assert_shows(200, WITHDRAWN);
        let confirmed = answer_elsewhere(&callback_url, "yes").await;
        confirmed.assert_shows(200, WITHDRAWN);
        app.run_jobs_after(SignedDuration::from_mins(40)).await;
        assert_eq!(count_of(app, user).await, before, "{provider}");
    }
}

/// The browser that started the session waits for the provider while the person there says no.
async fn denial_ends_a_session_that_waits_for_accounts(app: &App) {
    let email = "denied.early@example.com";
    let person = app.add_person(email, Plan::Professional, &[]).await;
    let user = person.user.id;
    let callback_url = app.callback_url(user, "fiskil", "accept").await;
    // The accounts are listed before the denial, and their response ends after it.
    let accounts = "/v1/banking/accounts";
    let slow = Fault::new(FaultKind::Drip).delayed_ms(1).at(accounts);
    app.fiskil().add_fault(slow.times(1));
    app.reset_calls();
    let denied = async {
        eventually(async || app.fiskil().calls().contains_key(accounts)).await;
        deny(&callback_url).await;
        complete_removals(app).await
    };
    let (_, causes) = tokio::join!(open(&callback_url), denied);
    assert_eq!(causes, ["denied"]);
    assert_eq!(app.connections_of(user).await, []);
}

#[tokio::test]
async fn consent_is_confirmed_on_its_link_withdrawn_or_denied() {
    let app = App::start(Setup::default()).await;
    for provider in ["fiskil", "snaptrade"] {
        let (user, before) = (app.ben.user.id, count_of(&app, app.ben.user.id).await);
        let callback_url = callback_of_ben(&app, provider).await;
        let asked = open_elsewhere(&callback_url).await;
        asked.assert_shows(200, QUESTION);
        let poll_later = async || {
            app.advance_clock(SignedDuration::from_mins(7));
            let jobs = app.connections.jobs();
            jobs.run_due("consent_session").await.unwrap();
        };
        for _ in 0..4 {
            poll_later().await;
            let found = (count_of(&app, user).await, app.removals().await.len());
            assert_eq!(
                found,
                (before, 0),
                "{provider}: neither readable nor withdrawn"
            );
        }
        poll_later().await;
        assert_eq!(complete_removals(&app).await, ["unconfirmed"], "{provider}");
        assert_eq!(count_of(&app, user).await, before, "{provider}");
        open(&callback_url).await.assert_shows(200, WITHDRAWN);
    }

    // The browser that began a session confirms it on the page of its link.
    let app = App::start(Setup::default()).await;
    for provider in ["fiskil", "snaptrade"] {
        let (user, before) = (app.ben.user.id, count_of(&app, app.ben.user.id).await);
        let link_url = app.link_url(user, LinkTarget::UserChoice).await;
        let form = format!("provider={provider}");
        let mut page = submit(&link_url, &form).await.location();
        page.query_pairs_mut().append_pair("sandbox_auto", "accept");
        let callback_url = open(&page).await.location();
        let elsewhere = open_elsewhere(&link_url).await;
        elsewhere.assert_lacks("Not finished yet");
        let form = open(&link_url).await.session_form();
        let without_cookie = browse_elsewhere(post(&link_url, &form)).await;
        assert_eq!(without_cookie.status, 400);
        assert_eq!(count_of(&app, user).await, before, "{provider}");

        let confirmed = submit(&link_url, &form).await;
        assert_eq!(confirmed.status, 303, "{}", confirmed.text);
        assert!(count_of(&app, user).await > before, "{provider}");
        let page = open(&link_url).await;
        page.assert_lacks("Not finished yet");
        page.assert_shows(200, &app.connections_of(user).await[0].institution_name);
        let again = submit(&link_url, &form).await;
        assert_eq!(again.status, 410, "confirmed already");

        // The person who gave the consent is asked all the same, and can deny it.
        let asked = open_elsewhere(&callback_url).await;
        asked.assert_shows(200, QUESTION);
        deny(&callback_url).await;
        assert_eq!(count_of(&app, user).await, before, "{provider}");
        complete_removals(&app).await;
    }

    // What is linked can be denied once.
    for provider in simulated_providers() {
        let (user, before) = (app.ben.user.id, count_of(&app, app.ben.user.id).await);
        let callback_url = callback_of_ben(&app, provider).await;
        let shown = open(&callback_url).await;
        shown.assert_shows(200, DENY_BUTTON);
        shown.assert_shows(200, "ben@example.com");
        assert!(count_of(&app, user).await > before, "{provider}");
        // The callback URL shows it in any browser.
        let elsewhere = open_elsewhere(&callback_url).await;
        elsewhere.assert_shows(200, DENY_BUTTON);
        deny(&callback_url).await;
        assert_eq!(count_of(&app, user).await, before, "{provider}");
        let causes = complete_removals(&app).await;
        assert!(causes.iter().all(|cause| cause == "denied"), "{provider}");
        let again = answer_elsewhere(&callback_url, "no").await;
        again.assert_shows(200, WITHDRAWN);
        again.assert_lacks(DENY_BUTTON);

        // A day later it is too late.
        let callback_url = callback_of_ben(&app, provider).await;
        open(&callback_url).await.assert_shows(200, DENY_BUTTON);
        let linked = count_of(&app, user).await;
        app.advance_clock(SignedDuration::from_hours(24));
        open(&callback_url).await.assert_lacks(DENY_BUTTON);
        let denied = answer_elsewhere(&callback_url, "no").await;
        denied.assert_shows(400, "Nothing was changed");
        assert_eq!(count_of(&app, user).await, linked, "{provider}");
    }
}

async fn denied_reconnect_removes_the_connection(app: &App) {
    for provider in simulated_providers() {
        let email = format!("{provider}.again@example.com");
        let (user, linked) = app.linked_user(&email, provider).await;
        app.change_consent(&linked[0], ConsentState::Revoked).await;
        let bank = LinkTarget::Connection(linked[0].id);
        let link_url = app.link_url(user, bank).await;
        let callback_url = app.answer_consent_page(&link_url, "accept").await;
        open(&callback_url).await.assert_shows(200, DENY_BUTTON);
        deny(&callback_url).await;
        assert!(!app.has_connection(user, linked[0].id).await, "{provider}");
        let causes = complete_removals(app).await;
        assert!(causes.contains(&"denied".to_owned()), "{provider}");
    }
}

async fn user_who_declined_is_not_asked_and_removes_nothing(app: &App) {
    for provider in simulated_providers() {
        let callback_url = app.callback_url(app.ben.user.id, provider, "deny").await;
        let elsewhere = open_elsewhere(&callback_url).await;
        elsewhere.assert_shows(200, "did not give your consent");
    }
    for provider in ["fiskil", "snaptrade"] {
        let email = format!("{provider}.heals@example.com");
        let (user, linked) = app.linked_user(&email, provider).await;
        app.change_consent(&linked[0], ConsentState::Revoked).await;
        let bank = LinkTarget::Connection(linked[0].id);
        let link_url = app.link_url(user, bank).await;
        let callback_url = app.answer_consent_page(&link_url, "deny").await;
        // The same consent becomes active again while the user declines a new one.
        app.set_consent(&linked[0], ConsentState::Active).await;
        let elsewhere = open_elsewhere(&callback_url).await;
        elsewhere.assert_shows(200, "did not give your consent");
        assert!(app.has_connection(user, linked[0].id).await, "{provider}");
    }
}
