//! Sends a link to sign in to whoever has the address.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use bellbird_domain::UserId;
use bellbird_limits::gcra::Limit;
use bellbird_limits::{RateLimiter, SharedStore};
use http::StatusCode;
use http::header::SET_COOKIE;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::{Semaphore, mpsc};
use tracing::{Instrument as _, Span};

use crate::emails::{Mailer, SignInEmail};
use crate::error_page;
use crate::pages::{Notice, Tone, page_response};
use crate::session::GuestForm;
use crate::sign_in::{LINKS_MAX, browser_name_of, insert_link};
use crate::state::Console;

/// Of one user: five at once, and one each 96 minutes. So at most 5 an hour and 20 a day fill a mailbox.
const LIMIT_OF_USER: Limit = Limit { calls: 5, period_us: 5 * 96 * 60_000_000, credit: 0 };
/// Of all users together.
const PER_MINUTE: u32 = 60;
/// That wait to be sent.
const WAITING_MAX: usize = 256;
/// That are sent at the same time.
const SENDING_MAX: usize = 4;

/// A link that somebody asks for.
pub(crate) struct EmailedLink {
    console: Console,
    email: String,
    /// The cookie of the browser that asks.
    browser: SecretString,
    browser_name: String,
    /// The request's.
    span: Span,
}

/// Sends links, and says to whom how many.
struct Sender {
    mailer: Mailer,
    limit_of_user: RateLimiter<UserId>,
    limit: Option<RateLimiter<&'static str>>,
}

/// `POST /sign-in`, with the field `email`: sends a link, if this is the address of a user. The response does not say,
/// and takes no longer.
pub(crate) async fn send_link(State(console): State<Console>, form: GuestForm) -> Response {
    let (Some(asked), Some(email)) = (&console.inner.asked_links, form.field("email")) else {
        return error_page::invalid_form(&console);
    };
    let browser = console.inner.cookie.value_or(&form.headers, console.storage().new_token());
    let link = EmailedLink {
        console: console.clone(),
        email: email.trim().to_owned(),
        browser: browser.clone(),
        browser_name: browser_name_of(&form.headers),
        span: Span::current(),
    };
    if asked.try_send(link).is_err() {
        let notice =
            Notice::new(Tone::Attention, "Too many people sign in at this moment").with("Try again in a minute.");
        return page_response(StatusCode::SERVICE_UNAVAILABLE, &notice.page(&console.inner.frame));
    }
    let notice = Notice::new(Tone::Good, "Check your e-mail")
        .with("If a user has this address, a link is on its way. Open it in this browser within ten minutes.")
        .with("At most five links an hour are sent to an address.");
    let mut response = page_response(StatusCode::OK, &notice.page(&console.inner.frame));
    response
        .headers_mut()
        .extend(console.inner.cookie.header(browser.expose_secret()).map(|cookie| (SET_COOKIE, cookie)));
    response
}

/// Starts to send the links that are put into the queue, until it is dropped. So nobody waits for the mail server, and
/// no response tells by its time whether somebody is a user.
pub(crate) fn start(mailer: Mailer, store: Option<&SharedStore>) -> mpsc::Sender<EmailedLink> {
    let limit = RateLimiter::per_minute(PER_MINUTE).map(|limit| limit.shared(store, "emailed_links"));
    let limit_of_user = RateLimiter::new(LIMIT_OF_USER).shared(store, "emailed_links_of_user");
    let sender = Arc::new(Sender { mailer, limit_of_user, limit });
    let (asked, mut waiting) = mpsc::channel::<EmailedLink>(WAITING_MAX);
    tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(SENDING_MAX));
        while let Some(link) = waiting.recv().await {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let (sender, span) = (Arc::clone(&sender), link.span.clone());
            let sent = async move {
                // A failure is in the log, and the user asks again.
                if let Err(error) = sender.send(&link).await {
                    tracing::warn!(error, "could not send a sign-in link");
                }
                drop(place);
            };
            tokio::spawn(sent.instrument(span));
        }
    });
    asked
}

impl Sender {
    async fn send(&self, link: &EmailedLink) -> Result<(), String> {
        let (storage, now) = (link.console.storage(), link.console.inner.access.clock().now());
        let found = storage.users().find_by_email(&link.email).await.map_err(|error| error.to_string())?;
        // Who may not sign in gets no e-mail, because nobody has proved that the address is the user's.
        let Some(user) = found.filter(|user| user.console_sign_in) else { return Ok(()) };
        if !self.limit_of_user.take(user.id, now).await.allowed {
            return Err("this user was sent 5 within an hour, or 20 within a day".to_owned());
        }
        if let Some(limit) = &self.limit
            && !limit.take("all", now).await.allowed
        {
            return Err("60 were sent within a minute".to_owned());
        }
        let browser = Some(link.browser.expose_secret());
        let url = insert_link(storage, user.id, browser, LINKS_MAX, self.mailer.console_url(), now).await;
        let Some(url) = url.map_err(|error| error.to_string())? else { return Err("too many links work".to_owned()) };
        let email = SignInEmail { url: url.expose_secret(), browser: &link.browser_name };
        let text = email.text().map_err(|error| error.to_string())?;
        self.mailer.send(&user.email, text).await.map_err(|error| error.to_string())
    }
}
