//! The command and the service are killed with `kill -9` while they remove a connection.

use std::process::Command;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::database::execute;
use crate::support::harness::{Database, also_on_postgres};
use crate::support::process::{
    ANY_PORTS, RunningCommand, Workdir, errors, get, new_deployment, text,
};

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
        Self {
            workdir,
            sandbox,
            database,
            fiskil: base,
            key,
            connection,
        }
    }

    async fn control(&self, method: Method, path: &str, body: Value) -> Value {
        let url = reqwest::Url::parse(&self.fiskil)
            .unwrap()
            .join(&format!("/__control/{path}"))
            .unwrap();
        let answer = reqwest::Client::new()
            .request(method, url)
            .json(&body)
            .send()
            .await
            .unwrap();
        serde_json::from_str(&answer.text().await.unwrap()).unwrap_or(Value::Null)
    }

    /// Waits until the provider has received a call that withdraws a consent.
    async fn wait_for_withdrawal(&self) {
        loop {
            let calls = self.control(Method::GET, "calls", json!({})).await;
            if calls["calls"]
                .as_array()
                .unwrap()
                .iter()
                .any(|call| call["method"] == "DELETE")
            {
                return;
            }
        }
    }

    /// Frees every job as if it had not been interrupted, which would delay it after a failure, and
    /// makes it due.
    async fn expire_leases(&self) {
        let sql = "UPDATE jobs SET run_at = 0, lease_until = NULL WHERE kind = 'removal'";
        execute(&self.database, sql, "").await;
    }

    fn list(&self) -> Value {
        self.workdir.json("connection list")
    }

    async fn serve(&self) -> (RunningCommand, String, String) {
        let running = RunningCommand::start(&self.workdir, &format!("serve --json {ANY_PORTS}"));
        let urls = running.json();
        let (api, ops) = (
            text(&urls, "apiUrl").to_owned(),
            text(&urls, "opsUrl").to_owned(),
        );
        (running, api, ops)
    }

    /// Waits until the service has removed the connection, and removes the user.
    fn wait_until_removed(&self) {
        while self.list() != json!([]) {}
        self.workdir.json("user remove me@example.com");
    }
}

async fn pending_removals(ops: &str) -> String {
    let page = reqwest::get(format!("{ops}/metrics"))
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    let states = page.lines().filter(|line| {
        line.starts_with("bellbird_jobs{kind=\"removal\"") && !line.contains("failing")
    });
    let counts: Vec<u32> = states
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    if counts.is_empty() {
        "none".to_owned()
    } else {
        counts.iter().sum::<u32>().to_string()
    }
}

