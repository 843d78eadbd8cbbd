//! Consent sessions over HTTP: from the link URL through the callback to the first read. The
//! simulated providers redirect back at once. The tests in `chromium.rs` go through their pages.

use bellbird_connections::{ConnectionsError, LinkTarget};
use bellbird_domain::{ConnectionStatus, Plan};
use bellbird_sandbox::{ConsentState, Fault, FaultKind, WebhookSettings};
use jiff::SignedDuration;
use serde_json::json;

use crate::support::browser::{browse, client, open, open_elsewhere, post, start};
use crate::support::database::execute;
use crate::support::harness::{AccountLabel, App, Setup, also_on_postgres, simulated_providers};
use crate::support::provider_spec::{ProviderSpec, Registration, SPECS, spec};

/// The providers that register users.
fn registering() -> impl Iterator<Item = (&'static str, &'static Registration)> {
    SPECS
        .iter()
        .filter_map(|spec| Some((spec.name, spec.registration.as_ref()?)))
}

#[tokio::test]
async fn every_provider_is_linked_in_the_browser() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        app.reset_calls();
        let (linked, shown) = app.link_at(app.olivia.user.id, provider).await;
        shown.assert_shows(200, "linked");
        assert!(!linked.is_empty(), "{provider}: {}", shown.text);
        for connection in &linked {
            assert_eq!(connection.provider, provider);
            assert_eq!(connection.status, ConnectionStatus::Active, "{provider}");
            shown.assert_shows(
                200,
                &connection
                    .institution_name
                    .replace('\'', "&#39;")
                    .replace("&#39;", "'"),
            );
            let accounts = app.accounts_of(connection).await;
            assert!(!accounts.is_empty(), "{provider}");
            let path = match connection.category.as_str() {
                "banking" => {
                    format!(
                        "/v1/transactions?connectionId={}&accountId={}",
                        connection.id, accounts[0].id
                    )
                }
                _ => format!("/v1/trades?connectionId={}", connection.id),
            };
            assert_eq!(app.get(&path).await.status, 200, "{provider}");
            assert_eq!(
                app.get_as(&app.ben.key, &path).await.status,
                if path.contains("trades") { 403 } else { 404 }
            );
        }
        let (_, again) = app.link_at(app.olivia.user.id, provider).await;
        again.assert_shows(200, "linked");
        if let Some(routes) = &spec(provider).registration {
            let calls = app.bank(provider).calls();
            assert_eq!(
                calls.get(routes.register),
                Some(&1),
                "{provider}: registered once"
            );
            assert_eq!(calls.get(routes.delete), None, "{provider}");
        }
    }
}

#[tokio::test]
async fn failed_consent_is_explained_and_connects_nothing() {
    let app = App::start(Setup::default()).await;
    for (provider, answer, words) in [
        ("fiskil", "deny", "did not give your consent"),
        ("fiskil", "error", "Nothing was linked"),
        ("akahu", "deny", "did not give your consent"),
        ("snaptrade", "deny", "did not give your consent"),
        ("snaptrade", "abandon", "did not give your consent"),
        ("snaptrade", "error", "Nothing was linked"),
    ] {
        let before = app.connections_of(app.ben.user.id).await;
        let callback_url = app.callback_url(app.ben.user.id, provider, answer).await;
        open(&callback_url).await.assert_shows(200, words);
        assert_eq!(
            app.connections_of(app.ben.user.id).await,
            before,
            "{provider} {answer}"
        );
    }
}

