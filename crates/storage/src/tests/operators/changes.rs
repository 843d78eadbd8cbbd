use bellbird_domain::{ActorKind, OperatorKeyId, Plan, UserId};
use jiff::SignedDuration;
use secrecy::ExposeSecret as _;

use crate::tests::fixtures::{remembered_response, wait_for_lock_waiters};
use crate::tests::support::{TestDb, at, both, connect, key, on_postgres};
use crate::{
    BegunChange, Idempotency, NewUser, OperatorAction, OperatorChange, OwnAction, StoredResponse,
};

const REQUEST: Idempotency = Idempotency {
    key_hash: [1; 32],
    request_digest: [2; 32],
};
const NEW: NewUser<'_> = NewUser {
    email: "a@x",
    plan: Plan::Saver,
    timezone: None,
    reference: Some("17"),
    console_sign_in: true,
};

async fn begin(
    db: &TestDb,
    operator: OperatorKeyId,
    idempotency: Option<Idempotency>,
) -> OperatorChange<'_> {
    match db.begin_change(operator, idempotency, at(1)).await.unwrap() {
        BegunChange::New(change) => change,
        BegunChange::Repeated(_) | BegunChange::KeyInUse => panic!("sent before"),
    }
}

fn created(user_id: UserId) -> OperatorAction<'static> {
    OperatorAction {
        name: "user.create",
        user_id,
        subject: None,
    }
}

/// A removal of the user locks the user before the requests about the user.
#[test]
fn expired_response_is_forgotten_while_its_user_is_removed() {
    on_postgres(async |db| {
        let user = db.user("a@x").await.id;
        let operator = remembered_response(db, user, "response").await;
        let later = at(1) + SignedDuration::from_hours(25);
        let mut removal = connect(&db.url).await;
        let removal = removal.transaction().await.unwrap();
        removal
            .execute(
                &format!("SELECT id FROM users WHERE id = '{user}' FOR UPDATE"),
                &[],
            )
            .await
            .unwrap();
        let request = async {
            let idempotency = Idempotency {
                key_hash: [7; 32],
                request_digest: [7; 32],
            };
            let BegunChange::New(mut change) =
                db.begin_change(operator, Some(idempotency), later).await?
            else {
                panic!("more than a day old")
            };
            change.insert_key(user, &key(1), "k", None).await
        };
        let removed = async {
            wait_for_lock_waiters(db, 1).await;
            let delete = format!("DELETE FROM operator_requests WHERE user_id = '{user}'");
            let deleted = removal.execute(&delete, &[]).await;
            removal.commit().await.unwrap();
            deleted
        };
        let (request, removed) = tokio::join!(request, removed);
        assert_eq!((request.unwrap().name.as_str(), removed.unwrap()), ("k", 1));
    });
}

both! {
    async fn dropped_change_leaves_nothing(db) {
        let operator = OperatorKeyId::new();
        // As a process that is killed after any of its steps.
        drop(begin(db, operator, Some(REQUEST)).await);
        let mut change = begin(db, operator, Some(REQUEST)).await;
        change.insert_user(&NEW).await.unwrap();
        drop(change);
        assert_eq!(db.users().list().await.unwrap(), []);
        let mut change = begin(db, operator, Some(REQUEST)).await;
        let user = change.insert_user(&NEW).await.unwrap();
        let response = StoredResponse { status: 201, body: "response".into() };
        change.commit(&created(user.id), &response).await.unwrap();
        // Its response was lost.
        let BegunChange::Repeated(repeated) = db.begin_change(operator, Some(REQUEST), at(2)).await.unwrap() else {
            panic!("forgotten")
        };
        assert_eq!((repeated.status, repeated.body.expose_secret()), (201, "response"));
        let other = Idempotency { request_digest: [3; 32], ..REQUEST };
        assert!(matches!(db.begin_change(operator, Some(other), at(2)).await.unwrap(), BegunChange::KeyInUse));
        begin(db, OperatorKeyId::new(), Some(REQUEST)).await;
        assert_eq!(db.users().find_by_reference("17").await.unwrap(), Some(user));
        assert_eq!(db.audit().list_before(None, None, 9).await.unwrap().len(), 1);
    }

    async fn what_a_user_did_is_listed_for_that_user_and_deleted_with_them(db) {
        let user = db.user("a@x").await.id;
        let session = uuid::Uuid::now_v7();
        let own = OwnAction { name: "key.create", subject: Some("7"), detail: "Spreadsheet" };
        db.begin_own_change(user, session, at(1)).await.unwrap().commit_own(user, &own).await.unwrap();
        let change = begin(db, OperatorKeyId::new(), None).await;
        change.commit_alone(&created(user)).await.unwrap();
        let listed = async |user| db.audit().list_before(None, user, 9).await.unwrap();
        assert_eq!(listed(None).await.len(), 1, "what operators did");
        let rows = listed(Some(user)).await;
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[1].actor.kind, rows[1].actor.id.clone()), (ActorKind::User, session.to_string()));
        assert_eq!((rows[1].action.as_str(), rows[1].detail.as_deref()), ("key.create", Some("Spreadsheet")));
        let mut leave = db.begin_own_change(user, session, at(2)).await.unwrap();
        leave.delete_user(user).await.unwrap();
        let own = OwnAction { name: "user.remove", subject: None, detail: "" };
        leave.commit_own(user, &own).await.unwrap();
        let actions: Vec<_> = listed(Some(user)).await.into_iter().map(|row| row.action).collect();
        assert_eq!(actions, ["user.remove", "user.create"]);
    }

    async fn remembered_response_ends_after_a_day_or_with_its_user(db) {
        let user = db.user("a@x").await.id;
        remembered_response(db, user, "response").await;
        assert_eq!(db.secrets_for("operator_request").await, 1);
        let later = at(1) + SignedDuration::from_hours(24);
        let before = later - SignedDuration::from_secs(1);
        assert_eq!(db.audit().delete_outdated_requests(before).await.unwrap(), 0);
        assert_eq!(db.audit().delete_outdated_requests(later).await.unwrap(), 1);
        assert_eq!(db.secrets_for("operator_request").await, 0);
        // Without a cleanup, the key is new after a day, too.
        let operator = remembered_response(db, user, "response").await;
        let idempotency = Some(Idempotency { key_hash: [7; 32], request_digest: [7; 32] });
        assert!(matches!(db.begin_change(operator, idempotency, later).await.unwrap(), BegunChange::New(_)));
        db.users().delete(user, at(900)).await.unwrap();
        assert_eq!(db.secrets_for("operator_request").await, 0);
        let rows = db.audit().list_before(None, Some(user), 9).await.unwrap();
        assert_eq!(rows.len(), 2, "the audit outlives the user");
    }
}
