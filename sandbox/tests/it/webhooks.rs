//! Fiskil's webhooks, and what all providers share: retries, duplicates, replays and bad receivers.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellbird_sandbox::{Bank, ConsentState, Sign, WebhookSettings};
use serde_json::{Value, json};

use crate::client::{Client, client, list_of, text_of};
use crate::receiver::{ReceivedRequest, Receiver, all_done, until};

struct WebhookTest {
    client: Client,
    receiver: Receiver,
}

async fn webhook_test() -> WebhookTest {
    let test = WebhookTest {
        client: client().await,
        receiver: Receiver::start().await,
    };
    test.set(WebhookSettings::to(&test.receiver.url));
    test
}

impl WebhookTest {
    fn bank(&self) -> &Bank {
        self.client.bank()
    }

    fn set(&self, settings: WebhookSettings) {
        self.bank().set_webhooks(settings).unwrap();
    }

    async fn until(&self, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        until(self.bank(), holds).await
    }

    fn send(&self, name: &str, fields: Value) -> u64 {
        self.bank().send_event(name, &fields).unwrap()
    }

    /// Checks the signature as Fiskil's Go sample does.
    fn is_signed(&self, got: &ReceivedRequest) -> bool {
        let secret = STANDARD
            .decode(&self.client.description().fiskil.webhook_secret)
            .unwrap();
        let tag = STANDARD.decode(got.header("x-fiskil-signature")).unwrap();
        hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &secret), &got.body, &tag).is_ok()
    }

    async fn events(&self, count: usize) -> Vec<String> {
        let got = self.receiver.wait(count).await;
        assert!(got.iter().all(|got| self.is_signed(got)));
        got.iter()
            .map(|got| text_of(&got.json()["data"]["event"]).to_owned())
            .collect()
    }

    /// Consents through the hosted page, without its forms.
    async fn link(&self) -> String {
        let user = self.client.credentials(0).0;
        let body = json!({
            "end_user_id": user, "institution_id": "88888", "redirect_uri": "http://127.0.0.1:1/done",
            "cancel_uri": "http://127.0.0.1:1/cancelled",
        });
        let session = self.client.post("/v1/auth/session", &body).await;
        let session: Value = session.json().await.unwrap();
        let url = format!("{}&sandbox_auto=accept", text_of(&session["auth_url"]));
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap();
        assert_eq!(http.get(url).send().await.unwrap().status(), 303);
        user
    }
}

#[tokio::test]
async fn consent_and_its_data_send_events() {
    let it = webhook_test().await;
    let user = it.link().await;
    let names = [
        "consent.received",
        "banking.accounts.sync.completed",
        "banking.balances.sync.completed",
        "banking.transactions.recent.sync.completed",
        "banking.transactions.basic.sync.completed",
        "banking.transactions.sync.completed",
    ];
    assert_eq!(it.events(6).await, names);
    let got = it.receiver.wait(6).await;
    let first = got[0].json();
    let mut members: Vec<&String> = first.as_object().unwrap().keys().collect();
    members.sort();
    assert_eq!(
        members,
        ["data", "delivery_attempt", "message_id", "publish_time"]
    );
    assert_eq!(
        (
            &first["delivery_attempt"],
            text_of(&first["message_id"]).len()
        ),
        (&json!(1), 16)
    );
    assert!(text_of(&first["publish_time"]).starts_with("2026-11-21T01:3"));
    assert_eq!(got[0].header("content-type"), "application/json");
    let data = &first["data"];
    assert_eq!(
        (&data["end_user_id"], &data["institution_id"]),
        (&json!(user), &json!("88888"))
    );
    assert_eq!(data["client_id"], it.client.description().fiskil.client_id);
    assert!(data.get("account_ids").is_none());
    let consents = it
        .client
        .json(&format!("/v1/consent?end_user_id={user}"))
        .await;
    let consents = list_of(&consents["consents"]);
    let consent = consents
        .iter()
        .find(|consent| consent["arrangement_id"] == data["consent_id"])
        .unwrap();
    assert_eq!(got[1].json()["data"]["account_ids"], consent["account_ids"]);
}