#[tokio::test]
async fn callback_works_once_and_a_forged_one_never() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let user = app.ben.user.id;
        let callback_url = app.callback_url(user, provider, "accept").await;
        let callback = format!("{}/link/callback", app.console_url);
        let state = callback_url
            .query_pairs()
            .find(|(name, _)| name == "state")
            .unwrap()
            .1
            .into_owned();
        let query = callback_url.query().unwrap();
        let before = app.connections_of(user).await;
        for forged in [
            callback.clone(),
            format!("{callback}?state="),
            format!(
                "{callback}?{}",
                query.replace(&state, &state.replace(|c: char| c.is_ascii_digit(), "7"))
            ),
            format!(
                "{callback}?{}",
                query.replace(&state, &state.to_ascii_uppercase())
            ),
            format!("{callback}?{}", query.replace(&state, &state[1..])),
            format!("{callback}?{query}&state={state}"),
        ] {
            open(&forged).await.assert_shows(400, "Nothing was changed");
        }
        assert_eq!(app.connections_of(user).await, before);
        let head = browse(client().head(callback_url.as_str())).await;
        assert_eq!(head.status, 405, "HEAD is not a callback");

        let (first, second) = tokio::join!(open(&callback_url), open(&callback_url));
        assert_eq!((first.status, second.status), (200, 200), "{}", first.text);
        let connected = app.connections_of(user).await;
        assert!(
            connected.len() > before.len(),
            "{provider}: {} {}",
            first.text,
            second.text
        );
        open(&callback_url).await.assert_shows(200, "linked");
        let audit = app.audit_of(connected[0].id).await;
        assert_eq!(audit.len(), 1, "{provider}: connected once");
        assert_eq!(app.connections_of(user).await, connected);
    }
}

#[tokio::test]
async fn consent_session_expires() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let callback_url = app.callback_url(app.ben.user.id, provider, "accept").await;
        let before = app.connections_of(app.ben.user.id).await;
        app.advance_clock(SignedDuration::from_mins(31));
        open(&callback_url)
            .await
            .assert_shows(400, "Nothing was changed");
        assert_eq!(app.connections_of(app.ben.user.id).await, before);
    }
}

#[tokio::test]
async fn reconnecting_working_connection_keeps_ids() {
    let app = App::start(Setup::default()).await;
    for (provider, setting) in [
        ("fiskil", json!({"sameIds": false})),
        ("akahu", json!({"newToken": true})),
        ("snaptrade", json!(null)),
    ] {
        let (user, linked) = app
            .linked_user(&format!("{provider}@example.com"), provider)
            .await;
        let connection = &linked[0];
        let accounts = app.accounts_of(connection).await;
        if !setting.is_null() {
            app.bank(provider).set_options(&setting).unwrap();
        }
        for answer in ["deny", "error"]
            .into_iter()
            .filter(|answer| provider != "akahu" || *answer == "deny")
        {
            let link_url = app
                .link_url(user, LinkTarget::Connection(connection.id))
                .await;
            let shown = open(app.answer_consent_page(&link_url, answer).await.as_str()).await;
            shown.assert_shows(
                200,
                if answer == "deny" {
                    "did not give your consent"
                } else {
                    "did not work"
                },
            );
            app.advance_clock(SignedDuration::from_secs(11));
        }
        let (new, shown) = app.reconnect(user, connection.id).await;
        assert_eq!(new, [], "{provider}: {}", shown.text);
        shown.assert_shows(200, "is reconnected");
        app.advance_clock(SignedDuration::from_mins(11));
        app.run_due_jobs().await;
        assert_eq!(
            app.connections_of(user).await.len(),
            linked.len(),
            "{provider}"
        );
        assert_eq!(app.accounts_of(connection).await, accounts, "{provider}");
        assert_eq!(app.removals().await.len(), 0, "{provider}");
    }
}

#[tokio::test]
async fn provider_event_may_precede_the_callback() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let user = app.ben.user.id;
        let url = format!("{}/webhooks/{provider}", app.console_url);
        app.bank(provider)
            .set_webhooks(WebhookSettings::to(url))
            .unwrap();
        let before = app.connections_of(user).await.len();
        let callback_url = app.callback_url(user, provider, "accept").await;
        if provider != "akahu" {
            app.provider_events_sent(provider).await;
            app.run_due_jobs().await;
        }
        assert_eq!(
            app.connections_of(user).await.len(),
            before,
            "{provider}: not confirmed yet"
        );
        open(&callback_url).await.assert_shows(200, "linked");
        assert!(app.connections_of(user).await.len() > before, "{provider}");
    }
}

