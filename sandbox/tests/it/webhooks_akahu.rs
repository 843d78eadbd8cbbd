//! Akahu's webhooks: subscriptions, events, signing keys and retries.

use std::collections::HashMap;

use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellbird_sandbox::{Bank, ConsentState, WebhookSettings};
use serde_json::{Value, json};

use crate::akahu_client::{Akahu, akahu};
use crate::client::{list_of, text_of};
use crate::receiver::{ReceivedRequest, Receiver, all_done, until};

struct WebhookTest {
    akahu: Akahu,
    receiver: Receiver,
}

/// Subscribes Olivia to these types.
async fn webhook_test(kinds: &[&str]) -> WebhookTest {
    let it = WebhookTest {
        akahu: akahu().await,
        receiver: Receiver::start().await,
    };
    it.bank()
        .set_webhooks(WebhookSettings::to(&it.receiver.url))
        .unwrap();
    for kind in kinds {
        it.subscribe(kind).await;
    }
    it
}

impl WebhookTest {
    fn bank(&self) -> &Bank {
        self.akahu.bank()
    }

    async fn subscribe(&self, kind: &str) -> String {
        let body = json!({"webhook_type": kind, "state": "user 7"});
        let made = self.akahu.post("/webhooks", &body).await;
        text_of(&made.json::<Value>().await.unwrap()["item_id"]).to_owned()
    }

    /// Checks the signature with the key that the request names, in PKCS#1.
    async fn is_signed(&self, got: &ReceivedRequest) -> bool {
        let path = format!("/keys/{}", got.header("x-akahu-signing-key"));
        let answer: Value = self
            .akahu
            .app(&path)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        let pem = text_of(&answer["item"]);
        let lines: String = pem
            .lines()
            .filter(|line| !line.starts_with("-----"))
            .collect();
        let key =
            UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, STANDARD.decode(lines).unwrap());
        let signature = STANDARD.decode(got.header("x-akahu-signature")).unwrap();
        key.verify(&got.body, &signature).is_ok()
    }

    /// Name and body of each received event, without the members that all events share.
    async fn events(&self, count: usize) -> Vec<(String, Value)> {
        let mut events = Vec::new();
        for got in self.receiver.wait(count).await {
            assert!(self.is_signed(&got).await);
            let mut body = got.json();
            assert_eq!(body["state"], "user 7");
            let name = ["webhook_type", "webhook_code"]
                .map(|name| text_of(&body[name]).to_owned())
                .join(":");
            for name in ["webhook_type", "webhook_code", "state", "success"] {
                body.as_object_mut().unwrap().remove(name);
            }
            events.push((name, body));
        }
        events
    }

    fn add_row(&self, account: &str) -> String {
        let row = self.bank().add_row(&json!({"_account": account})).unwrap();
        text_of(&row["_id"]).to_owned()
    }
}

fn event(name: &str, body: Value) -> (String, Value) {
    (name.to_owned(), body)
}

#[tokio::test]
async fn row_events_carry_their_ids() {
    let it = webhook_test(&["TRANSACTION"]).await;
    let account = text_of(&it.akahu.account("CHECKING").await["_id"]).to_owned();
    let row = it.add_row(&account);
    let bank = it.bank();
    bank.change_row(&row, &json!({"description": "LATE"}))
        .unwrap();
    bank.remove_row(&row).unwrap();
    let new = json!({"item_id": account, "new_transactions": 1, "new_transaction_ids": [row]});
    let expected = [
        event("TRANSACTION:DEFAULT_UPDATE", new.clone()),
        event("TRANSACTION:DEFAULT_UPDATE", new),
        event(
            "TRANSACTION:DELETE",
            json!({"item_id": account, "removed_transactions": [row]}),
        ),
    ];
    assert_eq!(it.events(3).await, expected);
    let hooks = it.akahu.json("/webhooks").await;
    until(it.bank(), all_done).await;
    assert_eq!(hooks["items"][0]["url"], it.receiver.url);
    let called = it.akahu.json("/webhooks").await["items"][0]["last_called_at"].clone();
    assert!(called.as_str().unwrap().starts_with("2026-11-21T01:3"));
}

