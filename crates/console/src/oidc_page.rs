//! `/sign-in/oidc`: signing in at the operator's identity provider, by OpenID Connect. A verified
//! e-mail address finds the user once. From then on, the provider's subject does, so another
//! address there leads to no other account.

use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use bellbird_domain::user::parse_email;
use bellbird_storage::{Identity, IdentitySignIn};
use http::header::REFRESH;
use http::{Extensions, HeaderMap, StatusCode};
use secrecy::ExposeSecret as _;

use crate::callback::parameters;
use crate::cookie::with_cookies;
use crate::error_page::{self, Failure, PageResult};
use crate::oidc::attempt::Attempt;
use crate::oidc::{ExchangePermit, IdentityProvider, ProviderError};
use crate::pages::names::sanitized;
use crate::pages::{Notice, REFRESH_AFTER, Tone};
use crate::prefetch::reject_prefetch;
use crate::session::{GuestForm, only_field};
use crate::sign_in::{BrowserSession, record_sign_in};
use crate::state::Console;

/// The sign-ins of this page, for the log and the metrics.
const BY: &str = "identity_provider";

/// `Retry-After` while the provider does not answer.
const RETRY_AFTER_SECONDS: u64 = 10;

/// `POST /sign-in/oidc`
pub(crate) async fn leave(State(console): State<Console>, _: GuestForm) -> PageResult {
    let provider = provider(&console)?;
    let token = bellbird_storage::new_token();
    let attempt = Attempt::begin(token.expose_secret(), console.clock.now());
    let cookie = console
        .cookies
        .identity_provider
        .header(token.expose_secret());
    Ok(match provider.authorization_url(&attempt).await {
        Ok(url) => with_cookies(Redirect::to(&url).into_response(), [cookie]),
        Err(error) => provider_error(&console, provider, error),
    })
}

fn provider(console: &Console) -> Result<&IdentityProvider, Failure> {
    console.identity_provider.as_ref().ok_or(Failure::NotFound)
}

/// `GET /sign-in/oidc/callback`: the redirect URI to which the provider sends the browser.
pub(crate) async fn come_back(
    State(console): State<Console>,
    headers: HeaderMap,
    extensions: Extensions,
    RawQuery(query): RawQuery,
) -> PageResult {
    let provider = provider(&console)?;
    reject_prefetch(&headers)?;
    let parameters = parameters(query.as_deref().unwrap_or_default());
    let parameters = parameters.ok_or(Failure::QueryTooLong)?;
    let single = |name: &str| only_field(&parameters, name);
    let now = console.clock.now();
    let cookie = &console.cookies.identity_provider;
    let attempt = cookie
        .value(&headers)
        .zip(single("state"))
        .and_then(|(cookie, state)| Attempt::find(cookie, state, now));
    // https://www.rfc-editor.org/rfc/rfc9207
    let has_issuer = parameters.iter().any(|(key, _)| key == "iss");
    let attempt = attempt.filter(|_| !has_issuer || single("iss") == Some(provider.issuer()));
    let Some(attempt) = attempt else {
        record_sign_in(BY, "unknown_attempt", None);
        return Ok(other_attempt(&console));
    };
    let Some(permit) = provider.admit(console.limited_address(&extensions, &headers)) else {
        return Ok(busy(&console));
    };
    // Without its cookie, the same URL leads nowhere again.
    let response = match single("code") {
        Some(code) => sign_in(&console, provider, &headers, (permit, &attempt), code)
            .await
            .into_response(),
        None => {
            record_sign_in(BY, "declined", None);
            not_signed_in(&console, provider)
        }
    };
    Ok(with_cookies(response, [cookie.removal()]))
}

