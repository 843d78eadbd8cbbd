//! Fiskil's webhooks: checks their signature and finds the affected resources
//! (docs/providers/fiskil.md#webhooks).

use async_trait::async_trait;
use aws_lc_rs::hmac::{self, HMAC_SHA256, Key};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderMap;

use super::wire;
use crate::CallContext;
use crate::http::parse_json;
use crate::webhook_verifier::{
    AffectedResource, ProviderEvent, Rejection, WebhookVerifier, header, id,
};

/// Checks signatures with the signing secret. Signed bodies hold no time, so only the event's id
/// reveals a replay.
pub(super) struct Webhooks(Key);

impl Webhooks {
    /// `secret` is base64, as the Fiskil console shows it (docs/providers/fiskil.md#webhooks).
    pub(super) fn new(secret: &str) -> Result<Self, String> {
        let key = STANDARD
            .decode(secret.trim())
            .ok()
            .filter(|key| !key.is_empty());
        let key =
            key.ok_or("fiskil.webhook_secret must be base64, as the Fiskil console shows it")?;
        Ok(Self(Key::new(HMAC_SHA256, &key)))
    }
}

#[async_trait]
impl WebhookVerifier for Webhooks {
    async fn verify(
        &self,
        _context: &CallContext,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<ProviderEvent, Rejection> {
        let signature =
            header(headers, "X-Fiskil-Signature").and_then(|text| STANDARD.decode(text).ok());
        let signature = signature.ok_or(Rejection::Forged)?;
        hmac::verify(&self.0, body, &signature).map_err(|_| Rejection::Forged)?;
        parse_event(body)
    }
}

/// Parses a signed event. It is only inferred that `consent_id` is an arrangement
/// (docs/providers/fiskil.md#consents), so the event affects the end user too.
pub(super) fn parse_event(body: &[u8]) -> Result<ProviderEvent, Rejection> {
    let event: wire::Event = parse_json(body).map_err(|_| Rejection::Malformed)?;
    let data = event.data;
    let mut affected = Vec::new();
    if data.event.starts_with("consent.") || data.event.starts_with("banking.") {
        affected.extend(id(data.end_user_id.as_ref()).map(AffectedResource::ProviderUser));
        affected.extend(id(data.consent_id.as_ref()).map(AffectedResource::Connection));
    }
    Ok(ProviderEvent {
        id: id(event.message_id.as_ref()),
        affected,
        removed: None,
    })
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    use super::*;
    use crate::test_support::context;

    const SECRET: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    const BODY: &str =
        r#"{"delivery_attempt":1,"message_id":"1","data":{"event":"consent.received"}}"#;
    const SIGNATURE: &str = "qgylCyLV+40+C356r9PoluceN1eJoIvO/OeHgvmNSho=";

    fn webhooks() -> Webhooks {
        Webhooks::new(SECRET).unwrap()
    }

    fn headers(signatures: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for signature in signatures {
            headers.append(
                "x-fiskil-signature",
                HeaderValue::from_str(signature).unwrap(),
            );
        }
        headers
    }

    /// What is read from a body with its signature.
    async fn verified(body: &[u8]) -> Result<ProviderEvent, Rejection> {
        let webhooks = webhooks();
        let signed = headers(&[&STANDARD.encode(hmac::sign(&webhooks.0, body))]);
        webhooks.verify(&context(), &signed, body).await
    }

    #[tokio::test]
    async fn signature_covers_the_raw_body() {
        let event = ProviderEvent {
            id: Some("1".to_owned()),
            affected: vec![],
            removed: None,
        };
        let read = async |headers: &HeaderMap, body: &[u8]| {
            webhooks().verify(&context(), headers, body).await
        };
        assert_eq!(
            read(&headers(&[SIGNATURE]), BODY.as_bytes()).await,
            Ok(event)
        );

        let flipped = SIGNATURE.replacen('q', "r", 1);
        let other = STANDARD.encode(hmac::sign(
            &Key::new(HMAC_SHA256, SECRET.as_bytes()),
            BODY.as_bytes(),
        ));
        for bad in [
            &[][..],
            &[""],
            &["qgylCyLV"],
            &["not base64"],
            &[flipped.as_str()],
            &[other.as_str()],
            &[SIGNATURE, SIGNATURE],
            &["aa0ca50b22d5fb8d3e0b7e7aafd3e896e71e375789a08bcefce78782f98d4a1a"],
        ] {
            let outcome = read(&headers(bad), BODY.as_bytes()).await;
            assert_eq!(outcome, Err(Rejection::Forged), "{bad:?}");
        }
        for body in [BODY.replace('1', "2"), format!("{BODY} "), String::new()] {
            let outcome = read(&headers(&[SIGNATURE]), body.as_bytes()).await;
            assert_eq!(outcome, Err(Rejection::Forged), "{body}");
        }
    }

    #[tokio::test]
    async fn events_name_affected_resources() {
        let provider_user = || AffectedResource::ProviderUser("eu_1".to_owned());
        let connection = || AffectedResource::Connection("arr".to_owned());
        let ids = r#""end_user_id": "eu_1", "consent_id": "arr", "account_ids": ["1"]"#;
        let of = |event: &str| {
            format!(r#"{{"message_id": "m", "data": {{"event": "{event}", {ids}}}, "new": [1.5]}}"#)
        };
        let replaced = |sent: &str, by: &str| of("consent.revoked").replace(sent, by);
        for (body, affected) in [
            (of("consent.received"), vec![provider_user(), connection()]),
            (of("consent.revoked"), vec![provider_user(), connection()]),
            (
                of("banking.transactions.recent.sync.completed"),
                vec![provider_user(), connection()],
            ),
            (of("common.identity.sync.completed"), vec![]),
            (of("consent"), vec![]),
            (of("invented.event"), vec![]),
            (replaced("\"eu_1\"", "5"), vec![connection()]),
            (replaced("\"arr\"", "null"), vec![provider_user()]),
            (replaced("arr", &"x".repeat(300)), vec![provider_user()]),
            (replaced("arr", ""), vec![provider_user()]),
        ] {
            let expected = ProviderEvent {
                id: Some("m".to_owned()),
                affected,
                removed: None,
            };
            assert_eq!(verified(body.as_bytes()).await, Ok(expected), "{body}");
        }
        for id in ["null", "7", "[]", "{}", "\"\""] {
            let body = of("consent.revoked").replace("\"m\"", id);
            assert_eq!(
                parse_event(body.as_bytes()).map(|read| read.id),
                Ok(None),
                "{id}"
            );
        }
    }

    #[tokio::test]
    async fn signed_non_events_are_malformed() {
        let deep = "[".repeat(100_000);
        for body in [
            "",
            "[]",
            "{}",
            "null",
            r#"{"data": {}}"#,
            r#"{"data": {"event": 1}}"#,
            "\u{feff}{}",
            &deep,
        ] {
            let read = verified(body.as_bytes()).await;
            assert_eq!(read, Err(Rejection::Malformed));
        }
        assert_eq!(verified(b"\xff").await, Err(Rejection::Malformed));
    }

    #[test]
    fn malformed_secret_names_its_setting() {
        for secret in ["", " ", "whsec!", "MDEyMzQ1N"] {
            assert!(
                Webhooks::new(secret).is_err_and(|why| why.contains("fiskil.webhook_secret")),
                "{secret}"
            );
        }
        assert!(Webhooks::new(&format!(" {SECRET}\n")).is_ok());
    }

    proptest! {
        #[test]
        fn no_body_panics(body in any::<Vec<u8>>(), at in 0..BODY.len(), byte in any::<u8>()) {
            let _ = parse_event(&body);
            let mut near = BODY.as_bytes().to_vec();
            near[at] = byte;
            let _ = parse_event(&near);
        }
    }
}
