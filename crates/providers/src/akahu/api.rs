//! The HTTP calls of Akahu's API, with authentication and paging.

use bellbird_domain::ConnectionStatus;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::{NAME, wire};
use crate::http::request::{RequestBuilder, with_path, with_query};
use crate::http::{Client, Response, parse_json};
use crate::{CallContext, Cursor, Error};

/// The size of a full page. The API has no size parameter (docs/providers/akahu.md#pages).
pub(super) const PAGE_ROWS: u32 = 100;
/// A page with more rows than this is rejected as malformed.
const PAGE_ROWS_ACCEPTED_MAX: usize = 1_000;

pub(super) const CREDENTIALS: &str =
    "akahu.app_token and akahu.app_secret, which must belong to one full app";
/// What a 403 to a call with a user token can mean (docs/providers/akahu.md#errors).
pub(super) const APP: &str =
    "akahu.app_token with this user's token, the permissions of its app, or this machine's address";

/// Akahu's API with the credentials of one app.
pub(super) struct Api {
    pub(super) client: Client,
    base_url: Url,
    app_token: HeaderValue,
    /// None for a personal app.
    app_secret: Option<SecretString>,
}

impl Api {
    pub(super) fn new(
        client: Client,
        base_url: Url,
        app_token: HeaderValue,
        app_secret: Option<SecretString>,
    ) -> Self {
        Self {
            client,
            base_url,
            app_token,
            app_secret,
        }
    }

    /// Checks that the API is reachable and, for a full app, accepts the app's credentials. A
    /// personal app has no call without a user token. There, 401 and 403 to such a call show that
    /// the API is reachable.
    pub(super) async fn check(&self, context: &CallContext) -> Result<(), Error> {
        let Some(secret) = &self.app_secret else {
            let url = self.url(&["me"]);
            let reached = |response: &Response| match response.status {
                status if status.is_success() => Ok(()),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Ok(()),
                _ => Err(response.failure()),
            };
            let build = || RequestBuilder::get(&url).header("X-Akahu-Id", &self.app_token);
            return self.client.call(context, "check", build, reached).await;
        };
        let url = self.url(&["connections"]);
        let build = || RequestBuilder::get(&url).basic(self.app(), secret.expose_secret());
        let check = |response: &Response| match response.status.as_u16() {
            status @ (401 | 403) => Err(Error::OperatorRejected {
                settings: CREDENTIALS,
                status,
            }),
            _ => check_success(response.success::<wire::Envelope>()?.success),
        };
        self.client.call(context, "check", build, check).await
    }

    /// The app's id, which is the app token.
    pub(super) fn app(&self) -> &str {
        self.app_token.to_str().unwrap_or_default()
    }

    /// Only a full app has a secret (docs/providers/akahu.md#apps).
    pub(super) fn is_full_app(&self) -> bool {
        self.app_secret.is_some()
    }

    fn secret(&self) -> Result<&str, Error> {
        let secret = self
            .app_secret
            .as_ref()
            .map(|secret| secret.expose_secret());
        secret.ok_or_else(|| Error::InvalidCredentials("akahu.app_secret is not set".to_owned()))
    }

    /// Exchanges an authorization code for a user token. It makes one attempt, because a code works
    /// once and for 60 s (docs/providers/akahu.md#redirects).
    pub(super) async fn exchange(
        &self,
        context: &CallContext,
        code: &str,
        redirect_uri: &Url,
    ) -> Result<String, Error> {
        let url = self.url(&["token"]);
        let body = serde_json::json!({
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri.as_str(),
            "client_id": self.app(),
            "client_secret": self.secret()?,
        });
        let read = |response: &Response| {
            if !response.status.is_success() {
                return Err(self.token_error(response));
            }
            let token: wire::Token = parse_json(response.json_body()?)?;
            check_success(token.success)?;
            Ok(token.access_token)
        };
        let build = || RequestBuilder::post(&url, &body).once();
        self.client.call(context, "token", build, read).await
    }

