use crate::in_tx;
use crate::tests::fixtures::{new_link, secret, session_with_callback, start_session};
use crate::tests::support::{at, both};

const DAY: i64 = 24 * 60 * 60;

both! {
    async fn outdated_rows_are_deleted(db) {
        let user = db.user("a@x").await.id;
        in_tx!(db, links::insert(&new_link(user, "old", at(60)), at(0))).await.unwrap();
        in_tx!(db, links::insert(&new_link(user, "new", at(61)), at(0))).await.unwrap();
        start_session(db, user, "started").await;
        let claim = session_with_callback(db, user, "ended").await;
        assert!(db.consent_sessions().end(&claim, "linked").await.unwrap());
        session_with_callback(db, user, "callback_received").await;
        let with_credentials = session_with_callback(db, user, "credentials_obtained").await;
        assert!(
            db.consent_sessions()
                .store_credentials(&with_credentials, &secret("credentials"), at(20), at(40))
                .await
                .unwrap(),
        );
        db.provider_events().insert("fiskil", "old", at(60 - 29 * DAY)).await.unwrap();
        db.provider_events().insert("fiskil", "new", at(61 - 29 * DAY)).await.unwrap();
        assert_eq!(db.consent_sessions().delete_outdated(at(59 + DAY)).await.unwrap(), 0);
        assert_eq!(db.secrets_for("consent_session").await, 2);
        assert_eq!(db.consent_sessions().delete_outdated(at(60 + DAY)).await.unwrap(), 5);
        assert_eq!(db.consent_sessions().delete_outdated(at(60 + DAY)).await.unwrap(), 0);
        assert_eq!(db.secrets_for("consent_session").await, 1, "secrets are deleted too");
        for state in ["started", "ended", "callback_received"] {
            assert_eq!(db.consent_sessions().find(state).await.unwrap(), None, "{state}");
        }
        assert!(
            db.consent_sessions().find("credentials_obtained").await.unwrap().is_some(),
            "only its secret knows the consent"
        );
        assert!(!db.provider_events().has("fiskil", "old").await.unwrap());
        assert!(db.provider_events().has("fiskil", "new").await.unwrap());
        assert_eq!(db.rows("links").await, 1);
    }

    async fn claimed_session_is_kept(db) {
        let user = db.user("a@x").await.id;
        start_session(db, user, "state").await;
        let now = at(60 + DAY);
        let claim = db.claim_due_consent_sessions(now, at(90 + DAY), 1).await.unwrap().remove(0);
        assert_eq!(db.consent_sessions().delete_outdated(now).await.unwrap(), 0);
        assert!(db.jobs().postpone(&claim.job, at(99 + DAY)).await.unwrap());
        assert_eq!(db.consent_sessions().delete_outdated(now).await.unwrap(), 1);
    }

    async fn rows_are_deleted_in_batches(db) {
        let user = db.user("a@x").await.id;
        let (mut links, mut sessions) = (Vec::new(), Vec::new());
        for number in 0..450_u32 {
            let (id, hash) = (uuid::Uuid::now_v7(), db.bytes(&number.to_be_bytes()));
            links.push(format!("('{user}', '{id}', {hash}, 0, 0)"));
            sessions.push(format!("('{user}', '{id}', {hash}, 'akahu', 'started', 0, 0, 0, {hash}, '{id}')"));
        }
        let (links, sessions) = (links.join(", "), sessions.join(", "));
        db.raw(&format!("INSERT INTO links (user_id, id, token_hash, created_at, expires_at) VALUES {links}")).await;
        db.raw(&format!(
            "INSERT INTO consent_sessions
                (user_id, id, state_hash, provider, phase, phase_since, created_at, expires_at, browser_hash,
                    link_id)
             VALUES {sessions}"
        ))
        .await;
        let handles = [db.reopen().await, db.reopen().await];
        let (one, other) = tokio::join!(
            handles[0].consent_sessions().delete_outdated(at(0)),
            handles[1].consent_sessions().delete_outdated(at(0)),
        );
        let left = db.consent_sessions().delete_outdated(at(0)).await.unwrap();
        assert_eq!(one.unwrap() + other.unwrap() + left, 900);
    }
}
