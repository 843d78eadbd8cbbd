//! SnapTrade's control interface: call counts, and changes to consents, accounts, trades and
//! positions.

use serde_json::{Value, json};

use crate::snaptrade_client::client;

#[tokio::test]
async fn calls_are_counted_by_route() {
    let client = client().await;
    let id = client.account("Bluegum Futures").await;
    client.control("DELETE", "/calls", Value::Null).await;
    client
        .control(
            "POST",
            "/faults",
            json!({"match": "/authorizations", "kind": "status", "status": 500}),
        )
        .await;
    assert_eq!(
        client.get("/authorizations").await.error(),
        (500, "1000".to_owned())
    );
    client.ok(&format!("/accounts/{id}/balances")).await;
    client.ok(&format!("/api/v1/accounts/{id}/balances")).await;
    let counted = client.control("GET", "/calls", Value::Null).await;
    let expected = json!({"calls": [
        {"method": "GET", "path": "/accounts/{id}/balances", "count": 1},
        {"method": "GET", "path": "/api/v1/accounts/{id}/balances", "count": 1},
        {"method": "GET", "path": "/authorizations", "count": 1},
    ]});
    assert_eq!(counted, expected);
}

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

#[tokio::test]
async fn trades_are_served_as_given() {
    let client = client().await;
    let account = client.account("Bluegum Individual Margin").await;
    let before = client.activities(&account).await;
    // Written by hand, because a JSON library would change the notation of the numbers.
    let odd = format!(
        "{{\"account\":\"{account}\",\"units\":1.2300e5,\"price\":null,\"mystery\":[1.10],\"type\":\"Odd\"}}"
    );
    let (status, row) = client.control_text("POST", "/trades", odd).await;
    assert_eq!(status, 201, "{row}");
    for part in [
        "\"units\":1.2300e5",
        "\"price\":null",
        "\"mystery\":[1.10]",
        "\"type\":\"Odd\"",
        "\"fee\":0",
    ] {
        assert!(row.contains(part), "{part} in {row}");
    }
    assert!(!row.contains("\"account\""));
    let page = client.get(&format!("/accounts/{account}/activities")).await;
    assert!(page.text.contains(&row), "the page serves the very text");
    let added: Value = serde_json::from_str(&row).unwrap();
    assert_eq!(page.json()["data"][0], added, "yesterday evening is newest");
    assert_eq!(page.json()["pagination"]["total"], 1501);

    // A changed row is sorted again. `null` removes a member.
    let id = before[700]["id"].as_str().unwrap();
    let patch = json!({"trade_date": "2026-11-20T23:00:00Z", "fx_rate": null, "amount": -5});
    let changed = client
        .control("PATCH", &format!("/trades/{id}"), patch)
        .await;
    assert!(
        changed.get("fx_rate").is_none() && changed["description"] == before[700]["description"]
    );
    let rows = client.activities(&account).await;
    assert_eq!((rows.len(), &rows[0]), (1501, &changed));
    client
        .control(
            "PATCH",
            &format!("/trades/{id}"),
            json!({"trade_date": null}),
        )
        .await;
    assert_eq!(client.activities(&account).await.last().unwrap()["id"], id);
    for id in [id, added["id"].as_str().unwrap()] {
        client
            .control("DELETE", &format!("/trades/{id}"), Value::Null)
            .await;
        assert_eq!(
            client
                .control_text("DELETE", &format!("/trades/{id}"), String::new())
                .await
                .0,
            400
        );
    }
    let mut expected = before.clone();
    expected.remove(700);
    assert_eq!(client.activities(&account).await, expected);
    for also in [
        json!({"accountId": account}),
        json!({"account_id": account}),
        json!({"account": {"id": account}}),
    ] {
        let row = client.control("POST", "/trades", also).await;
        assert!(
            row.get("account").is_none() && row.get("accountId").is_none(),
            "{row}"
        );
    }
    for bad in [
        json!({}),
        json!({"account": "unknown"}),
        json!({"account": account, "id": before[0]["id"]}),
        json!(3),
    ] {
        assert_eq!(
            client
                .control_text("POST", "/trades", bad.to_string())
                .await
                .0,
            400,
            "{bad}"
        );
    }
}

