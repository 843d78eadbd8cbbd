//! Services are killed at random moments while they sync and deliver: every row is announced all the same, and once.
//!
//! A row may arrive more than once only with the same event, and no chunk before the one ahead of it was taken. The
//! moments come of a seed, which is printed.

mod endpoint;
mod random;
mod rows;

use std::process::Child;

use serde_json::Value;

use crate::cli::{Place, errors};
use crate::harness::{Database, eventually};
use crate::link_kills::database::{execute, query};
use crate::processes::{ANY_PORTS, Running, machine, text};
use endpoint::{Endpoint, Manner};
use random::Random;
use rows::Rows;

const SYNCS_MIN: usize = 200;
const KILLS_MIN: usize = 40;
/// So many rounds are plenty for both.
const ROUNDS_MAX: usize = 400;
/// A service lives for less than this, in milliseconds.
const LIFE_MAX: usize = 600;

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

    /// Services, and perhaps a command, work on what is new, and die.
    async fn round(&mut self, random: &mut Random) {
        execute(&self.database, LEASES_END, "").await;
        let services: Vec<Running> = (0..=usize::from(random.one_in(3))).map(|_| self.serve()).collect();
        let command = random.one_in(5).then(|| self.place.command("connection sync --all --json").spawn().unwrap());
        for service in services {
            tokio::time::sleep(random.millis(LIFE_MAX)).await;
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
        } else {
            execute(&self.database, LEASES_END, "").await;
        }
        let output = command.wait_with_output().unwrap();
        let synced: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        match synced {
            Some(synced) => self.syncs += synced.as_array().unwrap().len(),
            None => self.kills += 1,
        }
    }

    async fn count(&self, sql: &str) -> u64 {
        query(&self.database, sql).await[0][0].parse().unwrap()
    }

    /// Nobody dies any more: all is synced, and all is delivered.
    async fn come_to_rest(&mut self) {
        execute(&self.database, LEASES_END, "").await;
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

async fn services_are_killed(database: Database) {
    let seed = uuid::Uuid::new_v4().as_u64_pair().0;
    println!("seed {seed}");
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
        if random.one_in(2) {
            rows.change(&host.sandbox, &mut random, &host.endpoints[0]).await;
        }
        host.round(&mut random).await;
    }
    host.come_to_rest().await;

    let marks = host.count("SELECT COUNT(*) FROM row_marks").await;
    let begun = host.count("SELECT SUM(sync_fence) FROM connections").await;
    let (added, changed) = rows.counts();
    println!("{rounds} rounds, {} kills, {begun} syncs begun, {} ended", host.kills, host.syncs);
    println!("{added} rows added, {changed} of them changed");
    for endpoint in &host.endpoints {
        println!("{} requests, {} of them taken", endpoint.requests(), endpoint.taken().len());
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
