//! The services, the simulated providers and the users of a soak.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aho_corasick::AhoCorasick;
use reqwest::Method;
use serde_json::{Value, json};

use crate::privacy::files;
use crate::support::checked_endpoint::{Behaviour, Endpoint};
use crate::support::database::tables_containing;
use crate::support::deployment::{Deployment, EMAIL};
use crate::support::harness::Database;
use crate::support::process::{Addresses, RunningCommand, errors};
use crate::support::provider_spec::SPECS;
use crate::support::servers::{Postgres, Valkey};

/// Has five connections, which stay, and two endpoints.
pub(super) const READER: &str = EMAIL;
/// Links and removes connections.
pub(super) const LINKER: &str = "linker@example.com";

/// Longer than the leases of a service that was killed.
pub(super) const LEASES_END: Duration = Duration::from_secs(240);

pub(super) struct DisturbedDeployment {
    deployment: Deployment,
    /// The service at `addresses[0]` is killed and disturbed. On SQLite there is no other.
    pub(super) addresses: Vec<Addresses>,
    services: Mutex<Vec<Option<RunningCommand>>>,
    /// One thing at a time happens to the first service, and to what the services share.
    trouble: tokio::sync::Mutex<()>,
    /// None on SQLite.
    shared: Option<tokio::sync::Mutex<SharedServers>>,
    pub(super) endpoints: [Endpoint; 2],
    pub(super) linker_endpoint: Endpoint,
    pub(super) key: String,
    pub(super) linker_key: String,
    /// Every secret that the users and the operator were shown.
    pub(super) secrets: Mutex<Vec<String>>,
    pub(super) kills: AtomicUsize,
}

/// What several services share.
struct SharedServers {
    postgres: Postgres,
    valkey: Valkey,
}

impl Deref for DisturbedDeployment {
    type Target = Deployment;

    fn deref(&self) -> &Deployment {
        &self.deployment
    }
}

impl DisturbedDeployment {
    pub(super) async fn start(database: Database, seed: u64) -> Self {
        let (services, shared) = match database {
            Database::Sqlite => (1, None),
            Database::Postgres => (
                3,
                Some(SharedServers {
                    postgres: Postgres::start(),
                    valkey: Valkey::start(),
                }),
            ),
        };
        // An attempt may have to wait for a sync, and that for a service that stands still.
        let delays = format!("0{}{}", ",1".repeat(9), ",10".repeat(10));
        let settings = [
            ("SYNC__INTERVAL_SECONDS", "3"),
            ("WEBHOOKS__ALLOW_LOOPBACK", "true"),
            ("WEBHOOKS__CHUNK_ROWS", "10"),
            ("WEBHOOKS__ATTEMPT_DELAYS_SECONDS", &delays),
            ("LIMITS__METADATA_PER_MINUTE", "0"),
            ("LIMITS__BALANCES_PER_MINUTE", "0"),
            ("LIMITS__LIVE_PER_MINUTE", "1000000"),
            ("LIMITS__LIVE_IN_FLIGHT", "4"),
            ("LIMITS__PROVIDER_CALLS_PER_MINUTE", "0"),
            ("LIMITS__FAILED_AUTH_PER_MINUTE", "0"),
        ];
        let mut deployment = Deployment::start_on(Database::Sqlite, 50, &settings).await;
        if let Some(SharedServers { postgres, valkey }) = &shared {
            deployment.database.clone_from(&postgres.url);
            deployment.set("DATABASE__URL", &postgres.url);
            deployment.set("REDIS__URL", &valkey.url);
            deployment.workdir.json("migrate");
        }
        let addresses: Vec<Addresses> = (0..services).map(|_| Addresses::new()).collect();
        // Commands print link URLs of the service that is not killed, if there is one.
        let console = &addresses.last().unwrap().console;
        deployment.set("CONSOLE__PUBLIC_URL", &format!("http://{console}"));
        let endpoints = [
            Endpoint::start(Behaviour::Reliable, seed).await,
            Endpoint::start(Behaviour::Flaky, seed).await,
        ];
        let linker_endpoint = Endpoint::start(Behaviour::Flaky, seed.wrapping_add(1)).await;
        if services == 1 {
            // Events are signed by the machine's clock, which jumps. On PostgreSQL, they are signed
            // by the database's.
            for endpoint in endpoints.iter().chain([&linker_endpoint]) {
                endpoint.take_any_time();
            }
        }
        let (key, linker_key) = (deployment.add_user(READER), deployment.add_user(LINKER));
        let mut secrets = vec![key.clone(), linker_key.clone()];
        for (user, endpoint) in [
            (READER, &endpoints[0]),
            (READER, &endpoints[1]),
            (LINKER, &linker_endpoint),
        ] {
            secrets.push(deployment.add_endpoint(user, endpoint));
        }
        deployment.import_at_all(READER);
        for spec in &SPECS {
            let (name, post) = (spec.name, Method::POST);
            let url = json!({"url": format!("http://{console}/webhooks/{name}")});
            deployment.control(name, post, "webhooks", url).await;
        }
        secrets.extend(secrets_of(&deployment.sandbox.json()));
        let deployment = Self {
            deployment,
            addresses,
            services: Mutex::default(),
            trouble: tokio::sync::Mutex::default(),
            shared: shared.map(tokio::sync::Mutex::new),
            endpoints,
            linker_endpoint,
            key,
            linker_key,
            secrets: Mutex::new(secrets),
            kills: AtomicUsize::new(0),
        };
        deployment.set_clock(0);
        let services = (0..services)
            .map(|index| Some(deployment.serve(index)))
            .collect();
        *deployment.services.lock().unwrap() = services;
        deployment
    }

