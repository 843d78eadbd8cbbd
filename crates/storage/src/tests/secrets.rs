//! Sealing anew while others write.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellbird_domain::{ConnectionId, UserId};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::task::JoinSet;

use super::endpoints::{SECRET, endpoint};
use super::link_sessions::{returned, secret};
use super::provider_users::registered;
use super::{GRANT, TestDb, at, both, give_up_after, grant, new_connection};
use crate::{Leftovers, ResealedBatch, SealError, Sealer, Storage, StorageError};

/// Keys in the order of `numbers`; the key of a number is always the same.
pub(crate) fn keys(numbers: &[u8]) -> Sealer {
    let entry = |number: &u8| format!("k{number}:{}", STANDARD.encode([*number; 32]));
    Sealer::parse(&numbers.iter().map(entry).collect::<Vec<_>>().join(",")).expect("good keys")
}

/// The same database, as a program with these keys opens it.
pub(crate) async fn with_keys(db: &TestDb, numbers: &[u8]) -> Storage {
    Storage::open(&db.url, keys(numbers)).await.expect("opens")
}

/// Walks over everything.
pub(crate) async fn rotate(storage: &Storage) -> ResealedBatch {
    let mut all = ResealedBatch::default();
    loop {
        let batch = storage.reseal_batch(all.next.take()).await.unwrap();
        all.resealed += batch.resealed;
        all.already_current += batch.already_current;
        all.unopenable += batch.unopenable;
        all.next = batch.next;
        if all.next.is_none() {
            return all;
        }
    }
}

async fn connections(storage: &Storage, user: UserId, count: usize) -> Vec<ConnectionId> {
    let mut ids = Vec::new();
    for number in 0..count {
        let grant = SecretString::from(format!("{{\"number\":{number}}}"));
        let consent = format!("c{number}");
        ids.push(storage.adopt_connection(&new_connection(user, &consent, &grant), &[], at(1)).await.unwrap().id);
    }
    ids
}

fn counts(batch: &ResealedBatch) -> (u64, u64, u64) {
    (batch.resealed, batch.already_current, batch.unopenable)
}

