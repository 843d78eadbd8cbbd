//! The whole way in a real browser: from `connection link` over the provider's own pages to the first transactions.

mod browser;

use bellbird_connections::LinkTarget;
use bellbird_domain::ConnectionStatus;
use reqwest::Method;
use serde_json::json;

use crate::support::harness::{App, simulated_providers};
use browser::Browser;

/// What a person does at a provider.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Person {
    Allows,
    Cancels,
    /// The institution does not answer.
    Fails,
}

/// Waits for what happens in threads of the runtime while this one drives the browser.
fn block<T>(work: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(work))
}

/// Walks the provider's pages, as `person` would, to our own page.
fn walk(browser: &mut Browser, app: &App, provider: &str, person: Person) {
    browser.picture(&format!("{provider}-1-ask"));
    browser.click("button[value=allow]");
    if person == Person::Cancels {
        browser.click("button[value=cancel]");
    } else {
        if browser.has("button.place:not([disabled])") {
            browser.picture(&format!("{provider}-2-place"));
            browser.click("button.place:not([disabled])");
        }
        browser.write("#name", "somebody.new@example.com");
        let code = browser.evaluate("document.querySelector('.code').textContent");
        browser.write("#code", if person == Person::Fails { "000000" } else { code.as_str().unwrap() });
        browser.picture(&format!("{provider}-3-sign-in"));
        browser.click("button[value=allow]");
    }
    if person == Person::Allows {
        browser.picture(&format!("{provider}-4-accounts"));
        browser.click("button[value=allow]");
    }
    // Some show a last page of their own.
    if browser.has("a.yes") {
        browser.click("a.yes");
    }
    assert!(browser.url().starts_with(&app.console_url), "{provider}: at {}", browser.url());
}

#[tokio::test(flavor = "multi_thread")]
async fn from_link_to_transactions_at_every_provider() {
    let app = App::start(Default::default()).await;
    let mut browser = Browser::start();
    browser.size(1280, 800, false);
    for provider in simulated_providers() {
        let user = app.ben.user.id;
        let before = app.storage.list_connections(user).await.unwrap();
        for (person, words) in [
            (Person::Cancels, "did not give your consent"),
            (Person::Fails, "Nothing was connected"),
            (Person::Allows, "connected"),
        ] {
            let link_url = app.link_url(user, LinkTarget::UserChoice).await;
            browser.open(&link_url);
            browser.picture("link");
            assert!(browser.text().contains("ben@example.com"));
            browser.click(&format!("button[name=provider][value={provider}]"));
            walk(&mut browser, &app, provider, person);
            browser.picture(&format!("{provider}-5-{}", words.replace(' ', "-")));
            assert!(browser.text().contains(words), "{provider}: {}", browser.text());
            let now = app.storage.list_connections(user).await.unwrap();
            assert_eq!(
                now.len(),
                before.len() + usize::from(person == Person::Allows),
                "{provider}: {}",
                browser.text()
            );
        }
        // The way back, a second time.
        let used = browser.url();
        browser.open(&used);
        assert!(browser.text().contains("used already"), "{}", browser.text());
        browser.picture("used");

        let mut connections = app.storage.list_connections(user).await.unwrap();
        connections.retain(|one| one.provider == provider && !before.contains(one));
        let connection = connections.remove(0);
        let accounts = app.get_as(&app.ben.key, "/v1/accounts?limit=100").await.data();
        let accounts: Vec<_> =
            accounts.iter().filter(|account| account["connectionId"] == connection.id.to_string()).collect();
        assert!(!accounts.is_empty());
        if connection.category.as_str() == "banking" {
            let path = format!(
                "/v1/transactions?connectionId={}&accountId={}",
                connection.id,
                accounts[0]["id"].as_str().unwrap()
            );
            assert!(!app.get_as(&app.ben.key, &path).await.data().is_empty(), "{provider}: rows");
        } else {
            let accounts: Vec<_> = accounts.iter().map(|account| account["id"].as_str().unwrap()).collect();
            let path = format!("/v1/balances?accountIds={}", accounts.join(","));
            assert_eq!(app.get_as(&app.ben.key, &path).await.data().len(), accounts.len());
        }
    }
    browser.open(&format!("{}/link/callback?state={}&code=1", app.console_url, "0".repeat(64)));
    assert!(browser.text().contains("Nothing was changed"), "{}", browser.text());
    browser.picture("forged");
    browser.open(&app.console_url);
    browser.picture("home");
}

#[tokio::test(flavor = "multi_thread")]
async fn reconnecting_revoked_connection_keeps_ids() {
    let app = App::start(Default::default()).await;
    let mut browser = Browser::start();
    browser.size(1280, 800, false);
    for provider in simulated_providers() {
        let person =
            block(app.add_person(&format!("{provider}@example.com"), bellbird_domain::Plan::Professional, &[]));
        let user = person.user.id;
        browser.open(&block(app.link_url(user, LinkTarget::Provider(provider))));
        walk(&mut browser, &app, provider, Person::Allows);
        let connection = app.storage.list_connections(user).await.unwrap().remove(0);
        let accounts = app.storage.list_connection_accounts(user, connection.id).await.unwrap();
        app.set_consent(&connection, "expired").await;
        let status = app.connections.refresh(user, connection.id).await.unwrap();
        assert_eq!(status, ConnectionStatus::Invalidated, "{provider}");

        browser.open(&block(app.link_url(user, LinkTarget::UserChoice)));
        browser.picture(&format!("{provider}-6-broken"));
        browser.click(&format!("button[name=connection][value='{}']", connection.id));
        walk(&mut browser, &app, provider, Person::Allows);
        browser.picture(&format!("{provider}-7-again"));
        assert!(browser.text().contains("again"), "{provider}: {}", browser.text());
        let now = app.storage.list_connections(user).await.unwrap();
        assert_eq!((now.len(), now[0].id, now[0].status), (1, connection.id, ConnectionStatus::Active), "{provider}");
        let ids = |accounts: &[bellbird_domain::Account]| accounts.iter().map(|account| account.id).collect::<Vec<_>>();
        let after = app.storage.list_connection_accounts(user, connection.id).await.unwrap();
        assert_eq!(ids(&after), ids(&accounts), "{provider}");
    }
    app.control(Method::DELETE, "/faults", json!({})).await;
}
