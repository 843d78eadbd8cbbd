//! Limits, cursors and cached responses are those of all instances together, and while Valkey is
//! away nothing but the exactness of limits is lost.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellbird_sandbox::Fault;
use reqwest::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::client::misspelled;
use crate::support::deployment::{Deployment, EMAIL, Service};
use crate::support::harness::{Database, eventually, eventually_within, simulated_providers};
use crate::support::process::{get, get_list, text};
use crate::support::servers::Valkey;

const INSTANCES: usize = 3;
/// The rows of a window.
const LIMIT: usize = 200;
/// The calls of a full bucket.
const BUCKET: usize = 60;
/// Reads between two replacements of an instance.
const READS_MIN: usize = 20;

/// Three instances, of which each has written its log to a file.
struct Instances {
    deployment: Deployment,
    valkey: Valkey,
    services: Vec<Service>,
    key: String,
    client: reqwest::Client,
}

impl Deref for Instances {
    type Target = Deployment;

    fn deref(&self) -> &Deployment {
        &self.deployment
    }
}

impl Instances {
    async fn start() -> Self {
        Self::start_with(50, &[]).await
    }

    async fn start_with(rows: u32, settings: &[(&str, &str)]) -> Self {
        let mut deployment = Deployment::start_on(Database::Postgres, rows, settings).await;
        let valkey = Valkey::start();
        deployment.set("REDIS__URL", &valkey.url);
        let key = deployment.add_user(EMAIL);
        for provider in simulated_providers() {
            deployment.import(EMAIL, provider, 1);
        }
        let services = (0..INSTANCES)
            .map(|number| deployment.serve_with_log(&format!("log-{number}")))
            .collect();
        Self {
            deployment,
            valkey,
            services,
            key,
            client: reqwest::Client::new(),
        }
    }

    fn url(&self, instance: usize, path: &str) -> String {
        format!("{}{path}", self.services[instance % INSTANCES].api)
    }

    async fn get(&self, instance: usize, path: &str) -> reqwest::Response {
        let request = self.client.get(self.url(instance, path));
        request.bearer_auth(&self.key).send().await.unwrap()
    }

    async fn status(&self, instance: usize, path: &str) -> u16 {
        self.get(instance, path).await.status().as_u16()
    }

    async fn json(&self, path: &str) -> Value {
        self.json_of(0, path).await.0
    }

    /// The response of an instance, and its header `X-Cache`.
    async fn json_of(&self, instance: usize, path: &str) -> (Value, String) {
        let response = self.get(instance, path).await;
        assert_eq!(response.status(), 200, "{path}");
        let cache = response.headers().get("x-cache");
        let cache = cache.map_or("", |cache| cache.to_str().unwrap()).to_owned();
        (response.json().await.unwrap(), cache)
    }

    /// The path of the list of the connection of a provider.
    async fn list(&self, path: &str, provider: &str) -> String {
        let connections = get_list(&self.url(0, "/v1/connections"), &self.key).await;
        let mut connections = connections.iter();
        let connection = connections.find(|connection| connection["provider"] == provider);
        format!("{path}?connectionId={}", text(connection.unwrap(), "id"))
    }

    /// Reads a list in windows, each from the next of so many instances. Returns the rows.
    async fn walk(&self, instances: usize, list: &str) -> Vec<Value> {
        let (mut rows, mut turn) = (Vec::new(), 0);
        loop {
            let window = format!("{list}&limit={LIMIT}&offset={}", rows.len());
            let (body, _) = self.json_of(turn % instances, &window).await;
            rows.extend_from_slice(body["data"].as_array().unwrap());
            turn += 1;
            if body["pagination"]["hasMore"] == false {
                assert_eq!(body["pagination"]["total"], rows.len());
                return rows;
            }
        }
    }

    /// Counts the calls of a provider since the last time.
    async fn new_calls(&self, provider: &str) -> u64 {
        let calls = self.calls(provider, |_, _| true).await;
        self.reset_calls(provider).await;
        calls
    }

