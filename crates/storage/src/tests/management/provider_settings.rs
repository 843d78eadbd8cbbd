use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};

use crate::tests::fixtures::{
    claimed_registration, register_provider_user, secret, session_with_callback, start_session,
    with_keys,
};
use crate::tests::instances::new_instance;
use crate::tests::support::{TestDb, at, both};
use crate::{Storage, StoredConsole, in_tx};

fn credentials(secret: &str) -> BTreeMap<String, SecretString> {
    [("client_secret".to_owned(), SecretString::from(secret))].into()
}

async fn set(db: &Storage, provider: &str, secret: &str, now: i64) {
    let credentials = credentials(secret);
    let set = in_tx!(
        db,
        provider_settings::set(db.secrets(), provider, &credentials, at(now))
    );
    set.await.unwrap();
}

/// As an instance with a row reads it.
async fn revision(db: &TestDb) -> i64 {
    db.instances().renew(&new_instance(1), at(0)).await.unwrap();
    *db.provider_settings().changes().borrow()
}

both! {
    async fn every_change_raises_the_revision(db) {
        let mut revisions = vec![revision(db).await];
        set(db, "fiskil", "a", 1).await;
        revisions.push(revision(db).await);
        set(db, "akahu", "b", 2).await;
        revisions.push(revision(db).await);
        in_tx!(db, provider_settings::remove("fiskil", at(3))).await.unwrap();
        revisions.push(revision(db).await);
        in_tx!(db, provider_settings::use_sandbox("akahu", at(4))).await.unwrap();
        revisions.push(revision(db).await);
        assert_eq!(revisions, [0, 1, 2, 3, 4]);
        let stored = db.provider_settings().list().await.unwrap();
        let rows: Vec<_> = stored
            .iter()
            .map(|row| (row.provider.as_str(), row.is_sandbox, row.credentials.is_some(), row.changed_at))
            .collect();
        assert_eq!(rows, [("akahu", true, false, at(4)), ("fiskil", false, false, at(3))]);
        assert_eq!(db.secrets().count().await.unwrap(), 0, "nothing sealed is left");
    }

    async fn what_is_entered_for_the_console_is_sealed_and_no_provider(db) {
        assert_eq!(db.provider_settings().console().await.unwrap(), StoredConsole::default());
        let entered = StoredConsole {
            operator_name: Some("Example Ltd".to_owned()),
            public_url: Some("https://bellbird.example.com".to_owned()),
        };
        let old = with_keys(db, &[1]).await;
        in_tx!(old, provider_settings::set_console(old.secrets(), &entered, at(1))).await.unwrap();
        assert_eq!(old.provider_settings().console().await.unwrap(), entered);
        assert_eq!(revision(db).await, 1, "instances follow");
        assert!(old.provider_settings().list().await.unwrap().is_empty());
        let other_key = with_keys(db, &[2]).await;
        assert_eq!(other_key.provider_settings().console().await.unwrap(), StoredConsole::default());
    }

    async fn credentials_are_sealed_again_with_a_new_key(db) {
        let old = with_keys(db, &[1]).await;
        set(&old, "fiskil", "secret", 1).await;
        let new = with_keys(db, &[2, 1]).await;
        assert_eq!(new.secrets().reseal_all(|_| {}).await.unwrap().resealed, 1);
        let stored = with_keys(db, &[2]).await.provider_settings().list().await.unwrap();
        let opened = stored[0].credentials.as_ref().unwrap();
        assert_eq!(opened["client_secret"].expose_secret(), "secret");
        let lost = old.secrets().sealed().await.unwrap().unopenable;
        assert_eq!((lost[0].purpose.as_str(), lost[0].subject.as_str()), ("provider_settings", "fiskil"));
        let sealed = &old.provider_settings().list().await.unwrap()[0];
        assert!(sealed.credentials.is_none() && sealed.is_sealed && sealed.is_used());
    }

    async fn connection_session_or_registration_is_a_use(db) {
        for provider in ["akahu", "fiskil"] {
            set(db, provider, "a", 1).await;
        }
        let in_use = async |now| db.provider_settings().list_in_use(at(now)).await.unwrap();
        let is_linked = async |now| in_tx!(db, provider_settings::is_linked("akahu", at(now))).await.unwrap();
        let user = db.user("a@x").await.id;
        assert!(in_use(0).await.is_empty() && !is_linked(0).await);
        start_session(db, user, "state").await;
        assert_eq!((in_use(59).await, is_linked(59).await), (vec!["akahu".to_owned()], true));
        assert!(in_use(60).await.is_empty() && !is_linked(60).await, "its browser did not come back");
        session_with_callback(db, user, "other").await;
        assert!(is_linked(9999).await, "it is worked on");

        register_provider_user(db, user, "id", "credentials").await;
        assert_eq!(in_use(9999).await, ["akahu", "fiskil"]);
        assert!(in_tx!(db, provider_settings::is_registered("fiskil")).await.unwrap());
        in_tx!(db, provider_settings::forget_registrations("fiskil")).await.unwrap();
        assert!(!in_tx!(db, provider_settings::is_registered("fiskil")).await.unwrap());
        assert_eq!(in_use(9999).await, ["akahu"]);
        assert_eq!(db.secrets_for("provider_user").await, 0);
        // A registration that was forgotten is not completed.
        let user = db.user("b@x").await.id;
        let claim = claimed_registration(db, user, 0).await;
        in_tx!(db, provider_settings::forget_registrations("fiskil")).await.unwrap();
        let finished = db.provider_users().finish(&claim, None, &secret("credentials")).await;
        assert!(!finished.unwrap());
        assert_eq!(db.secrets_for("provider_user").await, 0);
    }
}
