use bellbird_domain::UserId;
use secrecy::ExposeSecret as _;

use crate::tests::fixtures::{
    claim_registration, claimed_registration, register_provider_user, secret,
};
use crate::tests::support::{assert_fails, at, both};
use crate::{ProviderUserState, SealError, Sealer, Storage, StorageError, job_kinds};

both! {
    async fn user_is_registered_once(db) {
        let user = db.user("a@x").await.id;
        let held = claimed_registration(db, user, 0).await;
        assert_eq!(
            (held.job.user_id(), held.job.provider.as_str(), &held.abandoned_reference),
            (user, "fiskil", &None)
        );
        assert!(matches!(claim_registration(db, user, 29).await, ProviderUserState::Busy));
        assert!(db.provider_users().find_credentials(user, "fiskil").await.unwrap().is_none());
        assert!(db.provider_users().set_reference(&held, "ref").await.unwrap());
        assert!(
            db.provider_users().finish(&held, Some("eu_1"), &secret("provider user credentials")).await.unwrap()
        );
        let ready = claim_registration(db, user, 1).await;
        assert!(!format!("{ready:?}").contains("provider user credentials"));
        assert!(
            matches!(ready, ProviderUserState::Ready(found) if found.expose_secret() == "provider user credentials")
        );
        assert!(!db.provider_users().finish(&held, None, &secret("again")).await.unwrap());
        assert!(!db.provider_users().set_reference(&held, "again").await.unwrap());
        assert_eq!(
            db.provider_users().find_credentials(user, "fiskil").await.unwrap().unwrap().expose_secret(),
            "provider user credentials"
        );
        assert!(db.provider_users().find_credentials(user, "akahu").await.unwrap().is_none());
        let listed = db.provider_users().list(user).await.unwrap();
        assert_eq!(
            (listed.len(), listed[0].provider.as_str(), listed[0].reference.as_deref()),
            (1, "fiskil", Some("ref"))
        );
        assert!(!format!("{listed:?}").contains("provider user credentials"));
        assert_eq!(listed[0].credentials.as_ref().unwrap().expose_secret(), "provider user credentials");
        assert_fails!(db.provider_users().claim(UserId::new(), "fiskil", at(0), at(9)).await, NotFound("user"));
        assert_eq!(db.revision(user).await, 0);

        let other_key = Storage::open(&db.url, Sealer::random()).await.unwrap();
        for error in [
            other_key.provider_users().find_credentials(user, "fiskil").await.unwrap_err(),
            other_key.provider_users().list(user).await.unwrap_err(),
            other_key.provider_users().claim(user, "fiskil", at(0), at(9)).await.unwrap_err(),
        ] {
            assert!(matches!(error, StorageError::Sealed(SealError::DoesNotOpen)), "{error:?}");
        }
        let unopenable = other_key.secrets().sealed().await.unwrap().unopenable;
        assert_eq!(
            (unopenable[0].user_id, unopenable[0].purpose.as_str(), unopenable[0].subject.as_str()),
            (user, "provider_user", "fiskil")
        );
    }

    async fn expired_claim_leaves_a_reference_or_is_undone(db) {
        let user = db.user("a@x").await.id;
        let killed = claimed_registration(db, user, 0).await;
        assert!(db.provider_users().set_reference(&killed, "ref 1").await.unwrap());
        let next = claimed_registration(db, user, 30).await;
        assert_eq!(next.abandoned_reference.as_deref(), Some("ref 1"));
        assert!(!db.provider_users().set_reference(&killed, "late").await.unwrap());
        assert!(!db.provider_users().finish(&killed, Some("late"), &secret("late")).await.unwrap());
        assert!(!db.jobs().fail(&killed.job, "late", at(31)).await.unwrap());
        assert!(matches!(claim_registration(db, user, 31).await, ProviderUserState::Busy), "a lost lease cannot be released");
        let listed = db.provider_users().list(user).await.unwrap();
        assert_eq!((listed[0].reference.as_deref(), listed[0].credentials.is_none()), (Some("ref 1"), true));
        assert!(db.jobs().fail(&next.job, "the provider is not available", at(60)).await.unwrap());
        assert!(!db.provider_users().finish(&next, None, &secret("late")).await.unwrap(), "released");
        let last = claimed_registration(db, user, 32).await;
        assert_eq!(last.abandoned_reference.as_deref(), Some("ref 1"), "the reference stays");
        assert!(db.provider_users().finish(&last, None, &secret("credentials")).await.unwrap());

        // An unfinished registration can be undone.
        let user = db.user("b@x").await.id;
        let killed = claimed_registration(db, user, 0).await;
        assert!(db.provider_users().set_reference(&killed, "ref 1").await.unwrap());
        let job = db.jobs().claim_due(job_kinds::PROVIDER_USER, "fiskil", at(30), at(60)).await.unwrap().expect("due");
        assert_eq!(db.provider_users().find_abandoned_reference(&job).await.unwrap().as_deref(), Some("ref 1"));
        assert!(!db.provider_users().delete_unfinished(&killed.job).await.unwrap(), "lease lost");
        assert!(db.provider_users().delete_unfinished(&job).await.unwrap());
        assert_eq!(db.provider_users().list(user).await.unwrap().len(), 0);
        register_provider_user(db, user, "eu_1", "credentials").await;
        assert_eq!(db.jobs().claim_due(job_kinds::PROVIDER_USER, "fiskil", at(999), at(1000)).await.unwrap(), None);
    }

    async fn deleting_ends_credentials_and_claim(db) {
        let user = db.user("a@x").await.id;
        register_provider_user(db, user, "eu_1", "credentials").await;
        db.provider_users().delete(user, "fiskil").await.unwrap();
        db.provider_users().delete(user, "fiskil").await.unwrap();
        db.provider_users().delete(UserId::new(), "fiskil").await.unwrap();
        assert_eq!(
            (db.provider_users().list(user).await.unwrap().len(), db.secrets_for("provider_user").await),
            (0, 0),
        );
        let stale = claimed_registration(db, user, 0).await;
        db.provider_users().delete(user, "fiskil").await.unwrap();
        let current = claimed_registration(db, user, 0).await;
        assert!(!db.provider_users().finish(&stale, None, &secret("late")).await.unwrap());
        assert!(db.provider_users().finish(&current, None, &secret("credentials")).await.unwrap());
        db.provider_users().delete(user, "fiskil").await.unwrap();
        db.delete_user(user).await;
    }

    async fn deletion_requires_matching_provider_user(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        register_provider_user(db, user, "eu_1", "credentials").await;
        register_provider_user(db, other, "eu_2", "credentials").await;
        for (user, provider, credentials) in [
            (user, "fiskil", "eu_2"),
            (user, "akahu", "eu_1"),
            (other, "fiskil", "eu_1"),
            (UserId::new(), "fiskil", "eu_1"),
        ] {
            assert!(
                !db.provider_users().delete_of(user, provider, credentials).await.unwrap(),
                "{provider} {credentials}"
            );
        }
        assert_eq!(db.secrets_for("provider_user").await, 2);
        assert!(db.provider_users().delete_of(user, "fiskil", "eu_1").await.unwrap());
        assert!(!db.provider_users().delete_of(user, "fiskil", "eu_1").await.unwrap());
        assert_eq!(
            (db.provider_users().list(user).await.unwrap().len(), db.secrets_for("provider_user").await),
            (0, 1),
        );
        assert!(db.provider_users().find_credentials(other, "fiskil").await.unwrap().is_some());
        let claim = claimed_registration(db, user, 0).await;
        assert!(!db.provider_users().delete_of(user, "fiskil", "eu_1").await.unwrap(), "a new registration has begun");
        assert!(db.provider_users().finish(&claim, None, &secret("credentials")).await.unwrap());
        assert!(!db.provider_users().delete_of(user, "fiskil", "eu_1").await.unwrap(), "its provider id is unknown");
        db.raw("DELETE FROM secrets").await;
        assert!(!db.provider_users().delete_of(other, "fiskil", "eu_2").await.unwrap(), "not registered");
    }
}
