//! Removing a connection: it is hidden at once, its consent is withdrawn with retries, and then it is deleted. Crashes
//! and failures do not change that.

use std::pin::pin;
use std::process::Command;
use std::task::Poll;

use bellbird_connections::{Connections, Removal};
use bellbird_domain::{Connection, ConnectionId, Plan};
use bellbird_providers::Registry;
use bellbird_storage::UserChange;
use jiff::SignedDuration;
use reqwest::Method;
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::support::database::execute;
use crate::support::harness::{App, Database, Setup, eventually, on_both_databases, simulated_providers};
use crate::support::process::{ANY_PORTS, RunningCommand, Workdir, errors, get, new_deployment, text};

/// Longer than a lease.
const PAST_LEASE: SignedDuration = SignedDuration::from_mins(3);
const DELETE_CONSENT: &str = "/v1/consent/{arrangement_id}";

/// Advances the clocks of the service and of SnapTrade, which rejects signatures of another time.
async fn advance_clock(app: &App, time: SignedDuration) {
    app.clock.set(app.clock.now().saturating_add(time).unwrap());
    app.control_of("snaptrade", Method::POST, "/clock", json!({"advanceSeconds": time.as_secs()})).await;
}

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
    app.control(Method::POST, &format!("/consents/{consent}"), json!({"state": "active"})).await;
    let credentials = SecretString::from(credentials.to_string());
    let mut imported =
        app.connections.imports().import(app.olivia.user.id, "fiskil", &credentials).await.unwrap().connections;
    app.reset_calls().await;
    imported.remove(0)
}

/// The steps of the audit, from the moment at which the connection was hidden.
async fn removal_steps(app: &App, id: ConnectionId) -> Vec<String> {
    let steps = app.storage.connections().list_audit(id).await.unwrap().into_iter().map(|step| step.cause);
    steps.skip_while(|cause| cause != "removed").collect()
}

async fn assert_gone(app: &App, id: ConnectionId) {
    assert_eq!(app.storage.connections().find_any(id).await.unwrap(), None);
    assert!(app.storage.secrets().find_credentials(app.olivia.user.id, id).await.unwrap().is_none());
    assert_eq!(removal_steps(app, id).await, ["removed", "deleted"], "each step is recorded once");
    assert_eq!(app.storage.removals().list().await.unwrap().len(), 0);
}

async fn withdrawals(app: &App) -> u64 {
    app.calls().await.get(DELETE_CONSENT).copied().unwrap_or(0)
}

/// How often a test may go through all steps. Some steps are short, so a pass can miss them.
const PASSES_MAX: u32 = 50;

on_both_databases! {
    async fn removal_survives_any_crash(app: App) {
        let (mut polls, mut hidden_only, mut withdrawn_only) = (0, 0, 0);
        let mut passes = 0;
        while hidden_only == 0 || withdrawn_only == 0 {
            let id = import_again(&app).await.id;
            let done = killed_after(polls, app.connections.removals().remove(id)).await.is_some();
            // A commit that was sent may still be running. This write waits for it, so that the reads below see it.
            app.storage.users().update(app.olivia.user.id, &UserChange::default()).await.unwrap();
            let withdrawn = withdrawals(&app).await;
            match app.storage.connections().find_any(id).await.unwrap() {
                // The removal had not begun: a second request begins it.
                Some(found) if found.status.as_str() == "active" => {
                    assert_eq!(withdrawn, 0, "the consent is withdrawn only after the connection is hidden");
                    assert_eq!(app.connections.removals().remove(id).await.unwrap(), Removal::Done);
                }
                Some(_) if withdrawn == 0 => hidden_only += 1,
                Some(_) => withdrawn_only += 1,
                None => {}
            }
            assert!(app.storage.connections().find(app.olivia.user.id, id).await.unwrap().is_none(), "it is hidden");
            // The service starts again. At first the crashed instance still holds its lease.
            app.connections.jobs().run_due("removal").await.unwrap();
            advance_clock(&app, PAST_LEASE).await;
            app.connections.jobs().run_due("removal").await.unwrap();
            assert_gone(&app, id).await;
            assert!(withdrawals(&app).await > 0, "the consent was withdrawn");
            polls = if done { 0 } else { polls + 1 };
            passes += u32::from(done);
            assert!(passes < PASSES_MAX, "{hidden_only} {withdrawn_only}: no crash hit one of the steps");
        }
    }
}

