use bellbird_domain::{ConnectionId, UserId};

use super::link_sessions::new_session;
use super::provider_users::registered;
use super::{TestDb, at, both, grant, new_account, new_connection};
use crate::{Concerned, NewAccount, NewConnection, NewLinkSession};

async fn owned(db: &TestDb, user: UserId, consent: &str, owner: &str, accounts: &[NewAccount<'_>]) -> ConnectionId {
    let grant = grant();
    let new = NewConnection { owner: Some(owner), ..new_connection(user, consent, &grant) };
    db.adopt_connection(&new, accounts, at(0)).await.unwrap().id
}

async fn found(db: &TestDb, provider: &str, concerned: &[Concerned<'_>]) -> Vec<(UserId, ConnectionId)> {
    db.find_concerned(provider, concerned).await.unwrap()
}

/// The states of the sessions that are due.
async fn due(db: &TestDb, now: i64) -> usize {
    db.claim_due_link_sessions(at(now), at(now), 99).await.unwrap().len()
}

both! {
    async fn whom_an_event_is_about(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let first = owned(db, user, "c\0_1", "owner_1", &[new_account("a\0cc_1", "One")]).await;
        let second = owned(db, user, "c_2", "owner_1", &[new_account("acc_2", "Two")]).await;
        let third = owned(db, other, "c_3", "owner_3", &[new_account("acc_1", "Joint")]).await;
        let sorted = |mut ids: Vec<(UserId, ConnectionId)>| {
            ids.sort();
            ids
        };
        assert_eq!(found(db, "akahu", &[Concerned::Connection("c\0_1")]).await, [(user, first)]);
        assert_eq!(found(db, "akahu", &[Concerned::Account("acc_2")]).await, [(user, second)]);
        assert_eq!(found(db, "akahu", &[Concerned::Account("a\0cc_1")]).await, sorted(vec![(user, first), (other, third)]));
        assert_eq!(found(db, "akahu", &[Concerned::Owner("owner_1")]).await, sorted(vec![(user, first), (user, second)]));
        assert_eq!(found(db, "akahu", &[Concerned::User(other)]).await, [(other, third)]);
        let all = [Concerned::User(user), Concerned::Owner("owner_1"), Concerned::Connection("c_1"), Concerned::Account("acc_2")];
        assert_eq!(found(db, "akahu", &all).await, sorted(vec![(user, first), (user, second)]), "each once");
        assert_eq!(found(db, "fiskil", &all).await, [], "another provider's ids are other ids");
        assert_eq!(found(db, "akahu", &[]).await, []);
        for unknown in [Concerned::Connection("c"), Concerned::Account(""), Concerned::Owner("c_1"), Concerned::User(UserId::new())] {
            assert_eq!(found(db, "akahu", &[unknown]).await, [], "{unknown:?}");
        }
        db.begin_removal(user, first, at(1), at(9)).await.unwrap().expect("hidden");
        assert_eq!(found(db, "akahu", &all).await, [(user, second)]);
        assert_eq!(found(db, "akahu", &[Concerned::Account("acc_1")]).await, [(other, third)]);
    }

    async fn an_owner_is_kept_until_another_is_told(db) {
        let user = db.user("a@x").await.id;
        let id = owned(db, user, "c", "owner_1", &[]).await;
        db.connection(user, "c", &[]).await;
        assert_eq!(found(db, "akahu", &[Concerned::Owner("owner_1")]).await, [(user, id)]);
        owned(db, user, "c", "owner_2", &[]).await;
        assert_eq!(found(db, "akahu", &[Concerned::Owner("owner_1")]).await, []);
        assert_eq!(found(db, "akahu", &[Concerned::Owner("owner_2")]).await, [(user, id)]);
    }

    async fn an_event_hurries_the_sessions_that_it_may_be_about(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        owned(db, user, "c_1", "owner_1", &[new_account("acc_1", "One")]).await;
        registered(db, other, "owner_2", "grant").await;
        for (user, state, provider) in [(user, "s1", "akahu"), (user, "s2", "fiskil"), (other, "s3", "fiskil")] {
            db.insert_link_session(&NewLinkSession { provider, ..new_session(user, state) }, at(0)).await.unwrap();
        }
        let hurry = async |provider, concerned| db.hurry_link_sessions(provider, &[concerned], at(5)).await.unwrap();
        hurry("akahu", Concerned::User(UserId::new())).await;
        hurry("akahu", Concerned::User(other)).await;
        hurry("fiskil", Concerned::Owner("owner_1")).await;
        hurry("akahu", Concerned::Owner("owner_2")).await;
        assert_eq!(due(db, 5).await, 0, "none of these is about any");
        hurry("fiskil", Concerned::Owner("owner_2")).await;
        assert_eq!(due(db, 5).await, 1);
        hurry("fiskil", Concerned::User(user)).await;
        assert_eq!(due(db, 5).await, 2);
        for concerned in [Concerned::Connection("c_1"), Concerned::Account("acc_1"), Concerned::Owner("owner_1")] {
            hurry("akahu", concerned).await;
            let claims = db.claim_due_link_sessions(at(5), at(6), 9).await.unwrap();
            let ours = claims.iter().find(|claim| claim.session.provider == "akahu").expect("due");
            for claim in &claims {
                assert!(db.postpone_link_session(claim, at(120)).await.unwrap());
            }
            assert_eq!(ours.session.user_id, user, "{concerned:?}");
        }
    }

    async fn one_that_somebody_works_on_is_due_when_they_are_done(db) {
        let user = db.user("a@x").await.id;
        db.insert_link_session(&new_session(user, "state"), at(0)).await.unwrap();
        let claim = db.claim_due_link_sessions(at(120), at(150), 9).await.unwrap().remove(0);
        db.hurry_link_sessions("akahu", &[Concerned::User(user)], at(125)).await.unwrap();
        assert_eq!(due(db, 126).await, 0, "somebody has it");
        assert!(db.postpone_link_session(&claim, at(900)).await.unwrap());
        let claim = db.claim_due_link_sessions(at(126), at(150), 9).await.unwrap().remove(0);
        assert!(db.end_link_session(&claim, "linked").await.unwrap());
        db.hurry_link_sessions("akahu", &[Concerned::User(user)], at(130)).await.unwrap();
        assert_eq!(due(db, 999).await, 0, "what ended stays so");
    }

    async fn an_event_is_taken_once(db) {
        assert!(!db.has_event("fiskil", "evt_1").await.unwrap());
        for _ in 0..2 {
            db.insert_event("fiskil", "evt_1", at(0)).await.unwrap();
        }
        assert!(db.has_event("fiskil", "evt_1").await.unwrap());
        assert!(!db.has_event("akahu", "evt_1").await.unwrap());
        assert!(!db.has_event("fiskil", "evt_2").await.unwrap());
        assert_eq!(db.texts("SELECT provider FROM provider_events").await, ["fiskil"]);
    }
}
