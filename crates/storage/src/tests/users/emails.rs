use bellbird_domain::ConnectionStatus::{Active, Invalidated, PendingMfa, Revoked};
use bellbird_domain::{Actor, EmailKind, UserId};
use uuid::Uuid;

use crate::tests::fixtures::{console_session, endpoint, sign_in_link};
use crate::tests::support::{TestDb, at, both, new_connection};
use crate::{AuditAction, DueEmail, NewConnection, StorageError, UserChange, in_tx};

const DAY: i64 = 86_400;

async fn due(db: &TestDb, now: i64) -> Vec<DueEmail> {
    db.emails().list_due(None, at(now)).await.unwrap()
}

/// Sends all that is due, and returns what it is about.
async fn send(db: &TestDb, now: i64) -> Vec<(EmailKind, String)> {
    db.emails().forget_outdated(at(now)).await.unwrap();
    let mut sent = Vec::new();
    for email in due(db, now).await {
        db.emails().record(&email.key, None).await.unwrap();
        sent.push((email.key.kind, email.name));
    }
    sent
}

async fn sign_in(db: &TestDb, user_id: UserId, known_browser: &str, now: i64) -> Uuid {
    let token = format!("{known_browser}{now}");
    let link = sign_in_link(user_id, &token, now + 60);
    assert!(db.sessions().insert_link(&link, 99, at(now)).await.unwrap());
    let session = console_session(&token, known_browser);
    db.sessions()
        .sign_in(&token, &session, at(now))
        .await
        .unwrap()
        .expect("the link works")
        .id
}