on_both_databases! {
    async fn crashed_removal_job_is_resumed(app: App) {
        let unconfigured = Connections::new(app.storage.clone(), Registry::default(), app.clock.clone());
        let (mut polls, mut done) = (0, false);
        while !done {
            let id = import_again(&app).await.id;
            unconfigured.removals().remove(id).await.unwrap();
            advance_clock(&app, SignedDuration::from_hours(2)).await;
            let crashed_run = tokio::spawn({
                let connections = app.connections.clone();
                async move { killed_after(polls, connections.jobs().run_due("removal")).await.is_some() }
            });
            done = crashed_run.await.unwrap();
            polls += 1;
            advance_clock(&app, PAST_LEASE).await;
            // PostgreSQL may still hold the row for the last statement of the crashed run, so that a claim skips it.
            eventually(async || {
                app.connections.jobs().run_due("removal").await.unwrap();
                app.storage.connections().find_any(id).await.unwrap().is_none()
            })
            .await;
            assert_gone(&app, id).await;
            assert!(withdrawals(&app).await > 0);
        }
    }
}

on_both_databases! {
    async fn withdrawal_is_retried_until_accepted(app: App) {
        let id = app.olivia.connections[0].id;
        let transactions = format!("/v1/transactions?connectionId={id}");
        assert_eq!(app.get(&transactions).await.status, 200);
        app.reset_calls().await;
        app.fault(json!({"match": "/v1/consent/", "kind": "status", "status": 503})).await;
        let Removal::Waiting { reason, next_attempt_at } = app.connections.removals().remove(id).await.unwrap() else {
            panic!("removed although the provider fails")
        };
        assert!(reason.contains("the provider is unavailable"), "{reason}");
        app.get(&transactions).await.error(404);
        assert_eq!(app.get("/v1/connections").await.data().len(), 1);
        let pending = app.storage.removals().list().await.unwrap();
        assert_eq!(pending.len(), 1);
        assert_eq!(pending[0].connection.id, id);
        assert_eq!(pending[0].attempts, 1);
        assert_eq!(pending[0].last_error, Some(reason));
        assert_eq!(Some(pending[0].next_attempt_at), next_attempt_at);
        assert_eq!(app.storage.removals().list().await.unwrap().len(), 1);

        app.reset_calls().await;
        app.connections.jobs().run_due("removal").await.unwrap();
        assert_eq!(withdrawals(&app).await, 0, "not due yet");
        advance_clock(&app, SignedDuration::from_secs(40)).await;
        app.connections.jobs().run_due("removal").await.unwrap();
        assert!(withdrawals(&app).await > 0);
        assert_eq!(app.storage.removals().list().await.unwrap()[0].attempts, 2);
        // A second request does not wait for the schedule.
        assert!(matches!(app.connections.removals().remove(id).await.unwrap(), Removal::Waiting { .. }));
        assert_eq!(app.storage.removals().list().await.unwrap()[0].attempts, 3);
        app.clear_faults().await;
        advance_clock(&app, PAST_LEASE).await;
        app.connections.jobs().run_due("removal").await.unwrap();
        assert_gone(&app, id).await;
        assert!(
            matches!(app.connections.removals().remove(id).await, Err(error) if error.to_string().contains("connection not found"))
        );
    }
}

#[tokio::test]
async fn already_ended_consent_counts_as_withdrawn() {
    let app = App::start(Setup::default()).await;
    for name in simulated_providers() {
        let Some(credentials) = app.credentials_of(name).pop() else { continue };
        let person = app.add_person(&format!("{name}@example.com"), Plan::Professional, &[&credentials]).await;
        let consent = ["arrangementId", "authorisation", "authorizationId"]
            .iter()
            .find_map(|member| credentials[*member].as_str());
        let path = format!("/consents/{}", consent.unwrap());
        app.control_of(name, Method::POST, &path, json!({"state": "revoked"})).await;
        assert_eq!(app.connections.removals().remove(person.connections[0].id).await.unwrap(), Removal::Done, "{name}");
        app.storage.users().delete(person.user.id).await.expect("no connection is left");
    }
}

