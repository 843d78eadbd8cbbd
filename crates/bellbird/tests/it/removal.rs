//! Removing a connection: hidden at once, withdrawn until it is, gone in the end, whatever happens on the way.

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

use crate::cli::{Place, errors};
use crate::harness::{App, Database, Setup, on_both_databases, pretended};
use crate::processes::{ANY_PORTS, Running, get, machine, text};

/// Longer than a lease.
const MINUTES: SignedDuration = SignedDuration::from_mins(3);
const DELETE_CONSENT: &str = "/v1/consent/{arrangement_id}";

/// Time passes, here and at the provider that compares times with ours.
async fn pass(app: &App, time: SignedDuration) {
    app.clock.set(app.clock.now().saturating_add(time).unwrap());
    app.control_of("snaptrade", Method::POST, "/clock", json!({"advanceSeconds": time.as_secs()})).await;
}

/// Polls a future so many times, then drops it: a program that is killed in the middle.
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

/// The consent is given at the provider, whatever it was before, and adopted.
async fn adopt_again(app: &App) -> Connection {
    let grant = app.grant(0);
    let consent = grant["arrangementId"].as_str().unwrap();
    app.control(Method::POST, &format!("/consents/{consent}"), json!({"state": "active"})).await;
    let grant = SecretString::from(grant.to_string());
    let mut adopted = app.connections.adopt(app.olivia.user.id, "fiskil", &grant).await.unwrap().connections;
    app.forget_calls().await;
    adopted.remove(0)
}

/// The steps of its life, without those before it was hidden.
async fn end_of(app: &App, id: ConnectionId) -> Vec<String> {
    let steps = app.storage.list_audit(id).await.unwrap().into_iter().map(|step| step.cause);
    steps.skip_while(|cause| cause != "removed").collect()
}

async fn assert_gone(app: &App, id: ConnectionId) {
    assert_eq!(app.storage.find_connection_any(id).await.unwrap(), None);
    assert!(app.storage.find_grant(app.olivia.user.id, id).await.unwrap().is_none());
    assert_eq!(end_of(app, id).await, ["removed", "deleted"], "each step was written down once");
    assert_eq!(app.connections.removals_waiting().await.unwrap(), 0);
}

async fn withdrawals(app: &App) -> u64 {
    app.calls().await.get(DELETE_CONSENT).copied().unwrap_or(0)
}

/// How often a test that kills walks through all steps: some steps are short, and missed now and then.
const WALKS_MAX: u32 = 50;

on_both_databases! {
    async fn killed_at_every_step_it_ends_all_the_same(app: App) {
        let (mut polls, mut hidden_only, mut withdrawn_only) = (0, 0, 0);
        let mut walks = 0;
        while hidden_only == 0 || withdrawn_only == 0 {
            let id = adopt_again(&app).await.id;
            let done = killed_after(polls, app.connections.remove(id)).await.is_some();
            // A commit that was sent is carried out, perhaps only just now: behind it, one looks.
            app.storage.update_user(app.olivia.user.id, &UserChange::default()).await.unwrap();
            let told = withdrawals(&app).await;
            match app.storage.find_connection_any(id).await.unwrap() {
                // What was not begun is begun by whoever asks again.
                Some(found) if found.status.as_str() == "active" => {
                    assert_eq!(told, 0, "the provider is told of what is hidden only");
                    assert_eq!(app.connections.remove(id).await.unwrap(), Removal::Done);
                }
                Some(_) if told == 0 => hidden_only += 1,
                Some(_) => withdrawn_only += 1,
                None => {}
            }
            assert!(app.storage.find_connection(app.olivia.user.id, id).await.unwrap().is_none(), "it is hidden");
            // As the service does, started again: at first the dead one has its lease yet.
            app.connections.remove_due().await.unwrap();
            pass(&app, MINUTES).await;
            app.connections.remove_due().await.unwrap();
            assert_gone(&app, id).await;
            assert!(withdrawals(&app).await > 0, "consent was withdrawn");
            polls = if done { 0 } else { polls + 1 };
            walks += u32::from(done);
            assert!(walks < WALKS_MAX, "{hidden_only} {withdrawn_only}: a step was never met");
        }
    }
}

