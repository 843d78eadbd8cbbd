//! Consent sessions over HTTP: from the link URL through the callback to the first read. The
//! simulated providers redirect back at once. The tests in `chromium.rs` go through their pages.

use std::collections::BTreeMap;

use bellbird_connections::{ConnectionsError, LinkTarget};
use bellbird_domain::{ConnectionStatus, Plan};
use bellbird_sandbox::{ConsentState, Fault, FaultKind};
use jiff::SignedDuration;
use serde_json::json;

use crate::support::browser::{browse, client, open, open_elsewhere, start, submit};
use crate::support::database::execute;
use crate::support::harness::{AccountLabel, App, Setup, also_on_postgres, simulated_providers};
use crate::support::provider_spec::{Registration, SPECS, spec};

/// The providers that register users.
fn registering() -> impl Iterator<Item = (&'static str, &'static Registration)> {
    SPECS
        .iter()
        .filter_map(|spec| Some((spec.name, spec.registration.as_ref()?)))
}

#[tokio::test]
async fn consents_are_linked_or_explained() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        app.reset_calls();
        let (linked, shown) = app.link_at(app.olivia.user.id, provider).await;
        shown.assert_shows(200, "linked");
        assert!(!linked.is_empty(), "{provider}: {}", shown.text);
        for connection in &linked {
            assert_eq!(connection.provider, provider);
            assert_eq!(connection.status, ConnectionStatus::Active, "{provider}");
            shown.assert_shows(200, &connection.institution_name);
            let accounts = app.accounts_of(connection).await;
            assert!(!accounts.is_empty(), "{provider}");
            let (rows, of_others) = match connection.category.as_str() {
                "banking" => (
                    app.rows_of(connection).with("accountId", &accounts[0].id),
                    404,
                ),
                _ => (app.rows_of(connection), 403),
            };
            assert_eq!(rows.send().await.status, 200, "{provider}");
            assert_eq!(rows.by(&app.ben).send().await.status, of_others);
        }
        let (_, again) = app.link_at(app.olivia.user.id, provider).await;
        again.assert_shows(200, "linked");
        if let Some(routes) = &spec(provider).registration {
            let calls = app.bank(provider).calls();
            let of_user = [routes.register, routes.delete].map(|route| calls.get(route));
            assert_eq!(of_user, [Some(&1), None], "{provider}: registered once");
        }
    }

    // A failed one connects nothing.
    for (provider, answer, words) in [
        ("fiskil", "deny", "did not give your consent"),
        ("fiskil", "error", "Nothing was linked"),
        ("akahu", "deny", "did not give your consent"),
        ("snaptrade", "deny", "did not give your consent"),
        ("snaptrade", "abandon", "did not give your consent"),
        ("snaptrade", "error", "Nothing was linked"),
    ] {
        let user = app.ben.user.id;
        let before = app.connections_of(user).await;
        let callback_url = app.callback_url(user, provider, answer).await;
        open(&callback_url).await.assert_shows(200, words);
        let after = app.connections_of(user).await;
        assert_eq!(after, before, "{provider} {answer}");
    }

    // Nor does one that comes late.
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
async fn callback_works_once_and_a_forged_one_never() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let user = app.ben.user.id;
        let callback_url = app.callback_url(user, provider, "accept").await;
        let callback = format!("{}/link/callback", app.console_url);
        let (_, state) = callback_url
            .query_pairs()
            .find(|(name, _)| name == "state")
            .unwrap();
        let query = callback_url.query().unwrap();
        let with_state = |forged: &str| format!("{callback}?{}", query.replace(&*state, forged));
        let before = app.connections_of(user).await;
        for forged in [
            callback.clone(),
            format!("{callback}?state="),
            with_state(&state.replace(|c: char| c.is_ascii_digit(), "7")),
            with_state(&state.to_ascii_uppercase()),
            with_state(&state[1..]),
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
        let texts = [first.text, second.text];
        assert!(connected.len() > before.len(), "{provider}: {texts:?}");
        open(&callback_url).await.assert_shows(200, "linked");
        let audit = app.audit_of(connected[0].id).await;
        assert_eq!(audit.len(), 1, "{provider}: connected once");
        assert_eq!(app.connections_of(user).await, connected);
    }
}