    /// Maps an error of the token exchange (docs/providers/akahu.md#token-exchange).
    fn token_error(&self, response: &Response) -> Error {
        let error: wire::TokenError = serde_json::from_slice(&response.body).unwrap_or_default();
        match error.error.as_deref() {
            Some("invalid_grant" | "expired_grant") => Error::InvalidCredentials(
                "the authorization code was already used or is older than 60 seconds; start again"
                    .to_owned(),
            ),
            Some("invalid_client") => Error::OperatorRejected {
                settings: CREDENTIALS,
                status: response.status.as_u16(),
            },
            _ => response.failure(),
        }
    }

    /// The e-mail address of the user of a user token, if the app may read it
    /// (docs/providers/akahu.md#user).
    pub(super) async fn email(
        &self,
        context: &CallContext,
        user_token: &str,
    ) -> Result<Option<String>, Error> {
        let url = self.url(&["me"]);
        let build = || RequestBuilder::get(&url);
        let read = |response: &Response| {
            let me: wire::Me = parse_json(self.body(response)?)?;
            Ok(me.item.email.filter(|email| !email.is_empty()))
        };
        self.user_call(context, "me", user_token, build, read).await
    }

    /// The `state` of each webhook subscription of a user. The list does not have their types
    /// (docs/providers/akahu.md#webhooks).
    pub(super) async fn subscriptions(
        &self,
        context: &CallContext,
        user_token: &str,
    ) -> Result<Vec<String>, Error> {
        let url = self.url(&["webhooks"]);
        let build = || RequestBuilder::get(&url);
        let read = |response: &Response| {
            let list: wire::List<wire::Subscription> = list(self.body(response)?)?;
            Ok(list
                .items
                .into_iter()
                .filter_map(|subscription| subscription.state)
                .collect())
        };
        self.user_call(context, "webhooks", user_token, build, read)
            .await
    }

    /// Subscribes to one type of event. It makes one attempt, because a second subscription sends
    /// each event twice.
    ///
    /// A 400 counts as success: it means that the app has no webhook URL
    /// (docs/providers/akahu.md#webhooks). Its message is not checked, since the sources disagree
    /// about it.
    pub(super) async fn subscribe(
        &self,
        context: &CallContext,
        user_token: &str,
        kind: &str,
        state: &str,
    ) -> Result<(), Error> {
        let url = self.url(&["webhooks"]);
        let body = serde_json::json!({"webhook_type": kind, "state": state});
        let build = || RequestBuilder::post(&url, &body).once();
        let read = |response: &Response| match response.status {
            StatusCode::BAD_REQUEST => {
                tracing::debug!(provider = %NAME, "webhook subscription rejected: the app may have no webhook URL");
                Ok(())
            }
            _ => self.succeeded(response),
        };
        self.user_call(context, "subscribe", user_token, build, read)
            .await
    }

    /// The public key for webhook signatures with this id, as PEM. None if the key is unknown or
    /// has expired.
    ///
    /// It makes one attempt. Events name the key, and anyone can send events, so retries would
    /// multiply forged requests.
    pub(super) async fn signing_key(
        &self,
        context: &CallContext,
        id: u64,
    ) -> Result<Option<String>, Error> {
        let url = self.url(&["keys", &id.to_string()]);
        let secret = self.secret()?;
        let read = |response: &Response| match response.status {
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND if response.json_body().is_ok() => {
                Ok(None)
            }
            _ => response
                .success()
                .map(|key: wire::SigningKey| Some(key.item)),
        };
        let build = || RequestBuilder::get(&url).basic(self.app(), secret).once();
        self.client.call(context, "key", build, read).await
    }

