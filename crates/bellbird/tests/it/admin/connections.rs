//! Connections of users.

use bellbird_domain::ConnectionStatus;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Admin, data, id};
use crate::support::fields::assert_fields;
use crate::support::harness::Setup;
use crate::support::words::assert_has;

const CONNECTIONS: &str = "/admin/v1/connections";

#[tokio::test]
async fn connections_are_listed_synced_and_removed() {
    let setup = Setup::with(|settings| settings.sync.enabled = true);
    let admin = Admin::start_with(setup).await;
    let app = &admin.app;
    let (user, connection) = (app.ben.user.id, &app.ben.connections[0]);
    let of = async |user: &str| {
        let listed = admin.list(&format!("{CONNECTIONS}?userId={user}")).await;
        listed.iter().map(id).collect::<Vec<_>>()
    };
    assert_eq!(admin.list(CONNECTIONS).await.len(), 3);
    assert_eq!(of(&user.to_string()).await, [connection.id.to_string()]);
    let nobody = connection.id.to_string();
    assert_eq!(of(&nobody).await, [] as [String; 0]);

    let path = format!("{CONNECTIONS}/{}", connection.id);
    let shown = admin.read(&path).await;
    let of_user = app.get_as(&app.ben.key, "/v1/connections").await.data();
    let expected = json!({
        "status": "active", "removal": null,
        "consentExpiresAt": of_user[0]["consentExpiresAt"],
    });
    assert_fields(&shown, &expected);
    let synced_at = |shown: &Value| shown["sync"]["syncedAt"].clone();
    assert_eq!(synced_at(&shown), Value::Null);

    let (to_sync, nothing) = (format!("{path}/sync"), json!({}));
    let sync = async || data(&admin.post_once("sync-1", &to_sync, &nothing).await, 202);
    let first = sync().await;
    app.connections.jobs().run_due("sync").await.unwrap();
    let shown = admin.read(&path).await;
    assert_eq!(synced_at(&shown), app.clock.now().to_string());

    let removed = data(&admin.delete(&path).await, 202);
    assert_eq!(removed["status"], "deleting");
    assert!(removed["removal"]["nextAttemptAt"].is_string());
    assert!(app.connections_of(user).await.is_empty(), "hidden at once");
    admin.post(&to_sync, &nothing).await.conflict();
    data(&admin.delete(&path).await, 202);
    assert_eq!(sync().await, first, "the response to the first request");
    app.connections.jobs().run_due("removal").await.unwrap();
    admin.get(&path).await.missing();
    let history = app.audit_of(connection.id).await;
    let deleting = Some(ConnectionStatus::Deleting);
    let count = history.iter().filter(|row| row.to == deleting).count();
    assert_eq!(count, 1);
    let actions = admin.actions(&user.to_string()).await;
    assert_eq!(actions, ["connection.remove", "connection.sync"]);
}

#[tokio::test]
async fn missing_connection_is_404_and_sync_may_be_off() {
    let admin = Admin::start().await;
    let path = format!("{CONNECTIONS}/{}", Uuid::now_v7());
    for (method, path) in [
        (Method::GET, path.clone()),
        (Method::DELETE, path.clone()),
        (Method::POST, format!("{path}/sync")),
    ] {
        let message = admin.call(method, &path).await.missing();
        assert_eq!(message, "Connection not found ");
    }
    let connection = admin.app.ben.connections[0].id;
    let path = format!("{CONNECTIONS}/{connection}/sync");
    let message = admin.post(&path, &json!({})).await.conflict();
    assert_has(&message, "sync.enabled");
    nothing_of_the_accounts_is_shown(&admin).await;
}

/// No response has an account, its number or name, or a credential.
async fn nothing_of_the_accounts_is_shown(admin: &Admin) {
    let app = &admin.app;
    let (user, connection) = (app.olivia.user.id, &app.olivia.connections[0]);
    let accounts = app.stored_accounts(user, connection.id).await;
    assert!(!accounts.is_empty());
    let mut secrets = Vec::new();
    for account in accounts {
        let number = account.number.iter();
        secrets
            .extend(number.map(|number| format!("{}\"", number.as_str().trim_start_matches('*'))));
        let id = account.id.to_string();
        secrets.extend([account.name, account.provider_account_id, id]);
    }
    for path in [
        CONNECTIONS.to_owned(),
        format!("{CONNECTIONS}/{}", connection.id),
    ] {
        let text = admin.get(&path).await.text;
        let shown = secrets.iter().filter(|secret| text.contains(*secret));
        assert_eq!(shown.count(), 0, "{path}");
    }
}
