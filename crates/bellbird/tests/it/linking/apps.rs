//! Link sessions of apps: the return to the app, the result for which it asks, and what is kept
//! from both.

use bellbird_connections::{
    ConnectionsError, CreatedLink, LinkSession, LinkStatus, LinkTarget, NewLinkSession,
    ReturnOrigin, ReturnUrlError,
};
use bellbird_domain::{ConnectionId, ConnectionStatus, UserId};
use bellbird_providers::registry::provider_title;
use bellbird_sandbox::{ConsentState, Fault};
use bellbird_storage::{NewLink, in_tx};
use jiff::SignedDuration;
use secrecy::ExposeSecret as _;

use crate::support::browser::{BrowserPage, answer_elsewhere, open, open_elsewhere, start, submit};
use crate::support::deployment::Deployment;
use crate::support::harness::{App, Database, Setup, simulated_providers};
use crate::support::process::{Addresses, RunningCommand, text};
use crate::support::provider_spec::spec;

const RETURN_URL: &str = "https://app.example/linked?tab=banks";
const STATE: &str = "user 42 & co";
const APP: NewLinkSession<'_> = NewLinkSession {
    return_url: Some(RETURN_URL),
    state: Some(STATE),
};
const BACK: &str = "<bdi>app.example</bdi>";

async fn app_with_origin() -> App {
    let setup =
        Setup::with(|settings| settings.return_origins = vec![origin("https://app.example")]);
    App::start(setup).await
}

pub(super) fn origin(text: &str) -> ReturnOrigin {
    ReturnOrigin::parse(text).expect("an origin")
}

impl App {
    async fn link_session(&self, user: UserId, to: LinkTarget<'_>) -> CreatedLink {
        self.allow_all_providers(user).await;
        self.create_link_session(user, to, APP).await.unwrap()
    }

    pub(super) async fn result(&self, link: &CreatedLink) -> LinkSession {
        self.find_result(link).await.expect("a link session")
    }

    async fn find_result(&self, link: &CreatedLink) -> Option<LinkSession> {
        let links = self.connections.links();
        links.find_link_session(link.id).await.unwrap()
    }

    async fn assert_result(
        &self,
        link: &CreatedLink,
        status: LinkStatus,
        code: Option<&str>,
    ) -> Vec<ConnectionId> {
        let result = self.result(link).await;
        let found = result.reason.as_ref().map(|reason| reason.code);
        assert_eq!((result.status, found), (status, code), "{result:?}");
        let connections = result.connections.iter();
        connections.map(|connection| connection.id).collect()
    }
}

#[track_caller]
fn assert_returns(page: &BrowserPage, link: &CreatedLink) {
    let url = page.location();
    let expected = format!("{RETURN_URL}&session={}&state=user+42+%26+co", link.id);
    assert_eq!(url.as_str(), expected);
    assert_eq!(page.headers["referrer-policy"], "same-origin");
    assert_eq!(page.headers["cache-control"], "no-store");
}

