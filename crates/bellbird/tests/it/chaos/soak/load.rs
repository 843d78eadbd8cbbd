//! The load: tasks that each repeat one thing until the end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellbird_sandbox::{Fault, FaultKind};
use reqwest::Url;
use serde_json::Value;
use tokio::sync::RwLock;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::deployment::{DisturbedDeployment, LEASES_END, LINKER, READER};
use super::measure::{Figures, measure};
use super::reads::{Known, get};
use crate::support::browser::{client, post};
use crate::support::harness::eventually_within;
use crate::support::known_rows::{DESCRIPTION, Rows};
use crate::support::process::text;
use crate::support::provider_spec::SPECS;
use crate::support::random::Random;

/// How often rows are added or changed, however long the soak is: all of them are read again by
/// each sync.
const CHANGES: u32 = 400;
const KILL_INTERVAL_MAX: Duration = Duration::from_secs(60);
/// How long a clock is wrong, a disk is full or a provider sends rubbish.
const DISTURBANCE_MAX: Duration = Duration::from_secs(60);
/// Longer than an instance needs to notice its clock.
const DISTURBANCE_MIN: Duration = Duration::from_secs(6);
const PAUSE_MAX: Duration = Duration::from_secs(300);
const HOUR: i64 = 3600;
/// Shorter than all attempts of a delivery together.
const DOWN_MAX_MILLIS: usize = 6_000;

/// How often something happened.
#[derive(Default)]
struct Counts(Mutex<BTreeMap<String, u64>>);

impl Counts {
    fn add(&self, name: impl Into<String>, number: usize) {
        *self.0.lock().unwrap().entry(name.into()).or_default() += u64::try_from(number).unwrap();
    }
}

struct Shared {
    deployment: DisturbedDeployment,
    known: Known,
    counts: Counts,
    /// Held by each step of a task, and alone while a process is measured.
    gate: RwLock<()>,
    stop: CancellationToken,
    kills_end: Instant,
    length: Duration,
    disturbances: AtomicUsize,
    shared_troubles: AtomicUsize,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Read,
    Change,
    FailProvider,
    LinkAndRemove,
    RevokeKey,
    StopEndpoint,
    Disturb,
    TroubleShared,
    Kill,
}

pub(super) struct Load {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

impl Load {
    pub(super) async fn start(
        deployment: DisturbedDeployment,
        length: Duration,
        seed: u64,
    ) -> Self {
        let rows = Rows::new(&deployment.database).await;
        let known = Known::read(&deployment.addresses[0].api, &deployment.key, rows).await;
        let is_alone = deployment.addresses.len() == 1;
        let shared = Arc::new(Shared {
            deployment,
            known,
            counts: Counts::default(),
            gate: RwLock::default(),
            stop: CancellationToken::new(),
            // A service that is alone lives on for the last third, so that it can be measured.
            kills_end: Instant::now() + if is_alone { length * 2 / 3 } else { length },
            length,
            disturbances: AtomicUsize::default(),
            shared_troubles: AtomicUsize::default(),
        });
        let second = Duration::from_secs(1);
        let steps = [
            (Step::Read, second / 16),
            (Step::Read, second / 16),
            (Step::Read, second / 16),
            (Step::Change, length / CHANGES),
            (Step::FailProvider, second * 2),
            (Step::LinkAndRemove, second * 3),
            (Step::RevokeKey, second * 2),
            (Step::StopEndpoint, second * 9),
            (Step::Disturb, length / 20),
            (Step::TroubleShared, length / 12),
            (Step::Kill, KILL_INTERVAL_MAX.min(length / 8)),
        ];
        let mut tasks = JoinSet::new();
        for ((step, pause), seed) in steps.into_iter().zip(seed..) {
            tasks.spawn(Arc::clone(&shared).repeat(step, pause, Random::new(seed)));
        }
        Self { shared, tasks }
    }

    /// Lets the load go on for this long. Panics at once where a task does.
    pub(super) async fn go_on(&mut self, time: Duration) {
        if let Ok(ended) = tokio::time::timeout(time, self.tasks.join_next()).await {
            panic!("a task has ended: {ended:?}");
        }
    }