#[tokio::test]
async fn connection_removed_during_session_stays_removed() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let (user, linked) = app
            .linked_user(&format!("{provider}@example.com"), provider)
            .await;
        let callback_url = app.callback_url(user, provider, "deny").await;
        for connection in &linked {
            app.remove(connection.id).await;
        }
        open(&callback_url)
            .await
            .assert_shows(200, "did not give your consent");
        app.advance_clock(SignedDuration::from_mins(40));
        app.run_due_jobs().await;
        assert_eq!(app.connections_of(user).await, [], "{provider}");
    }
}

#[tokio::test]
async fn locally_deleted_consent_needs_a_new_link() {
    let app = App::start(Setup::default()).await;
    let (user, linked) = app
        .linked_user("deleted.locally@example.com", "snaptrade")
        .await;
    app.connections
        .removals()
        .remove_locally(linked[0].id)
        .await
        .unwrap();
    let callback_url = app.callback_url(user, "snaptrade", "abandon").await;
    open(&callback_url)
        .await
        .assert_shows(200, "did not give your consent");
    assert_eq!(app.connections_of(user).await, []);
    // The same login again is the same connection at the provider.
    let (linked, shown) = app.link_at(user, "snaptrade").await;
    assert_eq!(linked.len(), 1, "{}", shown.text);
}

#[tokio::test]
async fn abandoned_session_does_not_affect_a_reconnect() {
    let app = App::start(Setup::default()).await;
    for same_ids in [true, false] {
        let (user, linked) = app
            .linked_user(&format!("two.{same_ids}@example.com"), "fiskil")
            .await;
        let connection = &linked[0];
        let accounts = app.accounts_of(connection).await;
        app.fiskil()
            .set_options(&json!({ "sameIds": same_ids }))
            .unwrap();
        app.set_consent(connection, ConsentState::Revoked).await;
        app.refresh(user, connection.id).await;
        // The user starts a new link, abandons it and reconnects. Jobs poll both sessions
        // before the callback.
        start(&app.link_url(user, LinkTarget::Provider("fiskil")).await)
            .await
            .location();
        let callback_url = app
            .answer_consent_page(
                &app.link_url(user, LinkTarget::Connection(connection.id))
                    .await,
                "accept",
            )
            .await;
        app.advance_clock(SignedDuration::from_mins(6));
        app.run_due_jobs().await;
        open(&callback_url)
            .await
            .assert_shows(200, "is reconnected");
        assert_eq!(app.connections_of(user).await.len(), 1, "{same_ids}");
        assert_eq!(app.accounts_of(connection).await, accounts, "{same_ids}");
    }
}

#[tokio::test]
async fn new_link_beside_abandoned_reconnect_is_separate() {
    let app = App::start(Setup::default()).await;
    let (user, linked) = app.linked_user("two.ways@example.com", "fiskil").await;
    app.fiskil()
        .set_options(&json!({"sameIds": false}))
        .unwrap();
    app.set_consent(&linked[0], ConsentState::Expired).await;
    app.refresh(user, linked[0].id).await;
    start(
        &app.link_url(user, LinkTarget::Connection(linked[0].id))
            .await,
    )
    .await
    .location();
    let (new, shown) = app.link_at(user, "fiskil").await;
    shown.assert_shows(200, "is linked");
    assert_eq!(new.len(), 1, "{}", shown.text);
    app.advance_clock(SignedDuration::from_mins(40));
    app.run_due_jobs().await;
    let connections = app.connections_of(user).await;
    let statuses: Vec<_> = connections
        .iter()
        .map(|connection| (connection.id, connection.status))
        .collect();
    assert!(
        statuses.contains(&(linked[0].id, ConnectionStatus::Invalidated)),
        "{statuses:?}"
    );
    assert!(
        statuses.contains(&(new[0].id, ConnectionStatus::Active)) && statuses.len() == 2,
        "{statuses:?}"
    );
}

