//! Endpoints and their signing secrets.

use bellbird_domain::{ApiVersion, DeliveryState, EndpointId, EndpointStatus, EventType, UserId};
use secrecy::{ExposeSecret as _, SecretString};

use crate::tests::fixtures::{
    SECRET, attempt, chunk, claimed_endpoint, connection_to_sync, endpoint, finish_sync_with,
    rotate_secret, secret,
};
use crate::tests::support::{TestDb, assert_fails, at, both};
use crate::{
    AttemptOutcome, DISABLED_BY_COMMAND, DISABLED_BY_OPERATOR, DISABLED_BY_USER, Endpoint,
    EndpointChange, EndpointSecrets, NewEndpoint, SealError, Sealer, Storage, StorageError, in_tx,
};

async fn insert(db: &Storage, user: UserId, max: u32, now: i64) -> Result<Endpoint, StorageError> {
    let secret = secret(SECRET);
    let new = NewEndpoint {
        user_id: user,
        url: "https://h.example.com",
        event_types: EventType::SUBSCRIBABLE,
        api_version: ApiVersion::DEFAULT,
        secret: &secret,
    };
    in_tx!(db, endpoints::insert(db.secrets(), &new, max, at(now))).await
}

async fn secrets(db: &Storage, user: UserId, id: EndpointId, now: i64) -> (String, Option<String>) {
    let found = db
        .endpoints()
        .secrets(user, id, at(now))
        .await
        .unwrap()
        .expect("there");
    let text = |secret: SecretString| secret.expose_secret().to_owned();
    (text(found.current), found.old.map(text))
}

async fn find(db: &TestDb, id: EndpointId) -> Endpoint {
    db.endpoints().find_any(id).await.unwrap().expect("there")
}

