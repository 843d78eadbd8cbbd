//! The HTTP calls of SnapTrade's API, with request signatures, rate budgets and the mapping of
//! errors.

use bellbird_domain::ConnectionStatus;
use hyper::Method;
use jiff::Timestamp;
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::SecretString;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::time::Instant;
use url::Url;

use super::budget::{Budgets, quota};
use super::sign::Signer;
use super::{NAME, wire};
use crate::http::request::{RequestBuilder, with_path};
use crate::http::{Client, Response, count_rejected, retry_after};
use crate::{CallContext, Error, linking};

/// The largest page of activities (docs/providers/snaptrade.md#activities).
pub(super) const ACTIVITIES_MAX: u32 = 1_000;

/// The characters that the official Python client encodes in a value of the query. A space becomes
/// `%20`.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// A signature holds the time.
pub(super) const CREDENTIALS: &str =
    "snaptrade.client_id, snaptrade.consumer_key or this machine's clock";

/// SnapTrade's API with the key of one client.
pub(super) struct Api {
    pub(super) client: Client,
    base_url: Url,
    pub(super) client_id: String,
    pub(super) signer: Signer,
    budgets: Mutex<Budgets>,
}

/// The provider user of a call with a commercial key. No `Debug`: it holds a secret.
pub(super) struct User {
    pub(super) id: String,
    pub(super) secret: String,
}

/// The resource of a call. It determines the meaning of an error and the rate budget.
#[derive(Clone, Copy)]
enum Subject<'a> {
    Client,
    User,
    DeletedUser,
    Connection,
    Account(&'a str),
}

/// A request before it is signed.
struct Request<'a> {
    operation: &'static str,
    method: Method,
    subject: Subject<'a>,
    path: &'a [&'a str],
    query: &'a [(&'a str, &'a str)],
    /// None with a personal key, which has one user only (docs/providers/snaptrade.md#keys).
    user: Option<&'a User>,
    body: Option<&'a Value>,
    is_once: bool,
}

impl Api {
    pub(super) fn new(
        client: Client,
        base_url: Url,
        client_id: String,
        consumer_key: &SecretString,
    ) -> Self {
        Self {
            client,
            base_url,
            client_id,
            signer: Signer::new(consumer_key),
            budgets: Mutex::default(),
        }
    }

    /// Reads the client's own settings, to check that the provider accepts the key.
    pub(super) async fn partner(&self, context: &CallContext) -> Result<(), Error> {
        let request = get("partner", Subject::Client, &["snapTrade", "partners"], None);
        self.send(context, &request, |response| {
            response.success::<IgnoredAny>().map(|_| ())
        })
        .await
    }

    /// Registers a user with an id that the caller chooses. It makes one attempt: the provider
    /// would reject a second one, and it returns the secret only once
    /// (docs/providers/snaptrade.md#users).
    pub(super) async fn register_user(
        &self,
        context: &CallContext,
        id: &str,
    ) -> Result<User, Error> {
        let path = &["snapTrade", "registerUser"];
        let body = json!({"userId": id});
        let request = get("register_user", Subject::Client, path, None);
        let request = Request {
            method: Method::POST,
            body: Some(&body),
            is_once: true,
            ..request
        };
        let read = |response: &Response| {
            let registered: wire::Registered = response.success()?;
            Ok(User {
                id: id.to_owned(),
                secret: registered.user_secret,
            })
        };
        self.send(context, &request, read).await
    }

    /// Deletes a user with all connections. The provider queues the deletion.
    pub(super) async fn delete_user(&self, context: &CallContext, id: &str) -> Result<(), Error> {
        let path = &["snapTrade", "deleteUser"];
        let query = &[("userId", id)];
        let request = get("delete_user", Subject::DeletedUser, path, None);
        self.send(
            context,
            &Request {
                method: Method::DELETE,
                query,
                ..request
            },
            |_| Ok(()),
        )
        .await
    }

