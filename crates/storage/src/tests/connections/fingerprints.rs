//! Fingerprints and their keys.

use bellbird_domain::{ConnectionId, Digest, EventType, Fingerprint, UserId};
use secrecy::ExposeSecret as _;

use crate::tests::fixtures::{
    chunk, connection_to_sync, empty_sync, endpoint, fingerprint, finish_sync_with, start_sync,
};
use crate::tests::support::{TestDb, at, both};
use crate::{FinishedSync, SealError, Sealer, Storage, StorageError};

/// Runs a sync that stores these fingerprints.
async fn store_fingerprints(
    db: &Storage,
    (user, id): (UserId, ConnectionId),
    now: i64,
    fingerprints: &[Fingerprint],
    prune_before: i64,
) {
    let claim = start_sync(db, user, id, now).await;
    let finished = FinishedSync { fingerprints, prune_before: Some(at(prune_before)), ..empty_sync(now) };
    db.finish_sync(&claim, &finished).await.unwrap().expect("finished");
}

async fn fingerprints(db: &TestDb, user: UserId, id: ConnectionId) -> Vec<(Fingerprint, i64)> {
    let mut fingerprints = db.list_fingerprints(user, id).await.unwrap();
    fingerprints.sort_unstable();
    fingerprints
        .into_iter()
        .map(|(fingerprint, seen_at)| (fingerprint, seen_at.as_second() - at(0).as_second()))
        .collect()
}

