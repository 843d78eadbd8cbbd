//! Reads the rows of a sync's date range from the provider, and keeps the JSON of new and changed
//! rows for delivery.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::time::Duration;

use bellbird_domain::{
    Account, AccountId, AccountTag, ContentDigest, Digest, EventType, Fingerprint, Fingerprints,
    RemovedRow, RowDigests, RowKey, UtcDay,
};
use bellbird_providers::pages::{List, Pages, Trades, Transactions};
use bellbird_providers::{CallContext, Error, Kind, Provider, UnreadableRow};
use bellbird_storage::UnreadRange;
use bellbird_webhooks::event::buffer::ChangedRow;
use bellbird_webhooks::event::digest::RowHasher;
use bellbird_webhooks::event::payload::{RowJson, RowWriter};
use bellbird_webhooks::event::row_kind::EventRowKind;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use secrecy::SecretString;
use tokio::time::Instant;

use super::changes::{Changes, Coverage, DuplicateIds, Reading, detect_changes};
use super::following::EQUAL_IDS_MAX;
use super::{SyncSettings, start_of_day};

/// A run stops after this many rows, many times a busy month, and the next run continues. It is
/// below the rows of [`bellbird_providers::pages::PAGES_MAX`] pages of any provider.
const RUN_ROWS_MAX: usize = 150_000;
/// Upper bound for the rows of one run, where it cannot stop in between: rows of one instant, or
/// trades of one account. More rows mean that the provider is faulty.
const ROWS_MAX: usize = 500_000;
/// Upper bound for the fingerprints of a connection: rows that the date range left behind stay for
/// some days.
const FINGERPRINTS_MAX: usize = 2 * ROWS_MAX;
/// Maximum bytes of JSON to keep of new and changed rows until delivery: more than 50,000 rows.
/// Beyond that, delivery reads the rows again, up to 5,000 at a time.
const JSON_BYTES_MAX: usize = 32 * 1024 * 1024;

const TOO_MANY_ROWS: Error = Error::Malformed("more rows than one sync may read");

/// What a sync reads, and how.
pub(super) struct Pull<'a> {
    pub(super) provider: &'a dyn Provider,
    pub(super) context: &'a CallContext,
    pub(super) credentials: &'a SecretString,
    pub(super) accounts: &'a [Account],
    pub(super) zone: &'a TimeZone,
    pub(super) hasher: &'a RowHasher,
    pub(super) known: &'a Fingerprints,
    /// Rows of which the provider said that they are gone.
    pub(super) removal_hints: &'a [Digest],
    pub(super) now: Timestamp,
    pub(super) date_range: (Timestamp, Timestamp),
    /// Fingerprints that were last seen before this time are deleted.
    pub(super) prune_before: Timestamp,
    /// If set, only the accounts after this one are read, by id.
    pub(super) after_account: Option<AccountId>,
    /// The run stops at the first row, or account of a broker, that begins after this instant.
    pub(super) stop_at: Instant,
    /// Whether an earlier run of the sync has read later dates.
    pub(super) continues: bool,
    /// Whether new and changed rows become webhook events.
    pub(super) notify: bool,
}

/// The result of [`Pull::run`].
pub(crate) struct Pulled {
    pub(super) event_type: EventType,
    pub(super) is_empty: bool,
    pub(super) new_count: usize,
    pub(super) updated_count: usize,
    /// Rows to report; empty unless [`Pull::notify`].
    pub(super) new: Vec<ChangedRow>,
    /// As `new`.
    pub(super) updated: Vec<ChangedRow>,
    /// Rows that are gone; empty unless [`Pull::notify`].
    pub(super) gone: Vec<RemovedRow>,
    /// All fingerprints of the connection, if they have to be written.
    pub(super) fingerprints: Option<Fingerprints>,
    /// Hints of removed rows for a later run.
    pub(super) removal_hints: Vec<Digest>,
    /// The change version of the last run that found changes.
    pub(super) change_version: u32,
    /// The day of the newest row that is not in the future. It is stored, so it is not the time of
    /// a row.
    pub(super) newest_row_at: Option<Timestamp>,
    /// The start of what was read: that of the date range, or of the oldest row's day if the run
    /// stopped before.
    pub(super) read_from: Timestamp,
    /// What is left to read.
    pub(super) unread: Option<UnreadRange>,
    /// Set if a limit, or a store that is down, stopped the run: the shortest time until the next.
    pub(super) wait: Option<Duration>,
    pub(super) unreadable: Vec<UnreadableRow>,
}

