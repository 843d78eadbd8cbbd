//! The public keys for webhook signatures. A key is fetched when an event names it and cached for a day
//! (docs/providers/akahu.md#webhook-keys).
//!
//! Anyone can send events that name keys. So fetches are rate-limited, and a key is cached only after a valid
//! signature.

use std::time::Duration;

use aws_lc_rs::signature::{ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::api::Api;
use crate::webhook_verifier::Rejection;
use crate::{CallContext, Error};

/// How long a key is cached (docs/providers/akahu.md#webhook-keys).
const KEY_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// The shortest time between two fetches.
const FETCH_INTERVAL_MIN: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Keys {
    cached: Mutex<Option<CachedKey>>,
    /// The holder of this lock may fetch a key.
    last_fetch: tokio::sync::Mutex<Option<Instant>>,
}

struct CachedKey {
    id: u64,
    key: ParsedPublicKey,
    until: Instant,
}

impl Keys {
    /// Checks that a body was signed with the key `id`. Ids grow, so an id below that of the cached key is rejected
    /// (docs/providers/akahu.md#webhook-keys).
    pub(super) async fn check(
        &self,
        (api, context): (&Api, &CallContext),
        now: Instant,
        id: u64,
        body: &[u8],
        signature: &[u8],
    ) -> Result<(), Rejection> {
        if let Some(outcome) = self.check_with_cached(now, id, body, signature) {
            return outcome;
        }
        // Concurrent checks wait for a running fetch, which may be of the same key.
        let guard = tokio::time::timeout_at(context.deadline, self.last_fetch.lock()).await;
        let mut last_fetch = guard.map_err(|_| Rejection::Unchecked(Error::Deadline))?;
        if let Some(outcome) = self.check_with_cached(now, id, body, signature) {
            return outcome;
        }
        if let Some(next) = last_fetch.map(|last| last + FETCH_INTERVAL_MIN).filter(|next| now < *next) {
            // Forged key ids must not block events that are signed with a key that expired a moment ago.
            let unchecked = Rejection::Unchecked(Error::RateLimited { retry_after: Some(next - now) });
            return self.check_with_expired(id, body, signature).unwrap_or(Err(unchecked));
        }
        *last_fetch = Some(now);
        let pem = api.signing_key(context, id).await.map_err(Rejection::Unchecked)?.ok_or(Rejection::Forged)?;
        let key = parse_public_key(&pem)
            .ok_or(Rejection::Unchecked(Error::Malformed("the signing key could not be parsed")))?;
        verify_signature(&key, body, signature)?;
        *self.cached.lock() = Some(CachedKey { id, key, until: now + KEY_TTL });
        Ok(())
    }

    /// Checks with the cached key even if it has expired. None if the cached key has another id.
    fn check_with_expired(&self, id: u64, body: &[u8], signature: &[u8]) -> Option<Result<(), Rejection>> {
        let cached = self.cached.lock();
        cached.as_ref().filter(|cached| id == cached.id).map(|cached| verify_signature(&cached.key, body, signature))
    }

    /// Checks with the cached key. None if it has expired or is older than `id`.
    fn check_with_cached(&self, now: Instant, id: u64, body: &[u8], signature: &[u8]) -> Option<Result<(), Rejection>> {
        let cached = self.cached.lock();
        let cached = cached.as_ref().filter(|cached| now < cached.until && id <= cached.id)?;
        Some(if id == cached.id { verify_signature(&cached.key, body, signature) } else { Err(Rejection::Forged) })
    }
}

fn verify_signature(key: &ParsedPublicKey, body: &[u8], signature: &[u8]) -> Result<(), Rejection> {
    key.verify_sig(body, signature).map_err(|_| Rejection::Forged)
}

/// Parses an RSA public key in PEM: PKCS#1 as documented, or SPKI (docs/providers/akahu.md#webhook-keys).
fn parse_public_key(pem: &str) -> Option<ParsedPublicKey> {
    let bare = |label: &str| {
        let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
        pem.trim().strip_prefix(&begin)?.strip_suffix(&end)
    };
    let base64: String = bare("RSA PUBLIC KEY").or_else(|| bare("PUBLIC KEY"))?.split_ascii_whitespace().collect();
    ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, STANDARD.decode(base64).ok()?).ok()
}
