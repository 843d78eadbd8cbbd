//! Akahu's control interface: changes to logins, tokens, accounts and rows.

use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use crate::akahu_client::{NOW, akahu, answer, date, error_of, ids};

#[tokio::test]
async fn expired_login_is_inactive_and_frozen() {
    let akahu = akahu().await;
    let (_, login) = akahu.credentials(0);
    let before = akahu.accounts().await;
    akahu
        .control(
            Method::POST,
            &format!("/consents/{login}"),
            json!({"state": "expired"}),
        )
        .await;
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
    akahu.advance(3 * 86_400).await;
    for (account, before) in akahu.accounts().await.iter().zip(&before) {
        assert_eq!(
            account["refreshed"] == before["refreshed"],
            account["_authorisation"] == login.as_str()
        );
    }
    // After a new consent the ids are the same, and refreshes work again.
    akahu.consent("").await;
    akahu.advance(3).await;
    let after = akahu.accounts().await;
    assert_eq!(ids(&after), ids(&before));
    assert!(after.iter().all(|account| account["status"] == "ACTIVE"));
    assert_ne!(after[0]["refreshed"], before[0]["refreshed"]);
}

#[tokio::test]
async fn revoked_login_removes_its_accounts() {
    let akahu = akahu().await;
    let account = akahu.account("CHECKING").await["_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let row = akahu
        .json(&format!("/accounts/{account}/transactions"))
        .await["items"][0]["_id"]
        .clone();
    let logins = [akahu.credentials(0).1, akahu.credentials(1).1];
    let revoke = async |login: &str, state: &str| {
        akahu
            .control(
                Method::POST,
                &format!("/consents/{login}"),
                json!({"state": state}),
            )
            .await
    };
    revoke(&logins[0], "revoked").await;
    for path in [
        format!("/accounts/{account}"),
        format!("/accounts/{account}/transactions"),
        format!("/transactions/{}", row.as_str().unwrap()),
        format!("/authorisations/{}", logins[0]),
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
    revoke(&logins[1], "revoked").await;
    assert_eq!(
        error_of(akahu.call(Method::GET, "/accounts")).await.0,
        401,
        "nothing is shared any more"
    );
    revoke(&logins[0], "active").await;
    assert_eq!(
        akahu.json(&format!("/accounts/{account}")).await["item"]["status"],
        "ACTIVE"
    );
}

#[tokio::test]
async fn app_can_delete_a_login_or_an_account() {
    let akahu = akahu().await;
    let (_, login) = akahu.credentials(1);
    let shown = akahu.json(&format!("/authorisations/{login}")).await;
    assert_eq!(
        (&shown["item"]["_id"], &shown["item"]["connection"]["name"]),
        (&json!(login), &json!("Pōhutukawa Example Wealth"))
    );
    assert_eq!(
        answer(akahu.call(Method::DELETE, &format!("/authorisations/{login}"))).await,
        json!({"success": true})
    );
    assert_eq!(
        akahu
            .get(&format!("/authorisations/{login}"))
            .await
            .status(),
        404
    );
    let accounts = akahu.accounts().await;
    assert_eq!(accounts.len(), 7);
    let path = format!("/accounts/{}", accounts[1]["_id"].as_str().unwrap());
    answer(akahu.call(Method::DELETE, &path)).await;
    assert_eq!(akahu.get(&path).await.status(), 404);
    let spare = akahu.into_spare();
    let official = format!(
        "/accounts/{}",
        spare.accounts().await[0]["_id"].as_str().unwrap()
    );
    assert_eq!(error_of(spare.call(Method::DELETE, &official)).await.0, 400);
}

#[tokio::test]
async fn tokens_can_be_revoked_and_restored() {
    let akahu = akahu().await;
    let path = format!("/tokens/{}", akahu.token);
    akahu
        .control(Method::POST, &path, json!({"state": "revoked"}))
        .await;
    assert_eq!(akahu.get("/me").await.status(), 401);
    akahu
        .control(Method::POST, &path, json!({"state": "active"}))
        .await;
    assert_eq!(akahu.get("/me").await.status(), 200);
}

#[tokio::test]
async fn all_credentials_include_an_inactive_login() {
    let mut akahu = akahu().await;
    let credentials = akahu
        .control(Method::GET, "/credentials", Value::Null)
        .await;
    assert_eq!(credentials["credentials"].as_array().unwrap().len(), 4);
    let all = credentials["all"].as_array().unwrap();
    assert_eq!(all.len(), 5);
    assert_eq!(all[0]["provider"], "akahu");
    akahu.token = all[3]["userToken"].as_str().unwrap().to_owned();
    let accounts = akahu.accounts().await;
    assert!(
        accounts.len() == 2
            && accounts
                .iter()
                .all(|account| account["status"] == "INACTIVE")
    );
    answer(akahu.call(Method::POST, "/refresh")).await;
    akahu.advance(86_400).await;
    assert_eq!(akahu.accounts().await, accounts);
    assert!(!akahu.rows("/transactions").await.is_empty());
}

#[tokio::test]
async fn added_rows_are_served_as_given() {
    let akahu = akahu().await;
    let account = akahu.account("CHECKING").await["_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("/accounts/{account}/transactions");
    // Written by hand, because a JSON library would change the notation of the number.
    let odd = format!(
        "{{\"_account\":\"{account}\",\"amount\":1.2300e5,\"category\":null,\"mystery\":[1.10],\
         \"date\":\"2026-11-21T01:00:00.000Z\"}}"
    );
    let row = akahu
        .control_raw(Method::POST, "/transactions", odd)
        .await
        .text()
        .await
        .unwrap();
    for part in [
        "\"amount\":1.2300e5",
        "\"category\":null",
        "\"mystery\":[1.10]",
        "\"_id\":\"trans_c",
        "\"_user\":\"user_c",
    ] {
        assert!(row.contains(part), "{part} in {row}");
    }
    let page = akahu.get(&path).await.text().await.unwrap();
    assert!(
        page.starts_with(&format!("{{\"success\":true,\"items\":[{row},")),
        "the page serves the very text"
    );
    let id = serde_json::from_str::<Value>(&row).unwrap()["_id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        akahu
            .get(&format!("/transactions/{id}"))
            .await
            .text()
            .await
            .unwrap()
            .contains(&row)
    );
    let now = akahu
        .control(Method::POST, "/transactions", json!({"_account": account}))
        .await;
    assert!(now["date"].as_str() >= Some(&NOW[..19]) && now["date"] == now["created_at"]);
    assert_eq!(akahu.json(&path).await["items"][0], now);
    for bad in [
        json!({}),
        json!({"_account": "unknown"}),
        json!({"_account": account, "_id": id}),
        json!(3),
    ] {
        let response = akahu
            .control_raw(Method::POST, "/transactions", bad.to_string())
            .await;
        assert_eq!(response.status(), 400);
        assert!(response.json::<Value>().await.unwrap()["error"].is_string());
    }
}

#[tokio::test]
async fn changed_row_is_sorted_again_and_updated_at_moves() {
    let akahu = akahu().await;
    let path = akahu.rows_path("CHECKING").await;
    let before = akahu.rows(&path).await;
    let id = ids(&before)[150];
    let patch = json!({"date": "2026-11-21T01:00:00.000Z", "meta": null, "category": {"_id": "nzfcc_x", "name": "X"}});
    let row = akahu
        .control(Method::PATCH, &format!("/transactions/{id}"), patch)
        .await;
    assert!(row.get("meta").is_none() && row["updated_at"].as_str() >= Some(&NOW[..19]));
    let after = akahu.rows(&path).await;
    assert_eq!((after.len(), &after[0]), (before.len(), &row));
    let patch = json!({"updated_at": "2026-01-01T00:00:00.000Z"});
    let row = akahu
        .control(Method::PATCH, &format!("/transactions/{id}"), patch)
        .await;
    assert_eq!(row["updated_at"], "2026-01-01T00:00:00.000Z");
    akahu
        .control(Method::DELETE, &format!("/transactions/{id}"), Value::Null)
        .await;
    let mut expected = ids(&before);
    expected.remove(150);
    assert_eq!(ids(&akahu.rows(&path).await), expected);
    let gone = akahu
        .control_raw(
            Method::DELETE,
            &format!("/transactions/{id}"),
            String::new(),
        )
        .await;
    assert_eq!(gone.status(), 400);
}

#[tokio::test]
async fn accounts_can_be_added_and_changed() {
    let akahu = akahu().await;
    let (token, login) = akahu.credentials(1);
    let ask = json!({"userToken": token, "authorisation": login, "name": "Odd", "type": "NEW_KIND", "balance": null});
    let made = akahu.control(Method::POST, "/accounts", ask).await;
    assert_eq!(
        (&made["name"], &made["type"], &made["balance"]),
        (&json!("Odd"), &json!("NEW_KIND"), &Value::Null)
    );
    assert!(made.get("userToken").is_none() && made["_authorisation"] == login.as_str());
    let id = made["_id"].as_str().unwrap();
    assert_eq!(akahu.accounts().await.last().unwrap(), &made);
    let patch =
        "{\"balance\":{\"currency\":\"NZD\",\"current\":1.500},\"attributes\":null}".to_owned();
    akahu
        .control_raw(Method::PATCH, &format!("/accounts/{id}"), patch)
        .await;
    let shown = akahu
        .get(&format!("/accounts/{id}"))
        .await
        .text()
        .await
        .unwrap();
    assert!(shown.contains("\"current\":1.500}") && !shown.contains("attributes"));
    akahu
        .control(Method::POST, "/transactions", json!({"_account": id}))
        .await;
    assert_eq!(
        akahu
            .rows(&format!("/accounts/{id}/transactions"))
            .await
            .len(),
        1
    );
    for (path, body) in [
        ("/accounts", json!({"userToken": token})),
        (
            "/accounts",
            json!({"userToken": akahu.credentials(2).0, "authorisation": login}),
        ),
        (
            "/accounts",
            json!({"userToken": token, "authorisation": login, "_id": id}),
        ),
        ("/consents/none", json!({"state": "active"})),
        ("/tokens/none", json!({"state": "active"})),
        ("/pages", json!({})),
        ("/fill", json!({"accountId": "none", "rows": 1})),
        ("/pending", json!({})),
    ] {
        assert_eq!(
            akahu
                .control_raw(Method::POST, path, body.to_string())
                .await
                .status(),
            400,
            "{path} {body}"
        );
    }
    assert_eq!(
        akahu
            .control_raw(Method::GET, "/nothing", String::new())
            .await
            .status(),
        404
    );
}

#[tokio::test]
async fn account_can_be_filled() {
    let akahu = akahu().await;
    let account = akahu.account("CHECKING").await;
    let path = akahu.rows_path("CHECKING").await;
    for wanted in [5000, 7, 0] {
        let ask = json!({"accountId": account["_id"], "rows": wanted});
        assert_eq!(
            akahu.control(Method::POST, "/fill", ask).await["rows"],
            wanted
        );
        let rows = akahu.rows(&path).await;
        assert_eq!(rows.len(), wanted);
        assert!(
            rows.windows(2).all(|pair| date(&pair[0]) > date(&pair[1])),
            "each has an instant of its own"
        );
        let Some(oldest) = rows.last() else { continue };
        let now: Timestamp = NOW.parse().unwrap();
        assert!(date(&rows[0]) < now && now.duration_since(date(oldest)).as_hours() < 300 * 24);
        assert_eq!(rows[0]["balance"], account["balance"]["current"]);
        let one = akahu
            .json(&format!("/transactions/{}", ids(&rows)[wanted / 2]))
            .await;
        assert_eq!(one["item"], rows[wanted / 2]);
    }
}
