//! API keys and setup tokens of users.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use reqwest::Method;
use serde_json::json;
use uuid::Uuid;

use super::{Admin, data, error, id};

#[tokio::test]
async fn key_is_shown_once_and_works_until_it_is_revoked() {
    let admin = Admin::start().await;
    let app = &admin.app;
    let user = app.ben.user.id;
    let keys = format!("/admin/v1/users/{user}/keys");
    let ends_at = app.clock.now() + SignedDuration::from_hours(48);
    let created = data(
        &admin
            .post(
                &keys,
                &json!({"name": "app", "expiresAt": ends_at.to_string()}),
            )
            .await,
        201,
    );
    app.clock
        .set(app.clock.now() + SignedDuration::from_millis(61));
    let key = created["key"].as_str().unwrap();
    assert!(bellbird_domain::ApiKey::parse(key).is_ok() && created["name"] == "app");
    assert_eq!(app.get_as(key, "/v1/me").await.status, 200);
    let listed = admin.get(&keys).await;
    assert_eq!(listed.data().len(), 2);
    assert!(!listed.text.contains(&key[9..]), "a list has no key");

    let rotated = data(
        &admin
            .post(
                &format!("/admin/v1/keys/{}/rotate", id(&created)),
                &json!({}),
            )
            .await,
        201,
    );
    let new_key = rotated["key"].as_str().unwrap();
    assert_eq!(
        (&rotated["name"], &rotated["expiresAt"]),
        (&created["name"], &created["expiresAt"])
    );
    for key in [key, new_key] {
        assert_eq!(
            app.get_as(key, "/v1/me").await.status,
            200,
            "a grace period of a day"
        );
    }
    app.clock
        .set(app.clock.now() + SignedDuration::from_hours(24));
    assert_eq!(app.get_as(key, "/v1/me").await.status, 401);
    error(
        &admin
            .post(
                &format!("/admin/v1/keys/{}/rotate", id(&created)),
                &json!({}),
            )
            .await,
        409,
        "conflict",
    );

    let path = format!("/admin/v1/keys/{}", id(&rotated));
    assert_eq!(admin.delete(&path).await.status, 204);
    assert_eq!(admin.delete(&path).await.status, 204, "again");
    assert_eq!(app.get_as(new_key, "/v1/me").await.status, 401);
    let actions = admin.actions(&user.to_string()).await;
    assert_eq!(
        actions,
        ["key.revoke", "key.revoke", "key.rotate", "key.create"]
    );
    let rows = admin.get("/admin/v1/audit").await;
    for row in [2, 3] {
        assert_eq!(rows.data()[row]["subject"], created["id"]);
    }
    assert!(!rows.text.contains(&key[9..]));
    let operator = app.storage.operator_keys().list().await.unwrap()[0].id;
    assert_eq!(
        rows.data()[0]["actor"],
        json!({"kind": "operator_key", "id": operator})
    );
}

#[tokio::test]
async fn setup_token_is_claimed_once() {
    let admin = Admin::start().await;
    let app = &admin.app;
    let path = format!("/admin/v1/users/{}/setup-tokens", app.ben.user.id);
    let claim = async |token: &str| {
        let url = String::from_utf8(STANDARD.decode(token).unwrap()).unwrap();
        let path = url
            .strip_prefix("https://bellbird.example")
            .expect("the public URL")
            .to_owned();
        app.send(app.http.post(format!("{}{path}", app.url)))
            .await
            .status
            .as_u16()
    };
    let first = data(&admin.post(&path, &json!({"name": "Actual"})).await, 201);
    let second = data(&admin.post(&path, &json!({})).await, 201);
    assert_eq!(claim(first["token"].as_str().unwrap()).await, 200);
    assert_eq!(admin.delete(&path).await.status, 204);
    assert_eq!(
        claim(second["token"].as_str().unwrap()).await,
        403,
        "revoked"
    );
    let keys = app.keys_of(app.ben.user.id).await;
    assert!(keys.iter().any(|key| key.name == "Actual"));
    let rows = admin.get("/admin/v1/audit").await.data();
    assert_ne!(
        rows[1]["subject"], rows[2]["subject"],
        "each token has an id"
    );
}

#[tokio::test]
async fn missing_users_and_wrong_values_are_named() {
    let admin = Admin::start().await;
    let unknown = Uuid::now_v7();
    for (method, path) in [
        (Method::GET, format!("/admin/v1/users/{unknown}/keys")),
        (Method::POST, format!("/admin/v1/users/{unknown}/keys")),
        (
            Method::POST,
            format!("/admin/v1/users/{unknown}/setup-tokens"),
        ),
        (
            Method::DELETE,
            format!("/admin/v1/users/{unknown}/setup-tokens"),
        ),
    ] {
        assert_eq!(
            error(&admin.call(method, &path).await, 404, "not_found"),
            "User not found ",
            "{path}"
        );
    }
    for (method, path) in [
        (Method::DELETE, format!("/admin/v1/keys/{unknown}")),
        (Method::POST, format!("/admin/v1/keys/{unknown}/rotate")),
    ] {
        assert_eq!(
            error(&admin.call(method, &path).await, 404, "not_found"),
            "Key not found ",
            "{path}"
        );
    }
    let keys = format!("/admin/v1/users/{}/keys", admin.app.ben.user.id);
    for body in [
        json!({"expiresAt": "2020-01-01T00:00:00Z"}),
        json!({"expiresAt": "soon"}),
        json!({"name": ""}),
        json!({"grace": 1}),
    ] {
        error(&admin.post(&keys, &body).await, 400, "invalid_parameters");
    }
    let key = &admin.app.keys_of(admin.app.ben.user.id).await[0];
    for grace in [json!(-1), json!(1.5), json!("1"), json!(9_999_999_999_u64)] {
        let path = format!("/admin/v1/keys/{}/rotate", key.id);
        error(
            &admin.post(&path, &json!({"graceSeconds": grace})).await,
            400,
            "invalid_parameters",
        );
    }
}