on_both_databases! {
    async fn unconfigured_provider_delays_the_removal(app: App) {
        let [retried, deleted_locally] = [0, 1].map(|at| app.olivia.connections[at].id);
        let unconfigured = Connections::new(app.storage.clone(), Registry::default(), app.clock.clone());
        for id in [retried, deleted_locally] {
            let Removal::Waiting { reason, next_attempt_at } = unconfigured.removals().remove(id).await.unwrap() else {
                panic!("removed without credentials")
            };
            assert!(reason.starts_with("the provider fiskil is not configured here"), "{reason}");
            let wait = next_attempt_at.unwrap().duration_since(app.clock.now());
            assert!((60..=72).contains(&wait.as_mins()), "{wait}");
        }
        assert_eq!(app.get("/v1/connections").await.data().len(), 0);
        assert_eq!(unconfigured.removals().remove_locally(deleted_locally).await.unwrap(), Removal::Done);
        assert_eq!(removal_steps(&app, deleted_locally).await, ["removed", "removed_locally"]);
        assert_eq!(withdrawals(&app).await, 0, "the provider was not called");
        // The provider is configured again.
        advance_clock(&app, SignedDuration::from_mins(73)).await;
        app.connections.jobs().run_due("removal").await.unwrap();
        assert_gone(&app, retried).await;
        assert_eq!(withdrawals(&app).await, 1);
    }
}

on_both_databases! {
    async fn two_instances_withdraw_each_consent_once(app: App) {
        let mut all_credentials = Vec::new();
        for provider in simulated_providers() {
            all_credentials.extend(app.credentials_of(provider));
        }
        // Olivia and Ben use the first three.
        let spare: Vec<&Value> = all_credentials.iter().skip(3).collect();
        let person = app.add_person("many@example.com", Plan::Professional, &spare).await;
        app.reset_calls().await;
        let unconfigured = Connections::new(app.storage.clone(), Registry::default(), app.clock.clone());
        let mut all = person.connections.clone();
        all.extend(app.olivia.connections.clone());
        for connection in &all {
            unconfigured.removals().remove(connection.id).await.unwrap();
        }
        advance_clock(&app, SignedDuration::from_hours(2)).await;
        let other = app.connections.clone();
        let (first, second, third) =
            tokio::join!(
                app.connections.jobs().run_due("removal"),
                other.jobs().run_due("removal"),
                other.removals().remove(all[0].id)
            );
        first.unwrap();
        second.unwrap();
        // The connection was deleted either before the request found it or while it waited.
        assert!(third.map_or_else(|error| error.to_string().contains("not found"), |removal| removal == Removal::Done));
        assert_eq!(app.storage.removals().list().await.unwrap().len(), 0);
        let mut withdrawn = 0;
        for provider in simulated_providers() {
            let calls = app.control_of(provider, Method::GET, "/calls", json!({})).await;
            let deletes = calls["calls"].as_array().unwrap().iter().filter(|call| call["method"] == "DELETE");
            withdrawn += deletes.map(|call| call["count"].as_u64().unwrap()).sum::<u64>();
        }
        assert_eq!(withdrawn, all.len() as u64);
    }
}

on_both_databases! {
    async fn concurrent_removal_waits_for_the_first(app: App) {
        let id = app.ben.connections[0].id;
        app.fault(json!({"match": "/v1/consent/", "kind": "delay", "delayMs": 700})).await;
        let first = app.connections.removals().remove(id);
        let second = async {
            while withdrawals(&app).await == 0 {}
            app.connections.removals().remove(id).await
        };
        let (first, second) = tokio::join!(first, second);
        assert_eq!(first.unwrap(), Removal::Done);
        assert_eq!(second.unwrap(), Removal::Done);
        assert_eq!(withdrawals(&app).await, 1);
    }
}

/// A deployment with a user who has one connection.
struct Deployment {
    workdir: Workdir,
    sandbox: RunningCommand,
    database: String,
    fiskil: String,
    key: String,
    connection: String,
}

