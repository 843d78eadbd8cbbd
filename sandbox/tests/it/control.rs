//! The handle of a provider over HTTP, below `/__control`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::akahu_client::akahu;
use crate::client::{client, list_of, text_of};
use crate::snaptrade_client;

struct Response {
    status: u16,
    text: String,
}

async fn control(base: &str, method: Method, path: &str, body: impl ToString) -> Response {
    let url = format!("{base}/__control{path}");
    let request = reqwest::Client::new().request(method, url);
    let response = request.body(body.to_string()).send().await.unwrap();
    Response {
        status: response.status().as_u16(),
        text: response.text().await.unwrap(),
    }
}

/// Written by hand, because a JSON library would change the notation of the numbers.
#[tokio::test]
async fn added_rows_are_served_as_given() {
    let fiskil = client().await;
    let account = fiskil.accounts(0).await[0]["account_id"].clone();
    let row = format!(
        "{{\"account_id\":{account},\"amount\":1.2300e5,\"category\":null,\"mystery\":[1.10],\
         \"execution_date_time\":\"2026-11-20T00:00:00+11:00\"}}"
    );
    let row = control(&fiskil.base, Method::POST, "/transactions", row).await;
    let row = row.text;
    assert!(row.contains("\"fiskil_id\":\"bank_tx_") && !row.contains("posting_date_time"));
    let page = format!("{}&page[size]=1000", fiskil.busiest().await);
    let page = fiskil.get(&page).await.text().await.unwrap();
    assert!(row.contains("1.2300e5") && page.contains(&row), "{row}");

    let akahu = akahu().await;
    let account = akahu.account("CHECKING").await["_id"].clone();
    let row = format!(
        "{{\"_account\":{account},\"amount\":1.2300e5,\"category\":null,\"mystery\":[1.10],\
         \"date\":\"2026-11-21T01:00:00.000Z\"}}"
    );
    let base = &akahu.access.oauth_url;
    let row = control(base, Method::POST, "/transactions", row).await.text;
    let page = akahu.rows_path("CHECKING").await;
    let page = akahu.get(&page).await.text().await.unwrap();
    assert!(
        page.starts_with(&format!("{{\"success\":true,\"items\":[{row},")),
        "{row}"
    );

    let snaptrade = snaptrade_client::client().await;
    let account = snaptrade.account("Bluegum Individual Margin").await;
    let row = format!(
        "{{\"account\":\"{account}\",\"units\":1.2300e5,\"price\":null,\"mystery\":[1.10],\"type\":\"Odd\"}}"
    );
    let row = control(&snaptrade.base, Method::POST, "/transactions", row).await;
    assert_eq!(row.status, 201, "{}", row.text);
    let row = row.text;
    assert!(!row.contains("\"account\""), "current rows name no account");
    let page = format!("/accounts/{account}/activities");
    let page = snaptrade.get(&page).await.text;
    assert!(page.contains(&row), "{row}");
}

