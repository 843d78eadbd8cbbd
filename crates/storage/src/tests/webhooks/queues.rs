//! Endpoints of the installation, and their queues.

use bellbird_domain::{ApiVersion, DeliveryState, EndpointId, EndpointStatus, EventType, UserId};

use crate::tests::fixtures::{SYNCS_AND_CHANGES, chunk, empty_sync, endpoint, finish_sync_with, start_sync, states};
use crate::tests::support::{TestDb, at, both};
use crate::{ClaimedEndpoint, EventUser, FinishedSync, NewEndpoint, UserChange};

const OWNER: UserId = UserId::INSTALLATION;

async fn add(db: &TestDb, url: &str) -> EndpointId {
    let secret = "whsec_c2VjcmV0".to_owned().into();
    let new = NewEndpoint {
        user_id: OWNER,
        url,
        event_types: SYNCS_AND_CHANGES,
        api_version: ApiVersion::DEFAULT,
        secret: &secret,
    };
    db.endpoints().insert(&new, 2, at(0)).await.unwrap().id
}

/// A user with a connection whose sync has found `rows` chunks.
async fn synced(db: &TestDb, email: &str, chunks: u32) -> UserId {
    let user = db.user(email).await.id;
    let connection = db.connection(user, email, &[]).await.id;
    let events: Vec<_> = (1..=chunks).map(|number| chunk(number, chunks)).collect();
    finish_sync_with(db, (user, connection), 20, &events).await;
    user
}

async fn claims(db: &TestDb, now: i64) -> Vec<ClaimedEndpoint> {
    let mut claims = db.deliveries().claim_endpoints(at(now), at(now + 60), 99, false).await.unwrap();
    claims.sort_by_key(|claim| claim.user_id);
    claims
}

