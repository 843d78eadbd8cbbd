//! Authenticates requests by API key, limits failed attempts for each client address, and records when a key was used.

use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::digest::{SHA256, digest};
use axum::extract::ConnectInfo;
use bellbird_domain::{ApiKey, Caller, OperatorKey, OperatorKeyId};
use bellbird_limits::client_address::{client_address, rate_limit_key};
use bellbird_limits::gcra;
use bellbird_storage::{Storage, StorageError};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::SemaphorePermit;
use tracing::Instrument as _;
use uuid::Uuid;

use crate::front::access::Access;
use crate::front::problem::Problem;

/// One write a minute for each key, not one for each request. The last-used time is exact to a minute.
const LAST_USED_WRITE_INTERVAL: SignedDuration = SignedDuration::from_secs(60);
/// A use of a known key restarts its time to live once this much of it has passed, since restarting costs more than a
/// use.
const KNOWN_KEY_RENEW_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// The caller of a request that a page of the console makes in this process, for the user who is signed in there. It is
/// an extension of the request, so a request from outside never has one.
#[derive(Debug, Clone)]
pub struct SignedInCaller(pub Caller);

impl Access {
    /// Fails with [`Problem::Unauthorized`], or with [`Problem::TooManyRequests`] once the client's address has failed
    /// too often. Then only a key that worked recently is looked up.
    pub(crate) async fn authenticate(
        &self,
        request: &Parts,
        read_key: fn(&HeaderMap) -> Option<ApiKey>,
        now: Timestamp,
    ) -> Result<Caller, Problem> {
        if let Some(SignedInCaller(caller)) = request.extensions.get() {
            return Ok(caller.clone());
        }
        let Some(key) = read_key(&request.headers) else { return Err(self.reject(request, now).await) };
        let lookup = self.inner.storage.keys().find_caller(&key, now);
        let found = self.look_up(request, digest_of(key.expose()), lookup, now).await?;
        if is_write_due(found.last_used_at, now) {
            let (user_id, key_id) = (found.caller.user_id, found.caller.key_id);
            let touch = move |storage: Storage| async move { storage.keys().touch(user_id, key_id, now).await };
            self.record_last_used(key_id.uuid(), touch);
        }
        Ok(found.caller)
    }

    /// As [`Self::authenticate`], for an operator's key in `Authorization: Bearer`.
    pub(crate) async fn authenticate_operator(
        &self,
        request: &Parts,
        now: Timestamp,
    ) -> Result<OperatorKeyId, Problem> {
        let key = authorization(&request.headers, "bearer").and_then(|text| OperatorKey::parse(text).ok());
        let Some(key) = key else { return Err(self.reject(request, now).await) };
        let lookup = self.inner.storage.operator_keys().find_valid(&key, now);
        let found = self.look_up(request, digest_of(key.expose()), lookup, now).await?;
        if is_write_due(found.last_used_at, now) {
            let touch = move |storage: Storage| async move { storage.operator_keys().touch(found.id, now).await };
            self.record_last_used(found.id.uuid(), touch);
        }
        Ok(found.id)
    }

    /// Awaits the lookup of a key, unless the client's address has failed too often.
    async fn look_up<T>(
        &self,
        request: &Parts,
        key_digest: [u8; 32],
        lookup: impl Future<Output = Result<Option<T>, StorageError>>,
        now: Timestamp,
    ) -> Result<T, Problem> {
        let known = self.inner.known_keys.get(&key_digest, now);
        if known.is_some_and(|((), age)| age >= KNOWN_KEY_RENEW_AFTER) {
            self.inner.known_keys.renew(&key_digest, now);
        }
        let is_known = known.is_some();
        let permit = if is_known { None } else { Some(self.admit_unknown_key(request, now).await?) };
        let found = lookup.await?;
        drop(permit);
        let Some(found) = found else {
            self.inner.known_keys.remove(&key_digest);
            return Err(self.reject(request, now).await);
        };
        if !is_known {
            self.inner.known_keys.insert(key_digest, (), now);
        }
        Ok(found)
    }

