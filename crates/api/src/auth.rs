//! Who is calling.

use std::net::SocketAddr;

use axum::extract::ConnectInfo;
use bellbird_domain::{ApiKey, Caller};
use bellbird_shared_state::gcra;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;
use jiff::{SignedDuration, Timestamp};

use crate::client_address::{client_address, limited_by};
use crate::problem::Problem;
use crate::state::AppState;

/// A key's last use is kept to the minute: one write a minute, not one a call.
const LAST_USE_KEPT_EVERY: SignedDuration = SignedDuration::from_secs(60);

impl AppState {
    /// The caller whose valid key the request carries.
    ///
    /// # Errors
    /// [`Problem::Unauthorized`]; [`Problem::TooManyRequests`] in its place once the client's address has failed too often.
    pub(crate) async fn authenticate(&self, request: &Parts, now: Timestamp) -> Result<Caller, Problem> {
        let Some(key) = bearer_key(&request.headers) else { return Err(self.failed(request, now)) };
        let Some(found) = self.inner.storage.find_caller(&key, now).await? else {
            return Err(self.failed(request, now));
        };
        if found.last_used_at.is_none_or(|used| now.duration_since(used) >= LAST_USE_KEPT_EVERY) {
            self.keep_last_use(&found.caller, now);
        }
        Ok(found.caller)
    }

    fn failed(&self, request: &Parts, now: Timestamp) -> Problem {
        let peer = request.extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0);
        let (Some(limit), Some(peer)) = (&self.inner.failed_auth_limit, peer) else { return Problem::Unauthorized };
        let address = client_address(peer, &request.headers, &self.inner.settings.trusted_proxies);
        let decision = limit.take(limited_by(address), now);
        if decision.allowed {
            Problem::Unauthorized
        } else {
            Problem::TooManyRequests(gcra::whole_seconds(decision.wait_us))
        }
    }

    fn keep_last_use(&self, caller: &Caller, now: Timestamp) {
        // One write of a key at a time: while the database is slow, they must not pile up.
        let Some(place) = self.inner.touching.enter(caller.key_id) else { return };
        let storage = self.inner.storage.clone();
        let (user_id, key_id) = (caller.user_id, caller.key_id);
        tokio::spawn(async move {
            let _place = place;
            if let Err(error) = storage.touch_key(user_id, key_id, now).await {
                tracing::warn!(key_id = %key_id, error = %error, "last use of a key not kept");
            }
        });
    }
}

/// The key of exactly one `Authorization: Bearer` header, if its form and checksum are right.
fn bearer_key(headers: &HeaderMap) -> Option<ApiKey> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let line = lines.next()?.to_str().ok()?;
    if lines.next().is_some() {
        return None;
    }
    let (scheme, key) = line.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    ApiKey::parse(key.trim()).ok()
}
