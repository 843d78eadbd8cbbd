//! Services are killed at random moments while they sync and deliver. Every row is still reported,
//! in one event.
//!
//! An event may be delivered more than once, and a chunk only after the endpoint has accepted the
//! previous one. A seed decides the moments. It is printed, and `BELLBIRD_TEST_SEED` repeats a run.
//! `BELLBIRD_TEST_KILL_FACTOR` makes a test kill more often.

use std::process::Child;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::kill_factor;
use crate::support::checked_endpoint::{Behaviour, Endpoint, EndpointCounts};
use crate::support::database::{execute, query};
use crate::support::harness::{Database, also_on_postgres, eventually};
use crate::support::known_rows::{Rows, control};
use crate::support::process::{ANY_PORTS, RunningCommand, Workdir, errors, new_deployment, text};
use crate::support::provider_spec::SPECS;
use crate::support::random::{self, Random, print_line};

const SYNCS_MIN: usize = 200;
const KILLS_MIN: usize = 40;
/// More rounds than either minimum needs.
const ROUNDS_MAX: usize = 400;
/// A service lives for less than this, in milliseconds. A third of them live for less than the
/// short time and die in the middle of a sync.
const LIFE_MAX: usize = 600;
const SHORT_LIFE_MAX: usize = 120;

/// How often to check a command that waits for leases of killed services.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Ends every lease, which would take minutes, and makes every sync due.
const EXPIRE_LEASES_SQL: &str =
    "UPDATE jobs SET lease_until = 0, attempts = 0 WHERE lease_until IS NOT NULL;
    UPDATE webhook_queues SET lease_until = 0 WHERE lease_until IS NOT NULL;
    UPDATE jobs SET run_at = 0 WHERE kind = 'sync'";

/// A deployment whose services are killed.
struct Deployment {
    workdir: Workdir,
    sandbox: RunningCommand,
    database: String,
    endpoints: [Endpoint; 2],
    syncs: usize,
    kills: usize,
}

impl Deployment {
    /// A user with five connections at three providers, and two endpoints.
    async fn start(database: Database, seed: u64) -> Self {
        let (mut workdir, sandbox, database) = new_deployment(database).await;
        workdir.set("BELLBIRD_SYNC__INTERVAL_SECONDS", "1");
        workdir.set("BELLBIRD_WEBHOOKS__ALLOW_LOOPBACK", "true");
        workdir.set("BELLBIRD_WEBHOOKS__CHUNK_ROWS", "3");
        workdir.set(
            "BELLBIRD_WEBHOOKS__ATTEMPT_DELAYS_SECONDS",
            &format!("0{}", ",1".repeat(19)),
        );
        workdir.json("user add --email me@example.com --plan professional");
        let endpoints = [
            Endpoint::start(Behaviour::Reliable, seed).await,
            Endpoint::start(Behaviour::Flaky, seed).await,
        ];
        for endpoint in &endpoints {
            let added = workdir.json(&format!(
                "webhook add --user me@example.com --url {}",
                endpoint.url
            ));
            endpoint.set_secret(text(&added, "secret"));
        }
        let described = sandbox.json();
        for spec in &SPECS {
            let (provider, count) = (spec.name, if spec.is_brokerage() { 1 } else { 2 });
            let all_credentials = described["credentials"].as_array().unwrap().iter();
            for credentials in all_credentials
                .filter(|credentials| credentials["provider"] == provider)
                .take(count)
            {
                let line = "connection import --user me@example.com --credentials - --json";
                let output = workdir.run_with_input(line, &credentials.to_string());
                assert_eq!(
                    (output.status.code(), errors(&output).as_str()),
                    (Some(0), "")
                );
            }
        }
        Self {
            workdir,
            sandbox,
            database,
            endpoints,
            syncs: 0,
            kills: 0,
        }
    }

    fn serve(&self) -> RunningCommand {
        RunningCommand::start(&self.workdir, &format!("serve --json {ANY_PORTS}"))
    }

    /// Services that the database serves at once.
    fn services_max(&self) -> usize {
        if self.database.starts_with("sqlite:") {
            1
        } else {
            2
        }
    }

    fn kill(&mut self, service: RunningCommand) {
        let (code, _, log) = service.stop("-KILL");
        assert_eq!(code, None, "{log}");
        self.kills += 1;
        self.syncs += log.matches("connection synced").count();
    }

    /// Makes a random provider slow or faulty for a few calls.
    async fn inject_fault(&self, random: &mut Random) {
        let provider = SPECS[random.below(SPECS.len())].name;
        let times = 1 + random.below(6);
        let fault = match random.below(4) {
            0 => json!({"kind": "status", "status": 503, "times": times}),
            1 => json!({"kind": "cut", "times": times}),
            _ => json!({"kind": "delay", "delayMs": 20 + random.below(150), "times": times}),
        };
        control(&self.sandbox, provider, Method::POST, "faults", fault).await;
    }