on_both_databases! {
    async fn a_service_killed_while_it_removes_goes_on(app: App) {
        let nobody = Connections::new(app.storage.clone(), Registry::default(), app.clock.clone());
        let (mut polls, mut done) = (0, false);
        while !done {
            let id = adopt_again(&app).await.id;
            nobody.remove(id).await.unwrap();
            pass(&app, SignedDuration::from_hours(2)).await;
            let round = tokio::spawn({
                let connections = app.connections.clone();
                async move { killed_after(polls, connections.remove_due()).await.is_some() }
            });
            done = round.await.unwrap();
            polls += 1;
            pass(&app, MINUTES).await;
            app.connections.remove_due().await.unwrap();
            assert_gone(&app, id).await;
            assert!(withdrawals(&app).await > 0);
        }
    }
}

on_both_databases! {
    async fn the_provider_is_told_until_it_takes_the_consent_back(app: App) {
        let id = app.olivia.connections[0].id;
        let transactions = format!("/v1/transactions?connectionId={id}");
        assert_eq!(app.get(&transactions).await.status, 200);
        app.forget_calls().await;
        app.fault(json!({"match": "/v1/consent/", "kind": "status", "status": 503})).await;
        let Removal::Waiting { reason, next_attempt_at } = app.connections.remove(id).await.unwrap() else {
            panic!("it cannot be done")
        };
        assert!(reason.contains("the provider is unavailable"), "{reason}");
        app.get(&transactions).await.error(404);
        assert_eq!(app.get("/v1/connections").await.data().len(), 1);
        let waiting = app.storage.list_removals().await.unwrap();
        assert_eq!((waiting.len(), waiting[0].connection.id, waiting[0].attempts), (1, id, 1));
        assert_eq!((&waiting[0].problem, waiting[0].next_attempt_at), (&Some(reason), next_attempt_at));
        assert_eq!(app.connections.removals_waiting().await.unwrap(), 1);

        app.forget_calls().await;
        app.connections.remove_due().await.unwrap();
        assert_eq!(withdrawals(&app).await, 0, "not due yet");
        pass(&app, SignedDuration::from_secs(40)).await;
        app.connections.remove_due().await.unwrap();
        assert!(withdrawals(&app).await > 0);
        assert_eq!(app.storage.list_removals().await.unwrap()[0].attempts, 2);
        // Whoever asks again does not wait for the schedule.
        assert!(matches!(app.connections.remove(id).await.unwrap(), Removal::Waiting { .. }));
        assert_eq!(app.storage.list_removals().await.unwrap()[0].attempts, 3);
        app.clear_faults().await;
        pass(&app, MINUTES).await;
        app.connections.remove_due().await.unwrap();
        assert_gone(&app, id).await;
        assert!(matches!(app.connections.remove(id).await, Err(error) if error.to_string().contains("no such connection")));
    }
}

#[tokio::test]
async fn a_consent_that_is_gone_already_is_withdrawn() {
    let app = App::start(Setup::default()).await;
    for name in pretended() {
        let Some(grant) = app.grants_of(name).pop() else { continue };
        let person = app.add_person(&format!("{name}@example.com"), Plan::Professional, &[&grant]).await;
        let consent =
            ["arrangementId", "authorisation", "authorizationId"].iter().find_map(|member| grant[*member].as_str());
        let path = format!("/consents/{}", consent.unwrap());
        app.control_of(name, Method::POST, &path, json!({"state": "revoked"})).await;
        assert_eq!(app.connections.remove(person.connections[0].id).await.unwrap(), Removal::Done, "{name}");
        app.storage.delete_user(person.user.id).await.expect("nothing is left of it");
    }
}

