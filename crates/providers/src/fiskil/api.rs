//! The HTTP calls of Fiskil's API, with access tokens and paging.

use std::time::Duration;

use bellbird_domain::ConnectionStatus;
use hyper::StatusCode;
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;

use super::wire;
use crate::http::request::{RequestBuilder, with_path, with_query};
use crate::http::{Client, Response, parse_json};
use crate::{CallContext, Cursor, Error, PageRequest, TransactionQuery, linking};

/// Sent with every call. Without it, the form of a response depends on a setting in the provider's
/// console (docs/providers/fiskil.md#versions).
const VERSION: &str = "v3";
/// The largest page. The provider reduces larger sizes to it (docs/providers/fiskil.md#pages).
pub(super) const PAGE_ROWS_MAX: u32 = 1_000;
/// The same as a parameter, of lists that are read whole.
const PAGE_SIZE: (&str, &str) = ("page[size]", "1000");
/// A token is renewed this long before it expires.
const TOKEN_MARGIN: Duration = Duration::from_secs(30);
/// Caps the lifetime that the provider states. The documented lifetime is 900 s
/// (docs/providers/fiskil.md#tokens).
const TOKEN_LIFE_SECONDS_MAX: u64 = 86_400;
/// The most pages of a list that is read whole.
const PAGES_MAX: usize = 20;
const CREDENTIALS: &str = "fiskil.client_id and fiskil.client_secret";
/// The error of a call whose token is not valid any more.
const UNAUTHORIZED: Error = Error::Rejected { status: 401 };

/// Fiskil's API with the credentials of one team.
pub(super) struct Api {
    pub(super) client: Client,
    base_url: Url,
    client_id: String,
    client_secret: SecretString,
    token: Mutex<Option<Token>>,
}

#[derive(Clone)]
struct Token {
    value: SecretString,
    until: Instant,
}

impl Api {
    pub(super) fn new(
        client: Client,
        base_url: Url,
        client_id: String,
        client_secret: SecretString,
    ) -> Self {
        Self {
            client,
            base_url,
            client_id,
            client_secret,
            token: Mutex::new(None),
        }
    }

    /// The cached access token, or a new one. Concurrent callers wait for one fetch.
    pub(super) async fn token(&self, context: &CallContext) -> Result<SecretString, Error> {
        let mut cached = tokio::time::timeout_at(context.deadline, self.token.lock())
            .await
            .map_err(|_| Error::Deadline)?;
        if let Some(token) = cached.as_ref().filter(|token| Instant::now() < token.until) {
            return Ok(token.value.clone());
        }
        let requested_at = Instant::now();
        let url = self.url(&["v1", "token"]);
        let body = serde_json::json!({
            "client_id": self.client_id,
            "client_secret": self.client_secret.expose_secret(),
        });
        let build = || RequestBuilder::post(&url, &body).header("X-Fiskil-Version", VERSION);
        let read = |response: &Response| match response.status.as_u16() {
            status @ (401 | 403) => Err(Error::OperatorRejected {
                settings: CREDENTIALS,
                status,
            }),
            _ => read_json(response),
        };
        let fetched: wire::Token = self.client.call(context, "token", build, read).await?;
        let life = Duration::from_secs(fetched.expires_in.min(TOKEN_LIFE_SECONDS_MAX))
            .saturating_sub(TOKEN_MARGIN);
        let token = Token {
            value: SecretString::from(fetched.token),
            until: requested_at + life,
        };
        Ok(cached.insert(token).value.clone())
    }

    /// Evicts `rejected` from the cache, unless another caller has already replaced it.
    async fn drop_token(&self, context: &CallContext, rejected: &SecretString) {
        let Ok(mut cached) = tokio::time::timeout_at(context.deadline, self.token.lock()).await
        else {
            return;
        };
        if cached
            .as_ref()
            .is_some_and(|token| token.value.expose_secret() == rejected.expose_secret())
        {
            *cached = None;
        }
    }

    /// Calls with an access token. A 401 means that the token is not valid any more and that the
    /// call had no effect, so the call is made once more with a new token.
    async fn authorised<T: Send>(
        &self,
        context: &CallContext,
        operation: &'static str,
        build: impl Fn() -> RequestBuilder + Send + Sync,
        mut accept: impl FnMut(&Response) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let token = self.token(context).await?;
        let outcome = self
            .client
            .call(context, operation, with_token(&token, &build), &mut accept)
            .await;
        if outcome.as_ref().err() != Some(&UNAUTHORIZED) {
            return outcome;
        }
        self.drop_token(context, &token).await;
        let token = self.token(context).await?;
        self.client
            .call(context, operation, with_token(&token, &build), accept)
            .await
    }