#[tokio::test]
async fn provider_event_may_precede_the_callback() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let user = app.ben.user.id;
        app.subscribe_to(provider);
        let before = app.connections_of(user).await.len();
        let callback_url = app.callback_url(user, provider, "accept").await;
        if provider != "akahu" {
            app.provider_events_sent(provider).await;
            app.run_due_jobs().await;
        }
        let unconfirmed = app.connections_of(user).await.len();
        assert_eq!(unconfirmed, before, "{provider}");
        open(&callback_url).await.assert_shows(200, "linked");
        assert!(app.connections_of(user).await.len() > before, "{provider}");
    }
}

#[tokio::test]
async fn provider_outage_of_hours_loses_no_consent() {
    let app = App::start(Setup::default()).await;
    let user = app.ben.user.id;
    let count_at = async |provider: &str| {
        let mut connections = app.connections_of(user).await;
        connections.retain(|connection| connection.provider == provider);
        connections.len()
    };
    let mut sessions = Vec::new();
    for provider in simulated_providers() {
        let before = count_at(provider).await;
        let callback_url = app.callback_url(user, provider, "accept").await;
        let route = spec(provider).consent_route;
        app.bank(provider).add_fault(Fault::status(503).at(route));
        sessions.push((provider, before, callback_url));
    }
    let callbacks = sessions
        .iter()
        .map(|(_, _, callback_url)| open(callback_url));
    for shown in futures_util::future::join_all(callbacks).await {
        shown.assert_shows(200, "Not confirmed yet");
    }
    for _ in 0..6 {
        app.run_jobs_after(SignedDuration::from_mins(40)).await;
    }
    app.clear_faults();
    for (provider, before, _) in &sessions {
        assert_eq!(count_at(provider).await, *before, "{provider}");
    }
    app.run_jobs_after(SignedDuration::from_mins(10)).await;
    for (provider, before, callback_url) in &sessions {
        assert!(count_at(provider).await > *before, "{provider}");
        open(&callback_url).await.assert_shows(200, "linked");
    }
}

/// Each of these has users of its own.
#[tokio::test]
async fn sessions_do_not_affect_each_other() {
    let app = App::start(Setup::default()).await;
    denied_session_ignores_an_approved_one(&app).await;
    locally_deleted_consent_needs_a_new_link(&app).await;
    own_consent_that_fails_for_a_moment_is_not_replaced(&app).await;
    connection_removed_during_session_stays_removed(&app).await;
    abandoned_session_does_not_affect_a_reconnect(&app).await;
    new_link_beside_abandoned_reconnect_is_separate(&app).await;
    different_login_is_a_new_connection(&app).await;
}

async fn connection_removed_during_session_stays_removed(app: &App) {
    for provider in simulated_providers() {
        let email = format!("{provider}@example.com");
        let (user, linked) = app.linked_user(&email, provider).await;
        let callback_url = app.callback_url(user, provider, "deny").await;
        for connection in &linked {
            app.remove(connection.id).await;
        }
        open(&callback_url)
            .await
            .assert_shows(200, "did not give your consent");
        app.run_jobs_after(SignedDuration::from_mins(40)).await;
        assert_eq!(app.connections_of(user).await, [], "{provider}");
    }
}

async fn locally_deleted_consent_needs_a_new_link(app: &App) {
    let email = "deleted.locally@example.com";
    let (user, linked) = app.linked_user(email, "snaptrade").await;
    let removals = app.connections.removals();
    removals.remove_locally(linked[0].id).await.unwrap();
    let callback_url = app.callback_url(user, "snaptrade", "abandon").await;
    open(&callback_url)
        .await
        .assert_shows(200, "did not give your consent");
    assert_eq!(app.connections_of(user).await, []);
    // The same login again is the same connection at the provider.
    let (linked, shown) = app.link_at(user, "snaptrade").await;
    assert_eq!(linked.len(), 1, "{}", shown.text);
}

async fn abandoned_session_does_not_affect_a_reconnect(app: &App) {
    for same_ids in [true, false] {
        let email = format!("two.{same_ids}@example.com");
        let (user, linked) = app.linked_user(&email, "fiskil").await;
        let connection = &linked[0];
        let accounts = app.accounts_of(connection).await;
        app.set_options("fiskil", &json!({ "sameIds": same_ids }));
        app.change_consent(connection, ConsentState::Revoked).await;
        // The user starts a new link, abandons it and reconnects. Jobs poll both sessions
        // before the callback.
        let abandoned = app.link_url(user, LinkTarget::Provider("fiskil")).await;
        start(&abandoned).await.location();
        let this = LinkTarget::Connection(connection.id);
        let link_url = app.link_url(user, this).await;
        let callback_url = app.answer_consent_page(&link_url, "accept").await;
        app.run_jobs_after(SignedDuration::from_mins(6)).await;
        open(&callback_url)
            .await
            .assert_shows(200, "is reconnected");
        assert_eq!(app.connections_of(user).await.len(), 1, "{same_ids}");
        assert_eq!(app.accounts_of(connection).await, accounts, "{same_ids}");
    }
}

