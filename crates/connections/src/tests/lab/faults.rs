//! The faults that are planted. Those of worlds replace a part of the statements that have it;
//! those of histories change what a sync stores, or what a client or the service does.

use std::collections::{BTreeMap, HashSet};

use bellbird_domain::{Digest, Fingerprints, RowKey};
use parking_lot::Mutex;

/// What finds a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Experiment {
    History,
    World,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// A row is gone as soon as one read lacks it.
    EarlyRemoval,
    /// A client that loses a page has its cursor all the same.
    LostPage,
    /// A renewed row gets another key.
    ChangedKey,
    /// Two rows exchange their keys.
    SwappedKeys,
    /// A cursor is valid for another connection.
    ForeignCursor,
    /// A change version of a lost history is accepted.
    Restore,
    /// A change version of a lost history is accepted if this one has it too.
    SameMark,
    /// A row that the provider leaves out for a moment is forgotten.
    NothingPending,
    /// A sync finishes without the fence.
    UnfencedSync,
    UnfencedRenewal,
    /// Fingerprints are stored without the fence, but their events are not.
    UnfencedFingerprints,
    /// A job is claimed although another process runs it.
    ClaimOfRunningJob,
    /// The results of attempts are stored without the fence.
    UnfencedResults,
    /// All chunks of a run are due at once.
    ChunksAtOnce,
    /// A sync begins to read where the one before it ended.
    NoOverlap,
    /// Events go to the endpoints of all users.
    ForeignEvents,
    /// The jobs of killed processes stay theirs.
    LeaseWithoutEnd,
    /// A delivery whose attempt failed counts as delivered.
    FailureCountsAsSuccess,
    /// The rows of a sync are stored as known, but not its events.
    ForgottenEvents,
    /// A refresh stores the status although another one has taken its place, and whatever the
    /// status is.
    UnfencedStatus,
    /// A removal leaves the secrets of the connection.
    SecretsOutliveConnection,
    /// The end of an attempt undoes a redelivery that was requested meanwhile.
    UndoneRedelivery,
    /// What failed while an endpoint was disabled is never sent.
    NoRecovery,
    /// A later attempt knows no fingerprints, nor when the one before it was. So it takes a row
    /// that both lack for gone.
    MissingRowIsGone,
}

pub(super) const FAULTS: &[(Fault, Experiment)] = &[
    (Fault::EarlyRemoval, Experiment::History),
    (Fault::LostPage, Experiment::History),
    (Fault::ChangedKey, Experiment::History),
    (Fault::SwappedKeys, Experiment::History),
    (Fault::ForeignCursor, Experiment::History),
    (Fault::Restore, Experiment::History),
    (Fault::SameMark, Experiment::History),
    (Fault::NothingPending, Experiment::History),
    (Fault::UnfencedSync, Experiment::World),
    (Fault::UnfencedRenewal, Experiment::World),
    (Fault::UnfencedFingerprints, Experiment::World),
    (Fault::ClaimOfRunningJob, Experiment::World),
    (Fault::UnfencedResults, Experiment::World),
    (Fault::ChunksAtOnce, Experiment::World),
    (Fault::NoOverlap, Experiment::World),
    (Fault::ForeignEvents, Experiment::World),
    (Fault::LeaseWithoutEnd, Experiment::World),
    (Fault::FailureCountsAsSuccess, Experiment::World),
    (Fault::ForgottenEvents, Experiment::World),
    (Fault::UnfencedStatus, Experiment::World),
    (Fault::SecretsOutliveConnection, Experiment::World),
    (Fault::UndoneRedelivery, Experiment::World),
    (Fault::NoRecovery, Experiment::World),
    (Fault::MissingRowIsGone, Experiment::World),
];

const OF_JOB: &str = "subject = $3 AND fence = $4";
const OF_ANY_FENCE: &str = "subject = $3 AND $4 IS NOT NULL";
const OF_SYNC: &str = "AND fence = :fence)";
const OF_ENDPOINT: &str = "fence = :fence AND lease_until IS NOT NULL";

