//! What a thief of the SQLite files gets.

use std::path::Path;

use super::{GRANT, at, grant, key, new_account, new_connection, on_sqlite};
use crate::{Storage, StorageError};

/// All bytes of the database, of its log and of the index of the log.
fn bytes(folder: &Path) -> Vec<u8> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.flat_map(|file| std::fs::read(file).unwrap()).collect()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn holds_neither_grant_nor_key() {
    on_sqlite(async |db| {
        let user = db.user("a@x").await;
        let key = key(7);
        db.insert_key(user.id, &key, "laptop", None, at(0)).await.unwrap();
        assert!(db.find_caller(&key, at(1)).await.unwrap().is_some());
        let connection = db.connection(user.id, "consent", &[new_account("acc", "Everyday")]).await.id;
        // Renewed a few times, so that older pages are in the log too.
        for second in 0..5 {
            db.adopt_connection(&new_connection(user.id, "consent", &grant()), &[], at(second)).await.unwrap();
        }
        assert!(db.find_grant(user.id, connection).await.unwrap().is_some());
        let folder = Path::new(db.url.strip_prefix("sqlite:").unwrap()).parent().unwrap();
        let check = |when: &str| {
            let bytes = bytes(folder);
            assert!(
                contains(&bytes, "laptop") && contains(&bytes, "Everyday"),
                "{when}: the search finds what is there"
            );
            assert!(!contains(&bytes, &key.expose()[3..20]), "{when}: the key");
            assert!(!contains(&bytes, &key.expose()[20..]), "{when}: the end of the key");
            for part in [GRANT, "userToken", "user_token_that_nobody_may_read"] {
                assert!(!contains(&bytes, part), "{when}: {part}");
            }
        };
        check("while it is open");
        Storage::clone(db).close().await;
        check("after it was closed");
    });
}

#[test]
fn a_file_without_tables_says_what_to_do() {
    on_sqlite(async |db| {
        db.raw("DROP TABLE api_keys").await;
        let error = db.find_caller(&key(1), at(0)).await.unwrap_err();
        assert!(matches!(&error, StorageError::Schema(text) if text.contains("bellbird migrate")), "{error:?}");
    });
}