    /// The URL of a connection portal page. It works for five minutes
    /// (docs/providers/snaptrade.md#connection-portal). An unused page has no effect.
    pub(super) async fn log_in(
        &self,
        context: &CallContext,
        user: Option<&User>,
        body: &Value,
    ) -> Result<Url, Error> {
        let path = &["snapTrade", "login"];
        let request = Request {
            method: Method::POST,
            body: Some(body),
            ..get("login", Subject::User, path, user)
        };
        let read = |response: &Response| {
            let login: wire::Login<'_> = response.success()?;
            linking::consent_page_url(login.redirect_uri.as_str())
        };
        self.send(context, &request, read).await
    }

    pub(super) async fn connections(
        &self,
        context: &CallContext,
        user: Option<&User>,
    ) -> Result<Vec<wire::Connection>, Error> {
        let request = get("connections", Subject::User, &["authorizations"], user);
        self.send(context, &request, |response| response.success())
            .await
    }

    pub(super) async fn connection(
        &self,
        context: &CallContext,
        user: Option<&User>,
        id: &str,
    ) -> Result<wire::Connection, Error> {
        let path = &["authorizations", id];
        let request = get("connection", Subject::Connection, path, user);
        self.send(context, &request, |response| response.success())
            .await
    }

    /// Deletes a connection. The provider queues the deletion.
    pub(super) async fn delete_connection(
        &self,
        context: &CallContext,
        user: Option<&User>,
        id: &str,
    ) -> Result<(), Error> {
        let path = &["connection", id];
        let request = Request {
            method: Method::DELETE,
            ..get("delete_connection", Subject::Connection, path, user)
        };
        self.send(context, &request, |_| Ok(())).await
    }

