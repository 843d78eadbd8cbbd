//! Instances that renew their row, stop, or are killed.

use bellbird_domain::Clock;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::tests::fixtures::{
    SYNCS_AND_CHANGES, chunk, connection_to_sync, endpoint, finish_sync_with,
};
use crate::tests::support::{at, both, connect, on_postgres};
use crate::{Instance, JobKey, ProviderCalls, Storage};

pub(crate) fn new_instance(number: u128) -> Instance {
    Instance {
        id: Uuid::from_u128(number),
        version: "0.1.0".to_owned(),
        host: format!("web-{number}"),
        api_url: "http://127.0.0.1:8080".to_owned(),
        roles: vec!["api".to_owned(), "worker".to_owned()],
        boot_id: "the first boot".to_owned(),
        console_url: "https://bellbird.example".to_owned(),
        key_ids: vec!["2027".to_owned(), "2026".to_owned()],
        settings: [("limits".to_owned(), "00ff00ff".to_owned())].into(),
        allow_loopback: number == 1,
        started_at: at(0),
        last_seen_at: at(0),
        clock_ahead_ms: -12,
        provider_calls: [("fiskil".to_owned(), calls(number as u64, at(0)))].into(),
    }
}

/// One call that succeeded, and then so many that failed.
fn calls(failed: u64, succeeded_at: Timestamp) -> ProviderCalls {
    ProviderCalls {
        calls: failed + 1,
        failed,
        failed_in_a_row: failed,
        succeeded_at: Some(succeeded_at),
        failed_at: Some(succeeded_at + SignedDuration::from_secs(1)),
        error: Some(format!("{failed} failed")),
        is_paused: false,
    }
}

#[test]
fn calls_of_instances_are_summed_and_a_success_ends_failures() {
    let (early, late) = (calls(3, at(0)), calls(2, at(5)));
    for sum in [early.clone().and(late.clone()), late.and(early.clone())] {
        let expected = ProviderCalls {
            calls: 7,
            failed: 5,
            failed_in_a_row: 2,
            ..calls(2, at(5))
        };
        assert_eq!(sum, expected);
    }
    assert_eq!(early.clone().and(ProviderCalls::default()), early);
}

/// The machines of the instances that are alive.
async fn hosts(db: &Storage, now: Timestamp) -> Vec<String> {
    db.instances()
        .list(now)
        .await
        .unwrap()
        .into_iter()
        .map(|instance| instance.host)
        .collect()
}

/// Claims queues until 90.
async fn claimed_queues(db: &Storage, now: i64) -> usize {
    let deliveries = db.deliveries();
    let claims = deliveries.claim_endpoints(at(now), at(90), 8, false).await;
    claims.unwrap().len()
}

