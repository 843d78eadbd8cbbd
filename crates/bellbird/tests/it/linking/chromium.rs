//! Linking in a real browser: from the link URL, or an app, through the provider's pages to the
//! first transactions, or back to the app.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use axum::response::Html;
use bellbird_api::serve::{self, ServeOptions};
use bellbird_connections::{LinkStatus, LinkTarget, NewLinkSession};
use bellbird_domain::{ConnectionStatus, Plan};
use bellbird_sandbox::ConsentState;
use secrecy::ExposeSecret as _;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::apps::origin;
use crate::support::chromium::Browser;
use crate::support::harness::{App, Setup, simulated_providers};

/// What the user does at the provider.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserAction {
    Approve,
    Cancel,
    /// Enters the code with which the sandbox simulates an institution that does not respond.
    Fail,
}

/// Waits for `work`, which runs on other threads of the runtime while this one controls the
/// browser.
fn block<T>(work: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(work))
}

fn wide_browser() -> Browser {
    let mut browser = Browser::start();
    browser.size(1280, 800, false);
    browser
}

/// Goes through the provider's pages with one action, until the callback page.
fn complete_consent_pages(browser: &mut Browser, app: &App, action: UserAction) {
    leave_consent_pages(browser, action);
    assert_at_console(browser, app);
}

fn assert_at_console(browser: &mut Browser, app: &App) {
    let url = browser.url();
    assert!(url.starts_with(&app.console_url), "at {url}");
}

/// Goes through the provider's pages with one action, until the page to which the callback leads.
pub(crate) fn leave_consent_pages(browser: &mut Browser, action: UserAction) {
    visit_consent_pages(browser, action, |_, _| ());
}

/// As [`leave_consent_pages`], with a check of each page, which gets the page's name.
fn visit_consent_pages(
    browser: &mut Browser,
    action: UserAction,
    check: impl Fn(&mut Browser, &str),
) {
    check(browser, "1-ask");
    browser.click("button[value=allow]");
    if action == UserAction::Cancel {
        browser.click("button[value=cancel]");
    } else {
        if browser.has("button.institution:not([disabled])") {
            check(browser, "2-institution");
            browser.click("button.institution:not([disabled])");
        }
        browser.write("#name", "someone.new@example.com");
        let code = browser.evaluate("document.querySelector('.code').textContent");
        let code = match action {
            UserAction::Fail => "000000",
            _ => code.as_str().unwrap(),
        };
        browser.write("#code", code);
        check(browser, "3-sign-in");
        browser.click("button[value=allow]");
    }
    if action == UserAction::Approve {
        check(browser, "4-accounts");
        browser.click("button[value=allow]");
    }
    // Some providers show a last page of their own.
    if browser.has("a.yes") {
        browser.click("a.yes");
    }
}

/// A request of the browser to the site of an app.
#[derive(Debug, Clone)]
struct SeenRequest {
    path_and_query: String,
    referrer: Option<String>,
}

/// The site of an app, on an origin of its own. Each of its pages has a link to the URL that a test
/// sets.
struct AppSite {
    origin: String,
    link_url: Arc<Mutex<String>>,
    requests: Arc<Mutex<Vec<SeenRequest>>>,
    stop: CancellationToken,
}

impl AppSite {
    async fn start() -> Self {
        let (link_url, requests, stop) = (
            Arc::<Mutex<String>>::default(),
            Arc::default(),
            CancellationToken::new(),
        );
        let (shown, seen): (_, Arc<Mutex<Vec<SeenRequest>>>) =
            (Arc::clone(&link_url), Arc::clone(&requests));
        let page = async move |request: Request| {
            let referrer = request.headers().get("referer");
            let referrer = referrer.map(|value| value.to_str().unwrap().to_owned());
            seen.lock().unwrap().push(SeenRequest {
                path_and_query: request.uri().to_string(),
                referrer,
            });
            let link_url = shown.lock().unwrap().clone();
            Html(format!(
                "<!doctype html><title>App</title><h1>The app</h1><a id=link href='{link_url}'>Connect</a>"
            ))
        };
        let listener = serve::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        // Another site than the console at 127.0.0.1.
        let origin = format!("http://localhost:{}", listener.address().port());
        let router = Router::new().fallback(page);
        let options = ServeOptions::default();
        tokio::spawn(serve::serve(listener, router, options, stop.clone()));
        Self {
            origin,
            link_url,
            requests,
            stop,
        }
    }
}

