use bellbird_domain::{KeyId, UserId};
use jiff::Timestamp;

use crate::tests::support::{TestDb, at, both, key};
use crate::{KeyReadCount, in_tx};

const DAY: i64 = 86_400;

/// A time after the midnight that follows `at(0)`.
fn after_midnight(seconds: i64) -> Timestamp {
    at(DAY - at(0).as_second().rem_euclid(DAY) + seconds)
}

async fn add(db: &TestDb, user_id: UserId, key_id: KeyId, requests: u64, now: i64) {
    let count = |route| KeyReadCount {
        user_id,
        key_id,
        route,
        requests,
    };
    db.key_reads()
        .add(
            &[count("/v1/accounts"), count("/v1/trades")],
            after_midnight(now),
        )
        .await
        .unwrap();
}

both! {
    async fn counts_are_added_up_and_forgotten_after_thirty_days(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let id = in_tx!(db, keys::insert(user, &key(1), "one", None, at(0))).await.unwrap().id;
        for (requests, now) in [(2, DAY - 1), (3, DAY), (1, DAY + 1)] {
            add(db, user, id, requests, now).await;
        }
        // No key of this user, and no key at all.
        add(db, other, id, 7, 0).await;
        add(db, user, KeyId::new(), 7, 0).await;
        let counted = async |now: i64| {
            let counts = db.key_reads().list(user, after_midnight(now)).await.unwrap();
            assert!(counts.iter().all(|count| count.key_id == id));
            counts.into_iter().map(|count| (count.route, count.requests)).collect::<Vec<_>>()
        };
        let both = |requests| vec![("/v1/accounts".to_owned(), requests), ("/v1/trades".to_owned(), requests)];
        assert_eq!(counted(2 * DAY).await, both(6));
        assert_eq!(counted(30 * DAY).await, both(4), "the first day is over");
        db.key_reads().delete_outdated(after_midnight(30 * DAY)).await.unwrap();
        assert_eq!(counted(2 * DAY).await, both(4));
        db.delete_user(user).await;
        assert_eq!(counted(2 * DAY).await, []);
    }
}
