//! Tests with a real server.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use super::{Bucket, Generation, SharedStore, StoreSettings};
use crate::{
    Admission, CallBudgets, CallKind, CallWindow, InFlight, Permit, RateLimiter, admit, gcra,
};

pub(super) const NAME_KEY: [u8; 32] = [7; 32];

struct Server {
    port: u16,
    child: Child,
    _stdin: ChildStdin,
}

impl Server {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        Self::start_at(port)
    }

    fn start_at(port: u16) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/test-valkey");
        let mut command = Command::new(script);
        let mut child = command
            .arg(port.to_string())
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

    fn store(&self) -> SharedStore {
        SharedStore::open(
            &settings(&format!("redis://127.0.0.1:{}", self.port)),
            &NAME_KEY,
        )
        .unwrap()
    }

    async fn command(&self, words: &[&str]) -> redis::Value {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut connection).await.unwrap()
    }

    async fn restore(&self, key: &str, value: &[u8]) {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        redis::cmd("SET")
            .arg(key)
            .arg(value)
            .query_async::<()>(&mut connection)
            .await
            .unwrap();
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

fn settings(url: &str) -> StoreSettings {
    StoreSettings {
        url: url.into(),
        is_cluster: false,
    }
}

pub(super) fn limiter(store: &SharedStore, calls: u32) -> RateLimiter<String> {
    RateLimiter::per_minute(calls)
        .unwrap()
        .shared(Some(store), "test")
}

pub(super) fn now() -> Timestamp {
    bellbird_domain::Clock::system().now()
}

#[tokio::test]
async fn instances_together_take_what_the_limit_allows() {
    let server = Server::start();
    let began = now();
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let store = server.store();
        tasks.push(tokio::spawn(async move {
            let limiter = limiter(&store, 60);
            let mut allowed = 0;
            for _ in 0..3_400 {
                allowed += u64::from(limiter.take("a".to_owned(), now()).await.allowed);
            }
            allowed
        }));
    }
    let mut allowed = 0;
    for task in tasks {
        allowed += task.await.unwrap();
    }
    // A full bucket, and a call a second from then on.
    let refilled = now().duration_since(began).as_secs().unsigned_abs();
    assert!(
        (60..=60 + refilled + 1).contains(&allowed),
        "{allowed} of {refilled} s"
    );
}

#[tokio::test]
async fn server_decides_as_an_instance_does() {
    let server = Server::start();
    let (store, limit) = (server.store(), gcra::Limit::per_minute(7));
    let limiter = limiter(&store, 7);
    let mut full_at = 0;
    for _ in 0..7 {
        let decision = limiter.take("a".to_owned(), now()).await;
        let server_us = decision.full_at_us - 60_000_000 / 7;
        assert!(decision.allowed && decision.full_at_us > full_at && server_us > 0);
        full_at = decision.full_at_us;
    }
    let at = now();
    let (refused, peeked) = (
        limiter.take("a".to_owned(), at).await,
        limiter.peek(&"a".to_owned(), at).await,
    );
    assert_eq!(
        (refused.allowed, refused.remaining, refused.full_at_us),
        (false, 0, full_at)
    );
    assert_eq!(
        (peeked.allowed, peeked.remaining, peeked.full_at_us),
        (false, 0, full_at)
    );
    // The clocks of this machine are one, so the wait is the one that this instance would give.
    let alone = gcra::peek(limit, full_at, at.as_microsecond());
    assert!(
        (refused.wait_us - alone.wait_us).abs() < 5_000_000,
        "{refused:?} {alone:?}"
    );
}

