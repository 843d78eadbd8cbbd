//! Link sessions as due work: who may work on one, when, and what becomes of its secret.

use std::collections::BTreeSet;

use bellbird_domain::{ConnectionId, UserId};
use secrecy::{ExposeSecret as _, SecretString};

use super::{TestDb, at, both};
use crate::keys::{hash, hex};
use crate::{ClaimedLinkSession, Concerned, LinkPhase, NewLinkSession, OtherTrip, Sealer, Storage, StorageError};

/// A trip that has a minute, and is due after two.
pub(crate) fn new_session(user_id: UserId, state: &str) -> NewLinkSession<'_> {
    NewLinkSession {
        user_id,
        provider: "akahu",
        connection_id: None,
        known: &[],
        state,
        expires_at: at(60),
        due_at: at(120),
    }
}

pub(crate) fn secret(text: &str) -> SecretString {
    SecretString::from(text)
}

/// A trip from which the browser is back, with a lease from 10 to 40.
pub(crate) async fn returned(db: &Storage, user: UserId, state: &str) -> ClaimedLinkSession {
    db.insert_link_session(&new_session(user, state), at(0)).await.unwrap();
    db.return_link_session(state, &secret("code=answer"), at(10), at(40)).await.unwrap().expect("in time")
}

fn exposed(claim: &ClaimedLinkSession) -> Option<&str> {
    claim.sealed.as_ref().map(|sealed| sealed.expose_secret())
}

async fn due(db: &Storage, now: i64) -> Vec<ClaimedLinkSession> {
    db.claim_due_link_sessions(at(now), at(now + 30), 8).await.unwrap()
}

async fn phase(db: &TestDb, state: &str) -> (LinkPhase, Option<String>) {
    let session = db.find_link_session(state).await.unwrap().expect("there");
    (session.phase, session.outcome)
}

#[test]
fn phases_are_words() {
    for phase in [LinkPhase::Begun, LinkPhase::Returned, LinkPhase::Granted, LinkPhase::Ended] {
        assert_eq!(phase.as_str().parse(), Ok(phase));
    }
    assert!("Begun".parse::<LinkPhase>().is_err());
}

