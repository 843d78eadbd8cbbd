//! Instances that renew their row, stop, or are killed.

use bellbird_domain::Clock;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::tests::support::{at, both};
use crate::{Instance, Storage};

fn new_instance(number: u128) -> Instance {
    Instance {
        id: Uuid::from_u128(number),
        version: "0.1.0".to_owned(),
        host: format!("web-{number}"),
        api_url: "http://127.0.0.1:8080".to_owned(),
        console_url: "https://bellbird.example".to_owned(),
        key_ids: vec!["2027".to_owned(), "2026".to_owned()],
        allow_loopback: number == 1,
        started_at: at(0),
        last_seen_at: at(0),
    }
}

/// The machines of the instances that are alive.
async fn hosts(db: &Storage, now: Timestamp) -> Vec<String> {
    db.instances().list(now).await.unwrap().into_iter().map(|instance| instance.host).collect()
}

both! {
    async fn instance_is_alive_until_it_stops(db) {
        let (first, second) = (new_instance(1), new_instance(2));
        db.instances().renew(&first, at(0)).await.unwrap();
        db.instances().renew(&second, at(5)).await.unwrap();
        let listed = db.instances().list(at(6)).await.unwrap();
        assert_eq!(listed, [first.clone(), Instance { last_seen_at: at(5), ..second }]);
        db.instances().delete(first.id).await.unwrap();
        db.instances().delete(first.id).await.unwrap();
        assert_eq!(hosts(db, at(6)).await, ["web-2"]);
    }

    async fn killed_instance_is_dead_after_its_timeout(db) {
        db.instances().renew(&new_instance(1), at(0)).await.unwrap();
        db.instances().renew(&new_instance(2), at(0)).await.unwrap();
        db.instances().renew(&new_instance(2), at(10)).await.unwrap();
        assert_eq!(db.instances().delete_dead(at(29)).await.unwrap(), 0);
        assert_eq!(hosts(db, at(29)).await, ["web-1", "web-2"]);
        assert_eq!(hosts(db, at(30)).await, ["web-2"]);
        assert_eq!(db.instances().delete_dead(at(30)).await.unwrap(), 1);
        // It was not killed, only cut off from the database.
        db.instances().renew(&new_instance(1), at(31)).await.unwrap();
        assert_eq!(hosts(db, at(32)).await, ["web-1", "web-2"]);
        assert_eq!(db.instances().delete_all().await.unwrap(), 2);
        assert_eq!(hosts(db, at(32)).await, [""; 0]);
    }

    async fn all_instances_use_one_clock(db) {
        let (before, wrong) = (Clock::system().now(), at(0));
        let time = db.instances().database_time(wrong).await.unwrap();
        if db.kind() == "sqlite" {
            assert_eq!(time, wrong);
        } else {
            // The test server runs on this machine.
            let ahead = time.duration_since(before);
            assert!(ahead.abs() < SignedDuration::from_mins(1), "{ahead}");
        }
    }
}
