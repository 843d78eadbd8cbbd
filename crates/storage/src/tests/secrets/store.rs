//! Key rotation, also while other tasks write.

use bellbird_domain::{ConnectionId, UserId};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::task::JoinSet;

use crate::tests::fixtures::{
    SECRET, endpoint, register_provider_user, rotate_secret, session_with_callback, with_keys,
};
use crate::tests::support::{
    CREDENTIALS, assert_contains, assert_fails, at, both, cancel_after, new_connection,
};
use crate::{Leftovers, NewConnection, ResealCounts, SealError, Sealer, Storage, StorageError};

/// Imports or renews a connection.
async fn import(storage: &Storage, user: UserId, number: usize, credentials: &str) -> ConnectionId {
    let (consent, credentials) = (format!("c{number}"), SecretString::from(credentials));
    let new = NewConnection {
        credentials: &credentials,
        ..new_connection(user, &consent)
    };
    let imported = storage.connections().import(&new, &[], at(1)).await;
    imported.unwrap().id
}

async fn connections(storage: &Storage, user: UserId, count: usize) -> Vec<ConnectionId> {
    let mut ids = Vec::new();
    for number in 0..count {
        ids.push(import(storage, user, number, &format!("{{\"number\":{number}}}")).await);
    }
    ids
}

fn counts(batch: &ResealCounts) -> (u64, u64, u64) {
    (batch.resealed, batch.already_current, batch.unopenable)
}

