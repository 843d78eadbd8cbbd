use bellbird_domain::{KeyId, Plan, UserId};
use jiff::tz::TimeZone;

use crate::tests::support::{at, both, key};
use crate::{NewUser, StorageError, UserChange};

both! {
    async fn key_finds_its_user(db) {
        let new = NewUser { email: "a@x", plan: Plan::Developer, timezone: Some("Pacific/Auckland"), reference: None };
        let user = db.users().insert(&new, at(0)).await.unwrap();
        let record = db.keys().insert(user.id, &key(1), "laptop", None, at(1)).await.unwrap();
        assert_eq!((record.name.as_str(), record.prefix.as_str()), ("laptop", "bb_1111111"));
        assert_eq!((record.created_at, record.last_used_at, record.expires_at), (at(1), None, None));
        let found = db.keys().find_caller(&key(1), at(2)).await.unwrap().expect("valid");
        assert_eq!((found.caller.key_id, found.caller.user_id), (record.id, user.id));
        assert_eq!((found.caller.plan, found.caller.revision, found.last_used_at), (Plan::Developer, 0, None));
        assert_eq!(found.caller.timezone, TimeZone::get("Pacific/Auckland").unwrap());
        assert_eq!(db.keys().find_caller(&key(2), at(2)).await.unwrap(), None);
        assert_eq!(db.keys().find_caller_by_id(user.id, record.id, at(2)).await.unwrap(), Some(found));
        assert_eq!(db.keys().find_caller_by_id(UserId::new(), record.id, at(2)).await.unwrap(), None, "wrong user");
        assert_eq!(db.keys().find(record.id).await.unwrap(), Some(record));
    }

    async fn user_change_is_visible_at_once(db) {
        let user = db.user("a@x").await;
        db.keys().insert(user.id, &key(1), "k", None, at(0)).await.unwrap();
        let zone = db.keys().find_caller(&key(1), at(1)).await.unwrap().unwrap().caller.timezone;
        assert_eq!(zone, TimeZone::get("Australia/Sydney").unwrap(), "the default");
        db.users().update(user.id, &UserChange { plan: Some(Plan::Saver), ..UserChange::default() }).await.unwrap();
        let caller = db.keys().find_caller(&key(1), at(1)).await.unwrap().unwrap().caller;
        assert_eq!((caller.plan, caller.revision), (Plan::Saver, 1));
    }

    async fn revoking_again_keeps_the_first_time(db) {
        let user = db.user("a@x").await;
        let record = db.keys().insert(user.id, &key(1), "k", None, at(0)).await.unwrap();
        assert_eq!(db.keys().revoke(record.id, at(5)).await.unwrap().revoked_at, Some(at(5)));
        assert_eq!(db.keys().find_caller(&key(1), at(4)).await.unwrap(), None);
        assert_eq!(db.keys().find_caller_by_id(user.id, record.id, at(4)).await.unwrap(), None);
        assert_eq!(db.keys().revoke(record.id, at(9)).await.unwrap().revoked_at, Some(at(5)));
        assert_eq!(db.revision(user.id).await, 0, "a revision does not cover keys");
        assert!(matches!(db.keys().revoke(KeyId::new(), at(5)).await, Err(StorageError::NotFound("key"))));
    }

    async fn key_that_was_revoked_meanwhile_is_not_rotated(db) {
        let user = db.user("a@x").await;
        let before = db.keys().insert(user.id, &key(1), "k", None, at(0)).await.unwrap();
        db.keys().revoke(before.id, at(1)).await.unwrap();
        let rotated = db.keys().rotate(&before, &key(2), at(9), at(2)).await;
        assert!(matches!(rotated, Err(StorageError::NotFound("key"))));
        assert_eq!(db.keys().find_caller(&key(2), at(3)).await.unwrap(), None);
    }

    async fn a_key_is_valid_before_its_expiry(db) {
        let user = db.user("a@x").await;
        let record = db.keys().insert(user.id, &key(1), "k", Some(at(100)), at(0)).await.unwrap();
        assert!(db.keys().find_caller(&key(1), at(99)).await.unwrap().is_some());
        assert!(db.keys().find_caller(&key(1), at(100)).await.unwrap().is_none());
        assert!(db.keys().find_caller_by_id(user.id, record.id, at(99)).await.unwrap().is_some());
        assert!(db.keys().find_caller_by_id(user.id, record.id, at(100)).await.unwrap().is_none());
        assert_eq!(
            db.keys().expire(record.id, at(200)).await.unwrap().expires_at,
            Some(at(100)),
            "the earlier one stays",
        );
        assert_eq!(db.keys().expire(record.id, at(50)).await.unwrap().expires_at, Some(at(50)));
        assert!(db.keys().find_caller(&key(1), at(50)).await.unwrap().is_none());
        let without_expiry = db.keys().insert(user.id, &key(2), "k", None, at(0)).await.unwrap();
        assert_eq!(db.keys().expire(without_expiry.id, at(70)).await.unwrap().expires_at, Some(at(70)));
        assert!(matches!(db.keys().expire(KeyId::new(), at(5)).await, Err(StorageError::NotFound("key"))));
    }

    async fn last_use_never_moves_back(db) {
        let user = db.user("a@x").await;
        let record = db.keys().insert(user.id, &key(1), "k", None, at(0)).await.unwrap();
        db.keys().touch(user.id, record.id, at(20)).await.unwrap();
        db.keys().touch(user.id, record.id, at(10)).await.unwrap();
        assert_eq!(db.keys().find_caller(&key(1), at(30)).await.unwrap().unwrap().last_used_at, Some(at(20)));
        db.keys().touch(UserId::new(), record.id, at(30)).await.unwrap();
        assert_eq!(db.keys().find(record.id).await.unwrap().unwrap().last_used_at, Some(at(20)), "wrong user");
        assert_eq!(db.revision(user.id).await, 0);
    }

    async fn lists_only_the_users_keys_oldest_first(db) {
        let (user, other) = (db.user("a@x").await, db.user("b@x").await);
        for (number, user_id, made) in [(1, user.id, 30), (2, user.id, 10), (3, other.id, 5), (4, user.id, 20)] {
            db.keys().insert(user_id, &key(number), &format!("k{number}"), None, at(made)).await.unwrap();
        }
        let names: Vec<_> = db.keys().list(user.id).await.unwrap().into_iter().map(|key| key.name).collect();
        assert_eq!(names, ["k2", "k4", "k1"]);
        assert_eq!(db.keys().list(UserId::new()).await.unwrap(), []);
    }

    async fn rejects_unknown_user_and_duplicate_key(db) {
        let error = db.keys().insert(UserId::new(), &key(1), "k", None, at(0)).await.unwrap_err();
        assert!(matches!(error, StorageError::NotFound("user")), "{error:?}");
        let user = db.user("a@x").await;
        db.keys().insert(user.id, &key(1), "k", None, at(0)).await.unwrap();
        let error = db.keys().insert(user.id, &key(1), "k", None, at(0)).await.unwrap_err();
        assert!(matches!(error, StorageError::Conflict("this key")), "{error:?}");
    }

    async fn an_unknown_timezone_is_corrupt(db) {
        let user = db.user("a@x").await;
        db.keys().insert(user.id, &key(1), "k", None, at(0)).await.unwrap();
        db.raw("UPDATE users SET timezone = 'Mars/Olympus'").await;
        assert!(matches!(db.keys().find_caller(&key(1), at(1)).await, Err(StorageError::Corrupt("a timezone"))));
    }
}