    /// The accounts of all authorisations of a user token.
    pub(super) async fn accounts<T: Send>(
        &self,
        context: &CallContext,
        user_token: &str,
        mut read: impl FnMut(&[wire::Account<'_>]) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let url = self.url(&["accounts"]);
        let build = || RequestBuilder::get(&url);
        self.user_call(context, "accounts", user_token, build, |response| {
            read(&list(self.body(response)?)?.items)
        })
        .await
    }

    /// Reads one page of posted transactions between two instants: of one account, or of the
    /// accounts of all authorisations of the user token. `read` parses its body. It must keep
    /// nothing if it fails, because the call may then be retried.
    ///
    /// None if the account is not visible: a 404 with a JSON body. Without one, the response comes
    /// from a proxy and is an error.
    pub(super) async fn transactions<T: Send>(
        &self,
        context: &CallContext,
        user_token: &str,
        account_id: Option<&str>,
        instants: (Timestamp, Timestamp),
        cursor: Option<&Cursor>,
        mut read: impl FnMut(&[u8]) -> Result<T, Error> + Send,
    ) -> Result<Option<T>, Error> {
        let url = match account_id {
            Some(id) => self.url(&["accounts", id, "transactions"]),
            None => self.url(&["transactions"]),
        };
        let (start, end) = in_milliseconds(instants);
        let mut pairs = vec![("start", start.as_str()), ("end", end.as_str())];
        pairs.extend(cursor.map(|cursor| ("cursor", cursor.0.as_str())));
        let build = || RequestBuilder::get(&with_query(&url, &pairs));
        let is_missing = |response: &Response| {
            response.status == StatusCode::NOT_FOUND && response.json_body().is_ok()
        };
        self.user_call(context, "transactions", user_token, build, |response| {
            if account_id.is_some() && is_missing(response) {
                return Ok(None);
            }
            read(self.body(response)?).map(Some)
        })
        .await
    }

    /// Revokes one authorisation. A 401 or 404 with a JSON body means that it has already ended.
    /// Without one, the response comes from a proxy and is an error.
    pub(super) async fn delete_authorisation(
        &self,
        context: &CallContext,
        user_token: &str,
        id: &str,
    ) -> Result<(), Error> {
        let url = self.url(&["authorisations", id]);
        let build = || RequestBuilder::delete(&url);
        let revoked = |response: &Response| match response.status {
            StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND if response.json_body().is_ok() => {
                Ok(())
            }
            _ => self.succeeded(response),
        };
        self.user_call(context, "delete_authorisation", user_token, build, revoked)
            .await
    }

    async fn user_call<T: Send>(
        &self,
        context: &CallContext,
        operation: &'static str,
        user_token: &str,
        build: impl Fn() -> RequestBuilder + Send + Sync,
        accept: impl FnMut(&Response) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let build = || {
            build()
                .bearer(user_token)
                .header("X-Akahu-Id", &self.app_token)
        };
        self.client.call(context, operation, build, accept).await
    }

    /// The body of a response with status 2xx. Other statuses are mapped without their message,
    /// since the sources disagree about messages (docs/providers/akahu.md#errors): 401 is about the
    /// user token, 403 about the app.
    fn body<'a>(&self, response: &'a Response) -> Result<&'a [u8], Error> {
        match response.status {
            status if status.is_success() => response.json_body(),
            StatusCode::UNAUTHORIZED => Err(Error::ReconnectNeeded(ConnectionStatus::Revoked)),
            StatusCode::FORBIDDEN => Err(Error::OperatorRejected {
                settings: APP,
                status: 403,
            }),
            _ => Err(response.failure()),
        }
    }

    /// Checks a response whose payload is not read.
    fn succeeded(&self, response: &Response) -> Result<(), Error> {
        let envelope: wire::Envelope = parse_json(self.body(response)?)?;
        check_success(envelope.success)
    }

    fn url(&self, segments: &[&str]) -> Url {
        with_path(&self.base_url, segments)
    }
}

/// Parses a list. A list with `"success": false` is malformed, since the status was 2xx.
pub(super) fn list<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<wire::List<T>, Error> {
    let list: wire::List<T> = parse_json(body)?;
    check_success(list.success)?;
    if list.items.len() > PAGE_ROWS_ACCEPTED_MAX {
        return Err(Error::Malformed("too many rows in a page"));
    }
    Ok(list)
}

