//! Stolen SQLite files contain no plain secrets and no deleted data.

use bellbird_domain::EventType;
use std::collections::HashSet;
use std::path::Path;

use secrecy::ExposeSecret as _;

use crate::digest::provider_user_digest;
use crate::tests::fixtures::{
    chunk, console_session, empty_sync, endpoint, fingerprint, fingerprints, insert_setup_token,
    new_link, new_session, register_provider_user, remembered_response, rotate_secret, secret,
    session_with_callback, sign_in_link, start_sync, with_keys,
};
use crate::tests::support::{
    CREDENTIALS, assert_fails, at, key, new_account, new_connection, on_sqlite, operator_key,
    setup_token,
};
use crate::{
    FinishedSync, Leftovers, NewConsentSession, NewSignInLink, NewWebhookEvent, SealError, Storage,
    in_tx,
};

/// All bytes of the database, its WAL and the index of the WAL.
fn bytes(folder: &Path) -> Vec<u8> {
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    files
        .flat_map(|file| std::fs::read(file).unwrap())
        .collect()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

#[test]
fn file_holds_no_plain_secrets() {
    on_sqlite(async |db| {
        let user = db.user("a@x").await;
        let key = key(7);
        in_tx!(db, keys::insert(user.id, &key, "laptop", None, at(0)))
            .await
            .unwrap();
        assert!(db.keys().find_caller(&key, at(1)).await.unwrap().is_some());
        let connection = db
            .connection(user.id, "consent", &[new_account("acc", "Everyday")])
            .await
            .id;
        // Renewed a few times, so that the WAL also has older pages.
        for second in 0..5 {
            let new = new_connection(user.id, "consent");
            let imported = db.connections().import(&new, &[], at(second)).await;
            assert_eq!(imported.unwrap().id, connection);
        }
        let found = db.secrets().find_credentials(user.id, connection).await;
        assert!(found.unwrap().is_some());
        // A link, a consent session in each phase before its end, and a registered user.
        let link = new_link(user.id, "token_that_must_not_leak", at(60));
        in_tx!(db, links::insert(&link, at(0))).await.unwrap();
        insert_setup_token(db, user.id, 6, at(60)).await;
        // A link to sign in that is used, and another that is not.
        for token in [
            "used_sign_in_that_must_not_leak",
            "sign_in_that_must_not_leak",
        ] {
            let link = NewSignInLink {
                browser: Some("browser_that_must_not_leak"),
                ..sign_in_link(user.id, token, 60)
            };
            db.sessions().insert_link(&link, 2, at(0)).await.unwrap();
        }
        let session = console_session("session_that_must_not_leak", "browser_that_must_not_leak");
        db.sessions()
            .sign_in("used_sign_in_that_must_not_leak", &session, at(1))
            .await
            .unwrap()
            .unwrap();
        let known_consents = ["consent_that_must_not_leak"];
        let new = NewConsentSession {
            known_consents: &known_consents,
            ..new_session(user.id, "started_state_that_must_not_leak")
        };
        db.consent_sessions().insert(&new, at(0)).await.unwrap();
        session_with_callback(db, user.id, "state_that_must_not_leak").await;
        let claim = session_with_callback(db, user.id, "another_state").await;
        let (sessions, obtained) = (
            db.consent_sessions(),
            secret("link_credentials_that_must_not_leak"),
        );
        let stored = sessions.store_credentials(&claim, &obtained, at(20), at(40));
        assert!(stored.await.unwrap());
        let (id, credentials) = (
            "provider_user_id_that_must_not_leak",
            "credentials_that_must_not_leak",
        );
        register_provider_user(db, user.id, id, credentials).await;
        let operator = operator_key(8);
        let inserted = in_tx!(db, operator_keys::insert(&operator, "backend", None, at(0)));
        inserted.await.unwrap();
        remembered_response(db, user.id, "response_that_must_not_leak").await;
        db.provider_events()
            .insert("akahu", "event_that_must_not_leak", at(0))
            .await
            .unwrap();
        // A sync that stores a fingerprint and an event, for an endpoint with two secrets.
        let fingerprint_key = db.syncs().fingerprint_key(user.id, connection).await;
        let fingerprint_key = fingerprint_key.unwrap().expect("made");
        let endpoint = endpoint(db, user.id, &[EventType::TransactionsSynced]).await;
        assert!(rotate_secret(db, (user.id, endpoint), "whsec_2_that_must_not_leak", 99).await);
        let claim = start_sync(db, user.id, connection, 30).await;
        let fingerprints = fingerprints(&[fingerprint(0x6b, 0, 0x6a)]);
        let events = [NewWebhookEvent {
            row_keys: vec![0x6b; 16],
            ..chunk(1, 1)
        }];
        let finished = FinishedSync {
            fingerprints: Some(&fingerprints),
            events: &events,
            ..empty_sync(30)
        };
        assert_eq!(db.syncs().finish(&claim, &finished).await.unwrap(), Some(1));
        let folder = db.path().parent().unwrap();
        let provider_user = provider_user_digest(id);
        let check = |when: &str| {
            let bytes = bytes(folder);
            for text in [
                "laptop",
                "Everyday",
                "callback_received",
                "credentials_obtained",
                provider_user.as_str(),
                "kkkkkkkkkkkkkkkkjjjjjjjj",
            ] {
                assert!(contains(&bytes, text), "{when}: the search finds {text}");
            }
            for part in [
                &key.expose()[3..20],
                &key.expose()[20..],
                &operator.expose()[9..],
                &setup_token(6).expose()[4..20],
                &fingerprint_key.expose_secret()[..20],
                CREDENTIALS,
                "userToken",
                "that_must_not_leak",
                "code=answer",
                "another_state",
            ] {
                assert!(!contains(&bytes, part), "{when}: {part}");
            }
        };
        check("while open");
        Storage::clone(db).close().await;
        check("after closing");
    });
}

/// In bytes. Long enough to rule out a match by chance.
const PART_BYTES: usize = 12;

/// Counts the sealed values of which a part occurs in the bytes.
fn count_present(sealed: &HashSet<Vec<u8>>, bytes: &[u8]) -> usize {
    let present: HashSet<&[u8]> = bytes.windows(PART_BYTES).collect();
    let is_present = |sealed: &&Vec<u8>| {
        let mut parts = sealed.windows(PART_BYTES);
        parts.any(|part| present.contains(part))
    };
    sealed.iter().filter(is_present).count()
}

fn all_sealed(file: &rusqlite::Connection) -> HashSet<Vec<u8>> {
    let mut statement = file.prepare("SELECT sealed FROM secrets").unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// After a rotation, the old key opens nothing in the files, even while a service uses them.
#[test]
fn old_key_opens_nothing_after_rotation() {
    on_sqlite(async |db| {
        let folder = db.path().parent().unwrap();
        let user = db.user("a@x").await.id;
        let old = with_keys(db, &[1]).await;
        // As an older version wrote the file: deleted bytes stay in free pages.
        let file = rusqlite::Connection::open(folder.join("test.db")).unwrap();
        file.execute_batch("PRAGMA secure_delete = OFF").unwrap();
        let import = async |storage: &Storage, consent: &str, now| {
            let new = new_connection(user, consent);
            let imported = storage.connections().import(&new, &[], at(now)).await;
            imported.unwrap().id
        };
        let consents: Vec<String> = (0..60).map(|number| format!("c{number}")).collect();
        let mut ids = Vec::new();
        for consent in &consents {
            ids.push(import(&old, consent.as_str(), 1).await);
        }
        let mut sealed = all_sealed(&file);
        let claim = session_with_callback(&old, user, "state").await;
        register_provider_user(&old, user, "eu_1", "provider user credentials").await;
        sealed.extend(all_sealed(&file));
        assert_eq!(sealed.len(), 62);
        file.execute_batch(
            "CREATE TABLE big (x BLOB);
            INSERT INTO big SELECT sealed || zeroblob(5000) FROM secrets;
            DROP TABLE big",
        )
        .unwrap();
        for consent in &consents {
            import(&old, consent.as_str(), 2).await;
        }
        let (sessions, obtained) = (old.consent_sessions(), secret("link credentials"));
        let stored = sessions.store_credentials(&claim, &obtained, at(20), at(40));
        assert!(stored.await.unwrap());
        sealed.extend(all_sealed(&file));
        drop(file);
        assert_eq!(sealed.len(), 123);
        let present = count_present(&sealed, &bytes(folder));
        assert_eq!(present, 123, "the search finds current and old values");

        // A service with both keys keeps running beside the command.
        let (service, command) = (with_keys(db, &[2, 1]).await, with_keys(db, &[2, 1]).await);
        let found = service.secrets().find_credentials(user, ids[0]).await;
        assert!(found.unwrap().is_some());
        let resealed = command.secrets().reseal_all(|_| ()).await;
        assert_eq!(resealed.unwrap().resealed, 62);
        let leftovers = command.secrets().erase_leftovers().await;
        assert_eq!(leftovers.unwrap(), Leftovers::None);
        let present = count_present(&sealed, &bytes(folder));
        assert_eq!(present, 0, "no value of the old key is left");
        // The service writes again and closes.
        import(&service, "c0", 3).await;
        service.close().await;
        assert_eq!(count_present(&sealed, &bytes(folder)), 0);
        let found = old.provider_users().find_credentials(user, "fiskil").await;
        assert_fails!(found, Sealed(SealError::UnknownKeyId(key)) if key == "k2");
        for id in ids {
            let found = old.secrets().find_credentials(user, id).await;
            assert_fails!(found, Sealed(SealError::UnknownKeyId(key)) if key == "k2");
        }
    });
}

/// After a checkpoint, deleted data is nowhere in the files.
#[test]
fn removed_connection_leaves_no_bytes() {
    on_sqlite(async |db| {
        let folder = db.path().parent().unwrap();
        let user = db.user("a@x").await.id;
        let gone = [new_account("acc_gone", "Rainy Day Gone")];
        let made = db.connection(user, "consent_gone", &gone).await;
        let kept = [new_account("acc_kept", "Rainy Day Kept")];
        db.connection(user, "consent_kept", &kept).await;
        assert!(contains(&bytes(folder), "Rainy Day Gone"));
        assert!(db.remove(user, made.id, at(20)).await);
        Storage::clone(db).close().await;
        let bytes = bytes(folder);
        assert!(contains(&bytes, "Rainy Day Kept"));
        for name in ["Rainy Day Gone", "acc_gone", "consent_gone"] {
            assert!(!contains(&bytes, name), "{name}");
        }
    });
}
