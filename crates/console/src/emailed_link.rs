//! Sends a link to sign in to whoever has the address.

use axum::response::IntoResponse as _;
use http::StatusCode;
use secrecy::ExposeSecret as _;
use tracing::Span;

use crate::cookie::with_cookies;
use crate::emails::asked_links::AskedLink;
use crate::error_page::{Failure, PageResult};
use crate::pages::{Notice, Tone};
use crate::session::GuestForm;

/// `POST /sign-in`, with the field `email`: sends a link, if this is the address of a user. The
/// response does not say, and takes no longer.
pub(crate) async fn send_link(form: GuestForm) -> PageResult {
    let guest = &form.guest;
    let (Some(asked), Some(email)) = (&guest.asked_links, form.field("email")) else {
        return Err(Failure::InvalidForm);
    };
    let cookie = &guest.cookies.browser;
    let browser = cookie.value_or_new(guest.headers());
    let link = AskedLink {
        email: email.trim().to_owned(),
        browser: browser.clone(),
        browser_name: guest.browser_name(),
        span: Span::current(),
    };
    if asked.try_send(link).is_err() {
        return Ok(
            Notice::new(Tone::Attention, "Too many people sign in at this moment")
                .with("Try again in a minute.")
                .with_status(StatusCode::SERVICE_UNAVAILABLE)
                .into_response(),
        );
    }
    let page = Notice::new(Tone::Good, "Check your e-mail")
        .with("If a user has this address, a link is on its way. Open it in this browser within ten minutes.")
        .with("At most five links an hour are sent to an address.")
        .into_response();
    Ok(with_cookies(page, [cookie.header(browser.expose_secret())]))
}
