//! SnapTrade's webhooks: events, signature and retries.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellbird_sandbox::{Bank, ConsentState, WebhookSettings};
use serde_json::{Value, json};

use crate::client::text_of;
use crate::receiver::{ReceivedRequest, Receiver, all_done, until};
use crate::snaptrade_client::{Client, client};

struct WebhookTest {
    client: Client,
    receiver: Receiver,
}

async fn webhook_test() -> WebhookTest {
    let it = WebhookTest {
        client: client().await,
        receiver: Receiver::start().await,
    };
    it.bank()
        .set_webhooks(WebhookSettings::to(&it.receiver.url))
        .unwrap();
    it
}

impl WebhookTest {
    fn bank(&self) -> &Bank {
        self.client.bank()
    }

    /// Checks the signature as SnapTrade's Python sample does. It works for ASCII bodies only,
    /// because serde_json sorts members but does not escape letters.
    fn is_signed(&self, got: &ReceivedRequest) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.client.consumer_key.as_bytes());
        let tag = STANDARD.decode(got.header("signature")).unwrap();
        hmac::verify(&key, got.json().to_string().as_bytes(), &tag).is_ok()
    }

    async fn bodies(&self, count: usize) -> Vec<Value> {
        let got = self.receiver.wait(count).await;
        assert!(got.iter().all(|got| self.is_signed(got)));
        got.iter().map(ReceivedRequest::json).collect()
    }

    async fn events(&self, count: usize) -> Vec<String> {
        let bodies = self.bodies(count).await;
        bodies
            .iter()
            .map(|body| text_of(&body["eventType"]).to_owned())
            .collect()
    }

    fn consent(&self, id: &str, state: ConsentState) {
        self.bank().set_consent(id, state).unwrap();
    }
}

#[tokio::test]
async fn user_and_connection_changes_send_events() {
    let mut it = webhook_test().await;
    let made = it.client.register("new-user").await.ok();
    let secret = text_of(&made["userSecret"]);
    it.client.user = format!("userId=new-user&userSecret={secret}&");
    let body = json!({"broker": "SANDBOX", "customRedirect": "http://127.0.0.1:1/done"});
    let link = it.client.login(body.clone()).await.ok();
    let follow = async |link: &Value| {
        let url = format!("{}&sandbox_auto=accept", text_of(&link["redirectURI"]));
        let answer = it.client.http.get(url).send().await.unwrap();
        answer.headers()["location"].to_str().unwrap().to_owned()
    };
    let location = follow(&link).await;
    let id = location.split("connection_id=").nth(1).unwrap().to_owned();
    let expected = [
        "USER_REGISTERED",
        "CONNECTION_ADDED",
        "ACCOUNT_HOLDINGS_UPDATED",
        "ACCOUNT_TRANSACTIONS_INITIAL_UPDATE",
        "ACCOUNT_HOLDINGS_UPDATED",
        "ACCOUNT_TRANSACTIONS_INITIAL_UPDATE",
    ];
    assert_eq!(it.events(6).await, expected);
    let bodies = it.bodies(6).await;
    for body in &bodies {
        assert_eq!(
            (&body["userId"], &body["clientId"]),
            (&json!("new-user"), &json!(it.client.client_id))
        );
        assert!(body["webhookId"].is_string() && body["webhookSecret"].is_string());
        let at = text_of(&body["eventTimestamp"]);
        assert!(
            at.starts_with("2026-11-21T01:3") && at.ends_with("+00:00") && at.len() == 32,
            "{at}"
        );
    }
    let connections = it.client.ok("/authorizations").await;
    assert_eq!(bodies[1]["brokerageAuthorizationId"], connections[0]["id"]);
    assert_eq!(bodies[1]["brokerageId"], connections[0]["brokerage"]["id"]);
    let accounts = it.client.accounts().await;
    assert_eq!(bodies[2]["accountId"], accounts[0]["id"]);
    assert_eq!(
        bodies[2]["details"]["positions"],
        json!({"success": true, "error": null})
    );
    assert!(bodies[0].get("brokerageAuthorizationId").is_none());
    it.receiver.clear();
    let link = it.client.login(body).await.ok();
    follow(&link).await;
    it.consent(&id, ConsentState::Expired);
    it.consent(&id, ConsentState::Active);
    it.bank()
        .add_account(&json!({"authorizationId": id}))
        .unwrap();
    it.client.delete(&format!("/connection/{id}")).await.ok();
    it.client.advance(2);
    it.client.delete_user("new-user").await.ok();
    it.client.advance(2);
    let expected = [
        "CONNECTION_UPDATED",
        "CONNECTION_BROKEN",
        "CONNECTION_FIXED",
        "NEW_ACCOUNT_AVAILABLE",
        "ACCOUNT_HOLDINGS_UPDATED",
        "ACCOUNT_TRANSACTIONS_INITIAL_UPDATE",
        "CONNECTION_DELETED",
        "USER_DELETED",
    ];
    assert_eq!(it.events(8).await, expected);
}

