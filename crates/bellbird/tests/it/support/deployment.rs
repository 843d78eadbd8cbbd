//! A deployment of real processes: a migrated database, the sandbox, and services that are killed
//! and started again.

use std::path::PathBuf;
use std::time::Duration;

use bellbird_sandbox::Fault;
use reqwest::{Method, Url};
use serde_json::{Value, json};

use crate::support::browser::client;
use crate::support::checked_endpoint::Endpoint;
use crate::support::database::{execute, query};
use crate::support::harness::{
    Database, eventually_within, postgres_database, simulated_providers,
};
use crate::support::process::{
    ANY_PORTS, ANY_SANDBOX_PORTS, Addresses, MASTER_KEY, RunningCommand, Workdir, text,
};
use crate::support::provider_spec::SPECS;

pub(crate) const EMAIL: &str = "me@example.com";

pub(crate) struct Deployment {
    pub(crate) workdir: Workdir,
    pub(crate) sandbox: RunningCommand,
    /// The URL of the database.
    pub(crate) database: String,
}

/// A service, and where it listens.
pub(crate) struct Service {
    pub(crate) running: RunningCommand,
    pub(crate) api: String,
    pub(crate) ops: String,
}

impl Deployment {
    /// On the database of the test, with these settings: `("SYNC__ENABLED", "false")`.
    pub(crate) async fn start(settings: &[(&str, &str)]) -> Self {
        Self::start_on(Database::of_test(), 50, settings).await
    }

    /// With so many rows of each simulated account.
    pub(crate) async fn start_on(database: Database, rows: u32, settings: &[(&str, &str)]) -> Self {
        let mut workdir = Workdir::new();
        let database = match database {
            Database::Sqlite => format!(
                "sqlite:{}",
                workdir.folder.path().join("deployment.db").display()
            ),
            Database::Postgres => postgres_database().await,
        };
        workdir.set("BELLBIRD_DATABASE__URL", &database);
        workdir.set("BELLBIRD_SECRETS__KEY", MASTER_KEY);
        workdir.json("migrate");
        let line = format!("sandbox --json --rows {rows} {ANY_SANDBOX_PORTS}");
        let sandbox = RunningCommand::start(&workdir, &line);
        for provider in simulated_providers() {
            for (member, value) in sandbox.json()[provider].as_object().unwrap() {
                let name: String = member
                    .chars()
                    .flat_map(|c| c.is_uppercase().then_some('_').into_iter().chain([c]))
                    .collect();
                let name = format!("BELLBIRD_{provider}__{name}").to_uppercase();
                workdir.set(&name, value.as_str().unwrap());
            }
        }
        for (name, value) in settings {
            workdir.set(&format!("BELLBIRD_{name}"), value);
        }
        Self {
            workdir,
            sandbox,
            database,
        }
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.workdir.set(&format!("BELLBIRD_{name}"), value);
    }

    /// A user of the professional plan, who gets a key.
    pub(crate) fn add_user(&self, email: &str) -> String {
        self.workdir
            .json(&format!("user add --email {email} --plan professional"));
        let key = self
            .workdir
            .json(&format!("key create --user {email} --name test"));
        text(&key, "key").to_owned()
    }

    /// Imports so many connections of a user at a provider. Returns their ids.
    pub(crate) fn import(&self, email: &str, provider: &str, count: usize) -> Vec<String> {
        let described = self.sandbox.json();
        let all = described["credentials"].as_array().unwrap().iter();
        let of_provider = all.filter(|credentials| credentials["provider"] == provider);
        let import = |credentials| self.workdir.import(email, credentials);
        of_provider.take(count).map(import).collect()
    }

    /// Imports two connections of a user at each bank and one at each broker.
    pub(crate) fn import_at_all(&self, email: &str) {
        for spec in &SPECS {
            self.import(email, spec.name, if spec.is_brokerage() { 1 } else { 2 });
        }
    }

    /// Adds an endpoint of a user. Returns its secret.
    pub(crate) fn add_endpoint(&self, email: &str, endpoint: &Endpoint) -> String {
        let line = format!("webhook add --user {email} --url {}", endpoint.url);
        let secret = text(&self.workdir.json(&line), "secret").to_owned();
        endpoint.set_secret(&secret);
        secret
    }

    /// Starts a service at any free ports.
    pub(crate) fn serve(&self) -> Service {
        self.serve_with(ANY_PORTS)
    }

    /// Starts a service where one has listened before.
    pub(crate) fn serve_at(&self, addresses: &Addresses) -> Service {
        self.serve_with(&addresses.options())
    }

    pub(crate) fn serve_with(&self, options: &str) -> Service {
        let line = format!("serve --json {options}");
        Service::of(RunningCommand::start(&self.workdir, &line))
    }

    /// Starts a service at any free ports, whose log a file of this name has.
    pub(crate) fn serve_with_log(&self, log: &str) -> Service {
        let (line, log) = (format!("serve --json {ANY_PORTS}"), self.log_file(log));
        Service::of(RunningCommand::start_with_log(&self.workdir, &line, &log))
    }