both! {
    async fn credentials_open_in_their_own_row_only(db) {
        let user = db.user("a@x").await;
        let first = db.connection(user.id, "c1", &[]).await.id;
        let second = db.connection(user.id, "c2", &[]).await.id;
        let secrets = db.secrets().sealed().await.unwrap();
        assert_eq!((secrets.by_key["random"], secrets.opened_by["random"], secrets.unopenable), (2, 2, vec![]));
        let other_key = Storage::open(&db.url, Sealer::random()).await.unwrap();
        let secrets = other_key.secrets().sealed().await.unwrap();
        assert_eq!((secrets.by_key["random"], secrets.opened_by["random"], secrets.unopenable.len()), (2, 0, 2));
        assert_fails!(other_key.secrets().find_credentials(user.id, first).await, Sealed(SealError::DoesNotOpen));
        db.raw(&format!(
            "UPDATE secrets SET sealed = (SELECT sealed FROM secrets WHERE subject = '{first}')
             WHERE subject = '{second}'"
        ))
        .await;
        let unopenable = db.secrets().sealed().await.unwrap().unopenable;
        assert_eq!(
            (unopenable.len(), &unopenable[0].why),
            (1, &SealError::DoesNotOpen),
            "credentials moved to another row"
        );
        assert_eq!(
            (unopenable[0].user_id, unopenable[0].purpose.as_str(), &unopenable[0].subject),
            (user.id, "credentials", &second.to_string())
        );
    }

    async fn key_that_opens_nothing_of_its_id_may_not_seal(db) {
        let user = db.user("a@x").await.id;
        let lost = with_keys(db, &[1]).await;
        lost.secrets().check_sealing_key().await.unwrap();
        let ids = connections(&lost, user, 2).await;
        lost.secrets().check_sealing_key().await.unwrap();
        let another_key = Sealer::parse("k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=").unwrap();
        let other = Storage::open(&db.url, another_key).await.unwrap();
        let error = other.secrets().check_sealing_key().await.unwrap_err();
        assert!(matches!(error, StorageError::Sealed(SealError::OtherKey { .. })), "{error:?}");
        let text = error.to_string();
        assert_contains!(text, "the master key `k1`", "(credentials: 2)");
        assert_contains!(text, "find the old key", "another id, such as `k1-2`");
        // Whoever begins again with a new id may seal, also beside what the lost key sealed.
        with_keys(db, &[2]).await.secrets().check_sealing_key().await.unwrap();
        // One secret that opens is enough, also if the first that is found does not.
        db.raw(&format!(
            "UPDATE secrets SET sealed = (SELECT sealed FROM secrets WHERE subject = '{}') WHERE subject = '{}'",
            ids[1], ids[0]
        ))
        .await;
        lost.secrets().check_sealing_key().await.unwrap();
    }

    async fn of_two_keys_with_one_id_only_the_first_to_seal_seals(db) {
        let user = db.user("a@x").await.id;
        let first = with_keys(db, &[1, 2]).await;
        let another_key = Sealer::parse("k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=").unwrap();
        let other = Storage::open(&db.url, another_key).await.unwrap();
        connections(&with_keys(db, &[2]).await, user, 1).await;
        // Nothing has been sealed with this id, so both processes start.
        first.secrets().check_sealing_key().await.unwrap();
        other.secrets().check_sealing_key().await.unwrap();
        assert_eq!(counts(&first.secrets().reseal_all(|_| ()).await.unwrap()), (1, 0, 0));
        let denied = other.connections().import(&new_connection(user, "other"), &[], at(1)).await;
        let error = denied.unwrap_err();
        assert!(matches!(error, StorageError::Sealed(SealError::OtherKey { .. })), "{error:?}");
        assert!(error.to_string().contains("the master key `k1`"), "{error}");
        connections(&first, user, 3).await;
        let secrets = first.secrets().sealed().await.unwrap();
        assert_eq!((secrets.opened_by["k1"], secrets.unopenable), (3, vec![]));
    }

    async fn rotation_reseals_every_secret(db) {
        let user = db.user("a@x").await.id;
        let old = with_keys(db, &[1]).await;
        let ids = connections(&old, user, 120).await;
        let revision = db.revision(user).await;
        let both = with_keys(db, &[2, 1]).await;
        assert_eq!(both.secrets().sealing_key_id(), "k2");
        assert_eq!(counts(&both.secrets().reseal_all(|_| ()).await.unwrap()), (120, 0, 0));
        assert_eq!(counts(&both.secrets().reseal_all(|_| ()).await.unwrap()), (0, 120, 0), "already rotated");
        assert_eq!(both.secrets().count().await.unwrap(), 120);
        let secrets = both.secrets().sealed().await.unwrap();
        assert_eq!(secrets.by_key.into_iter().collect::<Vec<_>>(), [("k2".to_owned(), 120)]);
        let new = with_keys(db, &[2]).await;
        for (number, id) in ids.iter().enumerate() {
            let credentials = new.secrets().find_credentials(user, *id).await.unwrap().unwrap();
            assert_eq!(credentials.expose_secret(), format!("{{\"number\":{number}}}"));
        }
        let found = old.secrets().find_credentials(user, ids[0]).await;
        assert_fails!(found, Sealed(SealError::UnknownKeyId(id)) if id == "k2");
        assert_eq!(db.revision(user).await, revision, "cached responses stay valid");
        let leftovers = if db.kind() == "sqlite" { Leftovers::None } else { Leftovers::ServerManaged };
        assert_eq!(new.secrets().erase_leftovers().await.unwrap(), leftovers);
        assert_eq!(counts(&new.secrets().reseal_all(|_| ()).await.unwrap()), (0, 120, 0));
    }

    async fn rotation_covers_every_purpose(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let old = with_keys(db, &[1]).await;
        let (mut ids, mut keys) = (Vec::new(), Vec::new());
        for user in [user, other] {
            let id = old
                .connections().import(&new_connection(user, &format!("c {user}")), &[], at(1))
                .await
                .unwrap()
                .id;
            keys.push(old.syncs().fingerprint_key(user, id).await.unwrap().expect("made"));
            let endpoint = endpoint(&old, user, &[]).await;
            assert!(rotate_secret(&old, (user, endpoint), "second", 100).await);
            ids.push((id, endpoint));
            register_provider_user(&old, user, "eu_1", &format!("provider user {user}")).await;
            for number in 0..30 {
                session_with_callback(&old, user, &format!("{number} {user}")).await;
            }
        }
        let both = with_keys(db, &[2, 1]).await;
        assert_eq!(counts(&both.secrets().reseal_all(|_| ()).await.unwrap()), (70, 0, 0));
        let new = with_keys(db, &[2]).await;
        assert_eq!(
            new.secrets().sealed().await.unwrap().opened_by.into_iter().collect::<Vec<_>>(),
            [("k2".to_owned(), 70)]
        );
        for ((user, (id, endpoint)), key) in [user, other].into_iter().zip(ids).zip(keys) {
            assert_eq!(new.secrets().find_credentials(user, id).await.unwrap().unwrap().expose_secret(), CREDENTIALS);
            assert_eq!(
                new.provider_users().find_credentials(user, "fiskil").await.unwrap().unwrap().expose_secret(),
                format!("provider user {user}")
            );
            assert_eq!(
                new.syncs().fingerprint_key(user, id).await.unwrap().unwrap().expose_secret(),
                key.expose_secret(),
            );
            let secrets = new.endpoints().secrets(user, endpoint, at(99)).await.unwrap().expect("there");
            assert_eq!((secrets.current.expose_secret(), secrets.old.unwrap().expose_secret()), ("second", SECRET));
        }
        let claims = new.claim_due_consent_sessions(at(99), at(100), 99).await.unwrap();
        assert_eq!(claims.len(), 60);
        assert!(
            claims
                .iter()
                .all(|claim| claim.secret.as_ref().is_some_and(|answer| answer.expose_secret() == "code=answer"))
        );
    }

    // Purpose, subject and user are authenticated with the value.
    async fn a_secret_opens_for_its_purpose_only(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        db.connection(user, "c", &[]).await;
        for change in [
            "UPDATE secrets SET purpose = 'provider_user', subject = 'fiskil'".to_owned(),
            "UPDATE secrets SET purpose = 'provider_user'".to_owned(),
            format!("UPDATE secrets SET user_id = '{other}'"),
        ] {
            assert!(db.secrets().sealed().await.unwrap().unopenable.is_empty());
            let before = db.texts("SELECT subject FROM secrets").await.remove(0);
            db.raw(&change).await;
            assert_eq!(db.secrets().sealed().await.unwrap().unopenable.len(), 1, "{change}");
            db.raw(&format!("UPDATE secrets SET user_id = '{user}', purpose = 'credentials', subject = '{before}'"))
                .await;
        }
    }

    async fn unopenable_secrets_are_left_unchanged(db) {
        let user = db.user("a@x").await.id;
        connections(&with_keys(db, &[1]).await, user, 3).await;
        let other_key = with_keys(db, &[9])
            .await
            .connections().import(&new_connection(user, "lost"), &[], at(1))
            .await
            .unwrap()
            .id;
        let both = with_keys(db, &[2, 1]).await;
        assert_eq!(counts(&both.secrets().reseal_all(|_| ()).await.unwrap()), (3, 0, 1));
        let unopenable = both.secrets().sealed().await.unwrap().unopenable;
        assert_eq!(
            (&unopenable[0].subject, &unopenable[0].why),
            (&other_key.to_string(), &SealError::UnknownKeyId("k9".to_owned()))
        );
        // With the missing key, the rotation covers it.
        assert_eq!(counts(&with_keys(db, &[2, 1, 9]).await.secrets().reseal_all(|_| ()).await.unwrap()), (1, 3, 0));
        assert_eq!(
            with_keys(db, &[2])
                .await
                .secrets()
                .find_credentials(user, other_key)
                .await
                .unwrap()
                .unwrap()
                .expose_secret(),
            CREDENTIALS
        );
    }

    async fn interrupted_rotation_starts_over(db) {
        let user = db.user("a@x").await.id;
        let ids = connections(&with_keys(db, &[1]).await, user, 8).await;
        for polls in 0..30 {
            let both = with_keys(db, &[2, 1]).await;
            cancel_after(polls, both.secrets().reseal_all(|_| ())).await;
            for id in &ids {
                assert!(both.secrets().find_credentials(user, *id).await.unwrap().is_some(), "{polls}");
            }
        }
        let both = with_keys(db, &[2, 1]).await;
        let total = both.secrets().reseal_all(|_| ()).await.unwrap();
        assert_eq!((total.resealed + total.already_current, total.unopenable), (8, 0));
        assert_eq!(both.secrets().sealed().await.unwrap().opened_by["k2"], 8);
    }

    // Instances renew credentials under the old and the new key while the rotation runs.
    async fn rotation_loses_no_credentials_update(db) {
        let user = db.user("a@x").await.id;
        let old = with_keys(db, &[1, 2]).await;
        let ids = connections(&old, user, 10).await;
        let mut tasks = JoinSet::new();
        for (task, keys) in [[1, 2], [2, 1]].into_iter().enumerate() {
            let writer = with_keys(db, &keys).await;
            tasks.spawn(async move {
                for round in 0..10 {
                    for number in (0..10).filter(|number| number % 2 == task) {
                        let credentials = format!("{{\"number\":{number},\"round\":{round}}}");
                        import(&writer, user, number, &credentials).await;
                    }
                }
            });
        }
        for _ in 0..3 {
            let rotating = with_keys(db, &[2, 1]).await;
            tasks.spawn(async move {
                for _ in 0..10 {
                    rotating.secrets().reseal_all(|_| ()).await.unwrap();
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        with_keys(db, &[2, 1]).await.secrets().reseal_all(|_| ()).await.unwrap();
        let new = with_keys(db, &[2]).await;
        for (number, id) in ids.iter().enumerate() {
            let credentials = new.secrets().find_credentials(user, *id).await.unwrap().unwrap();
            assert_eq!(
                credentials.expose_secret(),
                format!("{{\"number\":{number},\"round\":9}}"),
                "the last update"
            );
        }
    }
}
