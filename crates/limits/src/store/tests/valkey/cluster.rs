//! Tests with a real cluster: three nodes, and a replica of the first.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{
    GENERATION, NAME_KEY, free_port, limiter, now, patient, permits, put, until_it_responds,
};
use crate::store::{SharedStore, StoreSettings};
use crate::{CallKind, CallWindow, admit};

const NODES: usize = 4;
/// Nodes talk to each other on a port as much higher, which is above those of other tests.
const BUS: u16 = 10_000;
/// After how many milliseconds a replica takes over, and a time that no node is stopped for.
const SOON: &str = "1000";
const NEVER: &str = "15000";
/// More than the calls of a test.
const CALLS: u32 = 1_000;

struct Cluster {
    ports: Vec<u16>,
    child: Child,
}

impl Cluster {
    fn start(timeout_ms: &str) -> Self {
        let has_bus = |port: &u16| TcpListener::bind(("127.0.0.1", port + BUS)).is_ok();
        let ports = std::iter::repeat_with(free_port).filter(has_bus);
        Self::start_at(ports.take(NODES).collect(), timeout_ms)
    }

    fn start_at(ports: Vec<u16>, timeout_ms: &str) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/test-server");
        let mut command = Command::new(script);
        command
            .args(["valkey-cluster", timeout_ms])
            .args(ports.iter().map(u16::to_string))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        Self { ports, child }
    }

    /// Of an instance that knows these nodes.
    fn settings(&self, nodes: &[usize]) -> StoreSettings {
        let urls: Vec<String> = nodes
            .iter()
            .map(|node| format!("redis://127.0.0.1:{}", self.ports[*node]))
            .collect();
        StoreSettings {
            url: urls.join(",").into(),
            is_cluster: true,
        }
    }

    /// A store with the time limits of the product.
    fn hasty_store(&self, nodes: &[usize]) -> SharedStore {
        SharedStore::open(&self.settings(nodes), &NAME_KEY).unwrap()
    }

    fn command(&self, node: usize, words: &[&str]) -> redis::RedisResult<redis::Value> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.ports[node]))?;
        let mut command = redis::cmd(words[0]);
        command
            .arg(&words[1..])
            .query(&mut client.get_connection()?)
    }

    /// How many names each of the three nodes has.
    fn names(&self) -> Vec<i64> {
        let count = |node| match self.command(node, &["DBSIZE"]).unwrap() {
            redis::Value::Int(count) => count,
            other => panic!("{other:?}"),
        };
        (0..NODES - 1).map(count).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_permits_and_values_are_those_of_a_cluster() {
    let cluster = Cluster::start(NEVER);
    let [one, two] = [&[0][..], &[2, 1]].map(|nodes| patient(&cluster.settings(nodes)));
    assert!(one.check().await.is_ok() && two.check().await.is_ok());
    let limits = [limiter(&one, 10), limiter(&two, 10)];
    for key in 0..30 {
        let mut allowed = 0;
        for turn in 0..14 {
            allowed += u32::from(
                limits[turn % 2]
                    .take(format!("key {key}"), now())
                    .await
                    .allowed,
            );
        }
        assert!((10..=11).contains(&allowed), "{allowed}");
        let name = format!("name {key}");
        put(&one, name.as_bytes(), name.as_bytes()).await;
        assert_eq!(
            two.get("test", name.as_bytes()).await,
            Some((GENERATION, name.into_bytes()))
        );
    }
    assert!(
        cluster.names().iter().all(|names| *names >= 5),
        "{:?}",
        cluster.names()
    );

    let (here, there) = (permits(&one, 1), permits(&two, 1));
    let mut held = Vec::new();
    for key in 0..30 {
        held.push(
            admit(None, Some(&here), format!("key {key}"), now())
                .await
                .permit
                .expect("nobody holds one"),
        );
        assert!(
            !admit(None, Some(&there), format!("key {key}"), now())
                .await
                .has_permit
        );
    }
    // Given back to all nodes, though the commands are sent together.
    drop(held);
    for key in 0..30 {
        while !admit(None, Some(&there), format!("key {key}"), now())
            .await
            .has_permit
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let window = CallWindow::new("test", 10, Some(&one));
    assert_eq!(window.take(CallKind::Job, None).await, Ok(()));
    assert!(!one.is_down() && !two.is_down());
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_takes_over_and_then_another_cluster() {
    let cluster = Cluster::start(SOON);
    let store = cluster.hasty_store(&[0, 1]);
    let limit = limiter(&store, CALLS);
    let take = async |key: u32| limit.take(format!("key {key}"), now()).await;
    for key in 0..30 {
        assert_eq!(take(key).await.remaining, CALLS - 1);
    }
    let _ended = cluster.command(0, &["SHUTDOWN", "NOSAVE"]);
    // Some keys lie on the other nodes, but all of them are decided meanwhile, by what is known.
    for key in 0..30 {
        assert!(take(key).await.remaining <= CALLS - 2);
    }
    // The replica counts for the keys of its node, which a second instance sees.
    let other = cluster.hasty_store(&[1, 2]);
    let seen = limiter(&other, CALLS);
    for key in 0..30 {
        while seen.peek(&format!("key {key}"), now()).await.remaining == CALLS {
            take(key).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    while store.check().await.is_err() || store.is_down() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    // Another cluster at the same addresses is found.
    let store = cluster.hasty_store(&[0, 1, 2]);
    let limit = limiter(&store, CALLS);
    assert!(limit.take("a".to_owned(), now()).await.allowed);
    let ports = cluster.ports.clone();
    drop(cluster);
    while !store.is_down() {
        assert!(limit.take("a".to_owned(), now()).await.remaining < CALLS);
    }
    let again = Cluster::start_at(ports, SOON);
    until_it_responds(&store).await;
    // It counts for all keys, which a second instance sees.
    let other = again.hasty_store(&[0, 1, 2]);
    let seen = limiter(&other, CALLS);
    for key in 0..30 {
        while seen.peek(&format!("key {key}"), now()).await.remaining == CALLS {
            assert!(limit.take(format!("key {key}"), now()).await.allowed);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
