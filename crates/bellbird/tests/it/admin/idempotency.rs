//! Repeated requests.

use jiff::SignedDuration;
use reqwest::Method;
use serde_json::json;

use super::{Admin, data, error, id, operator_key};
use crate::support::harness::{Response, also_on_postgres};

const USERS: &str = "/admin/v1/users";

#[tokio::test]
async fn repeated_request_changes_nothing_again() {
    let admin = Admin::start().await;
    let app = &admin.app;
    let post = async |path: &str, body: &serde_json::Value| {
        admin.send(Method::POST, path, body, Some("a")).await
    };
    let first = post(USERS, &json!({"email": "anna@example.com"})).await;
    let user = data(&first, 201);
    let again = post(USERS, &json!({"email": "anna@example.com"})).await;
    assert_eq!((again.status, &again.text), (first.status, &first.text));
    let is_replayed = |answer: &Response| answer.header("idempotent-replayed") == Some("true");
    assert_eq!((is_replayed(&first), is_replayed(&again)), (false, true));
    // Another body, another path.
    error(
        &post(USERS, &json!({"email": "ben2@example.com"})).await,
        409,
        "idempotency_conflict",
    );
    let keys = format!("/admin/v1/users/{}/keys", id(&user));
    error(&post(&keys, &json!({})).await, 409, "idempotency_conflict");
    // A key is shown again, and is the same.
    let created = admin.send(Method::POST, &keys, &json!({}), Some("b")).await;
    let again = admin.send(Method::POST, &keys, &json!({}), Some("b")).await;
    assert_eq!(data(&created, 201), data(&again, 201));
    assert_eq!(admin.get(&keys).await.data().len(), 1);
    assert_eq!(
        admin.actions(&id(&user)).await,
        ["key.create", "user.create"]
    );
    // Another operator's keys are others.
    let other = operator_key(app, "other").await;
    let request = app
        .http
        .post(format!("{}{USERS}", app.url))
        .bearer_auth(other)
        .header("idempotency-key", "a");
    assert_eq!(
        app.send(request.json(&json!({"email": "carl@example.com"})))
            .await
            .status,
        201
    );
    // A request that failed is not remembered.
    let taken = json!({"email": "anna@example.com"});
    error(
        &admin.send(Method::POST, USERS, &taken, Some("c")).await,
        409,
        "conflict",
    );
    let free = json!({"email": "dora@example.com"});
    assert_eq!(
        admin
            .send(Method::POST, USERS, &free, Some("c"))
            .await
            .status,
        201
    );
    // After a day, the key is new.
    app.clock
        .set(app.clock.now() + SignedDuration::from_hours(24));
    error(
        &post(USERS, &json!({"email": "anna@example.com"})).await,
        409,
        "conflict",
    );
    assert_eq!(
        post(USERS, &json!({"email": "emil@example.com"}))
            .await
            .status,
        201
    );
}

#[tokio::test]
async fn requests_at_once_change_once() {
    let admin = Admin::start().await;
    let body = json!({"email": "anna@example.com"});
    let post = || admin.send(Method::POST, USERS, &body, Some("same"));
    let answers = tokio::join!(post(), post(), post(), post());
    for answer in [&answers.1, &answers.2, &answers.3] {
        assert_eq!(
            (answer.status.as_u16(), &answer.text),
            (201, &answers.0.text)
        );
    }
}

#[tokio::test]
async fn what_is_remembered_goes_with_the_user() {
    let admin = Admin::start().await;
    let app = &admin.app;
    let body = json!({"email": "anna@example.com"});
    let user = id(&data(
        &admin.send(Method::POST, USERS, &body, Some("a")).await,
        201,
    ));
    let secrets = app.storage.secrets().count().await.unwrap();
    assert_eq!(admin.delete(&format!("{USERS}/{user}")).await.status, 204);
    assert_eq!(
        app.storage.secrets().count().await.unwrap(),
        secrets - 1,
        "the sealed response"
    );
    assert_eq!(
        admin
            .send(Method::POST, USERS, &body, Some("a"))
            .await
            .status,
        201
    );
    // Cleaned up after a day.
    let later = app.clock.now() + SignedDuration::from_hours(24);
    let audit = app.storage.audit();
    assert_eq!(
        audit
            .delete_outdated_requests(later - SignedDuration::from_secs(1))
            .await
            .unwrap(),
        0
    );
    assert_eq!(audit.delete_outdated_requests(later).await.unwrap(), 1);
    assert_eq!(app.storage.secrets().count().await.unwrap(), secrets - 1);
    assert_eq!(audit.delete_outdated(later).await.unwrap(), 0);
    assert_eq!(
        audit
            .delete_outdated(later + SignedDuration::from_hours(2 * 365 * 24))
            .await
            .unwrap(),
        3
    );
}

#[tokio::test]
async fn idempotency_key_is_short_ascii_text() {
    let admin = Admin::start().await;
    let body = json!({"email": "anna@example.com"});
    for key in ["", "ä", &"x".repeat(256)] {
        let answer = admin.send(Method::POST, USERS, &body, Some(key)).await;
        assert!(
            error(&answer, 400, "invalid_parameters").contains("Idempotency-Key"),
            "{key}"
        );
    }
}

also_on_postgres! { requests_at_once_change_once }
