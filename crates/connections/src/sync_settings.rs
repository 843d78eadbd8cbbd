//! What the operator sets of syncs.

use std::collections::BTreeMap;
use std::time::Duration;

/// When connections are synced, and how far back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncSettings {
    /// Whether instances sync on a schedule and after provider events.
    pub enabled: bool,
    pub interval: Duration,
    /// How far before the previous sync a sync starts to read.
    pub overlap: Duration,
    /// How far back the first sync reads.
    pub first: Duration,
    /// Whether the rows of the first sync become webhook events. Otherwise only their fingerprints
    /// are stored.
    pub notify_initial: bool,
    /// A run begins no further page or account after this time. The next run continues.
    pub run_time: Duration,
}

/// What the operator sets of the syncs of one provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderSyncs {
    /// In place of [`SyncSettings::interval`].
    pub interval: Option<Duration>,
    /// Syncs that an instance runs at once.
    pub at_once: usize,
}

impl Default for ProviderSyncs {
    fn default() -> Self {
        Self {
            interval: None,
            at_once: 4,
        }
    }
}

/// By the name of the provider.
pub type SyncsByProvider = BTreeMap<&'static str, ProviderSyncs>;

impl Default for SyncSettings {
    fn default() -> Self {
        const DAY: u64 = 86_400;
        Self {
            enabled: true,
            interval: Duration::from_secs(DAY / 4),
            overlap: Duration::from_secs(7 * DAY),
            first: Duration::from_secs(30 * DAY),
            notify_initial: true,
            run_time: Duration::from_secs(480),
        }
    }
}
