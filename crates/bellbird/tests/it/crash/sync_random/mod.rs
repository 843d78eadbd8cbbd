//! Services are killed at random moments while they sync and deliver: every row is announced all the same, and once.
//!
//! A row may arrive more than once only with the same event, and no chunk before the one ahead of it was accepted. The
//! moments come of a seed, which is printed: `BELLBIRD_TEST_SEED` repeats a run. `BELLBIRD_TEST_KILL_FACTOR` makes a
//! test kill more often.

mod endpoint;
mod random;
mod rows;

use std::process::Child;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::kill_factor;
use crate::support::database::{execute, query};
use crate::support::harness::{Database, eventually};
use crate::support::process::{ANY_PORTS, RunningCommand, Workdir, errors, new_deployment, text};
use endpoint::{Behaviour, Endpoint};
use random::Random;
use rows::{Rows, control};

const SYNCS_MIN: usize = 200;
const KILLS_MIN: usize = 40;
/// So many rounds are plenty for both.
const ROUNDS_MAX: usize = 400;
/// A service lives for less than this, in milliseconds; many not even for the second: they die in the midst of a sync.
const LIFE_MAX: usize = 600;
const SHORT_LIFE_MAX: usize = 120;

/// How often a command is looked at that waits for leases of the dead.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The time of every lease passes, which is minutes, and everything is due.
const EXPIRE_LEASES_SQL: &str = "UPDATE connections SET sync_lease_until = 0 WHERE sync_lease_until IS NOT NULL;
    UPDATE connections SET refresh_lease_until = 0 WHERE refresh_lease_until IS NOT NULL;
    UPDATE webhook_endpoints SET lease_until = 0 WHERE lease_until IS NOT NULL;
    UPDATE connections SET next_sync_at = 0";

/// A deployment whose services die.
struct Deployment {
    workdir: Workdir,
    sandbox: RunningCommand,
    database: String,
    endpoints: [Endpoint; 2],
    syncs: usize,
    kills: usize,
}

impl Deployment {
    /// Someone with five connections at three providers, and two endpoints.
    async fn start(database: Database, seed: u64) -> Self {
        let (mut workdir, sandbox, database) = new_deployment(database).await;
        workdir.set("BELLBIRD_SYNC__INTERVAL_SECONDS", "1");
        workdir.set("BELLBIRD_WEBHOOKS__ALLOW_LOOPBACK", "true");
        workdir.set("BELLBIRD_WEBHOOKS__CHUNK_ROWS", "3");
        workdir.set("BELLBIRD_WEBHOOKS__ATTEMPT_DELAYS_SECONDS", &format!("0{}", ",1".repeat(19)));
        workdir.json("user add --email me@example.com --plan professional");
        let endpoints =
            [Endpoint::start(Behaviour::Reliable, seed).await, Endpoint::start(Behaviour::Flaky, seed).await];
        for endpoint in &endpoints {
            let added = workdir.json(&format!("webhook add --user me@example.com --url {}", endpoint.url));
            endpoint.set_secret(text(&added, "secret"));
        }
        let described = sandbox.json();
        for (provider, count) in [("fiskil", 2), ("akahu", 2), ("snaptrade", 1)] {
            let all_credentials = described["credentials"].as_array().unwrap().iter();
            for credentials in all_credentials.filter(|credentials| credentials["provider"] == provider).take(count) {
                let line = "connection import --user me@example.com --credentials - --json";
                let output = workdir.run_with_input(line, &credentials.to_string());
                assert_eq!((output.status.code(), errors(&output).as_str()), (Some(0), ""));
            }
        }
        Self { workdir, sandbox, database, endpoints, syncs: 0, kills: 0 }
    }

    fn serve(&self) -> RunningCommand {
        RunningCommand::start(&self.workdir, &format!("serve --json {ANY_PORTS}"))
    }

    fn kill(&mut self, service: RunningCommand) {
        let (code, _, log) = service.stop("-KILL");
        assert_eq!(code, None, "{log}");
        self.kills += 1;
        self.syncs += log.matches("connection synced").count();
    }

    /// A provider is slow for a few calls, or does not answer them as it should.
    async fn inject_fault(&self, random: &mut Random) {
        let provider = ["fiskil", "akahu", "snaptrade"][random.below(3)];
        let times = 1 + random.below(6);
        let fault = match random.below(4) {
            0 => json!({"kind": "status", "status": 503, "times": times}),
            1 => json!({"kind": "cut", "times": times}),
            _ => json!({"kind": "delay", "delayMs": 20 + random.below(150), "times": times}),
        };
        control(&self.sandbox, provider, Method::POST, "faults", fault).await;
    }