#[tokio::test]
async fn browser_returns_once_it_is_connected() {
    let app = app_with_origin().await;
    for provider in simulated_providers() {
        let (user, before) = (app.ben.user.id, app.connections_of(app.ben.user.id).await);
        let link = app.link_session(user, LinkTarget::Provider(provider)).await;
        let url = link.url.expose_secret();
        app.assert_result(&link, LinkStatus::Open, None).await;
        open(url).await.assert_shows(200, BACK);
        let callback_url = app.answer_consent_page(url, "accept").await;
        app.assert_result(&link, LinkStatus::Open, None).await;
        for _ in 0..2 {
            assert_returns(&open(&callback_url).await, &link);
        }
        let new = app.new_connections(user, &before).await;
        let mut ids = app.assert_result(&link, LinkStatus::Connected, None).await;
        ids.sort_unstable();
        let mut expected: Vec<_> = new.iter().map(|connection| connection.id).collect();
        expected.sort_unstable();
        assert_eq!(ids, expected, "{provider}");

        let done = open(url).await;
        done.assert_shows(200, "done its work");
        done.assert_shows(200, BACK);
        done.assert_lacks("<button");
        let again = submit(url, &format!("provider={provider}")).await;
        assert_eq!(again.status, 410, "{provider}");
        // Another browser has the outcome, and no way to the app.
        let elsewhere = open_elsewhere(&callback_url).await;
        elsewhere.assert_shows(200, "Your accounts are linked");
        elsewhere.assert_lacks("app.example");

        for connection in new {
            app.remove(connection.id).await;
        }
        let removed = app.assert_result(&link, LinkStatus::Connected, Some("removed"));
        assert_eq!(removed.await, []);
        open(&callback_url).await.assert_shows(200, BACK);
    }

    // Another browser is asked first.
    let user = app.ben.user.id;
    for provider in simulated_providers() {
        for answer in ["yes", "no"] {
            let link = app.link_session(user, LinkTarget::Provider(provider)).await;
            let url = link.url.expose_secret();
            let callback_url = app.answer_consent_page(url, "accept").await;
            let asked = open_elsewhere(&callback_url).await;
            asked.assert_shows(200, "Is that you?");
            asked.assert_lacks("app.example");
            app.assert_result(&link, LinkStatus::Open, None).await;
            let answered = answer_elsewhere(&callback_url, answer).await;
            if answer == "yes" {
                assert_returns(&answered, &link);
                let is_bound = answered.headers.contains_key("set-cookie");
                assert!(is_bound, "the browser is bound");
                let ids = app.assert_result(&link, LinkStatus::Connected, None).await;
                assert!(!ids.is_empty());
                // A denial afterwards withdraws what the app was told.
                let denied = answer_elsewhere(&callback_url, "no").await;
                denied.assert_shows(200, "has no access to your accounts");
            } else {
                answered.assert_shows(200, "has no access to your accounts");
                answered.assert_lacks("app.example");
            }
            app.run_due_jobs().await;
            let code = app.result(&link).await.reason.expect("a reason").code;
            let is_withdrawal = ["withdrawn", "not_withdrawn"].contains(&code);
            assert!(is_withdrawal, "{provider} {answer}: {code}");
            let ids = app.assert_result(&link, LinkStatus::Failed, Some(code));
            assert_eq!(ids.await, []);
        }
    }

    // After a reconnect, too.
    for provider in simulated_providers() {
        let email = format!("{provider}@example.com");
        let (user, linked) = app.linked_user(&email, provider).await;
        let broken = &linked[0];
        let status = app.change_consent(broken, ConsentState::Expired).await;
        assert_eq!(status, ConnectionStatus::Invalidated);
        let this = LinkTarget::Connection(broken.id);
        let link = app.link_session(user, this).await;
        let url = link.url.expose_secret();
        let callback_url = app.answer_consent_page(url, "accept").await;
        assert_returns(&open(&callback_url).await, &link);
        let ids = app.assert_result(&link, LinkStatus::Connected, None).await;
        assert_eq!(ids, [broken.id], "{provider}");
    }
}

