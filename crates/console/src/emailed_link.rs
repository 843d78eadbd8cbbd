//! Sends a link to sign in to whoever has the address.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use http::header::SET_COOKIE;
use secrecy::ExposeSecret as _;
use tracing::Span;

use crate::emails::asked_links::AskedLink;
use crate::error_page;
use crate::pages::{Notice, Tone, page_response};
use crate::session::GuestForm;
use crate::sign_in::browser_name_of;
use crate::state::Console;

/// `POST /sign-in`, with the field `email`: sends a link, if this is the address of a user. The
/// response does not say, and takes no longer.
pub(crate) async fn send_link(State(console): State<Console>, form: GuestForm) -> Response {
    let (Some(asked), Some(email)) = (&console.inner.asked_links, form.field("email")) else {
        return error_page::invalid_form(&console);
    };
    let browser = console
        .inner
        .cookie
        .value_or(&form.headers, bellbird_storage::new_token());
    let link = AskedLink {
        email: email.trim().to_owned(),
        browser: browser.clone(),
        browser_name: browser_name_of(&form.headers),
        span: Span::current(),
    };
    if asked.try_send(link).is_err() {
        let notice = Notice::new(Tone::Attention, "Too many people sign in at this moment")
            .with("Try again in a minute.");
        return page_response(
            StatusCode::SERVICE_UNAVAILABLE,
            &notice.page(&console.inner.frame),
        );
    }
    let notice = Notice::new(Tone::Good, "Check your e-mail")
        .with("If a user has this address, a link is on its way. Open it in this browser within ten minutes.")
        .with("At most five links an hour are sent to an address.");
    let mut response = page_response(StatusCode::OK, &notice.page(&console.inner.frame));
    response.headers_mut().extend(
        console
            .inner
            .cookie
            .header(browser.expose_secret())
            .map(|cookie| (SET_COOKIE, cookie)),
    );
    response
}
