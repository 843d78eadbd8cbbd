//! SnapTrade's webhooks: checks signature and age, and finds the affected resources
//! (docs/providers/snaptrade.md#webhooks).

use std::time::Duration;

use async_trait::async_trait;
use hyper::header::HeaderMap;
use jiff::Timestamp;

use super::{SnapTrade, wire};
use crate::CallContext;
use crate::http::parse_json;
use crate::webhook_verifier::{
    AffectedResource, ProviderEvent, Rejection, WebhookVerifier, header, id,
};

/// The largest difference between an event's time and now, in either direction
/// (docs/providers/snaptrade.md#webhooks).
const AGE_MAX: Duration = Duration::from_secs(300);

#[async_trait]
impl WebhookVerifier for SnapTrade {
    async fn verify(
        &self,
        context: &CallContext,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<ProviderEvent, Rejection> {
        let signature = header(headers, "Signature").ok_or(Rejection::Forged)?;
        if !self.api.signer.is_signed(body, signature) {
            return Err(Rejection::Forged);
        }
        parse_event(body, context.wall_clock(), |client_id| {
            client_id == self.api.client_id
        })
    }
}

/// Parses a signed body, and checks the client id and the age of the event.
pub(super) fn parse_event(
    body: &[u8],
    now: Timestamp,
    is_client_id: impl Fn(&str) -> bool,
) -> Result<ProviderEvent, Rejection> {
    let event: wire::Event = parse_json(body).map_err(|_| Rejection::Malformed)?;
    if !event
        .client_id
        .as_ref()
        .is_none_or(|id| id.as_str().is_some_and(is_client_id))
    {
        return Err(Rejection::Forged);
    }
    check_age(&event, now)?;
    let id = id(event.webhook_id.as_ref()).or_else(|| id(event.webook_id.as_ref()));
    Ok(ProviderEvent {
        id,
        affected: affected(&event),
        removed: None,
    })
}

fn check_age(event: &wire::Event, now: Timestamp) -> Result<(), Rejection> {
    let at = event
        .event_timestamp
        .as_ref()
        .and_then(|at| at.as_str()?.parse::<Timestamp>().ok());
    let age = now
        .duration_since(at.ok_or(Rejection::Malformed)?)
        .unsigned_abs();
    if age <= AGE_MAX {
        Ok(())
    } else {
        Err(Rejection::Stale)
    }
}

/// The resources to refresh. An event about a consent can be the first about a new connection, so
/// it affects the provider user too. Events about accounts and trades affect only their connection.
fn affected(event: &wire::Event) -> Vec<AffectedResource> {
    let provider_user = || id(event.user_id.as_ref()).map(AffectedResource::ProviderUser);
    let connection =
        || id(event.brokerage_authorization_id.as_ref()).map(AffectedResource::Connection);
    let account = || id(event.account_id.as_ref()).map(AffectedResource::Account);
    let affected = match event.event_type.as_str() {
        "USER_REGISTERED"
        | "USER_DELETED"
        | "CONNECTION_ATTEMPTED"
        | "CONNECTION_ADDED"
        | "CONNECTION_DELETED"
        | "CONNECTION_BROKEN"
        | "CONNECTION_FIXED"
        | "CONNECTION_UPDATED"
        | "CONNECTION_FAILED" => [provider_user(), connection(), None],
        "NEW_ACCOUNT_AVAILABLE"
        | "ACCOUNT_REMOVED"
        | "ACCOUNT_TRANSACTIONS_INITIAL_UPDATE"
        | "ACCOUNT_TRANSACTIONS_UPDATED"
        | "ACCOUNT_HOLDINGS_UPDATED"
        | "TRADE_DETECTION"
        | "TRADE_UPDATE" => [None, connection(), account()],
        _ => [None, None, None],
    };
    affected.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use bellbird_domain::table::table;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::snaptrade::test_support::fuzz_event;
    use crate::snaptrade::tests::snaptrade;

    /// The members of V8 (docs/providers/snaptrade.md#test-vectors), in another order and with
    /// blanks.
    const BODY: &str = r#"{
        "webhookSecret": "gQNuZIBwPYUVAsXvCfOA", "webhookId": "aa7a7d5a-4a12-40df-a329-feedc738eee9",
        "userId": "snaptrade-user-123", "eventType": "CONNECTION_BROKEN",
        "eventTimestamp": "2022-05-31T12:39:47.182403+00:00", "clientId": "TESTCLIENT",
        "brokerageAuthorizationId": "87b24961-b51e-4db8-9226-f198f6518a89"}"#;
    const SIGNATURE: &str = "fef2+CuqjO/ys7fBLVGo26FwxEZomLYFwu4tcyi4YJc=";
    const KEY: &str = "test-consumer-key-1";