async fn new_link_beside_abandoned_reconnect_is_separate(app: &App) {
    let (user, linked) = app.linked_user("two.ways@example.com", "fiskil").await;
    app.set_options("fiskil", &json!({"sameIds": false}));
    app.change_consent(&linked[0], ConsentState::Expired).await;
    let broken = LinkTarget::Connection(linked[0].id);
    let abandoned = app.link_url(user, broken).await;
    start(&abandoned).await.location();
    let (new, shown) = app.link_at(user, "fiskil").await;
    shown.assert_shows(200, "is linked");
    assert_eq!(new.len(), 1, "{}", shown.text);
    app.run_jobs_after(SignedDuration::from_mins(40)).await;
    let connections = app.connections_of(user).await.into_iter();
    let statuses = connections.map(|connection| (connection.id, connection.status));
    let expected = [
        (linked[0].id, ConnectionStatus::Invalidated),
        (new[0].id, ConnectionStatus::Active),
    ];
    assert_eq!(BTreeMap::from_iter(statuses), BTreeMap::from(expected));
}

async fn denied_session_ignores_an_approved_one(app: &App) {
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

async fn different_login_is_a_new_connection(app: &App) {
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
    app.set_options("fiskil", &json!({"sameIds": false}));
    app.change_consent(connection, ConsentState::Expired).await;
    let (new, shown) = app.reconnect(user, connection.id).await;
    shown.assert_shows(200, "linked separately");
    assert_eq!(new.len(), 1, "{}", shown.text);
    let unmerged = app.accounts_of(connection).await;
    assert_eq!(unmerged, accounts, "nothing was merged");
    let others = app.accounts_of(&new[0]).await;
    let is_known = |other: &AccountLabel| accounts.iter().any(|account| account.id == other.id);
    assert!(!others.is_empty() && !others.iter().any(is_known));
    let status = app.connection(user, connection.id).await.status;
    assert_eq!(status, ConnectionStatus::Invalidated, "it stays broken");
}

async fn own_consent_that_fails_for_a_moment_is_not_replaced(app: &App) {
    let (user, linked) = app.linked_user("two.consents@example.com", "fiskil").await;
    let connection = &linked[0];
    let accounts = app.accounts_of(connection).await;
    app.set_options("fiskil", &json!({"sameIds": false}));
    app.change_consent(connection, ConsentState::Expired).await;
    let this = LinkTarget::Connection(connection.id);
    let reconnect = app.link_url(user, this).await;
    let callback_url = app.answer_consent_page(&reconnect, "accept").await;
    // The old consent works again too, but the first poll cannot read its accounts: a call
    // makes three attempts.
    app.set_consent(connection, ConsentState::Active).await;
    app.fiskil()
        .add_fault(Fault::status(503).at("/v1/banking/accounts").times(3));
    open(&callback_url).await.assert_shows(200, "reconnected");
    app.clear_faults();
    assert_eq!(app.removals().await.len(), 0, "no consent is withdrawn");
    assert_eq!(app.accounts_of(connection).await, accounts);
    // Each consent has a connection.
    let connections = app.connections_of(user).await.into_iter();
    let statuses: Vec<_> = connections.map(|connection| connection.status).collect();
    assert_eq!(statuses, [ConnectionStatus::Active; 2]);
}

/// Ends all sessions, as a refusal at the provider does.
async fn end_sessions(app: &App) {
    let refusal = "UPDATE consent_sessions SET phase = 'ended', outcome = 'declined'";
    execute(&app.shared.database, refusal, "").await;
}

#[tokio::test]
async fn link_urls_are_limited_scoped_and_expire() {
    let app = App::start(Default::default()).await;
    let user = app.ben.user.id;
    let links = [
        app.link_url(user, LinkTarget::UserChoice).await,
        app.link_url(user, LinkTarget::UserChoice).await,
    ];
    for at in 0..5 {
        submit(&links[at % 2], "provider=akahu").await.location();
    }
    app.reset_calls();
    let sixth = submit(&links[0], "provider=akahu").await;
    sixth.assert_shows(503, "five times without coming back");
    assert_eq!(app.bank("akahu").total_calls(), 0);
    let refused = app.create_link(user, LinkTarget::Provider("akahu")).await;
    assert!(matches!(refused, Err(ConnectionsError::TooManySessions)));
    submit(&links[0], "provider=fiskil").await.location();
    let akahu = LinkTarget::Provider("akahu");
    let of_other = app.link_url(app.olivia.user.id, akahu).await;
    start(&of_other).await.location();
    app.advance_clock(SignedDuration::from_mins(31));
    start(&app.link_url(user, akahu).await).await.location();

    // A link starts at most twenty sessions.
    let link_url = app.link_url(app.ben.user.id, akahu).await;
    for at in 0..20 {
        let shown = start(&link_url).await;
        assert_eq!(shown.status, 303, "{at}");
        end_sessions(&app).await;
    }
    // Akahu's sessions cannot be confirmed on the page, so nothing is left to do there.
    let page = open(&link_url).await;
    page.assert_shows(410, "used up");
    page.assert_lacks("<button");
    let again = submit(&link_url, "provider=akahu").await;
    again.assert_shows(410, "used up");

    // One that is used up still confirms its sessions.
    let link_url = app.link_url(app.ben.user.id, LinkTarget::UserChoice).await;
    for at in 0..20 {
        submit(&link_url, "provider=fiskil").await.location();
        if at < 15 {
            end_sessions(&app).await;
        }
    }
    let page = open(&link_url).await;
    page.assert_shows(200, "I gave my consent");
    for name in ["provider", "connection", "remove"] {
        page.assert_lacks(&format!("name=\"{name}\""));
    }
    open_elsewhere(&link_url).await.assert_shows(410, "used up");

    // They lead only where they may.
    app.reset_calls();
    let user = app.olivia.user.id;
    let unknown = format!("{}/link/{}", app.console_url, "0".repeat(64));
    open(&unknown).await.assert_shows(404, "incomplete");
    let leaving = app.add_person("leaving@example.com", Plan::Professional, &[]);
    let leaving = leaving.await.user.id;
    let link_url = app.link_url(leaving, LinkTarget::UserChoice).await;
    app.delete_user(leaving).await;
    let page = open(&link_url).await;
    page.assert_shows(404, "This link does not work");
    page.assert_lacks("<button");
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
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("default-src 'none'"), "{policy}");
    assert_eq!(page.headers["referrer-policy"], "same-origin");
    assert_eq!(page.headers["cache-control"], "no-store");

    let authorize_url = submit(&choice, "provider=akahu").await.location();
    let mut query = authorize_url.query_pairs();
    let is_scoped = query.any(|(name, value)| name == "scope" && value == "ENDURING_CONSENT");
    assert!(is_scoped, "{authorize_url}");
    for form in [
        "provider=unknown",
        "",
        "provider=akahu&connection=x",
        "connection=x",
    ] {
        assert_eq!(submit(&choice, form).await.status, 400, "{form}");
    }
    // Another user's connection is unknown.
    let other = app.ben.connections[0].id;
    let form = format!("connection={other}");
    assert_eq!(submit(&choice, &form).await.status, 410);
    let foreign = app.create_link(user, LinkTarget::Connection(other)).await;
    assert!(foreign.is_err());

    // A link URL for one provider does not start a session at another.
    let fiskil_only = app.link_url(user, LinkTarget::Provider("fiskil")).await;
    assert_eq!(submit(&fiskil_only, "provider=akahu").await.status, 410);
    let head = browse(client().head(&fiskil_only)).await;
    assert_eq!(head.status, 200, "HEAD starts no session");
    let calls = app.fiskil().calls();
    assert_eq!(calls.get("/v1/auth/session"), None, "{calls:?}");

    app.advance_own_clock(SignedDuration::from_mins(31));
    open(&choice).await.assert_shows(410, "expired");
    open(&fiskil_only).await.assert_shows(410, "expired");
}

