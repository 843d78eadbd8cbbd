//! The command and the service are killed with `kill -9` while they remove a connection.

use std::process::Command;

use bellbird_sandbox::Fault;
use serde_json::{Value, json};

use crate::support::deployment::{Deployment, EMAIL};
use crate::support::harness::also_on_postgres;
use crate::support::process::{ANY_PORTS, errors, get, text};

/// A user who has one connection, which is removed.
struct Removal {
    deployment: Deployment,
    key: String,
    connection: String,
}

impl Removal {
    async fn start() -> Self {
        let deployment = Deployment::start(&[]).await;
        let key = deployment.add_user(EMAIL);
        let connection = deployment.import(EMAIL, "fiskil", 1).remove(0);
        Self {
            deployment,
            key,
            connection,
        }
    }

    /// Withdrawals of consents hang.
    async fn hang_withdrawals(&self) {
        let hang = Fault::delay_ms(60_000).at("/v1/consent/");
        self.deployment.add_fault("fiskil", hang).await;
        self.deployment.reset_calls("fiskil").await;
    }

    /// Waits until the provider has received a call that withdraws a consent.
    async fn wait_for_withdrawal(&self) {
        let withdrawals = async || {
            let calls = self
                .deployment
                .calls("fiskil", |method, _| method == "DELETE");
            calls.await
        };
        while withdrawals().await == 0 {}
    }

    /// Frees every job as if it had not been interrupted, which would delay it after a failure, and
    /// makes it due.
    async fn free_removals(&self) {
        let sql = "UPDATE jobs SET run_at = 0, lease_until = NULL WHERE kind = 'removal'";
        self.deployment.execute(sql).await;
    }

    fn list(&self) -> Value {
        self.deployment.workdir.json("connection list")
    }

    /// Waits until the service has removed the connection, and removes the user.
    fn wait_until_removed(&self) {
        while self.list() != json!([]) {}
        self.deployment.workdir.json("user remove me@example.com");
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

#[tokio::test]
async fn service_finishes_killed_remove_command() {
    let removal = Removal::start().await;
    let Removal {
        deployment,
        key,
        connection,
    } = &removal;
    let service = deployment.serve();
    let accounts = format!("{}/v1/accounts", service.api);
    assert!(
        !get(&accounts, Some(key)).await.1["data"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    removal.hang_withdrawals().await;
    let mut command = deployment
        .workdir
        .command(&format!("connection remove {connection} --yes"))
        .spawn()
        .unwrap();
    removal.wait_for_withdrawal().await;
    assert!(
        Command::new("kill")
            .args(["-9", &command.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    command.wait().unwrap();
    assert_eq!(
        get(&accounts, Some(key)).await.1["data"],
        json!([]),
        "hidden at once"
    );
    let listed = removal.list();
    assert_eq!(listed[0]["id"], connection.as_str());
    assert_eq!(listed[0]["status"], "deleting");
    assert_eq!(listed[0]["removal"]["attempts"], 0);
    while pending_removals(&service.ops).await != "1" {}
    deployment.clear_faults("fiskil").await;
    removal.free_removals().await;
    removal.wait_until_removed();
    while pending_removals(&service.ops).await != "0" {}
    service.stop();
    removal.deployment.stop();
}

#[tokio::test]
async fn restarted_service_resumes_removal() {
    let removal = Removal::start().await;
    let Removal {
        deployment,
        connection,
        ..
    } = &removal;
    // The command reports at once that the consent could not be withdrawn.
    let reject = Fault::status(400).at("/v1/consent/");
    deployment.add_fault("fiskil", reject).await;
    let output = deployment
        .workdir
        .run(&format!("connection remove {connection} --json"));
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
    let listed = removal.list();
    assert_eq!(
        listed[0]["removal"]["lastError"],
        "the provider rejected the request (status 400)"
    );
    let shown = deployment
        .workdir
        .text("connection list --user me@example.com");
    assert!(
        shown.contains(&format!(
            "{connection} is being removed: the provider rejected"
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
        deployment
            .workdir
            .error(&format!("connection remove {connection} --yes"), 1);
    }
    let (code, verdict, detail) = doctor();
    assert!(
        (code, &verdict) == (Some(1), &json!("wrong")) && detail.contains("Tried 3 times"),
        "{detail}"
    );

    deployment.clear_faults("fiskil").await;
    removal.hang_withdrawals().await;
    removal.free_removals().await;
    let service = deployment.serve();
    removal.wait_for_withdrawal().await;
    service.kill();
    deployment.clear_faults("fiskil").await;
    removal.free_removals().await;
    let service = deployment.serve();
    removal.wait_until_removed();
    service.stop();
    removal.deployment.stop();
}

#[tokio::test]
async fn unopenable_credentials_delay_the_removal() {
    let mut removal = Removal::start().await;
    let other_key = "other:BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA=";
    removal.deployment.set("SECRETS__KEY", other_key);
    let (workdir, connection) = (&removal.deployment.workdir, &removal.connection);
    let error = workdir.error(&format!("connection remove {connection} --yes"), 1);
    assert!(
        error.contains(
            "its credentials cannot be opened: sealed with the master key `main`, which is not in secrets.key"
        ),
        "{error}"
    );
    assert_eq!(removal.list()[0]["status"], "deleting");
    let deleted_locally = workdir.json(&format!("connection remove {connection} --local-only"));
    assert_eq!(deleted_locally["removed"], true);
    assert_eq!(deleted_locally["consentWithdrawn"], false);
    assert_eq!(removal.list(), json!([]));
    let not_found = workdir.error(&format!("connection remove {connection} --yes"), 1);
    assert!(
        not_found.starts_with("error: there is no connection"),
        "{not_found}"
    );
    removal.deployment.stop();
}

also_on_postgres! { service_finishes_killed_remove_command restarted_service_resumes_removal }