both! {
    async fn instance_is_alive_until_it_stops_or_is_killed(db) {
        let (mut first, second) = (new_instance(1), new_instance(2));
        db.instances().renew(&new_instance(1), at(0)).await.unwrap();
        first.provider_calls.clear();
        first.console_url = "https://entered.example".to_owned();
        db.instances().renew(&first, at(0)).await.unwrap();
        db.instances().renew(&second, at(5)).await.unwrap();
        let listed = db.instances().list(at(6)).await.unwrap();
        assert_eq!(listed, [first.clone(), Instance { last_seen_at: at(5), ..second }]);
        db.instances().delete(first.id).await.unwrap();
        db.instances().delete(first.id).await.unwrap();
        assert_eq!(hosts(db, at(6)).await, ["web-2"]);
        db.instances().delete(new_instance(2).id).await.unwrap();

        // One that was killed is dead after its timeout.
        db.instances().renew(&new_instance(1), at(0)).await.unwrap();
        db.instances().renew(&new_instance(2), at(0)).await.unwrap();
        db.instances().renew(&new_instance(2), at(10)).await.unwrap();
        assert_eq!(db.instances().delete_dead(at(19)).await.unwrap(), 0);
        assert_eq!(hosts(db, at(19)).await, ["web-1", "web-2"]);
        assert_eq!(hosts(db, at(20)).await, ["web-2"]);
        assert_eq!(db.instances().delete_dead(at(20)).await.unwrap(), 1);
        // It was not killed, only cut off from the database.
        db.instances().renew(&new_instance(1), at(21)).await.unwrap();
        assert_eq!(hosts(db, at(22)).await, ["web-1", "web-2"]);
        assert_eq!(db.instances().delete_all().await.unwrap(), 2);
        assert_eq!(hosts(db, at(22)).await, [""; 0]);
    }

    async fn leases_end_with_their_instance(db) {
        let (dead, alive) = (new_instance(1), new_instance(2));
        let (dead_db, alive_db) = (db.storage().held_by(dead.id), db.storage().held_by(alive.id));
        db.instances().renew(&dead, at(0)).await.unwrap();
        db.instances().renew(&alive, at(15)).await.unwrap();
        let user = db.user("a@x").await.id;
        let connection = connection_to_sync(db, user, "c", 0).await;
        endpoint(db, user, SYNCS_AND_CHANGES).await;
        finish_sync_with(db, (user, connection), 0, &[chunk(1, 1)]).await;
        for kind in ["of_dead", "of_alive", "of_command"] {
            db.jobs().insert(&JobKey::of_service(kind), "", at(0)).await.unwrap();
        }
        let lost = dead_db.jobs().claim_due("of_dead", "", at(1), at(90)).await.unwrap().expect("due");
        assert!(!lost.was_interrupted);
        assert!(alive_db.jobs().claim_due("of_alive", "", at(1), at(90)).await.unwrap().is_some());
        assert!(db.jobs().claim(&JobKey::of_service("of_command"), at(1), at(90)).await.unwrap().is_some());
        assert_eq!(dead_db.deliveries().claim_endpoints(at(1), at(90), 8, false).await.unwrap().len(), 1);

        assert_eq!(db.instances().delete_dead(at(19)).await.unwrap(), 0);
        assert_eq!(alive_db.jobs().claim_due("of_dead", "", at(19), at(90)).await.unwrap(), None);
        assert_eq!(db.instances().delete_dead(at(20)).await.unwrap(), 1);
        for kind in ["of_alive", "of_command"] {
            assert_eq!(alive_db.jobs().claim_due(kind, "", at(20), at(90)).await.unwrap(), None, "{kind}");
        }
        let claim = alive_db.jobs().claim_due("of_dead", "", at(20), at(90)).await.unwrap().expect("free");
        assert_eq!((claim.was_interrupted, claim.attempts), (true, 1));
        assert!(!dead_db.jobs().finish(&lost, None).await.unwrap(), "it was only paused, and its fence is lost");
        assert!(alive_db.jobs().finish(&claim, None).await.unwrap());
        let endpoints = alive_db.deliveries().claim_endpoints(at(20), at(90), 8, false).await.unwrap();
        assert_eq!(endpoints.len(), 1);

        let restarted = Instance { id: Uuid::from_u128(3), ..alive.clone() };
        let of_its_name = Instance { boot_id: "of another machine".to_owned(), ..restarted.clone() };
        for other in [new_instance(1), of_its_name] {
            assert_eq!(db.instances().delete_predecessors(&other).await.unwrap(), 0, "{other:?}");
        }
        let unknown = Instance { id: Uuid::from_u128(4), boot_id: String::new(), ..alive.clone() };
        db.instances().renew(&unknown, at(20)).await.unwrap();
        let as_unknown = Instance { id: Uuid::from_u128(5), ..unknown };
        assert_eq!(db.instances().delete_predecessors(&as_unknown).await.unwrap(), 0);
        assert_eq!(db.instances().delete_predecessors(&restarted).await.unwrap(), 1);
        let freed = db.jobs().claim_due("of_alive", "", at(21), at(90)).await.unwrap();
        assert!(freed.is_some(), "another one listens there");
        assert_eq!(db.jobs().claim_due("of_command", "", at(21), at(90)).await.unwrap(), None);
    }

    async fn what_a_clock_ahead_planned_comes_earlier(db) {
        const HOUR: i64 = 3600;
        let key = JobKey::of_service("planned");
        db.jobs().insert(&key, "", at(HOUR)).await.unwrap();
        let user = db.user("a@x").await.id;
        let connection = connection_to_sync(db, user, "c", HOUR).await;
        endpoint(db, user, SYNCS_AND_CHANGES).await;
        finish_sync_with(db, (user, connection), HOUR, &[chunk(1, 1)]).await;
        let claim = db.jobs().claim_due("planned", "", at(HOUR), at(HOUR + 60)).await.unwrap().expect("due");
        assert!(db.jobs().request(&key, at(HOUR + 1), SignedDuration::ZERO).await.unwrap());
        let is_due = async |second: i64| {
            let endpoints = db.deliveries().claim_endpoints(at(second), at(second), 8, false).await.unwrap();
            !endpoints.is_empty()
        };
        assert!(!is_due(1).await);
        db.instances().bring_forward(at(2), SignedDuration::from_hours(1)).await.unwrap();
        assert!(is_due(1).await);
        assert!(db.jobs().finish(&claim, Some(at(90))).await.unwrap());
        let again = db.jobs().claim_due("planned", "", at(2), at(90)).await.unwrap();
        assert!(again.is_some(), "the run that was requested meanwhile is not lost");
    }

    async fn all_instances_use_one_clock(db) {
        let (clock, wrong) = (Clock::system(), at(0));
        let now = || clock.now().as_microsecond();
        let before = now();
        let time = db.instances().database_time(wrong).await.unwrap();
        if db.kind() == "sqlite" {
            assert_eq!(time, wrong);
        } else {
            // The test server runs on this machine.
            let (time, after) = (time.as_microsecond(), now());
            assert!((before..=after).contains(&time), "{before} {time} {after}");
        }
    }
}