    /// Registers an end user and returns the provider's id. Not idempotent: each call creates
    /// another end user, even with the same e-mail address (docs/providers/fiskil.md#end-users).
    pub(super) async fn add_end_user(
        &self,
        context: &CallContext,
        name: &str,
        email: &str,
    ) -> Result<String, Error> {
        let url = self.url(&["v1", "end-users"]);
        let body = serde_json::json!({"email": email, "name": name});
        let added: wire::AddedEndUser = self
            .authorised(
                context,
                "add_end_user",
                || RequestBuilder::post(&url, &body).once(),
                read_json,
            )
            .await?;
        Ok(added.end_user_id)
    }

    /// The ids of the end users with this e-mail address and name.
    pub(super) async fn end_users(
        &self,
        context: &CallContext,
        email: &str,
        name: &str,
    ) -> Result<Vec<String>, Error> {
        let mut ids = Vec::new();
        self.read_all(
            context,
            "end_users",
            &["v1", "end-users"],
            &[("email", email), PAGE_SIZE],
            |response| {
                let (users, links) = match parse_json(success(response)?.json_body()?)? {
                    wire::EndUsers::Envelope { end_users, links } => (end_users, links),
                    wire::EndUsers::Bare(users) => (users, None),
                };
                let next = self.next(links)?;
                let matching = users.into_iter().filter(|user| {
                    user.name
                        .as_ref()
                        .is_some_and(|known| known.as_str() == name)
                });
                ids.extend(matching.map(|user| user.id.0.into_owned()));
                Ok(next)
            },
        )
        .await?;
        Ok(ids)
    }

    /// Deletes an end user. Succeeds if the provider reports that the end user does not exist. A
    /// 404 from a proxy is an error.
    pub(super) async fn delete_end_user(
        &self,
        context: &CallContext,
        id: &str,
    ) -> Result<(), Error> {
        let url = self.url(&["v1", "end-users", id]);
        let deleted = |response: &Response| match response.status {
            StatusCode::NOT_FOUND if is_named(response, "end_user_not_found") => Ok(()),
            _ => success(response).map(|_| ()),
        };
        self.authorised(
            context,
            "delete_end_user",
            || RequestBuilder::delete(&url),
            deleted,
        )
        .await
    }

    /// Creates a consent page for one consent and returns its URL. An unused page has no effect.
    pub(super) async fn session(
        &self,
        context: &CallContext,
        session: &wire::NewSession<'_>,
    ) -> Result<Url, Error> {
        let url = self.url(&["v1", "auth", "session"]);
        let page = |response: &Response| {
            if response.status == StatusCode::NOT_FOUND && is_named(response, "end_user_not_found")
            {
                return Err(Error::ReconnectNeeded(ConnectionStatus::Revoked));
            }
            let session: wire::Session<'_> = parse_json(success(response)?.json_body()?)?;
            linking::consent_page_url(session.auth_url.as_str())
        };
        self.authorised(
            context,
            "session",
            || RequestBuilder::post(&url, session),
            page,
        )
        .await
    }

    /// All consents of an end user, including those that have ended. The list is not known to have
    /// a size parameter.
    pub(super) async fn consents(
        &self,
        context: &CallContext,
        end_user_id: &str,
    ) -> Result<Vec<wire::Consent>, Error> {
        let mut found = Vec::new();
        self.read_all(
            context,
            "consents",
            &["v1", "consent"],
            &[("end_user_id", end_user_id)],
            |response| {
                if response.status == StatusCode::NOT_FOUND
                    && is_named(response, "end_user_not_found")
                {
                    return Err(Error::ReconnectNeeded(ConnectionStatus::Revoked));
                }
                let (consents, links) = match parse_json(success(response)?.json_body()?)? {
                    wire::Consents::Envelope { consents, links } => (consents, links),
                    wire::Consents::Bare(consents) => (consents, None),
                };
                let next = self.next(links)?;
                found.extend(consents);
                Ok(next)
            },
        )
        .await?;
        Ok(found)
    }

    /// Withdraws a consent. The provider also returns 204 for an unknown consent. A 404 of its own
    /// means that there is none; one from a proxy is an error.
    pub(super) async fn delete_consent(
        &self,
        context: &CallContext,
        arrangement_id: &str,
    ) -> Result<(), Error> {
        let url = self.url(&["v1", "consent", arrangement_id]);
        let withdrawn = |response: &Response| match response.status {
            StatusCode::NOT_FOUND if error_body(response).name.is_some() => Ok(()),
            _ => success(response).map(|_| ()),
        };
        self.authorised(
            context,
            "delete_consent",
            || RequestBuilder::delete(&url),
            withdrawn,
        )
        .await
    }

