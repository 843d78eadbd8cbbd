use bellbird_domain::{Actor, ActorKind, OperatorKeyId, Plan};
use jiff::SignedDuration;
use secrecy::ExposeSecret as _;

use crate::management::audit::delete_excess;
use crate::tests::fixtures::{REMEMBERED, remembered_response, wait_for_lock_waiters};
use crate::tests::support::{TestDb, assert_fails, at, both, connect, key, on_postgres};
use crate::writes::{keys, user};
use crate::{AuditAction, Idempotency, IdempotentStart, ManagementChange, NewUser, StoredResponse};

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

async fn begin(db: &TestDb, operator: OperatorKeyId) -> ManagementChange<'_> {
    match db
        .begin_repeatable_change(operator, REQUEST, at(1))
        .await
        .unwrap()
    {
        IdempotentStart::New(change) => change,
        IdempotentStart::Repeated(_) | IdempotentStart::KeyInUse => panic!("sent before"),
    }
}

/// A removal of the user locks the user before the requests about the user.
#[test]
fn postgres_forgets_an_expired_response_while_its_user_is_removed() {
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
            let IdempotentStart::New(mut change) = db
                .begin_repeatable_change(operator, REMEMBERED, later)
                .await?
            else {
                panic!("more than a day old")
            };
            keys::insert(change.tx(), user, &key(1), "k", None, later).await
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
    async fn change_commits_with_its_row_in_the_audit_or_leaves_nothing(db) {
        let mut change = db.begin_change(Actor::command("root"), at(1)).await.unwrap();
        user::insert(change.tx(), &NEW, at(1)).await.unwrap();
        assert_fails!(change.commit().await, Corrupt(_), "without a row in the audit");
        assert_eq!(db.users().list().await.unwrap(), []);
        let operator = OperatorKeyId::new();
        // As a process that is killed after any of its steps.
        drop(begin(db, operator).await);
        let mut change = begin(db, operator).await;
        user::insert(change.tx(), &NEW, at(1)).await.unwrap();
        drop(change);
        assert_eq!(db.users().list().await.unwrap(), []);
        let mut change = begin(db, operator).await;
        let user = user::insert(change.tx(), &NEW, at(1)).await.unwrap();
        let response = StoredResponse { status: 201, body: "response".into() };
        change.record(&AuditAction::of_user("user.create", user.id)).await.unwrap();
        change.commit_with(&response).await.unwrap();
        // Its response was lost.
        let IdempotentStart::Repeated(repeated) = db.begin_repeatable_change(operator, REQUEST, at(2)).await.unwrap() else {
            panic!("forgotten")
        };
        assert_eq!((repeated.status, repeated.body.expose_secret()), (201, "response"));
        let other = Idempotency { request_digest: [3; 32], ..REQUEST };
        let other = db.begin_repeatable_change(operator, other, at(2)).await.unwrap();
        assert!(matches!(other, IdempotentStart::KeyInUse));
        drop(other);
        begin(db, OperatorKeyId::new()).await;
        assert_eq!(db.users().find_by_reference("17").await.unwrap(), Some(user));
        assert_eq!(db.audit().list_before(None, None, 9).await.unwrap().len(), 1);
    }

    async fn what_a_user_did_is_listed_for_that_user_and_deleted_with_them(db) {
        let user = db.user("a@x").await.id;
        let session = uuid::Uuid::now_v7();
        let mut own = db.begin_own_change(user, session, at(1)).await.unwrap();
        let action = AuditAction::of_user("key.create", user).about("7").called("Spreadsheet");
        own.record(&action).await.unwrap();
        own.commit().await.unwrap();
        let by = Actor::operator_key(OperatorKeyId::new());
        let mut change = db.begin_change(by, at(1)).await.unwrap();
        change.record(&AuditAction::of_user("user.create", user).called("unseen")).await.unwrap();
        change.commit().await.unwrap();
        let listed = async |user| db.audit().list_before(None, user, 9).await.unwrap();
        assert_eq!(listed(None).await.len(), 1, "what operators did");
        let rows = listed(Some(user)).await;
        assert_eq!((rows.len(), rows[0].detail.as_deref()), (2, None));
        assert_eq!((rows[1].actor.kind, rows[1].actor.id.clone()), (ActorKind::User, session.to_string()));
        assert_eq!((rows[1].action.as_str(), rows[1].detail.as_deref()), ("key.create", Some("Spreadsheet")));
        let mut leave = db.begin_own_change(user, session, at(2)).await.unwrap();
        user::delete(leave.tx(), user, at(2)).await.unwrap();
        leave.record(&AuditAction::of_user("user.remove", user)).await.unwrap();
        leave.commit().await.unwrap();
        let actions: Vec<_> = listed(Some(user)).await.into_iter().map(|row| row.action).collect();
        assert_eq!(actions, ["user.remove", "user.create"]);
    }

    async fn oldest_rows_of_what_a_user_did_are_deleted(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        for of in [user, user, user, other] {
            let mut change = db.begin_own_change(of, uuid::Uuid::nil(), at(1)).await.unwrap();
            change.record(&AuditAction::of_user("key.create", of)).await.unwrap();
            change.commit().await.unwrap();
        }
        let before = db.audit().list_before(None, Some(user), 9).await.unwrap();
        let mut change = db.begin_change(Actor::command("root"), at(2)).await.unwrap();
        change.record(&AuditAction::of_user("key.revoke", user)).await.unwrap();
        delete_excess(change.tx(), user, 2).await.unwrap();
        change.commit().await.unwrap();
        let after = db.audit().list_before(None, Some(user), 9).await.unwrap();
        assert_eq!((after.len(), &after[1..]), (3, &before[..2]));
        assert_eq!(db.audit().list_before(None, Some(other), 9).await.unwrap().len(), 1);
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
        let start = db.begin_repeatable_change(operator, REMEMBERED, later).await.unwrap();
        assert!(matches!(start, IdempotentStart::New(_)));
        drop(start);
        db.delete_user(user).await;
        assert_eq!(db.secrets_for("operator_request").await, 0);
        let rows = db.audit().list_before(None, Some(user), 9).await.unwrap();
        assert_eq!(rows.len(), 2, "the audit outlives the user");
    }
}