both! {
    async fn a_trip_from_its_beginning_to_its_end(db) {
        let user = db.user("a@x").await.id;
        let connection = db.connection(user, "c", &[]).await.id;
        let new = NewLinkSession { connection_id: Some(connection), ..new_session(user, "state") };
        db.insert_link_session(&new, at(0)).await.unwrap();
        let begun = db.find_link_session("state").await.unwrap().expect("there");
        assert_eq!((begun.user_id, begun.provider.as_str(), begun.connection_id), (user, "akahu", Some(connection)));
        assert_eq!((begun.phase, begun.outcome), (LinkPhase::Begun, None));
        assert_eq!((begun.created_at, begun.expires_at), (at(0), at(60)));
        assert_eq!(db.find_link_session("stale").await.unwrap(), None);
        let claim = db.return_link_session("state", &secret("code=answer"), at(10), at(40)).await.unwrap().expect("in time");
        assert_eq!((claim.session.phase, exposed(&claim), claim.attempts), (LinkPhase::Returned, Some("code=answer"), 0));
        assert_eq!(claim.session.connection_id, Some(connection));
        assert!(!format!("{claim:?}").contains("answer"));
        assert!(db.grant_link_session(&claim, &secret("grant"), at(50)).await.unwrap());
        assert_eq!(phase(db, "state").await, (LinkPhase::Granted, None));
        assert_eq!(due(db, 49).await.len(), 0, "the lease goes on");
        assert!(!db.grant_link_session(&claim, &secret("again"), at(99)).await.unwrap(), "granted already");
        assert!(db.end_link_session(&claim, "linked").await.unwrap());
        assert_eq!(phase(db, "state").await, (LinkPhase::Ended, Some("linked".to_owned())));
        assert_eq!((db.secrets_for("link").await, due(db, 999).await.len()), (0, 0));
        assert!(!db.end_link_session(&claim, "failed").await.unwrap());
        assert!(!db.postpone_link_session(&claim, at(70)).await.unwrap());
        assert_eq!(db.revision(user).await, 1, "nobody sees any of it");
    }

    async fn a_state_is_of_one_trip_of_somebody(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        db.insert_link_session(&new_session(user, "state"), at(0)).await.unwrap();
        let error = db.insert_link_session(&new_session(other, "state"), at(0)).await.unwrap_err();
        assert!(matches!(error, StorageError::Conflict("this state")), "{error:?}");
        let error = db.insert_link_session(&new_session(UserId::new(), "s2"), at(0)).await.unwrap_err();
        assert!(matches!(error, StorageError::NotFound("user")), "{error:?}");
        let connection = db.connection(user, "c", &[]).await.id;
        for (user, connection) in [(other, connection), (user, ConnectionId::new())] {
            let new = NewLinkSession { connection_id: Some(connection), ..new_session(user, "s3") };
            let error = db.insert_link_session(&new, at(0)).await.unwrap_err();
            assert!(matches!(error, StorageError::NotFound("connection")), "{error:?}");
        }
        assert_eq!(db.find_link_session("state").await.unwrap().unwrap().user_id, user);
    }

    async fn one_of_two_browsers_is_back(db) {
        let user = db.user("a@x").await.id;
        let handles = [db.again().await, db.again().await];
        for round in 0..6 {
            let state = format!("state{round}");
            db.insert_link_session(&new_session(user, &state), at(0)).await.unwrap();
            let answers = [secret("one"), secret("other")];
            let (one, other) = tokio::join!(
                handles[0].return_link_session(&state, &answers[0], at(10), at(40)),
                handles[1].return_link_session(&state, &answers[1], at(10), at(40)),
            );
            let claims: Vec<_> = [one.unwrap(), other.unwrap()].into_iter().flatten().collect();
            assert_eq!(claims.len(), 1);
            let stored = due(db, 40).await;
            assert_eq!((stored.len(), exposed(&stored[0])), (1, exposed(&claims[0])), "the answer of the one");
            assert!(db.end_link_session(&stored[0], "done").await.unwrap());
        }
    }

    async fn too_late_unknown_and_repeated_answers_change_nothing(db) {
        let user = db.user("a@x").await.id;
        db.insert_link_session(&new_session(user, "state"), at(0)).await.unwrap();
        let back = async |state, now| db.return_link_session(state, &secret("forged"), at(now), at(99)).await.unwrap();
        assert!(back("state", 60).await.is_none(), "too late");
        assert!(back("stale", 10).await.is_none(), "unknown");
        assert_eq!((db.secrets_for("link").await, phase(db, "state").await.0), (0, LinkPhase::Begun));
        let claim = back("state", 59).await.expect("in time");
        assert!(back("state", 59).await.is_none(), "returned");
        assert!(db.grant_link_session(&claim, &secret("grant"), at(99)).await.unwrap());
        assert!(back("state", 59).await.is_none(), "granted");
        assert!(db.end_link_session(&claim, "linked").await.unwrap());
        assert!(back("state", 59).await.is_none(), "ended");
        assert_eq!(db.secrets_for("link").await, 0);
    }

    async fn whoever_is_killed_is_followed(db) {
        let user = db.user("a@x").await.id;
        let killed = returned(db, user, "state").await;
        assert_eq!(due(db, 39).await.len(), 0, "somebody has it");
        let next = due(db, 40).await.remove(0);
        assert_eq!((next.session.phase, exposed(&next)), (LinkPhase::Returned, Some("code=answer")));
        assert!(!db.grant_link_session(&killed, &secret("late"), at(99)).await.unwrap());
        assert!(!db.end_link_session(&killed, "late").await.unwrap());
        assert!(!db.postpone_link_session(&killed, at(999)).await.unwrap());
        assert!(db.grant_link_session(&next, &secret("grant"), at(80)).await.unwrap());
        let last = due(db, 80).await.remove(0);
        assert_eq!((last.session.phase, exposed(&last)), (LinkPhase::Granted, Some("grant")), "nothing is asked for twice");
        assert!(!db.end_link_session(&next, "late").await.unwrap());
        assert!(db.end_link_session(&last, "linked").await.unwrap());
    }

    async fn a_postponed_one_is_due_again(db) {
        let user = db.user("a@x").await.id;
        let claim = returned(db, user, "state").await;
        assert!(db.postpone_link_session(&claim, at(50)).await.unwrap());
        assert!(!db.postpone_link_session(&claim, at(20)).await.unwrap(), "given back");
        assert_eq!(due(db, 49).await.len(), 0);
        let claim = due(db, 50).await.remove(0);
        assert_eq!((claim.attempts, exposed(&claim)), (1, Some("code=answer")));
        assert!(db.grant_link_session(&claim, &secret("grant"), at(80)).await.unwrap());
        assert_eq!(due(db, 80).await[0].attempts, 0, "counted anew in the next phase");
    }

    async fn who_never_comes_back_is_due_too(db) {
        let user = db.user("a@x").await.id;
        db.insert_link_session(&new_session(user, "state"), at(0)).await.unwrap();
        assert_eq!(due(db, 119).await.len(), 0);
        let claim = due(db, 120).await.remove(0);
        assert_eq!((claim.session.phase, exposed(&claim)), (LinkPhase::Begun, None));
        assert!(!db.grant_link_session(&claim, &secret("grant"), at(200)).await.unwrap(), "it has no answer");
        assert!(db.end_link_session(&claim, "expired").await.unwrap());
    }

    async fn a_browser_overtakes_whoever_looked_for_it(db) {
        let user = db.user("a@x").await.id;
        db.insert_link_session(&new_session(user, "state"), at(0)).await.unwrap();
        db.hurry_link_sessions("akahu", &[Concerned::User(user)], at(5)).await.unwrap();
        let looking = due(db, 5).await.remove(0);
        let back = db.return_link_session("state", &secret("answer"), at(10), at(40)).await.unwrap().expect("in time");
        assert!(!db.end_link_session(&looking, "cancelled").await.unwrap());
        assert!(!db.postpone_link_session(&looking, at(999)).await.unwrap());
        assert!(db.end_link_session(&back, "linked").await.unwrap());
    }

    async fn two_copies_share_what_is_due(db) {
        let user = db.user("a@x").await.id;
        let states: Vec<String> = (0..10).map(|number| format!("state{number}")).collect();
        for state in &states {
            db.insert_link_session(&new_session(user, state), at(0)).await.unwrap();
        }
        let handles = [db.again().await, db.again().await];
        let mut count = 0;
        while count < states.len() {
            let (one, other) = tokio::join!(
                handles[0].claim_due_link_sessions(at(200), at(300), 3),
                handles[1].claim_due_link_sessions(at(200), at(300), 3),
            );
            let claims: Vec<_> = one.unwrap().into_iter().chain(other.unwrap()).collect();
            assert!(!claims.is_empty());
            count += claims.len();
            for claim in &claims {
                assert!(db.end_link_session(claim, "expired").await.unwrap(), "nobody overtook it");
            }
        }
        assert_eq!(count, states.len(), "each is claimed once");
    }

    async fn a_secret_that_does_not_open_holds_nobody_up(db) {
        let user = db.user("a@x").await.id;
        returned(db, user, "state").await;
        let stranger = Storage::open(&db.url, Sealer::random()).await.unwrap();
        stranger.insert_link_session(&new_session(user, "other"), at(0)).await.unwrap();
        stranger.return_link_session("other", &secret("answer"), at(11), at(40)).await.unwrap().expect("in time");
        let claims = due(db, 40).await;
        let mut opened: Vec<_> = claims.iter().map(exposed).collect();
        opened.sort_unstable();
        assert_eq!(opened, [None, Some("code=answer")]);
        for claim in &claims {
            assert_eq!(claim.session.phase, LinkPhase::Returned);
            assert!(db.end_link_session(claim, "failed").await.unwrap());
        }
        assert_eq!((due(db, 999).await.len(), db.secrets_for("link").await), (0, 0));
    }

    async fn a_trip_knows_the_consents_of_before(db) {
        let user = db.user("a@x").await.id;
        let known = ["conn_1", "con\0sent", "zwei Wörter", ""];
        for state in ["one", "other"] {
            db.insert_link_session(&NewLinkSession { known: &known, ..new_session(user, state) }, at(0)).await.unwrap();
        }
        db.insert_link_session(&new_session(user, "empty"), at(0)).await.unwrap();
        let back = async |state| db.return_link_session(state, &secret("answer"), at(10), at(40)).await.unwrap().expect("in time");
        let (one, empty) = (back("one").await, back("empty").await);
        for claim in due(db, 120).await.iter().chain([&one]).filter(|claim| claim.session.id != empty.session.id) {
            assert!(known.iter().all(|consent| claim.knew(consent)));
            assert!(["conn_", "conn_1 ", "conn_2", "conn_1 zwei"].iter().all(|consent| !claim.knew(consent)));
        }
        assert!(known.iter().all(|consent| !empty.knew(consent)));
        let kept = db.texts("SELECT known FROM link_sessions WHERE known <> '' ORDER BY known").await;
        let digests: BTreeSet<&str> = kept.iter().flat_map(|known| known.split(' ')).collect();
        assert_eq!(digests.len(), 8, "another one in each session");
        assert!(digests.iter().all(|digest| digest.len() == 32));
        assert!(!digests.contains(&hex(hash("conn_1").as_ref())[..32]));
    }

    async fn the_other_trips_of_a_user(db) {
        let (user, stranger) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let broken = db.connection(user, "consent", &[]).await.id;
        let repair = NewLinkSession { connection_id: Some(broken), ..new_session(user, "repair") };
        db.insert_link_session(&repair, at(5)).await.unwrap();
        for (user, state, now) in [(user, "early", 1), (user, "this", 10), (stranger, "theirs", 10)] {
            db.insert_link_session(&new_session(user, state), at(now)).await.unwrap();
        }
        db.insert_link_session(&NewLinkSession { provider: "other", ..new_session(user, "elsewhere") }, at(10)).await.unwrap();
        let this = db.find_link_session("this").await.unwrap().unwrap();
        let others = db.list_other_trips(&this, at(2)).await.unwrap();
        assert_eq!(others, [OtherTrip { connection_id: Some(broken), phase: LinkPhase::Begun }]);
    }
}