/// A statement that has the first text gets the third in place of the second.
type Replacement = (&'static str, &'static str, &'static str);

impl Fault {
    /// The seed that found it last, if that is a late one: the search begins there.
    pub(super) fn first_seed(self) -> u64 {
        match self {
            Self::SameMark => 11_994,
            Self::UnfencedResults => 168,
            Self::UndoneRedelivery => 175,
            _ => 0,
        }
    }

    /// Whether only deliveries have it.
    pub(super) fn is_of_deliveries(self) -> bool {
        self == Self::MissingRowIsGone
    }

    fn replacements(self) -> &'static [Replacement] {
        match self {
            Self::EarlyRemoval
            | Self::LostPage
            | Self::ChangedKey
            | Self::SwappedKeys
            | Self::ForeignCursor
            | Self::Restore
            | Self::SameMark
            | Self::NothingPending => &[],
            Self::UnfencedSync => &[
                ("", OF_SYNC, "AND :fence IS NOT NULL)"),
                ("SELECT attempts FROM jobs", OF_JOB, OF_ANY_FENCE),
                ("SET attempts = 0", OF_JOB, OF_ANY_FENCE),
            ],
            Self::UnfencedRenewal => &[(
                "UPDATE jobs SET lease_until = $5 WHERE",
                OF_JOB,
                OF_ANY_FENCE,
            )],
            Self::UnfencedFingerprints => &[(
                "INSERT INTO fingerprints",
                OF_SYNC,
                "AND :fence IS NOT NULL)",
            )],
            Self::ClaimOfRunningJob => &[(
                "FROM jobs",
                "COALESCE(lease_until, run_at) <= $3",
                "run_at <= $3",
            )],
            Self::UnfencedResults => &[
                (
                    "failing_since = CASE WHEN CAST(:delivered",
                    OF_ENDPOINT,
                    ":fence IS NOT NULL",
                ),
                (
                    "FROM webhook_deliveries WHERE",
                    OF_ENDPOINT,
                    ":fence IS NOT NULL",
                ),
                (
                    "UPDATE webhook_deliveries SET state = :state",
                    OF_ENDPOINT,
                    ":fence IS NOT NULL",
                ),
                (
                    "UPDATE webhook_deliveries SET state = 'pending'",
                    OF_ENDPOINT,
                    ":fence IS NOT NULL",
                ),
            ],
            Self::ChunksAtOnce => &[
                (
                    "INSERT INTO webhook_deliveries",
                    "chunk, created_at, state, ended_at",
                    "chunk, next_attempt_at, created_at, state, ended_at",
                ),
                (
                    "chunk, next_attempt_at, created_at, state, ended_at",
                    "e.created_at, CASE WHEN d.state = 'pending' THEN 'waiting'",
                    "d.next_attempt_at, e.created_at, CASE WHEN d.state = 'pending' THEN 'pending'",
                ),
            ],
            Self::NoOverlap => &[(
                "UPDATE syncs",
                "covered_from = :covered_from",
                "covered_from = COALESCE(:synced_at, :covered_from)",
            )],
            Self::ForeignEvents => &[
                (
                    "INSERT INTO webhook_deliveries",
                    "SELECT e.user_id, p.id",
                    "SELECT p.user_id, p.id",
                ),
                (
                    "INSERT INTO webhook_deliveries",
                    "SELECT p.id, p.status",
                    "SELECT p.user_id, p.id, p.status",
                ),
                (
                    "INSERT INTO webhook_deliveries",
                    "p.user_id IN (:user, '00000000-0000-0000-0000-000000000000')",
                    "(p.user_id = :user OR 1 = 1)",
                ),
                (
                    "INSERT INTO webhook_deliveries",
                    "q.user_id = :user AND q.endpoint_id",
                    "q.endpoint_id",
                ),
                (
                    "d.next_attempt_at, d.is_requested",
                    "e.user_id = $1 AND e.id",
                    "e.id",
                ),
            ],
            Self::LeaseWithoutEnd => &[(
                "FROM jobs",
                "COALESCE(lease_until, run_at) <= $3",
                "CASE WHEN lease_until IS NULL THEN run_at END <= $3",
            )],
            Self::FailureCountsAsSuccess => &[(
                "UPDATE webhook_deliveries SET state = :state",
                "next_attempt_at = :next, ended_at = :ended",
                "next_attempt_at = NULLIF(:next, :next), ended_at = COALESCE(:ended, 1)",
            )],
            Self::ForgottenEvents => &[(
                "INSERT INTO webhook_events",
                "AND p.api_version >= ",
                "AND p.api_version < ",
            )],
            Self::UnfencedStatus => &[
                ("SELECT attempts FROM jobs", OF_JOB, OF_ANY_FENCE),
                (
                    "UPDATE connections SET status = $4",
                    "AND status = $3",
                    "AND $3 IS NOT NULL",
                ),
            ],
            Self::SecretsOutliveConnection => {
                &[("DELETE FROM secrets", "subject = $3", "subject = $3 || ' '")]
            }
            Self::UndoneRedelivery => &[(
                "webhook_deliveries",
                "next_attempt_at = :due_at",
                "next_attempt_at <= :due_at",
            )],
            Self::MissingRowIsGone => &[
                (
                    "SELECT entries, change_versions",
                    "= $2",
                    "= $2 AND user_id <> $1",
                ),
                (
                    "d.next_attempt_at, d.is_requested",
                    "d.last_attempt_at",
                    "MIN(d.last_attempt_at, 0)",
                ),
            ],
            Self::NoRecovery => &[(
                "SET state = 'waiting', attempts = 0",
                "state = 'failed'",
                "state = 'pending'",
            )],
        }
    }

    /// The statement with the fault. Each text is made once.
    pub(super) fn statement(self, text: &'static str) -> &'static str {
        static MADE: Mutex<BTreeMap<(Fault, usize), &'static str>> = Mutex::new(BTreeMap::new());
        let make = || {
            let replace = |made: String, (in_text, from, to): &Replacement| {
                if made.contains(in_text) {
                    made.replace(from, to)
                } else {
                    made
                }
            };
            let made = self.replacements().iter().fold(text.to_owned(), replace);
            if made == text { text } else { &*made.leak() }
        };
        MADE.lock()
            .entry((self, text.as_ptr() as usize))
            .or_insert_with(make)
    }
}

/// What a sync stores with the fault.
pub(super) fn spoil(fault: Fault, known: &mut Fingerprints, before: &Fingerprints) {
    let change_version = known.change_versions.last().copied().unwrap_or(0) + 1;
    match fault {
        Fault::EarlyRemoval => {
            for row in known
                .rows
                .iter_mut()
                .filter(|row| row.misses > 0 && !row.is_gone)
            {
                (row.is_gone, row.changed_version) = (true, change_version);
                if known.change_versions.last() != Some(&change_version) {
                    known.change_versions.push(change_version);
                }
            }
        }
        Fault::ChangedKey => {
            let ids: HashSet<Digest> = before.rows.iter().map(|row| row.digests.row).collect();
            let is_renewed = |key: &RowKey| before.rows.iter().any(|row| row.key == *key);
            for row in known
                .rows
                .iter_mut()
                .filter(|row| !ids.contains(&row.digests.row) && is_renewed(&row.key))
            {
                row.key.0[0] ^= 1;
            }
        }
        Fault::SwappedKeys => {
            if let [one, other, ..] = known.rows.as_mut_slice() {
                std::mem::swap(&mut one.key, &mut other.key);
            }
        }
        _ => {}
    }
}
