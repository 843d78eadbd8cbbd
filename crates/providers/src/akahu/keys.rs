//! The keys with which webhooks are signed: fetched when an event names one, and kept for a day
//! (docs/providers/akahu.md#webhook-keys).
//!
//! Anybody can send events that name keys, so fetching is bounded, and a key is kept only once a signature was good.

use std::time::Duration;

use aws_lc_rs::signature::{ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::api::Api;
use crate::notifying::Refused;
use crate::{Call, Error};

/// How long a key is kept (docs/providers/akahu.md#webhook-keys).
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// No key is fetched sooner than this after the last.
const FETCH_EVERY: Duration = Duration::from_secs(5);

/// The one key in use, and when the last one was asked for.
#[derive(Default)]
pub(super) struct Keys {
    held: Mutex<Option<Held>>,
    /// Whoever holds it may fetch.
    fetched: tokio::sync::Mutex<Option<Instant>>,
}

struct Held {
    id: u64,
    key: ParsedPublicKey,
    until: Instant,
}

impl Keys {
    /// Whether a body was signed with the key that has this number. Numbers grow: one below that of the key in use is
    /// refused (docs/providers/akahu.md#webhook-keys).
    pub(super) async fn check(
        &self,
        (api, call): (&Api, &Call),
        now: Instant,
        id: u64,
        body: &[u8],
        signature: &[u8],
    ) -> Result<(), Refused> {
        if let Some(outcome) = self.check_with_held(now, id, body, signature) {
            return outcome;
        }
        // Those that come while a key is being fetched wait for it: it may be theirs.
        let turn = tokio::time::timeout_at(call.deadline, self.fetched.lock()).await;
        let mut fetched = turn.map_err(|_| Refused::Unchecked(Error::Deadline))?;
        if let Some(outcome) = self.check_with_held(now, id, body, signature) {
            return outcome;
        }
        if let Some(next) = fetched.map(|last| last + FETCH_EVERY).filter(|next| now < *next) {
            // Those who make up numbers must not keep out what is signed with a key that was in use a moment ago.
            let unchecked = Refused::Unchecked(Error::RateLimited { retry_after: Some(next - now) });
            return self.check_with_old(id, body, signature).unwrap_or(Err(unchecked));
        }
        *fetched = Some(now);
        let pem = api.signing_key(call, id).await.map_err(Refused::Unchecked)?.ok_or(Refused::Forged)?;
        let key = read(&pem).ok_or(Refused::Unchecked(Error::Malformed("a key that cannot be read")))?;
        fits(&key, body, signature)?;
        *self.held.lock() = Some(Held { id, key, until: now + KEPT_FOR });
        Ok(())
    }

    /// What the last key says, though its day is over, if the number is its own.
    fn check_with_old(&self, id: u64, body: &[u8], signature: &[u8]) -> Option<Result<(), Refused>> {
        let held = self.held.lock();
        held.as_ref().filter(|held| id == held.id).map(|held| fits(&held.key, body, signature))
    }

    /// What the key in use says, if it can say anything.
    fn check_with_held(&self, now: Instant, id: u64, body: &[u8], signature: &[u8]) -> Option<Result<(), Refused>> {
        let held = self.held.lock();
        let held = held.as_ref().filter(|held| now < held.until && id <= held.id)?;
        Some(if id == held.id { fits(&held.key, body, signature) } else { Err(Refused::Forged) })
    }
}

fn fits(key: &ParsedPublicKey, body: &[u8], signature: &[u8]) -> Result<(), Refused> {
    key.verify_sig(body, signature).map_err(|_| Refused::Forged)
}

/// A public key of RSA in PEM: PKCS#1, as documented, or SPKI, which is also understood
/// (docs/providers/akahu.md#webhook-keys).
fn read(pem: &str) -> Option<ParsedPublicKey> {
    let bare = |label: &str| {
        let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
        pem.trim().strip_prefix(&begin)?.strip_suffix(&end)
    };
    let base64: String = bare("RSA PUBLIC KEY").or_else(|| bare("PUBLIC KEY"))?.split_ascii_whitespace().collect();
    ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, STANDARD.decode(base64).ok()?).ok()
}