#[tokio::test]
async fn user_is_registered_once() {
    let app = App::start(Setup::default()).await;
    for (provider, routes) in registering() {
        let user = app.olivia.user.id;
        let link_url = app.link_url(user, LinkTarget::Provider(provider)).await;
        let cut = Fault::new(FaultKind::Cut).at(routes.register);
        app.bank(provider).add_fault(cut.after_bytes(0).times(1));
        app.reset_calls();
        let calls_of = |route: &str| app.bank(provider).calls().get(route).copied();
        let shown = start(&link_url).await;
        let is_failure = (500..600).contains(&shown.status);
        assert!(is_failure, "{provider}: {shown:?}");
        assert_eq!(
            calls_of(routes.register),
            Some(1),
            "{provider}: not repeated"
        );
        for _ in 0..2 {
            start(&link_url).await.location();
            assert_eq!(calls_of(routes.delete), Some(1), "{provider}");
        }
    }

    // Starts at once register another user once.
    for (provider, Registration { register, .. }) in registering() {
        let slow = Fault::delay_ms(300).at(*register);
        app.bank(provider).add_fault(slow);
        app.reset_calls();
        let user = app.ben.user.id;
        let link_url = app.link_url(user, LinkTarget::Provider(provider)).await;
        let (first, second, third) =
            tokio::join!(start(&link_url), start(&link_url), start(&link_url));
        for shown in [first, second, third] {
            shown.location();
        }
        let calls = app.bank(provider).calls();
        assert_eq!(calls.get(*register), Some(&1), "{provider}");
    }
}

