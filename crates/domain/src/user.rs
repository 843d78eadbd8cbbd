//! Users, their plans and timezones, and the authenticated caller of a request.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::connection::string_enum;
use crate::{KeyId, UserId};

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
    pub created_at: Timestamp,
}

/// The authenticated caller of a request: an API key and its user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub key_id: KeyId,
    pub user_id: UserId,
    pub plan: Plan,
    pub timezone: TimeZone,
    /// Grows with every change to the user's plan, connections or accounts. Data cached at one revision stays valid
    /// while the revision does not change.
    pub revision: i64,
}

/// Finds an IANA zone in the bundled timezone database.
pub fn find_timezone(name: &str) -> Result<TimeZone, UnknownZone> {
    TimeZone::get(name).map_err(|_| UnknownZone)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an IANA timezone name such as Australia/Sydney")]
pub struct UnknownZone;
