//! Endpoint secrets, and signatures over `id.timestamp.body` as Standard Webhooks specifies them.
//!
//! The crate `standardwebhooks` is only the reference of the tests, because it copies the body and
//! supports one secret.

use aws_lc_rs::hmac::{Context, HMAC_SHA256, Key};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bellbird_domain::{EndpointId, EventId};
use bellbird_storage::random_bytes;
use bytes::Bytes;
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

const PREFIX: &str = "whsec_";
const SECRET_BYTES: usize = 32;

/// The text is not `whsec_` and the base64 of a key, or the list of secrets is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a webhook secret")]
pub struct BadSecret;

/// Creates a secret: `whsec_` and the base64 of 32 random bytes.
pub fn new_secret() -> SecretString {
    let base64 = Zeroizing::new(STANDARD.encode(*random_bytes::<SECRET_BYTES>()));
    SecretString::from([PREFIX, &base64].concat())
}

/// Signs with all secrets of an endpoint, because during a rotation the receiver may still use the
/// old one. Has no `Debug`, because it holds keys.
pub struct Signer(Vec<Key>);

/// One signed message for one endpoint.
pub struct Message {
    /// The event's id. It is the same in each attempt.
    pub id: EventId,
    /// The signed time of sending, in Unix seconds.
    pub timestamp: i64,
    /// The value of the header `webhook-signature`, with all signatures.
    pub signature: String,
    pub endpoint: EndpointId,
    /// The signed JSON.
    pub body: Bytes,
}

impl Signer {
    /// The signatures appear in the order of `secrets`. Fails if one is malformed or if the list is
    /// empty.
    pub fn new(secrets: &[&SecretString]) -> Result<Self, BadSecret> {
        let keys: Vec<Key> = secrets
            .iter()
            .map(|secret| key(secret))
            .collect::<Result<_, _>>()?;
        if keys.is_empty() {
            Err(BadSecret)
        } else {
            Ok(Self(keys))
        }
    }

    /// Signs the body of an event that is sent to this endpoint now.
    pub fn sign(&self, id: EventId, endpoint: EndpointId, now: Timestamp, body: Bytes) -> Message {
        let timestamp = now.as_second();
        Message {
            id,
            timestamp,
            signature: self.signature(id, timestamp, &body),
            endpoint,
            body,
        }
    }

    /// Returns the header `webhook-signature`: for each secret `v1,` and the base64 of an
    /// HMAC-SHA256, separated by spaces. `timestamp` is the value of `webhook-timestamp`: the time
    /// of the attempt, in Unix seconds.
    pub fn signature(&self, id: EventId, timestamp: i64, body: &[u8]) -> String {
        let head = format!("{id}.{timestamp}.");
        let sign = |key: &Key| {
            let mut context = Context::with_key(key);
            context.update(head.as_bytes());
            context.update(body);
            format!("v1,{}", STANDARD.encode(context.sign()))
        };
        self.0.iter().map(sign).collect::<Vec<_>>().join(" ")
    }
}

fn key(secret: &SecretString) -> Result<Key, BadSecret> {
    let base64 = secret
        .expose_secret()
        .strip_prefix(PREFIX)
        .ok_or(BadSecret)?;
    let bytes = Zeroizing::new(STANDARD.decode(base64).map_err(|_| BadSecret)?);
    if bytes.is_empty() {
        Err(BadSecret)
    } else {
        Ok(Key::new(HMAC_SHA256, &bytes))
    }
}

#[cfg(test)]
mod tests {
    use hyper::HeaderMap;
    use proptest::prelude::*;
    use standardwebhooks::{
        HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook,
    };

    use super::*;

    fn secret(bytes: &[u8]) -> SecretString {
        SecretString::from(format!("{PREFIX}{}", STANDARD.encode(bytes)))
    }

