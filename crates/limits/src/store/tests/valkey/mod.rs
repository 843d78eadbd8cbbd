//! Tests with a real server.

mod calls;
mod cluster;
mod outages;
mod permits;
#[path = "../../../../../bellbird/tests/it/support/port.rs"]
mod port;
mod rate_limits;
mod values;

use std::io::Read as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use jiff::Timestamp;

use self::port::free_port;
use super::{NAME_KEY, patient, settings};
use crate::gcra::Limit;
use crate::store::{Generation, SharedStore};
use crate::{CallKind, InFlight, Permit, RateLimiter, admit};

const GENERATION: Generation = [1; 16];

/// A first call of a user who has used their share.
const UNSHARED: CallKind = CallKind::Request {
    begins: true,
    has_share: false,
};

struct Server {
    port: u16,
    child: Child,
    _stdin: ChildStdin,
}

impl Server {
    fn start() -> Self {
        Self::start_at(free_port())
    }

    fn start_at(port: u16) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/test-server");
        let mut command = Command::new(script);
        let mut child = command
            .args(["valkey", &port.to_string()])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if child.try_wait().unwrap().is_some() {
                let mut text = String::new();
                child
                    .stderr
                    .take()
                    .unwrap()
                    .read_to_string(&mut text)
                    .unwrap();
                panic!("{text}");
            }
            std::thread::yield_now();
        }
        let stdin = child.stdin.take().unwrap();
        Self {
            port,
            child,
            _stdin: stdin,
        }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn store(&self) -> SharedStore {
        patient(&settings(&self.url()))
    }

    /// A store with the time limits of the product.
    fn hasty_store(&self) -> SharedStore {
        SharedStore::open(&settings(&self.url()), &NAME_KEY).unwrap()
    }

    async fn run(&self, words: &[&str]) {
        self.ask::<()>(words).await;
    }

    async fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        self.send(&command).await
    }

    /// The server's process.
    async fn pid(&self) -> String {
        let info: String = self.ask(&["INFO", "server"]).await;
        let mut lines = info.lines();
        let pid = lines.find_map(|line| line.strip_prefix("process_id:"));
        pid.expect("a process").to_owned()
    }

    async fn restore(&self, key: &str, value: &[u8]) {
        let mut command = redis::cmd("SET");
        command.arg(key).arg(value);
        self.send::<()>(&command).await;
    }

    async fn send<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> T {
        let client = redis::Client::open(self.url()).unwrap();
        let config = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .unwrap();
        command.query_async(&mut connection).await.unwrap()
    }

    async fn stop(mut self) -> u16 {
        let port = self.port;
        drop(self._stdin);
        self.child.wait().unwrap();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            tokio::task::yield_now().await;
        }
        port
    }
}

/// Sends a signal to a process.
fn signal(pid: &str, name: &str) {
    let sent = Command::new("kill").args([name, pid]).status();
    assert!(sent.unwrap().success());
}

/// A limit that gives no call back while a test runs.
fn slow_limit(calls: u32) -> Limit {
    Limit {
        calls,
        period_us: 365 * 24 * 3_600_000_000,
        credit: 0,
    }
}

fn limiter(store: &SharedStore, calls: u32) -> RateLimiter<String> {
    RateLimiter::new(slow_limit(calls)).shared(Some(store), "test")
}

/// How many of some calls of one key a limit allows.
async fn allowed(limiter: &RateLimiter<String>, calls: u32) -> u64 {
    let mut allowed = 0;
    for _ in 0..calls {
        allowed += u64::from(limiter.take("a".to_owned(), now()).await.allowed);
    }
    allowed
}

fn permits(store: &SharedStore, max: u32) -> InFlight<String> {
    InFlight::new(max).shared(Some(store))
}

async fn acquire(permits: &InFlight<String>) -> Option<Permit<String>> {
    let admission = admit(None, Some(permits), "a".to_owned(), now()).await;
    assert_eq!(admission.has_permit, admission.permit.is_some());
    admission.permit
}

async fn put(store: &SharedStore, name: &[u8], value: &[u8]) {
    let ttl = Duration::from_secs(60);
    store
        .put("test", name, (GENERATION, true), value, ttl)
        .await;
}

async fn until_it_responds(store: &SharedStore) {
    while store.is_down() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn now() -> Timestamp {
    bellbird_domain::Clock::system().now()
}
