//! A sign-in at the identity provider that a browser has begun. The browser's cookie is the key
//! from which `state`, nonce and code verifier are derived, so no instance stores anything until
//! the browser is back.

use aws_lc_rs::hmac;
use bellbird_domain::TimestampExt as _;
use jiff::{SignedDuration, Timestamp};

/// How long the browser has. The cookie is kept for as long.
const ATTEMPT_TTL: SignedDuration = SignedDuration::from_mins(10);

pub(crate) struct Attempt {
    key: hmac::Key,
    /// Seconds since 1970.
    expires_at: i64,
}

impl Attempt {
    /// `cookie` is new and random.
    pub(crate) fn begin(cookie: &str, now: Timestamp) -> Self {
        Self::new(cookie, now.plus(ATTEMPT_TTL).as_second())
    }

    /// The attempt of a callback. None: another browser has begun it, it has expired, or it is made
    /// up.
    pub(crate) fn find(cookie: &str, state: &str, now: Timestamp) -> Option<Self> {
        let (expires_at, tag) = state.split_once('.')?;
        let attempt = Self::new(
            cookie,
            expires_at
                .parse()
                .ok()
                .filter(|expires_at| now.as_second() < *expires_at)?,
        );
        hmac::verify(
            &attempt.key,
            &attempt.message("state"),
            &hex::decode(tag).ok()?,
        )
        .ok()?;
        Some(attempt)
    }

    fn new(cookie: &str, expires_at: i64) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, cookie.as_bytes()),
            expires_at,
        }
    }

    pub(crate) fn state(&self) -> String {
        format!("{}.{}", self.expires_at, self.derive("state"))
    }

    pub(crate) fn nonce(&self) -> String {
        self.derive("nonce")
    }

    pub(crate) fn code_verifier(&self) -> String {
        self.derive("code verifier")
    }

    /// 256 bits, in hexadecimal.
    fn derive(&self, what: &str) -> String {
        hex::encode(hmac::sign(&self.key, &self.message(what)))
    }

    fn message(&self, what: &str) -> Vec<u8> {
        format!("{what} {}", self.expires_at).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_bound_to_cookie_and_time() {
        let begun: Timestamp = "2026-11-20T09:30:00Z".parse().unwrap();
        let (cookie, other) = ("a".repeat(64), "b".repeat(64));
        let attempt = Attempt::begin(&cookie, begun);
        let (state, last) = (attempt.state(), begun.plus(SignedDuration::from_secs(599)));
        let found = Attempt::find(&cookie, &state, last).unwrap();
        assert_eq!(
            (found.nonce(), found.code_verifier()),
            (attempt.nonce(), attempt.code_verifier())
        );
        assert!(Attempt::find(&other, &state, begun).is_none());
        assert!(Attempt::find(&cookie, &state, begun.plus(ATTEMPT_TTL)).is_none());
        let later = state.replacen(|digit: char| digit.is_ascii_digit(), "9", 1);
        for wrong in [
            later.as_str(),
            "",
            ".",
            &state[..state.len() - 1],
            &state[..state.len() - 2],
        ] {
            assert!(Attempt::find(&cookie, wrong, begun).is_none(), "{wrong}");
        }
        let all = [
            attempt.nonce(),
            attempt.code_verifier(),
            state.split_once('.').unwrap().1.to_owned(),
        ];
        assert!(
            all.iter().all(|one| one.len() == 64)
                && all[0] != all[1]
                && all[1] != all[2]
                && all[0] != all[2]
        );
    }
}
