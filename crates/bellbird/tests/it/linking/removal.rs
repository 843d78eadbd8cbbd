//! Removing a connection: it is hidden at once, its consent is withdrawn with retries, and then it
//! is deleted. Failures do not change that; for crashes see `chaos/kills/removal_process.rs`.

use bellbird_connections::{Connections, Removal};
use bellbird_domain::{ConnectionId, Plan};
use bellbird_providers::Registry;
use bellbird_sandbox::{ConsentState, Fault};
use jiff::SignedDuration;
use serde_json::Value;

use crate::support::harness::{App, Setup, also_on_postgres, eventually, simulated_providers};
use crate::support::provider_spec::spec;

/// Longer than a lease.
const PAST_LEASE: SignedDuration = SignedDuration::from_mins(3);
const DELETE_CONSENT: &str = "/v1/consent/{arrangement_id}";

/// Advances the clocks of the service and of SnapTrade, which rejects signatures of another time.
/// That of Fiskil stays, so that its token is valid and a withdrawal is one call.
fn advance_clock(app: &App, time: SignedDuration) {
    app.advance_own_clock(time);
    app.bank("snaptrade").advance_clock(time);
}

/// The steps of the audit, from the moment at which the connection was hidden.
async fn removal_steps(app: &App, id: ConnectionId) -> Vec<String> {
    let steps = app.audit_of(id).await.into_iter().map(|step| step.cause);
    steps.skip_while(|cause| cause != "removed").collect()
}

/// An instance on which no provider is configured.
fn without_providers(app: &App) -> Connections {
    Connections::new(app.storage.clone(), Registry::default(), app.clock.clone())
}

async fn assert_gone(app: &App, id: ConnectionId) {
    assert_eq!(app.storage.connections().find_any(id).await.unwrap(), None);
    let secrets = app.storage.secrets();
    let credentials = secrets.find_credentials(app.olivia.user.id, id).await;
    assert!(credentials.unwrap().is_none());
    // Each step is recorded once.
    assert_eq!(removal_steps(app, id).await, ["removed", "deleted"]);
    assert_eq!(app.removals().await.len(), 0);
}

fn withdrawals(app: &App) -> u64 {
    let calls = app.fiskil().calls();
    calls.get(DELETE_CONSENT).copied().unwrap_or(0)
}

#[tokio::test]
async fn withdrawal_is_retried_until_accepted() {
    let app = App::start(Setup::default()).await;
    for name in simulated_providers() {
        let Some(credentials) = app.credentials_of(name).pop() else {
            continue;
        };
        let email = format!("{name}@example.com");
        let person = app
            .add_person(&email, Plan::Professional, &[&credentials])
            .await;
        spec(name).set_consent(app.bank(name), &credentials, ConsentState::Revoked);
        let removal = app.remove(person.connections[0].id).await;
        assert_eq!(removal, Removal::Done, "{name}");
        app.delete_user(person.user.id).await;
    }

    let id = app.olivia.connections[0].id;
    let transactions = format!("/v1/transactions?connectionId={id}");
    assert_eq!(app.get(&transactions).await.status, 200);
    app.reset_calls();
    let fault = Fault::status(503).at("/v1/consent/");
    app.fiskil().add_fault(fault);
    let Removal::Waiting {
        reason,
        next_attempt_at,
    } = app.remove(id).await
    else {
        panic!("removed although the provider fails")
    };
    assert!(reason.contains("the provider is unavailable"), "{reason}");
    app.get(&transactions).await.error(404);
    assert_eq!(app.get("/v1/connections").await.data().len(), 1);
    let pending = app.removals().await;
    let [pending] = &pending[..] else {
        panic!("{pending:?}")
    };
    assert_eq!((pending.connection.id, pending.attempts), (id, 1));
    assert_eq!(pending.last_error, Some(reason));
    assert_eq!(Some(pending.next_attempt_at), next_attempt_at);

    app.reset_calls();
    app.connections.jobs().run_due("removal").await.unwrap();
    assert_eq!(withdrawals(&app), 0, "not due yet");
    advance_clock(&app, SignedDuration::from_secs(40));
    app.connections.jobs().run_due("removal").await.unwrap();
    assert!(withdrawals(&app) > 0);
    assert_eq!(app.removals().await[0].attempts, 2);
    // A second request does not wait for the schedule.
    assert!(matches!(app.remove(id).await, Removal::Waiting { .. }));
    assert_eq!(app.removals().await[0].attempts, 3);
    app.clear_faults();
    advance_clock(&app, PAST_LEASE);
    app.connections.jobs().run_due("removal").await.unwrap();
    assert_gone(&app, id).await;
    assert!(matches!(
        app.connections.removals().remove(id).await,
        Err(error) if error.to_string().contains("connection not found")
    ));
}

