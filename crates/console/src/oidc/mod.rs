//! `/sign-in/oidc`: signing in at the operator's identity provider, by OpenID Connect. A verified e-mail address finds
//! the user once. From then on, the provider's subject does, so another address there leads to no other account.

mod attempt;
mod provider;

use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use bellbird_connections::new_browser_cookie;
use bellbird_domain::user::parse_email;
use bellbird_storage::{Identity, IdentitySignIn};
use http::header::{HeaderValue, SET_COOKIE};
use http::{HeaderMap, StatusCode, Uri};
use secrecy::ExposeSecret as _;

use self::attempt::Attempt;
use self::provider::{Provider, ProviderError};
use crate::callback::parameters;
use crate::cookie::Cookie;
use crate::error_page;
use crate::local::is_same_origin;
use crate::pages::names::sanitized;
use crate::pages::{Notice, Tone, page_response};
use crate::prefetch::is_prefetch;
use crate::settings::OidcSettings;
use crate::sign_in::BrowserSession;
use crate::state::Console;

/// `Retry-After` while the provider does not answer.
const RETRY_AFTER_SECONDS: u64 = 10;

/// The identity provider, as the console uses it.
pub(crate) struct Oidc {
    provider: Provider,
    /// Of a browser that is at the provider.
    cookie: Cookie,
    /// The host of the issuer, which users see.
    pub(crate) name: String,
}

impl Oidc {
    pub(crate) fn new(settings: &OidcSettings, console_url: &str) -> Self {
        let host = settings.issuer.parse::<Uri>().ok().and_then(|issuer| issuer.host().map(str::to_owned));
        Self {
            provider: Provider::new(settings.clone(), redirect_uri(console_url)),
            cookie: Cookie::of_identity_provider(console_url),
            name: host.unwrap_or_default(),
        }
    }
}

/// What to register at the provider.
fn redirect_uri(console_url: &str) -> String {
    format!("{}/sign-in/oidc/callback", console_url.trim_end_matches('/'))
}

/// Asks the identity provider for its metadata and keys. Returns the redirect URI to register there, or why users cannot
/// sign in.
pub async fn check_identity_provider(settings: &OidcSettings, console_url: &str) -> Result<String, &'static str> {
    let redirect_uri = redirect_uri(console_url);
    match Provider::new(settings.clone(), redirect_uri.clone()).check().await {
        Ok(()) => Ok(redirect_uri),
        Err(error) => Err(error.reason()),
    }
}

/// `POST /sign-in/oidc`
pub(crate) async fn leave(State(console): State<Console>, headers: HeaderMap) -> Response {
    let Some(oidc) = &console.inner.oidc else { return error_page::not_found(&console, &headers) };
    if !is_same_origin(&headers) {
        return error_page::cross_site_form(&console);
    }
    let cookie = new_browser_cookie();
    let attempt = Attempt::begin(cookie.expose_secret(), console.inner.clock.now());
    match oidc.provider.authorization_url(&attempt).await {
        Ok(url) => with_cookie(Redirect::to(&url).into_response(), oidc.cookie.header(cookie.expose_secret())),
        Err(error) => provider_error(&console, oidc, error),
    }
}

/// `GET /sign-in/oidc/callback`: the redirect URI to which the provider sends the browser.
pub(crate) async fn come_back(
    State(console): State<Console>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let Some(oidc) = &console.inner.oidc else { return error_page::not_found(&console, &headers) };
    if is_prefetch(&headers) {
        return error_page::prefetch(&console);
    }
    let Some(parameters) = parameters(query.as_deref().unwrap_or_default()) else {
        return error_page::query_too_long(&console);
    };
    let single = |name: &str| {
        let mut values = parameters.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str());
        values.next().filter(|_| values.next().is_none())
    };
    let now = console.inner.clock.now();
    let cookie = oidc.cookie.value(&headers);
    let attempt = cookie.zip(single("state")).and_then(|(cookie, state)| Attempt::find(cookie, state, now));
    // https://www.rfc-editor.org/rfc/rfc9207
    let attempt = attempt.filter(|_| single("iss").is_none_or(|issuer| issuer == oidc.provider.issuer()));
    let Some(attempt) = attempt else { return other_attempt(&console) };
    // Without its cookie, the same URL leads nowhere again.
    let response = match single("code") {
        Some(code) => sign_in(&console, oidc, &headers, &attempt, code).await,
        None => not_signed_in(&console, oidc),
    };
    with_cookie(response, oidc.cookie.removal())
}

