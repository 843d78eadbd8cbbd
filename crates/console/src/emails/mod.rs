//! E-mails to users, by the operator's mail server: links to sign in, and what a user has to know.
//! They hold no amount and no account number.

pub(crate) mod asked_links;
mod notices;
mod server;
mod texts;

use std::time::Duration;

use bellbird_domain::CurrentText;
use lettre::message::header::{
    ContentTransferEncoding, ContentType, HeaderName, HeaderValue, MIME_VERSION_1_0,
};
use lettre::message::{Body, Mailbox};
use lettre::transport::smtp;
use lettre::transport::smtp::extension::ClientId;
use lettre::{Address, AsyncSmtpTransport, AsyncTransport as _, Message, Tokio1Executor};
use uuid::Uuid;

pub use server::{EmailSettings, SendError};
pub(crate) use texts::{InvitationEmail, SignInEmail, Text};

/// For one e-mail, from the connection on.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections to the mail server.
const CONNECTIONS_MAX: u32 = 4;
/// The longest line that SMTP takes, without its end.
const LINE_BYTES_MAX: usize = 998;

/// Sends e-mails. Its clones share connections.
#[derive(Clone)]
pub struct Mailer {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
    /// The mail server, as messages name it.
    server: String,
    console_url: CurrentText,
    /// The host of the console, which ends the ids of messages.
    host: String,
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
    pub fn new(settings: &EmailSettings, console_url: CurrentText) -> Result<Self, smtp::Error> {
        let url = console_url.get().parse::<http::Uri>().ok();
        let host = url.and_then(|url| url.host().map(str::to_owned));
        let hello_name = host
            .clone()
            .map_or_else(ClientId::default, ClientId::Domain);
        let transport = settings
            .transport()?
            .hello_name(hello_name)
            .timeout(Some(SEND_TIMEOUT))
            .pool_config(smtp::PoolConfig::new().max_size(CONNECTIONS_MAX))
            .build();
        Ok(Self {
            transport,
            from: settings.from.clone(),
            server: settings.server(),
            console_url,
            host: host.unwrap_or_else(|| "localhost".to_owned()),
        })
    }

    /// Without a slash at its end.
    fn console_url(&self) -> String {
        self.console_url.get().trim_end_matches('/').to_owned()
    }

    /// Connects to the mail server, with TLS and login as the settings say, and sends nothing.
    ///
    /// # Errors
    /// [`SendError::Unavailable`] says what does not work.
    pub async fn check(&self) -> Result<(), SendError> {
        match self.in_time(self.transport.test_connection()).await? {
            true => Ok(()),
            false => Err(SendError::Unavailable(format!(
                "{} ended the connection",
                self.server
            ))),
        }
    }

    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, smtp::Error>>,
    ) -> Result<T, SendError> {
        match tokio::time::timeout(SEND_TIMEOUT, call).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => Err(server::explain(&error, &self.server)),
            Err(_) => Err(server::timed_out(&self.server)),
        }
    }

    /// Sends an e-mail that says that e-mails arrive.
    ///
    /// # Errors
    /// If the mail server does not take it.
    pub async fn send_test(&self, address: &str) -> Result<(), SendError> {
        let body = format!(
            "E-mails of Bellbird at {} arrive here.\n",
            self.console_url()
        );
        self.send(
            address,
            Text {
                subject: "Test of Bellbird's e-mails".to_owned(),
                body,
            },
        )
        .await
    }

    pub(crate) async fn send(&self, address: &str, text: Text) -> Result<(), SendError> {
        let sent = self.try_send(address, text).await;
        let outcome = match &sent {
            Ok(()) => "sent",
            Err(SendError::Rejected(_)) => "rejected",
            Err(SendError::Unavailable(_)) => "failed",
        };
        metrics::counter!("bellbird_emails_total", "outcome" => outcome).increment(1);
        sent
    }

    async fn try_send(&self, address: &str, text: Text) -> Result<(), SendError> {
        let to: Address = address
            .parse()
            .map_err(|_| SendError::Rejected("the address cannot be one".to_owned()))?;
        let message = Message::builder()
            .message_id(Some(format!("<{}@{}>", Uuid::new_v4(), self.host)))
            .header(MIME_VERSION_1_0)
            .from(self.from.clone())
            .to(Mailbox::new(None, to))
            .subject(text.subject)
            // Out-of-office replies to it help nobody.
            .raw_header(HeaderValue::new(
                HeaderName::new_from_ascii_str("Auto-Submitted"),
                "auto-generated".into(),
            ))
            .header(ContentType::TEXT_PLAIN)
            .body(encoded(text.body))
            .map_err(|_| SendError::Rejected("the e-mail cannot be made".to_owned()))?;
        let sent = self.in_time(self.transport.send(message)).await;
        sent.map(drop)
    }
}

/// As it is if that may be sent, because an encoding would break a long link into several lines.
fn encoded(text: String) -> Body {
    if text.is_ascii() && text.lines().all(|line| line.len() <= LINE_BYTES_MAX) {
        let lines = text.replace('\n', "\r\n").into_bytes();
        return Body::dangerous_pre_encoded(lines, ContentTransferEncoding::SevenBit);
    }
    Body::new(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_link_is_sent_whole() {
        let link = format!("https://bellbird.example.com/sign-in/{}", "a".repeat(80));
        let body = encoded(format!("Open this link:\n\n{link}\n"));
        let text = String::from_utf8(body.as_ref().to_vec()).unwrap();
        assert_eq!(text, format!("Open this link:\r\n\r\n{link}\r\n"));
        assert_ne!(
            encoded("Grüße\n".to_owned()).encoding(),
            ContentTransferEncoding::SevenBit
        );
    }
}