/// The rule is in `gcra.rs` and in `admit.lua`, because an instance goes on alone while the server
/// is down.
#[tokio::test]
async fn script_and_gcra_hold_the_same_rule() {
    const STEPS: usize = 6;
    let server = Server::start();
    let store = server.store();
    let mut cases = 0;
    for (calls, credit) in [(1, 0), (3, 2), (7, 0), (60, 60), (999_999, 5)] {
        let limit = gcra::Limit {
            credit,
            ..gcra::Limit::per_minute(calls)
        };
        // What an instance knows, from a bucket that is full to one from before a clock was set
        // back.
        for known_in_us in [
            -1,
            1,
            29_999_999,
            59_999_990,
            60_000_000,
            90_000_000,
            3_600_000_000,
        ] {
            let key = format!("{calls} {known_in_us}");
            let mut kept = 0;
            for step in 0..STEPS {
                let (takes, is_on_credit) = (step % 3 != 1, step % 3 == 2);
                let at = now();
                // Later steps know only what the first one has sent to the server.
                let known = if step == 0 {
                    at.as_microsecond() + known_in_us
                } else {
                    0
                };
                let bucket = Bucket {
                    limit,
                    kind: "test",
                    full_at_us: known,
                    takes,
                    is_on_credit,
                };
                let admitted = store.admit(&key, Some(bucket), None, at).await.unwrap();
                let decided = admitted.decision.unwrap();
                let server_us = store.server_us(at);
                kept = known.max(kept);
                let alone = match (takes, is_on_credit) {
                    (true, true) => gcra::take_on_credit(limit, kept, server_us),
                    (true, false) => gcra::take(limit, kept, server_us),
                    (false, _) => gcra::peek(limit, kept, server_us),
                };
                assert_eq!(
                    (decided.allowed, decided.full_at_us),
                    (alone.allowed, alone.full_at_us),
                    "{limit:?}, step {step} of {known_in_us}"
                );
                // The server keeps a call that was taken, and a time that was lowered.
                if takes && alone.allowed || kept > alone.full_at_us {
                    kept = alone.full_at_us;
                } else if step == 0 {
                    kept = 0;
                }
                cases += 1;
            }
        }
    }
    assert_eq!(cases, 5 * 7 * STEPS);
}

#[tokio::test]
async fn clock_of_the_server_set_back_empties_a_bucket_once() {
    let server = Server::start();
    let store = server.store();
    assert!(
        limiter(&store, 60)
            .take("a".to_owned(), now())
            .await
            .allowed
    );
    let names: Vec<String> = redis::from_redis_value(server.command(&["KEYS", "*"]).await).unwrap();
    let [name] = &names[..] else {
        panic!("{names:?}")
    };
    let ahead = now().as_microsecond() + 3_600_000_000;
    server.restore(name, ahead.to_string().as_bytes()).await;

    let refused = limiter(&store, 60).take("a".to_owned(), now()).await;
    assert_eq!((refused.allowed, refused.remaining), (false, 0));
    let lowered: String = redis::from_redis_value(server.command(&["GET", name]).await).unwrap();
    assert_eq!(
        lowered,
        refused.full_at_us.to_string(),
        "it refills from now on"
    );
}

#[tokio::test]
async fn permits_are_those_of_all_instances() {
    let server = Server::start();
    let (one, two) = (server.store(), server.store());
    let at = |store: &SharedStore| InFlight::<String>::new(2).shared(Some(store));
    let (here, there) = (at(&one), at(&two));
    let take = async |permits: &InFlight<String>| -> Option<Permit<String>> {
        let Admission {
            has_permit, permit, ..
        } = admit(None, Some(permits), "a".to_owned(), now()).await;
        assert_eq!(has_permit, permit.is_some());
        permit
    };
    let (first, second) = (take(&here).await.unwrap(), take(&there).await.unwrap());
    assert!(take(&here).await.is_none() && take(&there).await.is_none());
    drop(second);
    while take(&there).await.is_none() {
        tokio::task::yield_now().await;
    }
    drop(first);
    // Without a permit, no call is taken.
    let limit = limiter(&one, 10);
    let permits = InFlight::<String>::new(1).shared(Some(&one));
    let held = admit(Some(&limit), Some(&permits), "b".to_owned(), now()).await;
    assert_eq!(held.decision.unwrap().remaining, 9);
    let rejected = admit(Some(&limit), Some(&permits), "b".to_owned(), now()).await;
    assert!(!rejected.has_permit && rejected.decision.unwrap().remaining == 9);
    // And without a call, no permit is kept.
    let limit = limiter(&one, 1);
    let permits = InFlight::<String>::new(4).shared(Some(&one));
    assert!(
        admit(Some(&limit), Some(&permits), "c".to_owned(), now())
            .await
            .permit
            .is_some()
    );
    let other = limiter(&two, 1);
    let rejected = admit(Some(&other), Some(&permits), "c".to_owned(), now()).await;
    assert!(
        rejected.has_permit && rejected.permit.is_none() && !rejected.decision.unwrap().allowed
    );
}

