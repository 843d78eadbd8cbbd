//! Fiskil's control interface: call counts, and changes to rows, accounts and balances.

use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{client, ids};

#[tokio::test]
async fn calls_are_counted_by_route() {
    let client = client().await;
    client.control(Method::DELETE, "/calls", Value::Null).await;
    let path = client.busiest().await;
    client
        .control(
            Method::POST,
            "/faults",
            json!({"match": "/v1/consent", "kind": "status", "status": 500}),
        )
        .await;
    client.json(&path).await;
    client.json(&path).await;
    client.get("/v1/consent").await;
    client.get("/v1/end-users/eu_x").await;
    client.get("/v1/nowhere").await;
    let calls = client.control(Method::GET, "/calls", Value::Null).await;
    let expected = json!({"calls": [
        {"method": "GET", "path": "(unknown)", "count": 1},
        {"method": "GET", "path": "/v1/banking/accounts", "count": 1},
        {"method": "GET", "path": "/v1/banking/transactions", "count": 2},
        {"method": "GET", "path": "/v1/consent", "count": 1},
        {"method": "GET", "path": "/v1/end-users/{id}", "count": 1},
    ]});
    assert_eq!(calls, expected);
}

#[tokio::test]
async fn added_rows_are_served_as_given() {
    let client = client().await;
    let path = client.busiest().await;
    let account = client.accounts(0).await[0]["account_id"].clone();
    // Written by hand, because a JSON library would change the notation of the number.
    let odd = format!(
        "{{\"account_id\":{account},\"amount\":1.2300e5,\"category\":null,\"mystery\":[1.10],\
         \"execution_date_time\":\"2026-11-20T00:00:00+11:00\"}}"
    );
    let request = client
        .http
        .post(format!("{}/__control/transactions", client.base))
        .body(odd);
    let row = request.send().await.unwrap().text().await.unwrap();
    for part in [
        "\"amount\":1.2300e5",
        "\"category\":null",
        "\"mystery\":[1.10]",
        "\"fiskil_id\":\"bank_tx_",
    ] {
        assert!(row.contains(part), "{part} in {row}");
    }
    assert!(!row.contains("posting_date_time"));
    let page = client
        .get(&format!("{path}&page[size]=1000"))
        .await
        .text()
        .await
        .unwrap();
    assert!(page.contains(&row), "the page serves the very text");

    let ahead = json!({"account_id": account, "posting_date_time": "2027-01-01T00:00:00Z", "amount": "-1.00"});
    let ahead = client.control(Method::POST, "/transactions", ahead).await;
    let posted = client.rows(&format!("{path}&status=POSTED")).await;
    assert_eq!(posted[0]["fiskil_id"], ahead["fiskil_id"]);
    let pending = json!({"account_id": account, "status": "PENDING"});
    let pending = client.control(Method::POST, "/transactions", pending).await;
    assert!(pending.get("posting_date_time").is_none());
    assert_eq!(client.json(&path).await["transactions"][0], pending);
    for bad in [
        json!({}),
        json!({"account_id": "unknown"}),
        json!({"account_id": account, "fiskil_id": ahead["fiskil_id"]}),
        json!(3),
    ] {
        let response = client.control_raw(Method::POST, "/transactions", bad).await;
        assert_eq!(response.status(), 400);
        assert!(response.json::<Value>().await.unwrap()["error"].is_string());
    }
}

#[tokio::test]
async fn changed_row_is_sorted_again() {
    let client = client().await;
    let path = format!("{}&status=POSTED", client.busiest().await);
    let before = client.rows(&path).await;
    let id = before[100]["fiskil_id"].as_str().unwrap();
    let patch = json!({"posting_date_time": "2026-11-21T01:00:00Z", "merchant_name": null, "amount": "-99.990"});
    let row = client
        .control(Method::PATCH, &format!("/transactions/{id}"), patch)
        .await;
    assert!(row.get("merchant_name").is_none());
    let after = client.rows(&path).await;
    assert_eq!((after.len(), &after[0]), (before.len(), &row));
    assert_eq!(row["description"], before[100]["description"]);
    client
        .control(Method::DELETE, &format!("/transactions/{id}"), Value::Null)
        .await;
    let mut expected = ids(&before);
    expected.remove(100);
    assert_eq!(ids(&client.rows(&path).await), expected);
    let gone = client
        .control_raw(Method::DELETE, &format!("/transactions/{id}"), Value::Null)
        .await;
    assert_eq!(gone.status(), 400);
}