#[tokio::test]
async fn lagging_data_sends_events_when_available() {
    let it = webhook_test().await;
    it.bank().set_options(&json!({"lagSeconds": 60})).unwrap();
    it.link().await;
    assert_eq!(it.events(1).await, ["consent.received"]);
    it.until(all_done).await;
    it.client.advance(61);
    let events = it.events(6).await;
    assert_eq!(events[1], "banking.accounts.sync.completed");
    assert_eq!(events[3], "banking.transactions.recent.sync.completed");
}

#[tokio::test]
async fn ended_and_restored_consents_send_events() {
    let it = webhook_test().await;
    let (_, consent) = it.client.credentials(1);
    for state in [
        ConsentState::Revoked,
        ConsentState::Active,
        ConsentState::Expired,
    ] {
        it.bank().set_consent(&consent, state).unwrap();
    }
    let events = it.events(7).await;
    assert_eq!(
        (&*events[0], &*events[1], &*events[6]),
        ("consent.revoked", "consent.updated", "consent.revoked")
    );
    assert!(
        events[2..6]
            .iter()
            .all(|name| name.ends_with(".sync.completed"))
    );
    // A consent that the client revokes sends an event. The other three expire by themselves.
    it.receiver.clear();
    it.client
        .delete(&format!("/v1/consent/{}", it.client.credentials(0).1))
        .await;
    assert_eq!(it.events(1).await, ["consent.revoked"]);
    it.receiver.clear();
    it.client.advance(400 * 86_400);
    assert_eq!(it.events(3).await, ["consent.revoked"; 3]);
}

#[tokio::test]
async fn changed_data_sends_events() {
    let it = webhook_test().await;
    let account = it.client.accounts(0).await[0]["account_id"].clone();
    let row = it.bank().add_row(&json!({"account_id": account})).unwrap();
    let row = text_of(&row["fiskil_id"]);
    it.bank()
        .change_row(row, &json!({"amount": "-1.00"}))
        .unwrap();
    it.bank().remove_row(row).unwrap();
    let id = account.as_str().unwrap();
    it.bank()
        .set_balance(id, &json!({"current_balance": "1.00"}))
        .unwrap();
    it.bank()
        .change_account(id, &json!({"nickname": "New"}))
        .unwrap();
    let rows = "banking.transactions.sync.completed";
    let expected = [
        rows,
        rows,
        rows,
        "banking.balances.sync.completed",
        "banking.accounts.sync.completed",
    ];
    assert_eq!(it.events(5).await, expected);
    for got in it.receiver.wait(5).await {
        assert_eq!(got.json()["data"]["account_ids"], json!([account]));
    }
    // A read sends no event.
    it.client.accounts(0).await;
    assert_eq!(it.receiver.count(), 5);
}

