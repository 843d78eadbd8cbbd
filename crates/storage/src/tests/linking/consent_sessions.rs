//! Consent sessions as jobs: claims, leases, due times and secrets.

use std::collections::BTreeSet;

use bellbird_domain::{Confirmation, ConnectionId, ConnectionStatus, LinkPhase, UserId};
use secrecy::ExposeSecret as _;

use crate::digest::{hash, hex};
use crate::job_kinds::REMOVAL;
use crate::tests::fixtures::{new_session, receive, secret, session_with_callback, start_session};
use crate::tests::support::{TestDb, assert_fails, at, both, new_connection};
use crate::{
    AffectedRef, ClaimedConsentSession, NewConsentSession, OtherConsentSession, Sealer, Storage,
};

fn secret_text(claim: &ClaimedConsentSession) -> Option<&str> {
    claim.secret.as_ref().map(|secret| secret.expose_secret())
}

async fn due(db: &Storage, now: i64) -> Vec<ClaimedConsentSession> {
    db.claim_due_consent_sessions(at(now), at(now + 30), 8)
        .await
        .unwrap()
}

async fn phase(db: &TestDb, state: &str) -> (LinkPhase, Option<String>) {
    let session = db
        .consent_sessions()
        .find(state)
        .await
        .unwrap()
        .expect("there");
    (session.phase, session.outcome)
}