#[tokio::test]
async fn positions_are_served_as_given() {
    let client = client().await;
    let (margin, tfsa) = (
        client.account("Bluegum Individual Margin").await,
        client.account("Lakeshore TFSA").await,
    );
    let odd = format!(
        "{{\"account\":\"{tfsa}\",\"units\":1.50,\"price\":null,\"instrument\":{{\"kind\":\"moonrock\",\"id\":\"m\"}}}}"
    );
    let (status, row) = client.control_text("POST", "/positions", odd).await;
    assert_eq!(status, 201, "{row}");
    assert!(
        row.contains("\"units\":1.50") && row.contains("\"cost_basis\":\"1\""),
        "{row}"
    );
    assert!(
        client
            .get(&format!("/accounts/{tfsa}/positions/all"))
            .await
            .text
            .contains(&row)
    );
    let changed = client
        .control(
            "PATCH",
            "/positions/m",
            json!({"units": "2.0", "price": null}),
        )
        .await;
    assert!(changed["units"] == "2.0" && changed.get("price").is_none());
    assert_eq!(client.positions(&tfsa).await[3], changed);

    // Both accounts hold this fund, so the change must name the account.
    let held = client.positions(&margin).await;
    let fund = held
        .iter()
        .find(|one| one["instrument"]["symbol"] == "EXDV")
        .unwrap()["instrument"]["id"]
        .as_str()
        .unwrap();
    let path = format!("/positions/{fund}");
    let patch = json!({"price": "1.10"});
    assert_eq!(
        client
            .control_text("PATCH", &path, patch.to_string())
            .await
            .0,
        400
    );
    client
        .control("PATCH", &format!("{path}?account={tfsa}"), patch)
        .await;
    assert_eq!(client.positions(&tfsa).await[2]["price"], "1.10");
    assert_eq!(client.positions(&margin).await, held);
    client
        .control("DELETE", &format!("{path}?account={tfsa}"), Value::Null)
        .await;
    client.control("DELETE", &path, Value::Null).await;
    assert_eq!(client.positions(&margin).await.len(), held.len() - 1);
    assert_eq!(
        client.control_text("DELETE", &path, String::new()).await.0,
        400
    );
    // An account may hold an instrument twice.
    for _ in 0..2 {
        client
            .control(
                "POST",
                "/positions",
                json!({"account": tfsa, "instrument": {"kind": "etf", "id": "t"}}),
            )
            .await;
    }
    assert_eq!(client.positions(&tfsa).await.len(), 5);
}

#[tokio::test]
async fn accounts_and_balances_are_served_as_given() {
    let client = client().await;
    let connection = client.connection(1);
    let ask = json!({"authorizationId": connection, "name": null, "account_category": "NEW"});
    let made = client.control("POST", "/accounts", ask).await;
    assert!(
        made["name"].is_null()
            && made["account_category"] == "NEW"
            && made.get("authorizationId").is_none()
    );
    assert_eq!(client.accounts().await.last().unwrap(), &made);
    let id = made["id"].as_str().unwrap();
    assert_eq!(
        client.ok(&format!("/accounts/{id}/balances")).await[0]["currency"]["code"],
        "USD"
    );
    let patch = r#"{"status":null,"balance":{"total":{"amount":10.500,"currency":"NZD"}}}"#;
    let (status, _) = client
        .control_text("PATCH", &format!("/accounts/{id}"), patch.to_owned())
        .await;
    assert_eq!(status, 200);
    let text = client.get(&format!("/accounts/{id}")).await.text;
    assert!(
        text.contains("\"balance\":{\"total\":{\"amount\":10.500,\"currency\":\"NZD\"}}")
            && !text.contains("\"status\":")
    );

    let balances =
        r#"[{"currency":{"code":"NZD"},"cash":1.2300e5,"buying_power":null,"odd":[0.10]}]"#;
    let (status, _) = client
        .control_text("PUT", &format!("/balances/{id}"), balances.to_owned())
        .await;
    assert_eq!(status, 200);
    assert_eq!(
        client.get(&format!("/accounts/{id}/balances")).await.text,
        balances
    );
    client
        .control("POST", "/trades", json!({"account": id}))
        .await;
    client
        .control("POST", "/positions", json!({"account": id}))
        .await;
    assert_eq!(
        (
            client.activities(id).await.len(),
            client.positions(id).await.len()
        ),
        (1, 1)
    );
    for (method, path, body) in [
        ("POST", "/accounts", json!({})),
        ("POST", "/accounts", json!({"authorizationId": "none"})),
        (
            "POST",
            "/accounts",
            json!({"authorizationId": connection, "id": id}),
        ),
        ("PATCH", "/accounts/none", json!({})),
        ("PUT", "/balances/none", json!([])),
        ("POST", "/consents/none", json!({"state": "active"})),
        ("POST", "/consents/none", json!({"state": "sad"})),
        ("POST", "/users/none", json!({"state": "active"})),
        ("POST", "/limits", json!({"perHour": 1})),
        ("POST", "/fill", json!({"accountId": "none", "rows": 1})),
    ] {
        assert_eq!(
            client.control_text(method, path, body.to_string()).await.0,
            400,
            "{path} {body}"
        );
    }
    assert_eq!(
        client
            .control_text("PUT", &format!("/balances/{id}"), "{}".to_owned())
            .await
            .0,
        400
    );
}

#[tokio::test]
async fn account_can_be_filled() {
    let client = client().await;
    let id = client.account("Bluegum Line of Credit").await;
    client
        .control("POST", "/fill", json!({"accountId": id, "rows": 20000}))
        .await;
    let page = client
        .ok(&format!("/accounts/{id}/activities?offset=19995&limit=10"))
        .await;
    assert_eq!(
        (
            page["data"].as_array().unwrap().len(),
            page["pagination"]["total"].as_u64()
        ),
        (5, Some(20_000))
    );
    let newest = client
        .ok(&format!("/accounts/{id}/activities?limit=1"))
        .await["data"][0]
        .clone();
    assert!(
        newest["trade_date"]
            .as_str()
            .unwrap()
            .starts_with("2026-11-20")
    );
    client
        .control("POST", "/fill", json!({"accountId": id, "rows": 3}))
        .await;
    client
        .control("POST", "/trades", json!({"account": id}))
        .await;
    let rows = client.activities(&id).await;
    assert_eq!(rows.len(), 4);
    client
        .control("POST", "/fill", json!({"accountId": id, "rows": 0}))
        .await;
    assert_eq!(client.activities(&id).await.len(), 0);
}
