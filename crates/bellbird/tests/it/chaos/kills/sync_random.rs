//! Services are killed at random moments while they sync and deliver. Every row is still reported,
//! in one event.
//!
//! An event may be delivered more than once, and a chunk only after the endpoint has accepted the
//! previous one. A seed decides the moments. It is printed, and `BELLBIRD_TEST_SEED` repeats a run.
//! `BELLBIRD_TEST_PERCENT` makes a test kill more often.

use std::process::Child;
use std::time::Duration;

use bellbird_sandbox::{Fault, FaultKind};
use serde_json::Value;

use super::kill_factor;
use crate::support::checked_endpoint::{Behaviour, Endpoint};
use crate::support::deployment::{Deployment, EMAIL, Service};
use crate::support::harness::{also_on_postgres, eventually};
use crate::support::known_rows::Rows;
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
/// More than a machine needs that has time for the tests.
const KILLS_MANY: usize = 200;

/// How often to check a command that waits for leases of killed services.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A deployment whose services are killed.
struct Kills {
    deployment: Deployment,
    endpoints: [Endpoint; 2],
    syncs: usize,
    kills: usize,
}

impl Kills {
    /// A user with five connections at three providers, and two endpoints.
    async fn start(seed: u64) -> Self {
        let delays = format!("0{}", ",1".repeat(19));
        let settings = [
            ("SYNC__INTERVAL_SECONDS", "1"),
            ("WEBHOOKS__ALLOW_LOOPBACK", "true"),
            ("WEBHOOKS__CHUNK_ROWS", "3"),
            ("WEBHOOKS__ATTEMPT_DELAYS_SECONDS", &delays),
        ];
        let deployment = Deployment::start(&settings).await;
        deployment.add_user(EMAIL);
        let endpoints = [
            Endpoint::start(Behaviour::Reliable, seed).await,
            Endpoint::start(Behaviour::Flaky, seed).await,
        ];
        for endpoint in &endpoints {
            deployment.add_endpoint(EMAIL, endpoint);
        }
        deployment.import_at_all(EMAIL);
        Self {
            deployment,
            endpoints,
            syncs: 0,
            kills: 0,
        }
    }

    /// Services that the database serves at once.
    fn services_max(&self) -> usize {
        if self.deployment.is_on_postgres() {
            2
        } else {
            1
        }
    }

    fn kill(&mut self, service: Service) {
        self.kills += 1;
        self.syncs += service.kill().matches("connection synced").count();
    }

    /// Makes a random provider slow or faulty for a few calls.
    async fn inject_fault(&self, random: &mut Random) {
        let provider = random.one_of(&SPECS).name;
        let times = 1 + random.below(6) as u64;
        let fault = match random.below(4) {
            0 => Fault::status(503),
            1 => Fault::new(FaultKind::Cut),
            _ => Fault::delay_ms(20 + random.below(150) as u64),
        };
        let fault = fault.times(times);
        self.deployment.add_fault(provider, fault).await;
    }

    /// Starts one or two services, and perhaps a command that syncs, and kills the services. SQLite
    /// serves one at a time, so there the second starts after the first was killed.
    async fn round(&mut self, random: &mut Random) {
        self.expire_dead_leases().await;
        let count = 1 + usize::from(random.one_in(3));
        let mut services: Vec<Service> = (0..count.min(self.services_max()))
            .map(|_| self.deployment.serve())
            .collect();
        let command = random.one_in(5).then(|| {
            let workdir = &self.deployment.workdir;
            let mut command = workdir.command("connection sync --all --json");
            command.spawn().unwrap()
        });
        for _ in 0..count {
            let service = services.pop().unwrap_or_else(|| self.deployment.serve());
            let limit = if random.one_in(3) {
                SHORT_LIFE_MAX
            } else {
                LIFE_MAX
            };
            // On a machine so slow that services have died often enough and synced too little, they
            // live longer.
            let limit = limit * (1 + self.kills / KILLS_MANY);
            tokio::time::sleep(random.millis(limit)).await;
            self.kill(service);
            // The leases of a live service end too, as if it had been suspended for minutes.
            if random.one_in(2) {
                self.expire_leases().await;
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
            self.expire_leases().await;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let output = command.wait_with_output().unwrap();
        let synced: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        match synced {
            // If a sync failed, the reports of the others are in `synced`.
            Some(synced) => {
                let reports = synced.as_array().or(synced["synced"].as_array());
                self.syncs += reports.map_or(0, Vec::len);
            }
            None => self.kills += 1,
        }
    }

    /// Ends the leases of killed services. PostgreSQL may run a last statement of a killed service
    /// late, and that could claim another lease. So this first waits until the service's sessions
    /// have ended.
    async fn expire_dead_leases(&self) {
        if self.deployment.is_on_postgres() {
            let sessions = "SELECT COUNT(*) FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = 'bellbird'";
            eventually(async || self.deployment.count(sessions).await == 0).await;
        }
        self.expire_leases().await;
    }

    /// Makes every sync due, too.
    async fn expire_leases(&self) {
        self.deployment.expire_leases().await;
        let due = "UPDATE jobs SET run_at = 0 WHERE kind = 'sync'";
        self.deployment.execute(due).await;
    }

    /// Without further kills, syncs all connections and delivers all events.
    async fn finish_all_work(&mut self) {
        for spec in &SPECS {
            self.deployment.clear_faults(spec.name).await;
        }
        self.expire_dead_leases().await;
        let services: Vec<Service> = (0..self.services_max())
            .map(|_| self.deployment.serve())
            .collect();
        // For all that services which lived for a moment have left.
        let timeout = Duration::from_secs(120);
        self.deployment.finish_all_work(timeout).await;
        for service in services {
            service.stop();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_is_announced_despite_crashes() {
    let seed = random::seed();
    let mut random = Random::new(seed);
    let mut kills = Kills::start(seed).await;
    let mut rows = Rows::new(&kills.deployment.database).await;
    let factor = usize::try_from(kill_factor()).unwrap();
    let mut rounds = 0;
    while kills.syncs < SYNCS_MIN * factor || kills.kills < KILLS_MIN * factor {
        rounds += 1;
        let counts = (kills.syncs, kills.kills);
        assert!(rounds <= ROUNDS_MAX * factor, "syncs and kills: {counts:?}");
        for _ in 0..=random.below(2) {
            rows.add(&kills.deployment.sandbox, &mut random).await;
        }
        for _ in 0..random.below(3) {
            rows.change(&kills.deployment.sandbox, &mut random, &kills.endpoints[0])
                .await;
        }
        if random.one_in(3) {
            kills.inject_fault(&mut random).await;
        }
        kills.round(&mut random).await;
    }
    kills.finish_all_work().await;

    let fingerprints = kills.deployment.fingerprints().await;
    let (killed, synced) = (kills.kills, kills.syncs);
    print_line(&format!(
        "{rounds} rounds, {killed} kills, {synced} syncs finished"
    ));
    let (added, changed) = rows.counts();
    print_line(&format!(
        "{added} rows added, {changed} of them changed, {fingerprints} rows in all"
    ));
    for endpoint in &kills.endpoints {
        print_line(&endpoint.counts().to_string());
        endpoint.assert_in_order();
        endpoint.assert_complete();
        rows.assert_announced(endpoint, Some(fingerprints));
    }
    kills.deployment.stop();
}

also_on_postgres! { every_row_is_announced_despite_crashes }