#[tokio::test]
async fn denied_session_ignores_an_approved_one() {
    let app = App::start(Setup::default()).await;
    let person = app
        .add_person("two.tabs@example.com", Plan::Professional, &[])
        .await;
    let user = person.user.id;
    let denied = app.callback_url(user, "fiskil", "deny").await;
    let (linked, _) = app.link_at(user, "fiskil").await;
    open(&denied)
        .await
        .assert_shows(200, "did not give your consent");
    assert_eq!(app.connections_of(user).await.len(), linked.len());
}

#[tokio::test]
async fn provider_outage_of_hours_loses_no_consent() {
    let app = App::start(Setup::default()).await;
    let user = app.ben.user.id;
    let count_at = async |provider: &str| {
        app.connections_of(user)
            .await
            .iter()
            .filter(|connection| connection.provider == provider)
            .count()
    };
    let mut sessions = Vec::new();
    for ProviderSpec {
        name: provider,
        consent_route,
        ..
    } in &SPECS
    {
        let before = count_at(provider).await;
        let callback_url = app.callback_url(user, provider, "accept").await;
        app.bank(provider)
            .add_fault(Fault::status(503).at(*consent_route));
        sessions.push((provider, before, callback_url));
    }
    let callbacks = sessions
        .iter()
        .map(|(_, _, callback_url)| open(callback_url));
    for shown in futures_util::future::join_all(callbacks).await {
        shown.assert_shows(200, "Not confirmed yet");
    }
    for _ in 0..6 {
        app.advance_clock(SignedDuration::from_mins(40));
        app.run_due_jobs().await;
    }
    app.clear_faults();
    for (provider, before, _) in &sessions {
        assert_eq!(count_at(provider).await, *before, "{provider}");
    }
    app.advance_clock(SignedDuration::from_mins(10));
    app.run_due_jobs().await;
    for (provider, before, callback_url) in &sessions {
        assert!(count_at(provider).await > *before, "{provider}");
        open(&callback_url).await.assert_shows(200, "linked");
    }
}

#[tokio::test]
async fn different_login_is_a_new_connection() {
    let app = App::start(Setup::default()).await;
    // A person of the sandbox has this email address. After the changes below, the reconnect
    // seems another login.
    let (user, linked) = app.linked_user("priya.sharma@example.com", "fiskil").await;
    let connection = &linked[0];
    let accounts = app.accounts_of(connection).await;
    let found = app.stored_accounts(user, connection.id).await;
    // The bank has renamed all its accounts, so no account can be matched by name.
    for account in &found {
        let names = json!({"display_name": "Renamed", "nickname": null, "product_name": "Renamed"});
        let bank = app.fiskil();
        bank.change_account(&account.provider_account_id, &names)
            .unwrap();
    }
    app.fiskil()
        .set_options(&json!({"sameIds": false}))
        .unwrap();
    app.set_consent(connection, ConsentState::Expired).await;
    app.refresh(user, connection.id).await;
    let (new, shown) = app.reconnect(user, connection.id).await;
    shown.assert_shows(200, "linked separately");
    assert_eq!(new.len(), 1, "{}", shown.text);
    assert_eq!(
        app.accounts_of(connection).await,
        accounts,
        "nothing was merged"
    );
    let ids = |accounts: Vec<AccountLabel>| {
        accounts
            .into_iter()
            .map(|account| account.id)
            .collect::<Vec<_>>()
    };
    let (old, new_ids) = (ids(accounts), ids(app.accounts_of(&new[0]).await));
    assert!(!new_ids.is_empty() && new_ids.iter().all(|id| !old.contains(id)));
    let now = app.connection(user, connection.id).await;
    assert_eq!(
        now.status,
        ConnectionStatus::Invalidated,
        "the broken connection stays broken"
    );
}