#[tokio::test]
async fn changed_data_sends_events() {
    let it = webhook_test().await;
    let account = it.client.account("Bluegum Individual Margin").await;
    let trade = it.bank().add_row(&json!({"account": account})).unwrap();
    let trade = text_of(&trade["id"]);
    it.bank().change_row(trade, &json!({"units": 2})).unwrap();
    it.bank().remove_row(trade).unwrap();
    it.bank()
        .add_position(&json!({"account": account}))
        .unwrap();
    it.bank().set_balance(&account, &json!([])).unwrap();
    let bodies = it.bodies(5).await;
    let trades = ["ACCOUNT_TRANSACTIONS_UPDATED"; 3];
    assert_eq!(
        it.events(5).await,
        [&trades[..], &["ACCOUNT_HOLDINGS_UPDATED"; 2]].concat()
    );
    assert!(bodies.iter().all(|body| body["accountId"] == account));
    it.receiver.clear();
    let connection = it.client.credentials().remove(0).2;
    let count = it
        .client
        .ok(&format!("/authorizations/{connection}/accounts"))
        .await
        .as_array()
        .unwrap()
        .len();
    it.client
        .post(&format!("/authorizations/{connection}/refresh"))
        .await
        .ok();
    it.consent(&connection, ConsentState::Expired);
    let events = it.events(count + 1).await;
    assert!(
        events[..count]
            .iter()
            .all(|name| name == "ACCOUNT_HOLDINGS_UPDATED")
    );
    assert_eq!(events[count], "CONNECTION_BROKEN");
}

#[tokio::test]
async fn failed_deliveries_are_retried_three_times() {
    let it = webhook_test().await;
    it.receiver.answer(&[500, 206, 400, 301]);
    let event = json!({"userId": "user-1", "details": {"b": "é", "a": [1, null]}});
    let bank = it.bank();
    bank.send_event("WEATHER_CHANGED", &event).unwrap();
    for (attempt, seconds) in [1800, 3600, 7200].into_iter().enumerate() {
        until(bank, |all| all[0]["attempts"] == attempt + 1).await;
        it.client.advance(seconds);
    }
    let done = until(bank, all_done).await;
    assert_eq!(
        (&done[0]["state"], &done[0]["statuses"]),
        (&json!("failed"), &json!([500, 206, 400, 301]))
    );
    let got = it.receiver.wait(4).await;
    assert!(
        got.iter().all(|one| one.body == got[0].body),
        "a retry keeps the time of the event"
    );
    assert_eq!(got[0].json()["details"], json!({"a": [1, null], "b": "é"}));
    // A letter beyond ASCII is signed in escaped form, as Python writes it.
    assert!(!it.is_signed(&got[0]));
    let key = hmac::Key::new(hmac::HMAC_SHA256, it.client.consumer_key.as_bytes());
    let escaped = got[0].json().to_string().replace('é', "\\u00e9");
    hmac::verify(
        &key,
        escaped.as_bytes(),
        &STANDARD.decode(got[0].header("signature")).unwrap(),
    )
    .unwrap();
    it.receiver.answer(&[204]);
    bank.send_event("USER_DELETED", &json!({"userId": "user-1"}))
        .unwrap();
    assert_eq!(until(bank, all_done).await[1]["state"], "sent");
}
