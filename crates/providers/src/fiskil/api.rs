//! One function per remote call; paging; authentication.

use std::time::Duration;

use bellbird_domain::ConnectionStatus;
use jiff::{SignedDuration, Timestamp};
use reqwest::{RequestBuilder, StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::wire;
use crate::http::{Answer, Attempts, Client, parse_json};
use crate::{Call, Cursor, Error, linking};

/// Sent with every call, so that the shapes do not depend on a setting in the provider's console
/// (docs/providers/fiskil.md#versions).
const VERSION: &str = "v3";
/// The largest page; larger ones are cut to it by the provider (docs/providers/fiskil.md#pages).
pub(super) const PAGE_ROWS_MAX: u32 = 1_000;
/// A token this close to its end is not used any more.
const TOKEN_MARGIN: Duration = Duration::from_secs(30);
/// A longer life than this is not believed: the documented one is 900 s.
const TOKEN_LIFE_SECONDS_MAX: u64 = 86_400;
/// The longest cursor that is taken; page maps keep them.
const CURSOR_BYTES_MAX: usize = 1_024;
/// Bounds the walks over accounts, balances and end users, whose pages hold a thousand each.
const PAGES_MAX: usize = 20;
/// What a call is answered whose token has ended.
const REFUSED: Error = Error::Rejected { status: 401 };

/// Fiskil's HTTP interface with one team's credentials.
pub(super) struct Api {
    client: Client,
    base_url: Url,
    client_id: String,
    client_secret: SecretString,
    token: Mutex<Option<Token>>,
}

/// An access token, and until when it is used.
#[derive(Clone)]
struct Token {
    value: SecretString,
    until: Instant,
}

impl Api {
    pub(super) fn new(client: Client, base_url: Url, client_id: String, client_secret: SecretString) -> Self {
        Self { client, base_url, client_id, client_secret, token: Mutex::new(None) }
    }

    /// The token in use, or a new one. Callers that come while one is being fetched wait for it.
    ///
    /// # Errors
    /// Those of the token call.
    pub(super) async fn token(&self, call: &Call) -> Result<SecretString, Error> {
        let mut held = tokio::time::timeout_at(call.deadline, self.token.lock()).await.map_err(|_| Error::Deadline)?;
        if let Some(token) = held.as_ref().filter(|token| Instant::now() < token.until) {
            return Ok(token.value.clone());
        }
        let asked = Instant::now();
        let url = self.url("/v1/token");
        let body = serde_json::json!({
            "client_id": self.client_id,
            "client_secret": self.client_secret.expose_secret(),
        });
        let fresh: wire::Token = self
            .client
            .call(
                call,
                "token",
                |http| http.post(url.clone()).header("X-Fiskil-Version", VERSION).json(&body),
                read_json,
            )
            .await?;
        let life = Duration::from_secs(fresh.expires_in.min(TOKEN_LIFE_SECONDS_MAX)).saturating_sub(TOKEN_MARGIN);
        let token = Token { value: SecretString::from(fresh.token), until: asked + life };
        Ok(held.insert(token).value.clone())
    }

    /// Drops `refused`, unless somebody already put a newer one in its place.
    async fn drop_token(&self, call: &Call, refused: &SecretString) {
        let Ok(mut held) = tokio::time::timeout_at(call.deadline, self.token.lock()).await else { return };
        if held.as_ref().is_some_and(|token| token.value.expose_secret() == refused.expose_secret()) {
            *held = None;
        }
    }

    /// An authorised call. A 401 means that the token has ended before its time, and that nothing was done: one new
    /// token, one more try.
    async fn authorised<T: Send>(
        &self,
        call: &Call,
        operation: &'static str,
        build: impl Fn(&reqwest::Client) -> RequestBuilder + Send + Sync,
        accept: impl FnMut(&Answer) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        self.authorised_in(Attempts::Several, call, operation, build, accept).await
    }

    async fn authorised_in<T: Send>(
        &self,
        attempts: Attempts,
        call: &Call,
        operation: &'static str,
        build: impl Fn(&reqwest::Client) -> RequestBuilder + Send + Sync,
        mut accept: impl FnMut(&Answer) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let token = self.token(call).await?;
        let outcome = self.client.call_in(attempts, call, operation, bearing(&token, &build), &mut accept).await;
        if outcome.as_ref().err() != Some(&REFUSED) {
            return outcome;
        }
        self.drop_token(call, &token).await;
        let token = self.token(call).await?;
        self.client.call_in(attempts, call, operation, bearing(&token, &build), accept).await
    }

    /// Registers an end user; gives the provider's id. There is no uniqueness: each call that arrives makes another one
    /// (docs/providers/fiskil.md#end-users).
    pub(super) async fn add_end_user(&self, call: &Call, name: &str, email: &str) -> Result<String, Error> {
        let url = self.url("/v1/end-users");
        let body = serde_json::json!({"email": email, "name": name});
        let added: wire::AddedEndUser = self
            .authorised_in(Attempts::One, call, "add_end_user", |http| http.post(url.clone()).json(&body), read_json)
            .await?;
        Ok(added.end_user_id)
    }

    /// The ids of the end users with this address and name.
    pub(super) async fn end_users(&self, call: &Call, email: &str, name: &str) -> Result<Vec<String>, Error> {
        let mut ids = Vec::new();
        self.walk(call, "end_users", "/v1/end-users", ("email", email), |body| {
            let (users, links) = match parse_json(body)? {
                wire::EndUsers::Envelope { end_users, links } => (end_users, links),
                wire::EndUsers::Bare(users) => (users, None),
            };
            let next = self.next(links)?;
            let ours = users.into_iter().filter(|user| user.name.as_ref().is_some_and(|known| known.as_str() == name));
            ids.extend(ours.map(|user| user.id.0.into_owned()));
            Ok(next)
        })
        .await?;
        Ok(ids)
    }

    /// Deletes an end user. One that is not there any more is deleted, if it is the provider who says so.
    pub(super) async fn delete_end_user(&self, call: &Call, id: &str) -> Result<(), Error> {
        let mut url = self.url("/v1/end-users");
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.push(id);
        }
        let deleted = |answer: &Answer| match answer.status {
            StatusCode::NOT_FOUND if is_named(answer, "end_user_not_found") => Ok(()),
            _ => success(answer).map(|_| ()),
        };
        self.authorised(call, "delete_end_user", |http| http.delete(url.clone()), deleted).await
    }

    /// A page for one consent; each call makes another one, and one that is not used does no harm.
    pub(super) async fn session(&self, call: &Call, session: &wire::NewSession<'_>) -> Result<Url, Error> {
        let url = self.url("/v1/auth/session");
        let page = |answer: &Answer| {
            if answer.status == StatusCode::NOT_FOUND && is_named(answer, "end_user_not_found") {
                return Err(Error::ReconnectNeeded(ConnectionStatus::Revoked));
            }
            let session: wire::Session<'_> = parse_json(success(answer)?.json_body()?)?;
            linking::page(session.auth_url.as_str())
        };
        self.authorised(call, "session", |http| http.post(url.clone()).json(session), page).await
    }

    /// All consents of an end user, ended ones included.
    pub(super) async fn consents(&self, call: &Call, end_user_id: &str) -> Result<Vec<wire::Consent>, Error> {
        let url = self.url("/v1/consent");
        let query = [("end_user_id", end_user_id)];
        let read = |answer: &Answer| match answer.status {
            StatusCode::NOT_FOUND if is_named(answer, "end_user_not_found") => {
                Err(Error::ReconnectNeeded(ConnectionStatus::Revoked))
            }
            _ => read_json(answer),
        };
        match self.authorised(call, "consents", |http| http.get(url.clone()).query(&query), read).await? {
            wire::Consents::Envelope { consents } | wire::Consents::Bare(consents) => Ok(consents),
        }
    }

    /// Withdraws a consent. The provider answers 204 for unknown ones too.
    pub(super) async fn delete_consent(&self, call: &Call, arrangement_id: &str) -> Result<(), Error> {
        let mut url = self.url("/v1/consent");
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.push(arrangement_id);
        }
        let done = |answer: &Answer| match answer.status {
            status if status.is_success() => Ok(()),
            _ => Err(answer.failure()),
        };
        self.authorised(call, "delete_consent", |http| http.delete(url.clone()), done).await
    }

    pub(super) async fn institution(&self, call: &Call, id: &str) -> Result<wire::Institution, Error> {
        let mut url = self.url("/v1/institutions");
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.push(id);
        }
        self.authorised(call, "institution", |http| http.get(url.clone()), read_json).await
    }

    /// Walks an end user's accounts; `each` sees every one.
    pub(super) async fn accounts(
        &self,
        call: &Call,
        end_user_id: &str,
        mut each: impl FnMut(&wire::Account<'_>) + Send,
    ) -> Result<(), Error> {
        self.walk(call, "accounts", "/v1/banking/accounts", ("end_user_id", end_user_id), |body| {
            let page: wire::AccountsPage<'_> = parse_json(body)?;
            page.accounts.iter().for_each(&mut each);
            self.next(page.links)
        })
        .await
    }

    /// Walks an end user's balances; `each` sees every one.
    pub(super) async fn balances(
        &self,
        call: &Call,
        end_user_id: &str,
        mut each: impl FnMut(&wire::Balance<'_>) + Send,
    ) -> Result<(), Error> {
        self.walk(call, "balances", "/v1/banking/balances", ("end_user_id", end_user_id), |body| {
            let page: wire::BalancesPage<'_> = parse_json(body)?;
            page.balances.iter().for_each(&mut each);
            self.next(page.links)
        })
        .await
    }

    async fn walk(
        &self,
        call: &Call,
        operation: &'static str,
        path: &str,
        whose: (&str, &str),
        mut read: impl FnMut(&[u8]) -> Result<Option<Cursor>, Error> + Send,
    ) -> Result<(), Error> {
        let url = self.url(path);
        let size = PAGE_ROWS_MAX.to_string();
        let mut cursor: Option<Cursor> = None;
        for _ in 0..PAGES_MAX {
            let mut query = vec![whose, ("page[size]", &size)];
            query.extend(cursor.as_ref().map(|cursor| ("page[after]", cursor.0.as_str())));
            let build = |http: &reqwest::Client| http.get(url.clone()).query(&query);
            let next = self.authorised(call, operation, build, |answer| read(success(answer)?.json_body()?)).await?;
            if next.is_none() {
                return Ok(());
            }
            if next == cursor {
                return Err(Error::Malformed("a page names itself as the next"));
            }
            cursor = next;
        }
        Err(Error::Malformed("a list without an end"))
    }

    /// One page of posted transactions as it came. `read` parses it, and must not keep anything when it fails.
    pub(super) async fn transactions<T: Send>(
        &self,
        call: &Call,
        query: &TransactionsQuery<'_>,
        mut read: impl FnMut(&[u8]) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let url = self.url("/v1/banking/transactions");
        let (from, to) = (query.from(), query.to());
        let rows = query.rows.min(PAGE_ROWS_MAX).to_string();
        let mut pairs = vec![
            ("end_user_id", query.end_user_id),
            ("status", "POSTED"),
            ("from", from.as_str()),
            ("to", to.as_str()),
            ("page[size]", rows.as_str()),
        ];
        pairs.extend(query.account_id.map(|id| ("account_id", id)));
        pairs.extend(query.cursor.map(|cursor| ("page[after]", cursor.0.as_str())));
        let build = |http: &reqwest::Client| http.get(url.clone()).query(&pairs);
        self.authorised(call, "transactions", build, |answer| read(success(answer)?.json_body()?)).await
    }

    /// The cursor in a page's `links.next`. Only its `page[after]` is taken: the rest of the URL is rebuilt from our
    /// own base, so that the token never goes to another host (docs/providers/fiskil.md#pages).
    pub(super) fn next(&self, links: Option<wire::Links<'_>>) -> Result<Option<Cursor>, Error> {
        let Some(next) = links.and_then(|links| links.next).filter(|next| !next.as_str().is_empty()) else {
            return Ok(None);
        };
        let url = self.base_url.join(next.as_str()).map_err(|_| Error::Malformed("a link that is no URL"))?;
        let after = url.query_pairs().find(|(name, _)| name == "page[after]");
        match after {
            Some((_, cursor)) if cursor.len() <= CURSOR_BYTES_MAX => Ok(Some(Cursor(cursor.into_owned()))),
            Some(_) => Err(Error::Malformed("a cursor too long")),
            None => Err(Error::Malformed("a link without a cursor")),
        }
    }

    fn url(&self, path: &str) -> Url {
        let mut url = self.base_url.clone();
        url.set_path(path);
        url
    }
}

/// The parameters of a transactions page.
pub(super) struct TransactionsQuery<'a> {
    pub(super) end_user_id: &'a str,
    pub(super) account_id: Option<&'a str>,
    /// First and last instant wanted.
    pub(super) instants: (Timestamp, Timestamp),
    pub(super) cursor: Option<&'a Cursor>,
    pub(super) rows: u32,
}

