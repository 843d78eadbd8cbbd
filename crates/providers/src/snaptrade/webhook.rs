//! Webhooks: their signature, their age and what they are about (docs/providers/snaptrade.md#webhooks).

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use reqwest::header::HeaderMap;

use super::{SnapTrade, wire};
use crate::Call;
use crate::http::parse_json;
use crate::notifying::{Concern, Notification, Notifying, Refused, header, id};

/// How far an event's time may be from ours, either way (docs/providers/snaptrade.md#webhooks).
const AGE_MAX: Duration = Duration::from_secs(300);

#[async_trait]
impl Notifying for SnapTrade {
    async fn read(&self, call: &Call, headers: &HeaderMap, body: &[u8]) -> Result<Notification, Refused> {
        let signature = header(headers, "Signature").ok_or(Refused::Forged)?;
        if !self.api.has_signed(body, signature) {
            return Err(Refused::Forged);
        }
        notification(body, call.wall_clock(), |client_id| self.api.is_ours(client_id))
    }
}

/// A signed body as an event for us, of this moment.
pub(super) fn notification(
    body: &[u8],
    now: Timestamp,
    is_ours: impl Fn(&str) -> bool,
) -> Result<Notification, Refused> {
    let event: wire::Event = parse_json(body).map_err(|_| Refused::Malformed)?;
    if !event.client_id.as_ref().is_none_or(|id| id.as_str().is_some_and(is_ours)) {
        return Err(Refused::Forged);
    }
    check_age(&event, now)?;
    let id = id(event.webhook_id.as_ref()).or_else(|| id(event.webook_id.as_ref()));
    Ok(Notification { id, concerns: concerns(&event) })
}

fn check_age(event: &wire::Event, now: Timestamp) -> Result<(), Refused> {
    let at = event.event_timestamp.as_ref().and_then(|at| at.as_str()?.parse::<Timestamp>().ok());
    let age = now.duration_since(at.ok_or(Refused::Malformed)?).unsigned_abs();
    if age <= AGE_MAX { Ok(()) } else { Err(Refused::Stale) }
}