#[tokio::test]
async fn browser_returns_after_a_failure_and_after_waiting() {
    let app = app_with_origin().await;
    let user = app.ben.user.id;
    for provider in simulated_providers() {
        let link = app.link_session(user, LinkTarget::Provider(provider)).await;
        let url = link.url.expose_secret();
        let declined = app.answer_consent_page(url, "deny").await;
        assert_returns(&open(&declined).await, &link);
        app.assert_result(&link, LinkStatus::Declined, Some("declined"))
            .await;
        if provider != "akahu" {
            // What went wrong is for the person to read.
            let failed = open(app.answer_consent_page(url, "error").await).await;
            let title = provider_title(provider);
            failed.assert_shows(200, &format!("Linking through {title} did not work"));
            failed.assert_shows(200, "Try again");
            failed.assert_shows(200, BACK);
            app.assert_result(&link, LinkStatus::Failed, Some("failed"))
                .await;
            let reason = app.result(&link).await.reason.expect("a reason").message;
            failed.assert_shows(200, &reason);
        }
        let started = start(url).await;
        assert_eq!(started.status, 303);
        app.assert_result(&link, LinkStatus::Open, None).await;
        let accepted = app.answer_consent_page(url, "accept").await;
        assert_returns(&open(&accepted).await, &link);
        let ids = app.assert_result(&link, LinkStatus::Connected, None).await;
        assert!(!ids.is_empty(), "{provider}");
    }

    // It waits until the provider responds.
    let fiskil = LinkTarget::Provider("fiskil");
    let link = app.link_session(app.ben.user.id, fiskil).await;
    let url = link.url.expose_secret();
    let callback_url = app.answer_consent_page(url, "accept").await;
    let route = spec("fiskil").consent_route;
    app.fiskil().add_fault(Fault::status(503).at(route));
    let waiting = open(&callback_url).await;
    waiting.assert_shows(200, "Not confirmed yet");
    waiting.assert_shows(200, BACK);
    assert_eq!(waiting.headers["refresh"], "5");
    app.assert_result(&link, LinkStatus::Waiting, None).await;
    app.clear_faults();
    app.run_jobs_after(SignedDuration::from_mins(2)).await;
    assert_returns(&open(&callback_url).await, &link);
    app.assert_result(&link, LinkStatus::Connected, None).await;

    let fiskil = LinkTarget::Provider("fiskil");
    let link = app.link_session(app.ben.user.id, fiskil).await;
    let url = link.url.expose_secret();
    // The provider's page leads nowhere, so the browser opens the link again.
    app.answer_consent_page(url, "accept").await;
    let form = open(url).await.session_form();
    assert_eq!(submit(url, &form).await.status, 303);
    open(url).await.assert_shows(200, BACK);
    let ids = app.assert_result(&link, LinkStatus::Connected, None).await;
    assert_eq!(ids.len(), 1);
    // More consents may follow until the consent session ends.
    app.run_jobs_after(SignedDuration::from_mins(31)).await;
    let later = app.assert_result(&link, LinkStatus::Connected, None).await;
    assert_eq!(later, ids);
}

/// From what it needs to when it is forgotten.
#[tokio::test]
async fn link_session_leads_only_where_it_may() {
    let app = app_with_origin().await;
    link_session_needs_an_allowed_url_a_short_state_and_its_own_connection(&app).await;
    origin_is_checked_again_before_the_return(&app).await;
    expired_link_leads_back_and_is_forgotten_after_a_day(&app).await;
}

async fn expired_link_leads_back_and_is_forgotten_after_a_day(app: &App) {
    let user = app.ben.user.id;
    let link = app.link_session(user, LinkTarget::UserChoice).await;
    let url = link.url.expose_secret();
    // A browser that leaves at the last moment may still return.
    app.advance_clock(SignedDuration::from_mins(29));
    submit(url, "provider=fiskil").await.location();
    app.advance_clock(SignedDuration::from_mins(2));
    let expired = open(url).await;
    expired.assert_shows(410, "This link has expired");
    expired.assert_shows(410, BACK);
    app.assert_result(&link, LinkStatus::Open, None).await;
    app.run_jobs_after(SignedDuration::from_mins(30)).await;
    app.assert_result(&link, LinkStatus::Expired, Some("expired"))
        .await;
    app.advance_clock(SignedDuration::from_hours(23));
    let delete_outdated = async || {
        let sessions = app.storage.consent_sessions();
        sessions.delete_outdated(app.clock.now()).await.unwrap();
    };
    delete_outdated().await;
    app.assert_result(&link, LinkStatus::Expired, Some("expired"))
        .await;
    app.advance_clock(SignedDuration::from_hours(1));
    delete_outdated().await;
    assert_eq!(app.find_result(&link).await, None);
    open(url).await.assert_shows(404, "does not work");
}

