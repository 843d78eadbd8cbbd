//! The mail server, as the settings name it.

use lettre::message::Mailbox;
use lettre::transport::smtp::{AsyncSmtpTransportBuilder, Error};
use lettre::{AsyncSmtpTransport, Tokio1Executor};
use secrecy::{ExposeSecret as _, SecretString};

use crate::local::is_loopback_host;

/// By which server e-mails are sent, and as whom.
#[derive(Debug, Clone)]
pub struct EmailSettings {
    url: SecretString,
    pub(super) from: Mailbox,
}

impl EmailSettings {
    /// What [`Self::parse_url`] takes, to complete "it must be".
    pub const URL: &str = "`smtps://user:password@host`, or `smtp://user:password@host` for a server that speaks \
        STARTTLS";
    /// What [`Self::parse_from`] takes.
    pub const FROM: &str = "an e-mail address, such as `Bellbird <bellbird@example.com>`";

    /// Checks the URL of a mail server. TLS is used with every server but one on this machine.
    #[must_use]
    pub fn parse_url(text: &str) -> Option<SecretString> {
        let (scheme, rest) = text.split_once("://")?;
        let (authority, query) = rest.split_once('?').unwrap_or((rest, ""));
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host).trim_end_matches('/');
        let name = host.parse::<http::uri::Authority>().ok()?.host().to_owned();
        let url = match scheme {
            "smtps" if query.is_empty() => text.to_owned(),
            "smtp" if query.is_empty() && is_loopback_host(&name) => text.to_owned(),
            "smtp" if query.is_empty() || query == "tls=required" => format!("smtp://{authority}?tls=required"),
            _ => return None,
        };
        AsyncSmtpTransport::<Tokio1Executor>::from_url(&url).ok()?;
        Some(url.into())
    }

    /// Checks the sender.
    #[must_use]
    pub fn parse_from(text: &str) -> Option<Mailbox> {
        text.parse().ok()
    }

    /// Takes what the other functions have checked.
    #[must_use]
    pub fn new(url: SecretString, from: Mailbox) -> Self {
        Self { url, from }
    }

    pub(super) fn transport(&self) -> Result<AsyncSmtpTransportBuilder, Error> {
        AsyncSmtpTransport::<Tokio1Executor>::from_url(self.url.expose_secret())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_spoken_to_without_tls() {
        for (text, expected) in [
            ("smtps://me:pass@mail.example.com", Some("smtps://me:pass@mail.example.com")),
            ("smtp://me:pass@mail.example.com", Some("smtp://me:pass@mail.example.com?tls=required")),
            ("smtp://mail.example.com:587?tls=required", Some("smtp://mail.example.com:587?tls=required")),
            ("smtp://localhost:1025", Some("smtp://localhost:1025")),
            ("smtp://[::1]:1025", Some("smtp://[::1]:1025")),
            ("smtp://mail.example.com?tls=opportunistic", None),
            ("smtp://localhost@mail.example.com?tls=none", None),
            ("https://mail.example.com", None),
            ("smtp://", None),
            ("mail.example.com", None),
        ] {
            let url = EmailSettings::parse_url(text);
            assert_eq!(url.as_ref().map(|url| url.expose_secret()), expected, "{text}");
        }
    }

    #[test]
    fn debug_shows_no_password() {
        let url = EmailSettings::parse_url("smtps://me:hunter2@mail.example.com").unwrap();
        let from = EmailSettings::parse_from("Bellbird <bellbird@example.com>").unwrap();
        let settings = EmailSettings::new(url, from);
        assert!(!format!("{settings:?}").contains("hunter2"));
    }
}
