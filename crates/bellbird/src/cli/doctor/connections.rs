//! Checks of the doctor for connections that users must reconnect, and consents that they should
//! renew.

use bellbird_domain::ConnectionStatus;
use bellbird_management::health;
use bellbird_storage::{BrokenConnection, EndingConsent, Storage, StorageError};
use jiff::Timestamp;

use super::super::output;
use super::Checks;

const NAME: &str = "connections";
/// Broken connections, and ending consents, that are listed individually.
const SHOWN_MAX: u32 = 5;

pub(super) async fn check(checks: &mut Checks, storage: &Storage) {
    let checked = check_statuses(checks, storage).await;
    checks.value(NAME, checked);
    let checked = check_ending(checks, storage).await;
    checks.value(NAME, checked);
}

async fn check_ending(checks: &mut Checks, storage: &Storage) -> Result<(), StorageError> {
    let now = Timestamp::now();
    let ending = storage.connections().count_ending(now).await?;
    let count: u64 = ending.values().sum();
    for EndingConsent {
        id,
        user_email,
        institution_name,
        expires_at,
    } in storage.connections().list_ending(now, SHOWN_MAX).await?
    {
        let detail = format!(
            "the consent of {user_email} for {institution_name} ends at {}; to renew it, send the user the link of \
             `bellbird connection link --reconnect {id}`",
            output::format_instant(expires_at)
        );
        checks.note(NAME, detail);
    }
    if count > u64::from(SHOWN_MAX) {
        let more = output::count(
            count - u64::from(SHOWN_MAX),
            "more consent ends",
            "more consents end",
        );
        checks.note(
            NAME,
            format!("{more} within 14 days; see `bellbird connection list`"),
        );
    }
    Ok(())
}

async fn check_statuses(checks: &mut Checks, storage: &Storage) -> Result<(), StorageError> {
    let counts = storage.connections().count().await?;
    let active = counts
        .iter()
        .filter(|counted| counted.status == ConnectionStatus::Active);
    let active: u64 = active.map(|counted| counted.count).sum();
    let broken = health::to_reconnect(&counts);
    for BrokenConnection {
        id,
        user_email,
        institution_name,
        status,
        since,
        ..
    } in storage.connections().list_broken(SHOWN_MAX).await?
    {
        let since = output::format_instant(since);
        let detail = format!(
            "{institution_name} of {user_email} is {status} since {since}; to reconnect it, send the user the link of \
             `bellbird connection link --reconnect {id}`"
        );
        checks.note(NAME, detail);
    }
    if broken > u64::from(SHOWN_MAX) {
        let more = broken - u64::from(SHOWN_MAX);
        checks.note(
            NAME,
            format!("{more} more must be reconnected; see `bellbird connection list`"),
        );
    }
    checks.ok(NAME, format!("{active} active"));
    Ok(())
}