    /// Measures while no task runs and nothing fails.
    pub(super) async fn measure_at_rest(&self, is_enough: impl Fn(&Figures) -> bool) -> Figures {
        let _alone = self.shared.gate.write().await;
        self.shared.deployment.mend().await;
        measure(&self.shared.deployment, is_enough).await
    }

    /// Ends the load, waits until all work is done, and checks everything. Returns what happened.
    pub(super) async fn stop_and_check(mut self) -> Vec<String> {
        self.shared.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        let Shared {
            deployment,
            known,
            counts,
            ..
        } = &*self.shared;
        deployment.mend().await;
        eventually_within(LEASES_END, async || self.shared.remove_all().await.is_ok()).await;
        let last = &deployment.addresses.last().unwrap().api;
        let rows = known.check_all(last, &deployment.key).await;
        deployment.finish_all_work().await;

        let fingerprints = deployment.fingerprints().await;
        let changed_rows = known.rows.lock().await;
        let mut lines = Vec::new();
        for endpoint in &deployment.endpoints {
            lines.push(endpoint.counts().to_string());
            endpoint.assert_in_order();
            endpoint.assert_complete();
            changed_rows.assert_announced(endpoint, Some(fingerprints));
        }
        // A removal ends the events of its connection.
        deployment.linker_endpoint.assert_in_order();
        let mut needles = deployment.secrets.lock().unwrap().clone();
        needles.push(DESCRIPTION.to_owned());
        deployment.assert_not_at_rest(&needles).await;
        let (added, changed) = changed_rows.counts();
        lines.push(format!(
            "{added} rows added, {changed} of them changed, {rows} rows in all"
        ));
        let kills = deployment.kills.load(Ordering::Relaxed);
        lines.push(format!("{kills} kills"));
        let counts = counts.0.lock().unwrap();
        lines.extend(counts.iter().map(|(name, count)| format!("{count} {name}")));
        lines
    }
}

impl Shared {
    /// Repeats a step until the load stops, with a pause before each.
    async fn repeat(self: Arc<Self>, step: Step, pause: Duration, mut random: Random) {
        while self
            .stop
            .run_until_cancelled(tokio::time::sleep(pause))
            .await
            .is_some()
        {
            let _running = self.gate.read().await;
            match step {
                Step::Read => self.read(&mut random).await,
                Step::Change => self.change(&mut random).await,
                Step::FailProvider => self.fail_provider(&mut random).await,
                Step::LinkAndRemove => self.link_and_remove(&mut random).await,
                Step::RevokeKey => self.revoke_key().await,
                Step::StopEndpoint => self.stop_endpoint(&mut random).await,
                Step::Disturb => self.disturb(&mut random).await,
                Step::TroubleShared => self.trouble_shared().await,
                Step::Kill if Instant::now() < self.kills_end => {
                    self.deployment.kill(random.one_in(2)).await;
                }
                Step::Kill => {}
            }
        }
    }

    /// A GET at a random service. The first service may be dead, and a provider may fail.
    async fn get(&self, key: &str, path: &str, random: &mut Random) -> Option<(u16, Value)> {
        let index = random.below(self.deployment.addresses.len());
        match get(&self.deployment.addresses[index].api, key, path).await {
            Ok((status, body)) => {
                self.counts.add(format!("answers {status}"), 1);
                let is_expected = matches!(status, 200 | 401 | 404 | 429 | 503);
                assert!(is_expected, "{path}: {status} {body}");
                Some((status, body))
            }
            Err(error) => {
                assert_eq!(index, 0, "{path} at the service that lives on: {error}");
                self.counts.add("requests to a dead service", 1);
                None
            }
        }
    }

