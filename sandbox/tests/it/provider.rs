//! Fiskil's token, end users, sessions, institutions, consents, accounts and balances.

use bellbird_sandbox::ConsentState;
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{client, ids, list_of, text_of};

#[tokio::test]
async fn token_expires_after_fifteen_sandbox_minutes() {
    let client = client().await;
    let path = format!(
        "/v1/banking/accounts?end_user_id={}",
        client.credentials(0).0
    );
    client
        .bank()
        .set_clock("2026-12-24T00:00:00Z".parse().unwrap());
    assert_eq!(
        client.get(&path).await.status(),
        401,
        "issued in November, past its life in December"
    );
    let first = client.fresh_token().await;
    assert_eq!(first.split('.').count(), 3);
    let with = |token: String| {
        let request = client
            .http
            .get(format!("{}{path}", client.base))
            .bearer_auth(token);
        async { request.send().await.unwrap().status() }
    };
    client.advance(800);
    let second = client.fresh_token().await;
    assert_ne!(first, second);
    assert_eq!(
        (with(first.clone()).await, with(second.clone()).await),
        (200.try_into().unwrap(), 200.try_into().unwrap())
    );
    client.advance(150);
    assert_eq!(
        (
            with(first).await.as_u16(),
            with(second.clone()).await.as_u16()
        ),
        (401, 200)
    );
    assert_eq!(with(format!("{second}x")).await, 401);
}

#[tokio::test]
async fn credentials_are_checked() {
    let client = client().await;
    for (body, status) in [
        (
            json!({"client_id": client.description().fiskil.client_id, "client_secret": "wrong"}),
            401,
        ),
        (json!({"client_id": "x"}), 400),
        (json!([]), 400),
    ] {
        let request = client
            .http
            .post(format!("{}/v1/token", client.base))
            .json(&body);
        assert_eq!(request.send().await.unwrap().status(), status, "{body}");
    }
}