    fn context(now: &str) -> CallContext {
        CallContext::new(
            tokio::time::Instant::now() + Duration::from_secs(20),
            now.parse().unwrap(),
            crate::Cause::Schedule,
        )
    }

    async fn read(
        now: &str,
        key: &str,
        signatures: &[&str],
        body: &[u8],
    ) -> Result<ProviderEvent, Rejection> {
        let name = hyper::header::HeaderName::from_static("signature");
        let mut headers = HeaderMap::new();
        for signature in signatures {
            headers.append(name.clone(), signature.parse().unwrap());
        }
        snaptrade("http://127.0.0.1:1", key)
            .webhook_verifier()
            .unwrap()
            .verify(&context(now), &headers, body)
            .await
    }

    const NOW: &str = "2022-05-31T12:40:00Z";

    fn provider_user() -> AffectedResource {
        AffectedResource::ProviderUser("snaptrade-user-123".to_owned())
    }

    fn connection() -> AffectedResource {
        AffectedResource::Connection("87b24961-b51e-4db8-9226-f198f6518a89".to_owned())
    }

    /// A signature as the provider makes it, over the given canonical text.
    fn signature(canonical: &str) -> String {
        use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
        STANDARD.encode(sign(
            &Key::new(HMAC_SHA256, KEY.as_bytes()),
            canonical.as_bytes(),
        ))
    }

    #[tokio::test]
    async fn documented_vector_is_valid_in_any_order() {
        let id = Some("aa7a7d5a-4a12-40df-a329-feedc738eee9".to_owned());
        let expected = Ok(ProviderEvent {
            id,
            affected: vec![provider_user(), connection()],
            removed: None,
        });
        assert_eq!(
            read(NOW, KEY, &[SIGNATURE], BODY.as_bytes()).await,
            expected
        );
        let sorted =
            serde_json::from_str::<std::collections::BTreeMap<String, Value>>(BODY).unwrap();
        let sorted = serde_json::to_vec(&sorted).unwrap();
        assert_eq!(read(NOW, KEY, &[SIGNATURE], &sorted).await, expected);
    }

    #[tokio::test]
    async fn another_signature_or_body_is_forged() {
        let flipped = SIGNATURE.replacen('f', "e", 1);
        // A signature over the raw bytes instead of the canonical form.
        let raw = signature(BODY);
        for signatures in [
            &[][..],
            &[""],
            &["fef2"],
            &["***"],
            &[&flipped],
            &[&raw],
            &[SIGNATURE, SIGNATURE],
        ] {
            assert_eq!(
                read(NOW, KEY, signatures, BODY.as_bytes()).await,
                Err(Rejection::Forged),
                "{signatures:?}"
            );
        }
        let other = read(NOW, "test-consumer-key-2", &[SIGNATURE], BODY.as_bytes()).await;
        assert_eq!(other, Err(Rejection::Forged));
        let deep = "[".repeat(200_000);
        let nested = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
        for body in [
            &BODY.replace("BROKEN", "FIXED"),
            &BODY.replace("\"userId\"", "\"userID\""),
            "",
            "{",
            &deep,
            &nested,
        ] {
            assert_eq!(
                read(NOW, KEY, &[SIGNATURE], body.as_bytes()).await,
                Err(Rejection::Forged)
            );
        }
        assert_eq!(
            read(NOW, KEY, &[SIGNATURE], b"\xff").await,
            Err(Rejection::Forged)
        );
    }