impl Drop for AppSite {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Another browser is asked when it returns, and then one goes from a page of an app to the
/// provider and back.
#[tokio::test(flavor = "multi_thread")]
async fn another_browser_is_asked_and_an_app_is_returned_to() {
    let site = AppSite::start().await;
    let origins = vec![origin(&site.origin)];
    let app = App::start(Setup::with(|settings| settings.return_origins = origins)).await;
    let mut browser = wide_browser();
    let user = app.ben.user.id;
    // A browser that has no cookie: the user answers yes, then regrets it.
    for provider in simulated_providers() {
        let before = app.connections_of(user).await.len();
        for (answer, words) in [("yes", "linked"), ("no", "has no access to your accounts")] {
            let link_url = block(app.link_url(user, LinkTarget::Provider(provider)));
            browser.open(block(app.answer_consent_page(&link_url, "accept")).as_str());
            browser.assert_shows("Is that you?");
            browser.assert_shows("ben@example.com");
            browser.assert_accessible(&format!("{provider}-8-question"));
            browser.click(&format!("button[name=answer][value={answer}]"));
            browser.assert_shows(words);
            browser.assert_shows("ben@example.com");
            browser.assert_accessible(&format!("{provider}-9-{answer}"));
            if answer == "yes" {
                assert!(app.connections_of(user).await.len() > before, "{provider}");
                browser.press(".deny summary");
                browser.wait_for("document.querySelector('.deny').open");
                browser.assert_accessible(&format!("{provider}-9-deny"));
                browser.click("button[name=answer][value=no]");
                browser.assert_shows("has no access to your accounts");
            }
            assert_eq!(app.connections_of(user).await.len(), before, "{provider}");
        }
    }
    // The browser that started a session sees it on the page of its link URL.
    let link_url = block(app.link_url(app.olivia.user.id, LinkTarget::UserChoice));
    browser.open(&link_url);
    browser.click("button[name=provider][value=fiskil]");
    browser.open(&link_url);
    browser.assert_shows("Not finished yet");
    browser.assert_accessible("not-finished");
    browser.click("button[name=session]");
    browser.assert_shows("Waiting for Fiskil");
    browser.stay();
    browser.assert_accessible("waiting");

    // With every end.
    let return_url = format!("{}/linked", site.origin);
    app.set_plan(user, Plan::Professional).await;
    let host = site.origin.trim_start_matches("http://");
    let mut secrets = Vec::new();
    for provider in simulated_providers() {
        for (action, status) in [
            (UserAction::Cancel, LinkStatus::Declined),
            (UserAction::Fail, LinkStatus::Failed),
            (UserAction::Approve, LinkStatus::Connected),
        ] {
            let session = NewLinkSession {
                return_url: Some(&return_url),
                state: Some("a&b"),
            };
            let created = app.create_link_session(user, LinkTarget::Provider(provider), session);
            let link = block(created).unwrap();
            let link_url = link.url.expose_secret();
            secrets.push(link_url.rsplit('/').next().unwrap().to_owned());
            site.link_url.lock().unwrap().replace_range(.., link_url);
            browser.open(&format!("{}/settings", site.origin));
            browser.click("#link");
            if action == UserAction::Cancel {
                browser.assert_accessible("app-1-link");
            }
            browser.assert_shows(&format!("Back to {host}"));
            browser.click("button[name=provider]");
            leave_consent_pages(&mut browser, action);
            if action == UserAction::Fail && !browser.url().starts_with(&site.origin) {
                browser.assert_accessible(&format!("app-2-{provider}-failed"));
                browser.assert_shows("Nothing was linked");
                browser.click("a.button");
            }
            let returned = format!("{return_url}?session={}&state=a%26b", link.id);
            assert_eq!(browser.url(), returned, "{provider}");
            let result = block(app.result(&link));
            // A provider may report a failure as a refusal.
            let is_refusal = action == UserAction::Fail && result.status == LinkStatus::Declined;
            let is_expected = result.status == status || is_refusal;
            assert!(is_expected, "{provider}: {result:?}");
            let is_approved = action == UserAction::Approve;
            assert_eq!(
                !result.connections.is_empty(),
                is_approved,
                "{provider}: {result:?}"
            );
            if is_approved {
                browser.open(link_url);
                browser.assert_accessible("app-3-done");
                browser.click("a.button");
                assert_eq!(browser.url(), returned, "{provider}");
            }
        }
    }
    let requests = site.requests.lock().unwrap().clone();
    let is_return = |request: &&SeenRequest| request.path_and_query.starts_with("/linked");
    let returns: Vec<_> = requests.iter().filter(is_return).collect();
    let count = secrets.len() + simulated_providers().count();
    assert_eq!(returns.len(), count, "{returns:?}");
    for request in returns {
        assert_eq!(request.referrer, None, "{request:?}");
    }
    for secret in secrets {
        assert!(!format!("{requests:?}").contains(&secret));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn from_link_to_transactions_at_every_provider() {
    let app = App::start(Default::default()).await;
    let mut browser = wide_browser();
    for provider in simulated_providers() {
        let user = app.ben.user.id;
        let before = app.connections_of(user).await;
        for (action, words) in [
            (UserAction::Cancel, "did not give your consent"),
            (UserAction::Fail, "Nothing was linked"),
            (UserAction::Approve, "linked"),
        ] {
            let link_url = app.link_url(user, LinkTarget::UserChoice).await;
            browser.open(&link_url);
            if action == UserAction::Cancel {
                browser.assert_accessible("link");
            }
            browser.assert_shows("ben@example.com");
            browser.click(&format!("button[name=provider][value={provider}]"));
            visit_consent_pages(&mut browser, action, |browser, page| {
                // Who approves sees all pages. No other test checks them.
                if action == UserAction::Approve {
                    browser.assert_accessible(&format!("{provider}-{page}"));
                }
            });
            assert_at_console(&mut browser, &app);
            browser.assert_accessible(&format!("{provider}-5-{}", words.replace(' ', "-")));
            browser.assert_shows(words);
            let expected = before.len() + usize::from(action == UserAction::Approve);
            assert_eq!(app.connections_of(user).await.len(), expected, "{provider}");
        }
        // A reload shows the same result.
        let (url, text) = (browser.url(), browser.text());
        browser.open(&url);
        assert_eq!(browser.text(), text);

        let connection = app.new_connections(user, &before).await.remove(0);
        assert_eq!(connection.provider, provider);
        let mut accounts = app.all_accounts(&app.ben).await;
        accounts.retain(|account| account.connection_id == connection.id.to_string());
        assert!(!accounts.is_empty());
        if connection.category.as_str() == "banking" {
            let rows = app.transactions(&accounts[0]).by(&app.ben);
            assert!(!rows.rows().await.is_empty(), "{provider}: rows");
        } else {
            let balances = app.balances(&app.ben, &accounts).await;
            assert_eq!(balances.len(), accounts.len());
        }
    }
    let state = "0".repeat(64);
    browser.open(&format!(
        "{}/link/callback?state={state}&code=1",
        app.console_url
    ));
    browser.assert_shows("Nothing was changed");
    browser.assert_accessible("forged");
    browser.open(&app.console_url);
    browser.assert_accessible("home");
    browser.open(&format!("{}/nowhere", app.console_url));
    browser.assert_accessible("not-found");
}

/// What the user does later, and after a result: reconnects, tries again, adds another, removes a
/// connection, opens links that lead nowhere, and waits.
#[tokio::test(flavor = "multi_thread")]
async fn reconnecting_revoked_connection_keeps_ids() {
    let app = App::start(Default::default()).await;
    let mut browser = wide_browser();
    for provider in simulated_providers() {
        let person =
            block(app.add_person(&format!("{provider}@example.com"), Plan::Professional, &[]));
        let user = person.user.id;
        browser.open(&block(app.link_url(user, LinkTarget::Provider(provider))));
        browser.assert_accessible(&format!("{provider}-0-one-provider"));
        browser.click("button[name=provider]");
        complete_consent_pages(&mut browser, &app, UserAction::Approve);
        let connection = app.connections_of(user).await.remove(0);
        let account_ids = async || {
            let accounts = app.stored_accounts(user, connection.id).await.into_iter();
            accounts.map(|account| account.id).collect::<Vec<_>>()
        };
        let before = account_ids().await;
        let status = app.change_consent(&connection, ConsentState::Expired).await;
        assert_eq!(status, ConnectionStatus::Invalidated, "{provider}");

        browser.open(&block(app.link_url(user, LinkTarget::UserChoice)));
        browser.assert_accessible(&format!("{provider}-6-broken"));
        browser.click(&format!(
            "button[name=connection][value='{}']",
            connection.id
        ));
        complete_consent_pages(&mut browser, &app, UserAction::Approve);
        browser.assert_accessible(&format!("{provider}-7-again"));
        browser.assert_shows("is reconnected");
        browser.assert_shows("This was not me");
        let now = app.connections_of(user).await.into_iter();
        let now: Vec<_> = now
            .map(|connection| (connection.id, connection.status))
            .collect();
        assert_eq!(
            now,
            [(connection.id, ConnectionStatus::Active)],
            "{provider}"
        );
        assert_eq!(account_ids().await, before, "{provider}");
    }
}

/// What the user does after a result: tries again, adds another, removes a connection, opens links
/// that lead nowhere, and waits.
#[tokio::test(flavor = "multi_thread")]
async fn user_continues_from_a_result() {
    let app = App::start(Default::default()).await;
    let mut browser = wide_browser();
    let user = app.ben.user.id;
    let link_url = block(app.link_url(user, LinkTarget::UserChoice));
    browser.open(&link_url);
    browser.click("button[name=provider][value=fiskil]");
    complete_consent_pages(&mut browser, &app, UserAction::Cancel);
    browser.click("button[value=again]");
    assert_eq!(browser.url(), link_url, "Try again");
    browser.click("button[name=provider][value=akahu]");
    complete_consent_pages(&mut browser, &app, UserAction::Approve);
    browser.click("button[value=again]");
    assert_eq!(browser.url(), link_url, "Back to your banks");
    let before = block(app.connections_of(user));
    let broken = before.last().unwrap();
    block(app.set_consent(broken, ConsentState::Revoked));
    block(app.connections.refreshes().run(user, broken.id)).unwrap();
    browser.open(&link_url);
    browser.assert_accessible("link-mixed");
    browser.press(".banks summary");
    browser.wait_for("document.querySelector('.banks details').open");
    browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)");
    browser.assert_accessible("link-unfolded");
    // Fiskil's logo loads. Akahu's does not, and takes no room, so that its letter shows.
    for (provider, is_loaded) in [("Fiskil", true), ("Akahu", false)] {
        let row = format!(
            "[...document.querySelectorAll('li')].find(row => row.innerText.includes('{provider}'))"
        );
        let image = browser.evaluate(&format!(
            "(image => [image.naturalWidth > 0, image.getBoundingClientRect().width > 0])({row}.querySelector('img'))"
        ));
        assert_eq!(image, json!([is_loaded, is_loaded]), "{provider}");
    }

    let removed = &before[0];
    browser.click(&format!("button[name=remove][value='{}']", removed.id));
    browser.assert_accessible("remove");
    browser.assert_shows("Keep it");
    browser.click("button[name=confirm-removal]");
    browser.assert_accessible("removed");
    browser.assert_shows("is removed");
    browser.click("a.button");
    assert_eq!(browser.url(), link_url);
    assert_eq!(block(app.connections_of(user)).len(), before.len() - 1);

    // Links that lead nowhere say so.
    let link_url = block(app.link_url(app.ben.user.id, LinkTarget::UserChoice));
    for (name, words, url) in [
        (
            "incomplete",
            "does not work",
            format!("{}/link/0", app.console_url),
        ),
        (
            "public-home",
            "Open the link that you were given",
            app.console_url.replace("127.0.0.1", "0.0.0.0"),
        ),
    ] {
        browser.open(&url);
        browser.assert_accessible(name);
        browser.assert_shows(words);
    }
    app.advance_clock(jiff::SignedDuration::from_mins(31));
    browser.open(&link_url);
    browser.assert_accessible("expired");
    browser.assert_shows("has expired");
    assert!(!browser.has("button"), "{}", browser.text());

    // The page refreshes itself until the accounts have come.
    let late = json!({"lagSeconds": 60});
    app.set_options("fiskil", &late);
    browser.open(&block(
        app.link_url(app.ben.user.id, LinkTarget::UserChoice),
    ));
    browser.click("button[name=provider][value=fiskil]");
    complete_consent_pages(&mut browser, &app, UserAction::Approve);
    browser.assert_shows("not listed the accounts yet");
    let url = browser.url();
    browser.stay();
    browser.assert_accessible("late");
    browser.open(&url);
    app.advance_clock(jiff::SignedDuration::from_secs(90));
    block(app.run_due_jobs());
    browser.wait_for("document.querySelector('.accounts .number')");
}
