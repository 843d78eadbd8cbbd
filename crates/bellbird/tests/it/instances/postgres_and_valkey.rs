//! Limits hold for all instances together, and while Valkey is away nothing but their exactness is lost.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::harness::{Database, eventually, simulated_providers};
use crate::support::known_rows::control;
use crate::support::process::{ANY_PORTS, RunningCommand, Workdir, new_deployment, text};

const INSTANCES: usize = 3;

struct Valkey {
    port: u16,
    child: Option<Child>,
}

impl Valkey {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut valkey = Self { port, child: None };
        valkey.start_again();
        valkey
    }

    fn start_again(&mut self) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/test-valkey");
        self.child = Some(Command::new(script).arg(self.port.to_string()).stdin(Stdio::piped()).spawn().unwrap());
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            std::thread::yield_now();
        }
    }

    fn stop(&mut self) {
        let mut child = self.child.take().unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}

/// Three instances, of which each has written its log to a file.
struct Deployment {
    workdir: Workdir,
    sandbox: RunningCommand,
    valkey: Valkey,
    services: Vec<RunningCommand>,
    key: String,
    client: reqwest::Client,
}

impl Deployment {
    async fn start() -> Self {
        let (mut workdir, sandbox, _) = new_deployment(Database::Postgres).await;
        let valkey = Valkey::start();
        workdir.set("BELLBIRD_VALKEY__URL", &format!("redis://127.0.0.1:{}", valkey.port));
        workdir.json("user add --email me@example.com");
        let key = text(&workdir.json("key create --user me@example.com --name test"), "key").to_owned();
        for provider in simulated_providers() {
            let sandbox = sandbox.json();
            let credentials = sandbox["credentials"].as_array().unwrap().iter();
            for credentials in credentials.filter(|credentials| credentials["provider"] == provider).take(1) {
                let line = "connection import --user me@example.com --credentials - --json";
                assert!(workdir.run_with_input(line, &credentials.to_string()).status.success());
            }
        }
        let start = |number: usize| {
            let log = workdir.folder.path().join(format!("log-{number}"));
            RunningCommand::start_with_log(&workdir, &format!("serve --json {ANY_PORTS}"), &log)
        };
        let services = (0..INSTANCES).map(start).collect();
        Self { workdir, sandbox, valkey, services, key, client: reqwest::Client::new() }
    }

    fn url(&self, instance: usize, path: &str) -> String {
        format!("{}{path}", text(&self.services[instance % INSTANCES].json(), "apiUrl"))
    }

    async fn status(&self, instance: usize, path: &str) -> u16 {
        let request = self.client.get(self.url(instance, path)).bearer_auth(&self.key);
        request.send().await.unwrap().status().as_u16()
    }

    async fn json(&self, path: &str) -> Value {
        self.client.get(self.url(0, path)).bearer_auth(&self.key).send().await.unwrap().json().await.unwrap()
    }

    fn logs(&self) -> Vec<String> {
        let path = |number: usize| -> PathBuf { self.workdir.folder.path().join(format!("log-{number}")) };
        (0..INSTANCES).map(|number| std::fs::read_to_string(path(number)).unwrap()).collect()
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
            assert_eq!(service.stop("-TERM").0, Some(0));
        }
        assert_eq!(self.sandbox.stop("-TERM").0, Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_is_exact_over_all_instances() {
    let deployment = Deployment::start().await;
    let began = Instant::now();
    let (allowed, refused) = deployment.send(10_000, "/v1/connections").await;
    assert_eq!(allowed + refused, 10_000);
    // A full bucket of 60, and one call a second from then on.
    let refilled = usize::try_from(began.elapsed().as_secs()).unwrap();
    assert!((60..=60 + refilled + 1).contains(&allowed), "{allowed} after {refilled} s");
    // A revoked key is rejected by all of them at once.
    let id = deployment.workdir.json("key list --user me@example.com")[0]["id"].as_str().unwrap().to_owned();
    deployment.workdir.json(&format!("key revoke {id}"));
    for instance in 0..INSTANCES {
        assert_eq!(deployment.status(instance, "/v1/connections").await, 401);
    }
    deployment.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn live_requests_of_a_key_are_counted_over_all_instances() {
    let deployment = Deployment::start().await;
    let accounts = deployment.json("/v1/accounts").await;
    let account = accounts["data"].as_array().unwrap().iter().find(|account| account["provider"] == "akahu").unwrap();
    let path =
        format!("/v1/transactions?connectionId={}&accountId={}", text(account, "connectionId"), text(account, "id"));
    let slow = json!({"kind": "delay", "delayMs": 1_500});
    control(&deployment.sandbox, "akahu", Method::POST, "faults", slow).await;
    // Equal requests to one instance are one flight, but each holds a permit.
    let calls = (0..9).map(|number| deployment.status(number, &path));
    let statuses = futures_util::future::join_all(calls).await;
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 4, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 5, "{statuses:?}");
    control(&deployment.sandbox, "akahu", Method::DELETE, "faults", Value::Null).await;
    // Given back at the end of each response.
    eventually(async || deployment.status(1, &path).await == 200).await;
    deployment.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_go_on_without_valkey() {
    let mut deployment = Deployment::start().await;
    let (allowed, _) = deployment.send(30, "/v1/connections").await;
    assert_eq!(allowed, 30);
    deployment.valkey.stop();
    // Each instance goes on from what it knows, so at most each of them gives what was left.
    let (allowed, _) = deployment.send(600, "/v1/connections").await;
    assert!((30..=3 * 60).contains(&allowed), "{allowed}");
    let warned = |log: &str| log.matches("limit store unavailable").count();
    assert_eq!(deployment.logs().iter().map(|log| warned(log)).collect::<Vec<_>>(), [1; INSTANCES]);
    deployment.valkey.start_again();
    let recovered = |log: &str| log.contains("limit store available again");
    let until = Instant::now() + Duration::from_secs(60);
    while !deployment.logs().iter().all(|log| recovered(log)) {
        assert!(Instant::now() < until, "{:?}", deployment.logs());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // What the instances know corrects the new server, which knows nothing.
    let (allowed, _) = deployment.send(300, "/v1/connections").await;
    assert!(allowed <= 60, "{allowed}");
    deployment.stop();
}
