//! Tests of signatures with generated keys, of key fetches, of events and of subscriptions.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use bellbird_domain::table::table;
use hyper::header::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::akahu::NAME;
use crate::akahu::api::Api;
use crate::akahu::keys::Keys;
use crate::akahu::tests::akahu;
use crate::http::Client;
use crate::test_support::{MockResponse, Peer, context, mock_response};

const BODY: &[u8] =
    br#"{"webhook_type": "ACCOUNT", "webhook_code": "UPDATE", "state": "u1:ACCOUNT", "item_id": "acc_1"}"#;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
const RESPONSE_INTERVAL: Duration = Duration::from_secs(600);

static FIRST: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate(KeySize::Rsa2048).unwrap());
static SECOND: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate(KeySize::Rsa2048).unwrap());

fn sign(key: &KeyPair, body: &[u8]) -> Vec<u8> {
    let (mut signature, random) = (vec![0; key.public_modulus_len()], SystemRandom::new());
    let signed = key.sign(&RSA_PKCS1_SHA256, &random, body, &mut signature);
    signed.unwrap();
    signature
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines = text.as_bytes().chunks(64);
    let lines: Vec<&str> = lines
        .map(|line| std::str::from_utf8(line).unwrap())
        .collect();
    let text = lines.join("\n");
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

fn key_response(key: &KeyPair) -> MockResponse {
    let pem = pem("RSA PUBLIC KEY", key.public_key().as_ref());
    Some((200, json!({"success": true, "item": pem}).to_string()))
}

/// A mock provider of signing keys. `key` maps a key id to the response.
struct KeyServer {
    peer: Peer,
    api: Api,
    keys: Keys,
    start: Instant,
}

impl KeyServer {
    async fn new(key: impl Fn(&str) -> MockResponse + Send + 'static) -> Self {
        let peer =
            Peer::new(move |_, recorded| key(recorded.line.strip_prefix("GET /v1/keys/").unwrap()))
                .await;
        let client = Client::new(NAME, crate::test_support::client_settings(20)).unwrap();
        let base_url = format!("{}/v1", peer.base_url).parse().unwrap();
        let api = Api::new(
            client,
            base_url,
            HeaderValue::from_static("app_token_1"),
            Some("s".into()),
        );
        Self {
            peer,
            api,
            keys: Keys::default(),
            start: Instant::now(),
        }
    }

    /// Checks a signature by `key` at the time `after` since the start.
    async fn check(&self, after: Duration, id: u64, key: &KeyPair) -> Result<(), Rejection> {
        let (context, at, signature) = (context(), self.start + after, sign(key, BODY));
        let call = (&self.api, &context);
        self.keys.check(call, at, id, BODY, &signature).await
    }

    async fn assert_forged(&self, after: Duration, id: u64, key: &KeyPair) {
        let outcome = self.check(after, id, key).await;
        assert_eq!(outcome, Err(Rejection::Forged), "{id}");
    }

    fn fetches(&self) -> usize {
        self.peer.lines().len()
    }
}

const EXPIRED: &str = r#"{"success": false, "message": "This key has expired"}"#;

#[tokio::test]
async fn a_key_is_fetched_once_and_kept_for_a_day() {
    let akahu = KeyServer::new(|_| key_response(&FIRST)).await;
    assert_eq!(akahu.check(Duration::ZERO, 7, &FIRST).await, Ok(()));
    assert_eq!(akahu.check(Duration::ZERO, 7, &FIRST).await, Ok(()));
    akahu.assert_forged(Duration::ZERO, 7, &SECOND).await;
    assert_eq!(akahu.check(DAY - RETRY_INTERVAL, 7, &FIRST).await, Ok(()));
    assert_eq!(akahu.fetches(), 1);
    let recorded = akahu.peer.recorded();
    let basic = "Basic YXBwX3Rva2VuXzE6cw==";
    assert_eq!(recorded[0].header("authorization"), Some(basic));
    assert_eq!(akahu.check(DAY, 7, &FIRST).await, Ok(()));
    assert_eq!(akahu.fetches(), 2);
}

#[tokio::test]
async fn newer_key_replaces_an_older_one() {
    let akahu = KeyServer::new(|id| {
        if id == "7" {
            key_response(&FIRST)
        } else {
            key_response(&SECOND)
        }
    })
    .await;
    assert_eq!(akahu.check(Duration::ZERO, 7, &FIRST).await, Ok(()));
    assert_eq!(akahu.check(Duration::ZERO, 8, &SECOND).await, Ok(()));
    akahu.assert_forged(Duration::ZERO, 7, &FIRST).await;
    assert_eq!(akahu.check(Duration::ZERO, 8, &SECOND).await, Ok(()));
    assert_eq!(akahu.fetches(), 2);
}

#[tokio::test]
async fn forged_key_ids_keep_the_good_key() {
    let akahu = KeyServer::new(|id| match id {
        "7" => key_response(&FIRST),
        "8" => key_response(&SECOND),
        "9" => mock_response(404, r#"{"success": false}"#),
        _ => mock_response(400, EXPIRED),
    })
    .await;
    assert_eq!(akahu.check(Duration::ZERO, 7, &FIRST).await, Ok(()));
    for id in [8, 9, 10, 16, u64::MAX] {
        akahu.assert_forged(Duration::ZERO, id, &FIRST).await;
        assert_eq!(akahu.check(Duration::ZERO, 7, &FIRST).await, Ok(()), "{id}");
    }
    let fetched = ["7", "8", "9", "10"].map(|id| format!("GET /v1/keys/{id}"));
    assert_eq!(akahu.peer.lines(), fetched);
    // The early fetch of the next key does not keep its first event out.
    assert_eq!(akahu.check(Duration::ZERO, 8, &SECOND).await, Ok(()));
}

#[tokio::test]
async fn a_number_is_fetched_once_in_ten_minutes() {
    let akahu = KeyServer::new(|_| mock_response(404, r#"{"success": false}"#)).await;
    let just_before = RESPONSE_INTERVAL.saturating_sub(Duration::from_millis(1));
    akahu.assert_forged(Duration::ZERO, 9, &FIRST).await;
    for after in [Duration::ZERO, Duration::from_secs(60), just_before] {
        let outcome = akahu.check(after, 9, &FIRST).await;
        let Err(Rejection::Unchecked(Error::RateLimited { .. })) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(akahu.fetches(), 1);
    }
    akahu.assert_forged(RESPONSE_INTERVAL, 9, &FIRST).await;
    assert_eq!(akahu.fetches(), 2);
}

#[tokio::test]
async fn forged_events_cannot_keep_the_key_in_use_out() {
    let akahu = KeyServer::new(|id| match id {
        "7" => key_response(&FIRST),
        "8" | "9" => mock_response(404, r#"{"success": false}"#),
        _ => mock_response(400, EXPIRED),
    })
    .await;
    let (keys, context) = (&akahu.keys, context());
    let first = keys.find_first(&akahu.api, &context, akahu.start).await;
    assert_eq!(first, Ok(()));
    let found = akahu.fetches();
    for id in 0..1_000_u64 {
        akahu
            .assert_forged(Duration::ZERO, 9_000 + id, &SECOND)
            .await;
    }
    assert_eq!(akahu.fetches(), found, "no forged number is fetched");
    assert_eq!(akahu.check(Duration::ZERO, 7, &FIRST).await, Ok(()));
    assert_eq!(akahu.fetches(), found, "the key was fetched before");
}

#[tokio::test]
async fn numbers_before_the_first_key_is_known_are_bounded() {
    let akahu = KeyServer::new(|_| mock_response(404, r#"{"success": false}"#)).await;
    for id in 0..200 {
        let outcome = akahu.check(Duration::ZERO, id, &FIRST).await;
        assert!(
            matches!(outcome, Err(Rejection::Forged | Rejection::Unchecked(_))),
            "{outcome:?}"
        );
    }
    assert_eq!(akahu.fetches(), 32);
    let later = akahu.check(RESPONSE_INTERVAL, 500, &FIRST).await;
    later.unwrap_err();
    assert_eq!(akahu.fetches(), 33, "what is old makes room");
}

#[tokio::test]
async fn concurrent_events_fetch_one_key() {
    let akahu = KeyServer::new(|_| key_response(&FIRST)).await;
    let outcomes =
        futures_util::future::join_all((0..20).map(|_| akahu.check(Duration::ZERO, 7, &FIRST)))
            .await;
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!(akahu.fetches(), 1);
}

#[tokio::test]
async fn unavailable_key_is_fetched_later() {
    let answers = Arc::new(Mutex::new(None));
    let current = Arc::clone(&answers);
    let akahu = KeyServer::new(move |_| current.lock().clone()).await;
    let broken = [
        None,
        mock_response(503, "{}"),
        mock_response(401, "{}"),
        mock_response(404, "<html>"),
        mock_response(200, "{}"),
        mock_response(
            200,
            r#"{"item": "-----BEGIN RSA PUBLIC KEY-----\nMTIz\n-----END RSA PUBLIC KEY-----"}"#,
        ),
        mock_response(200, r#"{"item": "MTIz"}"#),
    ];
    for (number, answer) in (0..).zip(broken.clone()) {
        *answers.lock() = answer.clone();
        let outcome = akahu.check(number * RETRY_INTERVAL, 7, &FIRST).await;
        assert!(
            matches!(outcome, Err(Rejection::Unchecked(_))),
            "{answer:?} {outcome:?}"
        );
    }
    assert_eq!(akahu.fetches(), broken.len(), "each in one attempt");
    *answers.lock() = key_response(&FIRST);
    assert_eq!(akahu.check(DAY, 7, &FIRST).await, Ok(()));
}

#[tokio::test]
async fn pkcs1_and_spki_keys_are_parsed() {
    let spki =
        AsDer::<aws_lc_rs::encoding::PublicKeyX509Der<'_>>::as_der(FIRST.public_key()).unwrap();
    for pem in [
        pem("RSA PUBLIC KEY", FIRST.public_key().as_ref()),
        pem("PUBLIC KEY", spki.as_ref()),
    ] {
        let body = json!({"success": true, "item": pem.replace('\n', "\r\n")}).to_string();
        let akahu = KeyServer::new(move |_| Some((200, body.clone()))).await;
        let outcome = akahu.check(Duration::ZERO, 7, &FIRST).await;
        assert_eq!(outcome, Ok(()), "{pem}");
    }
}

#[tokio::test]
async fn event_headers_are_checked() {
    let peer = Peer::answering(key_response(&FIRST)).await;
    let akahu = akahu(&peer.base_url, Some("s"));
    let read = async |headers: &[(&'static str, &str)], body: &[u8]| {
        let pairs = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        let verifier = akahu.webhook_verifier().unwrap();
        verifier.verify(&context(), &pairs.collect(), body).await
    };
    const KEY: &str = "x-akahu-signing-key";
    const SIGNATURE: &str = "x-akahu-signature";
    let good = STANDARD.encode(sign(&FIRST, BODY));
    let affected = vec![
        AffectedResource::Account("acc_1".to_owned()),
        AffectedResource::Reference("u1".to_owned()),
    ];
    let expected = Ok(ProviderEvent {
        id: None,
        affected,
        removed: None,
    });
    let signed = [(KEY, "7"), (SIGNATURE, good.as_str())];
    assert_eq!(read(&signed, BODY).await, expected);

    let mut flipped = sign(&FIRST, BODY);
    flipped[100] ^= 1;
    let [flipped, other] = [flipped, sign(&SECOND, BODY)].map(|bytes| STANDARD.encode(bytes));
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
        let outcome = read(headers, BODY).await;
        assert_eq!(outcome, Err(Rejection::Forged), "{headers:?}");
    }
    let of_shorter = read(&signed, &BODY[..BODY.len() - 1]).await;
    assert_eq!(of_shorter, Err(Rejection::Forged));
    assert_eq!(peer.lines(), ["GET /v1/keys/7"]);
}

#[test]
fn events_name_affected_resources() {
    let affected = |text: &str| match text.split_once(' ') {
        Some(("account", id)) => AffectedResource::Account(id.to_owned()),
        Some(("reference", reference)) => AffectedResource::Reference(reference.to_owned()),
        _ => panic!("{text}"),
    };
    for [kind, rest, expected] in table(
        r#"ACCOUNT | {"webhook_code": "CREATE", "item_id": "acc_1"} | account acc_1, reference u:1
        ACCOUNT | {"webhook_code": "MIGRATE", "previous_item_id": "acc_1", "new_item_id": "acc_2"} | account acc_1, account acc_2, reference u:1
        TRANSACTION | {"item_id": "acc_1", "new_transactions": 2, "new_transaction_ids": ["trans_1"]} | account acc_1, reference u:1
        TOKEN | {"webhook_code": "DELETE", "item_id": "user_token_1"} | reference u:1
        ACCOUNT | {"webhook_code": "WEBHOOK_CANCELLED"} | reference u:1
        PAYMENT | {"item_id": "payment_1"} | reference u:1
        INVENTED | {"success": true} | reference u:1
        ACCOUNT | {"item_id": 5, "new_item_id": ["acc_1"]} | reference u:1
        ACCOUNT | {"item_id": "acc_1", "state": null} | account acc_1
        ACCOUNT | {"state": {}} |
        ACCOUNT | {"state": "plain"} | reference plain"#,
    ) {
        let mut event = json!({"webhook_type": kind, "state": format!("u:1:{kind}")});
        let rest: Map<String, Value> = serde_json::from_str(rest).unwrap();
        event.as_object_mut().unwrap().extend(rest);
        let names = expected.split(", ").filter(|name| !name.is_empty());
        let expected = ProviderEvent {
            id: None,
            affected: names.map(affected).collect(),
            removed: None,
        };
        let parsed = parse_event(event.to_string().as_bytes());
        assert_eq!(parsed, Ok(expected), "{event}");
    }
    for (removed, transactions) in [
        (
            json!(["trans_1", 5, "", "trans_2"]),
            vec!["trans_1", "trans_2"],
        ),
        (json!("x"), vec![]),
    ] {
        let event = json!({"webhook_type": "TRANSACTION", "item_id": "acc_1", "removed_transactions": removed});
        let found = parse_event(event.to_string().as_bytes()).unwrap().removed;
        let transactions: Vec<String> = transactions.into_iter().map(str::to_owned).collect();
        let expected = RemovedTransactions {
            account: "acc_1".to_owned(),
            transactions,
        };
        let expected = Some(expected).filter(|expected| !expected.transactions.is_empty());
        assert_eq!(found, expected);
    }
    let deep = format!(
        r#"{{"webhook_type": "ACCOUNT", "x": {}"#,
        "[".repeat(100_000)
    );
    for body in [
        "",
        "[]",
        "{}",
        "null",
        r#"{"webhook_type": 5}"#,
        deep.as_str(),
    ] {
        assert_eq!(parse_event(body.as_bytes()), Err(Rejection::Malformed));
    }
}

async fn subscribe(peer: &Peer) -> Result<(), Error> {
    let credentials = SecretString::from(r#"{"userToken":"user_token_1"}"#);
    let akahu = akahu(&peer.base_url, Some("s"));
    let verifier = akahu.webhook_verifier().unwrap();
    verifier.subscribe(&context(), &credentials, "u1").await
}

#[tokio::test]
async fn missing_subscriptions_are_created() {
    let peer = Peer::new(|_, recorded| match recorded.line.as_str() {
        "GET /v1/webhooks" => mock_response(
            200,
            r#"{"success": true, "items":
                [{"_id": "hook_1", "state": "u1:ACCOUNT"}, {"_id": "hook_2"}, {"state": "u2:TOKEN"}]}"#,
        ),
        _ => mock_response(200, r#"{"success": true, "item_id": "hook_3"}"#),
    })
    .await;
    assert_eq!(subscribe(&peer).await, Ok(()));
    let recorded = peer.recorded();
    for request in &recorded {
        assert_eq!(request.header("authorization"), Some("Bearer user_token_1"));
        assert_eq!(request.header("x-akahu-id"), Some("app_token_1"));
    }
    let lines = ["GET /v1/webhooks", "POST /v1/webhooks", "POST /v1/webhooks"];
    assert_eq!(peer.lines(), lines);
    for (request, kind) in recorded[1..].iter().zip(["TOKEN", "TRANSACTION"]) {
        let expected = json!({"webhook_type": kind, "state": format!("u1:{kind}")});
        assert_eq!(request.json(), expected);
    }
}

#[tokio::test]
async fn failed_subscriptions_are_mapped_to_errors() {
    const REVOKED: Error = Error::ReconnectNeeded(bellbird_domain::ConnectionStatus::Revoked);
    let missing = mock_response(
        400,
        r#"{"success": false, "message": "App is missing webhook url"}"#,
    );
    for (answer, expected, posts) in [
        (missing, Ok(()), 3),
        (mock_response(401, "{}"), Err(REVOKED), 1),
        (
            mock_response(500, "{}"),
            Err(Error::unavailable("server error")),
            1,
        ),
        (None, Err(Error::unavailable("connection lost")), 1),
    ] {
        let (response, shown) = (answer.clone(), format!("{answer:?}"));
        let peer = Peer::new(move |_, recorded| match recorded.line.as_str() {
            "GET /v1/webhooks" => mock_response(200, r#"{"success": true, "items": []}"#),
            _ => response.clone(),
        })
        .await;
        assert_eq!(subscribe(&peer).await, expected, "{shown}");
        assert_eq!(peer.lines().len(), 1 + posts, "{shown}");
    }
}

proptest! {
    #[test]
    fn no_body_panics(body in any::<Vec<u8>>(), at in 0..BODY.len(), byte in any::<u8>()) {
        let _ = parse_event(&body);
        let mut near = BODY.to_vec();
        near[at] = byte;
        let _ = parse_event(&near);
    }
}
