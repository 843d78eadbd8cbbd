//! Crashes in every step of a removal: the connection is hidden first, its consent is withdrawn
//! once, and then it is deleted.

use std::pin::pin;
use std::task::Poll;

use bellbird_connections::Removal;
use bellbird_domain::{Connection, ConnectionId};
use bellbird_sandbox::ConsentState;
use bellbird_storage::UserChange;
use jiff::SignedDuration;
use secrecy::SecretString;

use crate::linking::removal::{
    PAST_LEASE, advance_clock, assert_gone, withdrawals, without_providers,
};
use crate::support::harness::{App, Setup, also_on_postgres, eventually};

/// Polls a future `polls` times, then drops it, as if the process had been killed.
async fn killed_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Sets the consent to active at the provider and imports it.
async fn import_again(app: &App) -> Connection {
    let credentials = app.credentials(0);
    let consent = credentials["arrangementId"].as_str().unwrap();
    let fiskil = app.fiskil();
    fiskil.set_consent(consent, ConsentState::Active).unwrap();
    let credentials = SecretString::from(credentials.to_string());
    let (imports, user) = (app.connections.imports(), app.olivia.user.id);
    let imported = imports.import(user, "fiskil", &credentials).await;
    app.reset_calls();
    imported.unwrap().connections.remove(0)
}

/// Runs the removal. PostgreSQL may still hold the row for the last statement of the crashed run,
/// so that a claim skips it.
async fn remove_when_free(app: &App, id: ConnectionId) {
    eventually(async || {
        app.connections.jobs().run_due("removal").await.unwrap();
        let found = app.storage.connections().find_any(id).await;
        found.unwrap().is_none()
    })
    .await;
}

/// How often a test may go through all steps. Some steps are short, so a pass can miss them.
const PASSES_MAX: u32 = 50;

#[tokio::test]
async fn removal_survives_any_crash() {
    let app = App::start(Setup::default()).await;
    let (mut polls, mut hidden_only, mut withdrawn_only) = (0, 0, 0);
    let mut passes = 0;
    while hidden_only == 0 || withdrawn_only == 0 {
        let id = import_again(&app).await.id;
        let done = killed_after(polls, app.connections.removals().remove(id))
            .await
            .is_some();
        // A commit that was sent may still be running. This write waits for it, so that the
        // reads below see it.
        let user = app.olivia.user.id;
        app.change_user(user, &UserChange::default()).await;
        let withdrawn = withdrawals(&app);
        match app.storage.connections().find_any(id).await.unwrap() {
            // The removal had not begun: a second request begins it.
            Some(found) if found.status.as_str() == "active" => {
                assert_eq!(withdrawn, 0, "not before the connection is hidden");
                assert_eq!(app.remove(id).await, Removal::Done);
            }
            Some(_) if withdrawn == 0 => hidden_only += 1,
            Some(_) => withdrawn_only += 1,
            None => {}
        }
        assert!(!app.has_connection(user, id).await, "it is hidden");
        // The service starts again. At first the crashed instance still holds its lease.
        app.connections.jobs().run_due("removal").await.unwrap();
        advance_clock(&app, PAST_LEASE);
        remove_when_free(&app, id).await;
        assert_gone(&app, id).await;
        assert!(withdrawals(&app) > 0, "the consent was withdrawn");
        polls = if done { 0 } else { polls + 1 };
        passes += u32::from(done);
        let hits = (hidden_only, withdrawn_only);
        assert!(
            passes < PASSES_MAX,
            "{hits:?}: no crash hit one of the steps"
        );
    }
}

#[tokio::test]
async fn crashed_removal_job_is_resumed() {
    let app = App::start(Setup::default()).await;
    let unconfigured = without_providers(&app);
    let (mut polls, mut done) = (0, false);
    while !done {
        let id = import_again(&app).await.id;
        unconfigured.removals().remove(id).await.unwrap();
        advance_clock(&app, SignedDuration::from_hours(2));
        let connections = app.connections.clone();
        let crashed_run = tokio::spawn(async move {
            let run = connections.jobs().run_due("removal");
            killed_after(polls, run).await.is_some()
        });
        done = crashed_run.await.unwrap();
        polls += 1;
        advance_clock(&app, PAST_LEASE);
        // After a failure, a crash is the second one in a row, so the job is delayed.
        app.connections.jobs().run_due("removal").await.unwrap();
        advance_clock(&app, SignedDuration::from_hours(2));
        remove_when_free(&app, id).await;
        assert_gone(&app, id).await;
        assert!(withdrawals(&app) > 0);
    }
}

also_on_postgres! { removal_survives_any_crash crashed_removal_job_is_resumed }