#[tokio::test]
async fn own_consent_that_fails_for_a_moment_is_not_replaced() {
    let app = App::start(Setup::default()).await;
    let (user, linked) = app.linked_user("two.consents@example.com", "fiskil").await;
    let connection = &linked[0];
    let accounts = app.accounts_of(connection).await;
    app.fiskil()
        .set_options(&json!({"sameIds": false}))
        .unwrap();
    app.set_consent(connection, ConsentState::Expired).await;
    app.refresh(user, connection.id).await;
    let reconnect = app
        .link_url(user, LinkTarget::Connection(connection.id))
        .await;
    let callback_url = app.answer_consent_page(&reconnect, "accept").await;
    // The old consent works again too, but the first poll cannot read its accounts: a call
    // makes three attempts.
    app.set_consent(connection, ConsentState::Active).await;
    app.fiskil()
        .add_fault(Fault::status(503).at("/v1/banking/accounts").times(3));
    open(&callback_url).await.assert_shows(200, "reconnected");
    assert_eq!(app.removals().await.len(), 0, "no consent is withdrawn");
    assert_eq!(app.accounts_of(connection).await, accounts);
    let statuses: Vec<_> = app
        .connections_of(user)
        .await
        .iter()
        .map(|connection| connection.status)
        .collect();
    assert_eq!(
        statuses,
        [ConnectionStatus::Active; 2],
        "each consent has a connection"
    );
}

#[tokio::test]
async fn link_urls_are_scoped_and_expire() {
    let app = App::start(Default::default()).await;
    let user = app.olivia.user.id;
    open(&format!("{}/link/{}", app.console_url, "0".repeat(64)))
        .await
        .assert_shows(404, "incomplete");
    let choice = app.link_url(user, LinkTarget::UserChoice).await;
    let page = open(&choice).await;
    page.assert_shows(200, "olivia@example.com");
    for words in [
        "Australian banks",
        "New Zealand banks",
        "Brokers",
        "Ironbark Example Bank",
    ] {
        page.assert_shows(200, words);
    }
    assert!(
        page.headers["content-security-policy"]
            .to_str()
            .unwrap()
            .contains("default-src 'none'")
    );
    assert_eq!(page.headers["referrer-policy"], "same-origin");
    assert_eq!(page.headers["cache-control"], "no-store");

    let submit = |form: &'static str| browse(post(&choice, form));
    let authorize_url = submit("provider=akahu").await.location();
    assert!(
        authorize_url
            .query_pairs()
            .any(|(name, value)| name == "scope" && value == "ENDURING_CONSENT"),
        "{authorize_url}"
    );
    for (form, status) in [
        ("provider=unknown", 400),
        ("", 400),
        ("provider=akahu&connection=x", 400),
        ("connection=x", 400),
    ] {
        assert_eq!(submit(form).await.status, status, "{form}");
    }
    // Another user's connection is unknown.
    let other = app.ben.connections[0].id;
    let form = format!("connection={other}");
    assert_eq!(browse(post(&choice, &form)).await.status, 410);
    assert!(
        app.create_link(user, LinkTarget::Connection(other))
            .await
            .is_err()
    );

    // A link URL for one provider does not start a session at another.
    let fiskil_only = app.link_url(user, LinkTarget::Provider("fiskil")).await;
    assert_eq!(
        browse(post(&fiskil_only, "provider=akahu")).await.status,
        410
    );
    let head = browse(client().head(&fiskil_only)).await;
    assert_eq!(head.status, 200, "HEAD starts no session");
    let calls = app.fiskil().calls();
    assert_eq!(calls.get("/v1/auth/session"), None, "{calls:?}");

    app.clock.set(
        app.clock
            .now()
            .saturating_add(SignedDuration::from_mins(31))
            .unwrap(),
    );
    open(&choice).await.assert_shows(410, "expired");
    open(&fiskil_only).await.assert_shows(410, "expired");
}

/// Ends all sessions, as a refusal at the provider does.
async fn end_sessions(app: &App) {
    execute(
        &app.shared.database,
        "UPDATE consent_sessions SET phase = 'ended', outcome = 'declined'",
        "",
    )
    .await;
}