/// The permits that the server counts, and in how many seconds each ends.
async fn permits_in(server: &Server) -> Vec<(String, String, i64)> {
    let time: (i64, i64) = redis::from_redis_value(server.command(&["TIME"]).await).unwrap();
    let names: Vec<String> =
        redis::from_redis_value(server.command(&["KEYS", "*:permits"]).await).unwrap();
    let mut found = Vec::new();
    for name in names {
        let members = server
            .command(&["ZRANGE", &name, "0", "-1", "WITHSCORES"])
            .await;
        let members: Vec<(String, i64)> = redis::from_redis_value(members).unwrap();
        let left = |ends_us: i64| ends_us / 1_000_000 - time.0;
        found.extend(
            members
                .into_iter()
                .map(|(id, ends_us)| (name.clone(), id, left(ends_us))),
        );
    }
    found
}

async fn one_permit_in(server: &Server) -> (String, String, i64) {
    let found = permits_in(server).await;
    assert_eq!(found.len(), 1, "{found:?}");
    found.into_iter().next().unwrap()
}

#[tokio::test]
async fn permit_of_an_instance_that_died_ends_by_itself() {
    let server = Server::start();
    let (one, two) = (server.store(), server.store());
    let at = |store: &SharedStore| InFlight::<String>::new(1).shared(Some(store));
    let (here, there) = (at(&one), at(&two));
    let held = admit(None, Some(&here), "a".to_owned(), now()).await.permit;
    // It gives nothing back.
    std::mem::forget(held.unwrap());
    let take = async || admit(None, Some(&there), "a".to_owned(), now()).await;
    assert!(!take().await.has_permit);
    let (name, id, left) = one_permit_in(&server).await;
    assert!((55..=60).contains(&left), "{left}");
    server.command(&["ZADD", &name, "XX", "1", &id]).await;
    assert!(take().await.permit.is_some());
}

#[tokio::test]
async fn permit_is_renewed_unless_it_has_ended() {
    let server = Server::start();
    let (one, two) = (server.store(), server.store());
    let at = |store: &SharedStore| InFlight::<String>::new(1).shared(Some(store));
    let (here, there) = (at(&one), at(&two));
    let held = admit(None, Some(&here), "a".to_owned(), now()).await.permit;
    let held = held.unwrap();
    let (name, id, _) = one_permit_in(&server).await;
    let in_ten_seconds = (now().as_microsecond() + 10_000_000).to_string();
    server
        .command(&["ZADD", &name, "XX", &in_ten_seconds, &id])
        .await;
    assert!(one_permit_in(&server).await.2 <= 10);
    held.renew(now()).await;
    let (_, same, left) = one_permit_in(&server).await;
    assert!(same == id && (55..=60).contains(&left), "{left}");
    // One that has ended leaves its place to whom has taken it.
    server.command(&["ZADD", &name, "XX", "1", &id]).await;
    let other = admit(None, Some(&there), "a".to_owned(), now())
        .await
        .permit;
    assert!(other.is_some());
    held.renew(now()).await;
    assert_ne!(one_permit_in(&server).await.1, id);
}

#[tokio::test]
async fn refused_request_leaves_no_permit() {
    let server = Server::start();
    let (one, two) = (server.store(), server.store());
    let at = |store: &SharedStore| InFlight::<String>::new(1).shared(Some(store));
    let (here, there) = (at(&one), at(&two));
    let _held = admit(None, Some(&here), "a".to_owned(), now()).await.permit;
    for _ in 0..20 {
        assert!(
            !admit(None, Some(&there), "a".to_owned(), now())
                .await
                .has_permit
        );
    }
    one_permit_in(&server).await;
}

