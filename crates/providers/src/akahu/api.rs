//! One function per remote call; paging; authentication.

use std::sync::Once;

use bellbird_domain::ConnectionStatus;
use jiff::Timestamp;
use reqwest::header::HeaderValue;
use reqwest::{RequestBuilder, StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};

use super::{NAME, wire};
use crate::http::{Answer, Attempts, Client, parse_json};
use crate::{Call, Cursor, Error};

/// Rows of a full page; there is no way to choose (docs/providers/akahu.md#pages).
pub(super) const PAGE_ROWS: u32 = 100;
/// A page with more rows than this is not believed.
const PAGE_ROWS_BELIEVED: usize = 1_000;
/// The longest cursor that is taken; page maps keep them. Those seen had 128 characters
/// (docs/providers/akahu.md#pages).
const CURSOR_BYTES_MAX: usize = 1_024;

/// Akahu's HTTP interface with one app's credentials.
pub(super) struct Api {
    client: Client,
    base_url: Url,
    app_token: HeaderValue,
    /// Personal apps have none.
    app_secret: Option<SecretString>,
    forbidden: Once,
}

impl Api {
    pub(super) fn new(client: Client, base_url: Url, app_token: HeaderValue, app_secret: Option<SecretString>) -> Self {
        Self { client, base_url, app_token, app_secret, forbidden: Once::new() }
    }

    /// Whether it answers. Only with a secret is there a call that takes the app's credentials alone; without one, a
    /// refusal for want of a user is an answer too.
    pub(super) async fn check(&self, call: &Call) -> Result<(), Error> {
        let Some(secret) = &self.app_secret else {
            let url = self.url(&["me"]);
            let reached = |answer: &Answer| match answer.status {
                status if status.is_success() => Ok(()),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Ok(()),
                _ => Err(answer.failure()),
            };
            let build = |http: &reqwest::Client| http.get(url.clone()).header("X-Akahu-Id", &self.app_token);
            return self.client.call(call, "check", build, reached).await;
        };
        let url = self.url(&["connections"]);
        let build = |http: &reqwest::Client| http.get(url.clone()).basic_auth(self.app(), Some(secret.expose_secret()));
        self.client.call(call, "check", build, |answer| done(&answer.success()?)).await
    }

    /// The app's id, which is its token.
    pub(super) fn app(&self) -> &str {
        self.app_token.to_str().unwrap_or_default()
    }

    /// Only a full app has a secret (docs/providers/akahu.md#apps).
    pub(super) fn is_full_app(&self) -> bool {
        self.app_secret.is_some()
    }

    fn secret(&self) -> Result<&str, Error> {
        let secret = self.app_secret.as_ref().map(|secret| secret.expose_secret());
        secret.ok_or_else(|| Error::BadGrant("akahu.app_secret is not set".to_owned()))
    }

    /// Exchanges the code of a consent for a user token, in one attempt: a code is good once, for 60 s
    /// (docs/providers/akahu.md#redirects).
    pub(super) async fn exchange(&self, call: &Call, code: &str, return_url: &Url) -> Result<String, Error> {
        let url = self.url(&["token"]);
        let body = serde_json::json!({
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": return_url.as_str(),
            "client_id": self.app(),
            "client_secret": self.secret()?,
        });
        let read = |answer: &Answer| {
            if !answer.status.is_success() {
                return Err(self.not_exchanged(answer));
            }
            let token: wire::Token = parse_json(answer.json_body()?)?;
            done(&wire::Done { success: token.success })?;
            Ok(token.access_token)
        };
        self.client.call_in(Attempts::One, call, "token", |http| http.post(url.clone()).json(&body), read).await
    }

    /// Why there is no token: the codes of docs/providers/akahu.md#token-exchange.
    fn not_exchanged(&self, answer: &Answer) -> Error {
        let refusal: wire::NotExchanged = serde_json::from_slice(&answer.body).unwrap_or_default();
        match refusal.error.as_deref() {
            Some("invalid_grant" | "expired_grant") => Error::BadGrant(
                "the consent could not be taken up: its code is good once, for 60 seconds; begin again".to_owned(),
            ),
            Some("invalid_client") => {
                tracing::warn!(
                    provider = %NAME,
                    "Akahu does not know us: check that akahu.app_token and akahu.app_secret are those of one full app"
                );
                Error::Rejected { status: answer.status.as_u16() }
            }
            _ => answer.failure(),
        }
    }