/// What each route does is tested of the handle; here it is called, and read again.
#[tokio::test]
async fn every_route_leads_to_the_handle() {
    let client = client().await;
    let (user, arrangement) = client.credentials(0);
    let account = client.accounts(0).await[0]["account_id"].clone();
    let account = account.as_str().unwrap();
    let (post, patch, put) = (Method::POST, Method::PATCH, Method::PUT);
    let (get, delete) = (Method::GET, Method::DELETE);
    let send = async |method: &Method, path: &str, body: Value| -> Value {
        let response = control(&client.base, method.clone(), path, body).await;
        let (status, text) = (response.status, response.text);
        assert!(matches!(status, 200 | 201 | 204), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    };
    let fault = json!({"match": "/v1/end-users", "kind": "status", "status": 503, "times": 1});
    send(&post, "/faults", fault).await;
    let faults = send(&get, "/faults", Value::Null).await;
    assert_eq!(faults["faults"][0]["status"], 503);
    send(&delete, "/faults", Value::Null).await;
    assert!(client.bank().faults().is_empty());

    send(&delete, "/calls", Value::Null).await;
    client.json("/v1/end-users").await;
    let calls = send(&get, "/calls", Value::Null).await;
    let call = json!({"method": "GET", "path": "/v1/end-users", "count": 1});
    assert_eq!(calls["calls"], json!([call]));

    let clock = json!({"now": "2026-11-21T01:31:00Z", "advanceSeconds": 60});
    send(&post, "/clock", clock).await;
    let clock = send(&get, "/clock", Value::Null).await;
    assert!(text_of(&clock["now"]).starts_with("2026-11-21T01:32:"));

    let row = json!({"account_id": account});
    let row = send(&post, "/transactions", row).await["fiskil_id"].clone();
    let row = format!("/transactions/{}", row.as_str().unwrap());
    let changed = send(&patch, &row, json!({"description": "CHANGED"})).await;
    assert_eq!(changed["description"], "CHANGED");
    send(&delete, &row, Value::Null).await;
    let path = format!("/accounts/{account}");
    let changed = send(&patch, &path, json!({"nickname": "Changed"})).await;
    assert_eq!(changed["nickname"], "Changed");
    let path = format!("/balances/{account}");
    let changed = send(&put, &path, json!({"current_balance": "1.50"})).await;
    assert_eq!(changed["current_balance"], "1.50");
    let added = json!({"endUserId": user, "arrangementId": arrangement, "nickname": "Added"});
    assert_eq!(send(&post, "/accounts", added).await["nickname"], "Added");
    send(&put, "/unlisted", json!([account])).await;
    assert!(
        client
            .accounts(0)
            .await
            .iter()
            .all(|shown| shown["account_id"] != account)
    );

    let options = send(&post, "/options", json!({"lagSeconds": 30})).await;
    assert_eq!(options, json!({"lagSeconds": 30, "sameIds": false}));
    send(&post, "/pages", json!({"emptyEvery": 1})).await;
    let page = client.json(&client.busiest().await).await;
    assert_eq!(page["transactions"], json!([]));
    let credentials = send(&get, "/credentials", Value::Null).await;
    assert_eq!(credentials["all"], json!(client.bank().all_credentials()));
    assert_eq!(
        credentials["credentials"][0]["arrangementId"],
        arrangement.as_str()
    );

    // As it was given.
    let url = "http://127.0.0.1:9";
    let webhooks = send(&post, "/webhooks", json!({"url": url})).await;
    assert_eq!(webhooks["url"], url);
    let sent = send(&post, "/webhooks/send", json!({"event": "weather.changed"})).await;
    let again = send(&post, "/webhooks/resend", json!({"id": sent["id"]})).await;
    let listed = send(&get, "/webhooks", Value::Null).await;
    let ids: Vec<&Value> = list_of(&listed["deliveries"]).iter().collect();
    let ids: Vec<&Value> = ids.iter().map(|delivery| &delivery["id"]).collect();
    assert_eq!(ids, [&sent["id"], &again["id"]]);
    send(&delete, "/webhooks", Value::Null).await;
    assert!(client.bank().deliveries().is_empty());

    let path = format!("/consents/{arrangement}");
    send(&post, &path, json!({"state": "revoked"})).await;
    assert!(client.accounts(0).await.is_empty());

    let snaptrade = snaptrade_client::client().await;
    let account = snaptrade.account("Bluegum Line of Credit").await;
    let held = snaptrade.positions(&account).await.len();
    for (path, body) in [
        ("/positions", json!({"account": account})),
        ("/fill", json!({"accountId": account, "rows": 3})),
    ] {
        let response = control(&snaptrade.base, post.clone(), path, body).await;
        assert!(response.status < 300, "{path}: {}", response.text);
    }
    assert_eq!(snaptrade.positions(&account).await.len(), held + 1);
    assert_eq!(snaptrade.activities(&account).await.len(), 3);
    let revoked = json!({"state": "revoked"});
    control(&snaptrade.base, post, "/users/olivia-nguyen", revoked).await;
    assert_eq!(snaptrade.get("/accounts").await.status, 401);
}

#[tokio::test]
async fn unknown_ids_and_fields_are_refused_with_a_reason() {
    let client = client().await;
    for (method, path, body) in [
        (Method::POST, "/transactions", json!({})),
        (
            Method::POST,
            "/transactions",
            json!({"account_id": "unknown"}),
        ),
        (Method::POST, "/transactions", json!(3)),
        (Method::PATCH, "/transactions/none", json!({})),
        (Method::POST, "/accounts", json!({})),
        (Method::PATCH, "/accounts/none", json!({})),
        (Method::PUT, "/balances/none", json!({})),
        (Method::POST, "/consents/none", json!({"state": "active"})),
        (Method::POST, "/consents/none", json!({"state": "sad"})),
        (Method::POST, "/users/none", json!({"state": "active"})),
        (Method::POST, "/options", json!({"sadness": 1})),
        (Method::POST, "/positions", json!({})),
        (
            Method::POST,
            "/fill",
            json!({"accountId": "none", "rows": 1}),
        ),
    ] {
        let response = control(&client.base, method, path, body).await;
        assert_eq!(response.status, 400, "{path}");
        let error: Value = serde_json::from_str(&response.text).unwrap();
        assert!(error["error"].is_string(), "{path}");
    }
    let unknown = control(&client.base, Method::GET, "/nothing", Value::Null).await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test]
async fn pages_in_a_browser_are_refused() {
    let client = client().await;
    let url = format!("{}/__control/calls", client.base);
    let own = client.base.as_str();
    for (header, value, status) in [
        ("origin", own, 200),
        ("origin", "http://page.example", 403),
        ("sec-fetch-site", "same-origin", 200),
        ("sec-fetch-site", "cross-site", 403),
        ("host", "rebound.example", 403),
        ("host", "localhost", 200),
    ] {
        let request = client.http.get(&url).header(header, value);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), status, "{header}: {value}");
    }
}
