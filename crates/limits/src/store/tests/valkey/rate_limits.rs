//! Calls of a key, counted for all instances.

use super::{Server, allowed, limiter, now, slow_limit};
use crate::RateLimiter;
use crate::gcra;
use crate::store::Bucket;

#[tokio::test]
async fn instances_together_take_what_the_limit_allows() {
    let server = Server::start();
    let began = now();
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let store = server.store();
        tasks.push(tokio::spawn(async move {
            let limiter = RateLimiter::per_minute(60).unwrap();
            allowed(&limiter.shared(Some(&store), "test"), 3_400).await
        }));
    }
    let mut sum = 0;
    for task in tasks {
        sum += task.await.unwrap();
    }
    // A full bucket, and a call a second from then on.
    let refilled = now().duration_since(began).as_secs().unsigned_abs();
    assert!(
        (60..=60 + refilled + 1).contains(&sum),
        "{sum} of {refilled} s"
    );
}

#[tokio::test]
async fn server_decides_as_an_instance_does() {
    let server = Server::start();
    let (store, limit) = (server.store(), slow_limit(7));
    let limiter = limiter(&store, 7);
    let mut full_at = 0;
    for _ in 0..7 {
        let decision = limiter.take("a".to_owned(), now()).await;
        let server_us = decision.full_at_us - limit.period_us / 7;
        assert!(decision.allowed && decision.full_at_us > full_at && server_us > 0);
        full_at = decision.full_at_us;
    }
    let at = now();
    // As this instance decides alone at the time of the server.
    let alone = || gcra::peek(limit, full_at, store.server_us(at));
    let refused = limiter.take("a".to_owned(), at).await;
    assert_eq!(refused, alone());
    let decided = (refused.allowed, refused.remaining, refused.full_at_us);
    assert_eq!(decided, (false, 0, full_at));
    assert_eq!(limiter.peek(&"a".to_owned(), at).await, alone());
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
    assert_eq!(allowed(&limiter(&store, 60), 1).await, 1);
    // Without that of a probe.
    let names: Vec<String> = server.ask(&["KEYS", "*:test"]).await;
    let [name] = &names[..] else {
        panic!("{names:?}")
    };
    let ahead = now().as_microsecond() + 2 * slow_limit(60).period_us;
    server.restore(name, ahead.to_string().as_bytes()).await;

    let refused = limiter(&store, 60).take("a".to_owned(), now()).await;
    assert_eq!((refused.allowed, refused.remaining), (false, 0));
    let lowered: String = server.ask(&["GET", name]).await;
    assert_eq!(
        lowered,
        refused.full_at_us.to_string(),
        "it refills from now on"
    );
}

#[tokio::test]
async fn server_that_was_emptied_is_corrected() {
    let server = Server::start();
    let (one, two) = (server.store(), server.store());
    let (here, there) = (limiter(&one, 60), limiter(&two, 60));
    assert_eq!(allowed(&here, 50).await, 50);
    server.run(&["FLUSHALL"]).await;
    let remaining = here.take("a".to_owned(), now()).await.remaining;
    assert!((9..=15).contains(&remaining), "{remaining}");
    assert!(there.peek(&"a".to_owned(), now()).await.remaining <= remaining + 5);
}