    fn serve(&self, index: usize) -> RunningCommand {
        let line = format!("serve --json {}", self.addresses[index].options());
        if index > 0 {
            return RunningCommand::start_with_log(&self.workdir, &line, &self.log(index));
        }
        // Debian's libfaketime gives a process a system clock that a file sets. A write beyond the
        // limit of a file's size is an error, and no signal.
        let library = format!(
            "/usr/lib/{}-linux-gnu/faketime/libfaketimeMT.so.1",
            std::env::consts::ARCH
        );
        assert!(
            Path::new(&library).exists(),
            "run `scripts/setup soak`: {library} is missing"
        );
        let clock = self.clock_file();
        let env = [
            "env".to_owned(),
            "--ignore-signal=XFSZ".to_owned(),
            format!("LD_PRELOAD={library}"),
            format!("FAKETIME_TIMESTAMP_FILE={}", clock.display()),
            "FAKETIME_CACHE_DURATION=1".to_owned(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
            "NO_FAKE_STAT=1".to_owned(),
        ];
        RunningCommand::start_by(&env, &self.workdir, &line, &self.log(0))
    }

    fn clock_file(&self) -> PathBuf {
        self.log_file("clock-0")
    }

    /// How far the system clock of the first service is ahead, in seconds.
    fn set_clock(&self, ahead: i64) {
        // The service reads the file at any time.
        let new = self.workdir.folder.path().join("clock-0.new");
        std::fs::write(&new, format!("{ahead:+}")).unwrap();
        std::fs::rename(new, self.clock_file()).unwrap();
    }

    /// The system clock of the first service jumps, and jumps back.
    pub(super) async fn jump(&self, seconds: i64, time: Duration) {
        let _alone = self.trouble.lock().await;
        self.set_clock(seconds);
        tokio::time::sleep(time).await;
        self.set_clock(0);
    }

    /// The first service stands still.
    pub(super) async fn pause(&self, time: Duration) {
        let _alone = self.trouble.lock().await;
        self.at_first("kill -STOP");
        tokio::time::sleep(time).await;
        self.at_first("kill -CONT");
    }

    /// The first service can write to no file, as if the disk were full.
    pub(super) async fn fill_disk(&self, time: Duration) {
        let _alone = self.trouble.lock().await;
        self.at_first("prlimit --fsize=0:unlimited --pid");
        tokio::time::sleep(time).await;
        self.at_first("prlimit --fsize=unlimited --pid");
    }

    /// Valkey forgets everything, or stops for a while, or PostgreSQL ends all sessions and starts
    /// again.
    pub(super) async fn trouble_shared(
        &self,
        number: usize,
        time: Duration,
    ) -> Option<&'static str> {
        let mut shared = self.shared.as_ref()?.lock().await;
        Some(match number % 3 {
            0 => {
                shared.valkey.empty().await;
                "times Valkey was emptied"
            }
            1 => {
                shared.valkey.stop();
                tokio::time::sleep(time).await;
                shared.valkey.start_again();
                "times Valkey was away"
            }
            _ => {
                // A kill changes the database.
                let _alone = self.trouble.lock().await;
                tokio::task::block_in_place(|| shared.postgres.script("restart"));
                "restarts of PostgreSQL"
            }
        })
    }

