//! Permits of all instances together.

use super::{Server, acquire, limiter, now, permits};
use crate::admit;

#[tokio::test]
async fn permits_are_those_of_all_instances() {
    let server = Server::start();
    let (one, two) = (server.store(), server.store());
    let (here, there) = (permits(&one, 2), permits(&two, 2));
    let (first, second) = (
        acquire(&here).await.unwrap(),
        acquire(&there).await.unwrap(),
    );
    assert!(acquire(&here).await.is_none() && acquire(&there).await.is_none());
    drop(second);
    while acquire(&there).await.is_none() {
        tokio::task::yield_now().await;
    }
    drop(first);
    // Without a permit, no call is taken.
    let limit = limiter(&one, 10);
    let one_permit = permits(&one, 1);
    let held = admit(Some(&limit), Some(&one_permit), "b".to_owned(), now()).await;
    assert_eq!(held.decision.unwrap().remaining, 9);
    let rejected = admit(Some(&limit), Some(&one_permit), "b".to_owned(), now()).await;
    assert!(!rejected.has_permit && rejected.decision.unwrap().remaining == 9);
    // And without a call, no permit is kept.
    let limit = limiter(&one, 1);
    let four = permits(&one, 4);
    assert!(
        admit(Some(&limit), Some(&four), "c".to_owned(), now())
            .await
            .permit
            .is_some()
    );
    let other = limiter(&two, 1);
    let rejected = admit(Some(&other), Some(&four), "c".to_owned(), now()).await;
    assert!(
        rejected.has_permit && rejected.permit.is_none() && !rejected.decision.unwrap().allowed
    );
}

/// A minute, which a permit lasts, in microseconds.
const MINUTE_US: i64 = 60_000_000;

/// The time of the server in microseconds.
async fn time_us(server: &Server) -> i64 {
    let (seconds, micros): (i64, i64) = server.ask(&["TIME"]).await;
    seconds * 1_000_000 + micros
}

/// The permits that the server counts, and when each ends.
async fn permits_in(server: &Server) -> Vec<(String, String, i64)> {
    let names: Vec<String> = server.ask(&["KEYS", "*:permits"]).await;
    let mut found = Vec::new();
    for name in names {
        let members: Vec<(String, i64)> = server
            .ask(&["ZRANGE", &name, "0", "-1", "WITHSCORES"])
            .await;
        found.extend(
            members
                .into_iter()
                .map(|(id, ends_us)| (name.clone(), id, ends_us)),
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
    let (here, there) = (permits(&one, 1), permits(&two, 1));
    let before = time_us(&server).await;
    // It gives nothing back.
    std::mem::forget(acquire(&here).await.unwrap());
    let minute = before + MINUTE_US..=time_us(&server).await + MINUTE_US;
    assert!(acquire(&there).await.is_none());
    let (name, id, ends_us) = one_permit_in(&server).await;
    assert!(minute.contains(&ends_us), "{ends_us} {minute:?}");
    server.run(&["ZADD", &name, "XX", "1", &id]).await;
    assert!(acquire(&there).await.is_some());
}

#[tokio::test]
async fn permit_is_renewed_unless_it_has_ended() {
    let server = Server::start();
    let (one, two) = (server.store(), server.store());
    let (here, there) = (permits(&one, 1), permits(&two, 1));
    let held = acquire(&here).await.unwrap();
    for _ in 0..20 {
        assert!(acquire(&there).await.is_none(), "which leaves no permit");
    }
    let (name, id, _) = one_permit_in(&server).await;
    let in_ten_seconds = time_us(&server).await + 10_000_000;
    server
        .run(&["ZADD", &name, "XX", &in_ten_seconds.to_string(), &id])
        .await;
    assert_eq!(one_permit_in(&server).await.2, in_ten_seconds);
    let before = time_us(&server).await;
    held.renew(now()).await;
    let minute = before + MINUTE_US..=time_us(&server).await + MINUTE_US;
    let (_, same, ends_us) = one_permit_in(&server).await;
    assert!(
        same == id && minute.contains(&ends_us),
        "{ends_us} {minute:?}"
    );
    // One that has ended leaves its place to whom has taken it.
    server.run(&["ZADD", &name, "XX", "1", &id]).await;
    let other = acquire(&there).await;
    assert!(other.is_some());
    held.renew(now()).await;
    assert_ne!(one_permit_in(&server).await.1, id);
    // An instance counts its own, though the server lost them.
    server.run(&["FLUSHALL"]).await;
    assert!(acquire(&there).await.is_none());
    drop(other);
    assert!(acquire(&there).await.is_some());
}
