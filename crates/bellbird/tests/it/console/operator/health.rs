//! The page Health: providers, jobs, banks and instances.

use bellbird_domain::ConnectionStatus;
use bellbird_sandbox::{ConsentState, Fault};
use bellbird_storage::ProviderCalls;

use super::HOUR;
use crate::support::harness::{App, Setup};

#[tokio::test]
async fn health_names_what_fails_or_does_not_run() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    app.fail_a_sync().await;
    let page = browser.get("/operator/health").await;
    page.assert_has("1 failing");
    page.assert_lacks("overdue");
    page.assert_has("tried 1 time");
    page.assert_has("the provider is unavailable.");
    page.assert_has("<span class=\"what\">Sync at ");
    page.assert_has("last call succeeded");

    let fault = Fault::status(500).at("/v1/banking/balances");
    let path = format!("/v1/balances?accountIds={}", app.account("").await.id);
    app.fiskil().add_fault(fault);
    // Nothing else calls the provider meanwhile: a call that succeeds may be the last one then.
    app.get(&path).await;
    app.clear_faults();
    let page = browser.get("/operator/health").await;
    page.assert_has("last call failed");
    page.assert_has("the provider is unavailable: server error");
    page.assert_has("since the last success");

    app.advance_clock(HOUR * 7);
    let page = browser.get("/operator/health").await;
    page.assert_has(" overdue");
    page.assert_has("first due");
}

/// What a user's bank needs is found from the page Health.
#[tokio::test]
async fn health_leads_to_users_and_is_that_of_all_instances() {
    let app = App::start(Setup::default()).await;
    let browser = app.sign_in_operator().await;
    let health = browser.get("/operator/health").await;
    health.assert_has("no user has to reconnect one");
    if app.shared.database.starts_with("sqlite:") {
        // No backup was made.
        health.assert_lacks("the last one");
    }
    let (user, connection) = (app.olivia.user.id, &app.olivia.connections[0]);
    app.set_consent(connection, ConsentState::Revoked).await;
    assert_eq!(
        app.refresh(user, connection.id).await,
        ConnectionStatus::Revoked
    );
    let health = browser.get("/operator/health").await;
    health.assert_has("1 must be reconnected by its user");
    let provider = &connection.provider;
    let link = format!("/operator/users?status=revoked&#38;provider={provider}");
    health.assert_has(&link);
    let whose = "/operator/users?only=bank";
    health.assert_has(whose);
    for path in [
        link.replace("&#38;", "&"),
        whose.to_owned(),
        "/operator/users?only=attention".to_owned(),
    ] {
        let users = browser.get(&path).await;
        users.assert_lists([true, false]);
        users.assert_has("1 bank to reconnect");
    }
    let page = browser.get(&format!("/operator/users/{user}")).await;
    page.assert_has("consent withdrawn");

    // The calls of another instance are counted, as its row has them.
    browser
        .get("/operator/health")
        .await
        .assert_has("last call succeeded");
    let now = app.clock.now();
    let mut other = app.storage.instances().list(now).await.unwrap().remove(0);
    other.id = uuid::Uuid::now_v7();
    other.host = "worker-2".to_owned();
    other.version = "9.9.9".to_owned();
    let calls = ProviderCalls {
        calls: 1_000_000,
        failed: 7,
        failed_in_a_row: 2,
        failed_at: Some(now + HOUR),
        error: Some("timed out elsewhere".to_owned()),
        ..ProviderCalls::default()
    };
    other.provider_calls = [("fiskil".to_owned(), calls)].into();
    // By the time of its own machine, as the service does, which forgets dead ones.
    let seen_at = jiff::Timestamp::now();
    let renewed = app.storage.instances().renew(&other, seen_at);
    renewed.await.unwrap();
    let page = browser.get("/operator/health").await;
    for words in [
        "worker-2",
        "timed out elsewhere (2 since the last success)",
        ", 7 failed",
        "upgrade the older one",
    ] {
        page.assert_has(words);
    }
    page.assert_lacks("not called yet, ");
}
