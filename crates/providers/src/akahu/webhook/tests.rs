//! Signatures of keys made here; which keys are fetched, and when; what events are about; subscriptions.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use parking_lot::Mutex;
use proptest::prelude::*;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::json;

use super::*;
use crate::Provider;
use crate::akahu::api::Api;
use crate::akahu::keys::Keys;
use crate::akahu::{NAME, open};
use crate::http::Client;
use crate::peer::{Answered, Peer, answered, call};
use crate::settings::Values;

const BODY: &[u8] =
    br#"{"webhook_type": "ACCOUNT", "webhook_code": "UPDATE", "state": "u1:ACCOUNT", "item_id": "acc_1"}"#;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const SOON: Duration = Duration::from_secs(5);

static FIRST: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate(KeySize::Rsa2048).unwrap());
static SECOND: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate(KeySize::Rsa2048).unwrap());

fn sign(key: &KeyPair, body: &[u8]) -> Vec<u8> {
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), body, &mut signature).unwrap();
    signature
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn served(key: &KeyPair) -> Answered {
    Some((200, json!({"success": true, "item": pem("RSA PUBLIC KEY", key.public_key().as_ref())}).to_string()))
}

/// A provider of keys whose answers can be changed: by number.
struct Akahus {
    peer: Peer,
    api: Api,
    keys: Keys,
    start: Instant,
}

impl Akahus {
    async fn new(key: impl Fn(&str) -> Answered + Send + 'static) -> Self {
        let peer = Peer::new(move |_, asked| key(asked.line.strip_prefix("GET /v1/keys/").unwrap())).await;
        let client = Client::new(NAME, Duration::from_secs(20)).unwrap();
        let base_url = format!("{}/v1", peer.base_url).parse().unwrap();
        let api = Api::new(client, base_url, HeaderValue::from_static("app_token_1"), Some("s".into()));
        Self { peer, api, keys: Keys::default(), start: Instant::now() }
    }

    /// Whether a signature of that key is taken, so long after the start.
    async fn check(&self, after: Duration, id: u64, key: &KeyPair) -> Result<(), Refused> {
        let signature = sign(key, BODY);
        self.keys.check((&self.api, &call()), self.start + after, id, BODY, &signature).await
    }

    fn fetched(&self) -> usize {
        self.peer.lines().len()
    }
}

fn limited(outcome: Result<(), Refused>) -> bool {
    matches!(outcome, Err(Refused::Unchecked(Error::RateLimited { retry_after: Some(wait) })) if wait <= SOON)
}

const EXPIRED: &str = r#"{"success": false, "message": "This key has expired"}"#;

#[tokio::test]
async fn a_key_is_fetched_once_and_kept_for_a_day() {
    let akahu = Akahus::new(|_| served(&FIRST)).await;
    assert_eq!(akahu.check(Duration::ZERO, 7, &FIRST).await, Ok(()));
    assert_eq!(akahu.check(Duration::ZERO, 7, &FIRST).await, Ok(()));
    assert_eq!(akahu.check(Duration::ZERO, 7, &SECOND).await, Err(Refused::Forged));
    assert_eq!(akahu.check(DAY - SOON, 7, &FIRST).await, Ok(()));
    assert_eq!(akahu.fetched(), 1);
    assert_eq!(akahu.peer.asked()[0].header("authorization"), Some("Basic YXBwX3Rva2VuXzE6cw=="));
    assert_eq!(akahu.check(DAY, 7, &FIRST).await, Ok(()));
    assert_eq!(akahu.fetched(), 2);
}

#[tokio::test]
async fn a_newer_key_takes_over_and_an_older_one_is_refused() {
    let akahu = Akahus::new(|id| if id == "7" { served(&FIRST) } else { served(&SECOND) }).await;
    assert_eq!(akahu.check(Duration::ZERO, 7, &FIRST).await, Ok(()));
    assert_eq!(akahu.check(SOON, 8, &SECOND).await, Ok(()));
    assert_eq!(akahu.check(SOON, 7, &FIRST).await, Err(Refused::Forged));
    assert_eq!(akahu.check(SOON, 8, &SECOND).await, Ok(()));
    assert_eq!(akahu.fetched(), 2);
}

