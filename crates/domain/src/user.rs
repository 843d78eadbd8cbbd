//! Users, their plans and timezones, and the authenticated caller of a request.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::connection::string_enum;
use crate::{ConnectionCategory, KeyId, UserId};

/// The timezone of a user who has not set one.
pub const DEFAULT_TIMEZONE: &str = "Australia/Sydney";

string_enum! {
    /// Decides which endpoints a user may call.
    Plan {
        /// No API access.
        Saver "saver",
        /// All endpoints except brokerage.
        Developer "developer",
        /// All endpoints.
        Professional "professional",
    }
}

impl Plan {
    /// Whether a user may read connections of this category.
    #[must_use]
    pub fn reads(self, category: ConnectionCategory) -> bool {
        match category {
            ConnectionCategory::Banking => self != Self::Saver,
            ConnectionCategory::Brokerage => self == Self::Professional,
        }
    }
}

/// Serialized as commands print it with `--json`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct User {
    pub id: UserId,
    /// Unique within the installation, ignoring case.
    pub email: String,
    pub plan: Plan,
    /// An IANA name. `None` means [`DEFAULT_TIMEZONE`].
    pub timezone: Option<String>,
    /// The operator's own name of the user, unique within the installation.
    pub reference: Option<String>,
    /// Whether the console shows this user the pages for operators.
    pub is_operator: bool,
    /// Whether the user may sign in to the console and gets e-mails: somebody proved that the
    /// address is the user's.
    pub console_sign_in: bool,
    pub created_at: Timestamp,
}

/// The authenticated caller of a request: an API key and its user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub key_id: KeyId,
    pub user_id: UserId,
    pub plan: Plan,
    pub timezone: TimeZone,
    /// Grows with every change to the user's plan, connections or accounts. Data cached at one
    /// revision stays valid while the revision does not change.
    pub revision: i64,
}

/// Checks the form of an e-mail address; whether it exists is unknown.
pub fn parse_email(text: &str) -> Result<String, InvalidEmail> {
    let text = text.trim();
    let parts = text
        .split_once('@')
        .filter(|(name, host)| !name.is_empty() && !host.is_empty());
    let single = parts.is_some_and(|(_, host)| !host.contains('@'));
    // Reject characters that a shell or a page could interpret, and invisible or bidirectional
    // ones.
    let clean = !text.chars().any(|c| {
        c.is_whitespace() || c.is_control() || "\"'`<>()[],;:\\$&|".contains(c) || is_invisible(c)
    });
    if single && clean && text.len() <= 254 {
        Ok(text.to_owned())
    } else {
        Err(InvalidEmail)
    }
}

/// Whether a character is of no width, or changes the direction of the text.
#[must_use]
pub fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Finds an IANA zone in the bundled timezone database.
pub fn find_timezone(name: &str) -> Result<TimeZone, UnknownZone> {
    TimeZone::get(name).map_err(|_| UnknownZone)
}

/// The names of places in the bundled timezone database, and UTC, in the order of the alphabet.
pub fn timezone_names() -> &'static [&'static str] {
    const AREAS: [&str; 10] = [
        "Africa/",
        "America/",
        "Antarctica/",
        "Arctic/",
        "Asia/",
        "Atlantic/",
        "Australia/",
        "Europe/",
        "Indian/",
        "Pacific/",
    ];
    static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| {
        let all = jiff::tz::db().available();
        let is_place =
            |name: &str| name == "UTC" || AREAS.iter().any(|area| name.starts_with(area));
        let places = all.filter(|name| is_place(name.as_str()));
        let mut names: Vec<&str> = places
            .map(|name| &*name.as_str().to_owned().leak())
            .collect();
        names.sort_unstable();
        names
    });
    &NAMES
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an e-mail address such as me@example.com")]
pub struct InvalidEmail;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an IANA timezone name such as Australia/Sydney")]
pub struct UnknownZone;