#[tokio::test]
async fn account_changes_send_events() {
    let it = webhook_test(&["ACCOUNT", "TRANSACTION"]).await;
    let login = it.akahu.credentials(0).1;
    let count = it
        .akahu
        .accounts()
        .await
        .iter()
        .filter(|one| one["_authorisation"] == login.as_str())
        .count();
    let state = |state| {
        it.bank().set_consent(&login, state).unwrap();
    };
    state(ConsentState::Expired);
    let broken = it.events(count).await;
    assert!(broken.iter().all(
        |(name, body)| name == "ACCOUNT:UPDATE" && body["updated_fields"] == json!(["status"])
    ));
    it.receiver.clear();
    state(ConsentState::Revoked);
    let gone = it.events(count).await;
    assert!(gone.iter().all(|(name, _)| name == "ACCOUNT:DELETE"));
    it.receiver.clear();
    state(ConsentState::Active);
    let with_rows = it.akahu.accounts().await;
    let mut rows = HashMap::new();
    for account in with_rows
        .iter()
        .filter(|one| one["_authorisation"] == login.as_str())
    {
        let id = text_of(&account["_id"]).to_owned();
        let all = it
            .akahu
            .rows(&format!("/accounts/{id}/transactions"))
            .await
            .len();
        rows.insert(id, all);
    }
    let filled = rows.values().filter(|count| **count > 0).count();
    assert!(filled > 3);
    let restored = it.events(count + filled).await;
    for (name, body) in restored {
        let id = text_of(&body["item_id"]);
        if name == "TRANSACTION:INITIAL_UPDATE" {
            assert_eq!(body["new_transactions"], rows[id]);
            assert_eq!(list_of(&body["new_transaction_ids"]).len(), rows[id]);
        } else {
            assert_eq!(
                (name.as_str(), rows.contains_key(id)),
                ("ACCOUNT:CREATE", true)
            );
        }
    }
    it.receiver.clear();
    let account = text_of(&with_rows[0]["_id"]);
    let patch = json!({"balance": {"currency": "NZD", "current": 1}, "name": "New name"});
    it.bank().change_account(account, &patch).unwrap();
    it.akahu.advance(3 * 86_400);
    it.akahu.accounts().await;
    let made = json!({"userToken": it.akahu.token, "authorisation": login});
    let made = it.bank().add_account(&made).unwrap();
    let expected = [
        event(
            "ACCOUNT:UPDATE",
            json!({"item_id": account, "updated_fields": ["balance", "name"]}),
        ),
        event("ACCOUNT:CREATE", json!({"item_id": made["_id"]})),
    ];
    assert_eq!(
        it.events(2).await,
        expected,
        "the passage of days sends no event"
    );
}

#[tokio::test]
async fn revoked_token_cancels_its_subscriptions() {
    let it = webhook_test(&["TOKEN", "ACCOUNT"]).await;
    // Another user's token sends no event here.
    let spare = it.akahu.credentials(2).0;
    it.bank().set_user(&spare, false).unwrap();
    let token = it.akahu.token.clone();
    it.bank().set_user(&token, false).unwrap();
    let expected = [
        event("TOKEN:DELETE", json!({"item_id": token})),
        event("TOKEN:WEBHOOK_CANCELLED", json!({})),
        event("ACCOUNT:WEBHOOK_CANCELLED", json!({})),
    ];
    assert_eq!(it.events(3).await, expected);
    it.bank().set_user(&token, true).unwrap();
    assert_eq!(it.akahu.json("/webhooks").await["items"], json!([]));
    // A new consent that replaces the token sends the same event.
    it.subscribe("TOKEN").await;
    it.receiver.clear();
    it.bank().set_options(&json!({"newToken": true})).unwrap();
    let code = it.akahu.consent("").await.remove(0).1;
    let (status, issued) = it.akahu.token(&it.akahu.exchange(&code)).await;
    assert_eq!(status, 200);
    assert_ne!(issued["access_token"], token.as_str());
    assert_eq!(
        it.events(1).await,
        [event("TOKEN:DELETE", json!({"item_id": token}))]
    );
}

#[tokio::test]
async fn deliveries_have_a_state_and_are_retried() {
    let it = webhook_test(&["TRANSACTION"]).await;
    let account = text_of(&it.akahu.account("CHECKING").await["_id"]).to_owned();
    // Akahu accepts 200 only: 204 is a failure.
    it.receiver.answer(&[204, 0]);
    it.add_row(&account);
    until(it.bank(), |all| all[0]["state"] == "retry").await;
    it.akahu.advance(60);
    it.receiver.wait(2).await;
    it.akahu.advance(6);
    until(it.bank(), |all| all[0]["statuses"] == json!([204, null])).await;
    it.akahu.advance(300);
    until(it.bank(), all_done).await;
    let got = it.receiver.wait(3).await;
    assert!(got.iter().all(|one| one.body == got[0].body));
    it.receiver.answer(&[500; 7]);
    it.add_row(&account);
    for (attempt, seconds) in [60, 300, 1800, 7200, 21_600, 57_600]
        .into_iter()
        .enumerate()
    {
        until(it.bank(), |all| all[1]["attempts"] == attempt + 1).await;
        it.akahu.advance(seconds);
    }
    let states: Vec<Value> = until(it.bank(), all_done)
        .await
        .iter()
        .map(|delivery| delivery["state"].clone())
        .collect();
    assert_eq!(states, ["sent", "failed"]);
}