#[tokio::test]
async fn instance_counts_its_own_permits_though_the_server_lost_them() {
    let server = Server::start();
    let store = server.store();
    let permits = InFlight::<String>::new(1).shared(Some(&store));
    let held = admit(None, Some(&permits), "a".to_owned(), now())
        .await
        .permit;
    server.command(&["FLUSHALL"]).await;
    let take = async || admit(None, Some(&permits), "a".to_owned(), now()).await;
    assert!(!take().await.has_permit);
    drop(held);
    assert!(take().await.permit.is_some());
}

#[tokio::test]
async fn server_that_was_emptied_is_corrected() {
    let server = Server::start();
    let (one, two) = (server.store(), server.store());
    let (here, there) = (limiter(&one, 60), limiter(&two, 60));
    for _ in 0..50 {
        assert!(here.take("a".to_owned(), now()).await.allowed);
    }
    server.command(&["FLUSHALL"]).await;
    let remaining = here.take("a".to_owned(), now()).await.remaining;
    assert!((9..=15).contains(&remaining), "{remaining}");
    assert!(there.peek(&"a".to_owned(), now()).await.remaining <= remaining + 5);
}

/// A metric shows it before the first request waits for it.
#[tokio::test]
async fn server_that_is_away_is_noticed_without_a_request() {
    let settings = StoreSettings {
        url: "redis://me:hunter2@127.0.0.1:1".into(),
        is_cluster: false,
    };
    assert_eq!(settings.servers(), "127.0.0.1:1");
    let store = SharedStore::open(&settings, &[7; 32]).unwrap();
    while !store.inner.is_down() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let error = store.check().await.unwrap_err();
    assert!(
        error.contains("refused") && !error.contains("hunter2"),
        "{error}"
    );
}

#[tokio::test]
async fn instance_counts_for_itself_while_the_server_is_away() {
    let server = Server::start();
    let store = server.store();
    let limiter = limiter(&store, 60);
    for _ in 0..50 {
        assert!(limiter.take("a".to_owned(), now()).await.allowed);
    }
    let port = server.stop().await;
    let mut allowed = 0;
    for _ in 0..100 {
        allowed += u32::from(limiter.take("a".to_owned(), now()).await.allowed);
    }
    assert!(
        (10..=20).contains(&allowed),
        "{allowed}: it goes on from what it knew"
    );
    assert!(store.inner.is_down());
    let permits = InFlight::<String>::new(1).shared(Some(&store));
    let held = admit(None, Some(&permits), "b".to_owned(), now()).await;
    assert!(
        held.permit.is_some()
            && !admit(None, Some(&permits), "b".to_owned(), now())
                .await
                .has_permit
    );
    let _again = Server::start_at(port);
    while store.inner.is_down() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(limiter.take("c".to_owned(), now()).await.allowed);
}

/// The same calls, counted by the server for three instances and by one alone.
#[tokio::test]
async fn calls_to_a_provider_are_counted_as_one_instance_does() {
    let server = Server::start();
    let stores = [server.store(), server.store(), server.store()];
    let instances = stores
        .each_ref()
        .map(|store| CallWindow::new("test", 40, Some(store)));
    let alone = CallWindow::new("test", 40, None);
    let users: Vec<Uuid> = std::iter::repeat_with(Uuid::new_v4).take(3).collect();
    let request = |begins, has_share| CallKind::Request { begins, has_share };
    let kinds = [
        CallKind::Job,
        CallKind::Sync,
        request(true, true),
        request(false, true),
        request(true, false),
        CallKind::SyncRefresh,
        CallKind::Sync,
    ];
    let (mut allowed, mut refused) = (0, 0);
    for step in 0..120 {
        let (instance, kind) = (&instances[step % 3], kinds[step * 5 % 7]);
        let user = users.get(step * 5 % 4).copied();
        if step == 60 {
            // Others made calls that the provider has counted for another ten seconds.
            instances
                .iter()
                .for_each(|other| other.correct(50, 50, Duration::ZERO));
            instance.correct(50, 5, Duration::from_secs(10));
            alone.correct(50, 5, Duration::from_secs(10));
        }
        match (
            instance.take(kind, user).await,
            alone.take(kind, user).await,
        ) {
            (Ok(()), Ok(())) => allowed += 1,
            (Err(there), Err(here)) => {
                let apart = there.wait.abs_diff(here.wait);
                assert!(
                    there.by_all == here.by_all && apart < Duration::from_secs(5),
                    "{step}: {there:?} {here:?}"
                );
                refused += 1;
            }
            decided => panic!("{step}: {kind:?} {decided:?}"),
        }
    }
    assert!(allowed > 30 && refused > 30, "{allowed} {refused}");
}