    /// The address of the person behind a user token, if the app may see it (docs/providers/akahu.md#user).
    pub(super) async fn email(&self, call: &Call, user_token: &str) -> Result<Option<String>, Error> {
        let url = self.url(&["me"]);
        let build = |http: &reqwest::Client| http.get(url.clone());
        let read = |answer: &Answer| {
            let me: wire::Me = parse_json(self.body(answer)?)?;
            Ok(me.item.email.filter(|email| !email.is_empty()))
        };
        self.user_call(call, "me", user_token, build, read).await
    }

    /// The `state` of each of a user's webhook subscriptions; what type one is of is not listed
    /// (docs/providers/akahu.md#webhooks).
    pub(super) async fn subscriptions(&self, call: &Call, user_token: &str) -> Result<Vec<String>, Error> {
        let url = self.url(&["webhooks"]);
        let build = |http: &reqwest::Client| http.get(url.clone());
        let read = |answer: &Answer| {
            let list: wire::List<wire::Subscription> = list(self.body(answer)?)?;
            Ok(list.items.into_iter().filter_map(|subscription| subscription.state).collect())
        };
        self.user_call(call, "webhooks", user_token, build, read).await
    }

    /// Subscribes to one type of event, in one attempt, as a second subscription sends everything twice. A 400 means
    /// that the app has no address for webhooks (docs/providers/akahu.md#webhooks); messages differ from source to
    /// source, so it is not looked at.
    pub(super) async fn subscribe(&self, call: &Call, user_token: &str, kind: &str, state: &str) -> Result<(), Error> {
        let url = self.url(&["webhooks"]);
        let body = serde_json::json!({"webhook_type": kind, "state": state});
        let build = |http: &reqwest::Client| {
            http.post(url.clone()).bearer_auth(user_token).header("X-Akahu-Id", &self.app_token).json(&body)
        };
        let read = |answer: &Answer| match answer.status {
            StatusCode::BAD_REQUEST => {
                tracing::debug!(provider = %NAME, "Akahu takes no subscription: the app may have no webhook address");
                Ok(())
            }
            _ => done(&parse_json(self.body(answer)?)?),
        };
        self.client.call_in(Attempts::One, call, "subscribe", build, read).await
    }

    /// The public key with which webhooks are signed, as PEM; none when the provider has no such key, or has it no
    /// more. One attempt: events name the key, and anybody can send us events.
    pub(super) async fn signing_key(&self, call: &Call, id: u64) -> Result<Option<String>, Error> {
        let url = self.url(&["keys", &id.to_string()]);
        let secret = self.secret()?;
        let read = |answer: &Answer| match answer.status {
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND if answer.json_body().is_ok() => Ok(None),
            _ => answer.success().map(|key: wire::SigningKey| Some(key.item)),
        };
        self.client
            .call_in(
                Attempts::One,
                call,
                "key",
                |http| http.get(url.clone()).basic_auth(self.app(), Some(secret)),
                read,
            )
            .await
    }