/// The rows that a run has read, and where it stopped.
struct Read {
    event_type: EventType,
    duplicate_ids: DuplicateIds,
    rows: Vec<Row>,
    unread: Option<UnreadRange>,
    wait: Option<Duration>,
    /// The first row that was not read, if the run stopped between rows.
    stopped_at: Option<Timestamp>,
    /// The accounts that were read.
    accounts: HashSet<AccountTag>,
}

/// A row that was read. Its JSON is kept only if the row may have to be delivered.
struct Row {
    seen: RowDigests,
    instant: Timestamp,
    account: AccountId,
    json: Option<RowJson>,
}

impl Pull<'_> {
    /// Reads the date range, or as much of it as there is time for. At least one row or account is
    /// read, so that runs come to an end.
    pub(super) async fn run(&self) -> Result<Pulled, Error> {
        let read = match self.provider.kind() {
            Kind::Banking(banking) => {
                let dates = Transactions::sync_dates(self.date_range, self.zone);
                self.read::<Transactions>(banking, &dates).await?
            }
            Kind::Brokerage(brokerage) => {
                let dates = Trades::sync_dates(self.date_range, self.zone);
                self.read::<Trades>(brokerage, &dates).await?
            }
        };
        let Read {
            event_type,
            duplicate_ids,
            mut rows,
            unread,
            wait,
            stopped_at,
            accounts,
        } = read;
        let unreadable = self.unreadable(event_type, stopped_at);
        let seen: Vec<RowDigests> = rows.iter().map(|row| row.seen).collect();
        let coverage = self.coverage(stopped_at, accounts, &unreadable);
        let reading = Reading {
            hasher: self.hasher,
            duplicate_ids,
            now: self.now,
            prune_before: self.prune_before,
            coverage: &coverage,
            removal_hints: &self.removal_hints.iter().copied().collect(),
        };
        let Changes {
            new,
            updated,
            gone,
            mut fingerprints,
            removal_hints,
        } = detect_changes(self.known, &seen, &reading);
        if fingerprints
            .as_ref()
            .is_some_and(|all| all.rows.len() > FINGERPRINTS_MAX)
        {
            return Err(TOO_MANY_ROWS);
        }
        let change_version = fingerprints.as_ref().unwrap_or(self.known).change_version();
        if let Some(fingerprints) = &mut fingerprints {
            self.hasher.mask_days(&mut fingerprints.rows);
        }
        let (new_count, updated_count) = (new.len(), updated.len());
        let times = || rows.iter().map(|row| row.instant);
        let day_of = |at| start_of_day(at).max(self.date_range.0);
        let newest_row_at = times().filter(|at| *at <= self.now).max().map(day_of);
        let read_from = stopped_at
            .and(times().min())
            .map_or(self.date_range.0, day_of);
        let mut changed_rows = |changed: Vec<(usize, RowKey)>| -> Vec<ChangedRow> {
            if !self.notify {
                return Vec::new();
            }
            changed
                .into_iter()
                .map(|(index, key)| {
                    let Row {
                        instant,
                        account,
                        json,
                        ..
                    } = &mut rows[index];
                    ChangedRow {
                        key,
                        instant: *instant,
                        account: *account,
                        json: json.take(),
                    }
                })
                .collect()
        };
        Ok(Pulled {
            event_type,
            is_empty: seen.is_empty(),
            new_count,
            updated_count,
            new: changed_rows(new),
            updated: changed_rows(updated),
            gone: gone
                .iter()
                .filter(|_| self.notify)
                .filter_map(|row| self.removed_row(row))
                .collect(),
            fingerprints,
            removal_hints,
            change_version,
            newest_row_at,
            read_from,
            unread,
            wait,
            unreadable,
        })
    }

    /// Reads list by list. A run stops anywhere in the list of transactions, but only between two
    /// accounts of a broker: equal trades are distinct rows, so none may be read twice. If a later
    /// account meets a limit, the rows of those before it are kept.
    async fn read<'p, K: EventRowKind>(
        &'p self,
        provider: K::Provider<'p>,
        dates: &'p K::Dates,
    ) -> Result<Read, Error> {
        let mut collector = RowCollector::new(self);
        let mut lists: Vec<&[Account]> = K::lists(self.accounts)
            .filter(|accounts| self.after_account.is_none_or(|last| accounts[0].id > last))
            .collect();
        lists.sort_unstable_by_key(|accounts| accounts[0].id);
        let to = self.date_range.1;
        let left_after = |accounts: &[Account]| UnreadRange {
            to,
            after_account: accounts.last().map(|account| account.id),
        };
        let (mut unread, mut wait, mut complete) = (None, None, HashSet::new());
        for (index, &accounts) in lists.iter().enumerate() {
            let list = List::<K> {
                provider,
                credentials: self.credentials,
                query: K::query(accounts, false, dates, self.zone),
                until: None,
            };
            let rows_before = collector.rows.len();
            let mut rows = |row: &K::Row<'_>| collector.add::<K>(row);
            match Pages::default()
                .read_to_end(&list, self.context, &mut rows)
                .await
            {
                Err(
                    error @ (Error::Deadline
                    | Error::RateLimited { .. }
                    | Error::StoreDown { .. }
                    | Error::BudgetUsedUp { .. }),
                ) if index > 0 => {
                    collector.rows.truncate(rows_before);
                    unread = Some(left_after(lists[index - 1]));
                    let is_limited = !matches!(error, Error::Deadline);
                    wait = is_limited.then(|| error.retry_after().unwrap_or_default());
                    break;
                }
                read => read?,
            }
            complete.extend(accounts.iter().map(|account| AccountTag::from(account.id)));
            if index + 1 < lists.len() && collector.must_stop() {
                unread = Some(left_after(accounts));
                break;
            }
        }
        let stopped_at = collector.stopped_at;
        if let Some(at) = stopped_at {
            unread = Some(UnreadRange {
                to: SyncSettings::unread_to(to, at),
                after_account: None,
            });
        }
        let mut rows = collector.finish()?;
        if K::IS_LISTED_BY_ACCOUNT {
            // In the order of `/v1/trades`: newest first, then by account, then as the provider
            // lists them.
            rows.sort_by_key(|row| Reverse(row.instant));
        }
        Ok(Read {
            event_type: K::EVENT_TYPE,
            duplicate_ids: DuplicateIds::of::<K>(),
            rows,
            unread,
            wait,
            stopped_at,
            accounts: complete,
        })
    }

    fn removed_row(&self, row: &Fingerprint) -> Option<RemovedRow> {
        let is_account = |id: &AccountId| AccountTag::from(*id) == row.digests.account;
        let account_id = self
            .accounts
            .iter()
            .map(|account| account.id)
            .find(is_account)?;
        Some(RemovedRow {
            key: row.key,
            account_id,
        })
    }

    /// The whole days that the run has read, of the accounts that it has read to their end.
    fn coverage(
        &self,
        stopped_at: Option<Timestamp>,
        accounts: HashSet<AccountTag>,
        unreadable: &[UnreadableRow],
    ) -> Coverage {
        let (from, to) = self.date_range;
        let last_day = match self.continues {
            // Later rows of that day were read by the run before.
            true => UtcDay(UtcDay::of(to).0.saturating_sub(1)),
            false => UtcDay(u16::MAX),
        };
        let from = stopped_at.unwrap_or(from);
        let is_whole = stopped_at.is_none() && start_of_day(from) == from;
        let first_day = UtcDay(UtcDay::of(from).0.saturating_add(u16::from(!is_whole)));
        Coverage {
            days: first_day..=last_day,
            first_certain_day: UtcDay::first_whole(from),
            accounts,
            unreadable: unreadable
                .iter()
                .map(|row| row.at.map(UtcDay::of))
                .collect(),
        }
    }

    /// The unreadable rows of what was read. A page reaches beyond it.
    fn unreadable(
        &self,
        event_type: EventType,
        stopped_at: Option<Timestamp>,
    ) -> Vec<UnreadableRow> {
        let (from, to) = self.date_range;
        let has_end = event_type == EventType::TransactionsSynced;
        let mut unreadable = self.context.take_unreadable();
        unreadable.retain(|row| {
            row.at.is_none_or(|at| {
                at >= from
                    && (!has_end || at <= to)
                    && stopped_at.is_none_or(|stopped| at > stopped)
            })
        });
        unreadable
    }
}

