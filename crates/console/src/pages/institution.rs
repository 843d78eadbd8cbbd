//! An institution on a page: its name, its logo with a letter in its place, and its accounts.

use std::collections::BTreeSet;

use bellbird_connections::{LinkedConnection, Url};
use bellbird_domain::{Account, AccountId, Connection};

use super::frame::Frame;
use super::names::{institution_name, number_of, sanitized};

/// Longer than any address of a logo.
const URL_BYTES_MAX: usize = 1024;
/// Origins in one policy.
const ORIGINS_MAX: usize = 16;

pub(crate) struct Institution {
    pub(crate) name: String,
    /// Shown unless the logo loads.
    pub(crate) letter: String,
    pub(crate) logo: Option<Logo>,
    /// Whether it is simulated.
    pub(crate) is_sandbox: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Logo {
    pub(crate) url: String,
    /// Scheme, host and port, for the content security policy. None: those of the console.
    origin: Option<String>,
}

/// The servers, other than the console, from which a page may load images. An extension of its
/// response.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ImageOrigins(pub(crate) BTreeSet<String>);

impl ImageOrigins {
    pub(crate) fn of<'a>(institutions: impl Iterator<Item = &'a Institution>) -> Self {
        let logos = institutions.filter_map(|institution| institution.logo.as_ref());
        let origins: BTreeSet<String> = logos.filter_map(|logo| logo.origin.clone()).collect();
        Self(origins.into_iter().take(ORIGINS_MAX).collect())
    }
}

impl Institution {
    pub(crate) fn of(connection: &Connection, frame: &Frame) -> Self {
        let name = institution_name(connection);
        let letter = name
            .chars()
            .find(|c| c.is_alphanumeric())
            .map(|c| c.to_uppercase().to_string());
        let is_sandbox = frame.providers.is_sandbox(&connection.provider);
        let logo = connection.institution_logo.as_deref().and_then(|url| {
            if is_sandbox && frame.serves_sandbox {
                sandbox_logo(url, frame, &connection.provider)
            } else {
                logo(url, frame.is_on_loopback)
            }
        });
        Self {
            name,
            letter: letter.unwrap_or_default(),
            logo,
            is_sandbox,
        }
    }
}

/// The name and masked number of an account.
pub(crate) struct AccountRow {
    pub(super) id: AccountId,
    pub(crate) name: String,
    pub(crate) number: Option<String>,
    /// The page of its rows. None: the page shows no rows to this browser.
    pub(crate) href: Option<String>,
}

impl AccountRow {
    pub(super) fn text(&self) -> String {
        match &self.number {
            Some(number) => format!("{} {number}", self.name),
            None => self.name.clone(),
        }
    }
}

pub(crate) fn account_rows(linked: &LinkedConnection) -> Vec<AccountRow> {
    let row = |account: &Account| AccountRow {
        id: account.id,
        href: None,
        name: sanitized(&account.name),
        number: number_of(account).map(str::to_owned),
    };
    linked.accounts.iter().map(row).collect()
}

/// A simulated provider is in the process of the console, at a port that changes with each start,
/// and that no other machine reaches, so its logos are below the console. One elsewhere is made up.
fn sandbox_logo(url: &str, frame: &Frame, provider: &str) -> Option<Logo> {
    let url: Url = logo(url, true)?.url.parse().ok()?;
    (url.scheme() == "http").then(|| Logo {
        url: format!("{}/sandbox/{provider}{}", frame.root, url.path()),
        origin: None,
    })
}

/// Accepts https, and on a console on this machine http from this machine: the sandbox. The host
/// has no character with a meaning in a content security policy.
fn logo(url: &str, is_on_loopback: bool) -> Option<Logo> {
    if url.len() > URL_BYTES_MAX {
        return None;
    }
    let parsed: Url = url.parse().ok()?;
    let host = parsed.host_str()?;
    let is_allowed = match parsed.scheme() {
        "https" => true,
        "http" => is_on_loopback && matches!(host, "127.0.0.1" | "localhost"),
        _ => false,
    };
    let is_plain = host
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-');
    let has_user = !parsed.username().is_empty() || parsed.password().is_some();
    let origin = parsed.origin().ascii_serialization();
    (is_allowed && is_plain && !has_user).then(|| Logo {
        url: parsed.into(),
        origin: Some(origin),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logos_come_from_plain_https_servers() {
        let origin = |url| logo(url, false).and_then(|logo| logo.origin);
        assert_eq!(
            origin("https://cdn.example/a.png?x=1").as_deref(),
            Some("https://cdn.example")
        );
        assert_eq!(
            origin("https://cdn.example:8443/a.png").as_deref(),
            Some("https://cdn.example:8443")
        );
        for url in [
            "http://cdn.example/a.png",
            "http://127.0.0.1:8090/a.png",
            "//cdn.example/a.png",
            "data:image/png;base64,AAAA",
            "javascript:alert(1)",
            "https://user@cdn.example/a.png",
            "https://*/a.png",
            "https://cdn.example;script-src%20*/a.png",
            "https://a;b/",
            "https://[::1]/a.png",
            "",
        ] {
            assert_eq!(origin(url), None, "{url}");
        }
        assert_eq!(
            origin(&format!("https://cdn.example/{}", "a".repeat(1024))),
            None
        );
        assert!(logo("http://127.0.0.1:8090/a.png", true).is_some());
        assert_eq!(logo("http://cdn.example/a.png", true), None);
    }
}