#[tokio::test]
async fn pending_row_can_become_posted() {
    let client = client().await;
    let path = client.busiest().await;
    let id = client.json(&path).await["transactions"][0]["fiskil_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let patch = json!({"status": "POSTED", "posting_date_time": "2026-11-21T01:00:00Z"});
    client
        .control(Method::PATCH, &format!("/transactions/{id}"), patch)
        .await;
    assert_eq!(
        client.rows(&format!("{path}&status=PENDING")).await.len(),
        2
    );
    assert_eq!(
        ids(&client.rows(&format!("{path}&status=POSTED")).await)[0],
        id
    );
}

#[tokio::test]
async fn accounts_and_balances_can_be_added_and_changed() {
    let client = client().await;
    let (user, arrangement) = client.credentials(3);
    let ask = json!({"endUserId": user, "arrangementId": arrangement, "display_name": "Odd", "product_category": "NEW_KIND"});
    let made = client.control(Method::POST, "/accounts", ask).await;
    assert_eq!(
        (
            made["display_name"].as_str(),
            made["product_category"].as_str()
        ),
        (Some("Odd"), Some("NEW_KIND"))
    );
    assert!(made.get("endUserId").is_none());
    let id = made["account_id"].as_str().unwrap();
    assert_eq!(client.accounts(3).await.last().unwrap(), &made);
    client
        .control(
            Method::PATCH,
            &format!("/accounts/{id}"),
            json!({"display_name": null, "open_status": 7}),
        )
        .await;
    let shown = client.accounts(3).await.pop().unwrap();
    assert!(shown.get("display_name").is_none());
    assert_eq!(shown["open_status"], 7);
    let patch = json!({"current_balance": "1.5", "available_balance": null});
    client
        .control(Method::PATCH, &format!("/balances/{id}"), patch)
        .await;
    let balance = client
        .json(&format!(
            "/v1/banking/balances?end_user_id={user}&account_id={id}"
        ))
        .await;
    assert_eq!(balance["balances"][0]["current_balance"], "1.5");
    assert!(balance["balances"][0].get("available_balance").is_none());
    client
        .control(Method::POST, "/transactions", json!({"account_id": id}))
        .await;
    assert_eq!(
        client
            .rows(&format!(
                "/v1/banking/transactions?end_user_id={user}&account_id={id}"
            ))
            .await
            .len(),
        1
    );
    for (path, body) in [
        ("/accounts", json!({"endUserId": user})),
        (
            "/accounts",
            json!({"endUserId": "eu_x", "arrangementId": arrangement}),
        ),
        (
            "/accounts",
            json!({"endUserId": user, "arrangementId": arrangement, "account_id": id}),
        ),
        ("/consents/none", json!({"state": "active"})),
        ("/clock", json!({})),
        ("/pages", json!({})),
    ] {
        assert_eq!(
            client
                .control_raw(Method::POST, path, body.clone())
                .await
                .status(),
            400,
            "{path} {body}"
        );
    }
    assert_eq!(
        client
            .control_raw(Method::GET, "/nothing", Value::Null)
            .await
            .status(),
        404
    );
}

#[tokio::test]
async fn category_can_be_changed() {
    let client = client().await;
    let path = client.busiest().await;
    let id = ids(&client.rows(&path).await)[20].clone();
    let body = json!({"fiskil_transaction_id": id, "secondary_category": "TRAVEL_LODGING"});
    let done = client
        .call(Method::POST, "/v1/banking/transactions/category")
        .json(&body)
        .send()
        .await
        .unwrap();
    assert!(done.json::<Value>().await.unwrap()["message"].is_string());
    let row = client.rows(&path).await.remove(20);
    assert_eq!(
        (
            &row["fiskil_id"],
            row["category"]["primary_category"].as_str()
        ),
        (&json!(id), Some("TRAVEL"))
    );
    let bad = json!({"fiskil_transaction_id": "x", "secondary_category": "TRAVEL_LODGING"});
    let bad = client
        .call(Method::POST, "/v1/banking/transactions/category")
        .json(&bad)
        .send()
        .await
        .unwrap();
    assert_eq!(bad.status(), 400);
}