#[tokio::test]
async fn reconnecting_keeps_ids() {
    let app = App::start(Setup::default()).await;
    for (provider, setting) in [
        ("fiskil", json!({"sameIds": true})),
        ("fiskil", json!({"sameIds": false})),
        ("akahu", json!({})),
        ("akahu", json!({"newToken": true})),
        ("akahu", json!({"newToken": true, "newAuthorisation": true})),
        ("snaptrade", json!(null)),
    ] {
        for (state, status) in [
            (ConsentState::Expired, "invalidated"),
            (ConsentState::Revoked, "revoked"),
        ] {
            let case = format!("{provider}-{state:?}-{setting}");
            let email = format!("{case}@example.com");
            let (user, linked) = app.linked_user(&email, provider).await;
            let connection = &linked[0];
            let accounts = app.accounts_of(connection).await;
            if !setting.is_null() {
                app.set_options(provider, &setting);
            }
            let broken = app.change_consent(connection, state).await;
            assert_eq!(broken.as_str(), status, "{case}");

            let (new, shown) = app.reconnect(user, connection.id).await;
            assert_eq!(new, [], "{case}: {}", shown.text);
            shown.assert_shows(200, "is reconnected");
            let now = app.connection(user, connection.id).await;
            assert_eq!(now.status, ConnectionStatus::Active, "{case}");
            assert_eq!(app.accounts_of(connection).await, accounts, "{case}");
            let audit = app.audit_of(connection.id).await;
            let steps: Vec<String> = audit.into_iter().map(|row| row.cause).collect();
            assert_eq!(steps, ["linked", "refreshed", "reconnected"], "{case}");
            app.run_due_jobs().await;
            app.run_jobs_after(SignedDuration::from_mins(11)).await;
            let later = app.accounts_of(connection).await;
            assert_eq!(later, accounts, "{case}: after the backfill window");
            let removals = app.removals().await;
            assert_eq!(removals.len(), 0, "the replaced consent is withdrawn");
            app.remove(connection.id).await;
        }
    }

    // Of a connection that works, too.
    for (provider, setting) in [
        ("fiskil", json!({"sameIds": false})),
        (
            "akahu",
            json!({"newToken": true, "newAuthorisation": false}),
        ),
        ("snaptrade", json!(null)),
    ] {
        let email = format!("{provider}@example.com");
        let (user, linked) = app.linked_user(&email, provider).await;
        let connection = &linked[0];
        let accounts = app.accounts_of(connection).await;
        if !setting.is_null() {
            app.set_options(provider, &setting);
        }
        for (answer, words) in [
            ("deny", "Nothing has changed"),
            ("error", "Nothing has changed."),
        ] {
            if provider == "akahu" && answer == "error" {
                continue;
            }
            let this = LinkTarget::Connection(connection.id);
            let link_url = app.link_url(user, this).await;
            let callback_url = app.answer_consent_page(&link_url, answer).await;
            open(&callback_url).await.assert_shows(200, words);
            app.advance_clock(SignedDuration::from_secs(11));
        }
        let (new, shown) = app.reconnect(user, connection.id).await;
        assert_eq!(new, [], "{provider}: {}", shown.text);
        shown.assert_shows(200, "is reconnected");
        app.run_jobs_after(SignedDuration::from_mins(11)).await;
        let count = app.connections_of(user).await.len();
        assert_eq!(count, linked.len(), "{provider}");
        assert_eq!(app.accounts_of(connection).await, accounts, "{provider}");
        assert_eq!(app.removals().await.len(), 0, "{provider}");
    }
}

also_on_postgres! { callback_works_once_and_a_forged_one_never user_is_registered_once }