#[tokio::test]
async fn result_goes_with_its_user_and_connection() {
    let app = app_with_origin().await;
    let (user, linked) = app.linked_user("leaving@example.com", "akahu").await;
    let bank = LinkTarget::Connection(linked[0].id);
    let repair = app.link_session(user, bank).await;
    let link = app.link_session(user, LinkTarget::UserChoice).await;
    let url = link.url.expose_secret();
    let removed = submit(url, &format!("confirm-removal={}", linked[0].id)).await;
    removed.assert_shows(200, "is removed");
    removed.assert_shows(200, BACK);
    for connection in &linked[1..] {
        app.remove(connection.id).await;
    }
    app.run_due_jobs().await;
    let of_repair = app.find_result(&repair).await;
    assert_eq!(of_repair, None, "its connection is gone");
    let unregistered = app
        .connections
        .links()
        .unregister_provider_users(user, false);
    unregistered.await.unwrap();
    app.delete_user(user).await;
    assert_eq!(app.find_result(&link).await, None);
}

async fn origin_is_checked_again_before_the_return(app: &App) {
    // As if the settings had allowed it when the link session was created.
    for (token, provider, return_url) in [
        ("a", "akahu", "https://former.example/"),
        ("b", "fiskil", "https://app.example//evil.example"),
    ] {
        let token = token.repeat(64);
        let session = Some(NewLinkSession {
            return_url: Some(return_url),
            state: None,
        });
        let expires_at = app.clock.now() + SignedDuration::from_mins(30);
        let new = NewLink {
            user_id: app.ben.user.id,
            token: &token,
            provider: Some(provider),
            connection_id: None,
            expires_at,
            session,
            console_session: None,
        };
        let stored = in_tx!(app.storage, links::insert(&new, app.clock.now())).await;
        stored.unwrap();
        let url = format!("{}/link/{token}", app.console_url);
        let callback_url = app.answer_consent_page(&url, "accept").await;
        for page in [open(&callback_url).await, open(&url).await] {
            page.assert_shows(200, "linked");
            page.assert_lacks("former.example");
            page.assert_lacks("evil.example");
        }
    }
}

async fn link_session_needs_an_allowed_url_a_short_state_and_its_own_connection(app: &App) {
    let user = app.ben.user.id;
    let create = async |return_url: Option<&str>, state: Option<&str>| {
        let session = NewLinkSession { return_url, state };
        app.create_link_session(user, LinkTarget::UserChoice, session)
            .await
    };
    for (url, reason) in [
        ("https://other.example/", ReturnUrlError::Origin),
        (
            "https://app.example@evil.example/",
            ReturnUrlError::UserName,
        ),
        ("javascript:alert(1)", ReturnUrlError::Scheme),
    ] {
        let Err(ConnectionsError::ReturnUrl(error)) = create(Some(url), None).await else {
            panic!("{url}")
        };
        assert_eq!(error, reason, "{url}");
    }
    let long = "\u{fc}".repeat(500);
    assert!(create(Some(RETURN_URL), Some(&long)).await.is_ok());
    for state in [format!("{long}x"), "a\nb".to_owned()] {
        let created = create(None, Some(&state)).await;
        let is_invalid = matches!(created, Err(ConnectionsError::InvalidState));
        assert!(is_invalid, "{state}");
    }
    let other = LinkTarget::Connection(app.olivia.connections[0].id);
    let foreign = app.create_link_session(user, other, APP).await;
    assert!(matches!(foreign, Err(ConnectionsError::NotFound)));
    // Without a return URL, pages are as for any link, and there is a result all the same.
    let link = create(None, None).await.unwrap();
    let page = open(link.url.expose_secret()).await;
    page.assert_lacks("Back to");
    app.assert_result(&link, LinkStatus::Open, None).await;
    // A link has none.
    let plain = app.create_link(user, LinkTarget::UserChoice).await.unwrap();
    assert_eq!(app.find_result(&plain).await, None);
}