#[tokio::test]
async fn five_visits_of_a_user_to_a_provider_are_open_at_most() {
    let app = App::start(Default::default()).await;
    let user = app.ben.user.id;
    let links = [
        app.link_url(user, LinkTarget::UserChoice).await,
        app.link_url(user, LinkTarget::UserChoice).await,
    ];
    for at in 0..5 {
        browse(post(&links[at % 2], "provider=akahu"))
            .await
            .location();
    }
    app.reset_calls();
    browse(post(&links[0], "provider=akahu"))
        .await
        .assert_shows(503, "five times without coming back");
    assert_eq!(app.bank("akahu").total_calls(), 0);
    let refused = app.create_link(user, LinkTarget::Provider("akahu")).await;
    assert!(matches!(
        refused.err(),
        Some(ConnectionsError::TooManySessions)
    ));
    browse(post(&links[0], "provider=fiskil")).await.location();
    let of_other = app
        .link_url(app.olivia.user.id, LinkTarget::Provider("akahu"))
        .await;
    start(&of_other).await.location();
    app.advance_clock(SignedDuration::from_mins(31));
    start(&app.link_url(user, LinkTarget::Provider("akahu")).await)
        .await
        .location();
}

#[tokio::test]
async fn link_url_starts_at_most_twenty_sessions() {
    let app = App::start(Default::default()).await;
    let link_url = app
        .link_url(app.ben.user.id, LinkTarget::Provider("akahu"))
        .await;
    for at in 0..20 {
        let shown = start(&link_url).await;
        assert_eq!(shown.status, 303, "{at}");
        end_sessions(&app).await;
    }
    // Akahu's sessions cannot be confirmed on the page, so nothing is left to do there.
    let page = open(&link_url).await;
    page.assert_shows(410, "used up");
    assert!(!page.text.contains("<button"), "{}", page.text);
    browse(post(&link_url, "provider=akahu"))
        .await
        .assert_shows(410, "used up");
}

#[tokio::test]
async fn used_up_link_still_confirms_its_sessions() {
    let app = App::start(Default::default()).await;
    let link_url = app.link_url(app.ben.user.id, LinkTarget::UserChoice).await;
    for at in 0..20 {
        browse(post(&link_url, "provider=fiskil")).await.location();
        if at < 15 {
            end_sessions(&app).await;
        }
    }
    let page = open(&link_url).await;
    page.assert_shows(200, "I gave my consent");
    for name in ["provider", "connection", "remove"] {
        assert!(
            !page.text.contains(&format!("name=\"{name}\"")),
            "{}",
            page.text
        );
    }
    open_elsewhere(&link_url).await.assert_shows(410, "used up");
}

#[tokio::test]
async fn lost_registration_answer_leaves_no_orphan() {
    let app = App::start(Setup::default()).await;
    for (
        provider,
        Registration {
            register, delete, ..
        },
    ) in registering()
    {
        let user = app.olivia.user.id;
        let link_url = app.link_url(user, LinkTarget::Provider(provider)).await;
        app.bank(provider).add_fault(
            Fault::new(FaultKind::Cut)
                .at(*register)
                .after_bytes(0)
                .times(1),
        );
        app.reset_calls();
        let shown = start(&link_url).await;
        assert!(
            (500..600).contains(&shown.status),
            "{provider}: {} {}",
            shown.status,
            shown.text
        );
        assert_eq!(
            app.bank(provider).calls().get(*register),
            Some(&1),
            "{provider}: not repeated at once"
        );
        start(&link_url).await.location();
        let calls = app.bank(provider).calls();
        assert_eq!(calls.get(*delete), Some(&1), "{provider}: {calls:?}");
        start(&link_url).await.location();
        let later = app.bank(provider).calls();
        assert_eq!(later.get(*delete), Some(&1), "{provider}");
    }
}

