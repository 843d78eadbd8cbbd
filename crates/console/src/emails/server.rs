//! The mail server, as the settings name it, and why it did not take an e-mail.

use std::error::Error as _;
use std::io::{self, ErrorKind};

use bellbird_connections::Url;
use lettre::message::Mailbox;
use lettre::transport::smtp::{AsyncSmtpTransportBuilder, Error};
use lettre::{AsyncSmtpTransport, Tokio1Executor};
use secrecy::{ExposeSecret as _, SecretString};

use crate::local::is_loopback_host;

/// Codes of a server that wants another login than that of the settings (RFC 4954).
const LOGIN_CODES: [&str; 5] = ["530", "534", "535", "538", "454"];

/// Why an e-mail was not sent. It names the server and has none of its text, which may name the
/// recipient.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The server rejects it for good, or the address cannot be one.
    #[error("{0}")]
    Rejected(String),
    /// The server cannot be used, or takes the e-mail later.
    #[error("{0}")]
    Unavailable(String),
}

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
        let mut url: Url = text.parse().ok()?;
        // A name with other letters is percent-encoded here, and no such name is looked up.
        let host = url
            .host_str()
            .filter(|host| !host.is_empty() && !host.contains('%'))?;
        if url.fragment().is_some() {
            return None;
        }
        match (url.scheme(), url.query()) {
            ("smtps", None) => {}
            ("smtp", None) if is_loopback_host(host) => {}
            ("smtp", None | Some("tls=required")) => url.set_query(Some("tls=required")),
            _ => return None,
        }
        let url = String::from(url);
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

    /// Host and port, without user and password: `mail.example.com:465`.
    #[must_use]
    pub fn server(&self) -> String {
        let Ok(url) = self.url.expose_secret().parse::<Url>() else {
            return String::new();
        };
        let port = match (url.scheme(), url.query()) {
            ("smtps", _) => 465,
            (_, None) => 25,
            _ => 587,
        };
        let host = url.host_str().unwrap_or_default();
        format!("{host}:{}", url.port().unwrap_or(port))
    }

    pub(super) fn transport(&self) -> Result<AsyncSmtpTransportBuilder, Error> {
        AsyncSmtpTransport::<Tokio1Executor>::from_url(self.url.expose_secret())
    }
}

/// Names the kind of the error and the server, and none of its words, which may hold the recipient.
pub(super) fn explain(error: &Error, server: &str) -> SendError {
    SendError::Unavailable(match error.status().map(|code| code.to_string()) {
        Some(code) if LOGIN_CODES.contains(&code.as_str()) => {
            format!("{server} rejects the user and password of console.smtp_url ({code})")
        }
        Some(code) if error.is_permanent() => {
            let text = format!("{server} rejects the recipient or the sender ({code})");
            return SendError::Rejected(text);
        }
        Some(code) => format!("{server} does not take it now ({code})"),
        None => {
            let causes = || std::iter::successors(error.source(), |&cause| cause.source());
            let io_error = causes().find_map(|cause| cause.downcast_ref::<io::Error>());
            let kind = io_error.map(io::Error::kind);
            // The error of the resolver has no kind of its own.
            let is_lookup = || causes().any(|cause| cause.to_string().contains("lookup address"));
            match kind {
                Some(ErrorKind::ConnectionRefused) => format!("connection refused by {server}"),
                Some(ErrorKind::TimedOut) => return timed_out(server),
                _ if is_lookup() => format!("the host of {server} is not known"),
                Some(ErrorKind::InvalidData) | None if error.is_tls() || kind.is_some() => format!(
                    "TLS failed at {server}: check its certificate, and that smtps:// is for a port that begins with \
                     TLS, such as 465, and smtp:// for STARTTLS, such as 587"
                ),
                _ => format!(
                    "{server} does not speak SMTP, or not with the TLS and login of console.smtp_url"
                ),
            }
        }
    })
}

pub(super) fn timed_out(server: &str) -> SendError {
    SendError::Unavailable(format!("{server} does not respond in time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_spoken_to_without_tls() {
        for (text, expected) in [
            (
                "smtps://me:pass@mail.example.com",
                Some("smtps://me:pass@mail.example.com"),
            ),
            (
                "smtp://me:pass@mail.example.com",
                Some("smtp://me:pass@mail.example.com?tls=required"),
            ),
            (
                "smtp://mail.example.com:587?tls=required",
                Some("smtp://mail.example.com:587?tls=required"),
            ),
            ("smtp://localhost:1025", Some("smtp://localhost:1025")),
            ("smtp://[::1]:1025", Some("smtp://[::1]:1025")),
            ("smtp://mail.example.com?tls=opportunistic", None),
            ("smtp://localhost@mail.example.com?tls=none", None),
            ("https://mail.example.com", None),
            ("smtps://bücher.example.com", None),
            ("smtps://mail%2Eexample.com", None),
            ("smtps://mail.example.com#25", None),
            ("smtp://", None),
            ("mail.example.com", None),
        ] {
            let url = EmailSettings::parse_url(text);
            assert_eq!(
                url.as_ref().map(|url| url.expose_secret()),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn server_is_named_without_password() {
        for (text, expected) in [
            ("smtps://me:p@mail.example.com", "mail.example.com:465"),
            ("smtp://me:p@mail.example.com", "mail.example.com:587"),
            ("smtp://me:p@mail.example.com:2525", "mail.example.com:2525"),
            ("smtp://localhost", "localhost:25"),
            ("smtps://[::1]", "[::1]:465"),
        ] {
            let from = EmailSettings::parse_from("Bellbird <bellbird@example.com>").unwrap();
            let settings = EmailSettings::new(EmailSettings::parse_url(text).unwrap(), from);
            assert_eq!(settings.server(), expected);
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