/// Each instance decides by what it knows, while the others call too.
#[tokio::test(flavor = "multi_thread")]
async fn instances_together_call_a_provider_as_often_as_it_allows() {
    let server = Server::start();
    let unshared = CallKind::Request {
        begins: true,
        has_share: false,
    };
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let window = Arc::new(CallWindow::new("test", 250, Some(&server.store())));
        for _ in 0..4 {
            let window = Arc::clone(&window);
            tasks.push(tokio::spawn(async move {
                let mut made = 0;
                while window.take(unshared, Some(Uuid::new_v4())).await.is_ok() {
                    made += 1;
                }
                made
            }));
        }
    }
    let mut made = 0;
    for task in tasks {
        made += task.await.unwrap();
    }
    assert_eq!(made, 175, "up to the part of jobs");
}

/// The others made calls since, which are no reason to correct anything.
#[tokio::test]
async fn count_of_the_provider_is_compared_with_the_calls_of_all() {
    let server = Server::start();
    let stores = [server.store(), server.store()];
    let [here, there] = stores
        .each_ref()
        .map(|store| CallWindow::new("test", 10, Some(store)));
    assert_eq!(here.take(CallKind::Job, None).await, Ok(()));
    for _ in 0..4 {
        assert_eq!(there.take(CallKind::Job, None).await, Ok(()));
    }
    here.correct(10, 5, Duration::from_secs(60));
    assert_eq!(here.take(CallKind::Job, None).await, Ok(()));
    // Now others made a seventh.
    here.correct(10, 3, Duration::from_secs(60));
    assert_eq!(here.take(CallKind::Job, None).await, Ok(()));
    let unshared = CallKind::Request {
        begins: true,
        has_share: false,
    };
    for _ in 0..2 {
        assert_eq!(there.take(unshared, None).await, Ok(()));
    }
    let refused = there.take(unshared, None).await.unwrap_err();
    assert!(refused.by_all && refused.wait > Duration::from_secs(50));
}

/// The same calls, taken out of a budget by three instances and by one alone, with credit and
/// without.
#[tokio::test]
async fn budget_of_a_user_is_that_of_one_instance() {
    let server = Server::start();
    let stores = [server.store(), server.store(), server.store()];
    let instances = stores
        .each_ref()
        .map(|store| CallBudgets::new("test", Some(store)));
    let alone = CallBudgets::new("test", None);
    let (user, mut allowed) = ("a".to_owned(), 0);
    for step in 0..60 {
        let is_first = step % 4 == 0;
        let there = instances[step % 3].take(&user, 10, is_first, now()).await;
        let here = alone.take(&user, 10, is_first, now()).await;
        match (there, here) {
            (Ok(()), Ok(())) => allowed += 1,
            (Err(there), Err(here)) => assert!(
                there.abs_diff(here) < Duration::from_secs(5),
                "{there:?} {here:?}"
            ),
            decided => panic!("{step}: {decided:?}"),
        }
    }
    assert!(
        (20..25).contains(&allowed),
        "a budget and as much on credit: {allowed}"
    );
    let other = CallBudgets::new("another provider", Some(&stores[0]));
    assert_eq!(other.take(&user, 10, true, now()).await, Ok(()));

    server.stop().await;
    assert!(
        instances[0].take(&user, 10, true, now()).await.is_err(),
        "what it knows outlives the server"
    );
    assert_eq!(
        instances[0].take(&"b".to_owned(), 10, true, now()).await,
        Ok(())
    );
}