both! {
    async fn a_connection_is_mentioned_once_for_each_time_it_needs_its_user(db) {
        let user = db.user("a@x").await.id;
        let id = db.connection(user, "c", &[]).await.id;
        assert_eq!(send(db, 0).await, []);
        for now in [1, 10] {
            assert!(db.set_status((user, id), Active, Invalidated, at(now)).await);
            assert_eq!(send(db, now).await, [(EmailKind::Connection, "First Bank".to_owned())]);
            assert_eq!(send(db, now + 1).await, [], "it was said");
            assert!(db.set_status((user, id), Invalidated, Active, at(now + 1)).await);
            assert_eq!(send(db, now + 2).await, [], "over");
        }

        // What could not be sent is due again.
        assert!(db.set_status((user, id), Active, PendingMfa, at(20)).await);
        let key = due(db, 21).await.remove(0).key;
        db.emails().record(&key, Some(at(30))).await.unwrap();
        assert_eq!((due(db, 29).await.len(), due(db, 30).await.len()), (0, 1));
        assert_eq!(db.emails().list_due(Some(&key), at(30)).await.unwrap().len(), 0, "after the last");
        assert_eq!(send(db, 30).await.len(), 1);
        assert_eq!(send(db, 31).await.len(), 0);
        // A user who has left in between is no error.
        db.remove(user, id, at(32)).await;
        assert!(matches!(in_tx!(db, user::delete(user, at(900))).await, Ok(()) | Err(StorageError::Conflict(_))));
        db.emails().record(&key, None).await.unwrap();
    }

    async fn a_simulated_connection_is_known_to_be_one(db) {
        let user = db.user("a@x").await.id;
        let connection = db.connection(user, "c", &[]).await;
        assert!(db.set_status((user, connection.id), Active, Invalidated, at(1)).await);
        assert!(!due(db, 2).await[0].is_sandbox);
        let provider = connection.provider.as_str();
        in_tx!(db, provider_settings::use_sandbox(provider, at(3))).await.unwrap();
        assert!(due(db, 4).await[0].is_sandbox);
    }

    async fn a_consent_that_ends_is_mentioned_when_events_are(db) {
        let user = db.user("a@x").await.id;
        let new =
            NewConnection { consent_expires_at: Some(at(20 * DAY)), ..new_connection(user, "c") };
        db.connections().import(&new, &[], at(0)).await.unwrap();
        let mut sent = Vec::new();
        for day in [5, 6, 7, 17, 18, 20, 21] {
            db.connections().report_expiring(at(day * DAY)).await.unwrap();
            sent.push(send(db, day * DAY).await.len());
        }
        assert_eq!(sent, [0, 1, 0, 1, 0, 0, 0]);
    }

    async fn an_endpoint_is_mentioned_unless_somebody_disabled_it(db) {
        let user = db.user("a@x").await.id;
        let (failing, chosen) = (endpoint(db, user, &[]).await, endpoint(db, user, &[]).await);
        in_tx!(db, endpoints::disable((user, failing), "failing", at(1))).await.unwrap();
        in_tx!(db, endpoints::disable((user, chosen), "by command", at(1))).await.unwrap();
        let found = due(db, 2).await;
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].key.subject.clone(), found[0].detail.as_str()), (failing.to_string(), "failing"));
    }

    async fn a_sign_in_is_mentioned_if_the_browser_is_new(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        // Whatever follows.
        let session = sign_in(db, user, "laptop", 0).await;
        db.sessions().revoke(user, session).await.unwrap();
        sign_in(db, user, "laptop", 2).await;
        in_tx!(db, emails::set_off(user, EmailKind::ALL)).await.unwrap();
        assert_eq!(send(db, 3).await, [(EmailKind::Security, "Firefox on Linux".to_owned())]);
        assert_eq!(send(db, 3).await, [], "known");
        sign_in(db, other, "laptop", 4).await;
        sign_in(db, user, "phone", 4).await;
        assert_eq!(due(db, DAY + 4).await.len(), 0, "too late to be of use");
        assert_eq!(send(db, DAY + 3).await.len(), 2, "each user has browsers of their own");
        // The browser is forgotten after 400 days.
        db.sessions().forget_browsers(at(400 * DAY + 2)).await.unwrap();
        sign_in(db, user, "laptop", 400 * DAY + 3).await;
        assert_eq!(send(db, 400 * DAY + 4).await.len(), 1);
    }

    async fn what_reads_the_accounts_is_mentioned_if_it_was_made_in_the_console(db) {
        let user = db.user("a@x").await.id;
        let own = async |name, detail: &str| {
            let mut change = db.begin_own_change(user, Uuid::nil(), at(0)).await.unwrap();
            change.record(&AuditAction::of_user(name, user).called(detail)).await.unwrap();
            change.commit().await.unwrap();
        };
        own("key.create", "Spreadsheet").await;
        own("key.revoke", "Old").await;
        own("webhook_endpoint.create", "https://a.example/").await;
        for name in ["sign_in_link.create", "key.create"] {
            let mut change = db.begin_change(Actor::operator(user), at(0)).await.unwrap();
            change.record(&AuditAction::of_user(name, user)).await.unwrap();
            change.commit().await.unwrap();
        }
        let mut found = due(db, 1).await;
        found.sort_by_key(|email| email.detail.clone());
        let found: Vec<_> = found.iter().map(|email| (email.detail.as_str(), email.name.as_str())).collect();
        let expected = [
            ("key.create", "Spreadsheet"),
            ("sign_in_link.create", ""),
            ("webhook_endpoint.create", "https://a.example/"),
        ];
        assert_eq!(found, expected);
        let change = UserChange { console_sign_in: Some(false), ..UserChange::default() };
        db.change_user(user, &change).await;
        assert_eq!(due(db, 1).await.len(), 0, "nobody proved the address");
    }

    async fn a_user_gets_what_is_not_switched_off(db) {
        let user = db.user("a@x").await.id;
        let id = db.connection(user, "c", &[]).await.id;
        assert!(db.set_status((user, id), Active, Revoked, at(0)).await);
        sign_in(db, user, "laptop", 0).await;
        in_tx!(db, emails::set_off(user, &[EmailKind::Endpoint, EmailKind::Connection])).await.unwrap();
        assert_eq!(db.emails().find_off(user).await.unwrap(), [EmailKind::Endpoint, EmailKind::Connection]);
        assert_eq!(send(db, 1).await, [(EmailKind::Security, "Firefox on Linux".to_owned())]);
        in_tx!(db, emails::set_off(user, &[])).await.unwrap();
        assert_eq!(send(db, 2).await, [(EmailKind::Connection, "First Bank".to_owned())]);
    }
}