    #[tokio::test]
    async fn canonical_text_is_that_of_python() {
        let sent = r#"{"eventType": "X\u0059Z", "é": "\/ü😀\u007f", "eventTimestamp": "2022-05-31T12:40:00Z",
            "details": {"b": [1.0, -0.5, 1e-07, 12345678901234567890.25, true, null, {}], "a": 0}}"#;
        let canonical = concat!(
            r#"{"details":{"a":0,"b":[1.0,-0.5,1e-07,12345678901234567890.25,true,null,{}]},"#,
            r#""eventTimestamp":"2022-05-31T12:40:00Z","eventType":"XYZ","\u00e9":"/\u00fc\ud83d\ude00\u007f"}"#,
        );
        let read = read(NOW, KEY, &[&signature(canonical)], sent.as_bytes()).await;
        assert_eq!(
            read,
            Ok(ProviderEvent {
                id: None,
                affected: vec![],
                removed: None
            })
        );
    }

    #[tokio::test]
    async fn old_and_future_events_are_stale() {
        for (now, stale) in [
            ("2022-05-31T12:44:47.182403Z", false),
            ("2022-05-31T12:44:47.182404Z", true),
            ("2022-05-31T12:34:47.182403Z", false),
            ("2022-05-31T12:34:47.182402Z", true),
            ("2026-05-31T12:40:00Z", true),
        ] {
            let read = parse_event(BODY.as_bytes(), now.parse().unwrap(), |_| true);
            assert_eq!(read.err(), stale.then_some(Rejection::Stale), "{now}");
        }
        assert_eq!(
            read("2022-05-31T13:40:00Z", KEY, &[SIGNATURE], BODY.as_bytes()).await,
            Err(Rejection::Stale)
        );
    }

    fn event(members: Value) -> Result<ProviderEvent, Rejection> {
        let mut event = json!({
            "eventType": "CONNECTION_ADDED",
            "eventTimestamp": "2022-05-31T12:40:00+00:00",
            "userId": "snaptrade-user-123",
            "brokerageAuthorizationId": "87b24961-b51e-4db8-9226-f198f6518a89",
            "accountId": "acc",
        });
        event
            .as_object_mut()
            .unwrap()
            .extend(members.as_object().unwrap().clone());
        parse_event(event.to_string().as_bytes(), NOW.parse().unwrap(), |id| {
            id == "TESTCLIENT"
        })
    }

    #[test]
    fn events_name_affected_resources() {
        let affected = |name: &str| match name {
            "user" => provider_user(),
            "connection" => connection(),
            "account" => AffectedResource::Account("acc".to_owned()),
            _ => panic!("{name}"),
        };
        for [members, names] in table(
            r#"{} | user connection
            {"eventType": "USER_DELETED", "brokerageAuthorizationId": null} | user
            {"eventType": "CONNECTION_ATTEMPTED", "brokerageAuthorizationId": 5} | user
            {"eventType": "ACCOUNT_HOLDINGS_UPDATED"} | connection account
            {"eventType": "NEW_ACCOUNT_AVAILABLE"} | connection account
            {"eventType": "TRADE_UPDATE", "brokerageAuthorizationId": []} | account
            {"eventType": "INVENTED"} |
            {"userId": ""} | connection"#,
        ) {
            let expected = ProviderEvent {
                id: None,
                affected: names.split_whitespace().map(affected).collect(),
                removed: None,
            };
            let found = event(serde_json::from_str(members).unwrap());
            assert_eq!(found, Ok(expected), "{members}");
        }
        let id = |members: Value| event(members).map(|read| read.id);
        assert_eq!(
            id(json!({"webhookId": "w", "webookId": "v"})),
            Ok(Some("w".to_owned()))
        );
        assert_eq!(id(json!({"webookId": "v"})), Ok(Some("v".to_owned())));
        assert_eq!(id(json!({"webhookId": 5, "webookId": {}})), Ok(None));
    }

    #[test]
    fn events_of_another_client_are_rejected() {
        for (members, expected) in [
            (json!({"clientId": "OTHER"}), Rejection::Forged),
            (json!({"clientId": 5}), Rejection::Forged),
            (json!({"eventTimestamp": null}), Rejection::Malformed),
            (json!({"eventTimestamp": 1654000000}), Rejection::Malformed),
            (json!({"eventTimestamp": "yesterday"}), Rejection::Malformed),
            (
                json!({"eventTimestamp": "2022-05-31T12:40:00"}),
                Rejection::Malformed,
            ),
            (json!({"eventType": null}), Rejection::Malformed),
        ] {
            assert_eq!(event(members.clone()), Err(expected), "{members}");
        }
        assert!(event(json!({"clientId": "TESTCLIENT"})).is_ok());
    }

    proptest! {
        #[test]
        fn no_body_panics(
            body in any::<Vec<u8>>(),
            text in "[\\[\\]{}\",:0-9e.\\\\u -]{0,60}",
            at in 0..BODY.len(),
            byte in any::<u8>(),
        ) {
            fuzz_event(&body);
            fuzz_event(text.as_bytes());
            let mut near = BODY.as_bytes().to_vec();
            near[at] = byte;
            fuzz_event(&near);
        }
    }
}