    /// Waits for a permit to look up a key that has not worked recently.
    async fn admit_unknown_key(&self, request: &Parts, now: Timestamp) -> Result<SemaphorePermit<'_>, Problem> {
        self.check_failures(request, now).await?;
        let permit = self.inner.unknown_key_lookups.acquire().await.map_err(|_| Problem::Internal)?;
        // Other requests from this address may have failed meanwhile.
        self.check_failures(request, now).await?;
        Ok(permit)
    }

    /// Fails with [`Problem::TooManyRequests`] if the client's address has failed too often.
    pub async fn check_failures(&self, request: &Parts, now: Timestamp) -> Result<(), Problem> {
        let (Some(limit), Some(address)) = (&self.inner.failed_auth_limit, self.limited_address(request)) else {
            return Ok(());
        };
        let decision = limit.peek(&address, now).await;
        if decision.allowed { Ok(()) } else { Err(Problem::TooManyRequests(gcra::whole_seconds(decision.wait_us))) }
    }

    /// Counts a failed attempt of the client's address. Returns its error.
    pub async fn reject(&self, request: &Parts, now: Timestamp) -> Problem {
        let (Some(limit), Some(address)) = (&self.inner.failed_auth_limit, self.limited_address(request)) else {
            return Problem::Unauthorized;
        };
        let decision = limit.take(address, now).await;
        if decision.allowed {
            Problem::Unauthorized
        } else {
            Problem::TooManyRequests(gcra::whole_seconds(decision.wait_us))
        }
    }

    fn limited_address(&self, request: &Parts) -> Option<IpAddr> {
        let peer = request.extensions.get::<ConnectInfo<SocketAddr>>()?.0;
        let address = client_address(peer, &request.headers, &self.inner.settings.trusted_proxies);
        Some(rate_limit_key(address))
    }

    fn record_last_used<W>(&self, key_id: Uuid, touch: impl FnOnce(Storage) -> W)
    where
        W: Future<Output = Result<(), StorageError>> + Send + 'static,
    {
        // One write for each key at a time, so that writes do not pile up while the database is slow.
        let Some(permit) = self.inner.last_used_writes.try_acquire(key_id) else { return };
        let touch = touch(self.inner.storage.clone());
        let write = async move {
            let _permit = permit;
            if let Err(error) = touch.await {
                tracing::warn!(%key_id, error = %error, "could not record API key last-used time");
            }
        };
        tokio::spawn(write.in_current_span());
    }
}

/// As in the database.
fn digest_of(key: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, key.as_bytes()).as_ref());
    bytes
}

fn is_write_due(last_used_at: Option<Timestamp>, now: Timestamp) -> bool {
    last_used_at.is_none_or(|used| now.duration_since(used) >= LAST_USED_WRITE_INTERVAL)
}

/// The key of the `Authorization: Bearer` header, if form and checksum are valid.
pub(crate) fn bearer_key(headers: &HeaderMap) -> Option<ApiKey> {
    ApiKey::parse(authorization(headers, "bearer")?).ok()
}

/// The text after the scheme in the `Authorization` header. More than one such header is invalid.
#[must_use]
pub fn authorization<'h>(headers: &'h HeaderMap, scheme: &str) -> Option<&'h str> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let line = lines.next()?.to_str().ok()?;
    if lines.next().is_some() {
        return None;
    }
    let (found, text) = line.split_once(' ')?;
    found.eq_ignore_ascii_case(scheme).then_some(text.trim())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn key_of(lines: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(AUTHORIZATION, HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        bearer_key(&headers).map(|key| key.expose().to_owned())
    }

    #[test]
    fn bearer_key_is_read_from_a_single_header() {
        let key = ApiKey::from_random([7; 32]).expose().to_owned();
        for line in [format!("Bearer {key}"), format!("bearer {key}"), format!("BEARER   {key} ")] {
            assert_eq!(key_of(&[&line]), Some(key.clone()), "{line}");
        }
        let valid = format!("Bearer {key}");
        assert_eq!(key_of(&[]), None);
        assert_eq!(key_of(&[&valid, &valid]), None);
        let (shorter, wrong_checksum) = (&key[..key.len() - 1], format!("{}é", &key[..key.len() - 1]));
        for line in [
            "",
            "Bearer",
            "Bearer ",
            &key,
            &format!("Basic {key}"),
            &format!("Bearer\t{key}"),
            &format!("Bearer {shorter}"),
            &format!("Bearer {wrong_checksum}"),
        ] {
            assert_eq!(key_of(&[line]), None, "{line}");
        }
    }

    #[test]
    fn last_use_is_written_once_a_minute() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert!(is_write_due(None, at(0)));
        assert!(!is_write_due(Some(at(100)), at(159)));
        assert!(is_write_due(Some(at(100)), at(160)));
        assert!(!is_write_due(Some(at(100)), at(99)), "the clock was set back");
    }
}