on_both_databases! {
    async fn a_provider_that_is_not_offered_any_more_is_waited_for_or_forgotten(app: App) {
        let [waited_for, forgotten] = [0, 1].map(|at| app.olivia.connections[at].id);
        let nobody = Connections::new(app.storage.clone(), Registry::default(), app.clock.clone());
        for id in [waited_for, forgotten] {
            let Removal::Waiting { reason, next_attempt_at } = nobody.remove(id).await.unwrap() else { panic!("done") };
            assert!(reason.starts_with("the provider fiskil is not configured here"), "{reason}");
            let wait = next_attempt_at.unwrap().duration_since(app.clock.now());
            assert!((60..=72).contains(&wait.as_mins()), "{wait}");
        }
        assert_eq!(app.get("/v1/connections").await.data().len(), 0);
        assert_eq!(nobody.forget(forgotten).await.unwrap(), Removal::Done);
        assert_eq!(end_of(&app, forgotten).await, ["removed", "forgotten"]);
        assert_eq!(withdrawals(&app).await, 0, "nobody was told");
        // The credentials are back.
        pass(&app, SignedDuration::from_mins(73)).await;
        app.connections.remove_due().await.unwrap();
        assert_gone(&app, waited_for).await;
        assert_eq!(withdrawals(&app).await, 1);
    }
}

on_both_databases! {
    async fn two_copies_withdraw_each_consent_once(app: App) {
        let mut grants = Vec::new();
        for provider in pretended() {
            grants.extend(app.grants_of(provider));
        }
        // Olivia and Ben have the first three.
        let spare: Vec<&Value> = grants.iter().skip(3).collect();
        let person = app.add_person("many@example.com", Plan::Professional, &spare).await;
        app.forget_calls().await;
        let nobody = Connections::new(app.storage.clone(), Registry::default(), app.clock.clone());
        let mut all = person.connections.clone();
        all.extend(app.olivia.connections.clone());
        for connection in &all {
            nobody.remove(connection.id).await.unwrap();
        }
        pass(&app, SignedDuration::from_hours(2)).await;
        let other = app.connections.clone();
        let (one, two, three) =
            tokio::join!(app.connections.remove_due(), other.remove_due(), other.remove(all[0].id));
        one.unwrap();
        two.unwrap();
        // Gone before it was looked for, or just then.
        assert!(three.map_or_else(|error| error.to_string().contains("no such"), |removal| removal == Removal::Done));
        assert_eq!(app.connections.removals_waiting().await.unwrap(), 0);
        let mut withdrawn = 0;
        for provider in pretended() {
            let calls = app.control_of(provider, Method::GET, "/calls", json!({})).await;
            let deletes = calls["calls"].as_array().unwrap().iter().filter(|call| call["method"] == "DELETE");
            withdrawn += deletes.map(|call| call["count"].as_u64().unwrap()).sum::<u64>();
        }
        assert_eq!(withdrawn, all.len() as u64);
    }
}

on_both_databases! {
    async fn who_comes_second_waits_for_the_first(app: App) {
        let id = app.ben.connections[0].id;
        app.fault(json!({"match": "/v1/consent/", "kind": "delay", "delayMs": 700})).await;
        let first = app.connections.remove(id);
        let second = async {
            while withdrawals(&app).await == 0 {}
            app.connections.remove(id).await
        };
        let (first, second) = tokio::join!(first, second);
        assert_eq!((first.unwrap(), second.unwrap()), (Removal::Done, Removal::Done));
        assert_eq!(withdrawals(&app).await, 1);
    }
}

/// A host's machine: the pretended providers, a database, a user with one connection.
struct Host {
    place: Place,
    sandbox: Running,
    database: String,
    fiskil: String,
    key: String,
    connection: String,
}

impl Host {
    async fn start(database: Database) -> Self {
        let (place, sandbox, database) = machine(database).await;
        let description = sandbox.json();
        let base = text(&description["fiskil"], "baseUrl").to_owned();
        place.json("user add --email me@example.com");
        let key = text(&place.json("key create --user me@example.com"), "key").to_owned();
        let adopt = "connection adopt --user me@example.com --grant - --json";
        let output = place.run_with_input(adopt, &description["grants"][0].to_string());
        assert_eq!(errors(&output), "");
        let adopted: Value = serde_json::from_slice(&output.stdout).unwrap();
        let connection = text(&adopted[0], "id").to_owned();
        Self { place, sandbox, database, fiskil: base, key, connection }
    }