/// The whole flow in processes: what a link session has of secrets is in no log and in no URL that
/// the app sees.
#[tokio::test]
async fn secrets_of_a_link_session_reach_neither_app_nor_log() {
    let Deployment {
        mut workdir,
        sandbox,
        ..
    } = Deployment::start_on(Database::Sqlite, 50, &[]).await;
    workdir.set("BELLBIRD_LOG__LEVEL", "trace");
    workdir.set("BELLBIRD_ADMIN__RETURN_ORIGINS", "https://app.example");
    let console = Addresses::new().console;
    workdir.set("BELLBIRD_CONSOLE__LISTEN", &console);
    workdir.json("user add --email ben@example.com");
    let wrong = "connection link --user ben@example.com --return-url https://evil.example/";
    let not_allowed = "error: the return URL is not of an origin in admin.return_origins: add its origin \
                       there, and restart the service";
    assert_eq!(workdir.error(wrong, 1), not_allowed);
    let id = "0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f";
    let error = workdir.error(&format!("connection link-status {id}"), 1);
    assert!(
        error.contains(&format!("there is no link session {id}")),
        "{error}"
    );

    let log = workdir.path().join("log");
    let line = "serve --json --api-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0";
    let service = RunningCommand::start_with_log(&workdir, line, &log);
    let mut secrets = vec!["state-of-the-app".to_owned()];
    let mut seen_by_app = Vec::new();
    let declined = ("deny", "declined", "The person gave no consent.");
    let accepted = ("accept", "connected", "connected");
    for (provider, (answer, status, words)) in [
        ("akahu", declined),
        ("akahu", accepted),
        ("fiskil", accepted),
        ("snaptrade", accepted),
    ] {
        let line = format!(
            "connection link --user ben@example.com --provider {provider} --return-url {RETURN_URL} --state \
             state-of-the-app"
        );
        let link = workdir.json(&line);
        let url = text(&link, "url");
        secrets.push(url.rsplit('/').next().unwrap().to_owned());
        let started = start(url).await;
        for cookie in started.headers.get_all("set-cookie") {
            let cookie = cookie.to_str().unwrap().split(';').next().unwrap();
            let (_, value) = cookie.split_once('=').unwrap();
            secrets.push(value.to_owned());
        }
        let mut page = started.location();
        page.query_pairs_mut().append_pair("sandbox_auto", answer);
        let callback_url = open(&page).await.location();
        let values = callback_url
            .query_pairs()
            .map(|(_, value)| value.into_owned());
        secrets.extend(values.filter(|value| value.len() > 15));
        let back = open(&callback_url).await;
        seen_by_app.push(format!("{} {:?}", back.location(), back.headers));
        let line = format!("connection link-status {}", text(&link, "id"));
        let shown = workdir.json(&line);
        assert_eq!(text(&shown, "status"), status, "{shown}");
        let has_none = shown["connections"].as_array().unwrap().is_empty();
        assert_eq!(has_none, answer == "deny", "{shown}");
        let printed = workdir.text(&line);
        assert!(printed.contains(words), "{printed}");
    }
    assert_eq!(service.stop("-TERM").0, Some(0));
    assert_eq!(sandbox.stop("-TERM").0, Some(0));

    assert!(secrets.len() > 12, "{}", secrets.len());
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("consent session finished"), "{log}");
    for secret in &secrets {
        assert!(!log.contains(secret.as_str()), "the log has {secret}");
    }
    for seen in &seen_by_app {
        for secret in &secrets[1..] {
            assert!(!seen.contains(secret.as_str()), "{secret} in {seen}");
        }
    }
}
