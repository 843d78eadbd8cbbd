//! Sends a link to sign in to whoever has the address.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use http::header::SET_COOKIE;
use secrecy::{ExposeSecret as _, SecretString};

use crate::emails::{Mailer, SignInEmail};
use crate::error_page;
use crate::pages::{Notice, Tone, page_response};
use crate::session::GuestForm;
use crate::sign_in::{browser_name_of, insert_link};
use crate::state::Console;

/// Links of one user that work at the same time, so that nobody can fill another's mailbox.
const LINKS_MAX: i64 = 5;

/// `POST /sign-in`, with the field `email`: sends a link, if this is the address of a user. The response does not say,
/// and takes no longer.
pub(crate) async fn send_link(State(console): State<Console>, form: GuestForm) -> Response {
    let (Some(mailer), Some(email)) = (&console.inner.site.mailer, form.field("email")) else {
        return error_page::invalid_form(&console);
    };
    let Ok(permit) = Arc::clone(mailer.links()).try_acquire_owned() else {
        let notice =
            Notice::new(Tone::Attention, "Too many people sign in at this moment").with("Try again in a minute.");
        return page_response(StatusCode::SERVICE_UNAVAILABLE, &notice.page(&console.inner.frame));
    };
    let browser = console.inner.cookie.value_or(&form.headers, console.storage().new_token());
    let task = EmailedLink {
        console: console.clone(),
        mailer: mailer.clone(),
        email: email.trim().to_owned(),
        browser: browser.clone(),
        browser_name: browser_name_of(&form.headers),
    };
    tokio::spawn(async move {
        task.send().await;
        drop(permit);
    });
    let notice = Notice::new(Tone::Good, "Check your e-mail")
        .with("If a user has this address, a link is on its way. Open it in this browser within ten minutes.");
    let mut response = page_response(StatusCode::OK, &notice.page(&console.inner.frame));
    response
        .headers_mut()
        .extend(console.inner.cookie.header(browser.expose_secret()).map(|cookie| (SET_COOKIE, cookie)));
    response
}

/// A link that somebody asks for.
struct EmailedLink {
    console: Console,
    mailer: Mailer,
    email: String,
    /// The cookie of the browser that asks.
    browser: SecretString,
    browser_name: String,
}

impl EmailedLink {
    /// A failure is in the log, and the user asks again.
    async fn send(self) {
        match self.try_send().await {
            Ok(()) => {}
            Err(error) => tracing::warn!(error, "could not send a sign-in link"),
        }
    }

    async fn try_send(&self) -> Result<(), String> {
        let (storage, now) = (self.console.storage(), self.console.inner.access.clock().now());
        let found = storage.users().find_by_email(&self.email).await.map_err(|error| error.to_string())?;
        // Who may not sign in gets no e-mail, because nobody has proved that the address is the user's.
        let Some(user) = found.filter(|user| user.console_sign_in) else { return Ok(()) };
        let browser = Some(self.browser.expose_secret());
        let url = insert_link(storage, user.id, browser, LINKS_MAX, self.mailer.console_url(), now).await;
        let Some(url) = url.map_err(|error| error.to_string())? else { return Err("too many links work".to_owned()) };
        let email = SignInEmail { url: url.expose_secret(), browser: &self.browser_name };
        let text = email.text().map_err(|error| error.to_string())?;
        self.mailer.send(&user.email, text).await.map_err(|error| error.to_string())
    }
}
