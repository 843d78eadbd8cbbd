//! The command and the service are killed with `kill -9` while they remove a connection.

use bellbird_sandbox::Fault;
use serde_json::{Value, json};

use crate::support::deployment::{Deployment, EMAIL};
use crate::support::harness::also_on_postgres;
use crate::support::process::{ANY_PORTS, MASTER_KEY, errors, findings, get_list, metrics, text};
use crate::support::words::assert_starts;

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
        let is_withdrawal = |method: &str, _: &str| method == "DELETE";
        while self.deployment.calls("fiskil", is_withdrawal).await == 0 {}
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
    let page = metrics(ops).await;
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
    assert_ne!(get_list(&accounts, key).await, Vec::<Value>::new());
    removal.hang_withdrawals().await;
    let line = format!("connection remove {connection} --yes");
    let mut command = deployment.workdir.command(&line).spawn().unwrap();
    removal.wait_for_withdrawal().await;
    command.kill().unwrap();
    command.wait().unwrap();
    let hidden = get_list(&accounts, key).await;
    assert_eq!(hidden, Vec::<Value>::new(), "at once");
    let listed = &removal.list()[0];
    let found = [
        &listed["id"],
        &listed["status"],
        &listed["removal"]["attempts"],
    ];
    assert_eq!(found, [&json!(connection), &json!("deleting"), &json!(0)]);
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
    let mut removal = Removal::start().await;
    // Credentials that cannot be opened delay the removal.
    let other_key = "other:BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA=";
    removal.deployment.set("SECRETS__KEY", other_key);
    let (workdir, connection) = (&removal.deployment.workdir, &removal.connection);
    let remove = format!("connection remove {connection} --yes");
    let error = workdir.error(&remove, 1);
    let reason = "its credentials cannot be opened: sealed with the master key `main`, which is \
                  not in secrets.key";
    assert!(error.contains(reason), "{error}");
    assert_eq!(removal.list()[0]["status"], "deleting");
    let deleted_locally = workdir.json(&format!("connection remove {connection} --local-only"));
    assert_eq!(deleted_locally["removed"], true);
    assert_eq!(deleted_locally["consentWithdrawn"], false);
    assert_eq!(removal.list(), json!([]));
    let error = workdir.error(&remove, 1);
    assert_starts(&error, "error: there is no connection");
    removal.deployment.set("SECRETS__KEY", MASTER_KEY);
    removal.connection = removal.deployment.import(EMAIL, "fiskil", 1).remove(0);

    let Removal {
        deployment,
        connection,
        ..
    } = &removal;
    // The command reports at once that the consent could not be withdrawn.
    let reject = Fault::status(400).at("/v1/consent/");
    deployment.add_fault("fiskil", reject).await;
    let workdir = &deployment.workdir;
    let output = workdir.run(&format!("connection remove {connection} --json"));
    assert_eq!(output.status.code(), Some(1));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let done = [&printed["removed"], &printed["consentWithdrawn"]];
    assert_eq!(done, [&json!(false); 2]);
    assert_eq!(printed["status"], "deleting");
    assert_eq!(printed["removal"]["attempts"], 1);
    let error = errors(&output);
    let message = format!("error: {}", text(&printed["error"], "message"));
    assert_eq!(error.trim_end(), message);
    let rejected = "the provider rejected the request (status 400)";
    let hidden = format!("is hidden, but its consent is not withdrawn yet: {rejected}");
    assert!(error.contains(&hidden), "{error}");
    assert_eq!(removal.list()[0]["removal"]["lastError"], rejected);
    let shown = errors(&workdir.run("connection list --user me@example.com"));
    let pending = format!("{connection} is being removed: the provider rejected");
    assert!(shown.contains(&pending), "{shown}");
    let assert_doctor = |code: i32, verdict: &str, words: &str| {
        let output = workdir.run(&format!("doctor --json {ANY_PORTS}"));
        let jobs = findings(&output, "jobs").swap_remove(0);
        assert!(jobs.starts_with(verdict) && jobs.contains(words), "{jobs}");
        assert_eq!(output.status.code(), Some(code), "{jobs}");
    };
    assert_doctor(0, "note ", "Tried once");
    for _ in 0..2 {
        workdir.error(&format!("connection remove {connection} --yes"), 1);
    }
    assert_doctor(1, "wrong ", "Tried 3 times");

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

also_on_postgres! { service_finishes_killed_remove_command restarted_service_resumes_removal }
