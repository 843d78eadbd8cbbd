//! Leases that an instance took whose clock was ahead.

use bellbird_domain::EventType;

use crate::tests::fixtures::{chunk, connection_to_sync, endpoint, finish_sync_with};
use crate::tests::support::{at, both};
use crate::{JobKey, LEASE_LEFT_MAX};

const DAY: i64 = 86_400;

both! {
    async fn job_of_a_clock_ahead_is_claimed_again(db) {
        let key = JobKey::of_service("test");
        db.jobs().insert(&key, "", at(0)).await.unwrap();
        let ahead = db.jobs().claim_due("test", "", at(DAY), at(DAY + 60)).await.unwrap().expect("due");
        assert_eq!(db.jobs().claim_due("test", "", at(10), at(70)).await.unwrap(), None);
        assert_eq!(db.jobs().end_overlong_leases(at(10)).await.unwrap(), 1);
        let claim = db.jobs().claim_due("test", "", at(10), at(70)).await.unwrap().expect("the lease ended");
        assert!(!db.jobs().finish(&ahead, None).await.unwrap(), "it lost its lease");
        assert_eq!(db.jobs().end_overlong_leases(at(10)).await.unwrap(), 0, "a lease of its usual length");
        assert!(db.jobs().finish(&claim, None).await.unwrap());
    }

    async fn job_is_claimed_by_its_key_despite_a_clock_ahead(db) {
        let key = JobKey::of_service("test");
        db.jobs().insert(&key, "", at(0)).await.unwrap();
        assert!(db.jobs().claim(&key, at(DAY), at(DAY + 60)).await.unwrap().is_some());
        assert!(db.jobs().claim(&key, at(10), at(70)).await.unwrap().is_some());
        assert!(db.jobs().claim(&key, at(11), at(71)).await.unwrap().is_none(), "a lease of its usual length");
    }

    async fn endpoint_of_a_clock_ahead_is_claimed_again(db) {
        let user = db.user("a@x").await.id;
        let connection = connection_to_sync(db, user, "c", 20).await;
        endpoint(db, user, EventType::SUBSCRIBABLE).await;
        finish_sync_with(db, (user, connection), 20, &[chunk(1, 1)]).await;
        assert_eq!(db.deliveries().claim_endpoints(at(DAY), at(DAY + 60), 8, false).await.unwrap().len(), 1);
        assert_eq!(db.deliveries().claim_endpoints(at(30), at(90), 8, false).await.unwrap(), []);
        let early = at(DAY + 60).checked_sub(LEASE_LEFT_MAX).unwrap();
        assert_eq!(db.jobs().end_overlong_leases(early).await.unwrap(), 0, "not longer than that");
        assert_eq!(db.jobs().end_overlong_leases(at(30)).await.unwrap(), 1);
        assert_eq!(db.deliveries().claim_endpoints(at(30), at(90), 8, false).await.unwrap().len(), 1);
    }
}
