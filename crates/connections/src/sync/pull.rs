//! Reads the rows of a sync's date range from the provider, and keeps the JSON of new and changed rows for delivery.

use std::ops::ControlFlow;

use bellbird_domain::{
    Account, AccountId, Bound, ContentDigest, Digest, EventType, Fingerprint, Interval, Span, Trade, Transaction,
};
use bellbird_providers::{CallContext, Error, Kind, Provider, TradeQuery, TransactionQuery, sweep};
use bellbird_webhooks::digest::RowHasher;
use bellbird_webhooks::payload;
use bellbird_webhooks::webhook_events::ChangedRow;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use secrecy::SecretString;

use super::changes::{Changes, DuplicateIds, Reading, RowDigests, detect_changes};

/// Upper bound for the rows of one sync: many times a busy month. More rows mean that the provider is faulty.
const ROWS_MAX: usize = 500_000;
/// Upper bound for the fingerprints of a connection: rows that the date range left behind stay for some days.
const FINGERPRINTS_MAX: usize = 2 * ROWS_MAX;
/// Maximum bytes of JSON to keep of new and changed rows until delivery: more than 50,000 rows. Beyond that, delivery
/// reads the rows again, up to 5,000 at a time.
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
    /// The stored fingerprints, sorted.
    pub(super) known: &'a [Fingerprint],
    pub(super) date_range: (Timestamp, Timestamp),
    /// Fingerprints that were last seen before this time are deleted.
    pub(super) prune_before: Timestamp,
    /// The number of the sync among those of the connection.
    pub(super) sequence: u32,
    /// Whether new and changed rows become webhook events.
    pub(super) announce: bool,
}

/// The result of [`Pull::run`].
pub(super) struct Pulled {
    pub(super) event_type: EventType,
    /// Whether the provider returned no row at all.
    pub(super) is_empty: bool,
    pub(super) new_count: usize,
    pub(super) updated_count: usize,
    /// Rows to report; empty unless [`Pull::announce`].
    pub(super) new: Vec<ChangedRow>,
    /// As `new`.
    pub(super) updated: Vec<ChangedRow>,
    /// All fingerprints of the connection, if they have to be written.
    pub(super) fingerprints: Option<Vec<Fingerprint>>,
}

/// A row that was read. Its JSON is kept only if the row may have to be delivered.
struct Row {
    seen: RowDigests,
    instant: Timestamp,
    account: AccountId,
    json: Option<Vec<u8>>,
}

impl Pull<'_> {
    /// Reads the whole date range. Fails if it has more than [`ROWS_MAX`] rows.
    pub(super) async fn run(&self) -> Result<Pulled, Error> {
        let (event_type, duplicate_ids, mut rows) = match self.provider.kind() {
            Kind::Banking(banking) => {
                let (from, to) = self.date_range;
                let interval = Interval { from: Bound::Instant(from), to: Bound::Instant(to) };
                let (accounts, zone) = (self.accounts, self.zone);
                let query = TransactionQuery { accounts, one_account: false, interval: &interval, zone };
                let mut collector = RowCollector::new(self);
                if !accounts.is_empty() {
                    let mut sink = |row: &Transaction<'_>| collector.transaction(row);
                    sweep::transactions(banking, self.context, self.credentials, &query, &mut sink).await?;
                }
                (EventType::TransactionsSynced, DuplicateIds::SameRow, collector.finish()?)
            }
            Kind::Brokerage(brokerage) => {
                // Without an end, so that trades with a future date are reported at once.
                let span = Span { from: Some(Bound::Instant(self.date_range.0)), to: None };
                let mut collector = RowCollector::new(self);
                let mut accounts: Vec<&Account> = self.accounts.iter().collect();
                accounts.sort_unstable_by_key(|account| account.id);
                for account in accounts {
                    let query = TradeQuery { account, span: &span, zone: self.zone };
                    let mut sink = |row: &Trade<'_>| collector.trade(row);
                    sweep::trades(brokerage, self.context, self.credentials, &query, &mut sink).await?;
                }
                let mut rows = collector.finish()?;
                // In the order of `/v1/trades`: newest first, then by account, then as the provider lists them.
                rows.sort_by_key(|row| std::cmp::Reverse(row.instant));
                (EventType::TradesSynced, DuplicateIds::DistinctRows, rows)
            }
        };
        let seen: Vec<RowDigests> = rows.iter().map(|row| row.seen).collect();
        let (_, now) = self.date_range;
        let reading = Reading { sequence: self.sequence, now, prune_before: self.prune_before };
        let Changes { new, updated, fingerprints } = detect_changes(self.known, &seen, duplicate_ids, &reading);
        if fingerprints.as_ref().is_some_and(|all| all.len() > FINGERPRINTS_MAX) {
            return Err(TOO_MANY_ROWS);
        }
        let (new_count, updated_count) = (new.len(), updated.len());
        let mut changed_rows = |indexes: Vec<usize>| -> Vec<ChangedRow> {
            if !self.announce {
                return Vec::new();
            }
            indexes
                .into_iter()
                .map(|index| {
                    let Row { seen, instant, account, json } = &mut rows[index];
                    ChangedRow { row: seen.row, instant: *instant, account: *account, json: json.take() }
                })
                .collect()
        };
        let is_empty = seen.is_empty();
        Ok(Pulled {
            event_type,
            is_empty,
            new_count,
            updated_count,
            new: changed_rows(new),
            updated: changed_rows(updated),
            fingerprints,
        })
    }
}