    async fn read(&self, random: &mut Random) {
        let (connection, kind) = random.one_of(&self.known.connections);
        let account = random.one_of(&self.known.accounts);
        let path = match random.below(8) {
            0 => "/v1/connections".to_owned(),
            1 => "/v1/accounts?limit=200".to_owned(),
            2 => format!("/v1/balances?accountIds={}", text(account, "id")),
            3 if *kind == "trades" => format!("/v1/holdings?connectionId={connection}"),
            _ => {
                let offset = random.below(8) * 25;
                format!(
                    "/v1/{kind}?connectionId={connection}&from=2000-01-01&limit=25&offset={offset}"
                )
            }
        };
        let Some((status, body)) = self.get(&self.deployment.key, &path, random).await else {
            return;
        };
        assert!(matches!(status, 200 | 429 | 503), "{path}: {status} {body}");
        if status == 200 && (path.contains("/transactions") || path.contains("/trades")) {
            let rows = self.known.check_page(&body).await;
            self.counts.add("rows read and compared", rows);
        }
    }

    async fn change(&self, random: &mut Random) {
        let mut rows = self.known.rows.lock().await;
        let (sandbox, endpoint) = (&self.deployment.sandbox, &self.deployment.endpoints[0]);
        if random.one_in(2) {
            rows.add(sandbox, random).await;
        } else {
            rows.change(sandbox, random, endpoint).await;
        }
    }

    async fn fail_provider(&self, random: &mut Random) {
        let provider = random.one_of(&SPECS).name;
        let times = 1 + random.below(6) as u64;
        let fault = match random.below(6) {
            0 => Fault::status(503).times(times),
            1 => Fault::status(429).retry_after(1).times(times),
            2 => Fault::new(FaultKind::Cut).times(times),
            3 => Fault::new(FaultKind::Malformed).times(1),
            4 => Fault::new(FaultKind::Reset).times(times),
            _ => Fault::delay_ms(20 + random.below(2_000) as u64).times(times),
        };
        self.deployment.add_fault(provider, fault).await;
    }

    /// A provider sends rubbish, or the first service has a full disk, a wrong clock or a long
    /// pause: each in turn.
    async fn disturb(&self, random: &mut Random) {
        let time = (self.length / 20).clamp(DISTURBANCE_MIN, DISTURBANCE_MAX);
        let deployment = &self.deployment;
        let name = match self.disturbances.fetch_add(1, Ordering::Relaxed) % 5 {
            0 => {
                let provider = random.one_of(&SPECS).name;
                let kind = if random.one_in(2) {
                    FaultKind::Malformed
                } else {
                    FaultKind::ContentType
                };
                deployment.add_fault(provider, Fault::new(kind)).await;
                tokio::time::sleep(time).await;
                deployment.clear_faults(provider).await;
                "times a provider sent rubbish"
            }
            1 => {
                deployment.jump(HOUR, time).await;
                "jumps of a clock ahead and back"
            }
            2 => {
                deployment.fill_disk(time).await;
                "full disks"
            }
            3 => {
                deployment.jump(-HOUR, time).await;
                "jumps of a clock back and ahead"
            }
            _ => {
                deployment.pause((self.length / 12).min(PAUSE_MAX)).await;
                "pauses"
            }
        };
        self.counts.add(name, 1);
    }

    async fn trouble_shared(&self) {
        let number = self.shared_troubles.fetch_add(1, Ordering::Relaxed);
        let trouble = self.deployment.trouble_shared(number, self.length / 20);
        if let Some(name) = trouble.await {
            self.counts.add(name, 1);
        }
    }

    /// An endpoint does not respond for some seconds.
    async fn stop_endpoint(&self, random: &mut Random) {
        let endpoint = random.one_of(&self.deployment.endpoints);
        endpoint.set_down(true);
        tokio::time::sleep(random.millis(DOWN_MAX_MILLIS)).await;
        endpoint.set_down(false);
    }

    /// While PostgreSQL restarts, requests get 503.
    fn assert_status(&self, status: u16, expected: u16, body: &Value) {
        let may_be_away = self.deployment.addresses.len() > 1;
        let is_away = may_be_away && status == 503;
        assert!(
            status == expected || is_away,
            "{status} for {expected}: {body}"
        );
    }