impl TransactionsQuery<'_> {
    /// A second wider on either side: whether the ends are included is not documented, and rows are filtered again.
    fn from(&self) -> String {
        whole_seconds(self.instants.0.saturating_sub(SignedDuration::from_secs(1)))
    }

    fn to(&self) -> String {
        whole_seconds(self.instants.1.saturating_add(SignedDuration::from_secs(2)))
    }
}

/// RFC 3339 without a fraction. Years that RFC 3339 cannot write are cut to those that it can.
fn whole_seconds(instant: Result<Timestamp, jiff::Error>) -> String {
    const FIRST: i64 = -62_135_596_800; // 0001-01-01T00:00:00Z
    const LAST: i64 = 253_402_207_200; // jiff's last instant, 9999-12-30T22:00:00Z
    let second = instant.map_or(LAST, |instant| instant.as_second().clamp(FIRST, LAST));
    Timestamp::from_second(second).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// A call with its token.
fn bearing<'a>(
    token: &'a SecretString,
    build: &'a (impl Fn(&reqwest::Client) -> RequestBuilder + Sync),
) -> impl Fn(&reqwest::Client) -> RequestBuilder + Sync {
    move |http| build(http).bearer_auth(token.expose_secret()).header("X-Fiskil-Version", VERSION)
}