/// Collects the rows of all pages.
struct RowCollector<'p> {
    pull: &'p Pull<'p>,
    /// How many stored fingerprints with these digests no row has matched yet. Sorted.
    known: Vec<(RowDigests, u32)>,
    rows: Vec<Row>,
    json_bytes: usize,
    overflowed: bool,
}

impl<'p> RowCollector<'p> {
    fn new(pull: &'p Pull<'p>) -> Self {
        let digests = |known: &Fingerprint| (RowDigests { row: known.row, content: known.content }, 1);
        let mut known: Vec<(RowDigests, u32)> = pull.known.iter().map(digests).collect();
        known.sort_unstable();
        known.dedup_by(|(digests, _), (first, count)| {
            let is_same = digests == first;
            *count += u32::from(is_same);
            is_same
        });
        Self { pull, known, rows: Vec::new(), json_bytes: 0, overflowed: false }
    }

    fn transaction(&mut self, row: &Transaction<'_>) -> ControlFlow<()> {
        let digests = self.pull.hasher.transaction(row);
        self.add(digests, (row.instant, row.account.id), || payload::transaction(row, self.pull.zone))
    }

    fn trade(&mut self, row: &Trade<'_>) -> ControlFlow<()> {
        let digests = self.pull.hasher.trade(row);
        self.add(digests, (row.time.instant(), row.account.id), || payload::trade(row))
    }

    fn add(
        &mut self,
        (row, content): (Digest, ContentDigest),
        (instant, account): (Timestamp, AccountId),
        write: impl FnOnce() -> Vec<u8>,
    ) -> ControlFlow<()> {
        if self.rows.len() >= ROWS_MAX {
            self.overflowed = true;
            return ControlFlow::Break(());
        }
        let seen = RowDigests { row, content };
        let is_known = self.known.binary_search_by_key(&seen, |(digests, _)| *digests).is_ok_and(|at| {
            let unmatched = &mut self.known[at].1;
            let matches = *unmatched > 0;
            *unmatched = unmatched.saturating_sub(1);
            matches
        });
        let mut json = None;
        if self.pull.announce && !is_known && self.json_bytes < JSON_BYTES_MAX {
            let written = write();
            self.json_bytes += written.len();
            json = Some(written);
        }
        self.rows.push(Row { seen, instant, account, json });
        ControlFlow::Continue(())
    }

    fn finish(self) -> Result<Vec<Row>, Error> {
        if self.overflowed { Err(TOO_MANY_ROWS) } else { Ok(self.rows) }
    }
}