#[tokio::test]
async fn unconfigured_provider_delays_the_removal() {
    let app = App::start(Setup::default()).await;
    let [retried, deleted_locally] = [0, 1].map(|at| app.olivia.connections[at].id);
    let unconfigured = without_providers(&app);
    for id in [retried, deleted_locally] {
        let Removal::Waiting {
            reason,
            next_attempt_at,
        } = unconfigured.removals().remove(id).await.unwrap()
        else {
            panic!("removed without credentials")
        };
        let is_unconfigured = reason.starts_with("the provider fiskil is not configured here");
        assert!(is_unconfigured, "{reason}");
        let wait = next_attempt_at.unwrap().duration_since(app.clock.now());
        assert!((60..=72).contains(&wait.as_mins()), "{wait}");
    }
    assert_eq!(app.get("/v1/connections").await.data().len(), 0);
    let removals = unconfigured.removals();
    let removal = removals.remove_locally(deleted_locally).await;
    assert_eq!(removal.unwrap(), Removal::Done);
    let steps = removal_steps(&app, deleted_locally).await;
    assert_eq!(steps, ["removed", "removed_locally"]);
    assert_eq!(withdrawals(&app), 0, "the provider was not called");
    // The provider is configured again.
    advance_clock(&app, SignedDuration::from_mins(73));
    app.connections.jobs().run_due("removal").await.unwrap();
    assert_gone(&app, retried).await;
    assert_eq!(withdrawals(&app), 1);
}

#[tokio::test]
async fn concurrent_removals_withdraw_each_consent_once() {
    let app = App::start(Setup::default()).await;
    let id = app.ben.connections[0].id;
    app.fiskil()
        .add_fault(Fault::delay_ms(3_000).at("/v1/consent/"));
    let first = app.connections.removals().remove(id);
    let second = async {
        eventually(async || withdrawals(&app) > 0).await;
        app.connections.removals().remove(id).await
    };
    let (first, second) = tokio::join!(first, second);
    let removals = [first, second].map(Result::unwrap);
    assert_eq!(removals, [Removal::Done, Removal::Done]);
    assert_eq!(withdrawals(&app), 1);

    // By two instances.
    app.clear_faults();
    let all = simulated_providers().flat_map(|provider| app.credentials_of(provider));
    // Olivia and Ben use the first three.
    let spare: Vec<Value> = all.skip(3).collect();
    let spare: Vec<&Value> = spare.iter().collect();
    let (email, plan) = ("many@example.com", Plan::Professional);
    let person = app.add_person(email, plan, &spare).await;
    app.reset_calls();
    let unconfigured = without_providers(&app);
    let mut all = person.connections.clone();
    all.extend(app.olivia.connections.clone());
    for connection in &all {
        unconfigured.removals().remove(connection.id).await.unwrap();
    }
    advance_clock(&app, SignedDuration::from_hours(2));
    let other = app.connections.clone();
    let (first, second, third) = tokio::join!(
        app.connections.jobs().run_due("removal"),
        other.jobs().run_due("removal"),
        other.removals().remove(all[0].id)
    );
    first.unwrap();
    second.unwrap();
    // The connection was deleted either before the request found it or while it waited.
    match third {
        Ok(removal) => assert_eq!(removal, Removal::Done),
        Err(error) => assert!(error.to_string().contains("not found"), "{error}"),
    }
    assert_eq!(app.removals().await.len(), 0);
    let withdrawn = simulated_providers().map(|provider| app.bank(provider).calls_with("DELETE"));
    assert_eq!(withdrawn.sum::<u64>(), all.len() as u64);
}

also_on_postgres! { concurrent_removals_withdraw_each_consent_once }
