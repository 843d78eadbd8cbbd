//! A server that is down, full or standing still.

use super::{
    GENERATION, Server, UNSHARED, acquire, allowed, limiter, now, permits, put, signal,
    until_it_responds,
};
use crate::call_window::RefusedBy;
use crate::{Admission, CallKind, CallWindow, admit};

/// Syncs wait, because the calls of others are unknown.
#[tokio::test]
async fn instance_counts_for_itself_while_the_server_is_away() {
    let server = Server::start();
    let store = server.store();
    let limiter = limiter(&store, 60);
    assert_eq!(allowed(&limiter, 50).await, 50);
    let window = CallWindow::new("test", 10, Some(&store));
    assert_eq!(window.take(CallKind::Sync, None).await, Ok(()));
    let port = server.stop().await;
    let allowed = allowed(&limiter, 100).await;
    assert!(
        (10..=20).contains(&allowed),
        "{allowed}: it goes on from what it knew"
    );
    assert!(store.is_down());
    let permits = permits(&store, 1);
    let held = acquire(&permits).await;
    assert!(held.is_some() && acquire(&permits).await.is_none());
    for _ in 0..3 {
        assert_eq!(window.take(CallKind::Job, None).await, Ok(()), "alone");
    }
    let refused = window.take(CallKind::Sync, None).await.unwrap_err();
    assert!(window.syncs_wait() && refused.by == RefusedBy::Store);
    assert_eq!(window.take(UNSHARED, None).await, Ok(()));
    let _again = Server::start_at(port);
    until_it_responds(&store).await;
    assert!(limiter.take("c".to_owned(), now()).await.allowed);
    assert!(!window.syncs_wait());
    assert_eq!(window.take(CallKind::Sync, None).await, Ok(()));
}

/// A late reply is that of its own call, and of no later one.
#[tokio::test]
async fn server_that_stands_still_is_not_waited_for() {
    let server = Server::start();
    let store = server.hasty_store();
    for name in ["a", "b", "c", "d"] {
        // A busy machine may be late, too.
        while store.get("test", name.as_bytes()).await.is_none() {
            until_it_responds(&store).await;
            put(&store, name.as_bytes(), name.as_bytes()).await;
        }
    }
    let pid = server.pid().await;
    signal(&pid, "-STOP");
    for name in ["a", "b", "c"] {
        let found = store.get("test", name.as_bytes()).await;
        assert_eq!(found, None, "{name} timed out");
    }
    assert!(store.is_down());
    assert!(
        limiter(&store, 2).take("a".to_owned(), now()).await.allowed,
        "at once, alone"
    );
    signal(&pid, "-CONT");
    for name in ["d", "c", "b", "a"] {
        let found = loop {
            until_it_responds(&store).await;
            if let Some(found) = store.get("test", name.as_bytes()).await {
                break found;
            }
        };
        assert_eq!(found, (GENERATION, name.as_bytes().to_vec()));
    }
}

#[tokio::test]
async fn limits_hold_while_the_server_has_no_memory_for_values() {
    let server = Server::start();
    let store = server.store();
    let limit = limiter(&store, 2);
    server.run(&["CONFIG", "SET", "maxmemory", "1"]).await;
    for _ in 0..10 {
        put(&store, b"name", b"value").await;
    }
    assert_eq!(store.get("test", b"name").await, None);
    let mut allowed = 0;
    for _ in 0..3 {
        // Each time as an instance that knows nothing.
        allowed += u32::from(limiter(&store, 2).take("a".to_owned(), now()).await.allowed);
    }
    assert_eq!(allowed, 2);
    let permits = permits(&store, 1);
    let Admission { permit, .. } = admit(Some(&limit), Some(&permits), "b".to_owned(), now()).await;
    assert!(permit.is_some() && !store.is_down() && store.check().await.is_ok());
    for policy in ["noeviction", "allkeys-lru"] {
        let set = ["CONFIG", "SET", "maxmemory-policy", policy];
        server.run(&set).await;
        assert_eq!(store.memory_policy().await.as_deref(), Some(policy));
    }
}

#[tokio::test]
async fn replica_that_cannot_be_written_counts_as_away() {
    let server = Server::start();
    let store = server.store();
    assert!(store.check().await.is_ok());
    server.run(&["REPLICAOF", "127.0.0.1", "1"]).await;
    server
        .run(&["CONFIG", "SET", "replica-serve-stale-data", "yes"])
        .await;
    for _ in 0..3 {
        assert!(
            limiter(&store, 2).take("a".to_owned(), now()).await.allowed,
            "each time by what it knows: nothing"
        );
    }
    assert!(store.is_down() && store.check().await.is_err());
    server.run(&["REPLICAOF", "NO", "ONE"]).await;
    assert!(store.check().await.is_ok() && !store.is_down());
}
