use super::link_sessions::{new_session, returned, secret};
use super::links::new_link;
use super::{at, both};

const DAY: i64 = 24 * 60 * 60;

both! {
    async fn what_has_had_its_time_goes(db) {
        let user = db.user("a@x").await.id;
        db.insert_link(&new_link(user, "old", at(60)), at(0)).await.unwrap();
        db.insert_link(&new_link(user, "new", at(61)), at(0)).await.unwrap();
        db.insert_link_session(&new_session(user, "begun"), at(0)).await.unwrap();
        let claim = returned(db, user, "ended").await;
        assert!(db.end_link_session(&claim, "linked").await.unwrap());
        returned(db, user, "returned").await;
        let granted = returned(db, user, "granted").await;
        assert!(db.grant_link_session(&granted, &secret("grant"), at(40)).await.unwrap());
        db.insert_event("fiskil", "old", at(60 - 29 * DAY)).await.unwrap();
        db.insert_event("fiskil", "new", at(61 - 29 * DAY)).await.unwrap();
        assert_eq!(db.delete_outdated(at(59 + DAY)).await.unwrap(), 0);
        assert_eq!(db.secrets_for("link").await, 2);
        assert_eq!(db.delete_outdated(at(60 + DAY)).await.unwrap(), 5);
        assert_eq!(db.delete_outdated(at(60 + DAY)).await.unwrap(), 0);
        assert_eq!(db.secrets_for("link").await, 1, "with its secret");
        for state in ["begun", "ended", "returned"] {
            assert_eq!(db.find_link_session(state).await.unwrap(), None, "{state}");
        }
        assert!(db.find_link_session("granted").await.unwrap().is_some(), "nobody else knows of that consent");
        assert!(!db.has_event("fiskil", "old").await.unwrap());
        assert!(db.has_event("fiskil", "new").await.unwrap());
        assert_eq!(db.texts("SELECT user_id FROM links").await.len(), 1);
    }

    async fn what_somebody_works_on_stays(db) {
        let user = db.user("a@x").await.id;
        db.insert_link_session(&new_session(user, "state"), at(0)).await.unwrap();
        let now = at(60 + DAY);
        let claim = db.claim_due_link_sessions(now, at(90 + DAY), 1).await.unwrap().remove(0);
        assert_eq!(db.delete_outdated(now).await.unwrap(), 0);
        assert!(db.postpone_link_session(&claim, at(99 + DAY)).await.unwrap());
        assert_eq!(db.delete_outdated(now).await.unwrap(), 1);
    }

    async fn many_rows_go_in_steps(db) {
        let user = db.user("a@x").await.id;
        let (mut links, mut sessions) = (Vec::new(), Vec::new());
        for number in 0..450_u32 {
            let (id, hash) = (uuid::Uuid::now_v7(), db.bytes(&number.to_be_bytes()));
            links.push(format!("('{user}', '{id}', {hash}, 0, 0)"));
            sessions.push(format!("('{user}', '{id}', {hash}, 'akahu', 'begun', 0, 0, 0)"));
        }
        let (links, sessions) = (links.join(", "), sessions.join(", "));
        db.raw(&format!("INSERT INTO links (user_id, id, token_hash, created_at, expires_at) VALUES {links}")).await;
        db.raw(&format!(
            "INSERT INTO link_sessions (user_id, id, state_hash, provider, phase, created_at, expires_at, due_at)
             VALUES {sessions}"
        ))
        .await;
        let handles = [db.again().await, db.again().await];
        let (one, other) = tokio::join!(handles[0].delete_outdated(at(0)), handles[1].delete_outdated(at(0)));
        let left = db.delete_outdated(at(0)).await.unwrap();
        assert_eq!(one.unwrap() + other.unwrap() + left, 900);
    }
}