async fn kill_the_command(database: Database) {
    let deployment = Deployment::start(database).await;
    let (service, api, ops) = deployment.serve().await;
    let accounts = format!("{api}/v1/accounts");
    assert!(
        !get(&accounts, Some(&deployment.key)).await.1["data"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    deployment
        .control(
            Method::POST,
            "faults",
            json!({"match": "/v1/consent/", "kind": "delay", "delayMs": 60_000}),
        )
        .await;
    deployment.control(Method::DELETE, "calls", json!({})).await;
    let mut command = deployment
        .workdir
        .command(&format!(
            "connection remove {} --yes",
            deployment.connection
        ))
        .spawn()
        .unwrap();
    deployment.wait_for_withdrawal().await;
    assert!(
        Command::new("kill")
            .args(["-9", &command.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    command.wait().unwrap();
    assert_eq!(
        get(&accounts, Some(&deployment.key)).await.1["data"],
        json!([]),
        "hidden at once"
    );
    let listed = deployment.list();
    assert_eq!(listed[0]["id"], deployment.connection);
    assert_eq!(listed[0]["status"], "deleting");
    assert_eq!(listed[0]["removal"]["attempts"], 0);
    while pending_removals(&ops).await != "1" {}
    deployment
        .control(Method::DELETE, "faults", json!({}))
        .await;
    deployment.expire_leases().await;
    deployment.wait_until_removed();
    while pending_removals(&ops).await != "0" {}
    assert_eq!(service.stop("-TERM").0, Some(0));
    assert_eq!(deployment.sandbox.stop("-TERM").0, Some(0));
}

#[tokio::test]
async fn service_finishes_killed_remove_command() {
    let database = Database::of_test();
    kill_the_command(database).await;
}

async fn kill_the_service(database: Database) {
    let deployment = Deployment::start(database).await;
    // The command reports at once that the consent could not be withdrawn.
    deployment
        .control(
            Method::POST,
            "faults",
            json!({"match": "/v1/consent/", "kind": "status", "status": 400}),
        )
        .await;
    let output = deployment.workdir.run(&format!(
        "connection remove {} --json",
        deployment.connection
    ));
    assert_eq!(output.status.code(), Some(1));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed["removed"], false);
    assert_eq!(printed["consentWithdrawn"], false);
    assert_eq!(printed["status"], "deleting");
    assert_eq!(printed["removal"]["attempts"], 1);
    let error = errors(&output);
    assert_eq!(
        error.trim_end(),
        format!("error: {}", text(&printed["error"], "message"))
    );
    assert!(
        error.contains(
            "is hidden, but its consent is not withdrawn yet: the provider rejected the request (status 400)"
        ),
        "{error}"
    );
    let listed = deployment.list();
    assert_eq!(
        listed[0]["removal"]["lastError"],
        "the provider rejected the request (status 400)"
    );
    let shown = deployment
        .workdir
        .text("connection list --user me@example.com");
    assert!(
        shown.contains(&format!(
            "{} is being removed: the provider rejected",
            deployment.connection
        )),
        "{shown}"
    );
    let doctor = || {
        let output = deployment
            .workdir
            .run(&format!("doctor --json {ANY_PORTS}"));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let check = report["checks"]
            .as_array()
            .unwrap()
            .iter()
            .find(|check| check["name"] == "jobs")
            .unwrap();
        (
            output.status.code(),
            check["verdict"].clone(),
            text(check, "detail").to_owned(),
        )
    };
    let (code, verdict, detail) = doctor();
    assert!(
        (code, &verdict) == (Some(0), &json!("note")) && detail.contains("Tried once"),
        "{detail}"
    );
    for _ in 0..2 {
        deployment.workdir.error(
            &format!("connection remove {} --yes", deployment.connection),
            1,
        );
    }
    let (code, verdict, detail) = doctor();
    assert!(
        (code, &verdict) == (Some(1), &json!("wrong")) && detail.contains("Tried 3 times"),
        "{detail}"
    );

    deployment
        .control(Method::DELETE, "faults", json!({}))
        .await;
    deployment
        .control(
            Method::POST,
            "faults",
            json!({"match": "/v1/consent/", "kind": "delay", "delayMs": 60_000}),
        )
        .await;
    deployment.control(Method::DELETE, "calls", json!({})).await;
    deployment.expire_leases().await;
    let (service, ..) = deployment.serve().await;
    deployment.wait_for_withdrawal().await;
    assert_eq!(service.stop("-KILL").0, None);
    deployment
        .control(Method::DELETE, "faults", json!({}))
        .await;
    deployment.expire_leases().await;
    let (service, ..) = deployment.serve().await;
    deployment.wait_until_removed();
    assert_eq!(service.stop("-TERM").0, Some(0));
    assert_eq!(deployment.sandbox.stop("-TERM").0, Some(0));
}

#[tokio::test]
async fn restarted_service_resumes_removal() {
    let database = Database::of_test();
    kill_the_service(database).await;
}

#[tokio::test]
async fn unopenable_credentials_delay_the_removal() {
    let mut deployment = Deployment::start(Database::Sqlite).await;
    deployment.workdir.set(
        "BELLBIRD_SECRETS__KEY",
        "other:BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA=",
    );
    let error = deployment.workdir.error(
        &format!("connection remove {} --yes", deployment.connection),
        1,
    );
    assert!(
        error.contains(
            "its credentials cannot be opened: sealed with the master key `main`, which is not in secrets.key"
        ),
        "{error}"
    );
    assert_eq!(deployment.list()[0]["status"], "deleting");
    let deleted_locally = deployment.workdir.json(&format!(
        "connection remove {} --local-only",
        deployment.connection
    ));
    assert_eq!(deleted_locally["removed"], true);
    assert_eq!(deleted_locally["consentWithdrawn"], false);
    assert_eq!(deployment.list(), json!([]));
    let not_found = deployment.workdir.error(
        &format!("connection remove {} --yes", deployment.connection),
        1,
    );
    assert!(
        not_found.starts_with("error: there is no connection"),
        "{not_found}"
    );
    assert_eq!(deployment.sandbox.stop("-TERM").0, Some(0));
}

also_on_postgres! { service_finishes_killed_remove_command restarted_service_resumes_removal }