#[tokio::test]
async fn concurrent_starts_register_the_user_once() {
    let app = App::start(Default::default()).await;
    for (provider, Registration { register, .. }) in registering() {
        app.bank(provider)
            .add_fault(Fault::delay_ms(300).at(*register));
        app.reset_calls();
        let link_url = app
            .link_url(app.olivia.user.id, LinkTarget::Provider(provider))
            .await;
        let (first, second, third) =
            tokio::join!(start(&link_url), start(&link_url), start(&link_url));
        for shown in [first, second, third] {
            shown.location();
        }
        assert_eq!(
            app.bank(provider).calls().get(*register),
            Some(&1),
            "{provider}"
        );
    }
}

#[tokio::test]
async fn late_accounts_appear() {
    let app = App::start(Setup::default()).await;
    app.fiskil()
        .set_options(&json!({"lagSeconds": 60}))
        .unwrap();
    let user = app.ben.user.id;
    let (linked, shown) = app.link_at(user, "fiskil").await;
    shown.assert_shows(200, "linked");
    assert!(app.accounts_of(&linked[0]).await.is_empty());
    assert_eq!(linked[0].status, ConnectionStatus::Active);
    app.advance_clock(SignedDuration::from_secs(20));
    app.run_due_jobs().await;
    assert!(app.accounts_of(&linked[0]).await.is_empty(), "not yet");
    app.advance_clock(SignedDuration::from_secs(60));
    app.run_due_jobs().await;
    assert!(!app.accounts_of(&linked[0]).await.is_empty());
}

#[tokio::test]
async fn reconnecting_broken_connection_keeps_ids() {
    let app = App::start(Setup::default()).await;
    for (provider, setting) in [
        ("fiskil", json!({"sameIds": true})),
        ("fiskil", json!({"sameIds": false})),
        ("akahu", json!({})),
        ("akahu", json!({"newToken": true})),
        ("akahu", json!({"newToken": true, "newAuthorisation": true})),
        ("snaptrade", json!(null)),
    ] {
        for state in [ConsentState::Expired, ConsentState::Revoked] {
            let (user, linked) = app
                .linked_user(
                    &format!("{provider}-{state:?}-{setting}@example.com"),
                    provider,
                )
                .await;
            let connection = &linked[0];
            let accounts = app.accounts_of(connection).await;
            if !setting.is_null() {
                app.bank(provider).set_options(&setting).unwrap();
            }
            app.set_consent(connection, state).await;
            let broken = app.refresh(user, connection.id).await;
            let expected = if state == ConsentState::Expired {
                "invalidated"
            } else {
                "revoked"
            };
            assert_eq!(broken.as_str(), expected, "{provider} {setting}");

            let (new, shown) = app.reconnect(user, connection.id).await;
            assert_eq!(new, [], "{provider} {state:?} {setting}: {}", shown.text);
            shown.assert_shows(200, "is reconnected");
            let now = app.connection(user, connection.id).await;
            assert_eq!(
                now.status,
                ConnectionStatus::Active,
                "{provider} {state:?} {setting}"
            );
            assert_eq!(
                app.accounts_of(connection).await,
                accounts,
                "{provider} {state:?} {setting}"
            );
            let audit = app.audit_of(connection.id).await;
            let steps: Vec<String> = audit.into_iter().map(|row| row.cause).collect();
            assert_eq!(
                steps,
                ["linked", "refreshed", "reconnected"],
                "{provider} {state:?} {setting}"
            );
            app.run_due_jobs().await;
            app.advance_clock(SignedDuration::from_mins(11));
            app.run_due_jobs().await;
            let later = app.accounts_of(connection).await;
            assert_eq!(
                later, accounts,
                "{provider} {state:?} {setting}: after the backfill window"
            );
            assert_eq!(
                app.removals().await.len(),
                0,
                "the replaced consent is withdrawn"
            );
            app.remove(connection.id).await;
        }
    }
}

also_on_postgres! { callback_works_once_and_a_forged_one_never lost_registration_answer_leaves_no_orphan }
