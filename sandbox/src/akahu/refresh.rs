//! `POST /refresh`: reads all logins of the user again from the bank, with a delay
//! (docs/providers/akahu.md#refresh).

use axum::response::Response;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};

use super::call::UserCall;
use super::errors::Failure;
use super::respond::done;
use super::store::{Store, refresh_completion_time};
use crate::consent::ConsentState;

/// How soon after a refresh the next gets 429: the default of full apps. The documented response
/// suggests an error rather than a silent no-op (docs/providers/akahu.md#refresh).
const REFRESH_INTERVAL_MIN: SignedDuration = SignedDuration::from_mins(15);
/// Akahu refreshes every login once a day on its own.
const DAY_SECONDS: i64 = 86_400;

/// Starts a refresh of the logins outside the rest period, or responds with 429 if there are none.
/// For an INACTIVE login it has no effect.
pub(super) async fn refresh(call: UserCall) -> Result<Response, Failure> {
    let mut store = call.akahu.store.write();
    let mut started = false;
    for login in store.logins_of(call.user) {
        let login = &mut store.logins[login];
        if login
            .refresh_requested_at
            .is_some_and(|at| call.now.duration_since(at).abs() < REFRESH_INTERVAL_MIN)
        {
            continue;
        }
        started = true;
        login.refresh_requested_at = Some(call.now);
        if login.state == ConsentState::Active {
            login.refresh_due_at = Some(refresh_completion_time(call.now));
        }
    }
    if started {
        return Ok(done());
    }
    Err(Failure::new(
        StatusCode::TOO_MANY_REQUESTS,
        "Refresh initiated within last 5 minutes",
    ))
}

impl Store {
    /// Applies the refreshes that are due by `now`, requested and daily ones.
    pub(super) fn apply_due_refreshes(&mut self, now: Timestamp) {
        for index in 0..self.logins.len() {
            let login = &mut self.logins[index];
            if login.state != ConsentState::Active {
                continue;
            }
            let mut refreshed_at = login
                .refresh_due_at
                .take_if(|at| *at <= now)
                .unwrap_or(login.refreshed_at);
            let days = now.duration_since(refreshed_at).as_secs() / DAY_SECONDS;
            if days > 0 {
                refreshed_at += SignedDuration::from_secs(days * DAY_SECONDS);
            }
            if refreshed_at <= login.refreshed_at {
                continue;
            }
            login.refreshed_at = refreshed_at;
            for account in self.accounts_at(index) {
                account.set_refreshed(refreshed_at);
            }
        }
    }
}
