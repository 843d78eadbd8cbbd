//! What a search of the whole database gets to see.

use crate::in_tx;
use crate::tests::support::{at, both, key};

both! {
    async fn every_value_of_every_table_is_visited(db) {
        let user = db.user("me@example.com").await;
        in_tx!(db, keys::insert(user.id, &key(7), "laptop", None, at(1))).await.unwrap();
        let hash = crate::digest::hash(key(7).expose());
        let created_at = at(1).as_microsecond().to_string();
        let looked_for: [&[u8]; 4] = [b"me@example.com", b"laptop", hash.as_ref(), created_at.as_bytes()];
        let tables = db.tables().await.unwrap();
        assert!(["users", "api_keys", "schema_migrations"].iter().all(|name| tables.iter().any(|table| table == name)));
        let (mut found, mut rows) = ([false; 4], Vec::new());
        for table in &tables {
            let mut visit = |value: &[u8]| {
                for (found, looked_for) in found.iter_mut().zip(looked_for) {
                    *found |= value == looked_for;
                }
            };
            rows.push((table.as_str(), db.visit_values(table, &mut visit).await.unwrap()));
        }
        assert_eq!(found, [true; 4], "text, name, bytes, integer");
        assert!(rows.contains(&("users", 1)) && rows.contains(&("api_keys", 1)), "{rows:?}");
        assert!(db.visit_values("no_such_table", &mut |_| {}).await.is_err());
    }
}
