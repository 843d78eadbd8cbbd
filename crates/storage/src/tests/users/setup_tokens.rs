use bellbird_domain::{Actor, KeyId, UserId};

use crate::tests::fixtures::insert_setup_token;
use crate::tests::support::{TestDb, assert_fails, at, both, key, setup_token};
use crate::{KeyRecord, NewSetupToken, SetupTokenClaim, Storage, in_tx};

async fn claim(db: &Storage, token: u8, new_key: u8, now: i64) -> SetupTokenClaim {
    db.setup_tokens()
        .claim(&setup_token(token), &key(new_key), at(now))
        .await
        .unwrap()
}

async fn claimed(db: &Storage, token: u8, new_key: u8, now: i64) -> KeyRecord {
    match claim(db, token, new_key, now).await {
        SetupTokenClaim::Created(record) => record,
        other => panic!("{other:?}"),
    }
}

async fn events(db: &TestDb, user: UserId, key: KeyId) -> Vec<(i64, String)> {
    let audit = db.setup_tokens().list_key_audit(user, key).await.unwrap();
    audit
        .into_iter()
        .map(|row| (row.at.as_second() - at(0).as_second(), row.event))
        .collect()
}

both! {
    async fn claim_creates_an_ordinary_key(db) {
        let user = db.user("a@x").await.id;
        insert_setup_token(db, user, 1, at(60)).await;
        let created = claimed(db, 1, 9, 59).await;
        assert_eq!((created.name.as_str(), created.created_at, created.expires_at), ("Actual", at(59), None));
        assert_eq!(db.keys().list(user).await.unwrap(), std::slice::from_ref(&created));
        assert_eq!(db.keys().find_caller(&key(9), at(60)).await.unwrap().expect("works").caller.user_id, user);
        in_tx!(db, keys::revoke(created.id, at(61))).await.unwrap();
        assert_eq!(db.keys().find_caller(&key(9), at(62)).await.unwrap(), None);
        assert_eq!(events(db, user, created.id).await, [(59, "claimed".to_owned())]);
    }

    async fn unclaimed_tokens_are_revoked(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        assert_eq!(db.setup_tokens().find_newest(user).await.unwrap(), None);
        let mut newest = Vec::new();
        for (user, token) in [(user, 1), (user, 2), (other, 3)] {
            insert_setup_token(db, user, token, at(60)).await;
            newest.extend(db.setup_tokens().find_newest(user).await.unwrap());
        }
        assert!(newest[0] < newest[1] && newest[1] < newest[2], "{newest:?}");
        assert_eq!(db.setup_tokens().find_newest(user).await.unwrap(), Some(newest[1]));
        claimed(db, 1, 8, 10).await;
        assert_eq!(in_tx!(db, setup_tokens::revoke_unclaimed(user, at(20))).await.unwrap(), 1);
        assert_eq!(in_tx!(db, setup_tokens::revoke_unclaimed(user, at(20))).await.unwrap(), 0);
        assert!(matches!(claim(db, 2, 7, 21).await, SetupTokenClaim::Unknown));
        assert!(db.keys().find_caller(&key(8), at(21)).await.unwrap().is_some(), "of a claimed token");
        claimed(db, 3, 6, 21).await;
    }

    async fn second_claim_creates_nothing_and_is_recorded(db) {
        let user = db.user("a@x").await.id;
        insert_setup_token(db, user, 1, at(60)).await;
        let created = claimed(db, 1, 8, 10).await;
        // Also after the token's expiry.
        for now in [20, 70] {
            let repeated = claim(db, 1, 9, now).await;
            let SetupTokenClaim::Repeated { user_id, key_id } = repeated else { panic!("{repeated:?}") };
            assert_eq!((user_id, key_id), (user, created.id));
        }
        assert_eq!(db.keys().list(user).await.unwrap().len(), 1);
        let rejected = || "claim_rejected".to_owned();
        assert_eq!(
            events(db, user, created.id).await,
            [(10, "claimed".to_owned()), (20, rejected()), (70, rejected())]
        );
        for _ in 0..105 {
            assert!(matches!(claim(db, 1, 9, 80).await, SetupTokenClaim::Repeated { .. }));
        }
        assert_eq!(events(db, user, created.id).await.len(), 101, "recorded claims are limited");
    }

    async fn unknown_and_expired_tokens_leave_no_trace(db) {
        let user = db.user("a@x").await.id;
        insert_setup_token(db, user, 1, at(60)).await;
        for (token, now) in [(2, 10), (1, 60), (1, 61)] {
            assert!(matches!(claim(db, token, 9, now).await, SetupTokenClaim::Unknown), "{token} {now}");
        }
        assert_eq!(db.keys().list(user).await.unwrap(), []);
        assert_eq!(db.texts("SELECT id FROM key_audit").await, [""; 0]);
        // A token requires a user, and is unique.
        let token = setup_token(1);
        let new = |user_id| NewSetupToken { user_id, token: &token, name: "n", expires_at: at(60) };
        assert_fails!(in_tx!(db, setup_tokens::insert(&new(UserId::new()), at(0))).await, NotFound("user"));
        assert_fails!(in_tx!(db, setup_tokens::insert(&new(user), at(0))).await, Conflict("this setup token"));
    }

    async fn tokens_and_audit_go_with_their_user(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        for (number, user) in [(1, user), (2, user), (3, other), (4, other)] {
            insert_setup_token(db, user, number, at(60)).await;
        }
        claimed(db, 1, 8, 10).await;
        claimed(db, 3, 9, 10).await;
        db.delete_user(user).await;
        for table in ["setup_tokens", "key_audit"] {
            let left = db.texts(&format!("SELECT DISTINCT user_id FROM {table}")).await;
            assert_eq!(left, [other.to_string()], "{table}");
        }
        assert!(matches!(claim(db, 2, 10, 11).await, SetupTokenClaim::Unknown));
    }

    async fn restore_voids_unclaimed_tokens_only(db) {
        let user = db.user("a@x").await.id;
        for number in [1, 2] {
            insert_setup_token(db, user, number, at(60)).await;
        }
        claimed(db, 1, 8, 10).await;
        db.backups().cut_access(&Actor::command("root"), at(15)).await.unwrap();
        assert!(matches!(claim(db, 2, 9, 20).await, SetupTokenClaim::Unknown), "may have been claimed since");
        assert!(matches!(claim(db, 1, 9, 20).await, SetupTokenClaim::Repeated { .. }));
    }

    async fn old_tokens_are_deleted(db) {
        const DAY: i64 = 24 * 60 * 60;
        let user = db.user("a@x").await.id;
        for (number, expires_at) in [(1, 60), (2, 60), (3, 61)] {
            insert_setup_token(db, user, number, at(expires_at)).await;
        }
        claimed(db, 1, 8, 10).await;
        // Those that were not claimed, when they expire, and the other one later.
        for (now, deleted) in [(59, 0), (60, 1), (61, 1), (59 + 30 * DAY, 0), (60 + 30 * DAY, 1)] {
            assert_eq!(db.consent_sessions().delete_outdated(at(now)).await.unwrap(), deleted, "{now}");
        }
        assert_eq!(db.texts("SELECT event FROM key_audit").await, ["claimed"], "kept with the key");
    }

    async fn unclaimed_tokens_of_a_user_are_limited(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let insert = async |user_id, number, expires, now| {
            let new = NewSetupToken { user_id, token: &setup_token(number), name: "Actual", expires_at: at(expires) };
            in_tx!(db, setup_tokens::insert(&new, at(now))).await.map(|_| ())
        };
        for number in 0..20 {
            insert(user, number, 60, 0).await.unwrap();
        }
        assert_fails!(insert(user, 20, 60, 1).await, TooMany(_));
        insert(other, 21, 60, 1).await.unwrap();
        claimed(db, 0, 9, 1).await;
        insert(user, 22, 60, 1).await.unwrap();
        insert(user, 23, 120, 60).await.unwrap();
        assert_eq!(in_tx!(db, setup_tokens::revoke_unclaimed(user, at(61))).await.unwrap(), 1);
        assert!(matches!(claim(db, 23, 8, 62).await, SetupTokenClaim::Unknown));
        assert_eq!(db.consent_sessions().delete_outdated(at(60)).await.unwrap(), 21, "expired, and not claimed");
        assert!(matches!(claim(db, 0, 8, 62).await, SetupTokenClaim::Repeated { .. }));
    }
}
