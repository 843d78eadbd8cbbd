use bellbird_domain::{OperatorKeyId, Plan, UserId};
use jiff::SignedDuration;
use secrecy::ExposeSecret as _;

use crate::tests::fixtures::remembered_response;
use crate::tests::support::{TestDb, at, both};
use crate::{BegunChange, Idempotency, NewUser, OperatorAction, OperatorChange, StoredResponse};

const REQUEST: Idempotency = Idempotency { key_hash: [1; 32], request_digest: [2; 32] };
const NEW: NewUser<'_> = NewUser { email: "a@x", plan: Plan::Saver, timezone: None, reference: Some("17") };

async fn begin(db: &TestDb, operator: OperatorKeyId, idempotency: Option<Idempotency>) -> OperatorChange<'_> {
    match db.begin_change(operator, idempotency, at(1)).await.unwrap() {
        BegunChange::New(change) => change,
        BegunChange::Repeated(_) | BegunChange::KeyInUse => panic!("sent before"),
    }
}

fn created(user_id: UserId) -> OperatorAction<'static> {
    OperatorAction { name: "user.create", user_id, subject: None }
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
        assert_eq!(db.operator_audit().list_before(None, None, 9).await.unwrap().len(), 1);
    }

    async fn remembered_response_ends_after_a_day_or_with_its_user(db) {
        let user = db.user("a@x").await.id;
        remembered_response(db, user, "response").await;
        assert_eq!(db.secrets_for("operator_request").await, 1);
        let later = at(1) + SignedDuration::from_hours(24);
        let before = later - SignedDuration::from_secs(1);
        assert_eq!(db.operator_audit().delete_outdated_requests(before).await.unwrap(), 0);
        assert_eq!(db.operator_audit().delete_outdated_requests(later).await.unwrap(), 1);
        assert_eq!(db.secrets_for("operator_request").await, 0);
        // Without a cleanup, the key is new after a day, too.
        let operator = remembered_response(db, user, "response").await;
        let idempotency = Some(Idempotency { key_hash: [7; 32], request_digest: [7; 32] });
        assert!(matches!(db.begin_change(operator, idempotency, later).await.unwrap(), BegunChange::New(_)));
        db.users().delete(user).await.unwrap();
        assert_eq!(db.secrets_for("operator_request").await, 0);
        let rows = db.operator_audit().list_before(None, Some(user), 9).await.unwrap();
        assert_eq!(rows.len(), 2, "the audit outlives the user");
    }
}