    /// Starts one or two services, and perhaps a command that syncs, and kills the services. SQLite
    /// serves one at a time, so there the second starts after the first was killed.
    async fn round(&mut self, random: &mut Random) {
        self.expire_dead_leases().await;
        let count = 1 + usize::from(random.one_in(3));
        let mut services: Vec<RunningCommand> = (0..count.min(self.services_max()))
            .map(|_| self.serve())
            .collect();
        let command = random.one_in(5).then(|| {
            self.workdir
                .command("connection sync --all --json")
                .spawn()
                .unwrap()
        });
        for _ in 0..count {
            let service = services.pop().unwrap_or_else(|| self.serve());
            let limit = if random.one_in(3) {
                SHORT_LIFE_MAX
            } else {
                LIFE_MAX
            };
            tokio::time::sleep(random.millis(limit)).await;
            self.kill(service);
            // The leases of a live service end too, as if it had been suspended for minutes.
            if random.one_in(2) {
                execute(&self.database, EXPIRE_LEASES_SQL, "").await;
            }
        }
        if let Some(command) = command {
            self.end_command(command, random).await;
        }
    }

    /// Kills a command that syncs, or lets it finish now that no service runs.
    async fn end_command(&mut self, mut command: Child, random: &mut Random) {
        if random.one_in(2) {
            let _ = command.kill();
        }
        while command.try_wait().unwrap().is_none() {
            execute(&self.database, EXPIRE_LEASES_SQL, "").await;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let output = command.wait_with_output().unwrap();
        let synced: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        match synced {
            // If a sync failed, the reports of the others are in `synced`.
            Some(synced) => {
                self.syncs += synced
                    .as_array()
                    .or(synced["synced"].as_array())
                    .map_or(0, Vec::len)
            }
            None => self.kills += 1,
        }
    }

    /// Ends the leases of killed services. PostgreSQL may run a last statement of a killed service
    /// late, and that could claim another lease. So this first waits until the service's sessions
    /// have ended.
    async fn expire_dead_leases(&self) {
        if !self.database.starts_with("sqlite:") {
            let sessions = "SELECT COUNT(*) FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = 'bellbird'";
            eventually(async || self.count(sessions).await == 0).await;
        }
        execute(&self.database, EXPIRE_LEASES_SQL, "").await;
    }

    async fn count(&self, sql: &str) -> u64 {
        query(&self.database, sql).await[0][0].parse().unwrap()
    }

    /// Without further kills, syncs all connections and delivers all events.
    async fn finish_all_work(&mut self) {
        for spec in &SPECS {
            control(
                &self.sandbox,
                spec.name,
                Method::DELETE,
                "faults",
                json!({}),
            )
            .await;
        }
        self.expire_dead_leases().await;
        let services: Vec<RunningCommand> =
            (0..self.services_max()).map(|_| self.serve()).collect();
        loop {
            let synced = self.workdir.json("connection sync --all");
            let counts = synced
                .as_array()
                .unwrap()
                .iter()
                .map(|report| [&report["newCount"], &report["updatedCount"]]);
            if counts.into_iter().flatten().all(|count| *count == 0) {
                break;
            }
        }
        let open = "SELECT COUNT(*) FROM webhook_deliveries WHERE state IN ('pending', 'waiting')";
        eventually(async || self.count(open).await == 0).await;
        assert_eq!(
            self.count("SELECT COUNT(*) FROM webhook_deliveries WHERE state <> 'delivered'")
                .await,
            0
        );
        for service in services {
            assert_eq!(service.stop("-TERM").0, Some(0));
        }
    }
}

async fn announce_despite_kills(database: Database) {
    let seed = random::seed();
    let mut random = Random::new(seed);
    let mut deployment = Deployment::start(database, seed).await;
    let mut rows = Rows::new(&deployment.database).await;
    let factor = usize::try_from(kill_factor()).unwrap();
    let mut rounds = 0;
    while deployment.syncs < SYNCS_MIN * factor || deployment.kills < KILLS_MIN * factor {
        rounds += 1;
        assert!(
            rounds <= ROUNDS_MAX * factor,
            "{} syncs, {} kills",
            deployment.syncs,
            deployment.kills
        );
        for _ in 0..=random.below(2) {
            rows.add(&deployment.sandbox, &mut random).await;
        }
        for _ in 0..random.below(3) {
            rows.change(&deployment.sandbox, &mut random, &deployment.endpoints[0])
                .await;
        }
        if random.one_in(3) {
            deployment.inject_fault(&mut random).await;
        }
        deployment.round(&mut random).await;
    }
    deployment.finish_all_work().await;

    let fingerprints = deployment
        .count("SELECT SUM((LENGTH(entries) - 1) / 64) FROM fingerprints")
        .await;
    print_line(&format!(
        "{rounds} rounds, {} kills, {} syncs finished",
        deployment.kills, deployment.syncs
    ));
    let (added, changed) = rows.counts();
    print_line(&format!(
        "{added} rows added, {changed} of them changed, {fingerprints} rows in all"
    ));
    for endpoint in &deployment.endpoints {
        let EndpointCounts {
            requests,
            accepted,
            events,
        } = endpoint.counts();
        print_line(&format!(
            "{requests} requests, {accepted} of them accepted, {events} events"
        ));
        endpoint.assert_in_order();
        endpoint.assert_complete();
        rows.assert_announced(endpoint, Some(fingerprints));
    }
    assert_eq!(deployment.sandbox.stop("-TERM").0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_is_announced_despite_crashes() {
    let database = Database::of_test();
    announce_despite_kills(database).await;
}

also_on_postgres! { every_row_is_announced_despite_crashes }
