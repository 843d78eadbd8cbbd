//! The public keys for webhook signatures. A key is fetched when an event names it and cached for a
//! day (docs/providers/akahu.md#webhook-keys).
//!
//! Anyone can send events that name keys. So a number is fetched at most once in ten minutes, and
//! numbers far above the one in use are rejected. A fetched key comes from the provider, whatever
//! event named it, so it is cached: an unauthenticated caller who names the next key only makes us
//! fetch it early.

use std::collections::BTreeMap;
use std::sync::Arc;
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
/// The shortest time between two responses about one number.
const RESPONSE_INTERVAL_MIN: Duration = Duration::from_secs(10 * 60);
/// The shortest time between two attempts, if the provider did not respond. Nothing that an
/// unauthenticated caller sends makes it fail.
const RETRY_INTERVAL_MIN: Duration = Duration::from_secs(5);
/// How far a number may be above the one in use. Numbers grow by one with each new key.
const AHEAD_MAX: u64 = 8;
/// Numbers that are remembered. It limits what unauthenticated callers can make us fetch before the
/// number in use is known.
const NUMBERS_MAX: usize = 32;
/// The numbers that [`Keys::find_first`] tries.
const FIRST_MAX: u64 = 32;

#[derive(Default)]
pub(super) struct Keys {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    numbers: BTreeMap<u64, Number>,
    /// The number of the last valid signature. Lower ones are rejected
    /// (docs/providers/akahu.md#webhook-keys).
    in_use: Option<u64>,
    /// The lowest number that has a key, from [`Keys::find_first`].
    first: Option<u64>,
}

/// What the provider returned for a number. The holder of the lock fetches it.
type Number = Arc<tokio::sync::Mutex<Fetched>>;

#[derive(Default)]
struct Fetched {
    key: Option<ParsedPublicKey>,
    responded_at: Option<Instant>,
    failed_at: Option<Instant>,
}

impl Fetched {
    /// When the next fetch is allowed. None: now.
    fn next_fetch(&self, now: Instant) -> Option<Instant> {
        let responded = self.responded_at.map(|at| {
            at + if self.key.is_some() {
                KEY_TTL
            } else {
                RESPONSE_INTERVAL_MIN
            }
        });
        let failed = self.failed_at.map(|at| at + RETRY_INTERVAL_MIN);
        responded.max(failed).filter(|next| now < *next)
    }
}

impl Keys {
    /// Checks that a body was signed with the key `id`.
    pub(super) async fn check(
        &self,
        (api, context): (&Api, &CallContext),
        now: Instant,
        id: u64,
        body: &[u8],
        signature: &[u8],
    ) -> Result<(), Rejection> {
        let number = self.state.lock().number(now, id)?;
        // Concurrent checks wait for a running fetch of the same number, and for no other.
        let guard = tokio::time::timeout_at(context.deadline, number.lock()).await;
        let mut fetched = guard.map_err(|_| Rejection::Unchecked(Error::Deadline))?;
        let is_new = fetched.next_fetch(now).is_none();
        if is_new {
            let failed = fetch(&mut fetched, (api, context), now, id).await.err();
            // A key that expired a moment ago still counts while the provider does not respond.
            if let Some(error) = failed.filter(|_| fetched.key.is_none()) {
                return Err(Rejection::Unchecked(error));
            }
        }
        match &fetched.key {
            Some(key) => key
                .verify_sig(body, signature)
                .map_err(|_| Rejection::Forged)?,
            None if is_new => return Err(Rejection::Forged),
            // The provider may have begun to use this number since, so it should send the event
            // again.
            None => {
                let retry_after = fetched.next_fetch(now).map(|next| next - now);
                return Err(Rejection::Unchecked(Error::RateLimited { retry_after }));
            }
        }
        self.state.lock().set_in_use(id);
        Ok(())
    }

    /// Finds the lowest number with a key, so that the first event after a start need not wait for
    /// others. Earlier keys have expired, and later ones are not there yet.
    pub(super) async fn find_first(
        &self,
        api: &Api,
        context: &CallContext,
        now: Instant,
    ) -> Result<(), Error> {
        for id in 1..=FIRST_MAX {
            let known = |state: &State| state.first.or(state.in_use).is_some();
            if known(&self.state.lock()) {
                return Ok(());
            }
            let mut fetched = Fetched::default();
            fetch(&mut fetched, (api, context), now, id).await?;
            if fetched.key.is_some() {
                let mut state = self.state.lock();
                state.first = Some(id);
                state
                    .numbers
                    .insert(id, Arc::new(tokio::sync::Mutex::new(fetched)));
            }
        }
        Ok(())
    }
}

impl State {
    /// The entry of a number, unless the number cannot be that of a key.
    fn number(&mut self, now: Instant, id: u64) -> Result<Number, Rejection> {
        let highest = self
            .in_use
            .or(self.first)
            .map(|known| known.saturating_add(AHEAD_MAX));
        if self.in_use.is_some_and(|in_use| id < in_use)
            || highest.is_some_and(|highest| id > highest)
        {
            return Err(Rejection::Forged);
        }
        if let Some(number) = self.numbers.get(&id) {
            return Ok(Arc::clone(number));
        }
        if self.numbers.len() >= NUMBERS_MAX {
            // A number stays while callers could not fetch it again.
            self.numbers.retain(|_, number| {
                number
                    .try_lock()
                    .map_or(true, |fetched| fetched.next_fetch(now).is_some())
            });
        }
        if self.numbers.len() >= NUMBERS_MAX {
            return Err(Rejection::Unchecked(Error::RateLimited {
                retry_after: Some(RETRY_INTERVAL_MIN),
            }));
        }
        Ok(Arc::clone(self.numbers.entry(id).or_default()))
    }

    fn set_in_use(&mut self, id: u64) {
        if self.in_use.is_none_or(|in_use| in_use < id) {
            self.in_use = Some(id);
            self.numbers
                .retain(|number, _| (id..=id.saturating_add(AHEAD_MAX)).contains(number));
        }
    }
}

/// Fetches a key from the provider. Keeps the former one if the provider does not respond.
async fn fetch(
    fetched: &mut Fetched,
    (api, context): (&Api, &CallContext),
    now: Instant,
    id: u64,
) -> Result<(), Error> {
    // Stays if this future is dropped.
    fetched.failed_at = Some(now);
    let key = match api.signing_key(context, id).await? {
        Some(pem) => Some(
            parse_public_key(&pem)
                .ok_or(Error::Malformed("the signing key could not be parsed"))?,
        ),
        None => None,
    };
    *fetched = Fetched {
        key,
        responded_at: Some(now),
        failed_at: None,
    };
    Ok(())
}

/// Parses an RSA public key in PEM: PKCS#1 as documented, or SPKI
/// (docs/providers/akahu.md#webhook-keys).
fn parse_public_key(pem: &str) -> Option<ParsedPublicKey> {
    let bare = |label: &str| {
        let (begin, end) = (
            format!("-----BEGIN {label}-----"),
            format!("-----END {label}-----"),
        );
        pem.trim().strip_prefix(&begin)?.strip_suffix(&end)
    };
    let base64: String = bare("RSA PUBLIC KEY")
        .or_else(|| bare("PUBLIC KEY"))?
        .split_ascii_whitespace()
        .collect();
    ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, STANDARD.decode(base64).ok()?).ok()
}
