//! What a sync does that the schedule or a provider event has started.
//!
//! Rows are read for somebody: an endpoint, or a client that follows changes. Without one, they are
//! read every third day, so that whoever comes later gets few old rows at once. The connection is
//! refreshed once a day, because its user is to learn of its status and of the end of its consent.
//! All other runs make no provider call.

use bellbird_domain::TimestampExt as _;
use bellbird_providers::Cause;
use bellbird_storage::{ClaimedJob, Followers};
use jiff::{SignedDuration, Timestamp};

use super::{Syncs, times};
use crate::ConnectionsError;
use crate::refresh::Refreshes;

/// How long a client counts as one that follows.
const FOLLOWED_FOR: SignedDuration = SignedDuration::from_hours(30 * 24);
/// After linking or a renewal, the provider may still be loading rows.
const NEW_FOR: SignedDuration = SignedDuration::from_hours(24);
/// An hour less than three days and a day, because a run may begin a little earlier after its time
/// than the one before.
const ROWS_EVERY: SignedDuration = SignedDuration::from_hours(3 * 24 - 1);
const REFRESH_EVERY: SignedDuration = SignedDuration::from_hours(23);

#[derive(Debug, PartialEq, Eq)]
enum Scope {
    Rows,
    Refresh,
    Nothing,
}

/// `is_retry`: the last run failed, and somebody may have asked for it.
fn scope(now: Timestamp, followers: &Followers, is_retry: bool) -> Scope {
    let is_within = |at: Option<Timestamp>, time| at.is_some_and(|at| now < at.plus(time));
    let is_followed = followers.has_endpoint
        || is_within(followers.last_changes_poll_at, FOLLOWED_FOR)
        || is_within(Some(followers.rows_backfill_began_at), NEW_FOR);
    if is_followed
        || is_retry
        || followers.has_unread
        || !is_within(followers.synced_at, ROWS_EVERY)
    {
        Scope::Rows
    } else if is_within(followers.refreshed_at, REFRESH_EVERY) {
        Scope::Nothing
    } else {
        Scope::Refresh
    }
}

impl Syncs<'_> {
    pub(super) async fn run_scheduled(self, claim: &ClaimedJob) -> Result<(), ConnectionsError> {
        let (user, id) = (claim.user_id(), claim.subject_id());
        let found = self.0.storage.syncs().find_followers(user, id).await?;
        let found = found.ok_or(ConnectionsError::NotFound)?;
        let cause = if claim.is_requested {
            Cause::RequestedJob(user)
        } else {
            Cause::Schedule
        };
        let scope = scope(self.0.clock.now(), &found, claim.attempts > 0);
        if scope == Scope::Rows {
            return self.sync_once(claim, cause).await.map(|_| ());
        }
        if scope == Scope::Refresh {
            Refreshes(self.0).run_after_current(user, id, cause).await?;
        }
        let settings = self.0.sync_settings_of(&claim.provider);
        let next = settings.next_sync_at(self.0.clock.now(), times::phase_of(id));
        self.0.finish_job(claim, Some(next)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn ago(hours: i64) -> Timestamp {
        NOW.minus(SignedDuration::from_hours(hours))
    }

    /// Linked a year ago, synced two days ago and refreshed two hours ago.
    fn unfollowed() -> Followers {
        Followers {
            has_endpoint: false,
            last_changes_poll_at: None,
            rows_backfill_began_at: ago(365 * 24),
            synced_at: Some(ago(48)),
            has_unread: false,
            refreshed_at: Some(ago(2)),
        }
    }

    #[test]
    fn rows_are_read_for_somebody_or_every_third_day() {
        assert_eq!(scope(NOW, &unfollowed(), false), Scope::Nothing);
        let reasons: [fn(&mut Followers); 6] = [
            |followers| followers.has_endpoint = true,
            |followers| followers.last_changes_poll_at = Some(ago(29 * 24)),
            |followers| followers.rows_backfill_began_at = ago(23),
            |followers| followers.has_unread = true,
            |followers| followers.synced_at = None,
            |followers| followers.synced_at = Some(ago(72)),
        ];
        for reason in reasons {
            let mut followers = unfollowed();
            reason(&mut followers);
            assert_eq!(scope(NOW, &followers, false), Scope::Rows, "{followers:?}");
        }
        let repeated = scope(NOW, &unfollowed(), true);
        assert_eq!(repeated, Scope::Rows, "what failed is repeated");
        let followed_before = Followers {
            last_changes_poll_at: Some(ago(31 * 24)),
            ..unfollowed()
        };
        assert_eq!(scope(NOW, &followed_before, false), Scope::Nothing);
    }

    #[test]
    fn unfollowed_connection_is_refreshed_once_a_day() {
        for refreshed_at in [None, Some(ago(24))] {
            let followers = Followers {
                refreshed_at,
                ..unfollowed()
            };
            assert_eq!(scope(NOW, &followers, false), Scope::Refresh);
        }
    }
}