fn success(answer: &Answer) -> Result<&Answer, Error> {
    if answer.status.is_success() {
        return Ok(answer);
    }
    if let Some(id) = error_id(&answer.body) {
        tracing::debug!(provider = "fiskil", status = answer.status.as_u16(), error_id = id, "provider refused");
    }
    Err(answer.failure())
}

/// The id under which the provider's support finds an error; the same member in both error shapes
/// (docs/providers/fiskil.md#errors).
fn error_id(body: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct WithId {
        id: String,
    }
    let id = serde_json::from_slice::<WithId>(body).ok()?.id;
    (id.len() <= 80 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))).then_some(id)
}

/// Whether an error has this name, which is the same for a class of errors (docs/providers/fiskil.md#errors).
fn is_named(answer: &Answer, expected: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct WithName {
        name: String,
    }
    serde_json::from_slice::<WithName>(&answer.body).is_ok_and(|error| error.name == expected)
}

fn read_json<T: serde::de::DeserializeOwned>(answer: &Answer) -> Result<T, Error> {
    parse_json(success(answer)?.json_body()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Text;

    fn api() -> Api {
        let name = bellbird_domain::ProviderName::new("fiskil");
        let client = Client::new(name, Duration::from_secs(20)).unwrap();
        Api::new(client, "https://api.fiskil.com".parse().unwrap(), "id".into(), SecretString::from("secret"))
    }

    fn next(link: &str) -> Result<Option<Cursor>, Error> {
        api().next(Some(wire::Links { next: Some(Text(link.to_owned().into())) }))
    }

    #[tokio::test]
    async fn only_the_cursor_of_a_link_is_taken() {
        let cursor = |text: &str| Ok(Some(Cursor(text.to_owned())));
        assert_eq!(next("https://elsewhere.example/v1/x?a=b&page[after]=abc"), cursor("abc"));
        assert_eq!(next("/v1/x?page%5Bafter%5D=a%2Bb%3D"), cursor("a+b="));
        assert_eq!(next(""), Ok(None));
        assert_eq!(api().next(None), Ok(None));
        assert!(matches!(next("https://api.fiskil.com/v1/x?page[before]=abc"), Err(Error::Malformed(_))));
        assert!(matches!(next("http://[bad"), Err(Error::Malformed(_))));
    }

    #[test]
    fn instants_are_asked_for_a_little_wider() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let query = |from, to| TransactionsQuery {
            end_user_id: "e",
            account_id: None,
            instants: (from, to),
            cursor: None,
            rows: 1,
        };
        let both = query(at("2026-01-01T00:00:00Z"), at("2026-01-31T12:59:59.999999999Z"));
        assert_eq!(both.from(), "2025-12-31T23:59:59Z");
        assert_eq!(both.to(), "2026-01-31T13:00:01Z");
        let ends = query(Timestamp::MIN, Timestamp::MAX);
        assert_eq!(ends.from(), "9999-12-30T22:00:00Z".replace("9999-12-30T22", "0001-01-01T00"));
        assert_eq!(ends.to(), "9999-12-30T22:00:00Z");
    }
}