both! {
    async fn finds_what_was_added_and_changed(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let made = insert(db, user, 20, 5).await.unwrap();
        assert_eq!(
            (made.user_id, made.url.as_str(), made.event_types.as_slice()),
            (user, "https://h.example.com", EventType::SUBSCRIBABLE)
        );
        assert_eq!(
            (made.api_version, made.status, made.created_at),
            (ApiVersion::DEFAULT, EndpointStatus::Enabled, at(5))
        );
        let early = insert(db, user, 20, 1).await.unwrap();
        let strange = insert(db, other, 20, 3).await.unwrap();
        assert_eq!(find(db, made.id).await, made);
        assert_eq!(db.endpoints().list(user).await.unwrap(), [early.clone(), made.clone()]);
        assert_eq!(db.endpoints().list_all().await.unwrap(), [early, strange, made.clone()]);
        assert_eq!(db.endpoints().find_any(EndpointId::new()).await.unwrap(), None);
        assert_eq!(db.endpoints().list(UserId::new()).await.unwrap(), []);
        assert_eq!(db.revision(user).await, 0);

        let events = [EventType::SUBSCRIBABLE[1]];
        // Each of two commands has read the endpoint before the other one changes it.
        for change in [
            EndpointChange { url: Some("https://new.example.com"), ..EndpointChange::default() },
            EndpointChange { event_types: Some(&events), ..EndpointChange::default() },
            EndpointChange { api_version: Some(ApiVersion::NEWEST), ..EndpointChange::default() },
        ] {
            assert!(in_tx!(db, endpoints::update((user, made.id), &change)).await.unwrap());
        }
        let theirs = EndpointChange { url: Some("https://other.example.com"), ..EndpointChange::default() };
        assert!(!in_tx!(db, endpoints::update((other, made.id), &theirs)).await.unwrap());
        let (url, event_types, api_version) =
            ("https://new.example.com".to_owned(), events.to_vec(), ApiVersion::NEWEST);
        let expected = Endpoint { url, event_types, api_version, ..made };
        assert_eq!(find(db, expected.id).await, expected);

        for (change, what) in [
            ("status = 'sleeping'", "the status of an endpoint"),
            ("status = 'enabled', event_types = 'transactions.synced,rumours'", "the type of an event"),
            ("event_types = '', api_version = '1999'", "an API version"),
        ] {
            db.raw(&format!("UPDATE webhook_endpoints SET {change}")).await;
            assert_fails!(db.endpoints().find_any(expected.id).await, Corrupt(part) if *part == what);
        }
        db.raw("UPDATE webhook_endpoints SET api_version = '2026-11-01'").await;
        assert_eq!(find(db, expected.id).await.event_types, []);
    }

    async fn endpoints_per_user_are_limited(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let handles = [db.reopen().await, db.reopen().await];
        insert(db, other, 1, 0).await.unwrap();
        insert(db, user, 2, 0).await.unwrap();
        let (one, two) = tokio::join!(insert(&handles[0], user, 2, 0), insert(&handles[1], user, 2, 0));
        let (made, rejected): (Vec<_>, Vec<_>) = [one, two].into_iter().partition(Result::is_ok);
        assert_eq!(made.len(), 1);
        assert_fails!(rejected[0], Conflict("endpoints"));
        assert_eq!((db.endpoints().list(user).await.unwrap().len(), db.secrets_for("webhook").await), (2, 3));
        assert_fails!(insert(db, UserId::new(), 2, 0).await, NotFound("user"));
    }

    async fn old_secret_is_valid_until_it_expires(db) {
        let user = db.user("a@x").await.id;
        let id = endpoint(db, user, EventType::SUBSCRIBABLE).await;
        assert_eq!(secrets(db, user, id, 0).await, (SECRET.to_owned(), None));
        assert!(rotate_secret(db, (user, id), "second", 100).await);
        assert_eq!(secrets(db, user, id, 99).await, ("second".to_owned(), Some(SECRET.to_owned())));
        assert_eq!(secrets(db, user, id, 100).await, ("second".to_owned(), None));
        assert!(rotate_secret(db, (user, id), "third", 200).await);
        assert_eq!(secrets(db, user, id, 50).await, ("third".to_owned(), Some("second".to_owned())));
        assert_eq!((db.secrets_for("webhook").await, db.secrets_for("old_webhook").await), (1, 1));
        for (user, id) in [(UserId::new(), id), (user, EndpointId::new()), (db.user("b@x").await.id, id)] {
            assert!(!rotate_secret(db, (user, id), "no", 200).await);
            assert!(db.endpoints().secrets(user, id, at(0)).await.unwrap().is_none());
        }
        assert_eq!(db.secrets().count().await.unwrap(), 2, "nothing changed");
        assert_eq!(db.endpoints().delete_old_secrets(at(199)).await.unwrap(), 0);
        assert_eq!(db.endpoints().delete_old_secrets(at(200)).await.unwrap(), 1);
        let shown = EndpointSecrets { current: secret("hidden"), old: Some(secret("hidden")) };
        assert!(!format!("{shown:?}").contains("hidden"));
    }

    async fn unopenable_secret_is_replaced(db) {
        let user = db.user("a@x").await.id;
        let id = endpoint(db, user, EventType::SUBSCRIBABLE).await;
        assert!(rotate_secret(db, (user, id), "second", 100).await);
        let other_key = Storage::open(&db.url, Sealer::random()).await.unwrap();
        assert_fails!(other_key.endpoints().secrets(user, id, at(0)).await, Sealed(SealError::DoesNotOpen));
        assert!(rotate_secret(&other_key, (user, id), "third", 100).await);
        assert_eq!(secrets(&other_key, user, id, 0).await, ("third".to_owned(), None));
        assert_eq!((db.secrets_for("webhook").await, db.secrets_for("old_webhook").await), (1, 0));
    }

    async fn disabling_fails_unfinished_deliveries(db) {
        let user = db.user("a@x").await.id;
        let connection = connection_to_sync(db, user, "c", 20).await;
        let (id, other) =
            (endpoint(db, user, EventType::SUBSCRIBABLE).await, endpoint(db, user, EventType::SUBSCRIBABLE).await);
        let events = [chunk(1, 3), chunk(2, 3), chunk(3, 3)];
        let (run, _) = finish_sync_with(db, (user, connection), 20, &events).await;
        let claim = claimed_endpoint(db, id, 30).await;
        assert!(attempt(db, &claim, (&events[0], run), 32, AttemptOutcome::Delivered).await);
        assert_eq!(in_tx!(db, endpoints::disable((user, id), "by command", at(40))).await.unwrap(), Some(2));
        let found = find(db, id).await;
        assert_eq!((found.status, found.disabled_reason.as_deref()), (EndpointStatus::Disabled, Some("by command")));
        assert!(!db.deliveries().release_endpoint(&claim, at(41)).await.unwrap(), "the lease was lost");
        assert!(!attempt(db, &claim, (&events[1], run), 42, AttemptOutcome::Delivered).await);
        assert_eq!(db.deliveries().list_due(&claim, at(99), 9).await.unwrap(), []);
        let failed = db.deliveries().list(user, id, Some(DeliveryState::Failed), 9).await.unwrap();
        assert_eq!(failed.len(), 2);
        for delivery in failed {
            assert_eq!(
                (delivery.last_error.as_deref(), delivery.ended_at, delivery.next_attempt_at),
                (Some("endpoint disabled"), Some(at(40)), None)
            );
        }
        assert_eq!(db.deliveries().list(user, other, Some(DeliveryState::Failed), 9).await.unwrap(), []);
        // New events are stored as failed, so that they can be recovered.
        let later = [chunk(1, 2), chunk(2, 2)];
        assert_eq!(finish_sync_with(db, (user, connection), 60, &later).await.1, 2, "for the other endpoint");
        assert_eq!(db.deliveries().list(user, id, Some(DeliveryState::Failed), 9).await.unwrap().len(), 4);
        assert_eq!(in_tx!(db, endpoints::disable((user, id), "gone", at(70))).await.unwrap(), Some(0));
        assert_eq!(in_tx!(db, endpoints::disable((UserId::new(), id), "gone", at(70))).await.unwrap(), None);
        assert_eq!(in_tx!(db, endpoints::disable((user, EndpointId::new()), "gone", at(70))).await.unwrap(), None);
        assert!(in_tx!(db, endpoints::disable((user, other), "by command", at(70))).await.unwrap().is_some());
        assert_eq!(finish_sync_with(db, (user, connection), 80, &[chunk(1, 1)]).await.1, 0, "none is sent");
        assert_eq!(db.deliveries().list(user, id, Some(DeliveryState::Failed), 9).await.unwrap().len(), 5);
    }

    async fn what_was_disabled_on_purpose_is_paused(db) {
        let user = db.user("a@x").await.id;
        let id = endpoint(db, user, EventType::SUBSCRIBABLE).await;
        assert!(!find(db, id).await.is_paused());
        for (reason, is_paused) in [
            (DISABLED_BY_USER, true),
            (DISABLED_BY_OPERATOR, true),
            (DISABLED_BY_COMMAND, true),
            ("failing", false),
            ("gone", false),
            ("address not allowed", false),
            ("secret broken", false),
            ("database restored", false),
        ] {
            in_tx!(db, endpoints::disable((user, id), reason, at(1))).await.unwrap().expect("there");
            assert_eq!(find(db, id).await.is_paused(), is_paused, "{reason}");
            let disabled = db.deliveries().overview(at(2)).await.unwrap().disabled;
            assert_eq!(disabled, u64::from(!is_paused), "{reason}");
            let listed = async |paused| db.endpoints().list_troubled_after(None, paused, 9).await.unwrap().len();
            assert_eq!((listed(true).await, listed(false).await), (1, usize::from(!is_paused)), "{reason}");
        }
    }

    async fn enabling_resets_failures(db) {
        let user = db.user("a@x").await.id;
        let connection = connection_to_sync(db, user, "c", 20).await;
        let id = endpoint(db, user, EventType::SUBSCRIBABLE).await;
        finish_sync_with(db, (user, connection), 20, &[chunk(1, 1)]).await;
        db.raw(&format!("UPDATE webhook_queues SET failing_since = {}", at(3).as_microsecond())).await;
        in_tx!(db, endpoints::disable((user, id), "failing", at(40))).await.unwrap().expect("there");
        assert_eq!(find(db, id).await.failing_since, Some(at(3)));
        assert!(!in_tx!(db, endpoints::enable((UserId::new(), id), at(100))).await.unwrap());
        assert!(in_tx!(db, endpoints::enable((user, id), at(100))).await.unwrap());
        let found = find(db, id).await;
        assert_eq!((found.status, found.disabled_reason, found.failing_since), (EndpointStatus::Enabled, None, None));
        assert!(!in_tx!(db, endpoints::enable((user, EndpointId::new()), at(100))).await.unwrap());
    }

    async fn deleting_endpoint_deletes_its_rows(db) {
        let user = db.user("a@x").await.id;
        let connection = connection_to_sync(db, user, "c", 20).await;
        let (id, kept) =
            (endpoint(db, user, EventType::SUBSCRIBABLE).await, endpoint(db, user, EventType::SUBSCRIBABLE).await);
        assert!(rotate_secret(db, (user, id), "second", 100).await);
        let events = [chunk(1, 1)];
        let (run, _) = finish_sync_with(db, (user, connection), 20, &events).await;
        let claim = claimed_endpoint(db, id, 30).await;
        assert!(attempt(db, &claim, (&events[0], run), 32, AttemptOutcome::Failed).await);
        assert!(!in_tx!(db, endpoints::delete((UserId::new(), id))).await.unwrap());
        assert!(in_tx!(db, endpoints::delete((user, id))).await.unwrap());
        assert!(!in_tx!(db, endpoints::delete((user, id))).await.unwrap());
        for (table, rows) in
            [("webhook_endpoints", 1), ("webhook_queues", 1), ("webhook_deliveries", 1), ("webhook_events", 1)]
        {
            assert_eq!(db.rows(table).await, rows, "{table}");
        }
        assert_eq!((db.secrets_for("webhook").await, db.secrets_for("old_webhook").await), (1, 0));
        assert_eq!(db.deliveries().list(user, kept, None, 9).await.unwrap().len(), 1);
        assert!(!db.deliveries().release_endpoint(&claim, at(41)).await.unwrap());
    }
}