both! {
    async fn a_grant_opens_with_its_key_and_in_its_row_only(db) {
        let user = db.user("a@x").await;
        let first = db.connection(user.id, "c1", &[]).await.id;
        let second = db.connection(user.id, "c2", &[]).await.id;
        let secrets = db.sealed_secrets().await.unwrap();
        assert_eq!((secrets.by_key["random"], secrets.opened_by["random"], secrets.unopenable), (2, 2, vec![]));
        let stranger = Storage::open(&db.url, Sealer::random()).await.unwrap();
        let secrets = stranger.sealed_secrets().await.unwrap();
        assert_eq!((secrets.by_key["random"], secrets.opened_by["random"], secrets.unopenable.len()), (2, 0, 2));
        let error = stranger.find_grant(user.id, first).await.unwrap_err();
        assert!(matches!(error, StorageError::Sealed(SealError::DoesNotOpen)), "{error:?}");
        db.raw(&format!(
            "UPDATE secrets SET sealed = (SELECT sealed FROM secrets WHERE subject = '{first}')
             WHERE subject = '{second}'"
        ))
        .await;
        let unopenable = db.sealed_secrets().await.unwrap().unopenable;
        assert_eq!((unopenable.len(), &unopenable[0].why), (1, &SealError::DoesNotOpen), "a grant moved to another row");
        assert_eq!((unopenable[0].user_id, unopenable[0].purpose.as_str(), &unopenable[0].subject), (user.id, "grant", &second.to_string()));
    }

    async fn everything_is_sealed_anew_and_stays_what_it_was(db) {
        let user = db.user("a@x").await.id;
        let old = with_keys(db, &[1]).await;
        let ids = connections(&old, user, 120).await;
        let revision = db.revision(user).await;
        let both = with_keys(db, &[2, 1]).await;
        assert_eq!(both.sealing_key_id(), "k2");
        assert_eq!(counts(&rotate(&both).await), (120, 0, 0));
        assert_eq!(counts(&rotate(&both).await), (0, 120, 0), "done already");
        assert_eq!(both.count_secrets().await.unwrap(), 120);
        let secrets = both.sealed_secrets().await.unwrap();
        assert_eq!(secrets.by_key.into_iter().collect::<Vec<_>>(), [("k2".to_owned(), 120)]);
        let new = with_keys(db, &[2]).await;
        for (number, id) in ids.iter().enumerate() {
            let grant = new.find_grant(user, *id).await.unwrap().unwrap();
            assert_eq!(grant.expose_secret(), format!("{{\"number\":{number}}}"));
        }
        let error = old.find_grant(user, ids[0]).await.unwrap_err();
        assert!(matches!(error, StorageError::Sealed(SealError::UnknownKeyId(id)) if id == "k2"));
        assert_eq!(db.revision(user).await, revision, "what is known of the user stays true");
        let leftovers = if db.kind() == "sqlite" { Leftovers::None } else { Leftovers::UpToTheServer };
        assert_eq!(new.erase_leftovers().await.unwrap(), leftovers);
        assert_eq!(counts(&rotate(&new).await), (0, 120, 0));
    }

    async fn secrets_of_every_purpose_are_sealed_anew(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let old = with_keys(db, &[1]).await;
        let (mut ids, mut keys) = (Vec::new(), Vec::new());
        for user in [user, other] {
            let id = old.adopt_connection(&new_connection(user, &format!("c {user}"), &grant()), &[], at(1)).await.unwrap().id;
            keys.push(old.marks_key(user, id).await.unwrap().expect("made"));
            let endpoint = endpoint(&old, user, &[]).await;
            assert!(old.rotate_endpoint_secret(user, endpoint, &secret("second"), at(100)).await.unwrap());
            ids.push((id, endpoint));
            registered(&old, user, "eu_1", &format!("owner {user}")).await;
            for number in 0..30 {
                returned(&old, user, &format!("{number} {user}")).await;
            }
        }
        let both = with_keys(db, &[2, 1]).await;
        assert_eq!(counts(&rotate(&both).await), (70, 0, 0));
        let new = with_keys(db, &[2]).await;
        assert_eq!(new.sealed_secrets().await.unwrap().opened_by.into_iter().collect::<Vec<_>>(), [("k2".to_owned(), 70)]);
        for ((user, (id, endpoint)), key) in [user, other].into_iter().zip(ids).zip(keys) {
            assert_eq!(new.find_grant(user, id).await.unwrap().unwrap().expose_secret(), GRANT);
            assert_eq!(new.find_owner(user, "fiskil").await.unwrap().unwrap().expose_secret(), format!("owner {user}"));
            assert_eq!(new.marks_key(user, id).await.unwrap().unwrap().expose_secret(), key.expose_secret());
            let secrets = new.endpoint_secrets(user, endpoint, at(99)).await.unwrap().expect("there");
            assert_eq!((secrets.current.expose_secret(), secrets.old.unwrap().expose_secret()), ("second", SECRET));
        }
        let claims = new.claim_due_link_sessions(at(99), at(100), 99).await.unwrap();
        assert_eq!(claims.len(), 60);
        assert!(claims.iter().all(|claim| claim.sealed.as_ref().is_some_and(|answer| answer.expose_secret() == "code=answer")));
    }

    // Purpose, subject and user are all part of what is sealed.
    async fn a_secret_opens_for_its_purpose_only(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        db.connection(user, "c", &[]).await;
        for change in [
            "UPDATE secrets SET purpose = 'owner', subject = 'fiskil'".to_owned(),
            "UPDATE secrets SET purpose = 'owner'".to_owned(),
            format!("UPDATE secrets SET user_id = '{other}'"),
        ] {
            assert!(db.sealed_secrets().await.unwrap().unopenable.is_empty());
            let before = db.texts("SELECT subject FROM secrets").await.remove(0);
            db.raw(&change).await;
            assert_eq!(db.sealed_secrets().await.unwrap().unopenable.len(), 1, "{change}");
            db.raw(&format!("UPDATE secrets SET user_id = '{user}', purpose = 'grant', subject = '{before}'")).await;
        }
    }

    async fn what_does_not_open_is_left_as_it_is(db) {
        let user = db.user("a@x").await.id;
        connections(&with_keys(db, &[1]).await, user, 3).await;
        let grant = grant();
        let lost = with_keys(db, &[9]).await.adopt_connection(&new_connection(user, "lost", &grant), &[], at(1)).await.unwrap().id;
        let both = with_keys(db, &[2, 1]).await;
        assert_eq!(counts(&rotate(&both).await), (3, 0, 1));
        let unopenable = both.sealed_secrets().await.unwrap().unopenable;
        assert_eq!((&unopenable[0].subject, &unopenable[0].why), (&lost.to_string(), &SealError::UnknownKeyId("k9".to_owned())));
        // With the missing key everything is well again.
        assert_eq!(counts(&rotate(&with_keys(db, &[2, 1, 9]).await).await), (1, 3, 0));
        assert_eq!(with_keys(db, &[2]).await.find_grant(user, lost).await.unwrap().unwrap().expose_secret(), GRANT);
    }

    async fn an_interrupted_walk_is_begun_again(db) {
        let user = db.user("a@x").await.id;
        let ids = connections(&with_keys(db, &[1]).await, user, 8).await;
        for polls in 0..30 {
            let both = with_keys(db, &[2, 1]).await;
            give_up_after(polls, both.reseal_batch(None)).await;
            for id in &ids {
                assert!(both.find_grant(user, *id).await.unwrap().is_some(), "{polls}");
            }
        }
        let both = with_keys(db, &[2, 1]).await;
        let walked = rotate(&both).await;
        assert_eq!((walked.resealed + walked.already_current, walked.unopenable), (8, 0));
        assert_eq!(both.sealed_secrets().await.unwrap().opened_by["k2"], 8);
    }

    // A copy of the service renews grants, with the old key and with the new one, while everything is sealed anew.
    async fn no_change_of_a_grant_is_lost(db) {
        let user = db.user("a@x").await.id;
        let old = with_keys(db, &[1, 2]).await;
        let ids = connections(&old, user, 10).await;
        let mut tasks = JoinSet::new();
        for (task, keys) in [[1, 2], [2, 1]].into_iter().enumerate() {
            let writer = with_keys(db, &keys).await;
            tasks.spawn(async move {
                for round in 0..10 {
                    for number in (0..10).filter(|number| number % 2 == task) {
                        let grant = SecretString::from(format!("{{\"number\":{number},\"round\":{round}}}"));
                        let consent = format!("c{number}");
                        writer.adopt_connection(&new_connection(user, &consent, &grant), &[], at(2)).await.unwrap();
                    }
                }
            });
        }
        for _ in 0..3 {
            let rotating = with_keys(db, &[2, 1]).await;
            tasks.spawn(async move {
                for _ in 0..10 {
                    rotate(&rotating).await;
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        rotate(&with_keys(db, &[2, 1]).await).await;
        let new = with_keys(db, &[2]).await;
        for (number, id) in ids.iter().enumerate() {
            let grant = new.find_grant(user, *id).await.unwrap().unwrap();
            assert_eq!(grant.expose_secret(), format!("{{\"number\":{number},\"round\":9}}"), "the last that was stored");
        }
    }
}