fn check_success(success: Option<bool>) -> Result<(), Error> {
    if success == Some(false) {
        Err(Error::Malformed(
            "success is false in a response with status 2xx",
        ))
    } else {
        Ok(())
    }
}

/// The start of the page after `current`, or none at the end (docs/providers/akahu.md#pages). A
/// next cursor that equals `current` is malformed, since reading would never end.
pub(super) fn next(
    cursor: Option<wire::Cursor>,
    current: Option<&Cursor>,
) -> Result<Option<Cursor>, Error> {
    let next = cursor
        .and_then(|cursor| cursor.next)
        .filter(|next| !next.is_empty());
    let next = next.map(Cursor::sent).transpose()?;
    if next.is_some() && next.as_ref() == current {
        return Err(Error::Malformed("the next page is the current page"));
    }
    Ok(next)
}

/// The last millisecond before the range, because `start` is exclusive, and the first one that is
/// not before its last instant, because `end` is inclusive (docs/providers/akahu.md#transactions).
fn in_milliseconds((first, last): (Timestamp, Timestamp)) -> (String, String) {
    const NANOSECONDS: i128 = 1_000_000;
    let start = first.as_nanosecond().div_euclid(NANOSECONDS) - 1;
    let end = -(-last.as_nanosecond()).div_euclid(NANOSECONDS);
    (milliseconds(start), milliseconds(end))
}

/// RFC 3339 with milliseconds. Instants outside of its years are clamped.
fn milliseconds(since_epoch: i128) -> String {
    const FIRST: i64 = -62_135_596_800_000; // 0001-01-01T00:00:00.000Z
    const LAST: i64 = 253_402_207_200_000; // jiff's last instant, 9999-12-30T22:00:00.000Z
    let clamped = i64::try_from(since_epoch)
        .unwrap_or(LAST)
        .clamp(FIRST, LAST);
    format!(
        "{:.3}",
        Timestamp::from_millisecond(clamped).unwrap_or(Timestamp::UNIX_EPOCH)
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::CURSOR_BYTES_MAX;

    #[test]
    fn next_cursor_is_checked() {
        let cursor = |next: Option<&str>| {
            Some(wire::Cursor {
                next: next.map(str::to_owned),
            })
        };
        let position = |text: &str| Cursor(text.to_owned());
        let here = position("here");
        assert_eq!(next(None, Some(&here)), Ok(None));
        assert_eq!(next(cursor(None), Some(&here)), Ok(None));
        assert_eq!(next(cursor(Some("")), Some(&here)), Ok(None));
        assert_eq!(
            next(cursor(Some("there")), Some(&here)),
            Ok(Some(position("there")))
        );
        assert_eq!(next(cursor(Some("here")), None), Ok(Some(here.clone())));
        assert!(matches!(
            next(cursor(Some("here")), Some(&here)),
            Err(Error::Malformed(_))
        ));
        assert!(matches!(
            next(cursor(Some(&"x".repeat(CURSOR_BYTES_MAX + 1))), None),
            Err(Error::Malformed(_))
        ));
    }

    #[test]
    fn date_range_is_rounded_to_milliseconds() {
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
            let requested = in_milliseconds((first.parse().unwrap(), last.parse().unwrap()));
            assert_eq!(
                requested,
                (start.to_owned(), end.to_owned()),
                "{first} {last}"
            );
        }
        let ends = (
            "0001-01-01T00:00:00.000Z".to_owned(),
            "9999-12-30T22:00:00.000Z".to_owned(),
        );
        assert_eq!(in_milliseconds((Timestamp::MIN, Timestamp::MAX)), ends);
    }

    proptest! {
        #[test]
        fn range_includes_every_instant(
            seconds in -62_135_596_799_i64..253_402_207_200,
            nanos in 0_i32..1_000_000_000,
        ) {
            let instant = Timestamp::new(seconds, nanos).unwrap();
            let (start, end) = in_milliseconds((instant, instant));
            prop_assert!(start.parse::<Timestamp>().unwrap() < instant);
            prop_assert!(instant <= end.parse::<Timestamp>().unwrap());
        }
    }
}
