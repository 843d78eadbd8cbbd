//! Webhooks: their signature and what they are about (docs/providers/fiskil.md#webhooks).

use async_trait::async_trait;
use aws_lc_rs::hmac::{self, HMAC_SHA256, Key};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderMap;

use super::wire;
use crate::Call;
use crate::http::parse_json;
use crate::notifying::{Concern, Notification, Notifying, Refused, header, id};

/// Checks with the signing secret. Nothing that is signed says when, so a replay is told by its id alone.
pub(super) struct Webhooks(Key);

impl Webhooks {
    /// With the secret as the console shows it: base64 (docs/providers/fiskil.md#webhooks).
    pub(super) fn new(secret: &str) -> Result<Self, String> {
        let key = STANDARD.decode(secret.trim()).ok().filter(|key| !key.is_empty());
        let key = key.ok_or("fiskil.webhook_secret must be base64, as the Fiskil console shows it")?;
        Ok(Self(Key::new(HMAC_SHA256, &key)))
    }

    fn check(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), Refused> {
        let signature = header(headers, "X-Fiskil-Signature").and_then(|text| STANDARD.decode(text).ok());
        let signature = signature.ok_or(Refused::Forged)?;
        hmac::verify(&self.0, body, &signature).map_err(|_| Refused::Forged)
    }
}

#[async_trait]
impl Notifying for Webhooks {
    async fn read(&self, _call: &Call, headers: &HeaderMap, body: &[u8]) -> Result<Notification, Refused> {
        self.check(headers, body)?;
        notification(body)
    }
}

/// Whether a `consent_id` is an arrangement is inferred only (docs/providers/fiskil.md#consents), so the end user is
/// looked at too.
pub(super) fn notification(body: &[u8]) -> Result<Notification, Refused> {
    let event: wire::Event = parse_json(body).map_err(|_| Refused::Malformed)?;
    let data = event.data;
    let mut concerns = Vec::new();
    if data.event.starts_with("consent.") || data.event.starts_with("banking.") {
        concerns.extend(id(data.end_user_id.as_ref()).map(Concern::Owner));
        concerns.extend(id(data.consent_id.as_ref()).map(Concern::Connection));
    }
    Ok(Notification { id: id(event.message_id.as_ref()), concerns })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use reqwest::header::HeaderValue;

    use super::*;
    use crate::peer::call;

    const SECRET: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    const BODY: &str = r#"{"delivery_attempt":1,"message_id":"1","data":{"event":"consent.received"}}"#;
    const SIGNATURE: &str = "qgylCyLV+40+C356r9PoluceN1eJoIvO/OeHgvmNSho=";

    fn webhooks() -> Webhooks {
        Webhooks::new(SECRET).unwrap()
    }

    fn headers(signatures: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for signature in signatures {
            headers.append("x-fiskil-signature", HeaderValue::from_str(signature).unwrap());
        }
        headers
    }

    fn signed(body: &[u8]) -> HeaderMap {
        headers(&[&STANDARD.encode(hmac::sign(&webhooks().0, body))])
    }

    #[tokio::test]
    async fn the_signature_is_that_of_this_very_body() {
        let good = Notification { id: Some("1".to_owned()), concerns: vec![] };
        let read = async |headers: &HeaderMap, body: &[u8]| webhooks().read(&call(), headers, body).await;
        assert_eq!(read(&headers(&[SIGNATURE]), BODY.as_bytes()).await, Ok(good));

        let flipped = SIGNATURE.replacen('q', "r", 1);
        let other = STANDARD.encode(hmac::sign(&Key::new(HMAC_SHA256, SECRET.as_bytes()), BODY.as_bytes()));
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
            assert_eq!(read(&headers(bad), BODY.as_bytes()).await, Err(Refused::Forged), "{bad:?}");
        }
        for body in [BODY.replace('1', "2"), format!("{BODY} "), String::new()] {
            assert_eq!(read(&headers(&[SIGNATURE]), body.as_bytes()).await, Err(Refused::Forged), "{body}");
        }
    }

    #[tokio::test]
    async fn what_events_are_about() {
        let owner = || Concern::Owner("eu_1".to_owned());
        let connection = || Concern::Connection("arr".to_owned());
        let ids = r#""end_user_id": "eu_1", "consent_id": "arr", "account_ids": ["1"]"#;
        let of = |event: &str| format!(r#"{{"message_id": "m", "data": {{"event": "{event}", {ids}}}, "new": [1.5]}}"#);
        for (body, concerns) in [
            (of("consent.received"), vec![owner(), connection()]),
            (of("consent.revoked"), vec![owner(), connection()]),
            (of("banking.transactions.recent.sync.completed"), vec![owner(), connection()]),
            (of("common.identity.sync.completed"), vec![]),
            (of("consent"), vec![]),
            (of("invented.event"), vec![]),
            (of("consent.revoked").replace("\"eu_1\"", "5"), vec![connection()]),
            (of("consent.revoked").replace("\"arr\"", "null"), vec![owner()]),
            (of("consent.revoked").replace("arr", &"x".repeat(300)), vec![owner()]),
            (of("consent.revoked").replace("arr", ""), vec![owner()]),
        ] {
            let read = webhooks().read(&call(), &signed(body.as_bytes()), body.as_bytes()).await;
            assert_eq!(read, Ok(Notification { id: Some("m".to_owned()), concerns }), "{body}");
        }
        for id in ["null", "7", "[]", "{}", "\"\""] {
            let body = of("consent.revoked").replace("\"m\"", id);
            assert_eq!(notification(body.as_bytes()).map(|read| read.id), Ok(None), "{id}");
        }
    }

    #[tokio::test]
    async fn what_is_signed_and_no_event() {
        let deep = "[".repeat(100_000);
        for body in ["", "[]", "{}", "null", r#"{"data": {}}"#, r#"{"data": {"event": 1}}"#, "\u{feff}{}", &deep] {
            let read = webhooks().read(&call(), &signed(body.as_bytes()), body.as_bytes()).await;
            assert_eq!(read, Err(Refused::Malformed));
        }
        let read = webhooks().read(&call(), &signed(b"\xff"), b"\xff").await;
        assert_eq!(read, Err(Refused::Malformed));
    }

    #[test]
    fn a_secret_that_is_none_names_its_setting() {
        for secret in ["", " ", "whsec!", "MDEyMzQ1N"] {
            assert!(Webhooks::new(secret).is_err_and(|why| why.contains("fiskil.webhook_secret")), "{secret}");
        }
        assert!(Webhooks::new(&format!(" {SECRET}\n")).is_ok());
    }

    proptest! {
        #[test]
        fn no_body_panics(body in any::<Vec<u8>>(), at in 0..BODY.len(), byte in any::<u8>()) {
            let _ = notification(&body);
            let mut near = BODY.as_bytes().to_vec();
            near[at] = byte;
            let _ = notification(&near);
        }
    }
}