    /// The accounts of a connection. As in all calls, `read` must keep nothing if it fails: the
    /// call may be retried.
    pub(super) async fn accounts<T: Send>(
        &self,
        context: &CallContext,
        user: Option<&User>,
        connection_id: &str,
        mut read: impl FnMut(Vec<wire::Account<'_>>) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let path = &["authorizations", connection_id, "accounts"];
        let request = get("accounts", Subject::Connection, path, user);
        self.send(context, &request, |response| read(response.success()?))
            .await
    }

    /// The cash of an account in each currency.
    pub(super) async fn balances<T: Send>(
        &self,
        context: &CallContext,
        user: Option<&User>,
        account_id: &str,
        mut read: impl FnMut(Vec<wire::Balance<'_>>) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let path = &["accounts", account_id, "balances"];
        let request = get("balances", Subject::Account(account_id), path, user);
        self.send(context, &request, |response| read(response.success()?))
            .await
    }

    pub(super) async fn positions<T: Send>(
        &self,
        context: &CallContext,
        user: Option<&User>,
        account_id: &str,
        mut read: impl FnMut(wire::Positions<'_>) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let path = &["accounts", account_id, "positions", "all"];
        let request = get("positions", Subject::Account(account_id), path, user);
        self.send(context, &request, |response| read(response.success()?))
            .await
    }

    pub(super) async fn activities<T: Send>(
        &self,
        context: &CallContext,
        user: Option<&User>,
        account_id: &str,
        query: &[(&str, &str)],
        read: impl FnMut(&Response) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let path = &["accounts", account_id, "activities"];
        let request = Request {
            query,
            ..get("activities", Subject::Account(account_id), path, user)
        };
        self.send(context, &request, read).await
    }

    /// Makes a call unless its rate budget is used up; a request waits for that. `read` gets
    /// responses with status 2xx only.
    async fn send<T: Send>(
        &self,
        context: &CallContext,
        request: &Request<'_>,
        mut read: impl FnMut(&Response) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let account = match request.subject {
            Subject::Account(id) => Some(id),
            Subject::Client | Subject::User | Subject::DeletedUser | Subject::Connection => None,
        };
        let admit = || self.budgets.lock().admit(Instant::now(), account);
        while let Err(wait) = admit() {
            let refused = Error::RateLimited {
                retry_after: Some(wait),
            };
            context
                .wait_out(refused)
                .await
                .inspect_err(|_| count_rejected(NAME, "provider_budget"))?;
        }
        let build = || self.signed(request, context.wall_clock());
        let accept = |response: &Response| {
            self.budgets
                .lock()
                .update(Instant::now(), account, response);
            if let Some((calls_per_minute, remaining, reset)) = quota(&response.headers) {
                self.client
                    .correct_window(calls_per_minute, remaining, reset);
            }
            let outcome = if response.status.is_success() {
                read(response)
            } else {
                Err(self.error_of(request, response))
            };
            outcome.map_err(|error| match admit() {
                // The provider would reject a retry before the budget opens again.
                Err(wait) if error.is_transient() && error.retry_after() < Some(wait) => {
                    Error::RateLimited {
                        retry_after: Some(wait),
                    }
                }
                _ => error,
            })
        };
        self.client
            .call(context, request.operation, build, accept)
            .await
    }

    /// Builds a signed request, again for every attempt, because the signature includes the time.
    /// Path and query are read back from the URL, so that the signed text equals the sent one.
    fn signed(&self, request: &Request<'_>, now: Timestamp) -> RequestBuilder {
        let url = self.url(request, now);
        let body = request.body.unwrap_or(&Value::Null);
        let signature = self
            .signer
            .sign(body, url.path(), url.query().unwrap_or_default());
        let mut signed =
            RequestBuilder::new(request.method.clone(), &url).header("Signature", signature);
        if let Some(body) = request.body {
            signed = signed.json(body);
        }
        if request.is_once {
            signed.once()
        } else {
            signed
        }
    }

    /// Any order of parameters is valid (docs/providers/snaptrade.md#request-signatures). This one
    /// is that of the official Python client.
    fn url(&self, request: &Request<'_>, now: Timestamp) -> Url {
        let user = request.user.map(|user| {
            [
                ("userId", user.id.as_str()),
                ("userSecret", user.secret.as_str()),
            ]
        });
        let timestamp = now.as_second().to_string();
        let client_params = [
            ("clientId", self.client_id.as_str()),
            ("timestamp", timestamp.as_str()),
        ];
        let pairs = request
            .query
            .iter()
            .copied()
            .chain(user.into_iter().flatten())
            .chain(client_params);
        let pairs: Vec<String> = pairs
            .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, ENCODED)))
            .collect();
        let mut url = with_path(&self.base_url, request.path);
        url.set_query(Some(&pairs.join("&")));
        url
    }

    /// Maps a status outside 2xx (docs/providers/snaptrade.md#errors).
    fn error_of(&self, request: &Request<'_>, response: &Response) -> Error {
        let (status, operation) = (response.status.as_u16(), request.operation);
        let code = code(&response.body);
        tracing::debug!(provider = %NAME, operation, status, code = code.as_deref(), "provider call rejected");
        match (status, code.as_deref()) {
            (401, Some("1083")) => Error::ReconnectNeeded(ConnectionStatus::Revoked),
            (401, _) => Error::OperatorRejected {
                settings: CREDENTIALS,
                status,
            },
            (402, Some("3003")) => Error::ReconnectNeeded(ConnectionStatus::Invalidated),
            // A 404 that is not JSON comes from a proxy and says nothing about the resource.
            (404, _)
                if matches!(request.subject, Subject::Connection | Subject::DeletedUser)
                    && response.json_body().is_ok() =>
            {
                Error::ReconnectNeeded(ConnectionStatus::Revoked)
            }
            (409 | 425, _) => Error::Unavailable {
                reason: "not ready yet",
                retry_after: retry_after(&response.headers),
            },
            (410, _) => {
                tracing::warn!(provider = %NAME, operation, "operation retired for this key");
                Error::Rejected { status }
            }
            _ => response.failure(),
        }
    }
}

