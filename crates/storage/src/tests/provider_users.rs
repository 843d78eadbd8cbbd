use bellbird_domain::UserId;
use secrecy::ExposeSecret as _;

use super::link_sessions::secret;
use super::{at, both};
use crate::{ClaimedProviderUser, ProviderUser, SealError, Sealer, Storage, StorageError};

async fn claim(db: &Storage, user: UserId, now: i64) -> ProviderUser {
    db.claim_provider_user(user, "fiskil", at(now), at(now + 30)).await.unwrap()
}

async fn claimed(db: &Storage, user: UserId, now: i64) -> ClaimedProviderUser {
    match claim(db, user, now).await {
        ProviderUser::Claimed(claim) => claim,
        other => panic!("{other:?}"),
    }
}

/// A user who is registered under an id of the provider.
pub(crate) async fn registered(db: &Storage, user: UserId, owner_id: &str, owner: &str) {
    let claim = claimed(db, user, 0).await;
    assert!(db.begin_provider_user(&claim, "ref").await.unwrap());
    assert!(db.finish_provider_user(&claim, Some(owner_id), &secret(owner)).await.unwrap());
}

both! {
    async fn a_user_is_registered_once(db) {
        let user = db.user("a@x").await.id;
        let claim_of_it = claimed(db, user, 0).await;
        assert_eq!((claim_of_it.user_id, claim_of_it.provider.as_str(), &claim_of_it.abandoned), (user, "fiskil", &None));
        assert!(matches!(claim(db, user, 29).await, ProviderUser::Busy));
        assert!(db.find_owner(user, "fiskil").await.unwrap().is_none());
        assert!(db.begin_provider_user(&claim_of_it, "ref").await.unwrap());
        assert!(db.finish_provider_user(&claim_of_it, Some("eu_1"), &secret("owner grant")).await.unwrap());
        let ready = claim(db, user, 1).await;
        assert!(!format!("{ready:?}").contains("owner grant"));
        assert!(matches!(ready, ProviderUser::Ready(grant) if grant.expose_secret() == "owner grant"));
        assert!(!db.finish_provider_user(&claim_of_it, None, &secret("again")).await.unwrap());
        assert!(!db.begin_provider_user(&claim_of_it, "again").await.unwrap());
        assert_eq!(db.find_owner(user, "fiskil").await.unwrap().unwrap().expose_secret(), "owner grant");
        assert!(db.find_owner(user, "akahu").await.unwrap().is_none());
        let listed = db.list_provider_users(user).await.unwrap();
        assert_eq!((listed.len(), listed[0].provider.as_str(), listed[0].reference.as_deref()), (1, "fiskil", Some("ref")));
        assert!(!format!("{listed:?}").contains("owner grant"));
        assert_eq!(listed[0].owner.as_ref().unwrap().expose_secret(), "owner grant");
        let error = db.claim_provider_user(UserId::new(), "fiskil", at(0), at(9)).await.unwrap_err();
        assert!(matches!(error, StorageError::NotFound("user")), "{error:?}");
        assert_eq!(db.revision(user).await, 0);
    }

    async fn one_of_two_registers(db) {
        let handles = [db.again().await, db.again().await];
        for round in 0..6 {
            let user = db.user(&format!("{round}@x")).await.id;
            let (one, other) = tokio::join!(claim(&handles[0], user, 0), claim(&handles[1], user, 0));
            let both = [one, other];
            assert_eq!(both.iter().filter(|one| matches!(one, ProviderUser::Claimed(_))).count(), 1, "{both:?}");
            assert_eq!(both.iter().filter(|one| matches!(one, ProviderUser::Busy)).count(), 1, "{both:?}");
        }
    }

    async fn whoever_is_killed_leaves_what_they_tried(db) {
        let user = db.user("a@x").await.id;
        let killed = claimed(db, user, 0).await;
        assert!(db.begin_provider_user(&killed, "ref 1").await.unwrap());
        let next = claimed(db, user, 30).await;
        assert_eq!(next.abandoned.as_deref(), Some("ref 1"));
        assert!(!db.begin_provider_user(&killed, "late").await.unwrap());
        assert!(!db.finish_provider_user(&killed, Some("late"), &secret("late")).await.unwrap());
        db.release_provider_user(&killed).await.unwrap();
        assert!(matches!(claim(db, user, 31).await, ProviderUser::Busy), "that was not theirs to give back");
        let listed = db.list_provider_users(user).await.unwrap();
        assert_eq!((listed[0].reference.as_deref(), listed[0].owner.is_none()), (Some("ref 1"), true));
        db.release_provider_user(&next).await.unwrap();
        assert!(!db.finish_provider_user(&next, None, &secret("late")).await.unwrap(), "given back");
        let last = claimed(db, user, 32).await;
        assert_eq!(last.abandoned.as_deref(), Some("ref 1"), "the reference stays");
        assert!(db.finish_provider_user(&last, None, &secret("grant")).await.unwrap());
    }

    async fn forgetting_takes_the_grant_and_overtakes(db) {
        let user = db.user("a@x").await.id;
        registered(db, user, "eu_1", "grant").await;
        assert!(matches!(db.delete_user(user).await, Err(StorageError::Conflict(why)) if why.contains("registered at a provider")));
        db.delete_provider_user(user, "fiskil").await.unwrap();
        db.delete_provider_user(user, "fiskil").await.unwrap();
        db.delete_provider_user(UserId::new(), "fiskil").await.unwrap();
        assert_eq!((db.list_provider_users(user).await.unwrap().len(), db.secrets_for("owner").await), (0, 0));
        let overtaken = claimed(db, user, 0).await;
        db.delete_provider_user(user, "fiskil").await.unwrap();
        let anew = claimed(db, user, 0).await;
        assert!(!db.finish_provider_user(&overtaken, None, &secret("late")).await.unwrap());
        assert!(db.finish_provider_user(&anew, None, &secret("grant")).await.unwrap());
        db.delete_provider_user(user, "fiskil").await.unwrap();
        db.delete_user(user).await.unwrap();
    }

    async fn a_registration_is_forgotten_for_its_owner_only(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        registered(db, user, "eu_1", "grant").await;
        registered(db, other, "eu_2", "grant").await;
        for (user, provider, owner) in
            [(user, "fiskil", "eu_2"), (user, "akahu", "eu_1"), (other, "fiskil", "eu_1"), (UserId::new(), "fiskil", "eu_1")]
        {
            assert!(!db.delete_provider_user_of(user, provider, owner).await.unwrap(), "{provider} {owner}");
        }
        assert_eq!(db.secrets_for("owner").await, 2);
        assert!(db.delete_provider_user_of(user, "fiskil", "eu_1").await.unwrap());
        assert!(!db.delete_provider_user_of(user, "fiskil", "eu_1").await.unwrap());
        assert_eq!((db.list_provider_users(user).await.unwrap().len(), db.secrets_for("owner").await), (0, 1));
        assert!(db.find_owner(other, "fiskil").await.unwrap().is_some());
        let claim = claimed(db, user, 0).await;
        assert!(!db.delete_provider_user_of(user, "fiskil", "eu_1").await.unwrap(), "about to be registered anew");
        assert!(db.finish_provider_user(&claim, None, &secret("grant")).await.unwrap());
        assert!(!db.delete_provider_user_of(user, "fiskil", "eu_1").await.unwrap(), "nobody knows whose it is");
        db.raw("DELETE FROM secrets").await;
        assert!(!db.delete_provider_user_of(other, "fiskil", "eu_2").await.unwrap(), "not registered");
    }

    async fn a_grant_that_does_not_open_says_so(db) {
        let user = db.user("a@x").await.id;
        registered(db, user, "eu_1", "grant").await;
        let stranger = Storage::open(&db.url, Sealer::random()).await.unwrap();
        for error in [
            stranger.find_owner(user, "fiskil").await.unwrap_err(),
            stranger.list_provider_users(user).await.unwrap_err(),
            stranger.claim_provider_user(user, "fiskil", at(0), at(9)).await.unwrap_err(),
        ] {
            assert!(matches!(error, StorageError::Sealed(SealError::DoesNotOpen)), "{error:?}");
        }
        let unopenable = stranger.sealed_secrets().await.unwrap().unopenable;
        assert_eq!((unopenable[0].user_id, unopenable[0].purpose.as_str(), unopenable[0].subject.as_str()), (user, "owner", "fiskil"));
    }
}