    /// Another key of the reader, which works until it is revoked and never again.
    async fn revoke_key(&self) {
        let deployment = &self.deployment;
        let create = format!("key create --user {READER}");
        let Ok(created) = deployment.command(&create).await else {
            return;
        };
        let key = text(&created, "key");
        deployment.secrets.lock().unwrap().push(key.to_owned());
        let api = &deployment.addresses.last().unwrap().api;
        if let Ok((status, body)) = get(api, key, "/v1/accounts").await {
            self.assert_status(status, 200, &body);
        }
        let revoke = format!("key revoke {}", text(&created, "id"));
        while deployment.command(&revoke).await.is_err() {
            self.counts.add("commands repeated", 1);
        }
        for address in &deployment.addresses {
            if let Ok((status, body)) = get(&address.api, key, "/v1/accounts").await {
                self.assert_status(status, 401, &body);
            }
        }
        self.counts.add("keys revoked", 1);
    }

    /// Links at a random provider, reads, and removes. Any step may fail with the provider or with
    /// the service.
    async fn link_and_remove(&self, random: &mut Random) {
        let deployment = &self.deployment;
        let provider = random.one_of(&SPECS).name;
        if self.link(provider, random).await.is_some() {
            self.counts.add(format!("links at {provider}"), 1);
            let key = &deployment.linker_key;
            let _ = self.get(key, "/v1/accounts", random).await;
            let sync = format!("connection sync --user {LINKER}");
            let _ = deployment.command(&sync).await;
        }
        let ids: Vec<String> = self.connections_of_linker().await.unwrap_or_default();
        if self.remove_all().await.is_err() {
            return;
        }
        for id in ids {
            let path = format!("/v1/transactions?connectionId={id}");
            let mut found = self.get(&deployment.linker_key, &path, random).await;
            if matches!(found, Some((429, _))) {
                // A clock that was set back empties the bucket, which has a call again 60
                // microseconds later.
                found = self.get(&deployment.linker_key, &path, random).await;
            }
            if let Some((status, body)) = found {
                self.assert_status(status, 404, &body);
            }
            self.counts.add("connections removed", 1);
        }
    }

    async fn link(&self, provider: &str, random: &mut Random) -> Option<()> {
        let create = format!("connection link --user {LINKER} --provider {provider}");
        let created = self.deployment.command(&create).await.ok()?;
        let url = text(&created, "url");
        let start = post(url, &format!("provider={provider}"));
        let started = start.send().await.ok()?;
        let cookie = started.headers().get("set-cookie")?.to_str().ok()?;
        let cookie = cookie.split(';').next()?.to_owned();
        let (token, value) = (url.rsplit('/').next()?, cookie.split('=').nth(1)?);
        let shown = [token.to_owned(), value.to_owned()];
        self.deployment.secrets.lock().unwrap().extend(shown);
        let mut page = location(&started)?;
        page.query_pairs_mut().append_pair("sandbox_auto", "accept");
        let callback = location(&client().get(page).send().await.ok()?)?;
        let ended = if random.one_in(3) {
            // The bank's app returns in another browser, where the user is asked first.
            let asked = client().get(callback.clone()).send().await.ok()?;
            let status = asked.status().as_u16();
            assert!(matches!(status, 200 | 409 | 503), "{status}");
            post(callback.as_str(), "answer=yes").send().await.ok()?
        } else {
            let request = client().get(callback).header("cookie", cookie);
            request.send().await.ok()?
        };
        (ended.status() == 200).then_some(())
    }

    async fn connections_of_linker(&self) -> Result<Vec<String>, String> {
        let list = format!("connection list --user {LINKER}");
        let all = self.deployment.command(&list).await?;
        let ids = all.as_array().unwrap().iter().map(|one| text(one, "id"));
        Ok(ids.map(str::to_owned).collect())
    }

    async fn remove_all(&self) -> Result<(), String> {
        for id in self.connections_of_linker().await? {
            let remove = format!("connection remove {id}");
            self.deployment.command(&remove).await?;
        }
        Ok(())
    }
}

/// Where a response leads, unless the service or the provider fails.
fn location(answer: &reqwest::Response) -> Option<Url> {
    answer
        .headers()
        .get("location")?
        .to_str()
        .ok()?
        .parse()
        .ok()
}