/// An event about one account or connection says nothing about the user's others; one about consents may be the first
/// that is heard of a connection, so the user is looked at too.
fn concerns(event: &wire::Event) -> Vec<Concern> {
    let owner = || id(event.user_id.as_ref()).map(Concern::Owner);
    let connection = || id(event.brokerage_authorization_id.as_ref()).map(Concern::Connection);
    let account = || id(event.account_id.as_ref()).map(Concern::Account);
    let concerns = match event.event_type.as_str() {
        "USER_REGISTERED"
        | "USER_DELETED"
        | "CONNECTION_ATTEMPTED"
        | "CONNECTION_ADDED"
        | "CONNECTION_DELETED"
        | "CONNECTION_BROKEN"
        | "CONNECTION_FIXED"
        | "CONNECTION_UPDATED"
        | "CONNECTION_FAILED" => [owner(), connection(), None],
        "NEW_ACCOUNT_AVAILABLE"
        | "ACCOUNT_REMOVED"
        | "ACCOUNT_TRANSACTIONS_INITIAL_UPDATE"
        | "ACCOUNT_TRANSACTIONS_UPDATED"
        | "ACCOUNT_HOLDINGS_UPDATED"
        | "TRADE_DETECTION"
        | "TRADE_UPDATE" => [None, connection(), account()],
        _ => [None, None, None],
    };
    concerns.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::Provider;
    use crate::settings::Values;
    use crate::snaptrade::{fuzz_event, open};

    /// The members of V8 (docs/providers/snaptrade.md#test-vectors), in another order and with blanks.
    const BODY: &str = r#"{
        "webhookSecret": "gQNuZIBwPYUVAsXvCfOA", "webhookId": "aa7a7d5a-4a12-40df-a329-feedc738eee9",
        "userId": "snaptrade-user-123", "eventType": "CONNECTION_BROKEN",
        "eventTimestamp": "2022-05-31T12:39:47.182403+00:00", "clientId": "TESTCLIENT",
        "brokerageAuthorizationId": "87b24961-b51e-4db8-9226-f198f6518a89"}"#;
    const SIGNATURE: &str = "fef2+CuqjO/ys7fBLVGo26FwxEZomLYFwu4tcyi4YJc=";
    const KEY: &str = "test-consumer-key-1";

    fn snaptrade(consumer_key: &str) -> Arc<dyn Provider> {
        let mut values = Values::default();
        values.set("base_url", "http://127.0.0.1:1".into());
        values.set("client_id", "TESTCLIENT".into());
        values.set("consumer_key", consumer_key.into());
        open(&values, Duration::from_secs(20)).unwrap()
    }

    fn call(now: &str) -> Call {
        Call::new(tokio::time::Instant::now() + Duration::from_secs(20), now.parse().unwrap())
    }

    async fn read(now: &str, key: &str, signatures: &[&str], body: &[u8]) -> Result<Notification, Refused> {
        let name = reqwest::header::HeaderName::from_static("signature");
        let mut headers = HeaderMap::new();
        for signature in signatures {
            headers.append(name.clone(), signature.parse().unwrap());
        }
        snaptrade(key).notifying().unwrap().read(&call(now), &headers, body).await
    }

    const NOW: &str = "2022-05-31T12:40:00Z";

    fn owner() -> Concern {
        Concern::Owner("snaptrade-user-123".to_owned())
    }

    fn connection() -> Concern {
        Concern::Connection("87b24961-b51e-4db8-9226-f198f6518a89".to_owned())
    }

    /// Signed as the provider does with what it has sent: the canonical form is given here, not computed.
    fn signature(canonical: &str) -> String {
        use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
        STANDARD.encode(sign(&Key::new(HMAC_SHA256, KEY.as_bytes()), canonical.as_bytes()))
    }

    #[tokio::test]
    async fn the_documented_vector_in_any_order() {
        let id = Some("aa7a7d5a-4a12-40df-a329-feedc738eee9".to_owned());
        let expected = Ok(Notification { id, concerns: vec![owner(), connection()] });
        assert_eq!(read(NOW, KEY, &[SIGNATURE], BODY.as_bytes()).await, expected);
        let sorted = serde_json::from_str::<std::collections::BTreeMap<String, Value>>(BODY).unwrap();
        let sorted = serde_json::to_vec(&sorted).unwrap();
        assert_eq!(read(NOW, KEY, &[SIGNATURE], &sorted).await, expected);
    }

    #[tokio::test]
    async fn another_signature_or_body_is_forged() {
        let flipped = SIGNATURE.replacen('f', "e", 1);
        // Over the bytes as they came, which is not what is signed.
        let raw = signature(BODY);
        for signatures in [&[][..], &[""], &["fef2"], &["***"], &[&flipped], &[&raw], &[SIGNATURE, SIGNATURE]] {
            assert_eq!(read(NOW, KEY, signatures, BODY.as_bytes()).await, Err(Refused::Forged), "{signatures:?}");
        }
        let other = read(NOW, "test-consumer-key-2", &[SIGNATURE], BODY.as_bytes()).await;
        assert_eq!(other, Err(Refused::Forged));
        let deep = "[".repeat(200_000);
        let nested = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
        for body in
            [&BODY.replace("BROKEN", "FIXED"), &BODY.replace("\"userId\"", "\"userID\""), "", "{", &deep, &nested]
        {
            assert_eq!(read(NOW, KEY, &[SIGNATURE], body.as_bytes()).await, Err(Refused::Forged));
        }
        assert_eq!(read(NOW, KEY, &[SIGNATURE], b"\xff").await, Err(Refused::Forged));
    }

    #[tokio::test]
    async fn letters_and_numbers_are_signed_as_python_writes_them() {
        let sent = r#"{"eventType": "X\u0059Z", "é": "\/ü😀\u007f", "eventTimestamp": "2022-05-31T12:40:00Z",
            "details": {"b": [1.0, -0.5, 1e-07, 12345678901234567890.25, true, null, {}], "a": 0}}"#;
        let canonical = r#"{"details":{"a":0,"b":[1.0,-0.5,1e-07,12345678901234567890.25,true,null,{}]},"eventTimestamp":"2022-05-31T12:40:00Z","eventType":"XYZ","\u00e9":"/\u00fc\ud83d\ude00\u007f"}"#;
        let read = read(NOW, KEY, &[&signature(canonical)], sent.as_bytes()).await;
        assert_eq!(read, Ok(Notification { id: None, concerns: vec![] }));
    }

    #[tokio::test]
    async fn old_events_and_those_of_the_future_are_stale() {
        for (now, stale) in [
            ("2022-05-31T12:44:47.182403Z", false),
            ("2022-05-31T12:44:47.182404Z", true),
            ("2022-05-31T12:34:47.182403Z", false),
            ("2022-05-31T12:34:47.182402Z", true),
            ("2026-05-31T12:40:00Z", true),
        ] {
            let read = notification(BODY.as_bytes(), now.parse().unwrap(), |_| true);
            assert_eq!(read.err(), stale.then_some(Refused::Stale), "{now}");
        }
        assert_eq!(read("2022-05-31T13:40:00Z", KEY, &[SIGNATURE], BODY.as_bytes()).await, Err(Refused::Stale));
    }

    fn event(members: Value) -> Result<Notification, Refused> {
        let mut event = json!({
            "eventType": "CONNECTION_ADDED",
            "eventTimestamp": "2022-05-31T12:40:00+00:00",
            "userId": "snaptrade-user-123",
            "brokerageAuthorizationId": "87b24961-b51e-4db8-9226-f198f6518a89",
            "accountId": "acc",
        });
        event.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        notification(event.to_string().as_bytes(), NOW.parse().unwrap(), |id| id == "TESTCLIENT")
    }

    #[test]
    fn what_events_are_about() {
        let account = || Concern::Account("acc".to_owned());
        for (members, concerns) in [
            (json!({}), vec![owner(), connection()]),
            (json!({"eventType": "USER_DELETED", "brokerageAuthorizationId": null}), vec![owner()]),
            (json!({"eventType": "CONNECTION_ATTEMPTED", "brokerageAuthorizationId": 5}), vec![owner()]),
            (json!({"eventType": "ACCOUNT_HOLDINGS_UPDATED"}), vec![connection(), account()]),
            (json!({"eventType": "NEW_ACCOUNT_AVAILABLE"}), vec![connection(), account()]),
            (json!({"eventType": "TRADE_UPDATE", "brokerageAuthorizationId": []}), vec![account()]),
            (json!({"eventType": "INVENTED"}), vec![]),
            (json!({"userId": ""}), vec![connection()]),
        ] {
            assert_eq!(event(members.clone()), Ok(Notification { id: None, concerns }), "{members}");
        }
        let id = |members: Value| event(members).map(|read| read.id);
        assert_eq!(id(json!({"webhookId": "w", "webookId": "v"})), Ok(Some("w".to_owned())));
        assert_eq!(id(json!({"webookId": "v"})), Ok(Some("v".to_owned())));
        assert_eq!(id(json!({"webhookId": 5, "webookId": {}})), Ok(None));
    }

    #[test]
    fn what_is_signed_and_not_for_us() {
        for (members, expected) in [
            (json!({"clientId": "OTHER"}), Refused::Forged),
            (json!({"clientId": 5}), Refused::Forged),
            (json!({"eventTimestamp": null}), Refused::Malformed),
            (json!({"eventTimestamp": 1654000000}), Refused::Malformed),
            (json!({"eventTimestamp": "yesterday"}), Refused::Malformed),
            (json!({"eventTimestamp": "2022-05-31T12:40:00"}), Refused::Malformed),
            (json!({"eventType": null}), Refused::Malformed),
        ] {
            assert_eq!(event(members.clone()), Err(expected), "{members}");
        }
        assert!(event(json!({"clientId": "TESTCLIENT"})).is_ok());
    }

    proptest! {
        #[test]
        fn no_body_panics(body in any::<Vec<u8>>(), text in "[\\[\\]{}\",:0-9e.\\\\u -]{0,60}", at in 0..BODY.len(), byte in any::<u8>()) {
            fuzz_event(&body);
            fuzz_event(text.as_bytes());
            let mut near = BODY.as_bytes().to_vec();
            near[at] = byte;
            fuzz_event(&near);
        }
    }
}
