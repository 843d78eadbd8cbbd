use bellbird_domain::UserId;

use crate::tests::fixtures::{console_session, new_link, sign_in_link};
use crate::tests::support::{TestDb, assert_fails, at, both};
use crate::{NO_CONSOLE_SIGN_IN, NewLink, NewSignInLink, Storage, UserChange, in_tx};

async fn insert_link(
    db: &Storage,
    user_id: UserId,
    token: &str,
    browser: Option<&str>,
    expires: i64,
) -> bool {
    let link = NewSignInLink {
        browser,
        ..sign_in_link(user_id, token, expires)
    };
    db.sessions().insert_link(&link, 2, at(0)).await.unwrap()
}

async fn sign_in(db: &Storage, link: &str, token: &str, now: i64) -> Option<UserId> {
    let session = console_session(token, token);
    let begun = db.sessions().sign_in(link, &session, at(now)).await;
    begun.unwrap().map(|begun| begun.user_id)
}

async fn signed_in(db: &TestDb, token: &str, now: i64) -> Option<UserId> {
    db.sessions()
        .find(token, at(now))
        .await
        .unwrap()
        .map(|found| found.caller.user_id)
}

both! {
    async fn link_signs_in_once(db) {
        let user = db.user("a@x").await.id;
        assert!(insert_link(db, user, "link", None, 60).await);
        assert_eq!(sign_in(db, "other", "cookie", 1).await, None);
        assert_eq!(sign_in(db, "link", "cookie", 1).await, Some(user));
        assert_eq!(sign_in(db, "link", "cookie2", 2).await, None, "used");
        assert_eq!((signed_in(db, "cookie", 2).await, signed_in(db, "cookie2", 2).await), (Some(user), None));
        assert_eq!(signed_in(db, "cookie", 1_000).await, None, "expired");
        assert!(insert_link(db, user, "late", None, 60).await);
        assert_eq!(sign_in(db, "late", "cookie3", 60).await, None, "expired");
        let left = async || db.rows("sessions").await + db.rows("sign_in_links").await;
        assert_eq!(left().await, 2);
        for (now, deleted) in [(59, 0), (60, 1), (1_000, 1)] {
            assert_eq!(db.consent_sessions().delete_outdated(at(now)).await.unwrap(), deleted, "{now}");
        }
        assert_eq!(left().await, 0);
    }

    async fn session_that_is_used_lasts_longer(db) {
        let user = db.user("a@x").await.id;
        insert_link(db, user, "link", None, 60).await;
        sign_in(db, "link", "cookie", 1).await.unwrap();
        // A use is recorded once a minute.
        for (now, recorded) in [(30, 1), (61, 61), (100, 61)] {
            signed_in(db, "cookie", now).await.unwrap();
            assert_eq!(db.sessions().list(user, at(now)).await.unwrap()[0].last_used_at, at(recorded), "{now}");
        }
        let day = 24 * 3_600;
        assert_eq!(signed_in(db, "cookie", 900).await, Some(user));
        // Each time within two weeks of the last, until ninety days have passed.
        for days in 1..=6 {
            assert_eq!(signed_in(db, "cookie", 13 * days * day).await, Some(user), "{days}");
        }
        assert_eq!(signed_in(db, "cookie", 90 * day).await, Some(user));
        assert_eq!(signed_in(db, "cookie", 90 * day + 1).await, None, "the longest");
        insert_link(db, user, "again", None, 60).await;
        sign_in(db, "again", "unused", 1).await.unwrap();
        signed_in(db, "unused", 900).await.unwrap();
        assert_eq!(signed_in(db, "unused", 900 + 14 * day).await, None, "two weeks unused");
    }

    async fn links_know_who_asked_and_are_limited(db) {
        let user = db.user("a@x").await.id;
        assert!(insert_link(db, user, "asked", Some("browser"), 60).await);
        assert!(insert_link(db, user, "printed", None, 60).await);
        for (link, browser, expected) in [
            ("asked", Some("browser"), true),
            ("asked", Some("another"), false),
            ("asked", None, false),
            ("printed", Some("browser"), false),
            ("printed", None, false),
        ] {
            let found = db.sessions().find_link(link, browser, at(1)).await.unwrap().unwrap();
            assert_eq!((found.is_of_browser, found.email.as_str()), (expected, "a@x"), "{link} {browser:?}");
        }
        assert_eq!(db.sessions().find_link("none", None, at(1)).await.unwrap(), None);

        // Links of a user are limited.
        let other = db.user("b@x").await.id;
        assert!(!insert_link(db, user, "3", None, 60).await);
        assert!(insert_link(db, other, "4", None, 60).await);
        sign_in(db, "printed", "cookie", 1).await.unwrap();
        assert!(insert_link(db, user, "5", None, 60).await, "one is used");
        let link = sign_in_link(UserId::new(), "6", 60);
        assert_fails!(db.sessions().insert_link(&link, 2, at(0)).await, NotFound("user"));
    }

    async fn only_the_user_ends_a_session(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        for (user, link, cookie) in [(user, "1", "c1"), (user, "2", "c2"), (other, "3", "c3")] {
            insert_link(db, user, link, None, 60).await;
            sign_in(db, link, cookie, 1).await.unwrap();
        }
        let sessions = db.sessions().list(user, at(2)).await.unwrap();
        assert_eq!(sessions.len(), 2);
        assert_eq!(sessions[0].browser, "Firefox on Linux");
        assert!(!db.sessions().revoke(other, sessions[0].id).await.unwrap());
        assert_eq!(db.sessions().list(user, at(2)).await.unwrap(), sessions);
        let caller = db.sessions().find("c1", at(2)).await.unwrap().unwrap().caller;
        // As a long response checks it.
        let again = async || db.keys().find_caller_by_id(user, caller.key_id, at(3)).await.unwrap();
        assert_eq!(again().await.unwrap().caller, caller);
        let first = caller.key_id.uuid();
        for (token, console_session) in [("own", Some(first)), ("other", None)] {
            let link = NewLink { console_session, ..new_link(user, token, at(60)) };
            in_tx!(db, links::insert(&link, at(1))).await.unwrap();
        }
        assert!(db.links().find("own").await.unwrap().is_some());
        insert_link(db, user, "4", None, 60).await;
        in_tx!(db, sessions::revoke_others(user, first)).await.unwrap();
        assert_eq!((signed_in(db, "c2", 2).await, sign_in(db, "4", "c4", 2).await), (None, None));
        assert!(db.sessions().revoke(user, first).await.unwrap());
        assert_eq!((signed_in(db, "c1", 2).await, signed_in(db, "c3", 2).await), (None, Some(other)));
        assert_eq!(again().await, None);
        // With its links to connect a bank.
        assert_eq!(db.links().find("own").await.unwrap(), None);
        assert!(!db.links().open("own", 9, at(2)).await.unwrap());
        assert!(db.links().find("other").await.unwrap().is_some());
    }

    async fn user_without_console_sign_in_gets_in_by_no_way(db) {
        let user = db.user("a@x").await.id;
        insert_link(db, user, "1", None, 60).await;
        insert_link(db, user, "2", None, 60).await;
        sign_in(db, "1", "cookie", 1).await.unwrap();
        let set = async |allowed| {
            let change = UserChange { console_sign_in: Some(allowed), ..UserChange::default() };
            db.change_user(user, &change).await;
        };
        set(false).await;
        assert_eq!(signed_in(db, "cookie", 2).await, None);
        assert_eq!(db.sessions().find_link("2", None, at(2)).await.unwrap(), None);
        assert_eq!(sign_in(db, "2", "other", 2).await, None);
        let link = sign_in_link(user, "3", 60);
        assert_fails!(db.sessions().insert_link(&link, 9, at(2)).await, Conflict(NO_CONSOLE_SIGN_IN));
        set(true).await;
        assert_eq!((signed_in(db, "cookie", 2).await, sign_in(db, "2", "other", 2).await), (None, None), "over");
        assert!(insert_link(db, user, "4", None, 60).await);
        assert_eq!(sign_in(db, "4", "again", 2).await, Some(user));
        insert_link(db, user, "5", None, 60).await;
        let moved = UserChange { email: Some("b@x"), console_sign_in: Some(true), ..UserChange::default() };
        db.change_user(user, &moved).await;
        let by_old_address = (signed_in(db, "again", 2).await, sign_in(db, "5", "other", 2).await);
        assert_eq!(by_old_address, (None, None));
    }

    async fn another_operator_is_one_who_may_sign_in(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let has_other = async || db.sessions().has_other_operator(user).await.unwrap();
        let operator = UserChange { is_operator: Some(true), ..UserChange::default() };
        db.change_user(user, &operator).await;
        assert!(!has_other().await, "only the user");
        db.change_user(other, &operator).await;
        assert!(has_other().await);
        for allowed in [false, true] {
            let change = UserChange { console_sign_in: Some(allowed), ..UserChange::default() };
            db.change_user(other, &change).await;
            assert_eq!(has_other().await, allowed);
        }
        in_tx!(db, removal::begin(other, at(1))).await.unwrap();
        assert!(!has_other().await, "is being removed");
    }

    async fn new_operator_signs_in_again(db) {
        let user = db.user("a@x").await.id;
        insert_link(db, user, "1", None, 60).await;
        insert_link(db, user, "2", None, 60).await;
        sign_in(db, "1", "cookie", 1).await.unwrap();
        let set = async |is_operator| {
            let change = UserChange { is_operator: Some(is_operator), ..UserChange::default() };
            db.change_user(user, &change).await;
        };
        set(true).await;
        assert_eq!((signed_in(db, "cookie", 2).await, sign_in(db, "2", "other", 2).await), (None, None));
        insert_link(db, user, "3", None, 60).await;
        sign_in(db, "3", "again", 2).await.unwrap();
        for is_operator in [true, false] {
            set(is_operator).await;
            assert_eq!(signed_in(db, "again", 3).await, Some(user), "{is_operator}");
        }
    }

    async fn first_session_is_told_apart(db) {
        let user = db.user("a@x").await.id;
        for (link, browser, is_first) in [("1", "laptop", true), ("2", "phone", false), ("3", "laptop", false)] {
            insert_link(db, user, link, None, 60).await;
            let session = console_session(link, browser);
            let begun = db.sessions().sign_in(link, &session, at(1)).await.unwrap().unwrap();
            assert_eq!(begun.is_first, is_first, "{link}");
        }
    }

    async fn sessions_end_with_their_user_and_with_a_restore(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        for (user, link, cookie) in [(user, "1", "c1"), (other, "2", "c2")] {
            insert_link(db, user, link, None, 60).await;
            sign_in(db, link, cookie, 1).await.unwrap();
            insert_link(db, user, &format!("{link} again"), None, 60).await;
        }
        db.delete_user(user).await;
        assert_eq!((signed_in(db, "c1", 2).await, signed_in(db, "c2", 2).await), (None, Some(other)));
        assert_eq!(sign_in(db, "1 again", "c4", 2).await, None);
    }

    async fn new_session_ends_the_one_used_least_recently(db) {
        let user = db.user("a@x").await.id;
        for number in 0..52 {
            let now = if number < 49 { number } else { 300 + number };
            insert_link(db, user, &format!("link{number}"), None, 600).await;
            sign_in(db, &format!("link{number}"), &format!("cookie{number}"), now).await.unwrap();
            if number == 48 {
                signed_in(db, "cookie0", 200).await.unwrap();
            }
        }
        assert_eq!(db.sessions().list(user, at(500)).await.unwrap().len(), 50);
        for (cookie, works) in [("cookie0", true), ("cookie1", false), ("cookie2", false), ("cookie3", true)] {
            assert_eq!(signed_in(db, cookie, 500).await.is_some(), works, "{cookie}");
        }
        assert_eq!(db.rows("known_browsers").await, 50);
    }
}
