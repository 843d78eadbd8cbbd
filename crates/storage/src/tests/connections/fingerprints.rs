//! Fingerprints and their keys.

use bellbird_domain::{
    AccountTag, ConnectionId, Digest, Fingerprint, RowDigests, RowKey, UserId, UtcDay,
};
use secrecy::ExposeSecret as _;

use crate::tests::fixtures::{
    connection_to_sync, empty_sync, fingerprint, fingerprints, start_sync, state_after,
};
use crate::tests::support::{assert_fails, both};
use crate::{FinishedSync, SealError, Sealer, Storage, StorageError, SyncState};

/// Runs a sync that replaces the fingerprints by these.
async fn store_fingerprints(
    db: &Storage,
    (user, id): (UserId, ConnectionId),
    now: i64,
    rows: Option<&[Fingerprint]>,
) {
    let all = rows.map(fingerprints);
    let claim = start_sync(db, user, id, now).await;
    let before = db.syncs().find(user, id).await.unwrap().expect("there");
    let after = SyncState {
        sequence: before.sequence + 1,
        ..state_after(now)
    };
    let finished = FinishedSync {
        before: &before,
        after: &after,
        fingerprints: all.as_ref(),
        ..empty_sync(now)
    };
    db.syncs()
        .finish(&claim, &finished)
        .await
        .unwrap()
        .expect("finished");
}