impl Deployment {
    async fn start(database: Database) -> Self {
        let (workdir, sandbox, database) = new_deployment(database).await;
        let description = sandbox.json();
        let base = text(&description["fiskil"], "baseUrl").to_owned();
        workdir.json("user add --email me@example.com");
        let key = text(&workdir.json("key create --user me@example.com"), "key").to_owned();
        let import = "connection import --user me@example.com --credentials - --json";
        let output = workdir.run_with_input(import, &description["credentials"][0].to_string());
        assert_eq!(errors(&output), "");
        let imported: Value = serde_json::from_slice(&output.stdout).unwrap();
        let connection = text(&imported[0], "id").to_owned();
        Self { workdir, sandbox, database, fiskil: base, key, connection }
    }

    async fn control(&self, method: Method, path: &str, body: Value) -> Value {
        let url = reqwest::Url::parse(&self.fiskil).unwrap().join(&format!("/__control/{path}")).unwrap();
        let answer = reqwest::Client::new().request(method, url).json(&body).send().await.unwrap();
        serde_json::from_str(&answer.text().await.unwrap()).unwrap_or(Value::Null)
    }

    /// Waits until the provider has received a call that withdraws a consent.
    async fn wait_for_withdrawal(&self) {
        loop {
            let calls = self.control(Method::GET, "calls", json!({})).await;
            if calls["calls"].as_array().unwrap().iter().any(|call| call["method"] == "DELETE") {
                return;
            }
        }
    }

    /// Ends every lease, which would take minutes, and makes every removal due.
    async fn expire_leases(&self) {
        let sql = "UPDATE jobs SET run_at = 0, lease_until = CASE WHEN lease_until IS NOT NULL THEN 0 END
            WHERE kind = 'removal'";
        execute(&self.database, sql, "").await;
    }

    fn list(&self) -> Value {
        self.workdir.json("connection list")
    }

    async fn serve(&self) -> (RunningCommand, String, String) {
        let running = RunningCommand::start(&self.workdir, &format!("serve --json {ANY_PORTS}"));
        let urls = running.json();
        let (api, ops) = (text(&urls, "apiUrl").to_owned(), text(&urls, "opsUrl").to_owned());
        (running, api, ops)
    }

    /// Waits until the service has removed the connection, and removes the user.
    fn wait_until_removed(&self) {
        while self.list() != json!([]) {}
        self.workdir.json("user remove me@example.com");
    }
}

async fn pending_removals(ops: &str) -> String {
    let page = reqwest::get(format!("{ops}/metrics")).await.unwrap().text().await.unwrap();
    let states =
        page.lines().filter(|line| line.starts_with("bellbird_jobs{kind=\"removal\"") && !line.contains("failing"));
    let counts: Vec<u32> = states.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    if counts.is_empty() { "none".to_owned() } else { counts.iter().sum::<u32>().to_string() }
}

async fn kill_the_command(database: Database) {
    let deployment = Deployment::start(database).await;
    let (service, api, ops) = deployment.serve().await;
    let accounts = format!("{api}/v1/accounts");
    assert!(!get(&accounts, Some(&deployment.key)).await.1["data"].as_array().unwrap().is_empty());
    deployment
        .control(Method::POST, "faults", json!({"match": "/v1/consent/", "kind": "delay", "delayMs": 60_000}))
        .await;
    deployment.control(Method::DELETE, "calls", json!({})).await;
    let mut command =
        deployment.workdir.command(&format!("connection remove {} --yes", deployment.connection)).spawn().unwrap();
    deployment.wait_for_withdrawal().await;
    assert!(Command::new("kill").args(["-9", &command.id().to_string()]).status().unwrap().success());
    command.wait().unwrap();
    assert_eq!(get(&accounts, Some(&deployment.key)).await.1["data"], json!([]), "hidden at once");
    let listed = deployment.list();
    assert_eq!(listed[0]["id"], deployment.connection);
    assert_eq!(listed[0]["status"], "deleting");
    assert_eq!(listed[0]["removal"]["attempts"], 0);
    while pending_removals(&ops).await != "1" {}
    deployment.control(Method::DELETE, "faults", json!({})).await;
    deployment.expire_leases().await;
    deployment.wait_until_removed();
    while pending_removals(&ops).await != "0" {}
    assert_eq!(service.stop("-TERM").0, Some(0));
    assert_eq!(deployment.sandbox.stop("-TERM").0, Some(0));
}

#[tokio::test]
async fn service_finishes_killed_remove_command_on_sqlite() {
    kill_the_command(Database::Sqlite).await;
}

