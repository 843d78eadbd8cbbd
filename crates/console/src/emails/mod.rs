//! E-mails to users, by the operator's mail server: links to sign in, and what a user has to know. They hold no amount
//! and no account number.

mod notices;
mod server;
mod texts;

use std::sync::Arc;
use std::time::Duration;

use lettre::message::Mailbox;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::transport::smtp::extension::ClientId;
use lettre::{Address, AsyncSmtpTransport, AsyncTransport as _, Message, Tokio1Executor};
use tokio::sync::Semaphore;

pub use server::EmailSettings;
pub(crate) use texts::{SignInEmail, Text};

/// For one e-mail, from the connection on.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections to the mail server.
const CONNECTIONS_MAX: u32 = 4;
/// Sign-in links being sent at the same time.
const LINKS_IN_FLIGHT: usize = 32;

/// Sends e-mails. Cheap to clone.
#[derive(Clone)]
pub struct Mailer {
    inner: Arc<Inner>,
}

struct Inner {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
    console_url: String,
    /// Of [`LINKS_IN_FLIGHT`].
    links: Arc<Semaphore>,
}

/// Why an e-mail was not sent. It has none of the server's text, which may name the recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SendError {
    /// The server rejects it for good, or the address cannot be one.
    #[error("the mail server rejects the recipient")]
    Rejected,
    #[error("the mail server did not take it")]
    Unavailable,
}

impl std::fmt::Debug for Mailer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Mailer").finish_non_exhaustive()
    }
}

impl Mailer {
    /// `console_url` begins the links in e-mails.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new(settings: &EmailSettings, console_url: &str) -> Result<Self, lettre::transport::smtp::Error> {
        let console_url = console_url.trim_end_matches('/').to_owned();
        let name = console_url.parse::<http::Uri>().ok().and_then(|url| url.host().map(str::to_owned));
        let transport = settings
            .transport()?
            .hello_name(name.map_or_else(ClientId::default, ClientId::Domain))
            .timeout(Some(SEND_TIMEOUT))
            .pool_config(lettre::transport::smtp::PoolConfig::new().max_size(CONNECTIONS_MAX))
            .build();
        let links = Arc::new(Semaphore::new(LINKS_IN_FLIGHT));
        let inner = Inner { transport, from: settings.from.clone(), console_url, links };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(crate) fn console_url(&self) -> &str {
        &self.inner.console_url
    }

    /// The permits to send sign-in links.
    pub(crate) fn links(&self) -> &Arc<Semaphore> {
        &self.inner.links
    }

    pub(crate) async fn send(&self, address: &str, text: Text) -> Result<(), SendError> {
        let to: Address = address.parse().map_err(|_| SendError::Rejected)?;
        let message = Message::builder()
            .from(self.inner.from.clone())
            .to(Mailbox::new(None, to))
            .subject(text.subject)
            // Out-of-office replies to it help nobody.
            .raw_header(HeaderValue::new(HeaderName::new_from_ascii_str("Auto-Submitted"), "auto-generated".into()))
            .header(ContentType::TEXT_PLAIN)
            .body(text.body)
            .map_err(|_| SendError::Rejected)?;
        match tokio::time::timeout(SEND_TIMEOUT, self.inner.transport.send(message)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) if error.is_permanent() => Err(SendError::Rejected),
            Ok(Err(_)) | Err(_) => Err(SendError::Unavailable),
        }
    }
}