both! {
    async fn fingerprints_are_stored_and_pruned(db) {
        let user = db.user("a@x").await.id;
        let id = connection_to_sync(db, user, "c", 20).await;
        let other = connection_to_sync(db, user, "other", 20).await;
        store_fingerprints(db, (user, other), 10, &[fingerprint(1, 0, 9)], 0).await;
        store_fingerprints(
            db,
            (user, id),
            20,
            &[fingerprint(1, 0, 1), fingerprint(1, 1, 2), fingerprint(2, 0, 3), fingerprint(3, 0, 3)],
            0,
        )
        .await;
        assert_eq!(
            fingerprints(db, user, id).await,
            [
                (fingerprint(1, 0, 1), 20),
                (fingerprint(1, 1, 2), 20),
                (fingerprint(2, 0, 3), 20),
                (fingerprint(3, 0, 3), 20)
            ]
        );
        store_fingerprints(db, (user, id), 100, &[fingerprint(1, 1, 7), fingerprint(2, 0, 3)], 20).await;
        assert_eq!(
            fingerprints(db, user, id).await,
            [
                (fingerprint(1, 0, 1), 20),
                (fingerprint(1, 1, 7), 100),
                (fingerprint(2, 0, 3), 100),
                (fingerprint(3, 0, 3), 20)
            ]
        );
        store_fingerprints(db, (user, id), 200, &[fingerprint(4, u32::MAX, 255)], 21).await;
        assert_eq!(
            fingerprints(db, user, id).await,
            [(fingerprint(1, 1, 7), 100), (fingerprint(2, 0, 3), 100), (fingerprint(4, u32::MAX, 255), 200)]
        );
        assert_eq!(fingerprints(db, user, other).await, [(fingerprint(1, 0, 9), 10)], "another connection");
        assert_eq!(db.list_fingerprints(UserId::new(), id).await.unwrap(), []);
        // Duplicates in one sync are stored once.
        store_fingerprints(db, (user, other), 300, &[fingerprint(1, 0, 9), fingerprint(1, 0, 9)], 0).await;
        assert_eq!(fingerprints(db, user, other).await, [(fingerprint(1, 0, 9), 300)]);
    }

    async fn fingerprints_are_written_in_batches(db) {
        let user = db.user("a@x").await.id;
        let id = connection_to_sync(db, user, "c", 20).await;
        let all: Vec<Fingerprint> = (0..2501_u32)
            .map(|number| {
                let mut row = [0xff; 16];
                row[..4].copy_from_slice(&number.to_be_bytes());
                let mut content = [0x00; 16];
                content[12..].copy_from_slice(&number.to_be_bytes());
                Fingerprint { row: Digest(row), occurrence: number % 3, content: Digest(content) }
            })
            .collect();
        store_fingerprints(db, (user, id), 20, &all, 0).await;
        let found: Vec<Fingerprint> =
            fingerprints(db, user, id).await.into_iter().map(|(fingerprint, _)| fingerprint).collect();
        assert_eq!(found, all);
    }

    async fn fingerprint_key_is_created_once(db) {
        let user = db.user("a@x").await.id;
        let (id, other) =
            (connection_to_sync(db, user, "c", 20).await, connection_to_sync(db, user, "other", 20).await);
        let handles = [db.reopen().await, db.reopen().await];
        let (one, two) = tokio::join!(handles[0].fingerprint_key(user, id), handles[1].fingerprint_key(user, id));
        let (one, two) = (one.unwrap().expect("made"), two.unwrap().expect("made"));
        assert_eq!((one.expose_secret(), one.expose_secret().len()), (two.expose_secret(), 44));
        assert_eq!(db.fingerprint_key(user, id).await.unwrap().unwrap().expose_secret(), one.expose_secret());
        assert_ne!(db.fingerprint_key(user, other).await.unwrap().unwrap().expose_secret(), one.expose_secret());
        assert!(db.fingerprint_key(user, ConnectionId::new()).await.unwrap().is_none());
        assert!(db.fingerprint_key(UserId::new(), id).await.unwrap().is_none());
        assert_eq!(db.secrets_for("fingerprints").await, 2);
        let other_key = Storage::open(&db.url, Sealer::random()).await.unwrap();
        let error = other_key.fingerprint_key(user, id).await.unwrap_err();
        assert!(matches!(error, StorageError::Sealed(SealError::DoesNotOpen)), "{error:?}");
        db.begin_removal(user, id, at(20), at(90)).await.unwrap().expect("hidden");
        assert!(db.fingerprint_key(user, id).await.unwrap().is_none(), "it is being deleted");
    }

    async fn removal_deletes_fingerprints_and_events(db) {
        let user = db.user("a@x").await.id;
        let endpoint = endpoint(db, user, EventType::SUBSCRIBABLE).await;
        let (id, kept) = (connection_to_sync(db, user, "c", 20).await, connection_to_sync(db, user, "kept", 20).await);
        for connection in [id, kept] {
            db.fingerprint_key(user, connection).await.unwrap().expect("made");
            store_fingerprints(db, (user, connection), 20, &[fingerprint(1, 0, 1)], 0).await;
            finish_sync_with(db, (user, connection), 60, &[chunk(1, 2), chunk(2, 2)]).await;
        }
        assert!(db.remove(user, id, at(70)).await);
        let left = db.list_deliveries(user, endpoint, None, 9).await.unwrap();
        assert_eq!(left.len(), 2);
        for delivery in left {
            let event = db.find_webhook_event(user, delivery.event_id).await.unwrap().expect("there");
            assert_eq!(event.connection_id, Some(kept));
        }
        for (table, rows) in [("row_fingerprints", 1), ("webhook_events", 2), ("webhook_deliveries", 2)] {
            assert_eq!(db.texts(&format!("SELECT 'x' FROM {table}")).await.len(), rows, "{table}");
        }
        assert_eq!((db.secrets_for("fingerprints").await, db.secrets_for("credentials").await), (1, 1));
        assert!(db.fingerprint_key(user, kept).await.unwrap().is_some());
    }

    async fn digest_of_wrong_length_is_corrupt(db) {
        let user = db.user("a@x").await.id;
        let id = connection_to_sync(db, user, "c", 20).await;
        store_fingerprints(db, (user, id), 20, &[fingerprint(1, 0, 1)], 0).await;
        db.raw(&format!("UPDATE row_fingerprints SET content_digest = {}", db.bytes(&[1; 15]))).await;
        assert!(matches!(db.list_fingerprints(user, id).await, Err(StorageError::Corrupt(_))));
        db.raw(&format!("UPDATE row_fingerprints SET content_digest = {}, occurrence = -1", db.bytes(&[1; 16]))).await;
        assert!(matches!(db.list_fingerprints(user, id).await, Err(StorageError::Corrupt(_))));
    }
}
