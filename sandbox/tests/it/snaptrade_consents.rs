//! The end and the return of a SnapTrade connection.

use serde_json::json;

use crate::snaptrade_client::client;

#[tokio::test]
async fn consents_expire_and_are_revoked() {
    let client = client().await;
    let (id, account) = (
        client.connection(0),
        client.account("Bluegum Futures").await,
    );
    let path = format!("/consents/{id}");
    client
        .control("POST", &path, json!({"state": "expired"}))
        .await;
    let shown = client.ok(&format!("/authorizations/{id}")).await;
    assert!(shown["disabled"] == true && shown["disabled_date"].is_string());
    assert_eq!(client.positions(&account).await.len(), 3);
    client
        .control("POST", &path, json!({"state": "revoked"}))
        .await;
    assert_eq!(
        client.get(&format!("/authorizations/{id}")).await.error(),
        (404, "1011".to_owned())
    );
    assert_eq!(
        client
            .get(&format!("/accounts/{account}/balances"))
            .await
            .error(),
        (404, "1011".to_owned())
    );
    assert_eq!(client.accounts().await.len(), 3);
    client
        .control("POST", &path, json!({"state": "active"}))
        .await;
    assert_eq!(
        client.ok(&format!("/authorizations/{id}")).await["disabled"],
        false
    );
    assert_eq!(client.accounts().await.len(), 7);
}