    async fn control(&self, method: Method, path: &str, body: Value) -> Value {
        let url = reqwest::Url::parse(&self.fiskil).unwrap().join(&format!("/__control/{path}")).unwrap();
        let answer = reqwest::Client::new().request(method, url).json(&body).send().await.unwrap();
        serde_json::from_str(&answer.text().await.unwrap()).unwrap_or(Value::Null)
    }

    /// Waits until the provider was asked to withdraw a consent.
    async fn asked_to_withdraw(&self) {
        loop {
            let calls = self.control(Method::GET, "calls", json!({})).await;
            if calls["calls"].as_array().unwrap().iter().any(|call| call["method"] == "DELETE") {
                return;
            }
        }
    }

    /// The time of every lease passes, which is minutes.
    async fn leases_end(&self) {
        let sql = "UPDATE connections SET removal_lease_until = 0, removal_at = 0";
        match self.database.strip_prefix("sqlite:") {
            Some(path) => {
                let connection = rusqlite::Connection::open(path).unwrap();
                connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
                connection.execute_batch(sql).unwrap();
            }
            None => {
                let (client, connection) =
                    tokio_postgres::connect(&self.database, tokio_postgres::NoTls).await.unwrap();
                tokio::spawn(connection);
                client.batch_execute(sql).await.unwrap();
            }
        }
    }

    fn list(&self) -> Value {
        self.place.json("connection list")
    }

    async fn service(&self) -> (Running, String, String) {
        let running = Running::start(&self.place, &format!("serve --json {ANY_PORTS}"));
        let urls = running.json();
        let (api, ops) = (text(&urls, "apiUrl").to_owned(), text(&urls, "opsUrl").to_owned());
        (running, api, ops)
    }

    /// Waits until a running service has removed it.
    fn removed_in_the_end(&self) {
        while self.list() != json!([]) {}
        self.place.json("user remove me@example.com");
    }
}

async fn waiting(ops: &str) -> String {
    let page = reqwest::get(format!("{ops}/metrics")).await.unwrap().text().await.unwrap();
    let line = page.lines().find(|line| line.starts_with("bellbird_removals_waiting "));
    line.map_or_else(|| "none".to_owned(), |line| line.rsplit(' ').next().unwrap().to_owned())
}

async fn the_command_is_killed(database: Database) {
    let host = Host::start(database).await;
    let (service, api, ops) = host.service().await;
    let accounts = format!("{api}/v1/accounts");
    assert!(!get(&accounts, Some(&host.key)).await.1["data"].as_array().unwrap().is_empty());
    host.control(Method::POST, "faults", json!({"match": "/v1/consent/", "kind": "delay", "delayMs": 60_000})).await;
    host.control(Method::DELETE, "calls", json!({})).await;
    let mut command = host.place.command(&format!("connection remove {}", host.connection)).spawn().unwrap();
    host.asked_to_withdraw().await;
    assert!(Command::new("kill").args(["-9", &command.id().to_string()]).status().unwrap().success());
    command.wait().unwrap();
    assert_eq!(get(&accounts, Some(&host.key)).await.1["data"], json!([]), "hidden at once");
    let listed = host.list();
    assert_eq!((&listed[0]["id"], &listed[0]["status"]), (&json!(host.connection), &json!("deleting")));
    assert_eq!(listed[0]["removal"]["attempts"], 0);
    while waiting(&ops).await != "1" {}
    host.control(Method::DELETE, "faults", json!({})).await;
    host.leases_end().await;
    host.removed_in_the_end();
    while waiting(&ops).await != "0" {}
    assert_eq!(service.stop("-TERM").0, Some(0));
    assert_eq!(host.sandbox.stop("-TERM").0, Some(0));
}

#[tokio::test]
async fn a_running_service_goes_on_for_a_command_that_was_killed_on_sqlite() {
    the_command_is_killed(Database::Sqlite).await;
}

