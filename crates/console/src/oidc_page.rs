//! `/sign-in/oidc`: signing in at the operator's identity provider, by OpenID Connect. A verified
//! e-mail address finds the user once. From then on, the provider's subject does, so another
//! address there leads to no other account.

use axum::response::{IntoResponse as _, Redirect, Response};
use bellbird_domain::user::parse_email;
use bellbird_storage::{Identity, IdentitySignIn};
use http::StatusCode;
use http::header::REFRESH;
use secrecy::ExposeSecret as _;

use crate::callback::parameters;
use crate::cookie::with_cookies;
use crate::error_page::{Failure, PageResult};
use crate::oidc::attempt::Attempt;
use crate::oidc::{ExchangePermit, IdentityProvider, ProviderError};
use crate::pages::names::sanitized;
use crate::pages::{Notice, REFRESH_AFTER, Tone};
use crate::prefetch::reject_prefetch;
use crate::session::{Guest, GuestForm, only_field};
use crate::sign_in::{BrowserSession, record_sign_in};
use crate::state::Console;

/// The sign-ins of this page, for the log and the metrics.
const BY: &str = "identity_provider";

/// `Retry-After` while the provider does not respond.
const RETRY_AFTER_SECONDS: u64 = 10;

/// `POST /sign-in/oidc`
pub(crate) async fn leave(GuestForm { guest, .. }: GuestForm) -> PageResult {
    let provider = provider(&guest)?;
    let token = bellbird_storage::new_token();
    let attempt = Attempt::begin(token.expose_secret(), guest.now);
    let cookie = guest
        .cookies
        .identity_provider
        .header(token.expose_secret());
    Ok(match provider.authorization_url(&attempt).await {
        Ok(url) => with_cookies(Redirect::to(&url).into_response(), [cookie]),
        Err(error) => provider_error(&provider.name, error).into_response(),
    })
}

fn provider(console: &Console) -> Result<&IdentityProvider, Failure> {
    console.identity_provider.as_ref().ok_or(Failure::NotFound)
}

/// `GET /sign-in/oidc/callback`: the redirect URI to which the provider sends the browser.
pub(crate) async fn come_back(guest: Guest) -> PageResult {
    let provider = provider(&guest)?;
    reject_prefetch(guest.headers())?;
    let parameters = parameters(guest.query())?;
    let single = |name: &str| only_field(&parameters, name);
    let cookie = &guest.cookies.identity_provider;
    let attempt = cookie
        .value(guest.headers())
        .zip(single("state"))
        .and_then(|(cookie, state)| Attempt::find(cookie, state, guest.now));
    // https://www.rfc-editor.org/rfc/rfc9207
    let issuer = &provider.settings.issuer;
    let has_issuer = parameters.iter().any(|(key, _)| key == "iss");
    let attempt = attempt.filter(|_| !has_issuer || single("iss") == Some(issuer.as_str()));
    let Some(attempt) = attempt else {
        // Another browser has begun it, or it has expired, or it was used.
        let title = "This sign-in does not work any more";
        let notice = notice(StatusCode::GONE, Tone::Attention, title).with(
            "It works once, for ten minutes, in the browser that has begun it. Nothing was changed.",
        );
        return Ok(ended("unknown_attempt", notice));
    };
    let Some(permit) = provider.admit(guest.address()) else {
        return Ok(busy());
    };
    // Without its cookie, the same URL leads nowhere again.
    let response = match single("code") {
        Some(code) => sign_in(&guest, provider, (permit, &attempt), code)
            .await
            .into_response(),
        None => {
            let title = "You are not signed in";
            let notice = notice(StatusCode::FORBIDDEN, Tone::Neutral, title).with(&format!(
                "{} has not signed you in. Nothing was changed.",
                provider.name
            ));
            ended("declined", notice)
        }
    };
    Ok(with_cookies(response, [cookie.removal()]))
}