fn get<'a>(
    operation: &'static str,
    subject: Subject<'a>,
    path: &'a [&'a str],
    user: Option<&'a User>,
) -> Request<'a> {
    Request {
        operation,
        method: Method::GET,
        subject,
        path,
        query: &[],
        user,
        body: None,
        is_once: false,
    }
}

/// The error code in a body. None if it has none, or one that is unsafe to log.
fn code(body: &[u8]) -> Option<String> {
    let error: wire::ErrorBody = serde_json::from_slice(body).ok()?;
    let code = match error.code.or(error.default_code)? {
        Value::String(text) => text,
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    (code.len() <= 20 && code.bytes().all(|byte| byte.is_ascii_alphanumeric())).then_some(code)
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use bellbird_domain::table::table;
    use hyper::StatusCode;
    use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    const AT: i64 = 1_715_123_456;

    fn api(base_url: &str) -> Api {
        let client = Client::new(NAME, crate::test_support::client_settings(20)).unwrap();
        let key = SecretString::from("test-consumer-key-1");
        Api::new(
            client,
            base_url.parse().unwrap(),
            "TESTCLIENT".to_owned(),
            &key,
        )
    }

    fn user(id: &str, secret: &str) -> User {
        User {
            id: id.to_owned(),
            secret: secret.to_owned(),
        }
    }

    fn request<'a>(
        query: &'a [(&'a str, &'a str)],
        path: &'a [&'a str],
        user: Option<&'a User>,
    ) -> Request<'a> {
        Request {
            query,
            ..get("test", Subject::User, path, user)
        }
    }

    /// Path, query and signature of a request.
    fn sent(api: &Api, request: &Request<'_>) -> (String, String, String) {
        let at = Timestamp::from_second(AT).unwrap();
        let built = api.signed(request, at).build().unwrap();
        let signature = built.headers()["Signature"].to_str().unwrap().to_owned();
        (
            built.uri().path().to_owned(),
            built.uri().query().unwrap().to_owned(),
            signature,
        )
    }

    #[tokio::test]
    async fn requests_equal_those_of_the_python_client() {
        let api = api("https://api.snaptrade.com");
        let plain = user("snaptrade-user-123", "adf2aa34-8219-40f7-a6b3-60156985cc61");
        let (path, _, signature) = sent(&api, &request(&[], &["accounts"], Some(&plain)));
        assert_eq!(
            (path.as_str(), signature.as_str()),
            ("/accounts", "zd+TvnzVfAV6htuAqMYWr1Q8QaHXNFDnUXms8bgpFKU="),
            "V2"
        );

        let odd = user("user 1+a@b/ç", "s&e=c");
        let query = [
            ("startDate", "2026-01-01"),
            ("endDate", "2026-01-31"),
            ("offset", "0"),
            ("limit", "100"),
            ("type", "BUY,SELL"),
        ];
        let path = [
            "accounts",
            "917c8734-8470-4a3e-a18f-57c3f2ee6631",
            "activities",
        ];
        let (_, query, signature) = sent(&api, &request(&query, &path, Some(&odd)));
        assert!(
            query.contains("&userId=user%201%2Ba%40b/%C3%A7&userSecret=s%26e%3Dc&"),
            "{query}"
        );
        assert_eq!(
            signature, "WeiFiyWIO4TDd6VmFxP9E07Aw7lIQnBez3x0EeQbHfQ=",
            "V4"
        );
    }

    #[tokio::test]
    async fn a_personal_key_names_no_user() {
        let (_, query, _) = sent(
            &api("https://api.snaptrade.com"),
            &request(&[], &["authorizations"], None),
        );
        assert_eq!(query, "clientId=TESTCLIENT&timestamp=1715123456");
    }

    #[tokio::test]
    async fn base_path_is_kept_and_ids_are_one_segment() {
        for [base, id, path] in table(
            "http://127.0.0.1:8931 | a | /authorizations/a
            http://127.0.0.1:8931/api/v1 | a | /api/v1/authorizations/a
            http://127.0.0.1:8931/api/v1/ | a | /api/v1/authorizations/a
            http://127.0.0.1:8931 | ../x?y#z | /authorizations/..%2Fx%3Fy%23z",
        ) {
            let segments = ["authorizations", id];
            let request = request(&[], &segments, None);
            assert_eq!(sent(&api(base), &request).0, path);
        }
    }

    #[tokio::test]
    async fn errors_by_status_and_code() {
        const REVOKED: Error = Error::ReconnectNeeded(ConnectionStatus::Revoked);
        const INVALIDATED: Error = Error::ReconnectNeeded(ConnectionStatus::Invalidated);
        let not_ready = Error::unavailable("not ready yet");
        let broken = Error::unavailable("server error");
        let rejected = |status| Error::Rejected { status };
        let key_rejected = || Error::OperatorRejected {
            settings: CREDENTIALS,
            status: 401,
        };
        let (connection, account) = (Subject::Connection, Subject::Account("a"));
        let api = api("https://api.snaptrade.com");
        let limited = Error::RateLimited { retry_after: None };
        const DETAILED: &str = r#"{"detail": "x", "status_code": 401, "code": "1083"}"#;
        const DEFAULT: &str = r#"{"default_detail": "x", "default_code": 1083}"#;
        const DEFAULT_OF_NULL: &str = r#"{"code": null, "default_code": 1083}"#;
        for (status, subject, body, expected) in [
            (401, account, DETAILED, REVOKED),
            (401, account, DEFAULT, REVOKED),
            (401, account, DEFAULT_OF_NULL, REVOKED),
            (401, account, r#"{"code": "1076"}"#, key_rejected()),
            (401, account, r#"{"code": "0000"}"#, key_rejected()),
            (401, account, "<html>", key_rejected()),
            (402, account, r#"{"code": "3003"}"#, INVALIDATED),
            (402, account, r#"{"code": "3011"}"#, rejected(402)),
            (403, account, r#"{"code": "1141"}"#, rejected(403)),
            (404, connection, r#"{"code": "1011"}"#, REVOKED),
            (404, connection, "{}", REVOKED),
            (404, account, r#"{"code": "1011"}"#, rejected(404)),
            (404, Subject::User, r#"{"code": "1011"}"#, rejected(404)),
            (409, account, r#"{"code": "1166"}"#, not_ready.clone()),
            (425, account, r#"{"code": 3012}"#, not_ready),
            (410, account, r#"{"detail": "gone"}"#, rejected(410)),
            (429, account, r#"{"code": "0000"}"#, limited),
            (500, account, r#"{"code": ["1083"]}"#, broken.clone()),
            (503, account, "[]", broken),
        ] {
            let headers = HeaderMap::from_iter([(
                CONTENT_TYPE,
                HeaderValue::from_static("application/json"),
            )]);
            let body = bytes::Bytes::from_static(body.as_bytes());
            let mut response = Response {
                status: StatusCode::from_u16(status).unwrap(),
                headers,
                body,
            };
            let request = get("test", subject, &[], None);
            assert_eq!(api.error_of(&request, &response), expected, "{status}");
            if status == 404 {
                response.headers.clear();
                assert_eq!(
                    api.error_of(&request, &response),
                    rejected(404),
                    "a proxy's page proves nothing"
                );
            }
        }
    }

    proptest! {
        /// The URL library must not change a query, because its text is signed.
        #[test]
        fn url_library_keeps_the_query(id in any::<String>(), secret in "\\PC{0,30}") {
            static API: LazyLock<Api> = LazyLock::new(|| api("https://api.snaptrade.com"));
            let user = user(&id, &secret);
            let url = API.url(&request(&[], &["accounts"], Some(&user)), Timestamp::UNIX_EPOCH);
            prop_assert!(!url.query().unwrap().contains('+'));
            let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
            prop_assert_eq!(&pairs[0], &("userId".to_owned(), id));
            prop_assert_eq!(&pairs[1], &("userSecret".to_owned(), secret));
            prop_assert_eq!(url.as_str().parse::<Url>().unwrap(), url);
        }
    }
}