#[tokio::test]
async fn a_forged_number_pushes_out_no_good_key() {
    let akahu = Akahus::new(|id| match id {
        "7" => served(&FIRST),
        "8" => served(&SECOND),
        "9" => answered(404, r#"{"success": false}"#),
        _ => answered(400, EXPIRED),
    })
    .await;
    assert_eq!(akahu.check(Duration::ZERO, 7, &FIRST).await, Ok(()));
    for (number, id) in (1..).zip([8, 9, 10, u64::MAX]) {
        assert_eq!(akahu.check(number * SOON, id, &FIRST).await, Err(Refused::Forged), "{id}");
        assert_eq!(akahu.check(number * SOON, 7, &FIRST).await, Ok(()), "{id}");
    }
    assert_eq!(akahu.fetched(), 5);
}

#[tokio::test]
async fn forged_numbers_make_few_calls() {
    let akahu = Akahus::new(|_| answered(404, r#"{"success": false}"#)).await;
    assert_eq!(akahu.check(Duration::ZERO, 1, &FIRST).await, Err(Refused::Forged));
    for id in 0..100 {
        assert!(limited(akahu.check(SOON / 2, id, &FIRST).await));
    }
    assert_eq!(akahu.fetched(), 1);
    assert_eq!(akahu.check(SOON, 2, &FIRST).await, Err(Refused::Forged));
    assert_eq!(akahu.fetched(), 2);
}

#[tokio::test]
async fn events_at_once_fetch_one_key() {
    let akahu = Akahus::new(|_| served(&FIRST)).await;
    let outcomes = futures_util::future::join_all((0..20).map(|_| akahu.check(Duration::ZERO, 7, &FIRST))).await;
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!(akahu.fetched(), 1);
}

#[tokio::test]
async fn a_key_that_is_not_to_be_had_is_asked_for_later() {
    let answers = Arc::new(Mutex::new(None));
    let current = Arc::clone(&answers);
    let akahu = Akahus::new(move |_| current.lock().clone()).await;
    let broken = [
        None,
        answered(503, "{}"),
        answered(401, "{}"),
        answered(404, "<html>"),
        answered(200, "{}"),
        answered(200, r#"{"item": "-----BEGIN RSA PUBLIC KEY-----\nMTIz\n-----END RSA PUBLIC KEY-----"}"#),
        answered(200, r#"{"item": "MTIz"}"#),
    ];
    for (number, answer) in (0..).zip(broken.clone()) {
        *answers.lock() = answer.clone();
        let outcome = akahu.check(number * SOON, 7, &FIRST).await;
        assert!(matches!(outcome, Err(Refused::Unchecked(_))), "{answer:?} {outcome:?}");
    }
    assert_eq!(akahu.fetched(), broken.len(), "each in one attempt");
    *answers.lock() = served(&FIRST);
    assert_eq!(akahu.check(DAY, 7, &FIRST).await, Ok(()));
}

#[tokio::test]
async fn both_forms_of_a_public_key() {
    let spki = AsDer::<aws_lc_rs::encoding::PublicKeyX509Der<'_>>::as_der(FIRST.public_key()).unwrap();
    for pem in [pem("RSA PUBLIC KEY", FIRST.public_key().as_ref()), pem("PUBLIC KEY", spki.as_ref())] {
        let body = json!({"success": true, "item": pem.replace('\n', "\r\n")}).to_string();
        let akahu = Akahus::new(move |_| Some((200, body.clone()))).await;
        assert_eq!(akahu.check(Duration::ZERO, 7, &FIRST).await, Ok(()), "{pem}");
    }
}

fn adapter(peer: &Peer) -> Arc<dyn Provider> {
    let mut values = Values::default();
    values.set("base_url", format!("{}/v1", peer.base_url).into());
    values.set("oauth_url", "https://oauth.akahu.nz".into());
    values.set("app_token", "app_token_1".into());
    values.set("app_secret", "s".into());
    open(&values, Duration::from_secs(20)).unwrap()
}

#[tokio::test]
async fn the_headers_of_an_event() {
    let peer = Peer::new(|_, _| served(&FIRST)).await;
    let akahu = adapter(&peer);
    let read = async |headers: &[(&'static str, &str)], body: &[u8]| {
        let pairs = headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        akahu.notifying().unwrap().read(&call(), &pairs.collect(), body).await
    };
    const KEY: &str = "x-akahu-signing-key";
    const SIGNATURE: &str = "x-akahu-signature";
    let good = STANDARD.encode(sign(&FIRST, BODY));
    let concerns = vec![Concern::Account("acc_1".to_owned()), Concern::Reference("u1".to_owned())];
    let expected = Ok(Notification { id: None, concerns });
    assert_eq!(read(&[(KEY, "7"), (SIGNATURE, &good)], BODY).await, expected);

    let mut flipped = sign(&FIRST, BODY);
    flipped[100] ^= 1;
    let (flipped, other) = (STANDARD.encode(flipped), STANDARD.encode(sign(&SECOND, BODY)));
    for headers in [
        &[][..],
        &[(KEY, "7")],
        &[(SIGNATURE, good.as_str())],
        &[(KEY, "7"), (SIGNATURE, &flipped)],
        &[(KEY, "7"), (SIGNATURE, &other)],
        &[(KEY, "7"), (SIGNATURE, "")],
        &[(KEY, "7"), (SIGNATURE, "***")],
        &[(KEY, ""), (SIGNATURE, &good)],
        &[(KEY, "+7"), (SIGNATURE, &good)],
        &[(KEY, "-7"), (SIGNATURE, &good)],
        &[(KEY, "7/../../me"), (SIGNATURE, &good)],
        &[(KEY, "99999999999999999999"), (SIGNATURE, &good)],
    ] {
        assert_eq!(read(headers, BODY).await, Err(Refused::Forged), "{headers:?}");
    }
    assert_eq!(read(&[(KEY, "7"), (SIGNATURE, &good)], &BODY[..BODY.len() - 1]).await, Err(Refused::Forged));
    assert_eq!(peer.lines(), ["GET /v1/keys/7"]);
}

#[test]
fn what_events_are_about() {
    let account = |id: &str| Concern::Account(id.to_owned());
    let reference = || Concern::Reference("u:1".to_owned());
    for (kind, rest, concerns) in [
        ("ACCOUNT", json!({"webhook_code": "CREATE", "item_id": "acc_1"}), vec![account("acc_1"), reference()]),
        (
            "ACCOUNT",
            json!({"webhook_code": "MIGRATE", "previous_item_id": "acc_1", "new_item_id": "acc_2"}),
            vec![account("acc_1"), account("acc_2"), reference()],
        ),
        (
            "TRANSACTION",
            json!({"item_id": "acc_1", "new_transactions": 2, "new_transaction_ids": ["trans_1"]}),
            vec![account("acc_1"), reference()],
        ),
        ("TOKEN", json!({"webhook_code": "DELETE", "item_id": "user_token_1"}), vec![reference()]),
        ("ACCOUNT", json!({"webhook_code": "WEBHOOK_CANCELLED"}), vec![reference()]),
        ("PAYMENT", json!({"item_id": "payment_1"}), vec![reference()]),
        ("INVENTED", json!({"success": true}), vec![reference()]),
        ("ACCOUNT", json!({"item_id": 5, "new_item_id": ["acc_1"]}), vec![reference()]),
        ("ACCOUNT", json!({"item_id": "acc_1", "state": null}), vec![account("acc_1")]),
        ("ACCOUNT", json!({"state": {}}), vec![]),
        ("ACCOUNT", json!({"state": "plain"}), vec![Concern::Reference("plain".to_owned())]),
    ] {
        let mut event = json!({"webhook_type": kind, "state": format!("u:1:{kind}")});
        event.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        assert_eq!(notification(event.to_string().as_bytes()), Ok(Notification { id: None, concerns }), "{event}");
    }
    let deep = format!(r#"{{"webhook_type": "ACCOUNT", "x": {}"#, "[".repeat(100_000));
    for body in ["", "[]", "{}", "null", r#"{"webhook_type": 5}"#, deep.as_str()] {
        assert_eq!(notification(body.as_bytes()), Err(Refused::Malformed));
    }
}

#[tokio::test]
async fn what_is_missing_is_subscribed_to() {
    let grant = SecretString::from(r#"{"userToken":"user_token_1"}"#);
    let peer = Peer::new(|_, asked| match asked.line.as_str() {
        "GET /v1/webhooks" => answered(
            200,
            r#"{"success": true, "items": [{"_id": "hook_1", "state": "u1:ACCOUNT"}, {"_id": "hook_2"}, {"state": "u2:TOKEN"}]}"#,
        ),
        _ => answered(200, r#"{"success": true, "item_id": "hook_3"}"#),
    })
    .await;
    assert_eq!(adapter(&peer).notifying().unwrap().subscribe(&call(), &grant, "u1").await, Ok(()));
    let asked = peer.asked();
    assert!(asked.iter().all(|asked| asked.header("authorization") == Some("Bearer user_token_1")));
    assert!(asked.iter().all(|asked| asked.header("x-akahu-id") == Some("app_token_1")));
    assert_eq!(peer.lines(), ["GET /v1/webhooks", "POST /v1/webhooks", "POST /v1/webhooks"]);
    assert_eq!(asked[1].json(), json!({"webhook_type": "TOKEN", "state": "u1:TOKEN"}));
    assert_eq!(asked[2].json(), json!({"webhook_type": "TRANSACTION", "state": "u1:TRANSACTION"}));
}

#[tokio::test]
async fn subscribing_that_does_not_work() {
    const REVOKED: Error = Error::ReconnectNeeded(bellbird_domain::ConnectionStatus::Revoked);
    let grant = SecretString::from(r#"{"userToken":"user_token_1"}"#);
    let missing = answered(400, r#"{"success": false, "message": "App is missing webhook url"}"#);
    for (answer, expected, posts) in [
        (missing, Ok(()), 3),
        (answered(401, "{}"), Err(REVOKED), 1),
        (answered(500, "{}"), Err(Error::unavailable("server error")), 1),
        (None, Err(Error::unavailable("connection lost")), 1),
    ] {
        let (given, shown) = (answer.clone(), format!("{answer:?}"));
        let peer = Peer::new(move |_, asked| match asked.line.as_str() {
            "GET /v1/webhooks" => answered(200, r#"{"success": true, "items": []}"#),
            _ => given.clone(),
        })
        .await;
        let outcome = adapter(&peer).notifying().unwrap().subscribe(&call(), &grant, "u1").await;
        assert_eq!(outcome, expected, "{shown}");
        assert_eq!(peer.lines().len(), 1 + posts, "{shown}");
    }
}

proptest! {
    #[test]
    fn no_body_panics(body in any::<Vec<u8>>(), at in 0..BODY.len(), byte in any::<u8>()) {
        let _ = notification(&body);
        let mut near = BODY.to_vec();
        near[at] = byte;
        let _ = notification(&near);
    }
}