both! {
    async fn each_user_has_a_queue(db) {
        let shared = add(db, "https://all.example.com").await;
        let anna = synced(db, "a@x", 1).await;
        db.users().update(anna, &UserChange { reference: Some(Some("customer-1")), ..UserChange::default() }).await
            .unwrap();
        let own = endpoint(db, anna, SYNCS_AND_CHANGES).await;
        let ben = synced(db, "b@x", 3).await;
        db.user("quiet@x").await;

        let claims = claims(db, 30).await;
        let found: Vec<_> = claims.iter().map(|claim| (claim.user_id, claim.endpoint_id)).collect();
        assert_eq!(found, [(anna, shared), (ben, shared)], "the own endpoint had no event");
        let named: Vec<_> = claims.iter().map(|claim| (claim.owner(), claim.event_user.clone())).collect();
        let of = |id, reference: Option<&str>| Some(EventUser { id, reference: reference.map(str::to_owned) });
        assert_eq!(named, [(OWNER, of(anna, Some("customer-1"))), (OWNER, of(ben, None))]);
        assert!(db.endpoints().secrets(OWNER, shared, at(30)).await.unwrap().is_some());

        // Commands see one endpoint, and users see theirs only.
        let ids = |endpoints: Vec<crate::Endpoint>| endpoints.into_iter().map(|one| one.id).collect::<Vec<_>>();
        assert_eq!(ids(db.endpoints().list(anna).await.unwrap()), [own]);
        assert_eq!(ids(db.endpoints().list(ben).await.unwrap()), []);
        assert_eq!(ids(db.endpoints().list(OWNER).await.unwrap()), [shared]);
        assert_eq!(db.endpoints().list_all().await.unwrap().len(), 2);
        assert_eq!(db.endpoints().find_any(shared).await.unwrap().expect("one").user_id, OWNER);

        let all = db.deliveries().list(OWNER, shared, None, 99).await.unwrap();
        let mut users: Vec<_> = all.iter().map(|record| record.user_id).collect();
        users.sort_unstable();
        assert_eq!(users, [anna, ben, ben, ben]);
        assert_eq!(db.deliveries().list(OWNER, shared, None, 2).await.unwrap(), all[..2]);
        let waiting = Some(DeliveryState::Waiting);
        assert_eq!(db.deliveries().list(OWNER, shared, waiting, 99).await.unwrap().len(), 2);
        assert_eq!(db.deliveries().list(anna, shared, None, 99).await.unwrap().len(), 1);
    }

    async fn only_what_it_subscribes_to_makes_a_queue(db) {
        let secret = "whsec_c2VjcmV0".to_owned().into();
        let event_types = &[EventType::TradesSynced];
        let api_version = ApiVersion::DEFAULT;
        let new = NewEndpoint { user_id: OWNER, url: "https://t.example.com", event_types, api_version, secret: &secret };
        let shared = db.endpoints().insert(&new, 2, at(0)).await.unwrap().id;
        let user = synced(db, "a@x", 1).await;
        assert_eq!(states(db, user, shared).await, []);
        assert!(db.endpoints().list_queue_users(shared, OWNER, 9).await.unwrap().is_empty());
        assert_eq!(db.texts("SELECT id FROM webhook_endpoints WHERE queue_fence IS NOT NULL").await, [""; 0]);
    }

    async fn queues_follow_their_endpoint(db) {
        let shared = add(db, "https://old.example.com").await;
        let users = [synced(db, "a@x", 1).await, synced(db, "b@x", 1).await];
        let (url, types) = ("https://new.example.com", [EventType::TransactionsSynced]);
        assert!(db.endpoints().update(OWNER, shared, Some(url), Some(&types)).await.unwrap());
        assert_eq!(claims(db, 30).await[0].url, "https://old.example.com", "not aligned yet");
        assert_eq!(db.endpoints().align_queues(at(31)).await.unwrap(), 0);
        let again = claims(db, 100).await;
        assert_eq!(again.iter().map(|claim| &*claim.url).collect::<Vec<_>>(), [url, url], "they stay due");

        let disabled = db.endpoints().disable(OWNER, shared, "by command", at(101)).await.unwrap();
        assert_eq!(disabled, Some(0), "the endpoint itself has no delivery");
        assert_eq!(db.endpoints().align_queues(at(101)).await.unwrap(), 2, "each user's has failed");
        assert_eq!(db.endpoints().align_queues(at(101)).await.unwrap(), 0, "nothing is left to do");
        assert!(!db.deliveries().release_endpoint(&again[0], at(102)).await.unwrap(), "the lease is lost");
        let late = synced(db, "c@x", 1).await;
        assert_eq!(states(db, late, shared).await, [DeliveryState::Failed], "recovered later");

        assert!(db.endpoints().enable(OWNER, shared).await.unwrap());
        db.endpoints().align_queues(at(103)).await.unwrap();
        assert_eq!(db.deliveries().recover(OWNER, shared, at(0), at(104)).await.unwrap(), 3);
        for user in users.into_iter().chain([late]) {
            assert_eq!(states(db, user, shared).await, [DeliveryState::Pending]);
        }
    }

    async fn failing_for_one_user_spoils_no_other(db) {
        let shared = add(db, "https://all.example.com").await;
        let (anna, ben) = (synced(db, "a@x", 1).await, synced(db, "b@x", 1).await);
        let claims_before = claims(db, 30).await;
        let of_anna = claims_before.iter().find(|claim| claim.user_id == anna).expect("claimed");
        assert!(db.deliveries().disable_endpoint(of_anna, "gone", at(31)).await.unwrap());
        let shown = db.endpoints().find_any(shared).await.unwrap().expect("one");
        assert_eq!((shown.status, shown.disabled_users), (EndpointStatus::Enabled, 1));
        assert_eq!(states(db, anna, shared).await, [DeliveryState::Failed]);
        assert_eq!(states(db, ben, shared).await, [DeliveryState::Pending]);
        assert_eq!(db.endpoints().align_queues(at(32)).await.unwrap(), 0);
        assert_eq!(db.endpoints().find_any(shared).await.unwrap().expect("one").disabled_users, 1, "it stays so");
        assert!(db.endpoints().enable(OWNER, shared).await.unwrap());
        db.endpoints().align_queues(at(33)).await.unwrap();
        assert_eq!(db.endpoints().find_any(shared).await.unwrap().expect("one").disabled_users, 0);
        let overview = db.deliveries().overview(at(34)).await.unwrap();
        assert_eq!((overview.disabled, overview.failing), (0, 0));
    }

    async fn removed_endpoint_and_user_leave_nothing(db) {
        let (first, second) = (add(db, "https://1.example.com").await, add(db, "https://2.example.com").await);
        let secret = "whsec_c2VjcmV0".to_owned().into();
        let third = NewEndpoint {
            user_id: OWNER,
            url: "https://3.example.com",
            event_types: SYNCS_AND_CHANGES,
            api_version: ApiVersion::DEFAULT,
            secret: &secret,
        };
        assert!(db.endpoints().insert(&third, 2, at(0)).await.is_err(), "too many");
        let (anna, ben) = (synced(db, "a@x", 1).await, synced(db, "b@x", 1).await);
        assert!(db.endpoints().delete(OWNER, first).await.unwrap());
        assert_eq!(claims(db, 30).await.len(), 4, "a queue may outlive it until it is aligned");
        db.endpoints().align_queues(at(31)).await.unwrap();
        let queues = db.texts("SELECT id FROM webhook_endpoints WHERE queue_fence IS NOT NULL").await;
        assert_eq!(queues, [second.to_string(), second.to_string()]);
        assert_eq!(states(db, anna, first).await, []);
        assert_eq!(states(db, anna, second).await, [DeliveryState::Pending]);

        let connection = db.connections().list(ben).await.unwrap().remove(0).id;
        let removal = db.removals().begin(ben, connection, at(40), at(90)).await.unwrap().expect("hidden");
        assert!(db.removals().finish(&removal, "deleted", at(41)).await.unwrap());
        db.users().delete(ben).await.unwrap();
        assert_eq!(db.endpoints().list_queue_users(second, OWNER, 9).await.unwrap(), [anna]);
        assert!(db.endpoints().delete(OWNER, second).await.unwrap());
        db.endpoints().align_queues(at(50)).await.unwrap();
        assert_eq!(db.texts("SELECT id FROM webhook_endpoints").await, [""; 0]);
        for table in ["webhook_deliveries", "webhook_attempts"] {
            assert_eq!(db.texts(&format!("SELECT endpoint_id FROM {table}")).await, [""; 0], "{table}");
        }
        assert_eq!(db.texts("SELECT purpose FROM secrets WHERE purpose LIKE '%webhook%'").await, [""; 0]);
    }

    async fn sync_that_ends_after_its_user_leaves_no_queue(db) {
        let shared = add(db, "https://all.example.com").await;
        let user = db.user("a@x").await.id;
        let connection = db.connection(user, "c", &[]).await.id;
        let claim = start_sync(db, user, connection, 14).await;
        let removal = db.removals().begin(user, connection, at(15), at(90)).await.unwrap().expect("hidden");
        assert!(db.removals().finish(&removal, "deleted", at(16)).await.unwrap());
        db.users().delete(user).await.unwrap();
        let events = [chunk(1, 1)];
        let finished = FinishedSync { events: &events, ..empty_sync(17) };
        assert_eq!(db.syncs().finish(&claim, &finished).await.unwrap(), None);
        assert!(db.endpoints().list_queue_users(shared, OWNER, 9).await.unwrap().is_empty());

        // One that came to be all the same is deleted.
        db.raw(&format!(
            "INSERT INTO webhook_endpoints (user_id, id, url, event_types, api_version, status, created_at, queue_fence)
            VALUES ('{user}', '{shared}', 'https://x', '', '2026-11-01', 'enabled', 0, 99)"
        ))
        .await;
        assert_eq!(db.endpoints().align_queues(at(18)).await.unwrap(), 0);
        assert!(db.endpoints().list_queue_users(shared, OWNER, 9).await.unwrap().is_empty());
    }
}