#[tokio::test]
async fn fiskils_six_credentials_come_first() {
    let client = client().await;
    let description = serde_json::to_value(client.description()).unwrap();
    // Credentials of the other providers follow Fiskil's.
    let credentials = &list_of(&description["credentials"])[..6];
    assert_ne!(description["credentials"][6]["provider"], "fiskil");
    assert_eq!(
        credentials[0]
            .as_object()
            .unwrap()
            .keys()
            .collect::<Vec<_>>(),
        ["arrangementId", "endUserId", "provider"]
    );
    assert_eq!(credentials[0]["provider"], "fiskil");
    let users: Vec<_> = (0..6).map(|index| client.credentials(index).0).collect();
    assert_eq!(users[0], users[1]);
    assert_eq!(
        users
            .iter()
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        5
    );
    assert!(
        users
            .iter()
            .all(|user| user.len() == 30 && user.starts_with("eu_"))
    );
    let mut members: Vec<_> = description["fiskil"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    members.sort();
    assert_eq!(
        members,
        ["baseUrl", "clientId", "clientSecret", "webhookSecret"]
    );
}

#[tokio::test]
async fn end_users_are_created_and_deleted() {
    let client = client().await;
    let create = || {
        client
            .call(Method::POST, "/v1/end-users")
            .json(&json!({"email": "new@example.com"}))
    };
    let one: Value = create().send().await.unwrap().json().await.unwrap();
    let two: Value = create().send().await.unwrap().json().await.unwrap();
    assert_ne!(one["end_user_id"], two["end_user_id"], "nothing is unique");
    let path = format!("/v1/end-users/{}", text_of(&one["end_user_id"]));
    let list = client.json("/v1/end-users?email=new%40example.com").await;
    assert_eq!(list_of(&list["end_users"]).len(), 2);
    let delete = async || client.delete(&path).await;
    assert_eq!(delete().await.status(), 204);
    let again = delete().await;
    assert_eq!(
        (
            again.status().as_u16(),
            again.headers()["content-type"].to_str().unwrap()
        ),
        (404, "application/vnd.goa.error")
    );
    assert_eq!(
        again.json::<Value>().await.unwrap()["name"],
        "end_user_not_found"
    );
    let nothing = client.post("/v1/end-users", &json!({"name": "x"})).await;
    assert_eq!(nothing.status(), 400);
}

#[tokio::test]
async fn deleted_end_user_has_no_data() {
    let client = client().await;
    let (user, _) = client.credentials(2);
    assert!(!client.accounts(2).await.is_empty());
    client.delete(&format!("/v1/end-users/{user}")).await;
    for (path, name) in [
        ("accounts", "accounts"),
        ("balances", "balances"),
        ("transactions", "transactions"),
    ] {
        let answer = client
            .json(&format!("/v1/banking/{path}?end_user_id={user}"))
            .await;
        assert_eq!(answer, json!({name: [], "links": {}}));
    }
    assert_eq!(
        client
            .json("/v1/banking/accounts?end_user_id=eu_unknown")
            .await["accounts"],
        json!([])
    );
}

#[tokio::test]
async fn sessions_have_the_documented_shape() {
    let client = client().await;
    let create = async |body: Value| client.post("/v1/auth/session", &body).await;
    let before = client.bank().now().as_second();
    let good =
        create(json!({"end_user_id": client.credentials(0).0, "institution_id": "88888"})).await;
    assert_eq!(good.status(), 200);
    let session: Value = good.json().await.unwrap();
    let id = text_of(&session["session_id"]);
    assert_eq!(id.len(), 27);
    assert!(text_of(&session["auth_url"]).ends_with(&format!("?sess_id={id}")));
    let begun = session["expires_at"].as_i64().unwrap() - 5 * 86_400;
    assert!((before..=client.bank().now().as_second()).contains(&begun));
    for (body, status, name) in [
        (
            json!({"end_user_id": "eu_unknown"}),
            404,
            "end_user_not_found",
        ),
        (
            json!({"end_user_id": client.credentials(0).0, "institution_id": "7"}),
            400,
            "invalid_institution_id",
        ),
        (json!({}), 400, "bad_request"),
    ] {
        let bad = create(body).await;
        assert_eq!(bad.status(), status);
        assert_eq!(bad.json::<Value>().await.unwrap()["name"], name);
    }
}

#[tokio::test]
async fn institutions_have_a_name() {
    let client = client().await;
    assert_eq!(
        client.json("/v1/institutions/88888").await["name"],
        "Banking Sandbox Data Holder"
    );
    assert_eq!(client.get("/v1/institutions/7").await.status(), 400);
}

#[tokio::test]
async fn consents_end_by_expiry_and_revocation() {
    let client = client().await;
    let (user, arrangement) = client.credentials(0);
    let consent = async || {
        let all = client
            .json(&format!("/v1/consent?end_user_id={user}"))
            .await;
        list_of(&all["consents"])
            .iter()
            .find(|one| one["arrangement_id"] == arrangement.as_str())
            .unwrap()
            .clone()
    };
    let now: jiff::Timestamp = "2026-11-21T01:30:00Z".parse().unwrap();
    let expires = |consent: &Value| {
        text_of(&consent["expires_at"])
            .parse::<jiff::Timestamp>()
            .unwrap()
    };
    let fresh = consent().await;
    assert_eq!(fresh["active"], true);
    assert!(fresh.get("termination_reason").is_none());
    assert_eq!(list_of(&fresh["account_ids"]).len(), 4);
    let set = |state| client.bank().set_consent(&arrangement, state).unwrap();

    set(ConsentState::Expired);
    let expired = consent().await;
    assert_eq!(expired["active"], false);
    assert!(expires(&expired) < now);
    assert!(
        client.accounts(0).await.is_empty(),
        "an ended consent answers 200 with nothing"
    );
    assert_eq!(
        client.accounts(1).await.len(),
        5,
        "the other consent stays active"
    );

    set(ConsentState::Active);
    assert_eq!(client.accounts(0).await.len(), 4);
    set(ConsentState::Revoked);
    let revoked = consent().await;
    assert_eq!(revoked["active"], false);
    assert!(expires(&revoked) > now);

    let end = "2026-12-01T00:00:00Z".parse().unwrap();
    client
        .bank()
        .set_consent_until(&arrangement, ConsentState::Active, Some(end))
        .unwrap();
    let ending = consent().await;
    assert_eq!(
        (&ending["active"], &ending["expires_at"]),
        (&json!(true), &json!("2026-12-01T00:00:00Z"))
    );
    for id in [arrangement.as_str(), "no-such-arrangement"] {
        let gone = client.delete(&format!("/v1/consent/{id}")).await;
        assert_eq!(gone.status(), 204);
    }
    assert_eq!(consent().await["active"], false);
}

#[tokio::test]
async fn a_consent_expires_by_itself() {
    let mut client = client().await;
    client.advance(400 * 86_400);
    client.token = client.fresh_token().await;
    assert!(client.accounts(0).await.is_empty());
    let all = client.json("/v1/consent").await;
    let all = list_of(&all["consents"]);
    assert_eq!(all.len(), 6);
    assert!(all.iter().all(|consent| consent["active"] == false));
}

#[tokio::test]
async fn every_account_has_a_balance() {
    let client = client().await;
    let user = client.credentials(0).0;
    let accounts = client
        .walk(
            &format!("/v1/banking/accounts?end_user_id={user}&page[size]=2"),
            "accounts",
        )
        .await;
    let balances = client
        .walk(
            &format!("/v1/banking/balances?end_user_id={user}&page[size]=4"),
            "balances",
        )
        .await;
    let of = |rows: &[Value]| {
        rows.iter()
            .map(|row| row["account_id"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(accounts.len(), 9);
    assert_eq!(of(&accounts), of(&balances));
    let by = |category: &str| {
        accounts
            .iter()
            .position(|row| row["product_category"] == category)
            .unwrap()
    };
    let card = by("CRED_AND_CHRG_CARDS");
    assert!(accounts[card].get("account_number").is_none() && accounts[card].get("bsb").is_none());
    assert!(text_of(&balances[card]["current_balance"]).starts_with('-'));
    assert!(balances[card].get("credit_limit").is_some());
    assert_eq!(list_of(&balances[by("TRAVEL_CARDS")]["purses"]).len(), 3);
    assert!(accounts.iter().any(|row| row["open_status"] == "CLOSED"));
    for category in [
        "RESIDENTIAL_MORTGAGES",
        "TERM_DEPOSITS",
        "REGULATED_TRUST_ACCOUNTS",
        "TRANS_AND_SAVINGS_ACCOUNTS",
    ] {
        by(category);
    }
    let id = text_of(&accounts[3]["account_id"]);
    let one = client
        .json(&format!(
            "/v1/banking/balances?end_user_id={user}&account_id={id}"
        ))
        .await;
    assert_eq!(ids(list_of(&one["balances"])), ids(&balances[3..4]));
}