async fn sign_in(
    console: &Console,
    provider: &IdentityProvider,
    headers: &HeaderMap,
    (permit, attempt): (ExchangePermit<'_>, &Attempt),
    code: &str,
) -> PageResult {
    let now = console.clock.now();
    let proven = match provider.identify(permit, attempt, code, now).await {
        Ok(proven) => proven,
        Err(error) => {
            let outcome = match error {
                ProviderError::Unavailable(_) => "unavailable",
                ProviderError::Rejected(_) => "rejected",
                ProviderError::EmailNotVerified => "email_not_verified",
            };
            record_sign_in(BY, outcome, None);
            return Ok(provider_error(console, provider, error));
        }
    };
    let Ok(email) = parse_email(&proven.email) else {
        record_sign_in(BY, "unknown_user", None);
        return Ok(unknown_user(console, provider, &sanitized(&proven.email)));
    };
    let identity = Identity {
        issuer: provider.issuer(),
        subject: &proven.subject,
        email: &email,
    };
    let session = BrowserSession::new(console, headers, now);
    let signed_in = console
        .storage()
        .sessions()
        .sign_in_as(&identity, provider.new_plan(), &session.row(), now)
        .await?;
    Ok(match signed_in {
        IdentitySignIn::Begun(begun) => {
            record_sign_in(BY, "signed_in", Some(&begun));
            return session.begun(console, headers, &begun, now).await;
        }
        IdentitySignIn::UnknownUser => {
            record_sign_in(BY, "unknown_user", None);
            unknown_user(console, provider, &email)
        }
        IdentitySignIn::OtherIdentity => {
            record_sign_in(BY, "other_identity", None);
            other_identity(console, provider, &email)
        }
    })
}

fn page(console: &Console, status: StatusCode, notice: Notice) -> Response {
    notice
        .with_page_link("/sign-in", "Sign in again")
        .response(&console.frame, status)
}

fn provider_error(
    console: &Console,
    provider: &IdentityProvider,
    error: ProviderError,
) -> Response {
    match error {
        ProviderError::Unavailable(reason) => {
            tracing::warn!(reason, "could not ask the identity provider");
            let notice =
                Notice::new(Tone::Waiting, "The identity provider does not answer").with(&format!(
                    "{} does not say who you are at the moment. Try again in a minute.",
                    provider.name
                ));
            error_page::with_retry_after(
                page(console, StatusCode::SERVICE_UNAVAILABLE, notice),
                RETRY_AFTER_SECONDS,
            )
        }
        ProviderError::Rejected(reason) => {
            tracing::warn!(reason, "identity rejected");
            let notice = Notice::new(Tone::Attention, "You are not signed in")
                .with(&format!("What {} said about you could not be confirmed. Sign in again.", provider.name))
                .with("If that does not help, tell the operator of this service, who finds the cause in its log.");
            page(console, StatusCode::BAD_REQUEST, notice)
        }
        ProviderError::EmailNotVerified => {
            let notice = Notice::new(Tone::Attention, "Your e-mail address is not verified").with(&format!(
                "{} does not say that your e-mail address is yours. Verify it there, then sign in again.",
                provider.name
            ));
            page(console, StatusCode::FORBIDDEN, notice)
        }
    }
}

/// Another browser of the same address, or many others, come back at this moment. The page loads
/// itself again, and the browser still has the cookie.
fn busy(console: &Console) -> Response {
    let response = Notice::new(Tone::Waiting, "One moment")
        .with("Others of your network are signing in. This page tries again by itself.")
        .with_retry_link()
        .response(&console.frame, StatusCode::SERVICE_UNAVAILABLE);
    let mut response = error_page::with_retry_after(response, RETRY_AFTER_SECONDS);
    response.headers_mut().insert(REFRESH, REFRESH_AFTER);
    response
}

/// Another browser has begun it, or it has expired, or it was used.
fn other_attempt(console: &Console) -> Response {
    let notice = Notice::new(Tone::Attention, "This sign-in does not work any more").with(
        "It works once, for ten minutes, in the browser that has begun it. Nothing was changed.",
    );
    page(console, StatusCode::GONE, notice)
}

fn not_signed_in(console: &Console, provider: &IdentityProvider) -> Response {
    let notice = Notice::new(Tone::Neutral, "You are not signed in").with(&format!(
        "{} has not signed you in. Nothing was changed.",
        provider.name
    ));
    page(console, StatusCode::FORBIDDEN, notice)
}

fn unknown_user(console: &Console, provider: &IdentityProvider, email: &str) -> Response {
    let notice = Notice::new(Tone::Attention, "You are not a user of this service")
        .with(&format!(
            "{} knows you as {email}, and nobody may sign in here as that.",
            provider.name
        ))
        .with("Ask the operator of this service to add you, or sign in there as somebody else.");
    page(console, StatusCode::FORBIDDEN, notice)
}

fn other_identity(console: &Console, provider: &IdentityProvider, email: &str) -> Response {
    let notice = Notice::new(Tone::Attention, "This is another account")
        .with(&format!(
            "The user {email} signs in with another account of {}. Nothing was changed.",
            provider.name
        ))
        .with("Use that account, or ask the operator of this service.");
    page(console, StatusCode::FORBIDDEN, notice)
}
