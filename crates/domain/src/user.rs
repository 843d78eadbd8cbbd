//! Users and plans.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::connection::named;
use crate::{KeyId, UserId};

/// The timezone of a user who has set none.
pub const DEFAULT_TIMEZONE: &str = "Australia/Sydney";

named! {
    /// What a user may call.
    Plan {
        /// No API access.
        Saver "saver",
        /// Everything but the brokerage endpoints.
        Developer "developer",
        /// Everything.
        Professional "professional",
    }
}

/// A person of this installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Ours.
    pub id: UserId,
    /// Unique within the installation, compared without case.
    pub email: String,
    /// What they may call.
    pub plan: Plan,
    /// IANA name, or none set.
    pub timezone: Option<String>,
    /// When they were added.
    pub created_at: Timestamp,
}

/// Who is calling: what the database says of a valid key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The key used.
    pub key_id: KeyId,
    /// Its owner.
    pub user_id: UserId,
    /// The owner's plan at this moment.
    pub plan: Plan,
    /// The owner's zone.
    pub timezone: TimeZone,
    /// Grows with every change to the owner's plan, connections or accounts: what was learned at one revision is true
    /// while the revision stays.
    pub revision: i64,
}

/// Finds an IANA zone by its name.
///
/// # Errors
/// [`UnknownZone`] when the bundled database has no such zone.
pub fn find_timezone(name: &str) -> Result<TimeZone, UnknownZone> {
    TimeZone::get(name).map_err(|_| UnknownZone)
}

/// Not the name of an IANA timezone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an IANA timezone name such as Australia/Sydney")]
pub struct UnknownZone;
