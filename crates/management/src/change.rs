//! What operations ask of the change in which they write.

use bellbird_domain::UserId;
use bellbird_storage::ManagementChange;
use jiff::Timestamp;

use crate::refusal::Refusal;

/// What the audit says of an update to the values that are stored already.
pub(crate) const NOTHING_CHANGED: &str = "nothing new";

/// Fails unless who makes the change may change what this user has.
pub(crate) fn require_owner(
    change: &ManagementChange<'_>,
    owner: UserId,
    noun: &'static str,
) -> Result<(), Refusal> {
    match change.owner() {
        Some(user) if user != owner => Err(Refusal::NotFound(noun)),
        _ => Ok(()),
    }
}

/// Fails if a new key would have expired already.
pub(crate) fn require_future(
    change: &ManagementChange<'_>,
    expires_at: Option<Timestamp>,
) -> Result<(), Refusal> {
    match expires_at {
        Some(at) if at <= change.now() => Err(Refusal::Invalid {
            field: "expiresAt",
            fault: "Must be in the future",
        }),
        _ => Ok(()),
    }
}
