//! Links to sign in that somebody asks for. A queue sends them, so nobody waits for the mail
//! server, and no response tells by its time whether somebody is a user.

use std::sync::Arc;

use bellbird_domain::{Clock, UserId};
use bellbird_limits::gcra::Limit;
use bellbird_limits::{RateLimiter, SharedStore};
use bellbird_management::sign_in::create_asked_link;
use bellbird_storage::Storage;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::{Semaphore, mpsc};
use tracing::{Instrument as _, Span};

use super::{Mailer, SignInEmail, Text};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Of one user: five at once, and one each 96 minutes. So at most 5 an hour and 20 a day fill a
/// mailbox.
const LIMIT_OF_USER: Limit = Limit {
    calls: 5,
    period_us: 5 * 96 * 60_000_000,
    credit: 0,
};
/// Of all users together.
const PER_MINUTE: u32 = 60;
/// That wait to be sent.
const WAITING_MAX: usize = 256;
/// That are sent at the same time.
const SENDING_MAX: usize = 4;

pub(crate) struct AskedLink {
    pub(crate) email: String,
    /// The cookie of the browser that asks.
    pub(crate) browser: SecretString,
    pub(crate) browser_name: String,
    /// The request's.
    pub(crate) span: Span,
}

struct Sender {
    mailer: Mailer,
    /// Whether a link signs in an operator.
    lets_in_operators: bool,
    storage: Storage,
    clock: Clock,
    limit_of_user: RateLimiter<UserId>,
    limit: RateLimiter<&'static str>,
}

impl Mailer {
    /// Starts to send the links that are put into the queue, until it is dropped.
    pub(crate) fn send_asked_links(
        self,
        lets_in_operators: bool,
        storage: Storage,
        clock: Clock,
        store: Option<&SharedStore>,
    ) -> mpsc::Sender<AskedLink> {
        let limit = RateLimiter::new(Limit::per_minute(PER_MINUTE)).shared(store, "emailed_links");
        let limit_of_user = RateLimiter::new(LIMIT_OF_USER).shared(store, "emailed_links_of_user");
        let sender = Arc::new(Sender {
            mailer: self,
            lets_in_operators,
            storage,
            clock,
            limit_of_user,
            limit,
        });
        let (asked, mut waiting) = mpsc::channel::<AskedLink>(WAITING_MAX);
        tokio::spawn(async move {
            let places = Arc::new(Semaphore::new(SENDING_MAX));
            while let Some(link) = waiting.recv().await {
                let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                    return;
                };
                let (sender, span) = (Arc::clone(&sender), link.span.clone());
                let sent = async move {
                    // A failure is in the log, and the user asks again.
                    if let Err(error) = sender.send(&link).await {
                        tracing::warn!(error = error.to_string(), "could not send a sign-in link");
                    }
                    drop(place);
                };
                tokio::spawn(sent.instrument(span));
            }
        });
        asked
    }
}

impl Sender {
    async fn send(&self, link: &AskedLink) -> Result<(), BoxError> {
        let now = self.clock.now();
        let found = self.storage.users().find_by_email(&link.email).await?;
        // Who may not sign in gets no e-mail, because nobody has proved that the address is the
        // user's.
        let Some(user) = found.filter(|user| user.console_sign_in) else {
            return Ok(());
        };
        if !self.limit_of_user.take(user.id, now).await.allowed {
            return Err("this user was sent 5 within an hour, or 20 within a day".into());
        }
        if !self.limit.take("all", now).await.allowed {
            return Err("60 were sent within a minute".into());
        }
        if user.is_operator && !self.lets_in_operators {
            return Err("oidc.operators_only_here lets no link sign in an operator".into());
        }
        let browser = Some(link.browser.expose_secret());
        let console_url = self.mailer.console_url();
        let url = create_asked_link(&self.storage, user.id, browser, &console_url, now).await?;
        let email = SignInEmail {
            url: url.expose_secret(),
            browser: &link.browser_name,
        };
        Ok(self.mailer.send(&user.email, Text::of(&email)?).await?)
    }
}