#[tokio::test]
async fn syncs_wait_while_calls_of_others_are_unknown() {
    let server = Server::start();
    let store = server.store();
    let window = CallWindow::new("test", 10, Some(&store));
    assert_eq!(window.take(CallKind::Sync, None).await, Ok(()));
    let port = server.stop().await;
    for _ in 0..3 {
        assert_eq!(window.take(CallKind::Job, None).await, Ok(()), "alone");
    }
    assert!(window.syncs_wait() && window.take(CallKind::Sync, None).await.is_err());
    let request = CallKind::Request {
        begins: true,
        has_share: false,
    };
    assert_eq!(window.take(request, None).await, Ok(()));
    let _again = Server::start_at(port);
    while window.syncs_wait() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(window.take(CallKind::Sync, None).await, Ok(()));
}

/// A late reply is that of its own call, and of no later one.
#[tokio::test]
async fn server_that_stands_still_is_not_waited_for() {
    let server = Server::start();
    let store = server.store();
    let ttl = Duration::from_secs(60);
    for name in ["a", "b", "c", "d"] {
        store
            .put(
                "test",
                name.as_bytes(),
                ([1; 16], true),
                name.as_bytes(),
                ttl,
            )
            .await;
    }
    let mut other_client = std::net::TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    other_client.write_all(b"DEBUG SLEEP 2\r\n").unwrap();
    while store.get("test", b"a").await.is_some() {}
    for name in ["b", "c"] {
        assert_eq!(
            store.get("test", name.as_bytes()).await,
            None,
            "{name} timed out"
        );
    }
    assert!(store.inner.is_down());
    assert!(
        limiter(&store, 2).take("a".to_owned(), now()).await.allowed,
        "at once, alone"
    );
    while store.inner.is_down() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for name in ["d", "c", "b", "a"] {
        assert_eq!(
            store.get("test", name.as_bytes()).await,
            Some(([1; 16], name.as_bytes().to_vec()))
        );
    }
}

#[tokio::test]
async fn names_do_not_tell_whose_they_are() {
    let server = Server::start();
    let store = server.store();
    let (limit, permits) = (
        limiter(&store, 60),
        InFlight::<String>::new(4).shared(Some(&store)),
    );
    let _held = admit(Some(&limit), Some(&permits), "192.0.2.77".to_owned(), now()).await;
    let names = format!("{:?}", server.command(&["KEYS", "*"]).await);
    assert!(
        names.contains(":test") && names.contains(":permits"),
        "{names}"
    );
    assert!(
        !names.contains("192.0.2.77") && names.contains("bellbird1:{"),
        "{names}"
    );
}