    pub(super) async fn institution(
        &self,
        context: &CallContext,
        id: &str,
    ) -> Result<wire::Institution, Error> {
        let url = self.url(&["v1", "institutions", id]);
        self.authorised(
            context,
            "institution",
            || RequestBuilder::get(&url),
            read_json,
        )
        .await
    }

    /// Reads all accounts of an end user and passes each to `each`.
    pub(super) async fn accounts(
        &self,
        context: &CallContext,
        end_user_id: &str,
        mut each: impl FnMut(&wire::Account<'_>) + Send,
    ) -> Result<(), Error> {
        self.read_all(
            context,
            "accounts",
            &["v1", "banking", "accounts"],
            &[("end_user_id", end_user_id), PAGE_SIZE],
            |response| {
                let page: wire::AccountsPage<'_> = parse_json(success(response)?.json_body()?)?;
                page.accounts.iter().for_each(&mut each);
                self.next(page.links)
            },
        )
        .await
    }

    /// Reads all balances of an end user and passes each to `each`.
    pub(super) async fn balances(
        &self,
        context: &CallContext,
        end_user_id: &str,
        mut each: impl FnMut(&wire::Balance<'_>) + Send,
    ) -> Result<(), Error> {
        self.read_all(
            context,
            "balances",
            &["v1", "banking", "balances"],
            &[("end_user_id", end_user_id), PAGE_SIZE],
            |response| {
                let page: wire::BalancesPage<'_> = parse_json(success(response)?.json_body()?)?;
                page.balances.iter().for_each(&mut each);
                self.next(page.links)
            },
        )
        .await
    }

    /// Reads all pages of a list. `read` gets any response and returns the cursor of the next page.
    async fn read_all(
        &self,
        context: &CallContext,
        operation: &'static str,
        path: &[&str],
        query: &[(&str, &str)],
        mut read: impl FnMut(&Response) -> Result<Option<Cursor>, Error> + Send,
    ) -> Result<(), Error> {
        let url = with_query(&self.url(path), query);
        let mut cursor: Option<Cursor> = None;
        for _ in 0..PAGES_MAX {
            let after = cursor
                .as_ref()
                .map(|cursor| ("page[after]", cursor.0.as_str()));
            let build = || RequestBuilder::get(&with_query(&url, after.as_slice()));
            let next = self
                .authorised(context, operation, build, &mut read)
                .await?;
            if next.is_none() {
                return Ok(());
            }
            if next == cursor {
                return Err(Error::Malformed("the next page is the current page"));
            }
            cursor = next;
        }
        Err(Error::Malformed("too many pages"))
    }

    /// Reads one page of posted transactions. `read` parses its body. It must keep nothing if it
    /// fails, because the call may then be retried.
    pub(super) async fn transactions<T: Send>(
        &self,
        context: &CallContext,
        end_user_id: &str,
        query: &TransactionQuery<'_>,
        page: PageRequest<'_>,
        mut read: impl FnMut(&[u8]) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let url = self.url(&["v1", "banking", "transactions"]);
        let (from, to) = widened(query.dates.instants(query.zone));
        let rows = page.rows.min(PAGE_ROWS_MAX).to_string();
        let mut pairs = vec![
            ("end_user_id", end_user_id),
            ("status", "POSTED"),
            ("from", from.as_str()),
            ("to", to.as_str()),
            ("page[size]", rows.as_str()),
        ];
        pairs.extend(query.account_id().map(|id| ("account_id", id)));
        pairs.extend(page.cursor.map(|cursor| ("page[after]", cursor.0.as_str())));
        let build = || RequestBuilder::get(&with_query(&url, &pairs));
        self.authorised(context, "transactions", build, |response| {
            read(success(response)?.json_body()?)
        })
        .await
    }

    /// The cursor of the next page: the parameter `page[after]` of `links.next`
    /// (docs/providers/fiskil.md#pages). The rest of that URL is ignored, so that a response cannot
    /// direct the access token to another host.
    pub(super) fn next(&self, links: Option<wire::Links<'_>>) -> Result<Option<Cursor>, Error> {
        let Some(next) = links
            .and_then(|links| links.next)
            .filter(|next| !next.as_str().is_empty())
        else {
            return Ok(None);
        };
        let url = self
            .base_url
            .join(next.as_str())
            .map_err(|_| Error::Malformed("the next link is not a URL"))?;
        let after = url.query_pairs().find(|(name, _)| name == "page[after]");
        match after {
            Some((_, cursor)) => Cursor::sent(cursor.into_owned()).map(Some),
            None => Err(Error::Malformed("the next link has no cursor")),
        }
    }

    fn url(&self, segments: &[&str]) -> Url {
        with_path(&self.base_url, segments)
    }
}

/// The range with a second more on each side, because the documentation does not say whether the
/// ends are included (docs/providers/fiskil.md#transactions). The caller filters the rows again.
fn widened((first, last): (Timestamp, Timestamp)) -> (String, String) {
    let from = first.saturating_sub(SignedDuration::from_secs(1));
    let to = last.saturating_add(SignedDuration::from_secs(2));
    (whole_seconds(from), whole_seconds(to))
}

/// RFC 3339 without a fraction. Instants outside of its years are clamped.
fn whole_seconds(instant: Result<Timestamp, jiff::Error>) -> String {
    const FIRST: i64 = -62_135_596_800; // 0001-01-01T00:00:00Z
    const LAST: i64 = 253_402_207_200; // jiff's last instant, 9999-12-30T22:00:00Z
    let second = instant.map_or(LAST, |instant| instant.as_second().clamp(FIRST, LAST));
    Timestamp::from_second(second)
        .unwrap_or(Timestamp::UNIX_EPOCH)
        .to_string()
}

/// Adds the access token and the version to a request.
fn with_token<'a>(
    token: &'a SecretString,
    build: &'a (impl Fn() -> RequestBuilder + Sync),
) -> impl Fn() -> RequestBuilder + Sync {
    move || {
        build()
            .bearer(token.expose_secret())
            .header("X-Fiskil-Version", VERSION)
    }
}

fn success(response: &Response) -> Result<&Response, Error> {
    if response.status.is_success() {
        return Ok(response);
    }
    if let Some(id) = error_id(response) {
        tracing::debug!(
            provider = "fiskil",
            status = response.status.as_u16(),
            error_id = id,
            "provider call rejected"
        );
    }
    Err(response.failure())
}

/// The id by which the provider's support finds an error. None if it is unsafe to log.
fn error_id(response: &Response) -> Option<String> {
    let id = error_body(response).id?;
    let id = id.as_str().filter(|id| {
        id.len() <= 80
            && id
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    });
    id.map(str::to_owned)
}

/// Whether an error has this name, which stands for a class of errors.
fn is_named(response: &Response, expected: &str) -> bool {
    error_body(response)
        .name
        .is_some_and(|name| name == expected)
}

fn error_body(response: &Response) -> wire::ErrorBody {
    serde_json::from_slice(&response.body).unwrap_or_default()
}

fn read_json<T: serde::de::DeserializeOwned>(response: &Response) -> Result<T, Error> {
    parse_json(success(response)?.json_body()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Text;

    fn api() -> Api {
        let name = bellbird_domain::ProviderName::new("fiskil");
        let client = Client::new(name, crate::test_support::client_settings(20)).unwrap();
        Api::new(
            client,
            "https://api.fiskil.com".parse().unwrap(),
            "id".into(),
            SecretString::from("secret"),
        )
    }

    fn next(link: &str) -> Result<Option<Cursor>, Error> {
        api().next(Some(wire::Links {
            next: Some(Text(link.to_owned().into())),
        }))
    }

    #[tokio::test]
    async fn only_the_cursor_of_a_link_is_used() {
        let cursor = |text: &str| Ok(Some(Cursor(text.to_owned())));
        assert_eq!(
            next("https://elsewhere.example/v1/x?a=b&page[after]=abc"),
            cursor("abc")
        );
        assert_eq!(next("/v1/x?page%5Bafter%5D=a%2Bb%3D"), cursor("a+b="));
        assert_eq!(next(""), Ok(None));
        assert_eq!(api().next(None), Ok(None));
        assert!(matches!(
            next("https://api.fiskil.com/v1/x?page[before]=abc"),
            Err(Error::Malformed(_))
        ));
        assert!(matches!(next("http://[bad"), Err(Error::Malformed(_))));
    }

    #[test]
    fn date_range_is_widened_by_a_second() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (first, last) = ("2026-01-01T00:00:00Z", "2026-01-31T12:59:59.999999999Z");
        for (range, from, to) in [
            (
                (at(first), at(last)),
                "2025-12-31T23:59:59Z",
                "2026-01-31T13:00:01Z",
            ),
            (
                (Timestamp::MIN, Timestamp::MAX),
                "0001-01-01T00:00:00Z",
                "9999-12-30T22:00:00Z",
            ),
        ] {
            assert_eq!(widened(range), (from.to_owned(), to.to_owned()));
        }
    }
}
