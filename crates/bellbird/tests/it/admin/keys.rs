//! API keys and setup tokens of users.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Admin, id};
use crate::support::fields::assert_fields;
use crate::support::process::text;

async fn key_is_shown_once_and_works_until_it_is_revoked(admin: &Admin) {
    let app = &admin.app;
    let user = app.ben.user.id;
    let keys = format!("/admin/v1/users/{user}/keys");
    let ends_at = app.clock.now() + SignedDuration::from_hours(48);
    let body = json!({"name": "app", "expiresAt": ends_at.to_string()});
    let created = admin.create(&keys, &body).await;
    app.advance_own_clock(SignedDuration::from_millis(61));
    let key = text(&created, "key");
    assert!(bellbird_domain::ApiKey::parse(key).is_ok());
    assert_eq!(created["name"], "app");
    let status = async |key: &str| app.get_as(key, "/v1/me").await.status;
    assert_eq!(status(key).await, 200);
    let listed = admin.get(&keys).await;
    assert_eq!(listed.data().len(), 2);
    assert!(!listed.text.contains(&key[9..]), "a list has no key");

    let rotate = format!("/admin/v1/keys/{}/rotate", id(&created));
    let rotated = admin.create(&rotate, &json!({})).await;
    let new_key = text(&rotated, "key");
    let same = json!({"name": created["name"], "expiresAt": created["expiresAt"]});
    assert_fields(&rotated, &same);
    for key in [key, new_key] {
        assert_eq!(status(key).await, 200, "a grace period of a day");
    }
    app.advance_own_clock(SignedDuration::from_hours(24));
    assert_eq!(status(key).await, 401);
    admin.post(&rotate, &json!({})).await.conflict();

    let path = format!("/admin/v1/keys/{}", id(&rotated));
    admin.remove(&path).await;
    admin.remove(&path).await;
    assert_eq!(status(new_key).await, 401);
    let actions = admin.actions(&user.to_string()).await;
    assert_eq!(
        actions,
        ["key.revoke", "key.revoke", "key.rotate", "key.create"]
    );
    let audit = admin.get("/admin/v1/audit").await;
    for row in [2, 3] {
        assert_eq!(audit.data()[row]["subject"], created["id"]);
    }
    assert!(!audit.text.contains(&key[9..]));
    let operator = app.storage.operator_keys().list().await.unwrap()[0].id;
    let actor = json!({"kind": "operator_key", "id": operator});
    assert_eq!(audit.data()[0]["actor"], actor);
}

async fn setup_token_is_claimed_once(admin: &Admin) {
    let app = &admin.app;
    let path = format!("/admin/v1/users/{}/setup-tokens", app.ben.user.id);
    let claim = async |created: &Value| {
        let url = STANDARD.decode(text(created, "token")).unwrap();
        let url = String::from_utf8(url).unwrap();
        let path = url.strip_prefix("https://bellbird.example");
        let path = path.expect("the public URL");
        let request = app.http.post(format!("{}{path}", app.url));
        app.send(request).await.status
    };
    let first = admin.create(&path, &json!({"name": "Actual"})).await;
    let second = admin.create(&path, &json!({})).await;
    assert_eq!(claim(&first).await, 200);
    admin.remove(&path).await;
    assert_eq!(claim(&second).await, 403, "revoked");
    let keys = app.keys_of(app.ben.user.id).await;
    assert!(keys.iter().any(|key| key.name == "Actual"));
    let rows = admin.list("/admin/v1/audit").await;
    let [second, first] = [1, 2].map(|row| &rows[row]["subject"]);
    assert_ne!(second, first, "each token has an id");
}

#[tokio::test]
async fn keys_and_setup_tokens_live_by_api() {
    let admin = Admin::start().await;
    let unknown = Uuid::now_v7();
    let user = format!("/admin/v1/users/{unknown}");
    let key = format!("/admin/v1/keys/{unknown}");
    for (method, path, noun) in [
        (Method::GET, format!("{user}/keys"), "User"),
        (Method::POST, format!("{user}/keys"), "User"),
        (Method::POST, format!("{user}/setup-tokens"), "User"),
        (Method::DELETE, format!("{user}/setup-tokens"), "User"),
        (Method::DELETE, key.clone(), "Key"),
        (Method::POST, format!("{key}/rotate"), "Key"),
    ] {
        let message = admin.call(method, &path).await.missing();
        assert_eq!(message, format!("{noun} not found "), "{path}");
    }

    let ben = admin.app.ben.user.id;
    let keys = format!("/admin/v1/users/{ben}/keys");
    for body in [
        json!({"expiresAt": "2020-01-01T00:00:00Z"}),
        json!({"expiresAt": "soon"}),
        json!({"name": ""}),
        json!({"grace": 1}),
    ] {
        admin.post(&keys, &body).await.invalid();
    }
    let key = &admin.app.keys_of(ben).await[0];
    let rotate = format!("/admin/v1/keys/{}/rotate", key.id);
    for grace in [json!(-1), json!(1.5), json!("1"), json!(9_999_999_999_u64)] {
        let body = json!({"graceSeconds": grace});
        admin.post(&rotate, &body).await.invalid();
    }
    key_is_shown_once_and_works_until_it_is_revoked(&admin).await;
    setup_token_is_claimed_once(&admin).await;
}