    /// All accounts that a user token covers, of every authorisation.
    pub(super) async fn accounts<T: Send>(
        &self,
        call: &Call,
        user_token: &str,
        mut read: impl FnMut(&[wire::Account<'_>]) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let url = self.url(&["accounts"]);
        let build = |http: &reqwest::Client| http.get(url.clone());
        self.user_call(call, "accounts", user_token, build, |answer| read(&list(self.body(answer)?)?.items)).await
    }

    /// One page of settled transactions as it came. `read` parses it, and must not keep anything when it fails.
    pub(super) async fn transactions<T: Send>(
        &self,
        call: &Call,
        user_token: &str,
        query: &TransactionsQuery<'_>,
        mut read: impl FnMut(&[u8]) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let url = match query.account_id {
            Some(id) => self.url(&["accounts", id, "transactions"]),
            None => self.url(&["transactions"]),
        };
        let (start, end) = (query.start(), query.end());
        let mut pairs = vec![("start", start.as_str()), ("end", end.as_str())];
        pairs.extend(query.cursor.map(|cursor| ("cursor", cursor.0.as_str())));
        let build = |http: &reqwest::Client| http.get(url.clone()).query(&pairs);
        self.user_call(call, "transactions", user_token, build, |answer| read(self.body(answer)?)).await
    }

    /// Ends one authorisation. A dead token and an unknown authorisation mean that it had ended before, if it is the
    /// provider who says so, and not somebody in between.
    pub(super) async fn delete_authorisation(&self, call: &Call, user_token: &str, id: &str) -> Result<(), Error> {
        let url = self.url(&["authorisations", id]);
        let build = |http: &reqwest::Client| http.delete(url.clone());
        let ended = |answer: &Answer| match answer.status {
            StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND if answer.json_body().is_ok() => Ok(()),
            _ => done(&parse_json(self.body(answer)?)?),
        };
        self.user_call(call, "delete_authorisation", user_token, build, ended).await
    }

    async fn user_call<T: Send>(
        &self,
        call: &Call,
        operation: &'static str,
        user_token: &str,
        build: impl Fn(&reqwest::Client) -> RequestBuilder + Send + Sync,
        accept: impl FnMut(&Answer) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let build = |http: &reqwest::Client| build(http).bearer_auth(user_token).header("X-Akahu-Id", &self.app_token);
        self.client.call(call, operation, build, accept).await
    }

    /// The body of a success. Only the status decides: messages differ from source to source
    /// (docs/providers/akahu.md#errors).
    fn body<'a>(&self, answer: &'a Answer) -> Result<&'a [u8], Error> {
        match answer.status {
            status if status.is_success() => return answer.json_body(),
            StatusCode::UNAUTHORIZED => return Err(Error::ReconnectNeeded(ConnectionStatus::Revoked)),
            StatusCode::FORBIDDEN => self.forbidden.call_once(|| {
                tracing::warn!(
                    provider = %NAME,
                    "Akahu answers 403: check that akahu.app_token is the app's that the user tokens were given to, that \
                     the app may read accounts and transactions, and that it may be used from this host's address"
                );
            }),
            _ => {}
        }
        Err(answer.failure())
    }

    fn url(&self, segments: &[&str]) -> Url {
        let mut url = self.base_url.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }
}

/// Reads a list.
///
/// # Errors
/// [`Error::Malformed`], for one that says it failed with a status that says it did not, too.
pub(super) fn list<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<wire::List<T>, Error> {
    let list: wire::List<T> = parse_json(body)?;
    done(&wire::Done { success: list.success })?;
    if list.items.len() > PAGE_ROWS_BELIEVED {
        return Err(Error::Malformed("more rows than a page has"));
    }
    Ok(list)
}

fn done(answer: &wire::Done) -> Result<(), Error> {
    if answer.success == Some(false) { Err(Error::Malformed("a failure called a success")) } else { Ok(()) }
}

/// Where the page after the one at `here` begins, if there is one (docs/providers/akahu.md#pages).
///
/// # Errors
/// [`Error::Malformed`] for a cursor too long, and for that of the page itself, as a walk would not end.
pub(super) fn next(cursor: Option<wire::Cursor>, here: Option<&Cursor>) -> Result<Option<Cursor>, Error> {
    let next = cursor.and_then(|cursor| cursor.next).filter(|next| !next.is_empty());
    match next {
        Some(next) if next.len() > CURSOR_BYTES_MAX => Err(Error::Malformed("a cursor too long")),
        Some(next) if here.is_some_and(|here| here.0 == next) => {
            Err(Error::Malformed("a page names itself as the next"))
        }
        next => Ok(next.map(Cursor)),
    }
}

/// The parameters of a transactions page.
pub(super) struct TransactionsQuery<'a> {
    /// One account, or all that the token covers.
    pub(super) account_id: Option<&'a str>,
    /// First and last instant wanted.
    pub(super) instants: (Timestamp, Timestamp),
    pub(super) cursor: Option<&'a Cursor>,
}

