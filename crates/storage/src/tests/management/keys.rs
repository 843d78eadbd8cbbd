use bellbird_domain::OperatorKeyId;

use crate::in_tx;
use crate::tests::support::{assert_fails, at, both, operator_key};

both! {
    async fn operator_key_is_valid_until_it_expires_or_is_revoked(db) {
        let record = in_tx!(db, operator_keys::insert(&operator_key(1), "backend", Some(at(100)), at(0))).await.unwrap();
        assert_eq!((record.name.as_str(), record.prefix.as_str()), ("backend", "bbo_1111111"));
        let found = db.operator_keys().find_valid(&operator_key(1), at(99)).await.unwrap().expect("valid");
        assert_eq!((found.id, found.last_used_at), (record.id, None));
        let again = in_tx!(db, operator_keys::insert(&operator_key(1), "k", None, at(0))).await;
        assert_fails!(again, Conflict("this key"));
        for used_at in [20, 10] {
            db.operator_keys().touch(record.id, at(used_at)).await.unwrap();
        }
        let listed = db.operator_keys().list().await.unwrap();
        assert_eq!((listed.len(), listed[0].last_used_at), (1, Some(at(20))), "its last use never moves back");
        assert_eq!(db.operator_keys().find_valid(&operator_key(1), at(100)).await.unwrap(), None);
        assert_eq!(db.operator_keys().find_valid(&operator_key(2), at(1)).await.unwrap(), None);
        assert_eq!(in_tx!(db, operator_keys::revoke(record.id, at(5))).await.unwrap().revoked_at, Some(at(5)));
        assert_eq!(in_tx!(db, operator_keys::revoke(record.id, at(9))).await.unwrap().revoked_at, Some(at(5)));
        assert_eq!(db.operator_keys().find_valid(&operator_key(1), at(4)).await.unwrap(), None);
        assert_fails!(in_tx!(db, operator_keys::revoke(OperatorKeyId::new(), at(5))).await, NotFound("operator key"));
    }
}