    pub(crate) fn log_file(&self, name: &str) -> PathBuf {
        self.workdir.folder.path().join(name)
    }

    /// Calls the control interface of a simulated provider.
    pub(crate) async fn control(
        &self,
        provider: &str,
        method: Method,
        path: &str,
        body: Value,
    ) -> Value {
        control(&self.sandbox.json(), provider, method, path, body).await
    }

    pub(crate) async fn add_fault(&self, provider: &str, fault: Fault) {
        add_fault(&self.sandbox.json(), provider, fault).await;
    }

    pub(crate) async fn clear_faults(&self, provider: &str) {
        self.control(provider, Method::DELETE, "faults", json!({}))
            .await;
    }

    /// How many calls a provider has received since the last [`Self::reset_calls`].
    pub(crate) async fn calls(
        &self,
        provider: &str,
        is_counted: impl Fn(&str, &str) -> bool,
    ) -> u64 {
        let seen = self
            .control(provider, Method::GET, "calls", json!({}))
            .await;
        let calls = seen["calls"].as_array().unwrap().iter();
        calls
            .filter(|call| is_counted(text(call, "method"), text(call, "path")))
            .map(|call| call["count"].as_u64().unwrap())
            .sum()
    }

    pub(crate) async fn reset_calls(&self, provider: &str) {
        self.control(provider, Method::DELETE, "calls", json!({}))
            .await;
    }

    pub(crate) async fn execute(&self, sql: &str) {
        execute(&self.database, sql, "").await;
    }

    /// The number that a query returns.
    pub(crate) async fn count(&self, sql: &str) -> u64 {
        query(&self.database, sql).await[0][0].parse().unwrap()
    }

    /// How many rows syncs have seen.
    pub(crate) async fn fingerprints(&self) -> u64 {
        let sql = "SELECT SUM((LENGTH(entries) - 1) / 64) FROM fingerprints";
        self.count(sql).await
    }

    pub(crate) fn is_on_postgres(&self) -> bool {
        !self.database.starts_with("sqlite:")
    }

    /// Ends every lease, which would take minutes, as if each holder had been suspended.
    pub(crate) async fn expire_leases(&self) {
        self.execute(
            "UPDATE jobs SET lease_until = 0, attempts = 0 WHERE lease_until IS NOT NULL;
            UPDATE webhook_queues SET lease_until = 0 WHERE lease_until IS NOT NULL",
        )
        .await;
    }

    /// Syncs all connections until nothing is new, and waits until all events are delivered.
    pub(crate) async fn finish_all_work(&self, timeout: Duration) {
        loop {
            let synced = self.workdir.json("connection sync --all");
            let reports = synced.as_array().unwrap().iter();
            let mut counts =
                reports.flat_map(|report| [&report["newCount"], &report["updatedCount"]]);
            if counts.all(|count| *count == 0) {
                break;
            }
        }
        let open = "SELECT COUNT(*) FROM webhook_deliveries WHERE state IN ('pending', 'waiting')";
        eventually_within(timeout, async || self.count(open).await == 0).await;
        let failed = "SELECT COUNT(*) FROM webhook_deliveries WHERE state <> 'delivered'";
        assert_eq!(self.count(failed).await, 0, "deliveries that were given up");
    }

    /// Stops the sandbox.
    pub(crate) fn stop(self) {
        assert_eq!(self.sandbox.stop("-TERM").0, Some(0));
    }
}

impl Service {
    pub(crate) fn of(running: RunningCommand) -> Self {
        let ready = running.json();
        let url = |name: &str| ready[name].as_str().unwrap_or_default().to_owned();
        Self {
            api: url("apiUrl"),
            ops: url("opsUrl"),
            running,
        }
    }

    /// Returns its log.
    pub(crate) fn kill(self) -> String {
        let (status, _, log) = self.running.stop("-KILL");
        assert_eq!(status, None, "the service had ended before: {log}");
        log
    }

    pub(crate) fn stop(self) {
        let (status, _, log) = self.running.stop("-TERM");
        assert_eq!(status, Some(0), "{log}");
    }
}

/// Calls the control interface of a simulated provider in another process, which has printed this
/// description of itself.
pub(crate) async fn control(
    sandbox: &Value,
    provider: &str,
    method: Method,
    path: &str,
    body: Value,
) -> Value {
    let base: Url = text(&sandbox[provider], "baseUrl").parse().unwrap();
    let url = base.join(&format!("/__control/{path}")).unwrap();
    let response = client()
        .request(method, url)
        .json(&body)
        .send()
        .await
        .unwrap();
    let status = response.status();
    assert!(status.is_success(), "{path}: {status}");
    serde_json::from_str(&response.text().await.unwrap()).unwrap_or(Value::Null)
}

pub(crate) async fn add_fault(sandbox: &Value, provider: &str, fault: Fault) {
    let fault = serde_json::to_value(fault).unwrap();
    control(sandbox, provider, Method::POST, "faults", fault).await;
}
