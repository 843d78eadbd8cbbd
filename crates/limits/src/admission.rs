//! What admits a request: a call out of a rate limit, and a permit to run beside others of its key.

use std::fmt::Display;
use std::hash::Hash;

use jiff::Timestamp;

use crate::gcra::Decision;
use crate::store::SharedPermit;
use crate::{InFlight, Permit, RateLimiter};

/// How a request was admitted or rejected.
pub struct Admission<K: Hash + Eq> {
    /// None without a rate limit.
    pub decision: Option<Decision>,
    /// False if the key holds all its permits. Then no call was taken.
    pub has_permit: bool,
    /// None if none was needed, or the request is rejected.
    pub permit: Option<Permit<K>>,
}

/// Takes a permit and a call, or neither. The permit comes first, because a request without one
/// must not consume quota. With a store, a request needs a permit of this instance and one of all.
pub async fn admit<K>(
    limit: Option<&RateLimiter<K>>,
    permits: Option<&InFlight<K>>,
    key: K,
    now: Timestamp,
) -> Admission<K>
where
    K: Hash + Eq + Clone + Display + Send + Sync + 'static,
{
    let permits = permits.filter(|permits| permits.max() > 0);
    let mut permit = match permits.map(|permits| permits.try_acquire(key.clone())) {
        Some(None) => {
            return Admission {
                decision: limit.map(|limit| limit.peek_alone(&key, now)),
                has_permit: false,
                permit: None,
            };
        }
        permit => permit.flatten(),
    };
    let store = limit
        .and_then(RateLimiter::store)
        .or_else(|| permits.and_then(InFlight::store));
    if let Some(store) = store {
        let refused = limit.and_then(|limit| limit.known_refusal(&key, now));
        if refused.is_some() {
            return Admission {
                decision: refused,
                has_permit: true,
                permit: None,
            };
        }
        let bucket = limit.map(|limit| limit.bucket(&key, true, now));
        let name = key.to_string();
        // Made first: if this future is dropped while it waits, the permit is given back.
        let shared = permits.map(|permits| SharedPermit::new(store, &name, permits.max()));
        if let Some(admitted) = store.admit(&name, bucket, shared.as_ref(), now).await {
            if let (Some(limit), Some(decision)) = (limit, admitted.decision) {
                limit.learn(&key, decision);
            }
            if admitted.has_permit && admitted.decision.is_none_or(|decision| decision.allowed) {
                permit = permit.map(|permit| permit.with_shared(shared));
            } else {
                shared.into_iter().for_each(SharedPermit::was_refused);
                permit = None;
            }
            return Admission {
                decision: admitted.decision,
                has_permit: admitted.has_permit,
                permit,
            };
        }
    }
    let decision = limit.map(|limit| limit.take_alone(key, now));
    Admission {
        decision,
        has_permit: true,
        permit: permit.filter(|_| decision.is_none_or(|decision| decision.allowed)),
    }
}