#[tokio::test]
async fn service_finishes_killed_remove_command_on_postgres() {
    kill_the_command(Database::Postgres).await;
}

async fn kill_the_service(database: Database) {
    let deployment = Deployment::start(database).await;
    // The command reports at once that the consent could not be withdrawn.
    deployment.control(Method::POST, "faults", json!({"match": "/v1/consent/", "kind": "status", "status": 400})).await;
    let output = deployment.workdir.run(&format!("connection remove {} --json", deployment.connection));
    assert_eq!(output.status.code(), Some(1));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed["removed"], false);
    assert_eq!(printed["consentWithdrawn"], false);
    assert_eq!(printed["status"], "deleting");
    assert_eq!(printed["removal"]["attempts"], 1);
    let error = errors(&output);
    assert_eq!(error.trim_end(), format!("error: {}", text(&printed["error"], "message")));
    assert!(
        error.contains(
            "is hidden, but its consent is not withdrawn yet: the provider rejected the request (status 400)"
        ),
        "{error}"
    );
    let listed = deployment.list();
    assert_eq!(listed[0]["removal"]["lastError"], "the provider rejected the request (status 400)");
    let shown = deployment.workdir.text("connection list --user me@example.com");
    assert!(shown.contains(&format!("{} is being removed: the provider rejected", deployment.connection)), "{shown}");
    let doctor = || {
        let output = deployment.workdir.run(&format!("doctor --json {ANY_PORTS}"));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let check = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "jobs").unwrap();
        (output.status.code(), check["verdict"].clone(), text(check, "detail").to_owned())
    };
    let (code, verdict, detail) = doctor();
    assert!((code, &verdict) == (Some(0), &json!("note")) && detail.contains("Tried once"), "{detail}");
    for _ in 0..2 {
        deployment.workdir.error(&format!("connection remove {} --yes", deployment.connection), 1);
    }
    let (code, verdict, detail) = doctor();
    assert!((code, &verdict) == (Some(1), &json!("wrong")) && detail.contains("Tried 3 times"), "{detail}");

    deployment.control(Method::DELETE, "faults", json!({})).await;
    deployment
        .control(Method::POST, "faults", json!({"match": "/v1/consent/", "kind": "delay", "delayMs": 60_000}))
        .await;
    deployment.control(Method::DELETE, "calls", json!({})).await;
    deployment.expire_leases().await;
    let (service, ..) = deployment.serve().await;
    deployment.wait_for_withdrawal().await;
    assert_eq!(service.stop("-KILL").0, None);
    deployment.control(Method::DELETE, "faults", json!({})).await;
    deployment.expire_leases().await;
    let (service, ..) = deployment.serve().await;
    deployment.wait_until_removed();
    assert_eq!(service.stop("-TERM").0, Some(0));
    assert_eq!(deployment.sandbox.stop("-TERM").0, Some(0));
}

#[tokio::test]
async fn restarted_service_resumes_removal_on_sqlite() {
    kill_the_service(Database::Sqlite).await;
}

#[tokio::test]
async fn restarted_service_resumes_removal_on_postgres() {
    kill_the_service(Database::Postgres).await;
}

#[tokio::test]
async fn unopenable_credentials_delay_the_removal() {
    let mut deployment = Deployment::start(Database::Sqlite).await;
    deployment.workdir.set("BELLBIRD_SECRETS__KEY", "other:BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA=");
    let error = deployment.workdir.error(&format!("connection remove {} --yes", deployment.connection), 1);
    assert!(
        error.contains(
            "its credentials cannot be opened: sealed with the master key `main`, which is not in secrets.key"
        ),
        "{error}"
    );
    assert_eq!(deployment.list()[0]["status"], "deleting");
    let deleted_locally = deployment.workdir.json(&format!("connection remove {} --local-only", deployment.connection));
    assert_eq!(deleted_locally["removed"], true);
    assert_eq!(deleted_locally["consentWithdrawn"], false);
    assert_eq!(deployment.list(), json!([]));
    let not_found = deployment.workdir.error(&format!("connection remove {} --yes", deployment.connection), 1);
    assert!(not_found.starts_with("error: there is no connection"), "{not_found}");
    assert_eq!(deployment.sandbox.stop("-TERM").0, Some(0));
}