impl TransactionsQuery<'_> {
    /// The last millisecond before the first instant: the start is exclusive (docs/providers/akahu.md#transactions).
    fn start(&self) -> String {
        let first = self.instants.0.as_nanosecond().div_euclid(NANOSECONDS);
        milliseconds(first - 1)
    }

    /// The first millisecond that is not before the last instant: the end is inclusive.
    fn end(&self) -> String {
        let last = self.instants.1.as_nanosecond();
        milliseconds(-(-last).div_euclid(NANOSECONDS))
    }
}

/// In a millisecond.
const NANOSECONDS: i128 = 1_000_000;

/// RFC 3339 with three digits of a second. Years that it cannot write are cut to those that it can.
fn milliseconds(since_epoch: i128) -> String {
    const FIRST: i64 = -62_135_596_800_000; // 0001-01-01T00:00:00.000Z
    const LAST: i64 = 253_402_207_200_000; // as late as jiff goes: 9999-12-30T22:00:00.000Z
    let clamped = i64::try_from(since_epoch).unwrap_or(LAST).clamp(FIRST, LAST);
    format!("{:.3}", Timestamp::from_millisecond(clamped).unwrap_or(Timestamp::UNIX_EPOCH))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cursors() {
        let cursor = |next: Option<&str>| Some(wire::Cursor { next: next.map(str::to_owned) });
        let place = |text: &str| Cursor(text.to_owned());
        let here = place("here");
        assert_eq!(next(None, Some(&here)), Ok(None));
        assert_eq!(next(cursor(None), Some(&here)), Ok(None));
        assert_eq!(next(cursor(Some("")), Some(&here)), Ok(None));
        assert_eq!(next(cursor(Some("there")), Some(&here)), Ok(Some(place("there"))));
        assert_eq!(next(cursor(Some("here")), None), Ok(Some(here.clone())));
        assert!(matches!(next(cursor(Some("here")), Some(&here)), Err(Error::Malformed(_))));
        assert!(matches!(next(cursor(Some(&"x".repeat(CURSOR_BYTES_MAX + 1))), None), Err(Error::Malformed(_))));
    }

    fn range(first: Timestamp, last: Timestamp) -> (String, String) {
        let query = TransactionsQuery { account_id: None, instants: (first, last), cursor: None };
        (query.start(), query.end())
    }

    #[test]
    fn the_range_in_milliseconds() {
        for (first, last, start, end) in [
            (
                "2026-01-01T00:00:00Z",
                "2026-01-31T10:59:59.999999999Z",
                "2025-12-31T23:59:59.999Z",
                "2026-01-31T11:00:00.000Z",
            ),
            (
                "2026-01-01T00:00:00.000999Z",
                "2026-01-01T00:00:00.001Z",
                "2025-12-31T23:59:59.999Z",
                "2026-01-01T00:00:00.001Z",
            ),
            (
                "1969-12-31T23:59:59.9995Z",
                "1969-12-31T23:59:59.9985Z",
                "1969-12-31T23:59:59.998Z",
                "1969-12-31T23:59:59.999Z",
            ),
        ] {
            let asked = range(first.parse().unwrap(), last.parse().unwrap());
            assert_eq!(asked, (start.to_owned(), end.to_owned()), "{first} {last}");
        }
        let ends = ("0001-01-01T00:00:00.000Z".to_owned(), "9999-12-30T22:00:00.000Z".to_owned());
        assert_eq!(range(Timestamp::MIN, Timestamp::MAX), ends);
    }

    proptest! {
        #[test]
        fn the_range_holds_every_instant_wanted(seconds in -62_135_596_799_i64..253_402_207_200, nanos in 0_i32..1_000_000_000) {
            let instant = Timestamp::new(seconds, nanos).unwrap();
            let (start, end) = range(instant, instant);
            prop_assert!(start.parse::<Timestamp>().unwrap() < instant);
            prop_assert!(instant <= end.parse::<Timestamp>().unwrap());
        }
    }
}
