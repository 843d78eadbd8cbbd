//! The handle of a provider. The same over HTTP is in `control.rs`.

use std::collections::BTreeMap;

use serde_json::json;

use crate::akahu_client::akahu;
use crate::client::{client, ids, list_of, text_of};
use crate::snaptrade_client;

#[tokio::test]
async fn one_call_fails_and_calls_are_counted_by_route() {
    let client = client().await;
    let bank = client.bank();
    let path = client.busiest().await;
    bank.reset_calls();
    bank.fail_next(503);
    assert_eq!(client.get(&path).await.status(), 503);
    client.json(&path).await;
    client.get("/v1/institutions/7").await;
    client.get("/v1/nowhere").await;
    let expected = [
        ("(unknown)", 1),
        ("/v1/banking/transactions", 2),
        ("/v1/institutions/{id}", 1),
    ];
    let expected = expected.map(|(route, count)| (route.to_owned(), count));
    assert_eq!(bank.calls(), BTreeMap::from(expected));
    assert!(client.sandbox.bank("akahu").calls().is_empty());
}

#[tokio::test]
async fn changed_row_is_sorted_again_until_it_is_removed() {
    let client = client().await;
    let bank = client.bank();
    let path = format!("{}&status=POSTED", client.busiest().await);
    let before = client.rows(&path).await;
    let id = text_of(&before[100]["fiskil_id"]);
    let change = json!({
        "posting_date_time": "2026-11-21T01:00:00Z", "merchant_name": null, "amount": "-99.990",
    });
    let row = bank.change_row(id, &change).unwrap();
    assert!(row.get("merchant_name").is_none());
    assert_eq!(row["description"], before[100]["description"]);
    let after = client.rows(&path).await;
    assert_eq!((after.len(), &after[0]), (before.len(), &row));
    bank.remove_row(id).unwrap();
    let mut expected = ids(&before);
    expected.remove(100);
    assert_eq!(ids(&client.rows(&path).await), expected);
    assert!(bank.remove_row(id).is_err());
}

#[tokio::test]
async fn accounts_and_balances_can_be_added_and_changed() {
    let client = client().await;
    let bank = client.bank();
    let (user, arrangement) = client.credentials(0);
    let added = bank
        .add_account(&json!({"endUserId": user, "arrangementId": arrangement, "nickname": "New"}))
        .unwrap();
    let id = text_of(&added["account_id"]);
    bank.change_account(id, &json!({"nickname": null})).unwrap();
    bank.set_balance(id, &json!({"current_balance": "1.50"}))
        .unwrap();
    let accounts = client.accounts(0).await;
    let account = accounts.last().unwrap();
    assert_eq!(account["account_id"], id);
    assert!(added["nickname"] == "New" && account.get("nickname").is_none());
    let balances = client
        .json(&format!(
            "/v1/banking/balances?end_user_id={user}&account_id={id}"
        ))
        .await;
    assert_eq!(balances["balances"][0]["current_balance"], "1.50");
    assert_eq!(balances["balances"][0]["available_balance"], "0.00");

    let snaptrade = snaptrade_client::client().await;
    let bank = snaptrade.bank();
    let made = bank
        .add_account(&json!({"authorizationId": snaptrade.connection(1), "name": null}))
        .unwrap();
    let id = text_of(&made["id"]);
    bank.set_balance(id, &json!([{"currency": {"code": "NZD"}, "cash": 5}]))
        .unwrap();
    bank.add_row(&json!({"account": id})).unwrap();
    assert_eq!(snaptrade.accounts().await.last().unwrap(), &made);
    assert_eq!(snaptrade.activities(id).await.len(), 1);
    let balances = snaptrade.ok(&format!("/accounts/{id}/balances")).await;
    assert_eq!(balances[0]["currency"]["code"], "NZD");
}

#[tokio::test]
async fn accounts_can_be_filled() {
    let akahu = akahu().await;
    let account = akahu.account("CHECKING").await;
    let bank = akahu.bank();
    for wanted in [2500, 7, 0] {
        bank.fill(text_of(&account["_id"]), wanted).unwrap();
        let rows = akahu.rows(&akahu.rows_path("CHECKING").await).await;
        assert_eq!(rows.len(), wanted as usize);
        if let Some(newest) = rows.first() {
            assert_eq!(newest["balance"], account["balance"]["current"]);
        }
    }
    let snaptrade = snaptrade_client::client().await;
    let id = snaptrade.account("Bluegum Line of Credit").await;
    snaptrade.bank().fill(&id, 20_000).unwrap();
    let page = format!("/accounts/{id}/activities?offset=19995&limit=10");
    let page = snaptrade.ok(&page).await;
    assert_eq!(list_of(&page["data"]).len(), 5);
    assert_eq!(page["pagination"]["total"], 20_000);
}

#[tokio::test]
async fn pending_row_can_become_posted() {
    let client = client().await;
    let path = client.busiest().await;
    let id = text_of(&client.json(&path).await["transactions"][0]["fiskil_id"]).to_owned();
    let patch = json!({"status": "POSTED", "posting_date_time": "2026-11-21T01:00:00Z"});
    client.bank().change_row(&id, &patch).unwrap();
    assert_eq!(
        client.rows(&format!("{path}&status=PENDING")).await.len(),
        2
    );
    assert_eq!(
        ids(&client.rows(&format!("{path}&status=POSTED")).await)[0],
        id
    );
}