async fn sign_in(
    guest: &Guest,
    provider: &IdentityProvider,
    (permit, attempt): (ExchangePermit<'_>, &Attempt),
    code: &str,
) -> PageResult {
    let name = &provider.name;
    let proven = match provider.identify(permit, attempt, code, guest.now).await {
        Ok(proven) => proven,
        Err(error) => {
            let outcome = match error {
                ProviderError::Unavailable(_) => "unavailable",
                ProviderError::Rejected(_) => "rejected",
                ProviderError::EmailNotVerified => "email_not_verified",
            };
            return Ok(ended(outcome, provider_error(name, error)));
        }
    };
    let Ok(email) = parse_email(&proven.email) else {
        return Ok(unknown_user(name, &sanitized(&proven.email)));
    };
    let identity = Identity {
        issuer: &provider.settings.issuer,
        subject: &proven.subject,
        email: &email,
    };
    let session = BrowserSession::new(guest);
    let signed_in = guest
        .storage()
        .sessions()
        .sign_in_as(
            &identity,
            provider.settings.create_users,
            &session.row(),
            guest.now,
        )
        .await?;
    match signed_in {
        IdentitySignIn::Begun(begun) => {
            record_sign_in(BY, "signed_in", Some(&begun));
            session.begun(&begun, None).await
        }
        IdentitySignIn::UnknownUser => Ok(unknown_user(name, &email)),
        IdentitySignIn::OtherIdentity => {
            let title = "This is another account";
            let notice = notice(StatusCode::FORBIDDEN, Tone::Attention, title)
                .with(&format!(
                    "The user {email} signs in with another account of {name}. Nothing was changed."
                ))
                .with("Use that account, or ask the operator of this service.");
            Ok(ended("other_identity", notice))
        }
    }
}

/// The page of a sign-in that has ended without a session.
fn ended(outcome: &'static str, notice: Notice) -> Response {
    record_sign_in(BY, outcome, None);
    notice.into_response()
}

fn notice(status: StatusCode, tone: Tone, title: &str) -> Notice {
    Notice::new(tone, title)
        .with_page_link("/sign-in", "Sign in again")
        .with_status(status)
}

/// `name` is the provider's.
fn provider_error(name: &str, error: ProviderError) -> Notice {
    match error {
        ProviderError::Unavailable(reason) => {
            tracing::warn!(reason, "could not ask the identity provider");
            let title = "The identity provider does not respond";
            notice(StatusCode::SERVICE_UNAVAILABLE, Tone::Waiting, title)
                .with(&format!(
                    "{name} does not say who you are at the moment. Try again in a minute."
                ))
                .with_retry_after(RETRY_AFTER_SECONDS)
        }
        ProviderError::Rejected(reason) => {
            tracing::warn!(reason, "identity rejected");
            let title = "You are not signed in";
            notice(StatusCode::BAD_REQUEST, Tone::Attention, title)
                .with(&format!("What {name} said about you could not be confirmed. Sign in again."))
                .with("If that does not help, tell the operator of this service, who finds the cause in its log.")
        }
        ProviderError::EmailNotVerified => {
            let title = "Your e-mail address is not verified";
            notice(StatusCode::FORBIDDEN, Tone::Attention, title).with(&format!(
                "{name} does not say that your e-mail address is yours. Verify it there, then sign in again."
            ))
        }
    }
}

/// Another browser of the same address, or many others, come back at this moment. The page loads
/// itself again, and the browser still has the cookie.
fn busy() -> Response {
    let page = Notice::new(Tone::Waiting, "One moment")
        .with("Others of your network are signing in. This page tries again by itself.")
        .with_retry_link()
        .with_status(StatusCode::SERVICE_UNAVAILABLE)
        .with_retry_after(RETRY_AFTER_SECONDS);
    ([(REFRESH, REFRESH_AFTER)], page).into_response()
}

fn unknown_user(name: &str, email: &str) -> Response {
    let title = "You are not a user of this service";
    let notice = notice(StatusCode::FORBIDDEN, Tone::Attention, title)
        .with(&format!(
            "{name} knows you as {email}, and nobody may sign in here as that."
        ))
        .with("Ask the operator of this service to add you, or sign in there as somebody else.");
    ended("unknown_user", notice)
}
