use bellbird_domain::{Plan, UserId};

use crate::tests::fixtures::{
    new_link, register_provider_user, session_with_callback, start_session,
};
use crate::tests::support::{assert_fails, at, both, key};
use crate::{NewUser, StorageError, UserChange, in_tx};

both! {
    async fn finds_what_was_added(db) {
        let (email, timezone, reference) = ("Zoë@Example.com", Some("Pacific/Auckland"), Some("customer-17"));
        let new = NewUser { email, plan: Plan::Developer, timezone, reference, console_sign_in: true };
        let user = in_tx!(db, user::insert(&new, "2026-11-21T03:04:05.123456789Z".parse().unwrap())).await.unwrap();
        assert_eq!(user.created_at.to_string(), "2026-11-21T03:04:05.123456Z");
        assert_eq!(db.users().find(user.id).await.unwrap(), Some(user.clone()));
        assert_eq!(db.users().find(UserId::new()).await.unwrap(), None);
        for email in ["zoë@example.com", "ZOË@EXAMPLE.COM", "Zoë@Example.com"] {
            assert_eq!(db.users().find_by_email(email).await.unwrap().as_ref(), Some(&user), "{email}");
        }
        assert_eq!(db.users().find_by_email("zoe@example.com").await.unwrap(), None);
        assert_eq!(db.users().find_by_reference("customer-17").await.unwrap(), Some(user.clone()));
        assert_eq!(db.users().find_by_reference("Customer-17").await.unwrap(), None);
        db.raw("UPDATE users SET plan = 'platinum'").await;
        assert_fails!(db.users().find(user.id).await, Corrupt("a plan"));
    }

    async fn email_is_unique_ignoring_case_and_orders_users(db) {
        for email in ["émile@x", "Zed@x", "bob@x", "Anna@x"] {
            db.user(email).await;
        }
        let (email, plan) = ("ÉMILE@x", Plan::Saver);
        let again = NewUser { email, plan, timezone: None, reference: None, console_sign_in: true };
        let error = in_tx!(db, user::insert(&again, at(1))).await.unwrap_err();
        assert!(matches!(error, StorageError::Conflict("a user with this e-mail address")), "{error:?}");
        assert!(!format!("{error:?} {error}").to_lowercase().contains("mile"));
        let emails: Vec<_> = db.users().list().await.unwrap().into_iter().map(|user| user.email).collect();
        assert_eq!(emails, ["Anna@x", "bob@x", "Zed@x", "émile@x"]);
        // Unusual texts are kept.
        for email in ["o'hara@x", "a$1@x", "\"; DROP TABLE users; --", "%_@x", "日本@x", ""] {
            let user = db.user(email).await;
            assert_eq!(db.users().find_by_email(email).await.unwrap(), Some(user), "{email}");
        }
    }

    async fn only_real_changes_raise_the_revision(db) {
        let user = db.user("a@x").await;
        let other = db.user("b@x").await;
        assert_eq!(db.revision(user.id).await, 0);
        let plan = UserChange { plan: Some(Plan::Saver), ..UserChange::default() };
        let changed = db.change_user(user.id, &plan).await;
        assert_eq!((changed.plan, changed.timezone.as_deref()), (Plan::Saver, None));
        assert_eq!(db.revision(user.id).await, 1);
        let zone = UserChange { timezone: Some(Some("Asia/Tokyo")), ..UserChange::default() };
        let changed = db.change_user(user.id, &zone).await;
        assert_eq!((changed.plan, changed.timezone.as_deref()), (Plan::Saver, Some("Asia/Tokyo")));
        let zone_name =
            async || db.users().find_zone(user.id).await.unwrap().and_then(|zone| zone.iana_name().map(str::to_owned));
        assert_eq!(zone_name().await.as_deref(), Some("Asia/Tokyo"));
        assert_eq!(db.users().find(user.id).await.unwrap(), Some(changed));
        assert_eq!(db.revision(user.id).await, 2);
        for same in [plan, zone, UserChange::default()] {
            db.change_user(user.id, &same).await;
        }
        assert_eq!(db.revision(user.id).await, 2, "nothing changed");
        let none = UserChange { timezone: Some(None), ..UserChange::default() };
        assert_eq!(db.change_user(user.id, &none).await.timezone, None);
        assert_eq!(zone_name().await.as_deref(), Some("Australia/Sydney"));
        assert!(db.users().find_zone(UserId::new()).await.unwrap().is_none());
        assert_eq!((db.revision(user.id).await, db.revision(other.id).await), (3, 0));
        assert_fails!(in_tx!(db, user::update(UserId::new(), &plan)).await, NotFound("user"));
    }

    async fn email_address_changes_and_stays_unique(db) {
        let (user, other) = (db.user("a@x").await, db.user("b@x").await);
        let to = |email| UserChange { email: Some(email), ..UserChange::default() };
        let changed = db.change_user(user.id, &to("New@x")).await;
        assert_eq!((changed.email.as_str(), changed.plan), ("New@x", user.plan));
        assert!(user.console_sign_in && !changed.console_sign_in, "nobody has proved the new address");
        let proven = UserChange { console_sign_in: Some(true), ..to("NEW@x") };
        assert!(db.change_user(user.id, &proven).await.console_sign_in);
        let changed = db.change_user(user.id, &to("New@x")).await;
        assert!(changed.console_sign_in, "another case is the same address");
        assert_eq!(db.users().find_by_email("new@X").await.unwrap(), Some(changed.clone()));
        assert_eq!(db.users().find_by_email("a@x").await.unwrap(), None);
        assert_fails!(in_tx!(db, user::update(user.id, &to("B@x"))).await, Conflict(why) if why.contains("e-mail"));
        assert_eq!(db.users().list().await.unwrap(), [other, changed]);
    }

    async fn user_with_connections_is_not_deleted(db) {
        let user = db.user("a@x").await;
        db.key(user.id, 1).await;
        let connection = db.connection(user.id, "c", &[]).await;
        assert_fails!(in_tx!(db, user::delete(user.id, at(900))).await, Conflict(why) if why.contains("connections"));
        register_provider_user(db, user.id, "eu_1", "credentials").await;
        // Connections are checked first.
        assert_fails!(in_tx!(db, user::delete(user.id, at(900))).await, Conflict(why) if why.contains("connections"));
        db.provider_users().delete(user.id, "fiskil").await.unwrap();
        assert_eq!(db.keys().list(user.id).await.unwrap().len(), 1, "nothing was deleted");
        assert!(db.remove(user.id, connection.id, at(1)).await);
        db.delete_user(user.id).await;
        assert_eq!(db.users().find(user.id).await.unwrap(), None);
        assert_eq!(db.keys().find_caller(&key(1), at(1)).await.unwrap(), None);
        assert_eq!(db.connections().list_audit(connection.id).await.unwrap().len(), 3, "the audit outlives the user");
        assert_fails!(in_tx!(db, user::delete(user.id, at(900))).await, NotFound("user"));
    }

    async fn deleting_user_deletes_link_rows(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        for user in [user, other] {
            in_tx!(db, links::insert(&new_link(user, &user.to_string(), at(60)), at(0))).await.unwrap();
            session_with_callback(db, user, &format!("callback {user}")).await;
            start_session(db, user, &format!("started {user}")).await;
        }
        register_provider_user(db, user, "eu_1", "credentials").await;
        assert_fails!(in_tx!(db, user::delete(user, at(900))).await, Conflict(why) if why.contains("registered at a provider"));
        assert_eq!(db.secrets_for("consent_session").await, 2, "nothing was deleted");
        db.provider_users().delete(user, "fiskil").await.unwrap();
        db.delete_user(user).await;
        let left_rows =
            [("users", 1), ("links", 1), ("consent_sessions", 2), ("secrets", 1), ("provider_users", 0)];
        for (table, left) in left_rows {
            assert_eq!(db.rows(table).await, left, "{table}");
        }
        db.delete_user(other).await;
    }
}
