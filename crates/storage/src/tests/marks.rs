//! What is remembered of rows.

use bellbird_domain::{ConnectionId, Digest, EventType, Mark, UserId};
use secrecy::ExposeSecret as _;

use super::endpoints::endpoint;
use super::syncs::{begin, chunk, nothing, synced, to_sync};
use super::{TestDb, at, both};
use crate::{FinishedSync, SealError, Sealer, Storage, StorageError};

pub(crate) fn digest(number: u8) -> Digest {
    Digest([number; 16])
}

pub(crate) fn mark(row: u8, occurrence: u32, content: u8) -> Mark {
    Mark { row: digest(row), occurrence, content: digest(content) }
}

/// A sync that sees these.
async fn see(db: &Storage, (user, id): (UserId, ConnectionId), now: i64, marks: &[Mark], prune_before: i64) {
    let claim = begin(db, user, id, now).await;
    let finished = FinishedSync { marks, prune_before: Some(at(prune_before)), ..nothing(now) };
    db.finish_sync(&claim, &finished).await.unwrap().expect("finished");
}

async fn marks(db: &TestDb, user: UserId, id: ConnectionId) -> Vec<(Mark, i64)> {
    let mut marks = db.list_marks(user, id).await.unwrap();
    marks.sort_unstable();
    marks.into_iter().map(|(mark, seen_at)| (mark, seen_at.as_second() - at(0).as_second())).collect()
}

both! {
    async fn what_was_seen_is_remembered_and_forgotten(db) {
        let user = db.user("a@x").await.id;
        let id = to_sync(db, user, "c", 20).await;
        let other = to_sync(db, user, "other", 20).await;
        see(db, (user, other), 10, &[mark(1, 0, 9)], 0).await;
        see(db, (user, id), 20, &[mark(1, 0, 1), mark(1, 1, 2), mark(2, 0, 3), mark(3, 0, 3)], 0).await;
        assert_eq!(marks(db, user, id).await, [(mark(1, 0, 1), 20), (mark(1, 1, 2), 20), (mark(2, 0, 3), 20), (mark(3, 0, 3), 20)]);
        see(db, (user, id), 100, &[mark(1, 1, 7), mark(2, 0, 3)], 20).await;
        assert_eq!(marks(db, user, id).await, [(mark(1, 0, 1), 20), (mark(1, 1, 7), 100), (mark(2, 0, 3), 100), (mark(3, 0, 3), 20)]);
        see(db, (user, id), 200, &[mark(4, u32::MAX, 255)], 21).await;
        assert_eq!(marks(db, user, id).await, [(mark(1, 1, 7), 100), (mark(2, 0, 3), 100), (mark(4, u32::MAX, 255), 200)]);
        assert_eq!(marks(db, user, other).await, [(mark(1, 0, 9), 10)], "another connection's");
        assert_eq!(db.list_marks(UserId::new(), id).await.unwrap(), []);
        // Twice in one go: it is one row all the same.
        see(db, (user, other), 300, &[mark(1, 0, 9), mark(1, 0, 9)], 0).await;
        assert_eq!(marks(db, user, other).await, [(mark(1, 0, 9), 300)]);
    }

    async fn many_marks_go_in_batches(db) {
        let user = db.user("a@x").await.id;
        let id = to_sync(db, user, "c", 20).await;
        let all: Vec<Mark> = (0..2501_u32)
            .map(|number| {
                let mut row = [0xff; 16];
                row[..4].copy_from_slice(&number.to_be_bytes());
                let mut content = [0x00; 16];
                content[12..].copy_from_slice(&number.to_be_bytes());
                Mark { row: Digest(row), occurrence: number % 3, content: Digest(content) }
            })
            .collect();
        see(db, (user, id), 20, &all, 0).await;
        let found: Vec<Mark> = marks(db, user, id).await.into_iter().map(|(mark, _)| mark).collect();
        assert_eq!(found, all);
    }

    async fn a_key_is_made_once(db) {
        let user = db.user("a@x").await.id;
        let (id, other) = (to_sync(db, user, "c", 20).await, to_sync(db, user, "other", 20).await);
        let handles = [db.again().await, db.again().await];
        let (one, two) = tokio::join!(handles[0].marks_key(user, id), handles[1].marks_key(user, id));
        let (one, two) = (one.unwrap().expect("made"), two.unwrap().expect("made"));
        assert_eq!((one.expose_secret(), one.expose_secret().len()), (two.expose_secret(), 44));
        assert_eq!(db.marks_key(user, id).await.unwrap().unwrap().expose_secret(), one.expose_secret());
        assert_ne!(db.marks_key(user, other).await.unwrap().unwrap().expose_secret(), one.expose_secret());
        assert!(db.marks_key(user, ConnectionId::new()).await.unwrap().is_none());
        assert!(db.marks_key(UserId::new(), id).await.unwrap().is_none());
        assert_eq!(db.secrets_for("marks").await, 2);
        let stranger = Storage::open(&db.url, Sealer::random()).await.unwrap();
        let error = stranger.marks_key(user, id).await.unwrap_err();
        assert!(matches!(error, StorageError::Sealed(SealError::DoesNotOpen)), "{error:?}");
        db.begin_removal(user, id, at(20), at(90)).await.unwrap().expect("hidden");
        assert!(db.marks_key(user, id).await.unwrap().is_none(), "it goes");
    }

    async fn a_removed_connection_takes_all_of_it_along(db) {
        let user = db.user("a@x").await.id;
        let endpoint = endpoint(db, user, EventType::SUBSCRIBABLE).await;
        let (id, kept) = (to_sync(db, user, "c", 20).await, to_sync(db, user, "kept", 20).await);
        for connection in [id, kept] {
            db.marks_key(user, connection).await.unwrap().expect("made");
            see(db, (user, connection), 20, &[mark(1, 0, 1)], 0).await;
            synced(db, (user, connection), 60, &[chunk(1, 2), chunk(2, 2)]).await;
        }
        assert!(db.remove(user, id, at(70)).await);
        let left = db.list_deliveries(user, endpoint, None, 9).await.unwrap();
        assert_eq!(left.len(), 2);
        for delivery in left {
            let event = db.find_event(user, delivery.event_id).await.unwrap().expect("there");
            assert_eq!(event.connection_id, Some(kept));
        }
        for (table, rows) in [("row_marks", 1), ("webhook_events", 2), ("webhook_deliveries", 2)] {
            assert_eq!(db.texts(&format!("SELECT 'x' FROM {table}")).await.len(), rows, "{table}");
        }
        assert_eq!((db.secrets_for("marks").await, db.secrets_for("grant").await), (1, 1));
        assert!(db.marks_key(user, kept).await.unwrap().is_some());
    }

    async fn odd_bytes_are_corrupt(db) {
        let user = db.user("a@x").await.id;
        let id = to_sync(db, user, "c", 20).await;
        see(db, (user, id), 20, &[mark(1, 0, 1)], 0).await;
        db.raw(&format!("UPDATE row_marks SET content = {}", db.bytes(&[1; 15]))).await;
        assert!(matches!(db.list_marks(user, id).await, Err(StorageError::Corrupt(_))));
        db.raw(&format!("UPDATE row_marks SET content = {}, occurrence = -1", db.bytes(&[1; 16]))).await;
        assert!(matches!(db.list_marks(user, id).await, Err(StorageError::Corrupt(_))));
    }
}
