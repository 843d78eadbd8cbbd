//! Rate budgets, taken from the headers of the provider's responses
//! (docs/providers/snaptrade.md#rate-limits). Calls that the provider would certainly reject are
//! not made.

use std::collections::HashMap;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::HeaderMap;
use tokio::time::Instant;

use crate::http::{Response, retry_after, seconds};

/// The longest time for which a response can close a budget. The documented period is one minute.
/// The limit matters if the provider sends a Unix time instead of seconds, which would close the
/// budget for years.
const CLOSED_MAX: Duration = Duration::from_secs(300);
/// The most accounts with a closed budget that are kept in memory.
const KEPT_MAX: usize = 1_024;

/// The budgets that are used up, each with the time at which it opens again.
#[derive(Default)]
pub(super) struct Budgets {
    /// The budget of all calls of the client.
    client: Option<Instant>,
    /// The budgets of calls that read one account. Only personal keys have them.
    accounts: HashMap<String, Instant>,
}

impl Budgets {
    /// Admits a call or returns how long to wait. `account` is set if the call reads one account.
    pub(super) fn admit(&self, now: Instant, account: Option<&str>) -> Result<(), Duration> {
        let until = self
            .client
            .max(account.and_then(|account| self.accounts.get(account).copied()));
        match until {
            Some(until) if now < until => Err(until - now),
            _ => Ok(()),
        }
    }

    /// Updates the budgets from a response. A 429 closes the budget of the client, unless the
    /// headers say that only that of the account is used up.
    pub(super) fn update(&mut self, now: Instant, account: Option<&str>, response: &Response) {
        let headers = &response.headers;
        let mut client = used_up(headers, "x-ratelimit-remaining", "x-ratelimit-reset");
        let own = used_up(
            headers,
            "x-ratelimit-account-remaining",
            "x-ratelimit-account-reset",
        );
        let mut own = account.zip(own);
        if response.status == StatusCode::TOO_MANY_REQUESTS {
            let retry_after = retry_after(headers).unwrap_or_default();
            match &mut own {
                Some((_, wait)) if client.is_none() => *wait = retry_after.max(*wait),
                _ => client = client.max(Some(retry_after)),
            }
        }
        if let Some(wait) = client {
            self.client = self.client.max(Some(now + wait.min(CLOSED_MAX)));
        }
        if let Some((account, wait)) = own {
            self.close(now, account, wait.min(CLOSED_MAX));
        }
    }

    fn close(&mut self, now: Instant, account: &str, wait: Duration) {
        if self.accounts.len() >= KEPT_MAX {
            self.accounts.retain(|_, until| now < *until);
        }
        // Beyond the limit the account is not kept. The provider then rejects its calls itself.
        if self.accounts.len() < KEPT_MAX {
            let until = self.accounts.entry(account.to_owned()).or_insert(now);
            *until = (now + wait).max(*until);
        }
    }
}

/// How long a budget stays used up. None if it is not. Zero if the reset time is missing.
fn used_up(headers: &HeaderMap, remaining: &str, reset: &str) -> Option<Duration> {
    let used_up = seconds(headers, remaining)?.is_zero();
    used_up.then(|| seconds(headers, reset).unwrap_or_default())
}

/// The client's calls in a minute, how many of them remain, and when more do.
pub(super) fn quota(headers: &HeaderMap) -> Option<(u32, u32, Duration)> {
    let number = |name| u32::try_from(seconds(headers, name)?.as_secs()).ok();
    let reset = seconds(headers, "x-ratelimit-reset").unwrap_or_default();
    Some((
        number("x-ratelimit-limit")?,
        number("x-ratelimit-remaining")?,
        reset,
    ))
}

#[cfg(test)]
mod tests {
    use bellbird_domain::table::table;
    use hyper::header::HeaderName;

    use super::*;

    fn response(status: u16, headers: &[(&'static str, &str)]) -> Response {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        let status = StatusCode::from_u16(status).unwrap();
        Response {
            status,
            headers: headers.collect(),
            body: bytes::Bytes::new(),
        }
    }

    /// For how many seconds the client, account `a` and account `b` are closed after a response
    /// about account `a`.
    fn closed(status: u16, headers: &[(&'static str, &str)]) -> (u64, u64, u64) {
        let now = Instant::now();
        let mut budgets = Budgets::default();
        budgets.update(now, Some("a"), &response(status, headers));
        let wait = |account| {
            budgets
                .admit(now, account)
                .err()
                .unwrap_or_default()
                .as_secs()
        };
        (wait(None), wait(Some("a")), wait(Some("b")))
    }

    #[tokio::test(start_paused = true)]
    async fn budget_follows_the_headers() {
        for [
            status,
            remaining,
            reset,
            own_remaining,
            own_reset,
            retry_after,
            expected,
        ] in table(
            "200 | | | | | | (0, 0, 0)
            200 | 1 | 30 | | | | (0, 0, 0)
            200 | 0 | 30 | | | | (30, 30, 30)
            200 | 0 | | | | | (0, 0, 0)
            200 | none | 30 | | | | (0, 0, 0)
            200 | 0 | 1790000000 | | | | (300, 300, 300)
            200 | | | 0 | 20 | | (0, 20, 0)
            200 | 0 | 30 | 0 | 40 | | (30, 40, 30)
            429 | | | | | | (0, 0, 0)
            429 | | | | | 7 | (7, 7, 7)
            429 | 0 | 9 | | | 7 | (9, 9, 9)
            429 | 100 | | 0 | 5 | 7 | (0, 7, 0)
            429 | 0 | | 0 | 8 | 7 | (7, 8, 7)
            503 | | | | | 7 | (0, 0, 0)",
        ) {
            let headers = [
                ("x-ratelimit-remaining", remaining),
                ("x-ratelimit-reset", reset),
                ("x-ratelimit-account-remaining", own_remaining),
                ("x-ratelimit-account-reset", own_reset),
                ("retry-after", retry_after),
            ];
            let sent = headers.into_iter().filter(|(_, value)| !value.is_empty());
            let sent: Vec<_> = sent.collect();
            let found = closed(status.parse().unwrap(), &sent);
            assert_eq!(format!("{found:?}"), expected, "{status} {sent:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn closed_budget_opens_when_its_time_is_over() {
        let mut budgets = Budgets::default();
        budgets.update(
            Instant::now(),
            None,
            &response(429, &[("retry-after", "7")]),
        );
        tokio::time::advance(Duration::from_secs(3)).await;
        // A response that was sent before the 429 must not open the budget.
        budgets.update(
            Instant::now(),
            None,
            &response(200, &[("x-ratelimit-remaining", "5")]),
        );
        budgets.update(
            Instant::now(),
            None,
            &response(429, &[("retry-after", "1")]),
        );
        assert_eq!(
            budgets.admit(Instant::now(), Some("a")),
            Err(Duration::from_secs(4))
        );
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(budgets.admit(Instant::now(), Some("a")), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn closed_accounts_are_bounded() {
        let mut budgets = Budgets::default();
        let own = response(
            200,
            &[
                ("x-ratelimit-account-remaining", "0"),
                ("x-ratelimit-account-reset", "20"),
            ],
        );
        for number in 0..=KEPT_MAX {
            budgets.update(Instant::now(), Some(&number.to_string()), &own);
        }
        assert_eq!(budgets.accounts.len(), KEPT_MAX);
        tokio::time::advance(Duration::from_secs(20)).await;
        budgets.update(Instant::now(), Some("another"), &own);
        assert_eq!(budgets.accounts.len(), 1, "open budgets are evicted");
        assert!(budgets.admit(Instant::now(), Some("another")).is_err());
    }
}
