//! Rate budgets, learned from the provider's answers: a call that is sure to be refused is not made
//! (docs/providers/snaptrade.md#rate-limits).

use std::collections::HashMap;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use tokio::time::Instant;

use crate::http::Answer;

/// How long a budget stays closed at most on the provider's word. The documented window is a minute; the bound keeps a
/// moment sent in place of seconds from closing it for years.
const CLOSED_MAX: Duration = Duration::from_secs(300);
/// Closed accounts that are remembered.
const ACCOUNTS_MAX: usize = 1_024;

/// Until when which calls would be refused.
#[derive(Default)]
pub(super) struct Budgets {
    /// All of the client's calls.
    client: Option<Instant>,
    /// Those that read one account. Only personal keys have these.
    accounts: HashMap<String, Instant>,
}

impl Budgets {
    /// Whether a call, that may be about one account, may be made now; else how long to wait.
    pub(super) fn admit(&self, now: Instant, account: Option<&str>) -> Result<(), Duration> {
        let until = self.client.max(account.and_then(|account| self.accounts.get(account).copied()));
        match until {
            Some(until) if now < until => Err(until - now),
            _ => Ok(()),
        }
    }

    /// Reads what an answer says of the budgets. A 429 is the client's, unless the headers say that only the account's
    /// budget is used up.
    pub(super) fn learn(&mut self, now: Instant, account: Option<&str>, answer: &Answer) {
        let headers = &answer.headers;
        let mut client = used_up(headers, "x-ratelimit-remaining", "x-ratelimit-reset");
        let own = used_up(headers, "x-ratelimit-account-remaining", "x-ratelimit-account-reset");
        let mut own = account.zip(own);
        if answer.status == StatusCode::TOO_MANY_REQUESTS {
            let asked = seconds(headers, RETRY_AFTER.as_str()).unwrap_or_default();
            match &mut own {
                Some((_, wait)) if client.is_none() => *wait = asked.max(*wait),
                _ => client = client.max(Some(asked)),
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
        if self.accounts.len() >= ACCOUNTS_MAX {
            self.accounts.retain(|_, until| now < *until);
        }
        // One more than that is not remembered: it gets its refusal from the provider.
        if self.accounts.len() < ACCOUNTS_MAX {
            let until = self.accounts.entry(account.to_owned()).or_insert(now);
            *until = (now + wait).max(*until);
        }
    }
}

/// How long a budget stays used up, if it is; no time at all when that is not said.
fn used_up(headers: &HeaderMap, remaining: &str, reset: &str) -> Option<Duration> {
    let used_up = seconds(headers, remaining)?.is_zero();
    used_up.then(|| seconds(headers, reset).unwrap_or_default())
}

/// A header that holds a whole number of seconds.
pub(super) fn seconds(headers: &HeaderMap, name: &str) -> Option<Duration> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderName;

    use super::*;

    fn answer(status: u16, headers: &[(&'static str, &str)]) -> Answer {
        let headers = headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        let status = StatusCode::from_u16(status).unwrap();
        Answer { status, headers: headers.collect(), body: bytes::Bytes::new() }
    }

    /// How many seconds the client, account `a` and account `b` are closed for, after an answer about account `a`.
    fn closed(status: u16, headers: &[(&'static str, &str)]) -> (u64, u64, u64) {
        let now = Instant::now();
        let mut budgets = Budgets::default();
        budgets.learn(now, Some("a"), &answer(status, headers));
        let wait = |account| budgets.admit(now, account).err().unwrap_or_default().as_secs();
        (wait(None), wait(Some("a")), wait(Some("b")))
    }

    #[tokio::test(start_paused = true)]
    async fn what_answers_say() {
        const REMAINING: &str = "x-ratelimit-remaining";
        const RESET: &str = "x-ratelimit-reset";
        const OWN_REMAINING: &str = "x-ratelimit-account-remaining";
        const OWN_RESET: &str = "x-ratelimit-account-reset";
        for (status, headers, expected) in [
            (200, &[][..], (0, 0, 0)),
            (200, &[(REMAINING, "1"), (RESET, "30")], (0, 0, 0)),
            (200, &[(REMAINING, "0"), (RESET, "30")], (30, 30, 30)),
            (200, &[(REMAINING, "0")], (0, 0, 0)),
            (200, &[(REMAINING, "none"), (RESET, "30")], (0, 0, 0)),
            (200, &[(REMAINING, "0"), (RESET, "1790000000")], (300, 300, 300)),
            (200, &[(OWN_REMAINING, "0"), (OWN_RESET, "20")], (0, 20, 0)),
            (200, &[(REMAINING, "0"), (RESET, "30"), (OWN_REMAINING, "0"), (OWN_RESET, "40")], (30, 40, 30)),
            (429, &[], (0, 0, 0)),
            (429, &[("retry-after", "7")], (7, 7, 7)),
            (429, &[("retry-after", "7"), (REMAINING, "0"), (RESET, "9")], (9, 9, 9)),
            (429, &[("retry-after", "7"), (REMAINING, "100"), (OWN_REMAINING, "0"), (OWN_RESET, "5")], (0, 7, 0)),
            (429, &[("retry-after", "7"), (REMAINING, "0"), (OWN_REMAINING, "0"), (OWN_RESET, "8")], (7, 8, 7)),
            (503, &[("retry-after", "7")], (0, 0, 0)),
        ] {
            assert_eq!(closed(status, headers), expected, "{status} {headers:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_budget_opens_by_itself_and_not_before() {
        let mut budgets = Budgets::default();
        budgets.learn(Instant::now(), None, &answer(429, &[("retry-after", "7")]));
        tokio::time::advance(Duration::from_secs(3)).await;
        // An answer that was on its way: what it says is older.
        budgets.learn(Instant::now(), None, &answer(200, &[("x-ratelimit-remaining", "5")]));
        budgets.learn(Instant::now(), None, &answer(429, &[("retry-after", "1")]));
        assert_eq!(budgets.admit(Instant::now(), Some("a")), Err(Duration::from_secs(4)));
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(budgets.admit(Instant::now(), Some("a")), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn closed_accounts_are_bounded() {
        let mut budgets = Budgets::default();
        let own = answer(200, &[("x-ratelimit-account-remaining", "0"), ("x-ratelimit-account-reset", "20")]);
        for number in 0..=ACCOUNTS_MAX {
            budgets.learn(Instant::now(), Some(&number.to_string()), &own);
        }
        assert_eq!(budgets.accounts.len(), ACCOUNTS_MAX);
        tokio::time::advance(Duration::from_secs(20)).await;
        budgets.learn(Instant::now(), Some("another"), &own);
        assert_eq!(budgets.accounts.len(), 1, "those that are open again are forgotten");
        assert!(budgets.admit(Instant::now(), Some("another")).is_err());
    }
}