    /// Services, and perhaps a command, work on what is new, and die.
    async fn round(&mut self, random: &mut Random) {
        self.expire_dead_leases().await;
        let services: Vec<RunningCommand> = (0..=usize::from(random.one_in(3))).map(|_| self.serve()).collect();
        let command = random.one_in(5).then(|| self.workdir.command("connection sync --all --json").spawn().unwrap());
        for service in services {
            let limit = if random.one_in(3) { SHORT_LIFE_MAX } else { LIFE_MAX };
            tokio::time::sleep(random.millis(limit)).await;
            self.kill(service);
            // The leases of whoever lives end too, as if it had been stopped for so long.
            if random.one_in(2) {
                execute(&self.database, EXPIRE_LEASES_SQL, "").await;
            }
        }
        if let Some(command) = command {
            self.end(command, random).await;
        }
    }

    /// A command that syncs is killed, or does its work now that nobody else does.
    async fn end(&mut self, mut command: Child, random: &mut Random) {
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
            Some(synced) => self.syncs += synced.as_array().unwrap().len(),
            None => self.kills += 1,
        }
    }

    /// Ends the leases of killed services. PostgreSQL may carry out a statement of a killed service late, which takes
    /// another lease: so its sessions have to be gone first.
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

    /// Nobody dies any more: all is synced, and all is delivered.
    async fn finish_all_work(&mut self) {
        for provider in ["fiskil", "akahu", "snaptrade"] {
            control(&self.sandbox, provider, Method::DELETE, "faults", json!({})).await;
        }
        self.expire_dead_leases().await;
        let services = [self.serve(), self.serve()];
        loop {
            let synced = self.workdir.json("connection sync --all");
            let counts = synced.as_array().unwrap().iter().map(|one| (&one["newCount"], &one["updatedCount"]));
            if counts.into_iter().all(|counts| counts == (&0.into(), &0.into())) {
                break;
            }
        }
        let open = "SELECT COUNT(*) FROM webhook_deliveries WHERE state IN ('pending', 'waiting')";
        eventually(async || self.count(open).await == 0).await;
        assert_eq!(self.count("SELECT COUNT(*) FROM webhook_deliveries WHERE state <> 'delivered'").await, 0);
        for service in services {
            assert_eq!(service.stop("-TERM").0, Some(0));
        }
    }
}

/// Tells whoever reads the output of a test.
#[expect(clippy::print_stdout, reason = "a test that failed is repeated with its seed")]
fn print_line(line: &str) {
    println!("{line}");
}

async fn services_are_killed(database: Database) {
    let seed = std::env::var("BELLBIRD_TEST_SEED").ok().filter(|text| !text.is_empty());
    let seed = seed.map_or_else(
        || uuid::Uuid::new_v4().as_u64_pair().0,
        |text| text.parse().expect("BELLBIRD_TEST_SEED is a whole number"),
    );
    print_line(&format!("seed {seed}"));
    let mut random = Random::new(seed);
    let mut deployment = Deployment::start(database, seed).await;
    let mut rows = Rows::new(&deployment.database).await;
    let factor = usize::try_from(kill_factor()).unwrap();
    let mut rounds = 0;
    while deployment.syncs < SYNCS_MIN * factor || deployment.kills < KILLS_MIN * factor {
        rounds += 1;
        assert!(rounds <= ROUNDS_MAX * factor, "{} syncs, {} kills", deployment.syncs, deployment.kills);
        for _ in 0..=random.below(2) {
            rows.add(&deployment.sandbox, &mut random).await;
        }
        for _ in 0..random.below(3) {
            rows.change(&deployment.sandbox, &mut random, &deployment.endpoints[0]).await;
        }
        if random.one_in(3) {
            deployment.inject_fault(&mut random).await;
        }
        deployment.round(&mut random).await;
    }
    deployment.finish_all_work().await;

    let fingerprints = deployment.count("SELECT COUNT(*) FROM row_fingerprints").await;
    let begun = deployment.count("SELECT SUM(sync_fence) FROM connections").await;
    print_line(&format!(
        "{rounds} rounds, {} kills, {begun} syncs begun, {} ended",
        deployment.kills, deployment.syncs
    ));
    let (added, changed) = rows.counts();
    print_line(&format!("{added} rows added, {changed} of them changed, {fingerprints} rows in all"));
    for endpoint in &deployment.endpoints {
        let [requests, accepted, events] = endpoint.counts();
        print_line(&format!("{requests} requests, {accepted} of them accepted, {events} events"));
        endpoint.assert_in_order();
        rows.assert_announced(endpoint, fingerprints);
    }
    assert_eq!(deployment.sandbox.stop("-TERM").0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_is_announced_despite_crashes_on_sqlite() {
    services_are_killed(Database::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_is_announced_despite_crashes_on_postgres() {
    services_are_killed(Database::Postgres).await;
}