#[tokio::test]
async fn a_running_service_goes_on_for_a_command_that_was_killed_on_postgres() {
    the_command_is_killed(Database::Postgres).await;
}

async fn the_service_is_killed(database: Database) {
    let host = Host::start(database).await;
    // Told at once, and honestly, that it cannot be done now.
    host.control(Method::POST, "faults", json!({"match": "/v1/consent/", "kind": "status", "status": 400})).await;
    let output = host.place.run(&format!("connection remove {} --json", host.connection));
    assert_eq!(output.status.code(), Some(1));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&said["removed"], &said["consentWithdrawn"], &said["status"]),
        (&json!(false), &json!(false), &json!("deleting"))
    );
    assert_eq!(said["removal"]["attempts"], 1);
    let error = errors(&output);
    assert!(
        error
            .contains("is hidden, but its consent is not withdrawn yet: the provider refuses the request (status 400)"),
        "{error}"
    );
    let listed = host.list();
    assert_eq!(listed[0]["removal"]["reason"], "the provider refuses the request (status 400)");
    let shown = host.place.text("connection list --user me@example.com");
    assert!(shown.contains(&format!("{} is being removed: the provider refuses", host.connection)), "{shown}");
    let doctor = || {
        let output = host.place.run(&format!("doctor --json {ANY_PORTS}"));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let check = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "removals").unwrap();
        (output.status.code(), check["verdict"].clone(), text(check, "detail").to_owned())
    };
    let (code, verdict, detail) = doctor();
    assert!((code, &verdict) == (Some(0), &json!("note")) && detail.contains("Tried once"), "{detail}");
    for _ in 0..2 {
        host.place.error(&format!("connection remove {}", host.connection), 1);
    }
    let (code, verdict, detail) = doctor();
    assert!((code, &verdict) == (Some(1), &json!("wrong")) && detail.contains("Tried 3 times"), "{detail}");

    host.control(Method::DELETE, "faults", json!({})).await;
    host.control(Method::POST, "faults", json!({"match": "/v1/consent/", "kind": "delay", "delayMs": 60_000})).await;
    host.control(Method::DELETE, "calls", json!({})).await;
    host.leases_end().await;
    let (service, ..) = host.service().await;
    host.asked_to_withdraw().await;
    assert_eq!(service.stop("-KILL").0, None);
    host.control(Method::DELETE, "faults", json!({})).await;
    host.leases_end().await;
    let (service, ..) = host.service().await;
    host.removed_in_the_end();
    assert_eq!(service.stop("-TERM").0, Some(0));
    assert_eq!(host.sandbox.stop("-TERM").0, Some(0));
}

#[tokio::test]
async fn a_service_that_was_killed_goes_on_when_it_starts_again_on_sqlite() {
    the_service_is_killed(Database::Sqlite).await;
}

#[tokio::test]
async fn a_service_that_was_killed_goes_on_when_it_starts_again_on_postgres() {
    the_service_is_killed(Database::Postgres).await;
}

#[tokio::test]
async fn a_grant_that_does_not_open_is_hidden_and_waited_for_or_forgotten() {
    let mut host = Host::start(Database::Sqlite).await;
    host.place.set("BELLBIRD_SECRETS__KEY", "other:BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA=");
    let error = host.place.error(&format!("connection remove {}", host.connection), 1);
    assert!(
        error.contains("its grant cannot be opened: sealed with the key \"main\", which is not configured"),
        "{error}"
    );
    assert_eq!(host.list()[0]["status"], "deleting");
    let forgotten = host.place.json(&format!("connection remove {} --forget", host.connection));
    assert_eq!((&forgotten["removed"], &forgotten["consentWithdrawn"]), (&json!(true), &json!(false)));
    assert_eq!(host.list(), json!([]));
    let gone = host.place.error(&format!("connection remove {}", host.connection), 1);
    assert!(gone.starts_with("error: there is no connection"), "{gone}");
    assert_eq!(host.sandbox.stop("-TERM").0, Some(0));
}
