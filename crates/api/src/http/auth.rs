//! Authenticates requests by API key, and records when a key was used.
//!
//! A key with a wrong checksum costs nothing. Any other may be made up too, so a key that this
//! instance has not seen work in a day waits for one of a few places to be looked up. No number of
//! wrong keys makes a valid one fail, whatever addresses they come from.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use bellbird_domain::{ApiKey, Caller, OperatorKey, OperatorKeyId};
use bellbird_storage::{Storage, StorageError};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;
use jiff::{SignedDuration, Timestamp};
use tokio::time::timeout;
use tracing::Instrument as _;
use uuid::Uuid;

use crate::http::context::ApiContext;
use crate::http::problem::Problem;

/// One write a minute for each key, not one for each request. The last-used time is exact to a
/// minute.
const LAST_USED_WRITE_INTERVAL: SignedDuration = SignedDuration::from_secs(60);
/// A use of a known key restarts its time to live once this much of it has passed, since restarting
/// costs more than a use.
const KNOWN_KEY_RENEW_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// A lookup takes about a millisecond, and no more of them wait than the listener has connections.
/// So nobody waits this long unless the database is slow.
const LOOKUP_WAIT_MAX: Duration = Duration::from_secs(5);

/// The caller of a request that a page of the console makes in this process, for the user who is
/// signed in there. It is an extension of the request, so a request from outside never has one.
#[derive(Debug, Clone)]
pub struct SignedInCaller(pub Caller);

/// Also an extension of such a request: its user wants nothing that was read before this time, so
/// an older response of the cache does not do.
#[derive(Debug, Clone, Copy)]
pub struct NotBefore(pub Timestamp);

impl ApiContext {
    pub(crate) async fn authenticate(
        &self,
        request: &Parts,
        read_key: fn(&HeaderMap) -> Option<ApiKey>,
        now: Timestamp,
    ) -> Result<Caller, Problem> {
        if let Some(SignedInCaller(caller)) = request.extensions.get() {
            return Ok(caller.clone());
        }
        let key = read_key(&request.headers).ok_or(Problem::Unauthorized)?;
        let lookup = self.inner.storage.keys().find_caller(&key, now);
        let found = self
            .look_up(sha256(key.expose().as_bytes()), lookup, now)
            .await?;
        if is_write_due(found.last_used_at, now) {
            let (user_id, key_id) = (found.caller.user_id, found.caller.key_id);
            let touch = move |storage: Storage| async move {
                storage.keys().touch(user_id, key_id, now).await
            };
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
        let key = authorization(&request.headers, "bearer")
            .and_then(|text| OperatorKey::parse(text).ok());
        let key = key.ok_or(Problem::Unauthorized)?;
        let lookup = self.inner.storage.operator_keys().find_valid(&key, now);
        let found = self
            .look_up(sha256(key.expose().as_bytes()), lookup, now)
            .await?;
        if is_write_due(found.last_used_at, now) {
            let touch = move |storage: Storage| async move {
                storage.operator_keys().touch(found.id, now).await
            };
            self.record_last_used(found.id.uuid(), touch);
        }
        Ok(found.id)
    }

    /// Awaits the lookup of a key, at once if the key has worked here in the last day.
    async fn look_up<T>(
        &self,
        key_digest: [u8; 32],
        lookup: impl Future<Output = Result<Option<T>, StorageError>>,
        now: Timestamp,
    ) -> Result<T, Problem> {
        let known = self.inner.known_keys.get(&key_digest, now);
        let Some(((), age)) = known else {
            let found = self
                .look_up_unproven(lookup)
                .await?
                .ok_or(Problem::Unauthorized)?;
            self.inner.known_keys.insert(key_digest, (), now);
            return Ok(found);
        };
        if age >= KNOWN_KEY_RENEW_AFTER {
            self.inner.known_keys.renew(&key_digest, now);
        }
        let found = lookup.await?;
        if found.is_none() {
            self.inner.known_keys.remove(&key_digest);
        }
        found.ok_or(Problem::Unauthorized)
    }

    /// Awaits a lookup that anyone can cause with a made-up key or token, once a place is free.
    ///
    /// # Errors
    /// [`Problem::ServiceUnavailable`] if none becomes free, because the database is slow.
    pub async fn look_up_unproven<T>(
        &self,
        lookup: impl Future<Output = Result<T, StorageError>>,
    ) -> Result<T, Problem> {
        let place = timeout(LOOKUP_WAIT_MAX, self.inner.unproven_lookups.acquire()).await;
        let _place = place
            .map_err(|_| Problem::ServiceUnavailable)?
            .map_err(|_| Problem::Internal)?;
        Ok(lookup.await?)
    }

    fn record_last_used<W>(&self, key_id: Uuid, touch: impl FnOnce(Storage) -> W)
    where
        W: Future<Output = Result<(), StorageError>> + Send + 'static,
    {
        // One write for each key at a time, so that writes do not pile up while the database is
        // slow.
        let Some(permit) = self.inner.last_used_writes.try_acquire(key_id) else {
            return;
        };
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

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

fn is_write_due(last_used_at: Option<Timestamp>, now: Timestamp) -> bool {
    last_used_at.is_none_or(|used| now.duration_since(used) >= LAST_USED_WRITE_INTERVAL)
}

/// The key of the `Authorization: Bearer` header, if form and checksum are valid.
pub(crate) fn bearer_key(headers: &HeaderMap) -> Option<ApiKey> {
    ApiKey::parse(authorization(headers, "bearer")?).ok()
}

/// The text after the scheme in the `Authorization` header. More than one such header is invalid.
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
            headers.append(
                AUTHORIZATION,
                HeaderValue::from_bytes(line.as_bytes()).unwrap(),
            );
        }
        bearer_key(&headers).map(|key| key.expose().to_owned())
    }

    #[test]
    fn bearer_key_is_read_from_a_single_header() {
        let key = ApiKey::from_random([7; 32]).expose().to_owned();
        for line in [
            format!("Bearer {key}"),
            format!("bearer {key}"),
            format!("BEARER   {key} "),
        ] {
            assert_eq!(key_of(&[&line]), Some(key.clone()), "{line}");
        }
        let valid = format!("Bearer {key}");
        assert_eq!(key_of(&[]), None);
        assert_eq!(key_of(&[&valid, &valid]), None);
        let (shorter, wrong_checksum) =
            (&key[..key.len() - 1], format!("{}é", &key[..key.len() - 1]));
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
        assert!(
            !is_write_due(Some(at(100)), at(99)),
            "the clock was set back"
        );
    }
}
