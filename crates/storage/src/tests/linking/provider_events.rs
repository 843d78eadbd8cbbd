use bellbird_domain::{ConnectionId, UserId};

use crate::tests::fixtures::{new_session, register_provider_user};
use crate::tests::support::{TestDb, at, both, new_account, new_connection};
use crate::{AffectedRef, NewAccount, NewConnection, NewConsentSession};

async fn connection_of_provider_user(
    db: &TestDb,
    user: UserId,
    consent: &str,
    provider_user_id: &str,
    accounts: &[NewAccount<'_>],
) -> ConnectionId {
    let new = NewConnection {
        provider_user_id: Some(provider_user_id),
        ..new_connection(user, consent)
    };
    db.connections()
        .import(&new, accounts, at(0))
        .await
        .unwrap()
        .id
}

async fn affected_connections(
    db: &TestDb,
    provider: &str,
    affected: &[AffectedRef<'_>],
) -> Vec<(UserId, ConnectionId)> {
    db.provider_events()
        .find_affected(provider, affected)
        .await
        .unwrap()
}

/// The number of due sessions.
async fn due(db: &TestDb, now: i64) -> usize {
    let claims = db
        .claim_due_consent_sessions(at(now), at(now + 1), 99)
        .await
        .unwrap();
    for claim in &claims {
        // Due again, as if it had not been claimed.
        assert!(db.jobs().finish(&claim.job, Some(at(now))).await.unwrap());
    }
    claims.len()
}

both! {
    async fn finds_affected_connections(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let first = connection_of_provider_user(db, user, "c\0_1", "puser_1", &[new_account("a\0cc_1", "One")]).await;
        let second = connection_of_provider_user(db, user, "c_2", "puser_1", &[new_account("acc_2", "Two")]).await;
        let third = connection_of_provider_user(db, other, "c_3", "puser_3", &[new_account("acc_1", "Joint")]).await;
        let sorted = |mut ids: Vec<(UserId, ConnectionId)>| {
            ids.sort();
            ids
        };
        assert_eq!(affected_connections(db, "akahu", &[AffectedRef::Connection("c\0_1")]).await, [(user, first)]);
        assert_eq!(affected_connections(db, "akahu", &[AffectedRef::Account("acc_2")]).await, [(user, second)]);
        assert_eq!(
            affected_connections(db, "akahu", &[AffectedRef::Account("a\0cc_1")]).await,
            sorted(vec![(user, first), (other, third)])
        );
        assert_eq!(
            affected_connections(db, "akahu", &[AffectedRef::ProviderUser("puser_1")]).await,
            sorted(vec![(user, first), (user, second)])
        );
        assert_eq!(affected_connections(db, "akahu", &[AffectedRef::User(other)]).await, [(other, third)]);
        let all = [
            AffectedRef::User(user),
            AffectedRef::ProviderUser("puser_1"),
            AffectedRef::Connection("c_1"),
            AffectedRef::Account("acc_2"),
        ];
        assert_eq!(
            affected_connections(db, "akahu", &all).await,
            sorted(vec![(user, first), (user, second)]),
            "each once"
        );
        assert_eq!(affected_connections(db, "fiskil", &all).await, [], "ids belong to one provider");
        assert_eq!(affected_connections(db, "akahu", &[]).await, []);
        for unknown in [
            AffectedRef::Connection("c"),
            AffectedRef::Account(""),
            AffectedRef::ProviderUser("c_1"),
            AffectedRef::User(UserId::new()),
        ] {
            assert_eq!(affected_connections(db, "akahu", &[unknown]).await, [], "{unknown:?}");
        }
        db.hide(user, first, 1, 9).await;
        assert_eq!(affected_connections(db, "akahu", &all).await, [(user, second)]);
        assert_eq!(affected_connections(db, "akahu", &[AffectedRef::Account("acc_1")]).await, [(other, third)]);
    }

    async fn provider_user_is_kept_until_replaced(db) {
        let user = db.user("a@x").await.id;
        let id = connection_of_provider_user(db, user, "c", "puser_1", &[]).await;
        db.connection(user, "c", &[]).await;
        assert_eq!(affected_connections(db, "akahu", &[AffectedRef::ProviderUser("puser_1")]).await, [(user, id)]);
        connection_of_provider_user(db, user, "c", "puser_2", &[]).await;
        assert_eq!(affected_connections(db, "akahu", &[AffectedRef::ProviderUser("puser_1")]).await, []);
        assert_eq!(affected_connections(db, "akahu", &[AffectedRef::ProviderUser("puser_2")]).await, [(user, id)]);
    }

    async fn event_wakes_affected_consent_sessions(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        connection_of_provider_user(db, user, "c_1", "puser_1", &[new_account("acc_1", "One")]).await;
        register_provider_user(db, other, "puser_2", "credentials").await;
        for (user, state, provider) in [(user, "s1", "akahu"), (user, "s2", "fiskil"), (other, "s3", "fiskil")] {
            let new = NewConsentSession { provider, ..new_session(user, state) };
            db.consent_sessions().insert(&new, at(0)).await.unwrap();
        }
        let wake = async |provider, affected| {
            db.provider_events().wake_consent_sessions(provider, &[affected], at(5)).await.unwrap();
        };
        wake("akahu", AffectedRef::User(UserId::new())).await;
        wake("akahu", AffectedRef::User(other)).await;
        wake("fiskil", AffectedRef::ProviderUser("puser_1")).await;
        wake("akahu", AffectedRef::ProviderUser("puser_2")).await;
        assert_eq!(due(db, 5).await, 0, "none affects a session");
        wake("fiskil", AffectedRef::ProviderUser("puser_2")).await;
        assert_eq!(due(db, 5).await, 1);
        wake("fiskil", AffectedRef::User(user)).await;
        assert_eq!(due(db, 5).await, 2);
        for affected in
            [AffectedRef::Connection("c_1"), AffectedRef::Account("acc_1"), AffectedRef::ProviderUser("puser_1")]
        {
            wake("akahu", affected).await;
            let claims = db.claim_due_consent_sessions(at(5), at(6), 9).await.unwrap();
            let woken = claims.iter().find(|claim| claim.session.provider == "akahu").expect("due");
            for claim in &claims {
                assert!(db.jobs().postpone(&claim.job, at(120)).await.unwrap());
            }
            assert_eq!(woken.session.user_id, user, "{affected:?}");
        }
    }

    async fn event_is_recorded_once(db) {
        assert!(!db.provider_events().has("fiskil", "evt_1").await.unwrap());
        for _ in 0..2 {
            db.provider_events().insert("fiskil", "evt_1", at(0)).await.unwrap();
        }
        assert!(db.provider_events().has("fiskil", "evt_1").await.unwrap());
        assert!(!db.provider_events().has("akahu", "evt_1").await.unwrap());
        assert!(!db.provider_events().has("fiskil", "evt_2").await.unwrap());
        assert_eq!(db.texts("SELECT provider FROM provider_events").await, ["fiskil"]);
    }
}
