use bellbird_domain::{Plan, UserId};

use crate::tests::fixtures::console_session;
use crate::tests::support::{TestDb, at, both};
use crate::{Identity, IdentitySignIn, UserChange, in_tx};

const ISSUER: &str = "https://login.example";

async fn sign_in_at(
    db: &TestDb,
    issuer: &str,
    subject: &str,
    email: &str,
    new_plan: Option<Plan>,
) -> IdentitySignIn {
    let token = format!("{issuer} {subject} {email}");
    let session = console_session(&token, "known");
    let identity = Identity {
        issuer,
        subject,
        email,
    };
    let ended = db
        .sessions()
        .sign_in_as(&identity, new_plan, &session, at(1))
        .await
        .unwrap();
    let found = db
        .sessions()
        .find(&token, at(2))
        .await
        .unwrap()
        .map(|found| found.caller.user_id);
    assert_eq!(
        found,
        user(ended),
        "a session begins for this user, or none"
    );
    if let IdentitySignIn::Begun(begun) = ended {
        db.sessions().revoke(begun.user_id, begun.id).await.unwrap();
    }
    ended
}

fn user(ended: IdentitySignIn) -> Option<UserId> {
    match ended {
        IdentitySignIn::Begun(begun) => Some(begun.user_id),
        IdentitySignIn::UnknownUser | IdentitySignIn::OtherIdentity => None,
    }
}

async fn sign_in(db: &TestDb, subject: &str, email: &str) -> IdentitySignIn {
    sign_in_at(db, ISSUER, subject, email, None).await
}

/// The subjects of a user's identities.
async fn subjects(db: &TestDb, user: UserId) -> Vec<String> {
    db.texts(&format!(
        "SELECT subject FROM identities WHERE user_id = '{user}'"
    ))
    .await
}

both! {
    async fn address_finds_the_user_once(db) {
        let (a, b) = (db.user("a@x").await.id, db.user("b@x").await.id);
        assert_eq!(user(sign_in(db, "1", "A@X").await), Some(a));
        assert_eq!(user(sign_in(db, "1", "b@x").await), Some(a), "its address has changed there");
        assert_eq!(sign_in(db, "2", "a@x").await, IdentitySignIn::OtherIdentity);
        assert_eq!(sign_in(db, "2", "c@x").await, IdentitySignIn::UnknownUser);
        let change = UserChange { email: Some("c@x"), console_sign_in: Some(true), ..UserChange::default() };
        db.change_user(a, &change).await;
        assert_eq!(user(sign_in(db, "1", "a@x").await), Some(a), "its address has changed here");
        assert_eq!(user(sign_in(db, "2", "b@x").await), Some(b));
        assert_eq!(subjects(db, a).await, ["1"]);
        // Another provider says nothing about the subjects of this one.
        assert_eq!(user(sign_in_at(db, "https://other.example", "2", "c@x", None).await), Some(a));
        // An address that looks alike is another one.
        db.user("kim@x").await;
        for email in ["\u{212a}im@x", "k\u{130}m@x", "K\u{131}m@x"] {
            assert_eq!(sign_in(db, "3", email).await, IdentitySignIn::UnknownUser, "{email}");
        }
        let eric = db.user("\u{e9}ric@x").await.id;
        assert_eq!(user(sign_in(db, "3", "\u{c9}RIC@X").await), Some(eric));
    }

    async fn unproven_address_finds_nobody(db) {
        let (a, b) = (db.user("a@x").await.id, db.user("b@x").await.id);
        assert_eq!(user(sign_in(db, "1", "a@x").await), Some(a));
        for id in [a, b] {
            let change = UserChange { console_sign_in: Some(false), ..UserChange::default() };
            db.change_user(id, &change).await;
        }
        let plan = Some(Plan::Developer);
        for (subject, email) in [("1", "a@x"), ("2", "b@x")] {
            assert_eq!(sign_in_at(db, ISSUER, subject, email, plan).await, IdentitySignIn::UnknownUser, "{email}");
        }
        assert_eq!(db.users().list().await.unwrap().len(), 2, "the address is taken");
        assert_eq!(subjects(db, a).await, [""; 0], "the address had proved it");
    }

    async fn forgotten_identity_gives_way_to_another(db) {
        let (a, b) = (db.user("a@x").await.id, db.user("b@x").await.id);
        sign_in(db, "1", "a@x").await;
        sign_in(db, "2", "b@x").await;
        for forgotten in [1, 0] {
            assert_eq!(in_tx!(db, identities::forget(a)).await.unwrap(), forgotten);
        }
        assert_eq!(user(sign_in(db, "3", "a@x").await), Some(a));
        assert_eq!(sign_in(db, "1", "a@x").await, IdentitySignIn::OtherIdentity);
        assert_eq!(user(sign_in(db, "2", "x@x").await), Some(b));
        // As that of a user who has left.
        db.delete_user(a).await;
        assert_eq!(sign_in(db, "3", "a@x").await, IdentitySignIn::UnknownUser);
        let again = db.user("a@x").await.id;
        assert_eq!(user(sign_in(db, "4", "a@x").await), Some(again));
    }

    async fn unknown_address_becomes_a_user_on_request(db) {
        let saver = Some(Plan::Saver);
        let added = user(sign_in_at(db, ISSUER, "1", "New@x", saver).await).expect("a user");
        let found = db.users().find(added).await.unwrap().unwrap();
        assert_eq!((found.email.as_str(), found.plan), ("New@x", Plan::Saver));
        assert_eq!(user(sign_in_at(db, ISSUER, "1", "other@x", saver).await), Some(added));
        assert_eq!(sign_in_at(db, ISSUER, "2", "new@X", saver).await, IdentitySignIn::OtherIdentity);
        assert_eq!(db.users().list().await.unwrap().len(), 1);

        // First sign-ins at the same time agree.
        let begin = async |token: &str| -> UserId {
            let session = console_session(token, token);
            let identity = Identity { issuer: ISSUER, subject: "3", email: "a@x" };
            let ended = db.sessions().sign_in_as(&identity, Some(Plan::Developer), &session, at(1)).await.unwrap();
            user(ended).expect("a user")
        };
        let (one, two, three) = tokio::join!(begin("1"), begin("2"), begin("3"));
        assert!(one == two && two == three);
        assert_eq!(db.users().list().await.unwrap().len(), 2);
    }
}
