use bellbird_domain::{ConnectionId, UserId};
use uuid::Uuid;

use crate::tests::fixtures::{new_link, new_session, receive_callback};
use crate::tests::support::{assert_fails, at, both};
use crate::{NewConsentSession, NewLink, NewLinkSession, in_tx};

both! {
    async fn link_works_until_it_expires(db) {
        let user = db.user("a@x").await.id;
        let connection = db.connection(user, "c", &[]).await.id;
        let new =
            NewLink { provider: Some("fiskil"), connection_id: Some(connection), ..new_link(user, "token", at(60)) };
        in_tx!(db, links::insert(&new, at(0))).await.unwrap();
        let found = db.links().find("token").await.unwrap().expect("works");
        assert_eq!((found.user_id, found.connection_id, found.expires_at), (user, Some(connection), at(60)));
        assert_eq!(found.provider.as_deref(), Some("fiskil"));
        assert_eq!(found.open_count, 0);
        assert!(!db.links().open("token", 9, at(60)).await.unwrap(), "expired");
        assert!(db.links().open("token", 9, at(59)).await.unwrap());
        assert_eq!(db.links().find("token").await.unwrap().expect("still there").open_count, 1);
        assert_eq!(db.links().find("tokem").await.unwrap(), None);
        in_tx!(db, links::insert(&new_link(user, "other", at(60)), at(0))).await.unwrap();
        let any = db.links().find("other").await.unwrap().expect("works");
        assert_eq!((any.provider, any.connection_id), (None, None));
        assert_eq!(db.revision(user).await, 1);
        // Concurrent openings are counted.
        let handles = [db.reopen().await, db.reopen().await];
        let mut opened = 0;
        for _ in 0..5 {
            let (one, other) =
                tokio::join!(handles[0].links().open("other", 5, at(1)), handles[1].links().open("other", 5, at(1)));
            opened += u8::from(one.unwrap()) + u8::from(other.unwrap());
        }
        assert_eq!(opened, 5);
        assert!(db.links().open("other", 6, at(1)).await.unwrap());
        assert!(!db.links().open("unknown", 9, at(1)).await.unwrap());
        assert_eq!(db.links().find("other").await.unwrap().expect("works").open_count, 6);
    }

    async fn link_requires_user_and_connection(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let connection = db.connection(user, "c", &[]).await.id;
        let nobodys = new_link(UserId::new(), "token", at(60));
        assert_fails!(in_tx!(db, links::insert(&nobodys, at(0))).await, NotFound("user"));
        for (user, connection) in [(other, connection), (user, ConnectionId::new())] {
            let new = NewLink { connection_id: Some(connection), ..new_link(user, "token", at(60)) };
            assert_fails!(in_tx!(db, links::insert(&new, at(0))).await, NotFound("connection"));
        }
        db.hide(user, connection, 1, 9).await;
        let new = NewLink { connection_id: Some(connection), ..new_link(user, "token", at(60)) };
        assert_fails!(in_tx!(db, links::insert(&new, at(0))).await, NotFound("connection"));
        in_tx!(db, links::insert(&new_link(user, "token", at(60)), at(0))).await.unwrap();
        assert_fails!(in_tx!(db, links::insert(&new_link(other, "token", at(60)), at(0))).await, Conflict("this link"));
        assert_eq!(db.links().find("token").await.unwrap().unwrap().user_id, user);
    }

    async fn link_session_connects_once(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let connection = db.connection(user, "c", &[]).await.id;
        let app = NewLinkSession { return_url: Some("https://app.example/back"), state: Some("a b") };
        let new = NewLink { session: Some(app), ..new_link(user, "session", at(60)) };
        let session = in_tx!(db, links::insert(&new, at(0))).await.unwrap();
        let link = in_tx!(db, links::insert(&new_link(user, "link", at(60)), at(0))).await.unwrap();
        let found = db.links().find_any_session(session).await.unwrap().expect("a link session");
        assert_eq!(Some(&found), db.links().find("session").await.unwrap().as_ref());
        assert_eq!((found.id, found.user_id), (session, user));
        assert_eq!(found.return_url.as_deref(), Some("https://app.example/back"));
        assert_eq!(found.app_state.as_deref(), Some("a b"));
        for id in [link, Uuid::nil()] {
            assert_eq!(db.links().find_any_session(id).await.unwrap(), None);
        }
        // A consent session without connections leaves it open, and one of a link changes nothing.
        for (state, link_id, connected) in
            [("declined", session, vec![]), ("linked", link, vec![connection]), ("again", session, vec![connection])]
        {
            for token in ["session", "link"] {
                assert!(db.links().open(token, 9, at(1)).await.unwrap(), "{state}");
            }
            let new = NewConsentSession { link_id, ..new_session(user, state) };
            let mut claim = receive_callback(db, &new).await;
            assert_eq!(claim.session.link_id, link_id);
            claim.session.connections = connected;
            assert!(db.consent_sessions().end(&claim, "outcome").await.unwrap());
        }
        assert!(db.links().find("session").await.unwrap().expect("there").has_connected);
        assert!(!db.links().open("session", 9, at(1)).await.unwrap(), "it has connected");
        assert!(!db.links().find("link").await.unwrap().expect("there").has_connected);
        assert!(db.links().open("link", 9, at(1)).await.unwrap(), "a link connects again");
        let started = db.consent_sessions().list_of_link(user, session).await.unwrap();
        assert_eq!(started.iter().map(|session| session.connections.len()).collect::<Vec<_>>(), [1, 0], "newest first");
        assert_eq!(db.consent_sessions().list_of_link(other, session).await.unwrap(), []);
    }

    async fn links_of_a_user_are_limited(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let expires_at = at(60).as_microsecond();
        let row = |number: u32| {
            format!("('{user}', '{}', {}, 0, {expires_at})", Uuid::now_v7(), db.bytes(&number.to_be_bytes()))
        };
        let links = (0..1_000).map(row).collect::<Vec<_>>().join(", ");
        db.raw(&format!("INSERT INTO links (user_id, id, token_hash, created_at, expires_at) VALUES {links}")).await;
        let one_more = new_link(user, "one more", at(900));
        assert_fails!(in_tx!(db, links::insert(&one_more, at(61))).await, TooMany(_), "expired ones count too");
        in_tx!(db, links::insert(&new_link(other, "other", at(60)), at(61))).await.unwrap();
        db.consent_sessions().delete_outdated(at(86_460)).await.unwrap();
        in_tx!(db, links::insert(&new_link(user, "one more", at(86_520)), at(86_460))).await.unwrap();
    }
}