both! {
    async fn consent_session_from_start_to_end(db) {
        let user = db.user("a@x").await.id;
        let connection = db.connection(user, "c", &[]).await.id;
        let new = NewConsentSession { connection_id: Some(connection), ..new_session(user, "state") };
        db.consent_sessions().insert(&new, at(0)).await.unwrap();
        let started = db.consent_sessions().find("state").await.unwrap().expect("there");
        assert_eq!(
            (started.user_id, started.provider.as_str(), started.connection_id),
            (user, "akahu", Some(connection))
        );
        assert_eq!((started.phase, started.outcome), (LinkPhase::Started, None));
        assert_eq!((started.created_at, started.phase_since, started.expires_at), (at(0), at(0), at(60)));
        assert_eq!(db.consent_sessions().find("stale").await.unwrap(), None);
        let claim =
            receive(db, "state", "code=answer", (10, 40)).await.expect("in time");
        assert_eq!(
            (claim.session.phase, secret_text(&claim), claim.job.attempts),
            (LinkPhase::CallbackReceived, Some("code=answer"), 0)
        );
        assert_eq!((claim.session.connection_id, claim.session.phase_since), (Some(connection), at(10)));
        assert!(!format!("{claim:?}").contains("answer"));
        assert!(db.consent_sessions().store_credentials(&claim, &secret("credentials"), at(20), at(50)).await.unwrap());
        assert_eq!(phase(db, "state").await, (LinkPhase::CredentialsObtained, None));
        assert_eq!(db.consent_sessions().find("state").await.unwrap().unwrap().phase_since, at(20));
        assert_eq!(due(db, 49).await.len(), 0, "the lease was extended");
        assert!(
            !db.consent_sessions().store_credentials(&claim, &secret("again"), at(20), at(99)).await.unwrap(),
            "stored already",
        );
        assert!(db.consent_sessions().end(&claim, "linked").await.unwrap());
        assert_eq!(phase(db, "state").await, (LinkPhase::Ended, Some("linked".to_owned())));
        assert_eq!((db.secrets_for("consent_session").await, due(db, 999).await.len()), (0, 0));
        assert!(!db.consent_sessions().end(&claim, "failed").await.unwrap());
        assert!(!db.jobs().postpone(&claim.job, at(70)).await.unwrap());
        assert_eq!(db.revision(user).await, 1, "consent sessions do not change it");

        // The browser that confirms and the reason of a failure are kept.
        start_session(db, user, "failing").await;
        let started = db.consent_sessions().find("failing").await.unwrap().expect("there");
        let answer = (Confirmation::Confirmed, Some("another browser"));
        let sessions = db.consent_sessions();
        let claim = sessions.receive_callback("failing", &secret("x"), answer, at(10), at(40)).await.unwrap();
        let mut claim = claim.expect("in time");
        assert!(claim.session.is_bound_to("another browser"));
        assert!(started.browser_hash != claim.session.browser_hash);
        claim.session.failure_reason = Some("The bank is down.".to_owned());
        assert!(db.consent_sessions().end(&claim, "failed").await.unwrap());
        let ended = db.consent_sessions().find("failing").await.unwrap().expect("there");
        assert!(ended.is_bound_to("another browser"));
        assert_eq!(ended.failure_reason.as_deref(), Some("The bank is down."));
    }

    async fn state_belongs_to_one_session(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        start_session(db, user, "state").await;
        assert_fails!(db.consent_sessions().insert(&new_session(other, "state"), at(0)).await, Conflict("this state"));
        assert_fails!(db.consent_sessions().insert(&new_session(UserId::new(), "s2"), at(0)).await, NotFound("user"));
        let connection = db.connection(user, "c", &[]).await.id;
        for (user, connection) in [(other, connection), (user, ConnectionId::new())] {
            let new = NewConsentSession { connection_id: Some(connection), ..new_session(user, "s3") };
            assert_fails!(db.consent_sessions().insert(&new, at(0)).await, NotFound("connection"));
        }
        assert_eq!(db.consent_sessions().find("state").await.unwrap().unwrap().user_id, user);
    }

    async fn only_the_browser_that_started_a_session_confirms_it(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        start_session(db, user, "state").await;
        let session = db.consent_sessions().find("state").await.unwrap().unwrap();
        assert_eq!(session.confirmation, Confirmation::Open);
        assert!(session.is_bound_to("browser") && !session.is_bound_to("another"));
        let unfinished = async |user, browser, now| {
            db.consent_sessions().list_unfinished(user, browser, at(now)).await.unwrap().len()
        };
        assert_eq!(unfinished(user, "browser", 59).await, 1);
        assert_eq!(unfinished(user, "another", 59).await, 0);
        assert_eq!(unfinished(other, "browser", 59).await, 0);
        assert_eq!(unfinished(user, "browser", 60).await, 0, "expired");
        let confirm = async |user, browser, now| {
            db.consent_sessions().confirm(user, session.id(), browser, at(now)).await.unwrap().is_some()
        };
        assert!(!confirm(user, "another", 1).await);
        assert!(!confirm(other, "browser", 1).await);
        assert!(!confirm(user, "browser", 60).await, "expired");
        assert!(confirm(user, "browser", 1).await);
        assert!(!confirm(user, "browser", 1).await, "confirmed already");
        assert_eq!(due(db, 1).await.len(), 1, "the session is polled at once");
        assert_eq!(db.consent_sessions().find("state").await.unwrap().unwrap().confirmation, Confirmation::Confirmed);
        assert_eq!(unfinished(user, "browser", 1).await, 1, "waits for the provider");
    }

    async fn repair_is_unfinished_while_its_connection_needs_it(db) {
        let user = db.user("a@x").await.id;
        let connection = db.connection(user, "c", &[]).await.id;
        let begin = async |state: &'static str, now: i64| {
            let new = NewConsentSession { connection_id: Some(connection), ..new_session(user, state) };
            assert!(db.consent_sessions().insert(&new, at(now)).await.unwrap());
        };
        let unfinished = async || {
            db.consent_sessions().list_unfinished(user, "browser", at(59)).await.unwrap().len()
        };
        let (active, revoked) = (ConnectionStatus::Active, ConnectionStatus::Revoked);
        begin("before it breaks", 20).await;
        assert!(db.set_status((user, connection), active, revoked, at(21)).await);
        assert_eq!(unfinished().await, 1);
        db.connections().import(&new_connection(user, "c"), &[], at(22)).await.unwrap();
        assert_eq!(unfinished().await, 0, "it works again");

        begin("of one that works", 30).await;
        assert_eq!(unfinished().await, 1);
        begin("renews it", 31).await;
        let mut claim = receive(db, "renews it", "answer", (32, 50)).await.expect("in time");
        claim.session.connections = vec![connection];
        assert!(db.consent_sessions().end(&claim, "renewed").await.unwrap());
        assert_eq!(unfinished().await, 0, "renewed by another");

        begin("of one that is removed", 33).await;
        start_session(db, user, "new").await;
        assert_eq!(unfinished().await, 2);
        let removal = db.hide(user, connection, 34, 50).await;
        assert_eq!(unfinished().await, 1, "hidden");
        assert!(db.removals().finish(&removal, "deleted", at(35)).await.unwrap());
        assert_eq!(unfinished().await, 1, "gone");
    }

    async fn denied_session_stays_denied(db) {
        let user = db.user("a@x").await.id;
        let claim = session_with_callback(db, user, "state").await;
        assert_eq!(claim.session.confirmation, Confirmation::Confirmed);
        assert!(db.consent_sessions().deny(&claim.session, at(20)).await.unwrap());
        assert!(!db.consent_sessions().deny(&claim.session, at(20)).await.unwrap(), "denied already");
        assert!(!db.consent_sessions().end(&claim, "linked").await.unwrap(), "the lease was lost");
        let mut denied = due(db, 20).await.remove(0);
        assert_eq!(denied.session.confirmation, Confirmation::Denied);
        let connection = ConnectionId::new();
        denied.session.connections = vec![connection];
        assert!(db.consent_sessions().end(&denied, "linked").await.unwrap());
        let ended = db.consent_sessions().find("state").await.unwrap().unwrap();
        assert_eq!(ended.connections, [connection]);
        assert!(!db.consent_sessions().deny(&ended, at(30)).await.unwrap(), "ended");
        db.consent_sessions().deny_ended(&ended).await.unwrap();
        assert_eq!(phase(db, "state").await, (LinkPhase::Ended, Some("withdrawn".to_owned())));
        // A session that was denied before its callback stays denied.
        start_session(db, user, "later").await;
        let later = db.consent_sessions().find("later").await.unwrap().unwrap();
        assert!(db.consent_sessions().deny(&later, at(1)).await.unwrap());
        let claim = receive(db, "later", "x", (10, 40)).await.expect("in time");
        assert_eq!(claim.session.confirmation, Confirmation::Denied);
    }

    async fn invalid_callbacks_change_nothing(db) {
        let user = db.user("a@x").await.id;
        start_session(db, user, "state").await;
        let callback =
            async |state, now| receive(db, state, "forged", (now, 99)).await;
        assert!(callback("state", 60).await.is_none(), "too late");
        assert!(callback("stale", 10).await.is_none(), "unknown");
        assert_eq!((db.secrets_for("consent_session").await, phase(db, "state").await.0), (0, LinkPhase::Started));
        let claim = callback("state", 59).await.expect("in time");
        assert!(callback("state", 59).await.is_none(), "callback_received");
        assert!(db.consent_sessions().store_credentials(&claim, &secret("credentials"), at(20), at(99)).await.unwrap());
        assert!(callback("state", 59).await.is_none(), "credentials_obtained");
        assert!(db.consent_sessions().end(&claim, "linked").await.unwrap());
        assert!(callback("state", 59).await.is_none(), "ended");
        assert_eq!(db.secrets_for("consent_session").await, 0);
    }

    async fn session_has_one_holder_until_it_ends(db) {
        let user = db.user("a@x").await.id;
        let killed = session_with_callback(db, user, "state").await;
        assert_eq!(due(db, 39).await.len(), 0, "leased");
        let next = due(db, 40).await.remove(0);
        assert_eq!((next.session.phase, secret_text(&next)), (LinkPhase::CallbackReceived, Some("code=answer")));
        assert!(!db.consent_sessions().store_credentials(&killed, &secret("late"), at(20), at(99)).await.unwrap());
        assert!(!db.consent_sessions().end(&killed, "late").await.unwrap());
        assert!(!db.jobs().postpone(&killed.job, at(999)).await.unwrap());
        assert!(db.consent_sessions().store_credentials(&next, &secret("credentials"), at(20), at(80)).await.unwrap());
        let last = due(db, 80).await.remove(0);
        assert_eq!(
            (last.session.phase, secret_text(&last)),
            (LinkPhase::CredentialsObtained, Some("credentials")),
            "the callback is not used twice"
        );
        assert!(!db.consent_sessions().end(&next, "late").await.unwrap());
        assert!(db.consent_sessions().end(&last, "linked").await.unwrap());

        // One that is postponed is due again.
        let claim = session_with_callback(db, user, "postponed").await;
        assert!(db.jobs().postpone(&claim.job, at(50)).await.unwrap());
        assert!(!db.jobs().postpone(&claim.job, at(20)).await.unwrap(), "released");
        assert_eq!(due(db, 49).await.len(), 0);
        let claim = due(db, 50).await.remove(0);
        assert_eq!((claim.job.attempts, secret_text(&claim)), (1, Some("code=answer")));
        assert!(db.consent_sessions().store_credentials(&claim, &secret("credentials"), at(20), at(80)).await.unwrap());
        let claim = due(db, 80).await.remove(0);
        assert_eq!(claim.job.attempts, 2, "since the callback, with the run whose lease expired");
        assert!(db.consent_sessions().end(&claim, "linked").await.unwrap());

        // One without a callback becomes due.
        start_session(db, user, "started").await;
        assert_eq!(due(db, 119).await.len(), 0);
        let claim = due(db, 120).await.remove(0);
        assert_eq!((claim.session.phase, secret_text(&claim)), (LinkPhase::Started, None));
        let stored =
            db.consent_sessions().store_credentials(&claim, &secret("credentials"), at(20), at(200)).await.unwrap();
        assert!(!stored, "no callback");
        assert!(db.consent_sessions().end(&claim, "expired").await.unwrap());

        // A callback ends an earlier lease.
        start_session(db, user, "woken").await;
        db.provider_events().wake_consent_sessions("akahu", &[AffectedRef::User(user)], at(5)).await.unwrap();
        let earlier = due(db, 5).await.remove(0);
        let callback = receive(db, "woken", "answer", (10, 40)).await.expect("in time");
        assert!(!db.consent_sessions().end(&earlier, "cancelled").await.unwrap());
        assert!(!db.jobs().postpone(&earlier.job, at(999)).await.unwrap());
        assert!(db.consent_sessions().end(&callback, "linked").await.unwrap());
    }

    async fn unopenable_secret_does_not_block_others(db) {
        let user = db.user("a@x").await.id;
        session_with_callback(db, user, "state").await;
        let other_key = Storage::open(&db.url, Sealer::random()).await.unwrap();
        other_key.consent_sessions().insert(&new_session(user, "other"), at(0)).await.unwrap();
        receive(&other_key, "other", "answer", (11, 40)).await.expect("in time");
        let claims = due(db, 40).await;
        let mut opened: Vec<_> = claims.iter().map(secret_text).collect();
        opened.sort_unstable();
        assert_eq!(opened, [None, Some("code=answer")]);
        for claim in &claims {
            assert_eq!(claim.session.phase, LinkPhase::CallbackReceived);
            assert!(db.consent_sessions().end(claim, "failed").await.unwrap());
        }
        assert_eq!((due(db, 999).await.len(), db.secrets_for("consent_session").await), (0, 0));
    }

    async fn session_remembers_existing_consents(db) {
        let user = db.user("a@x").await.id;
        let known_consents = ["conn_1", "con\0sent", "zwei Wörter", ""];
        for state in ["one", "other"] {
            db.consent_sessions().insert(
                &NewConsentSession { known_consents: &known_consents, ..new_session(user, state) },
                at(0),
            )
            .await
            .unwrap();
        }
        start_session(db, user, "empty").await;
        let callback = async |state| {
            receive(db, state, "answer", (10, 40)).await.expect("in time")
        };
        let (one, empty) = (callback("one").await, callback("empty").await);
        for claim in due(db, 120).await.iter().chain([&one]).filter(|claim| claim.session.id != empty.session.id) {
            assert!(known_consents.iter().all(|consent| claim.had_consent(consent)));
            assert!(["conn_", "conn_1 ", "conn_2", "conn_1 zwei"].iter().all(|consent| !claim.had_consent(consent)));
        }
        assert!(known_consents.iter().all(|consent| !empty.had_consent(consent)));
        let kept = db
            .texts("SELECT known_consents FROM consent_sessions WHERE known_consents <> '' ORDER BY known_consents")
            .await;
        let digests: BTreeSet<&str> = kept.iter().flat_map(|known_consents| known_consents.split(' ')).collect();
        assert_eq!(digests.len(), 8, "digests differ between sessions");
        assert!(digests.iter().all(|digest| digest.len() == 32));
        assert!(!digests.contains(&hex(hash("conn_1").as_ref())[..32]));
    }

    async fn lists_other_sessions_of_the_user(db) {
        let (user, other_user) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let broken = db.connection(user, "consent", &[]).await.id;
        let repair = NewConsentSession { connection_id: Some(broken), ..new_session(user, "repair") };
        db.consent_sessions().insert(&repair, at(5)).await.unwrap();
        for (user, state, now) in [(user, "early", 1), (user, "this", 10), (other_user, "theirs", 10)] {
            db.consent_sessions().insert(&new_session(user, state), at(now)).await.unwrap();
        }
        db.consent_sessions().insert(&NewConsentSession { provider: "other", ..new_session(user, "elsewhere") }, at(10))
            .await
            .unwrap();
        let this = db.consent_sessions().find("this").await.unwrap().unwrap();
        let others = db.consent_sessions().list_other(&this, at(2)).await.unwrap();
        let (connection_id, phase) = (Some(broken), LinkPhase::Started);
        let other = OtherConsentSession { connection_id, phase, expires_at: at(60) };
        assert_eq!(others, [other]);
    }

    async fn denied_session_stores_nothing_more(db) {
        let user = db.user("a@x").await.id;
        let (other, new) = (db.connection(user, "other", &[]).await.id, new_connection(user, "consent"));
        let claim = session_with_callback(db, user, "state").await;
        assert!(db.consent_sessions().deny(&claim.session, at(20)).await.unwrap());
        assert_eq!(db.connections().import_for(&claim.job, &new, &[], at(30)).await.unwrap(), None);
        assert!(!db.connections().withdraw_unconnected(&claim.job, &new, at(30)).await.unwrap());
        assert!(!db.removals().begin_for(&claim.job, "denied", other, at(30)).await.unwrap());
        assert_eq!(db.claim_due(REMOVAL, at(30), at(60), 8).await.unwrap(), []);
        assert_eq!(db.connections().list(user).await.unwrap().len(), 1);

        // The next holder withdraws what the provider lists.
        let job = due(db, 30).await.remove(0).job;
        assert!(db.connections().withdraw_unconnected(&job, &new, at(30)).await.unwrap());
        assert!(db.removals().begin_for(&job, "denied", other, at(30)).await.unwrap());
        assert_eq!(db.claim_due(REMOVAL, at(30), at(60), 8).await.unwrap().len(), 2);
        assert_eq!(db.connections().list(user).await.unwrap().len(), 0);
        let claim = session_with_callback(db, user, "another").await;
        let new = new_connection(user, "another consent");
        assert!(db.connections().import_for(&claim.job, &new, &[], at(30)).await.unwrap().is_some());
    }
}
