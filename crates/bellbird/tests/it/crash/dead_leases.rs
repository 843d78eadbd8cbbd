//! Nothing waits for the leases of a service that is gone. One that was only paused does no harm
//! when it continues.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::support::checked_endpoint::{Behaviour, Endpoint};
use crate::support::database::{execute, query};
use crate::support::harness::{Database, also_on_postgres, eventually};
use crate::support::process::{Addresses, RunningCommand, Workdir, new_deployment, text};

/// Requests that a service sends to one endpoint at once.
const CONCURRENT_ATTEMPTS_MAX: usize = 16;

/// A user with one connection, and an endpoint that takes its time for each of many chunks.
struct Deployment {
    workdir: Workdir,
    sandbox: RunningCommand,
    database: String,
    endpoint: Endpoint,
}

impl Deployment {
    async fn start(database: Database) -> Self {
        let (mut workdir, sandbox, database) = new_deployment(database).await;
        workdir.set("BELLBIRD_WEBHOOKS__ALLOW_LOOPBACK", "true");
        workdir.set("BELLBIRD_WEBHOOKS__CHUNK_ROWS", "2");
        workdir.json("user add --email me@example.com");
        let endpoint = Endpoint::start(Behaviour::Slow, 0).await;
        let added = workdir.json(&format!(
            "webhook add --user me@example.com --url {}",
            endpoint.url
        ));
        endpoint.set_secret(text(&added, "secret"));
        let credentials = sandbox.json()["credentials"][0].to_string();
        let output = workdir.run_with_input(
            "connection import --user me@example.com --credentials - --json",
            &credentials,
        );
        assert!(output.status.success());
        execute(
            &database,
            "UPDATE jobs SET run_at = 0 WHERE kind = 'sync'",
            "",
        )
        .await;
        Self {
            workdir,
            sandbox,
            database,
            endpoint,
        }
    }

    fn serve(&self, addresses: &Addresses) -> RunningCommand {
        RunningCommand::start(
            &self.workdir,
            &format!("serve --json {}", addresses.options()),
        )
    }

    async fn count(&self, sql: &str) -> usize {
        query(&self.database, sql).await[0][0].parse().unwrap()
    }

    /// Waits until some chunks were accepted and many are left.
    async fn wait_until_amid_chunks(&self) {
        eventually(async || self.endpoint.counts().accepted >= 3).await;
        assert!(self.count(UNDELIVERED).await > 5);
    }

    /// Waits until everything is delivered, and compares it with what the database planned.
    async fn assert_all_delivered(&self) {
        eventually(async || self.count(UNDELIVERED).await == 0).await;
        self.endpoint.assert_in_order();
        self.endpoint.assert_complete();
        let counts = self.endpoint.counts();
        assert_eq!(
            counts.events,
            self.count("SELECT COUNT(*) FROM webhook_events").await
        );
        assert!(
            counts.accepted - counts.events <= CONCURRENT_ATTEMPTS_MAX,
            "only what was under way comes again"
        );
    }
}

const UNDELIVERED: &str = "SELECT COUNT(*) FROM webhook_deliveries WHERE ended_at IS NULL";
/// Leases that somebody has to wait for.
const FOREIGN_LEASES: &str = "SELECT (SELECT COUNT(*) FROM jobs WHERE lease_until > 0 AND holder NOT IN
        (SELECT id FROM instances)) + (SELECT COUNT(*) FROM webhook_queues WHERE lease_until > 0 AND holder NOT IN
        (SELECT id FROM instances))";

#[tokio::test(flavor = "multi_thread")]
async fn restarted_service_continues_at_once() {
    let database = Database::of_test();
    let deployment = Deployment::start(database).await;
    let addresses = Addresses::new();
    let service = deployment.serve(&addresses);
    deployment.wait_until_amid_chunks().await;
    assert_eq!(service.stop("-KILL").0, None);
    let held = "SELECT COUNT(*) FROM webhook_queues WHERE lease_until > 0";
    assert_eq!(deployment.count(held).await, 1);
    let service = deployment.serve(&addresses);
    assert_eq!(
        deployment.count(FOREIGN_LEASES).await,
        0,
        "free before the service is ready"
    );
    deployment.assert_all_delivered().await;
    assert_eq!(service.stop("-TERM").0, Some(0));
    assert_eq!(deployment.sandbox.stop("-TERM").0, Some(0));
}

mod postgres {
    use super::*;

    /// The service that holds the endpoint's lease stands still until the other one takes it for
    /// dead. Then it continues in the middle of its time slice.
    #[tokio::test(flavor = "multi_thread")]
    async fn paused_service_loses_what_it_held_and_does_no_harm() {
        let deployment = Deployment::start(Database::Postgres).await;
        let all = [Addresses::new(), Addresses::new()];
        let services = all.each_ref().map(|addresses| deployment.serve(addresses));
        deployment.wait_until_amid_chunks().await;
        let holder =
            "SELECT i.api_url, i.id FROM instances i JOIN webhook_queues e ON e.holder = i.id";
        let holder = query(&deployment.database, holder).await.swap_remove(0);
        let by_url: BTreeMap<String, u32> = services
            .iter()
            .map(|service| (api_url(&service.json()), service.id()))
            .collect();
        let paused = by_url[&holder[0]];
        signal(paused, "-STOP");
        // As if it had stood still for as long as that takes.
        let stale = format!(
            "UPDATE instances SET last_seen_at = 0 WHERE id = '{}'",
            holder[1]
        );
        execute(&deployment.database, &stale, "").await;
        let other = format!(
            "SELECT COUNT(*) FROM webhook_queues WHERE holder <> '{}'",
            holder[1]
        );
        eventually(async || deployment.count(&other).await == 1).await;
        signal(paused, "-CONT");
        deployment.assert_all_delivered().await;
        for service in services {
            assert_eq!(service.stop("-TERM").0, Some(0));
        }
    }

    fn api_url(ready: &Value) -> String {
        text(ready, "apiUrl").to_owned()
    }

    fn signal(process: u32, signal: &str) {
        assert!(
            Command::new("kill")
                .args([signal, &process.to_string()])
                .status()
                .unwrap()
                .success()
        );
    }
}

also_on_postgres! { restarted_service_continues_at_once }