    /// Runs a program with the process id of the first service.
    fn at_first(&self, line: &str) {
        let process = self.services.lock().unwrap()[0].as_ref().unwrap().id();
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        let done = command.args(words).arg(process.to_string()).status();
        assert!(done.unwrap().success(), "{line}");
    }

    fn log(&self, index: usize) -> PathBuf {
        self.log_file(&format!("service-{index}.log"))
    }

    /// Kills the first service and starts it again. Its leases end now rather than in minutes if
    /// `expire`.
    pub(super) async fn kill(&self, expire: bool) {
        let _alone = self.trouble.lock().await;
        let service = self.services.lock().unwrap()[0].take().unwrap();
        let (status, ..) = service.stop("-KILL");
        let log = std::fs::read_to_string(self.log(0)).unwrap();
        let last = log.lines().next_back();
        assert_eq!(status, None, "the service had ended before: {last:?}");
        self.kills.fetch_add(1, Ordering::Relaxed);
        if expire {
            self.expire_leases().await;
        }
        let service = self.serve(0);
        self.services.lock().unwrap()[0] = Some(service);
    }

    /// Of living services too, as if those had been suspended.
    async fn expire_leases(&self) {
        if self.is_on_postgres() {
            let of_jobs = "UPDATE jobs SET lease_until = 0 WHERE lease_until IS NOT NULL";
            self.execute(of_jobs).await;
        } else {
            self.deployment.expire_leases().await;
        }
    }

    /// The process that is measured: the last one.
    pub(super) fn measured(&self) -> (u32, String) {
        let services = self.services.lock().unwrap();
        (
            services.last().unwrap().as_ref().unwrap().id(),
            self.addresses.last().unwrap().ops.clone(),
        )
    }

    /// The faults end, and every endpoint responds.
    pub(super) async fn mend(&self) {
        for spec in &SPECS {
            self.clear_faults(spec.name).await;
        }
        for endpoint in self.endpoints.iter().chain([&self.linker_endpoint]) {
            endpoint.set_down(false);
        }
    }

    /// Runs a command, which may fail while a provider does. Returns its JSON.
    pub(super) async fn command(&self, line: &str) -> Result<Value, String> {
        let mut command = self.workdir.command(&format!("{line} --json"));
        let output = tokio::task::spawn_blocking(move || command.output().unwrap());
        let output = output.await.unwrap();
        if output.status.success() {
            Ok(serde_json::from_slice(&output.stdout).unwrap())
        } else {
            Err(errors(&output))
        }
    }

    /// Asserts that neither the database nor a file or log contains one of these texts.
    pub(super) async fn assert_not_at_rest(&self, texts: &[String]) {
        let tables = tables_containing(&self.database, texts).await;
        assert_eq!(tables, BTreeSet::new());
        let search = AhoCorasick::new(texts).unwrap();
        for (path, bytes) in files(self.workdir.folder.path()) {
            let found = search.find(&bytes);
            let found = found.map(|text| &texts[text.pattern().as_usize()]);
            assert_eq!(found, None, "{path}");
        }
    }

    /// Syncs all connections and delivers all events. Then stops the services.
    pub(super) async fn finish_all_work(&self) {
        self.mend().await;
        self.expire_leases().await;
        self.deployment.finish_all_work(LEASES_END).await;
        let services: Vec<_> = self.services.lock().unwrap().drain(..).collect();
        for service in services.into_iter().flatten() {
            assert_eq!(service.stop("-TERM").0, Some(0));
        }
    }
}

/// Texts of the sandbox's description that must not be stored or logged: tokens and secrets, not
/// ids.
fn secrets_of(described: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![described];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    let name = name.to_lowercase();
                    let mut words = ["secret", "token", "consumerkey"].iter();
                    let is_secret = words.any(|word| name.contains(word));
                    match value.as_str() {
                        Some(text) if is_secret => found.push(text.to_owned()),
                        _ => open.push(value),
                    }
                }
            }
            Value::Array(values) => open.extend(values),
            _ => {}
        }
    }
    assert!(found.len() > 3, "{found:?}");
    found
}
