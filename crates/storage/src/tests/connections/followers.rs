//! Who waits for the rows of a connection.

use bellbird_domain::UserId;
use jiff::SignedDuration;

use crate::job_kinds::{REFRESH, SYNC};
use crate::tests::fixtures::{
    SYNCS_AND_CHANGES, connection_to_sync, empty_sync, endpoint, start_sync,
};
use crate::tests::support::{at, both};
use crate::{Followers, in_tx};

both! {
    async fn followers_are_endpoints_and_requests(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let id = connection_to_sync(db, user, "c", 0).await;
        let followers = async || db.syncs().find_followers(user, id).await.unwrap();
        let nobody = Followers {
            has_endpoint: false,
            last_changes_poll_at: None,
            rows_backfill_began_at: at(0),
            synced_at: None,
            has_unread: false,
            refreshed_at: None,
        };
        assert_eq!(followers().await, Some(nobody));
        assert_eq!(db.syncs().find_followers(other, id).await.unwrap(), None, "of another user");

        let job = start_sync(db, user, id, 5).await;
        db.syncs().finish(&job, &empty_sync(5)).await.unwrap();
        db.claim(REFRESH, user, id, at(6), at(9)).await.unwrap().expect("claimed");
        let synced = Followers { synced_at: Some(at(5)), refreshed_at: Some(at(6)), ..nobody };
        assert_eq!(followers().await, Some(synced));

        assert!(in_tx!(db, syncs::request((user, id), at(20), SignedDuration::ZERO)).await.unwrap());
        let followed = Followers { last_changes_poll_at: Some(at(20)), ..synced };
        assert_eq!(followers().await, Some(followed));
        let state = db.syncs().find(user, id).await.unwrap().expect("there");
        assert_eq!((state.last_changes_poll_at, state.next_at), (Some(at(20)), Some(at(20))), "and it is due");
        assert!(!in_tx!(db, syncs::request((other, id), at(30), SignedDuration::ZERO)).await.unwrap());
        db.syncs().set_last_changes_poll(other, id, at(30)).await.unwrap();
        assert_eq!(followers().await, Some(followed), "others change nothing");

        endpoint(db, other, SYNCS_AND_CHANGES).await;
        assert_eq!(followers().await, Some(followed));
        for owner in [user, UserId::INSTALLATION] {
            let endpoint = endpoint(db, owner, SYNCS_AND_CHANGES).await;
            assert_eq!(followers().await, Some(Followers { has_endpoint: true, ..followed }));
            in_tx!(db, endpoints::disable((owner, endpoint), "for a test", at(40))).await.unwrap().expect("there");
            assert_eq!(followers().await, Some(followed), "disabled");
        }
    }
}

both! {
    async fn run_that_was_asked_for_is_charged_to_the_user(db) {
        let user = db.user("a@x").await.id;
        let id = connection_to_sync(db, user, "c", 0).await;
        let request = async |now| {
            assert!(in_tx!(db, syncs::request((user, id), at(now), SignedDuration::ZERO)).await.unwrap());
        };
        let claim = async |now| db.claim_due(SYNC, at(now), at(now + 100), 1).await.unwrap().remove(0);
        request(10).await;
        let asked = claim(10).await;
        assert!(asked.is_requested);
        db.jobs().fail(&asked, "failed", at(20)).await.unwrap();
        let repeated = claim(20).await;
        assert!(repeated.is_requested);
        db.jobs().finish(&repeated, Some(at(30))).await.unwrap();
        let scheduled = claim(30).await;
        assert!(!scheduled.is_requested);
        request(31).await;
        db.jobs().finish(&scheduled, Some(at(90))).await.unwrap();
        assert!(claim(31).await.is_requested, "it was asked for meanwhile");
    }
}