/// Collects the rows of all pages.
struct RowCollector<'p> {
    pull: &'p Pull<'p>,
    /// The first stored fingerprint of each row digest. A binary search would take longer.
    by_digest: HashMap<Digest, usize>,
    /// Which stored fingerprints a row has matched.
    matched: Vec<bool>,
    rows: Vec<Row>,
    writer: RowWriter,
    json_bytes: usize,
    overflowed: bool,
    stopped_at: Option<Timestamp>,
}

impl<'p> RowCollector<'p> {
    fn new(pull: &'p Pull<'p>) -> Self {
        let known = &pull.known.rows;
        let firsts = known.iter().enumerate().rev();
        Self {
            pull,
            by_digest: firsts
                .map(|(index, known)| (known.digests.row, index))
                .collect(),
            matched: vec![false; known.len()],
            rows: Vec::with_capacity(known.len().min(RUN_ROWS_MAX)),
            writer: RowWriter::default(),
            json_bytes: 0,
            overflowed: false,
            stopped_at: None,
        }
    }

    /// Whether the run has read enough.
    fn must_stop(&self) -> bool {
        self.rows.len() >= RUN_ROWS_MAX || Instant::now() >= self.pull.stop_at
    }

    fn add<K: EventRowKind>(&mut self, row: &K::Row<'_>) -> ControlFlow<()> {
        let (pull, instant) = (self.pull, K::instant(row));
        // Rows of one instant are read together, so that the next run has a place to continue at.
        // Equal trades must not be read twice, so a run of them stops between accounts only.
        if K::HAS_DISTINCT_IDS
            && self
                .rows
                .first()
                .is_some_and(|newest| instant < newest.instant)
            && self.must_stop()
        {
            self.stopped_at = Some(instant);
            return ControlFlow::Break(());
        }
        if self.rows.len() >= ROWS_MAX {
            self.overflowed = true;
            return ControlFlow::Break(());
        }
        let mut known = None;
        let seen = K::digests(pull.hasher, row, |id, content| {
            known = self.match_known(id, content);
            known
        });
        let mut json = None;
        if pull.notify && known.is_none() && self.json_bytes < JSON_BYTES_MAX {
            let written = K::write(&mut self.writer, row, pull.zone);
            self.json_bytes += written.bytes();
            json = Some(written);
        }
        self.rows.push(Row {
            seen,
            instant,
            account: K::account(row).id,
            json,
        });
        ControlFlow::Continue(())
    }

    /// Finds the fingerprint of an unchanged row, once each. Of many rows with one id, which only a
    /// faulty provider sends, it looks at the first ones: for the others, the JSON is kept in vain.
    fn match_known(&mut self, row: Digest, content: ContentDigest) -> Option<RowDigests> {
        let known = &self.pull.known.rows;
        let first = *self.by_digest.get(&row)?;
        let group = known[first..]
            .iter()
            .zip(&mut self.matched[first..])
            .take(EQUAL_IDS_MAX);
        let mut group = group.take_while(|(known, _)| known.digests.row == row);
        let (known, matched) =
            group.find(|(known, matched)| known.digests.content == content && !**matched)?;
        *matched = true;
        Some(known.digests)
    }

    fn finish(self) -> Result<Vec<Row>, Error> {
        if self.overflowed {
            Err(TOO_MANY_ROWS)
        } else {
            Ok(self.rows)
        }
    }
}