async fn sign_in(console: &Console, oidc: &Oidc, headers: &HeaderMap, attempt: &Attempt, code: &str) -> Response {
    let now = console.inner.clock.now();
    let proven = match oidc.provider.identify(attempt, code, now).await {
        Ok(proven) => proven,
        Err(error) => return provider_error(console, oidc, error),
    };
    let Ok(email) = parse_email(&proven.email) else { return unknown_user(console, oidc, &sanitized(&proven.email)) };
    let (issuer, creates_user) = (oidc.provider.issuer(), oidc.provider.creates_users());
    let identity = Identity { issuer, subject: &proven.subject, email: &email };
    let session = BrowserSession::new(headers, now);
    let signed_in = console.storage().sessions().sign_in_as(&identity, creates_user, &session.row(), now).await;
    match signed_in {
        Ok(IdentitySignIn::User(_)) => session.begun(console, headers, now).await,
        Ok(IdentitySignIn::UnknownUser) => unknown_user(console, oidc, &email),
        Ok(IdentitySignIn::OtherIdentity) => other_identity(console, oidc, &email),
        Err(error) => error_page::storage_error(console, &error),
    }
}

fn with_cookie(mut response: Response, cookie: Option<HeaderValue>) -> Response {
    response.headers_mut().extend(cookie.map(|cookie| (SET_COOKIE, cookie)));
    response
}

fn page(console: &Console, status: StatusCode, notice: Notice) -> Response {
    page_response(status, &notice.with_sign_in_link().page(&console.inner.frame))
}

fn provider_error(console: &Console, oidc: &Oidc, error: ProviderError) -> Response {
    match error {
        ProviderError::Unavailable(reason) => {
            tracing::warn!(reason, "could not ask the identity provider");
            let notice = Notice::new(Tone::Waiting, "The identity provider does not answer")
                .with(&format!("{} does not say who you are at the moment. Try again in a minute.", oidc.name));
            error_page::with_retry_after(page(console, StatusCode::SERVICE_UNAVAILABLE, notice), RETRY_AFTER_SECONDS)
        }
        ProviderError::Rejected(reason) => {
            tracing::warn!(reason, "identity rejected");
            let notice = Notice::new(Tone::Attention, "You are not signed in")
                .with(&format!("What {} said about you could not be confirmed. Sign in again.", oidc.name))
                .with("If that does not help, tell the operator of this service, who finds the cause in its log.");
            page(console, StatusCode::BAD_REQUEST, notice)
        }
        ProviderError::EmailNotVerified => {
            let notice = Notice::new(Tone::Attention, "Your e-mail address is not verified").with(&format!(
                "{} does not say that your e-mail address is yours. Verify it there, then sign in again.",
                oidc.name
            ));
            page(console, StatusCode::FORBIDDEN, notice)
        }
    }
}

/// Another browser has begun it, or it has expired, or it was used.
fn other_attempt(console: &Console) -> Response {
    let notice = Notice::new(Tone::Attention, "This sign-in does not work any more")
        .with("It works once, for ten minutes, in the browser that has begun it. Nothing was changed.");
    page(console, StatusCode::GONE, notice)
}

fn not_signed_in(console: &Console, oidc: &Oidc) -> Response {
    let notice = Notice::new(Tone::Neutral, "You are not signed in")
        .with(&format!("{} has not signed you in. Nothing was changed.", oidc.name));
    page(console, StatusCode::FORBIDDEN, notice)
}

fn unknown_user(console: &Console, oidc: &Oidc, email: &str) -> Response {
    let notice = Notice::new(Tone::Attention, "You are no user of this service")
        .with(&format!("{} knows you as {email}, which is the address of no user here.", oidc.name))
        .with("Ask the operator of this service to add you, or sign in there as somebody else.");
    page(console, StatusCode::FORBIDDEN, notice)
}

fn other_identity(console: &Console, oidc: &Oidc, email: &str) -> Response {
    let notice = Notice::new(Tone::Attention, "This is another account")
        .with(&format!("The user {email} signs in with another account of {}. Nothing was changed.", oidc.name))
        .with("Use that account, or ask the operator of this service.");
    page(console, StatusCode::FORBIDDEN, notice)
}
