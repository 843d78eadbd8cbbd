use bellbird_domain::{ConnectionCategory, ConnectionId, ConnectionStatus, UserId};
use secrecy::{ExposeSecret, SecretString};

use crate::tests::support::{
    CREDENTIALS, assert_fails, at, both, cancel_after, currency, new_account, new_connection,
};
use crate::{NewConnection, in_tx};

both! {
    async fn imports_and_finds(db) {
        let user = db.user("a@x").await;
        let made = db.connection(user.id, "consent", &[new_account("acc_1", "Everyday")]).await;
        assert_eq!(
            (made.user_id, made.provider.as_str(), made.category),
            (user.id, "akahu", ConnectionCategory::Banking)
        );
        assert_eq!((made.institution_id.as_str(), made.institution_name.as_str()), ("bank_1", "First Bank"));
        assert_eq!(made.institution_logo.as_deref(), Some("https://example.com/logo.png"));
        assert_eq!(
            (made.status, made.created_at, made.last_refreshed_at),
            (ConnectionStatus::Active, at(10), Some(at(10)))
        );
        assert_eq!(db.connections().find(user.id, made.id).await.unwrap(), Some(made.clone()));
        assert_eq!(db.connections().list(user.id).await.unwrap(), std::slice::from_ref(&made));
        assert_eq!(
            db.secrets().find_credentials(user.id, made.id).await.unwrap().unwrap().expose_secret(),
            CREDENTIALS,
        );
        assert_eq!(db.visible_accounts(user.id).await.len(), 1);
        assert_eq!(db.revision(user.id).await, 1);
        let id = db.connection(user.id, "without accounts", &[]).await.id;
        let refreshed_at = async || db.connections().find(user.id, id).await.unwrap().unwrap().last_refreshed_at;
        assert_eq!(refreshed_at().await, None);
        for (id, now) in [(id, 50), (ConnectionId::new(), 60)] {
            db.connections().set_last_refreshed_at(user.id, id, at(now)).await.unwrap();
        }
        assert_eq!(refreshed_at().await, Some(at(50)));
        assert_eq!(db.revision(user.id).await, 2, "the time raises no revision");
        db.raw("UPDATE connections SET status = 'error'").await;
        assert_fails!(db.connections().find(user.id, id).await, Corrupt("a connection status"));
        db.raw("UPDATE connections SET status = 'active', category = 'crypto'").await;
        assert_fails!(db.connections().list(user.id).await, Corrupt("a connection category"));
    }

    async fn another_user_sees_nothing(db) {
        let (user, other) = (db.user("a@x").await, db.user("b@x").await);
        let made = db.connection(user.id, "consent", &[new_account("acc_1", "Everyday")]).await;
        let account = db.visible_accounts(user.id).await[0].id;
        assert_eq!(db.connections().find(other.id, made.id).await.unwrap(), None);
        assert_eq!(db.connections().list(other.id).await.unwrap(), []);
        assert!(db.secrets().find_credentials(other.id, made.id).await.unwrap().is_none());
        assert_eq!(db.accounts().list_of_connection(other.id, made.id).await.unwrap(), []);
        assert_eq!(db.accounts().find(other.id, &[account]).await.unwrap(), []);
        assert_eq!(db.accounts().list(other.id, 10, 0).await.unwrap(), (vec![], 0));
        let (active, revoked) = (ConnectionStatus::Active, ConnectionStatus::Revoked);
        assert!(!db.set_status((other.id, made.id), active, revoked, at(20)).await);
        db.connections().set_last_refreshed_at(other.id, made.id, at(99)).await.unwrap();
        db.accounts().set_currency(other.id, account, currency("AUD")).await.unwrap();
        assert!(!db.remove(other.id, made.id, at(20)).await);
        assert!(!db.remove(UserId::new(), made.id, at(20)).await);
        for other_user in [other.id, UserId::new()] {
            assert!(!db.refresh((other_user, made.id), &[], true, at(20)).await);
        }
        assert_eq!(db.connections().find(user.id, made.id).await.unwrap(), Some(made.clone()));
        assert_eq!((db.revision(user.id).await, db.revision(other.id).await), (1, 0));
        assert_eq!(db.connections().find_any(made.id).await.unwrap(), Some(made));
    }

    async fn reimport_renews_and_keeps_every_id(db) {
        let user = db.user("a@x").await;
        let made = db.connection(user.id, "consent", &[new_account("acc_1", "Everyday")]).await;
        let account = db.visible_accounts(user.id).await[0].id;
        let (active, invalidated) = (ConnectionStatus::Active, ConnectionStatus::Invalidated);
        assert!(db.set_status((user.id, made.id), active, invalidated, at(20)).await);
        let credentials = SecretString::from("{\"renewed\":true}");
        let new = NewConnection {
            institution_name: "First Bank Ltd",
            institution_logo: None,
            credentials: &credentials,
            ..new_connection(user.id, "consent")
        };
        let accounts = [new_account("acc_1", "Daily"), new_account("acc_2", "New")];
        let again = db.connections().import(&new, &accounts, at(30)).await.unwrap();
        assert_eq!((again.id, again.created_at, again.status), (made.id, at(10), active));
        assert_eq!((again.institution_name.as_str(), again.institution_logo.as_deref()), ("First Bank Ltd", None));
        assert_eq!(again.last_refreshed_at, Some(at(30)));
        let found = db.visible_accounts(user.id).await;
        assert_eq!((found.len(), found[0].id, found[0].name.as_str()), (2, account, "Daily"));
        assert_eq!(found[0].institution_name.as_deref(), Some("First Bank Ltd"));
        assert_eq!(
            db.secrets().find_credentials(user.id, made.id).await.unwrap().unwrap().expose_secret(),
            "{\"renewed\":true}",
        );
        assert_eq!(db.revision(user.id).await, 3);
        db.connections().import(&new, &[], at(40)).await.unwrap();
        assert_eq!(db.visible_accounts(user.id).await.len(), 2, "an import deletes no account");
        assert_eq!(db.connections().list_audit(made.id).await.unwrap().len(), 3, "an unchanged status adds no row");
    }

    async fn consent_has_one_connection(db) {
        let (user, other) = (db.user("a@x").await, db.user("b@x").await);
        let made = db.connection(user.id, "consent", &[]).await;
        let import = async |user, consent, now| {
            db.connections().import(&new_connection(user, consent), &[], at(now)).await
        };
        assert_fails!(import(other.id, "consent", 20).await, Conflict(_));
        assert_eq!(db.revision(other.id).await, 0);
        let elsewhere = NewConnection { provider: "fiskil", ..new_connection(other.id, "consent") };
        db.connections().import(&elsewhere, &[], at(20)).await.expect("another provider may use the same id");
        db.hide(user.id, made.id, 30, 40).await;
        assert_fails!(import(user.id, "consent", 40).await, Conflict(_));
        assert_fails!(import(UserId::new(), "c2", 40).await, NotFound("user"));
    }

    async fn connection_being_deleted_is_hidden(db) {
        let user = db.user("a@x").await;
        let made = db.connection(user.id, "consent", &[new_account("acc_1", "Everyday")]).await;
        let account = db.visible_accounts(user.id).await[0].id;
        db.hide(user.id, made.id, 20, 40).await;
        assert_eq!(db.connections().find(user.id, made.id).await.unwrap(), None);
        assert_eq!(db.connections().list(user.id).await.unwrap(), []);
        assert_eq!(db.accounts().list(user.id, 10, 0).await.unwrap(), (vec![], 0));
        assert_eq!(db.accounts().list(user.id, 10, 5).await.unwrap(), (vec![], 0));
        assert_eq!(db.accounts().list_of_connection(user.id, made.id).await.unwrap(), []);
        assert_eq!(db.accounts().find(user.id, &[account]).await.unwrap(), []);
        assert!(!db.refresh((user.id, made.id), &[], false, at(30)).await);
        assert_eq!(
            db.connections().find_any(made.id).await.unwrap().map(|found| found.status),
            Some(ConnectionStatus::Deleting)
        );
        assert_eq!(db.connections().list_all().await.unwrap().len(), 1);
        assert!(db.secrets().find_credentials(user.id, made.id).await.unwrap().is_some());
        assert_fails!(in_tx!(db, user::delete(user.id, at(900))).await, Conflict(_));
    }

    async fn removal_deletes_every_row(db) {
        let user = db.user("a@x").await;
        let made = db.connection(user.id, "consent", &[new_account("acc_1", "Everyday")]).await;
        let kept = db.connection(user.id, "other", &[new_account("acc_1", "Kept")]).await;
        for connection in [made.id, kept.id] {
            db.syncs().fingerprint_key(user.id, connection).await.unwrap().expect("made");
        }
        assert!(db.remove(user.id, made.id, at(20)).await);
        assert_eq!(db.connections().find_any(made.id).await.unwrap(), None);
        assert!(db.secrets().find_credentials(user.id, made.id).await.unwrap().is_none());
        let names: Vec<_> = db.visible_accounts(user.id).await.into_iter().map(|account| account.name).collect();
        assert_eq!(names, ["Kept"]);
        for table in ["connections", "accounts", "syncs"] {
            assert_eq!(db.rows(table).await, 1, "{table}");
        }
        assert_eq!((db.secrets_for("fingerprints").await, db.secrets_for("credentials").await), (1, 1));
        assert!(db.syncs().fingerprint_key(user.id, kept.id).await.unwrap().is_some());
        assert!(db.secrets().find_credentials(user.id, kept.id).await.unwrap().is_some());
        assert_eq!(db.revision(user.id).await, 4, "hidden, then deleted");
        assert!(!db.remove(user.id, made.id, at(30)).await);
        let again = db.connection(user.id, "consent", &[]).await;
        assert_ne!(again.id, made.id, "the consent is free again");
    }

    async fn lists_newest_first_then_by_id(db) {
        let user = db.user("a@x").await;
        let mut expected = Vec::new();
        for (consent, made) in [("c1", 10), ("c2", 30), ("c3", 20), ("c4", 30)] {
            let new = new_connection(user.id, consent);
            let made = db.connections().import(&new, &[], at(made)).await.unwrap();
            expected.push((std::cmp::Reverse(made.created_at), made.id));
        }
        expected.sort();
        let listed = db.connections().list(user.id).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|found| (std::cmp::Reverse(found.created_at), found.id)).collect();
        assert_eq!(listed, expected);
        db.connection(db.user("b@x").await.id, "c5", &[]).await;
        assert_eq!(db.connections().list_all().await.unwrap().len(), 5);
    }

    async fn cancelled_import_stores_all_or_nothing(db) {
        let user = db.user("a@x").await;
        let mut made = 0;
        for polls in 0..40 {
            let consent = format!("c{polls}");
            let accounts = [new_account("acc_1", "One"), new_account("acc_2", "Two")];
            let new = new_connection(user.id, &consent);
            let imported = cancel_after(polls, db.connections().import(&new, &accounts, at(10))).await;
            let stored = db.reopen().await.connections().list(user.id).await.unwrap().len();
            // A commit completes even if its caller was cancelled, perhaps only just now.
            assert!(stored == made || stored == made + 1, "{made} {stored}");
            assert!(imported.is_none() || stored == made + 1);
            let next_user = db.user(&format!("next{polls}@x")).await;
            assert_ne!(next_user.id, user.id, "later writes work");
            made = db.connections().list(user.id).await.unwrap().len();
            assert_eq!(db.visible_accounts(user.id).await.len(), made * 2);
            assert_eq!(db.revision(user.id).await, i64::try_from(made).unwrap());
            assert_eq!(db.secrets().sealed().await.unwrap().opened_by.into_values().sum::<u64>(), made as u64);
        }
        assert!(made > 0);
    }
}
