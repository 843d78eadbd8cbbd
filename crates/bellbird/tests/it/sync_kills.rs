//! Services are killed at random moments while they sync and deliver: every row is announced all the same, and once.
//!
//! A row may arrive more than once only with the same event, and no chunk before the one ahead of it was taken. The
//! moments come of a seed, which is printed.

mod endpoint;
mod random;
mod rows;
mod steps;

use std::process::Child;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::{Place, errors};
use crate::harness::{Database, eventually};
use crate::link_kills::database::{execute, query};
use crate::processes::{ANY_PORTS, Running, machine, text};
use endpoint::{Endpoint, Manner};
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
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The time of every lease passes, which is minutes, and everything is due.
const LEASES_END: &str = "UPDATE connections SET sync_lease_until = 0 WHERE sync_lease_until IS NOT NULL;
    UPDATE connections SET look_lease_until = 0 WHERE look_lease_until IS NOT NULL;
    UPDATE webhook_endpoints SET lease_until = 0 WHERE lease_until IS NOT NULL;
    UPDATE connections SET sync_at = 0";

/// A host's machine whose services die.
struct Host {
    place: Place,
    sandbox: Running,
    database: String,
    endpoints: [Endpoint; 2],
    syncs: usize,
    kills: usize,
}

impl Host {
    /// Someone with five connections at three providers, and two endpoints.
    async fn start(database: Database, seed: u64) -> Self {
        let (mut place, sandbox, database) = machine(database).await;
        place.set("BELLBIRD_SYNC__INTERVAL_SECONDS", "1");
        place.set("BELLBIRD_WEBHOOKS__ALLOW_LOOPBACK", "true");
        place.set("BELLBIRD_WEBHOOKS__CHUNK_ROWS", "3");
        place.set("BELLBIRD_WEBHOOKS__ATTEMPT_DELAYS_SECONDS", &format!("0{}", ",1".repeat(19)));
        place.json("user add --email me@example.com --plan professional");
        let endpoints = [Endpoint::start(Manner::Good, seed).await, Endpoint::start(Manner::Moody, seed).await];
        for endpoint in &endpoints {
            let added = place.json(&format!("webhook add --user me@example.com --url {}", endpoint.url));
            endpoint.trust(text(&added, "secret"));
        }
        let described = sandbox.json();
        for (provider, count) in [("fiskil", 2), ("akahu", 2), ("snaptrade", 1)] {
            let grants = described["grants"].as_array().unwrap().iter();
            for grant in grants.filter(|grant| grant["provider"] == provider).take(count) {
                let line = "connection adopt --user me@example.com --grant - --json";
                let output = place.run_with_input(line, &grant.to_string());
                assert_eq!((output.status.code(), errors(&output).as_str()), (Some(0), ""));
            }
        }
        Self { place, sandbox, database, endpoints, syncs: 0, kills: 0 }
    }

    fn serve(&self) -> Running {
        Running::start(&self.place, &format!("serve --json {ANY_PORTS}"))
    }

    fn kill(&mut self, service: Running) {
        let (code, _, log) = service.stop("-KILL");
        assert_eq!(code, None, "{log}");
        self.kills += 1;
        self.syncs += log.matches("connection synced").count();
    }

    /// A provider is slow for a few calls, or does not answer them as it should.
    async fn disturb(&self, random: &mut Random) {
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
        self.bury_the_dead().await;
        let services: Vec<Running> = (0..=usize::from(random.one_in(3))).map(|_| self.serve()).collect();
        let command = random.one_in(5).then(|| self.place.command("connection sync --all --json").spawn().unwrap());
        for service in services {
            let limit = if random.one_in(3) { SHORT_LIFE_MAX } else { LIFE_MAX };
            tokio::time::sleep(random.millis(limit)).await;
            self.kill(service);
            // The leases of whoever lives end too, as if it had been stopped for so long.
            if random.one_in(2) {
                execute(&self.database, LEASES_END, "").await;
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
            execute(&self.database, LEASES_END, "").await;
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let output = command.wait_with_output().unwrap();
        let synced: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        match synced {
            Some(synced) => self.syncs += synced.as_array().unwrap().len(),
            None => self.kills += 1,
        }
    }

    /// Nobody lives: their leases end. What PostgreSQL was told by somebody who is dead it may carry out only now, and then
    /// there is another lease.
    async fn bury_the_dead(&self) {
        if !self.database.starts_with("sqlite:") {
            let sessions = "SELECT COUNT(*) FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = 'bellbird'";
            eventually(async || self.count(sessions).await == 0).await;
        }
        execute(&self.database, LEASES_END, "").await;
    }

    async fn count(&self, sql: &str) -> u64 {
        query(&self.database, sql).await[0][0].parse().unwrap()
    }

    /// Nobody dies any more: all is synced, and all is delivered.
    async fn come_to_rest(&mut self) {
        for provider in ["fiskil", "akahu", "snaptrade"] {
            control(&self.sandbox, provider, Method::DELETE, "faults", json!({})).await;
        }
        self.bury_the_dead().await;
        let services = [self.serve(), self.serve()];
        loop {
            let synced = self.place.json("connection sync --all");
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
fn say(line: &str) {
    println!("{line}");
}

async fn services_are_killed(database: Database) {
    let seed = uuid::Uuid::new_v4().as_u64_pair().0;
    say(&format!("seed {seed}"));
    let mut random = Random::new(seed);
    let mut host = Host::start(database, seed).await;
    let mut rows = Rows::new(&host.database).await;
    let mut rounds = 0;
    while host.syncs < SYNCS_MIN || host.kills < KILLS_MIN {
        rounds += 1;
        assert!(rounds <= ROUNDS_MAX, "{} syncs, {} kills", host.syncs, host.kills);
        for _ in 0..=random.below(2) {
            rows.add(&host.sandbox, &mut random).await;
        }
        for _ in 0..random.below(3) {
            rows.change(&host.sandbox, &mut random, &host.endpoints[0]).await;
        }
        if random.one_in(3) {
            host.disturb(&mut random).await;
        }
        host.round(&mut random).await;
    }
    host.come_to_rest().await;

    let marks = host.count("SELECT COUNT(*) FROM row_marks").await;
    let begun = host.count("SELECT SUM(sync_fence) FROM connections").await;
    say(&format!("{rounds} rounds, {} kills, {begun} syncs begun, {} ended", host.kills, host.syncs));
    let (added, changed) = rows.counts();
    say(&format!("{added} rows added, {changed} of them changed, {marks} rows in all"));
    for endpoint in &host.endpoints {
        let [requests, taken, events] = endpoint.counts();
        say(&format!("{requests} requests, {taken} of them taken, {events} events"));
        endpoint.assert_in_order();
        rows.assert_told(endpoint, marks);
    }
    assert_eq!(host.sandbox.stop("-TERM").0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_is_announced_whenever_services_are_killed_on_sqlite() {
    services_are_killed(Database::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_is_announced_whenever_services_are_killed_on_postgres() {
    services_are_killed(Database::Postgres).await;
}