both! {
    async fn sync_replaces_fingerprints(db) {
        let user = db.user("a@x").await.id;
        let id = connection_to_sync(db, user, "c", 20).await;
        let other = connection_to_sync(db, user, "other", 20).await;
        assert_eq!(db.syncs().fingerprints(user, id).await.unwrap().rows, []);
        store_fingerprints(db, (user, other), 10, Some(&[fingerprint(1, 0, 9)])).await;
        let first = [fingerprint(1, 0, 1), fingerprint(1, 1, 2), fingerprint(2, 0, 3), fingerprint(3, 0, 3)];
        store_fingerprints(db, (user, id), 20, Some(&first)).await;
        assert_eq!(db.syncs().fingerprints(user, id).await.unwrap().rows, first);
        store_fingerprints(db, (user, id), 100, None).await;
        assert_eq!(db.syncs().fingerprints(user, id).await.unwrap().rows, first, "nothing changed");
        let largest = Fingerprint {
            seen_at: u32::MAX - 1,
            first_version: 2,
            changed_version: u32::MAX - 2,
            key: RowKey([3; 8]),
            misses: 3,
            is_gone: true,
            digests: RowDigests {
                account: AccountTag(u32::MAX - 3),
                day: UtcDay(u16::MAX - 1),
                ..fingerprint(4, 0, 255).digests
            },
            ..fingerprint(4, u32::MAX, 255)
        };
        let second = [fingerprint(1, 1, 7), largest];
        store_fingerprints(db, (user, id), 200, Some(&second)).await;
        assert_eq!(db.syncs().fingerprints(user, id).await.unwrap(), fingerprints(&second));
        store_fingerprints(db, (user, id), 300, Some(&[])).await;
        assert_eq!(db.syncs().fingerprints(user, id).await.unwrap().rows, []);
        let many: Vec<Fingerprint> = (0..100_000_u32)
            .map(|number| {
                let mut row = [0xff; 16];
                row[..4].copy_from_slice(&number.to_be_bytes());
                let digests = RowDigests { row: Digest(row), ..fingerprint(0, 0, 0).digests };
                Fingerprint { digests, ..fingerprint(0, number % 3, 0) }
            })
            .collect();
        store_fingerprints(db, (user, id), 400, Some(&many)).await;
        assert!(db.syncs().fingerprints(user, id).await.unwrap().rows == many);
        assert_eq!(
            db.syncs().fingerprints(user, other).await.unwrap().rows,
            [fingerprint(1, 0, 9)],
            "another connection",
        );
        assert_eq!(db.syncs().fingerprints(UserId::new(), other).await.unwrap().rows, []);
        let sequence = async |id| db.syncs().find(user, id).await.unwrap().expect("there").sequence;
        assert_eq!((sequence(id).await, sequence(other).await), (5, 1), "each connection has its own");

        // Damaged fingerprints are corrupt.
        let entry = |row: u8| [row; 64].to_vec();
        let repeated = [vec![2], entry(1), entry(1)].concat();
        let descending = [vec![2], entry(2), entry(1)].concat();
        let damage = async |column: &str, bytes: &[u8]| {
            db.raw(&format!("UPDATE fingerprints SET {column} = {}", db.bytes(bytes))).await;
        };
        for damaged in [&[][..], &[1], &[2; 64], &[2; 66], &repeated, &descending] {
            damage("entries", damaged).await;
            let found = db.syncs().fingerprints(user, id).await;
            assert!(matches!(found, Err(StorageError::Corrupt(_))), "{damaged:?}");
        }
        damage("entries", &[2; 65]).await;
        assert_eq!(db.syncs().fingerprints(user, id).await.unwrap().rows.len(), 1);
        for damaged in [&[1][..], &[0, 0, 0, 2, 0, 0, 0, 1]] {
            damage("change_versions", damaged).await;
            let found = db.syncs().fingerprints(user, id).await;
            assert!(matches!(found, Err(StorageError::Corrupt(_))), "{damaged:?}");
        }
    }

    async fn fingerprint_key_is_created_once(db) {
        let user = db.user("a@x").await.id;
        let (id, other) =
            (connection_to_sync(db, user, "c", 20).await, connection_to_sync(db, user, "other", 20).await);
        let handles = [db.reopen().await, db.reopen().await];
        let (one, two) =
            tokio::join!(handles[0].syncs().fingerprint_key(user, id), handles[1].syncs().fingerprint_key(user, id));
        let (one, two) = (one.unwrap().expect("made"), two.unwrap().expect("made"));
        assert_eq!((one.expose_secret(), one.expose_secret().len()), (two.expose_secret(), 44));
        assert_eq!(db.syncs().fingerprint_key(user, id).await.unwrap().unwrap().expose_secret(), one.expose_secret());
        assert_ne!(
            db.syncs().fingerprint_key(user, other).await.unwrap().unwrap().expose_secret(),
            one.expose_secret(),
        );
        assert!(db.syncs().fingerprint_key(user, ConnectionId::new()).await.unwrap().is_none());
        assert!(db.syncs().fingerprint_key(UserId::new(), id).await.unwrap().is_none());
        assert_eq!(db.secrets_for("fingerprints").await, 2);
        let other_key = Storage::open(&db.url, Sealer::random()).await.unwrap();
        assert_fails!(other_key.syncs().fingerprint_key(user, id).await, Sealed(SealError::DoesNotOpen));
        db.hide(user, id, 20, 90).await;
        assert!(db.syncs().fingerprint_key(user, id).await.unwrap().is_none(), "it is being deleted");
    }

    async fn sync_checks_removal_hints(db) {
        let user = db.user("a@x").await.id;
        let id = connection_to_sync(db, user, "c", 20).await;
        let rows = |rows: &[u8]| -> Vec<Digest> { rows.iter().map(|row| Digest([*row; 16])).collect() };
        db.syncs().add_removal_hints(user, id, &rows(&[1, 2])).await.unwrap();
        db.syncs().add_removal_hints(user, id, &rows(&[2, 3])).await.unwrap();
        db.syncs().add_removal_hints(UserId::new(), id, &rows(&[9])).await.unwrap();
        assert_eq!(db.syncs().find(user, id).await.unwrap().unwrap().removal_hints, rows(&[1, 2, 3]));
        store_fingerprints(db, (user, id), 20, None).await;
        assert_eq!(db.syncs().find(user, id).await.unwrap().unwrap().removal_hints, []);
        // Those that it could not check stay.
        db.syncs().add_removal_hints(user, id, &rows(&[1, 2])).await.unwrap();
        let claim = start_sync(db, user, id, 40).await;
        let before = db.syncs().find(user, id).await.unwrap().unwrap();
        let after = SyncState { removal_hints: rows(&[2]), ..state_after(40) };
        let finished = FinishedSync { before: &before, after: &after, ..empty_sync(40) };
        db.syncs().finish(&claim, &finished).await.unwrap().expect("finished");
        assert_eq!(db.syncs().find(user, id).await.unwrap().unwrap().removal_hints, rows(&[2]));
        store_fingerprints(db, (user, id), 50, None).await;
        // What is said while a sync runs is for the next one.
        let claim = start_sync(db, user, id, 60).await;
        let before = db.syncs().find(user, id).await.unwrap().unwrap();
        db.syncs().add_removal_hints(user, id, &rows(&[4])).await.unwrap();
        let finished = FinishedSync { before: &before, ..empty_sync(60) };
        db.syncs().finish(&claim, &finished).await.unwrap().expect("finished");
        assert_eq!(db.syncs().find(user, id).await.unwrap().unwrap().removal_hints, rows(&[4]));
    }
}
