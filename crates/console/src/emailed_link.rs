//! Sends a link to sign in to whoever has the address.

use axum::extract::State;
use axum::response::IntoResponse as _;
use http::StatusCode;
use secrecy::ExposeSecret as _;
use tracing::Span;

use crate::cookie::with_cookies;
use crate::emails::asked_links::AskedLink;
use crate::error_page::{Failure, PageResult};
use crate::pages::{Notice, Tone};
use crate::session::GuestForm;
use crate::sign_in::browser_name_of;
use crate::state::Console;

/// `POST /sign-in`, with the field `email`: sends a link, if this is the address of a user. The
/// response does not say, and takes no longer.
pub(crate) async fn send_link(State(console): State<Console>, form: GuestForm) -> PageResult {
    let (Some(asked), Some(email)) = (&console.asked_links, form.field("email")) else {
        return Err(Failure::InvalidForm);
    };
    let browser = console.cookies.browser.value_or_new(&form.headers);
    let link = AskedLink {
        email: email.trim().to_owned(),
        browser: browser.clone(),
        browser_name: browser_name_of(&form.headers),
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
    let cookie = console.cookies.browser.header(browser.expose_secret());
    Ok(with_cookies(page, [cookie]))
}