#[tokio::test]
async fn failed_deliveries_are_retried_then_fail() {
    let it = webhook_test().await;
    it.receiver.answer(&[500, 302, 404, 503, 500]);
    it.send("consent.received", json!({"consent_id": "a"}));
    for (attempt, seconds) in [60, 180, 360, 600].into_iter().enumerate() {
        let open = it.until(|all| all[0]["attempts"] == attempt + 1).await;
        assert_eq!(open[0]["state"], "retry");
        assert!(open[0]["nextAttemptAt"].is_string());
        it.client.advance(seconds - 30);
        assert_eq!(it.receiver.count(), attempt + 1, "not yet");
        it.client.advance(31);
        it.receiver.wait(attempt + 2).await;
    }
    let done = it.until(all_done).await;
    let shown = (
        &done[0]["state"],
        &done[0]["attempts"],
        &done[0]["statuses"],
    );
    assert_eq!(
        shown,
        (
            &json!("failed"),
            &json!(5),
            &json!([500, 302, 404, 503, 500])
        )
    );
    it.client.advance(86_400);
    it.send("consent.updated", json!({}));
    let got = it.receiver.wait(6).await;
    assert_eq!(
        got[5].json()["data"]["event"],
        "consent.updated",
        "the failed event is not sent again"
    );
    let bodies: Vec<Value> = got[..5].iter().map(ReceivedRequest::json).collect();
    assert!(got.iter().all(|got| it.is_signed(got)));
    assert!(
        bodies
            .iter()
            .all(|body| body["message_id"] == bodies[0]["message_id"])
    );
    assert!(
        bodies
            .iter()
            .all(|body| body["publish_time"] == bodies[0]["publish_time"])
    );
    let attempts: Vec<&Value> = bodies
        .iter()
        .map(|body| &body["delivery_attempt"])
        .collect();
    assert_eq!(attempts, [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn deliveries_can_be_repeated_or_missigned() {
    let it = webhook_test().await;
    it.set(WebhookSettings {
        copies: Some(3),
        ..WebhookSettings::default()
    });
    let first = it.send("consent.received", json!({"consent_id": "a"}));
    let got = it.receiver.wait(3).await;
    assert!(
        got.iter()
            .all(|one| one.body == got[0].body && it.is_signed(one))
    );
    it.set(WebhookSettings {
        copies: Some(1),
        ..WebhookSettings::default()
    });
    it.send(
        "weather.changed",
        json!({"city": "Sydney", "client_id": null}),
    );
    let odd = it.receiver.wait(4).await[3].json();
    assert_eq!(
        (&odd["data"]["event"], &odd["data"]["city"]),
        (&json!("weather.changed"), &json!("Sydney"))
    );
    assert!(odd["data"].as_object().unwrap()["client_id"].is_null());
    it.set(WebhookSettings {
        sign: Some(Sign::Wrong),
        ..WebhookSettings::default()
    });
    it.send("consent.updated", json!({}));
    assert!(!it.is_signed(&it.receiver.wait(5).await[4]));
    let list = it.until(all_done).await;
    let states: Vec<&str> = list.iter().map(|one| text_of(&one["state"])).collect();
    assert_eq!(states, ["sent", "sent", "sent", "sent", "sent"]);
    assert_eq!(
        (&list[0]["repeats"], &list[2]["repeats"]),
        (&Value::Null, &json!(first))
    );
    // A replay sends the same bytes with the correct signature.
    it.bank().resend(first).unwrap();
    let replay = it.receiver.wait(6).await.remove(5);
    assert_eq!(
        (&replay.body, replay.header("x-fiskil-signature")),
        (&got[0].body, got[0].header("x-fiskil-signature"))
    );
}

/// It has no bytes that could be sent again, so it is retried as any other.
#[tokio::test]
async fn delivery_without_an_attempt_is_resent_as_new() {
    let it = webhook_test().await;
    // The first hangs, so that the others wait behind it. One more attempt fails.
    it.receiver.answer(&[0, 200, 500]);
    let first = it.send("consent.received", json!({"consent_id": "a"}));
    it.receiver.wait(1).await;
    let waiting = it.send("consent.updated", json!({"consent_id": "b"}));
    let again = it.bank().resend(waiting).unwrap();
    it.client.advance(10);
    let of = |all: &[Value], id: u64| all.iter().find(|one| one["id"] == id).cloned().unwrap();
    let list = it
        .until(|all| of(all, again)["attempts"] == 1 && of(all, first)["attempts"] == 1)
        .await;
    let again = of(&list, again);
    assert_eq!(
        (&again["state"], &again["repeats"]),
        (&json!("retry"), &json!(waiting))
    );
    assert_eq!(of(&list, waiting)["state"], "sent");
    let got = it.receiver.wait(3).await;
    assert_eq!(got[1].body, got[2].body);
    assert!(it.is_signed(&got[2]));
}
