//! Repeated requests.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Admin, data, error, id, operator_key};
use crate::support::harness::{Response, also_on_postgres};
use crate::support::words::assert_has;

const USERS: &str = "/admin/v1/users";

fn user(name: &str) -> Value {
    json!({"email": format!("{name}@example.com")})
}

#[tokio::test]
async fn repeated_requests_change_nothing_again() {
    let admin = Admin::start().await;
    what_is_remembered_goes_with_the_user(&admin).await;
    requests_at_once_change_once(&admin).await;
    let app = &admin.app;
    let create = async |key: &str, name: &str| admin.post_once(key, USERS, &user(name)).await;
    let first = create("a", "anna").await;
    let anna = id(&data(&first, 201));
    let again = create("a", "anna").await;
    assert_eq!((again.status, &again.text), (first.status, &first.text));
    let is_replayed = |answer: &Response| answer.header("idempotent-replayed") == Some("true");
    assert_eq!((is_replayed(&first), is_replayed(&again)), (false, true));
    // Another body, another path.
    let keys = format!("/admin/v1/users/{anna}/keys");
    let other_path = admin.post_once("a", &keys, &json!({})).await;
    for other in [create("a", "ben2").await, other_path] {
        error(&other, 409, "idempotency_conflict");
    }
    // A key is shown again, and is the same.
    let created = admin.post_once("b", &keys, &json!({})).await;
    let again = admin.post_once("b", &keys, &json!({})).await;
    assert_eq!(data(&created, 201), data(&again, 201));
    assert_eq!(admin.list(&keys).await.len(), 1);
    assert_eq!(admin.actions(&anna).await, ["key.create", "user.create"]);
    // Another operator's keys are others.
    let other = operator_key(app, "other").await;
    let request = app.http.post(format!("{}{USERS}", app.url));
    let request = request.bearer_auth(other).header("idempotency-key", "a");
    data(&app.send(request.json(&user("carl"))).await, 201);
    // A request that failed is not remembered.
    create("c", "anna").await.conflict();
    data(&create("c", "dora").await, 201);
    // After a day, the key is new.
    app.advance_own_clock(SignedDuration::from_hours(24));
    create("a", "anna").await.conflict();
    data(&create("a", "emil").await, 201);
    // It is short ASCII text.
    for key in ["", "ä", &"x".repeat(256)] {
        let answer = create(key, "fritz").await;
        assert_has(&answer.invalid(), "Idempotency-Key");
    }
}

async fn requests_at_once_change_once(admin: &Admin) {
    let gina = user("gina");
    let post = || admin.post_once("same", USERS, &gina);
    let answers = tokio::join!(post(), post(), post(), post());
    let first = data(&answers.0, 201);
    for answer in [&answers.1, &answers.2, &answers.3] {
        assert_eq!(data(answer, 201), first);
    }
}

async fn what_is_remembered_goes_with_the_user(admin: &Admin) {
    let app = &admin.app;
    let create = async || data(&admin.post_once("z", USERS, &user("zoe")).await, 201);
    let secrets = async || app.storage.secrets().count().await.unwrap();
    let zoe = id(&create().await);
    let before = secrets().await;
    admin.remove(&format!("{USERS}/{zoe}")).await;
    assert_eq!(secrets().await, before - 1, "the sealed response");
    create().await;
    // Cleaned up after a day.
    let later = app.clock.now() + SignedDuration::from_hours(24);
    let audit = app.storage.audit();
    let second = SignedDuration::from_secs(1);
    let outdated = async |at| audit.delete_outdated_requests(at).await.unwrap();
    assert_eq!(outdated(later - second).await, 0);
    assert_eq!(outdated(later).await, 1);
    assert_eq!(secrets().await, before - 1);
    let two_years = SignedDuration::from_hours(2 * 365 * 24);
    let outdated = async |at| audit.delete_outdated(at).await.unwrap();
    assert_eq!(outdated(later).await, 0);
    assert_eq!(outdated(later + two_years).await, 3);
}

also_on_postgres! { repeated_requests_change_nothing_again }