    /// Reads a list in other windows, each from the next instance, until one is refused, as it is
    /// by all then. Returns how many calls of the provider that took.
    async fn calls_until_refused(&self, list: &str, provider: &str) -> u64 {
        const WINDOWS: usize = 250;
        self.new_calls(provider).await;
        let mut windows = 1..=WINDOWS;
        let refused = loop {
            let limit = windows.next().expect("no window was refused");
            match self.status(limit, &format!("{list}&limit={limit}")).await {
                200 => {}
                status => break status,
            }
        };
        assert_eq!(refused, 429);
        let calls = self.new_calls(provider).await;
        for instance in 0..INSTANCES {
            let limit = WINDOWS + 1;
            let window = format!("{list}&limit={limit}&offset={instance}");
            assert_eq!(self.status(instance, &window).await, 429);
        }
        calls
    }

    /// All that Valkey holds, as text.
    async fn dump(&self) -> String {
        let client = redis::Client::open(self.valkey.url.as_str()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let keys: Vec<Vec<u8>> = redis::cmd("KEYS")
            .arg("*")
            .query_async(&mut connection)
            .await
            .unwrap();
        let mut all = String::new();
        for key in keys {
            all += &String::from_utf8_lossy(&key);
            let mut read = redis::cmd("GET");
            if let Ok(value) = read.arg(&key).query_async::<Vec<u8>>(&mut connection).await {
                all += &String::from_utf8_lossy(&value);
            } else {
                let mut read = redis::cmd("ZRANGE");
                let members: Vec<String> = read
                    .arg(&key)
                    .arg(0)
                    .arg(-1)
                    .query_async(&mut connection)
                    .await
                    .unwrap();
                all += &members.concat();
            }
            all.push('\n');
        }
        all
    }

    fn logs(&self) -> Vec<String> {
        (0..INSTANCES)
            .map(|number| std::fs::read_to_string(self.log_file(&format!("log-{number}"))).unwrap())
            .collect()
    }

    /// How many outages of Valkey each instance has logged, and how many ends of them.
    fn outages(&self) -> Vec<(usize, usize)> {
        let counts = |log: &String| {
            let count = |words: &str| log.matches(words).count();
            (
                count("shared store unavailable"),
                count("shared store available again"),
            )
        };
        self.logs().iter().map(counts).collect()
    }

    /// Sends requests to the instances in turn, and counts those that each status got.
    async fn send(&self, requests: usize, path: &str) -> (usize, usize) {
        let (mut allowed, mut refused) = (0, 0);
        for from in (0..requests).step_by(30) {
            let calls = (from..requests.min(from + 30)).map(|number| self.status(number, path));
            for status in futures_util::future::join_all(calls).await {
                match status {
                    200 => allowed += 1,
                    429 => refused += 1,
                    other => panic!("{other}"),
                }
            }
        }
        (allowed, refused)
    }

    fn stop(self) {
        for service in self.services {
            service.stop();
        }
        self.deployment.stop();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_limited_by_all_instances_together() {
    let mut instances = Instances::start().await;
    bad_keys_lock_no_other_key_out(&instances).await;
    live_requests_of_a_key_are_counted(&instances).await;
    // A key whose bucket is full.
    let create = "key create --user me@example.com --name unused";
    instances.key = instances.workdir.field(create, "key");
    limit_is_exact(&instances).await;
    instances.stop();
}

/// An app calls for all of its users from one address, and one of their keys was revoked.
async fn bad_keys_lock_no_other_key_out(instances: &Instances) {
    let workdir = &instances.workdir;
    let made = workdir.json("key create --user me@example.com --name revoked");
    workdir.json(&format!("key revoke {}", text(&made, "id")));
    let revoked = text(&made, "key");
    let misspelled = misspelled(revoked);
    let path = "/v1/connections";
    for number in 0..100 {
        let bad = if number % 2 == 0 {
            revoked
        } else {
            &misspelled
        };
        let (status, _) = get(&instances.url(number, path), Some(bad)).await;
        assert_eq!(status, 401, "{number}");
    }
    // No instance has seen this key.
    for instance in 0..INSTANCES {
        assert_eq!(instances.status(instance, path).await, 200, "{instance}");
    }
}

async fn live_requests_of_a_key_are_counted(instances: &Instances) {
    let path = instances.list("/v1/transactions", "akahu").await;
    // All come before the first one ends, also where an instance stands still for a moment.
    let slow = Fault::delay_ms(3_000);
    instances.add_fault("akahu", slow).await;
    // Equal requests to one instance are one flight, but each holds a permit.
    let calls = (0..9).map(|number| instances.status(number, &path));
    let mut statuses = futures_util::future::join_all(calls).await;
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 200, 200, 429, 429, 429, 429, 429]);
    instances.clear_faults("akahu").await;
    // Given back at the end of each response.
    eventually(async || instances.status(1, &path).await == 200).await;
}

/// The calls that a bucket has got back at most: one a second.
fn refilled_since(began: Instant) -> usize {
    usize::try_from(began.elapsed().as_secs()).unwrap() + 1
}

async fn limit_is_exact(instances: &Instances) {
    let began = Instant::now();
    let (allowed, refused) = instances.send(10_000, "/v1/connections").await;
    assert_eq!(allowed + refused, 10_000);
    let refilled = refilled_since(began);
    let is_exact = (BUCKET..=BUCKET + refilled).contains(&allowed);
    assert!(is_exact, "{allowed}, of which {refilled} came back");
    // A revoked key is rejected by all of them at once.
    let revoke = "key revoke unused --user me@example.com";
    instances.workdir.json(revoke);
    for instance in 0..INSTANCES {
        assert_eq!(instances.status(instance, "/v1/connections").await, 401);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_go_on_without_valkey() {
    let mut instances = Instances::start().await;
    let (allowed, _) = instances.send(30, "/v1/connections").await;
    assert_eq!(allowed, 30);
    instances.valkey.stop();
    // Each instance goes on from what it knows, so at most each of them gives what was left.
    let began = Instant::now();
    let (allowed, _) = instances.send(600, "/v1/connections").await;
    let most = INSTANCES * (BUCKET + refilled_since(began));
    assert!((30..=most).contains(&allowed), "{allowed}");
    // Each outage is logged once, and its end: on a busy machine, the server was late before.
    let is_away = |(outages, ends): &(usize, usize)| *outages == ends + 1;
    eventually(async || instances.outages().iter().all(is_away)).await;
    instances.valkey.start_again();
    let is_back = |(outages, ends): &(usize, usize)| outages == ends;
    let are_back = async || instances.outages().iter().all(is_back);
    eventually_within(Duration::from_secs(60), are_back).await;
    // What the instances know corrects the new server, which knows nothing.
    let began = Instant::now();
    let (allowed, _) = instances.send(300, "/v1/connections").await;
    assert!(allowed <= BUCKET + refilled_since(began), "{allowed}");
    instances.stop();
}

/// SnapTrade limits the calls of an app: a user alone may begin requests up to 75 of 250 calls a
/// minute, and end them up to 88, at all instances together.
#[tokio::test(flavor = "multi_thread")]
async fn calls_to_a_provider_are_shared_over_all_instances() {
    let unlimited = [
        ("LIMITS__LIVE_PER_MINUTE", "0"),
        ("READS__DEADLINE_SECONDS", "5"),
    ];
    let instances = Instances::start_with(50, &unlimited).await;
    let list = instances.list("/v1/trades", "snaptrade").await;
    let (post, options) = (Method::POST, json!({"perMinute": 250}));
    instances
        .control("snaptrade", post, "options", options)
        .await;
    let calls = instances.calls_until_refused(&list, "snaptrade").await;
    assert!((60..=88).contains(&calls), "{calls}");
    assert!(instances.dump().await.contains("}:calls"));
    instances.stop();
}

/// A user's requests have one budget of calls to a provider, and as much on credit, at all
/// instances together.
#[tokio::test(flavor = "multi_thread")]
async fn budget_of_a_user_is_that_of_all_instances() {
    let settings = [
        ("LIMITS__LIVE_PER_MINUTE", "0"),
        ("LIMITS__PROVIDER_CALLS_PER_MINUTE", "10"),
        ("READS__DEADLINE_SECONDS", "3"),
    ];
    let instances = Instances::start_with(50, &settings).await;
    let list = instances.list("/v1/transactions", "akahu").await;
    let calls = instances.calls_until_refused(&list, "akahu").await;
    assert!((5..=25).contains(&calls), "{calls}");
    assert!(instances.dump().await.contains("}:budget"));
    instances.stop();
}

/// A client behind a balancer gets each window from another instance.
#[tokio::test(flavor = "multi_thread")]
async fn walk_goes_on_at_any_instance() {
    let unlimited = [
        ("LIMITS__LIVE_PER_MINUTE", "0"),
        ("LIMITS__PROVIDER_CALLS_PER_MINUTE", "0"),
        ("CACHE__TRADES_SECONDS", "0"),
    ];
    let mut instances = Instances::start_with(5_000, &unlimited).await;
    for (path, provider) in [
        ("/v1/transactions", "fiskil"),
        ("/v1/transactions", "akahu"),
        ("/v1/trades", "snaptrade"),
    ] {
        let list = format!("{}&from=2000-01-01", instances.list(path, provider).await);
        instances.new_calls(provider).await;
        let alone = instances.walk(1, &list).await;
        let calls_alone = instances.new_calls(provider).await;
        assert!(alone.len() > 5 * LIMIT, "{provider}: {} rows", alone.len());
        let alternating = instances.walk(INSTANCES, &list).await;
        let calls = instances.new_calls(provider).await;
        let counts = [&alone, &alternating].map(Vec::len);
        assert!(alone == alternating, "{provider}: {counts:?} rows");
        let costs = format!("{provider}: {counts:?} rows, {calls_alone} and {calls} calls");
        println!("{costs}");
        assert!(calls <= calls_alone + calls_alone / 10, "{costs}");
    }
    // Without the server, each instance finds its own way. No row is lost, and none is there twice.
    let list = instances.list("/v1/transactions", "akahu").await;
    let list = format!("{list}&from=2000-01-01");
    let window = format!("{list}&limit={LIMIT}&offset=0");
    let first = instances.json(&window).await;
    instances.valkey.stop();
    let rows = instances.walk(INSTANCES, &list).await;
    assert_eq!(rows[..LIMIT], first["data"].as_array().unwrap()[..]);
    instances.stop();
}

/// The schema becomes that of a newer version while programs of this one run, start and stop.
#[tokio::test(flavor = "multi_thread")]
async fn replaced_instances_share_what_they_have_cached() {
    let unlimited = [
        ("LIMITS__METADATA_PER_MINUTE", "0"),
        ("LIMITS__LIVE_PER_MINUTE", "0"),
    ];
    let mut instances = Instances::start_with(50, &unlimited).await;
    let api = |service: &Service| service.api.clone();
    let urls: Arc<Mutex<Vec<String>>> =
        Arc::new(Mutex::new(instances.services.iter().map(api).collect()));
    let stop = CancellationToken::new();
    let (key, all, read) = (
        instances.key.clone(),
        Arc::clone(&urls),
        Arc::<AtomicUsize>::default(),
    );
    let reader = read_as_a_balancer(all, key, Arc::clone(&read), stop.clone());
    let reads = tokio::spawn(reader);
    let newer = "ALTER TABLE users ADD COLUMN nickname TEXT; INSERT INTO schema_migrations
        (version, name, sha256, oldest_compatible, applied_at) VALUES (2, '0002_newer', '', 1, 0)";
    instances.execute(newer).await;
    for number in 0..2 * INSTANCES {
        let number = number % INSTANCES;
        let new = instances.serve_with_log(&format!("log-{number}"));
        let replaced = std::mem::replace(&mut instances.services[number], new);
        urls.lock().unwrap()[number] = api(&instances.services[number]);
        replaced.stop();
        let ready = format!("{}/ready", instances.services[number].ops);
        assert_eq!(get(&ready, None).await.0, 200);
        let enough = read.load(Ordering::Relaxed) + READS_MIN;
        eventually(async || reads.is_finished() || read.load(Ordering::Relaxed) > enough).await;
    }
    let create = "key create --user me@example.com --name newer";
    instances.workdir.json(create);
    stop.cancel();
    reads.await.unwrap();
    let read = read.load(Ordering::Relaxed);
    assert!(read > 100, "{read}");
    println!("{read} reads");

    // What an instance has cached is there for the others, and says nothing to who reads it in the
    // server.
    let accounts = get_list(&instances.url(0, "/v1/accounts"), &instances.key).await;
    let ids: Vec<&str> = accounts.iter().map(|account| text(account, "id")).collect();
    let balances = format!("/v1/balances?accountIds={}", ids.join(","));
    let trades = instances.list("/v1/trades", "snaptrade").await;
    let holdings = instances.list("/v1/holdings", "snaptrade").await;
    let transactions = instances.list("/v1/transactions", "akahu").await;
    let mut shown = vec![instances.json(&transactions).await];
    for path in [&balances, &trades, &holdings] {
        let (read, cache) = instances.json_of(0, path).await;
        assert_eq!(cache, "MISS", "{path}");
        for instance in 0..INSTANCES {
            let (cached, cache) = instances.json_of(instance, path).await;
            assert!(cached == read && cache == "HIT", "{path} of {instance}");
        }
        shown.push(read);
    }

    let dump = instances.dump().await;
    for kind in [
        "transaction-cursors",
        "trade-cursors",
        "balances",
        "holdings",
        "trades",
    ] {
        assert!(dump.contains(&format!("}}:{kind}")), "{kind}");
    }
    let mut secrets = vec![instances.key.clone()];
    secrets.extend(ids.iter().map(|id| (*id).to_owned()));
    shown.iter().for_each(|value| texts(value, &mut secrets));
    secrets.retain(|secret| secret.len() >= 5);
    assert!(secrets.len() > 200, "{}", secrets.len());
    for secret in secrets {
        assert!(!dump.contains(&secret), "{secret}");
    }

    // Another key of the same user gets nothing of it, and what was removed is rejected everywhere.
    let workdir = &instances.workdir;
    let other = workdir.json("key create --user me@example.com --name other");
    let request = instances.client.get(instances.url(1, &balances));
    let request = request.bearer_auth(text(&other, "key"));
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["x-cache"], "MISS");
    let connection = text(&accounts[0], "connectionId");
    workdir.json(&format!("connection remove {connection} --yes"));
    for instance in 0..INSTANCES {
        assert_eq!(instances.status(instance, &balances).await, 404);
    }
    instances.stop();
}

/// Reads until it stops, each time from the next instance, or the one behind it if that does not
/// listen any more. Counts how often.
async fn read_as_a_balancer(
    urls: Arc<Mutex<Vec<String>>>,
    key: String,
    read: Arc<AtomicUsize>,
    stop: CancellationToken,
) {
    let client = reqwest::Client::new();
    let mut turn = 0;
    while !stop.is_cancelled() {
        turn += 1;
        let url = urls.lock().unwrap()[turn % INSTANCES].clone();
        let request = client.get(format!("{url}/v1/connections"));
        let Ok(response) = request.bearer_auth(&key).send().await else {
            let now = urls.lock().unwrap()[turn % INSTANCES].clone();
            assert_ne!(now, url, "an instance that nobody stops");
            continue;
        };
        assert_eq!(response.status(), 200);
        let body: Value = response.json().await.unwrap();
        assert_eq!(body["data"].as_array().unwrap().len(), 3);
        read.fetch_add(1, Ordering::Relaxed);
    }
}

/// All texts in a response.
fn texts(value: &Value, all: &mut Vec<String>) {
    match value {
        Value::String(text) => all.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| texts(value, all)),
        Value::Object(members) => members.values().for_each(|value| texts(value, all)),
        _ => {}
    }
}
