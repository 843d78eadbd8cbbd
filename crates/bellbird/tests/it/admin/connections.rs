//! Connections of users.

use bellbird_domain::ConnectionStatus;
use reqwest::Method;
use serde_json::json;
use uuid::Uuid;

use super::{Admin, data, error, id};
use crate::support::harness::Setup;

#[tokio::test]
async fn connections_are_listed_synced_and_removed() {
    let mut setup = Setup::default();
    setup.settings.sync.enabled = true;
    let admin = Admin::start_with(setup).await;
    let app = &admin.app;
    let (user, connection) = (app.ben.user.id, &app.ben.connections[0]);
    assert_eq!(admin.get("/admin/v1/connections").await.data().len(), 3);
    let of_user = admin
        .get(&format!("/admin/v1/connections?userId={user}"))
        .await
        .data();
    assert_eq!(
        (of_user.len(), id(&of_user[0])),
        (1, connection.id.to_string())
    );
    let nobody = format!("/admin/v1/connections?userId={}", connection.id);
    assert_eq!(admin.get(&nobody).await.data().len(), 0);

    let path = format!("/admin/v1/connections/{}", connection.id);
    let shown = data(&admin.get(&path).await, 200);
    assert_eq!(
        (&shown["status"], &shown["removal"]),
        (&json!("active"), &json!(null))
    );
    assert_eq!(shown["sync"]["syncedAt"], json!(null));
    let of_user = app.get_as(&app.ben.key, "/v1/connections").await.data();
    assert_eq!(shown["consentExpiresAt"], of_user[0]["consentExpiresAt"]);
    let sync = async || {
        admin
            .send(
                Method::POST,
                &format!("{path}/sync"),
                &json!({}),
                Some("sync-1"),
            )
            .await
    };
    data(&sync().await, 202);
    app.connections.jobs().run_due("sync").await.unwrap();
    assert_eq!(
        data(&admin.get(&path).await, 200)["sync"]["syncedAt"],
        app.clock.now().to_string()
    );

    let removed = data(&admin.delete(&path).await, 202);
    assert_eq!(removed["status"], "deleting");
    assert!(removed["removal"]["nextAttemptAt"].is_string());
    assert!(app.connections_of(user).await.is_empty(), "hidden at once");
    error(
        &admin.post(&format!("{path}/sync"), &json!({})).await,
        409,
        "conflict",
    );
    assert_eq!(admin.delete(&path).await.status, 202, "again");
    assert_eq!(
        sync().await.status,
        202,
        "the response to the first request"
    );
    app.connections.jobs().run_due("removal").await.unwrap();
    error(&admin.get(&path).await, 404, "not_found");
    let history = app.audit_of(connection.id).await;
    assert_eq!(
        history
            .iter()
            .filter(|row| row.to == Some(ConnectionStatus::Deleting))
            .count(),
        1
    );
    let actions = admin.actions(&user.to_string()).await;
    assert_eq!(actions, ["connection.remove", "connection.sync"]);
}

#[tokio::test]
async fn missing_connection_is_404_and_sync_may_be_off() {
    let admin = Admin::start().await;
    let path = format!("/admin/v1/connections/{}", Uuid::now_v7());
    for (method, path) in [
        (Method::GET, path.clone()),
        (Method::DELETE, path.clone()),
        (Method::POST, format!("{path}/sync")),
    ] {
        assert_eq!(
            error(&admin.call(method, &path).await, 404, "not_found"),
            "Connection not found "
        );
    }
    let path = format!(
        "/admin/v1/connections/{}/sync",
        admin.app.ben.connections[0].id
    );
    assert!(error(&admin.post(&path, &json!({})).await, 409, "conflict").contains("sync.enabled"));
}

/// No response has an account, its number or name, or a credential.
#[tokio::test]
async fn nothing_of_the_accounts_is_shown() {
    let admin = Admin::start().await;
    let app = &admin.app;
    let (user, connection) = (app.olivia.user.id, &app.olivia.connections[0]);
    let accounts = app.stored_accounts(user, connection.id).await;
    assert!(!accounts.is_empty());
    for path in [
        "/admin/v1/connections".to_owned(),
        format!("/admin/v1/connections/{}", connection.id),
    ] {
        let text = admin.get(&path).await.text;
        for account in &accounts {
            assert!(
                !text.contains(&account.name) && !text.contains(&account.provider_account_id),
                "{path}"
            );
            assert!(!text.contains(&account.id.to_string()), "{path}");
            let number = account
                .number
                .as_ref()
                .map(|number| number.as_str().trim_start_matches('*'));
            assert!(
                number.is_none_or(|number| !text.contains(&format!("{number}\""))),
                "{path}"
            );
        }
    }
}
