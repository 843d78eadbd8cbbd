//! The end and the return of a SnapTrade connection.

use bellbird_sandbox::ConsentState;

use crate::snaptrade_client::client;

#[tokio::test]
async fn consents_expire_and_are_revoked() {
    let client = client().await;
    let (id, account) = (
        client.connection(0),
        client.account("Bluegum Futures").await,
    );
    let set = |state| client.bank().set_consent(&id, state).unwrap();
    set(ConsentState::Expired);
    let shown = client.ok(&format!("/authorizations/{id}")).await;
    assert!(shown["disabled"] == true && shown["disabled_date"].is_string());
    assert_eq!(client.positions(&account).await.len(), 3);
    set(ConsentState::Revoked);
    client
        .get(&format!("/authorizations/{id}"))
        .await
        .fails(404, "1011");
    client
        .get(&format!("/accounts/{account}/balances"))
        .await
        .fails(404, "1011");
    assert_eq!(client.accounts().await.len(), 3);
    set(ConsentState::Active);
    assert_eq!(
        client.ok(&format!("/authorizations/{id}")).await["disabled"],
        false
    );
    assert_eq!(client.accounts().await.len(), 7);
}