#[tokio::test]
async fn value_is_there_for_other_instances_and_sealed() {
    let server = Server::start();
    let (one, two) = (server.store(), server.store());
    let (first, second) = ([1; 16], [2; 16]);
    let put = async |store: &SharedStore, generation: Generation, begins: bool, value: &str| {
        store
            .put(
                "test",
                b"name",
                (generation, begins),
                value.as_bytes(),
                Duration::from_secs(60),
            )
            .await;
    };
    let get = async |store: &SharedStore| store.get("test", b"name").await;
    assert_eq!(get(&two).await, None);
    put(&one, first, false, "planted-1").await;
    assert_eq!(get(&two).await, Some((first, b"planted-1".to_vec())));
    put(&two, first, false, "planted-2").await;
    assert_eq!(get(&one).await, Some((first, b"planted-2".to_vec())));
    put(&one, second, true, "planted-3").await;
    put(&two, first, false, "late, of the older generation").await;
    assert_eq!(get(&two).await, Some((second, b"planted-3".to_vec())));
    let large = vec![b'x'; 256 * 1024];
    one.put(
        "test",
        b"large",
        (first, true),
        &large,
        Duration::from_secs(60),
    )
    .await;
    assert_eq!(one.get("test", b"large").await, None);

    let keys = server.command(&["KEYS", "*"]).await;
    let redis::Value::Array(keys) = keys else {
        panic!("{keys:?}")
    };
    let [redis::Value::BulkString(key)] = &keys[..] else {
        panic!("{keys:?}")
    };
    let key = str::from_utf8(key).unwrap();
    assert!(!key.contains("name"), "{key}");
    let redis::Value::BulkString(sealed) = server.command(&["GET", key]).await else {
        panic!("no value")
    };
    assert!(!sealed.windows(7).any(|part| part == b"planted"));
    let redis::Value::Int(ttl) = server.command(&["TTL", key]).await else {
        panic!("no time to live")
    };
    assert!((1..=60).contains(&ttl), "{ttl}");
    // Another installation's value, a changed one and one of another name are as none.
    let other = SharedStore::open(
        &settings(&format!("redis://127.0.0.1:{}", server.port)),
        &[8; 32],
    )
    .unwrap();
    assert_eq!(get(&other).await, None);
    let moved = one.name("test", b"another name").key;
    server.command(&["COPY", key, &moved]).await;
    assert_eq!(one.get("test", b"another name").await, None);
    for at in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[at] ^= 1;
        server.restore(key, &changed).await;
        assert_eq!(get(&one).await, None, "{at}");
    }
    server.restore(key, &sealed).await;
    assert!(get(&one).await.is_some());
    server.command(&["DEL", key]).await;
    server.command(&["RPUSH", key, "a list"]).await;
    assert_eq!(get(&one).await, None);
}

#[tokio::test]
async fn policy_of_a_full_memory_is_that_of_the_server() {
    let server = Server::start();
    let store = server.store();
    for policy in ["noeviction", "allkeys-lru"] {
        let set = ["CONFIG", "SET", "maxmemory-policy", policy];
        server.command(&set).await;
        assert_eq!(store.memory_policy().await.as_deref(), Some(policy));
    }
}

#[tokio::test]
async fn limits_hold_while_the_server_has_no_memory_for_values() {
    let server = Server::start();
    let store = server.store();
    let limit = limiter(&store, 2);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    for _ in 0..10 {
        store
            .put(
                "test",
                b"name",
                ([1; 16], true),
                b"value",
                Duration::from_secs(60),
            )
            .await;
    }
    assert_eq!(store.get("test", b"name").await, None);
    let mut allowed = 0;
    for _ in 0..3 {
        // Each time as an instance that knows nothing.
        allowed += u32::from(limiter(&store, 2).take("a".to_owned(), now()).await.allowed);
    }
    assert_eq!(allowed, 2);
    let permits = InFlight::<String>::new(1).shared(Some(&store));
    let Admission { permit, .. } = admit(Some(&limit), Some(&permits), "b".to_owned(), now()).await;
    assert!(permit.is_some() && !store.inner.is_down() && store.check().await.is_ok());
}

#[tokio::test]
async fn replica_that_cannot_be_written_counts_as_away() {
    let server = Server::start();
    let store = server.store();
    assert!(store.check().await.is_ok());
    server.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    server
        .command(&["CONFIG", "SET", "replica-serve-stale-data", "yes"])
        .await;
    for _ in 0..3 {
        assert!(
            limiter(&store, 2).take("a".to_owned(), now()).await.allowed,
            "each time by what it knows: nothing"
        );
    }
    assert!(store.inner.is_down() && store.check().await.is_err());
    server.command(&["REPLICAOF", "NO", "ONE"]).await;
    assert!(store.check().await.is_ok() && !store.inner.is_down());
}

#[test]
fn url_that_cannot_be_used_is_not_repeated() {
    for url in [
        "",
        "0",
        "http://user:secret@host",
        "redis://user:secret@host:port",
    ] {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let error = runtime
            .block_on(async { SharedStore::open(&settings(url), &NAME_KEY).err() })
            .unwrap();
        assert!(
            error.starts_with("expected redis://") && !error.contains("secret"),
            "{error}"
        );
    }
}
