//! The end and the return of an Akahu user's consents.

use bellbird_sandbox::ConsentState;
use reqwest::Method;
use serde_json::json;

use crate::akahu_client::{akahu, answer, error_of, ids};
use crate::client::text_of;

#[tokio::test]
async fn expired_login_is_inactive_and_frozen() {
    let akahu = akahu().await;
    let (_, login) = akahu.credentials(0);
    let before = akahu.accounts().await;
    akahu
        .bank()
        .set_consent(&login, ConsentState::Expired)
        .unwrap();
    for account in akahu.accounts().await {
        assert_eq!(
            account["status"] == "INACTIVE",
            account["_authorisation"] == login.as_str()
        );
    }
    assert!(
        akahu.rows(&akahu.rows_path("CHECKING").await).await.len() > 1000,
        "what was read stays"
    );
    answer(akahu.call(Method::POST, "/refresh")).await;
    akahu.advance(3 * 86_400);
    for (account, before) in akahu.accounts().await.iter().zip(&before) {
        assert_eq!(
            account["refreshed"] == before["refreshed"],
            account["_authorisation"] == login.as_str()
        );
    }
    // After a new consent the ids are the same, and refreshes work again.
    akahu.consent("").await;
    akahu.advance(3);
    let after = akahu.accounts().await;
    assert_eq!(ids(&after), ids(&before));
    assert!(after.iter().all(|account| account["status"] == "ACTIVE"));
    assert_ne!(after[0]["refreshed"], before[0]["refreshed"]);
}

#[tokio::test]
async fn revoked_login_removes_its_accounts() {
    let akahu = akahu().await;
    let account = text_of(&akahu.account("CHECKING").await["_id"]).to_owned();
    let row = akahu
        .json(&format!("/accounts/{account}/transactions"))
        .await["items"][0]["_id"]
        .clone();
    let logins = [akahu.credentials(0).1, akahu.credentials(1).1];
    let set = |login: &str, state| akahu.bank().set_consent(login, state).unwrap();
    set(&logins[0], ConsentState::Revoked);
    for path in [
        format!("/accounts/{account}"),
        format!("/accounts/{account}/transactions"),
        format!("/transactions/{}", row.as_str().unwrap()),
    ] {
        assert_eq!(akahu.get(&path).await.status(), 404, "{path}");
    }
    let left = akahu.accounts().await;
    assert!(
        !left.is_empty()
            && left
                .iter()
                .all(|account| account["_authorisation"] == logins[1].as_str())
    );
    assert!(
        akahu
            .rows("/transactions")
            .await
            .iter()
            .all(|row| row["_account"] != account.as_str())
    );
    set(&logins[1], ConsentState::Revoked);
    assert_eq!(
        error_of(akahu.call(Method::GET, "/accounts")).await.0,
        401,
        "nothing is shared any more"
    );
    set(&logins[0], ConsentState::Active);
    assert_eq!(
        akahu.json(&format!("/accounts/{account}")).await["item"]["status"],
        "ACTIVE"
    );
}

#[tokio::test]
async fn app_can_delete_a_login() {
    let akahu = akahu().await;
    let (_, login) = akahu.credentials(1);
    let path = format!("/authorisations/{login}");
    assert_eq!(
        answer(akahu.call(Method::DELETE, &path)).await,
        json!({"success": true})
    );
    assert_eq!(error_of(akahu.call(Method::DELETE, &path)).await.0, 404);
    assert_eq!(akahu.accounts().await.len(), 7);
}
