//! Reads the timezone of a user.

use bellbird_domain::user::{DEFAULT_TIMEZONE, find_timezone};
use jiff::tz::TimeZone;

use crate::error::{Result, StorageError};

/// Returns the user's timezone, or the default one. An unknown name is corrupt data: a fallback
/// would shift days.
pub(crate) fn parse_timezone(name: Option<&str>) -> Result<TimeZone> {
    find_timezone(name.unwrap_or(DEFAULT_TIMEZONE)).map_err(|_| StorageError::Corrupt("a timezone"))
}