    /// Whether the reference implementation verifies the signature with one secret.
    fn verifies(
        secret: &SecretString,
        id: EventId,
        signature: &str,
        timestamp: i64,
        body: &[u8],
    ) -> bool {
        let (id, timestamp) = (id.to_string(), timestamp.to_string());
        let mut headers = HeaderMap::new();
        headers.insert(HEADER_WEBHOOK_ID, id.parse().unwrap());
        headers.insert(HEADER_WEBHOOK_SIGNATURE, signature.parse().unwrap());
        headers.insert(HEADER_WEBHOOK_TIMESTAMP, timestamp.parse().unwrap());
        let reference = Webhook::new(secret.expose_secret()).unwrap();
        reference.verify(body, &headers).is_ok()
    }

    /// The reference implementation reads the system clock, so the tests must too.
    #[expect(
        clippy::disallowed_methods,
        reason = "the reference implementation reads it, too"
    )]
    fn now() -> i64 {
        Timestamp::now().as_second()
    }

    #[test]
    fn secrets_are_new_and_long_enough() {
        let (one, other) = (new_secret(), new_secret());
        assert_ne!(one.expose_secret(), other.expose_secret());
        let base64 = one.expose_secret().strip_prefix("whsec_").unwrap();
        assert_eq!(STANDARD.decode(base64).unwrap().len(), 32);
        let signer = Signer::new(&[&one]).unwrap();
        let (id, now) = (EventId::new(), now());
        let signature = signer.signature(id, now, b"{}");
        assert!(verifies(&one, id, &signature, now, b"{}"));
        assert!(!verifies(&other, id, &signature, now, b"{}"));
    }

    #[test]
    fn malformed_secrets_are_rejected() {
        let good = secret(&[7; 32]);
        for text in [
            "",
            "whsec_",
            "whsec_?",
            "whsec_QQ",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_ QUFB",
        ] {
            let bad = SecretString::from(text);
            assert!(Signer::new(&[&bad]).is_err(), "{text}");
            assert!(Signer::new(&[&good, &bad]).is_err(), "{text}");
        }
        assert!(Signer::new(&[]).is_err());
    }

    proptest! {
        #[test]
        fn signature_matches_the_reference(
            key in prop::collection::vec(any::<u8>(), 1..80),
            id in any::<u128>(),
            timestamp in any::<i64>(),
            body in "\\PC{0,200}",
        ) {
            let secret = secret(&key);
            let id = EventId::from(uuid::Uuid::from_u128(id));
            let reference = Webhook::new(secret.expose_secret()).unwrap();
            let expected = reference.sign(&id.to_string(), timestamp, body.as_bytes()).unwrap();
            let signer = Signer::new(&[&secret]).unwrap();
            prop_assert_eq!(signer.signature(id, timestamp, body.as_bytes()), expected);
        }

        /// During a rotation both secrets verify, a third does not, and no changed part verifies.
        #[test]
        fn both_secrets_verify_during_rotation(
            keys in prop::collection::hash_set(prop::collection::vec(any::<u8>(), 24..65), 3),
            body in "[ -~]{1,200}",
            at in any::<prop::sample::Index>(),
        ) {
            let secrets: Vec<SecretString> = keys.iter().map(|key| secret(key)).collect();
            let (id, now) = (EventId::new(), now());
            let signature = Signer::new(&[&secrets[0], &secrets[1]]).unwrap().signature(id, now, body.as_bytes());
            let verified: Vec<bool> =
                secrets.iter().map(|secret| verifies(secret, id, &signature, now, body.as_bytes())).collect();
            prop_assert_eq!(verified, [true, true, false]);

            let mut changed = body.clone().into_bytes();
            changed[at.index(body.len())] ^= 1;
            for secret in &secrets {
                prop_assert!(!verifies(secret, id, &signature, now, &changed));
                prop_assert!(!verifies(secret, EventId::new(), &signature, now, body.as_bytes()));
                prop_assert!(!verifies(secret, id, &signature, now - 1, body.as_bytes()));
            }
        }
    }
}