/// The removal of a connection holds a queue and wants a job, and the end of a sync the reverse.
#[test]
fn postgres_frees_leases_without_waiting() {
    on_postgres(async |db| {
        let dead = new_instance(1);
        let dead_db = db.storage().held_by(dead.id);
        db.instances().renew(&dead, at(0)).await.unwrap();
        let user = db.user("a@x").await.id;
        let connection = connection_to_sync(db, user, "c", 0).await;
        endpoint(db, user, SYNCS_AND_CHANGES).await;
        finish_sync_with(db, (user, connection), 0, &[chunk(1, 1)]).await;
        for kind in ["idle", "in_use"] {
            let key = JobKey::of_service(kind);
            db.jobs().insert(&key, "", at(0)).await.unwrap();
            let claim = dead_db.jobs().claim_due(kind, "", at(1), at(90)).await;
            assert!(claim.unwrap().is_some());
        }
        assert_eq!(claimed_queues(&dead_db, 1).await, 1);

        let working = connect(&db.url).await;
        let locks = "BEGIN; UPDATE webhook_queues SET fence = fence;
            UPDATE jobs SET fence = fence WHERE kind = 'in_use'";
        working.batch_execute(locks).await.unwrap();
        assert_eq!(db.instances().delete_dead(at(20)).await.unwrap(), 1);
        working.batch_execute("COMMIT").await.unwrap();

        let job = async |kind: &'static str, now: i64| {
            let claim = db.jobs().claim_due(kind, "", at(now), at(99)).await;
            claim.unwrap().is_some()
        };
        assert!(job("idle", 20).await, "free at once");
        for (now, are_free) in [(89, false), (90, true)] {
            assert_eq!(
                job("in_use", now).await,
                are_free,
                "{now}: when its lease ends"
            );
            let queues = claimed_queues(db, now).await;
            assert_eq!(queues, usize::from(are_free), "{now}");
        }
    });
}
