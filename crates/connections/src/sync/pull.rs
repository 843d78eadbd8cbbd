//! Reads the rows of a window, and compares them with those that were seen before.

use std::collections::HashMap;
use std::ops::ControlFlow;

use bellbird_domain::{Account, Bound, Digest, EventType, Interval, Mark, Span, Trade, Transaction};
use bellbird_providers::{Call, Error, Kind, Provider, TradeQuery, TransactionQuery, sweep};
use bellbird_webhooks::digest::RowHasher;
use bellbird_webhooks::outbox::ChangedRow;
use bellbird_webhooks::payload;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use secrecy::SecretString;

use super::changes::{Changes, Repeats, Seen, changes};

/// Rows that one sync reads at most: many times those of the busiest month. More would be a provider gone wild.
const ROWS_MAX: usize = 500_000;
/// What is kept of new and changed rows until they are sent, in bytes. Beyond that they are read once more to be sent.
const KEPT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What is asked for.
pub(super) struct Pull<'a> {
    pub(super) provider: &'a dyn Provider,
    pub(super) call: &'a Call,
    pub(super) grant: &'a SecretString,
    pub(super) accounts: &'a [Account],
    pub(super) zone: &'a TimeZone,
    pub(super) hasher: &'a RowHasher,
    /// The marks of before.
    pub(super) known: &'a [(Mark, Timestamp)],
    /// The window.
    pub(super) window: (Timestamp, Timestamp),
    /// Whether what is new is to be told.
    pub(super) announce: bool,
}

/// What came of it.
pub(super) struct Pulled {
    pub(super) event_type: EventType,
    /// When the mark was noted that was noted longest ago.
    pub(super) oldest_mark: Option<Timestamp>,
    /// Whether there was no row at all.
    pub(super) is_empty: bool,
    pub(super) new_count: usize,
    pub(super) updated_count: usize,
    /// The rows to tell of.
    pub(super) new: Vec<ChangedRow>,
    pub(super) updated: Vec<ChangedRow>,
    pub(super) marks: Vec<Mark>,
}

/// A row that was read. What it says is kept only where it may have to be told.
struct Row {
    seen: Seen,
    instant: Timestamp,
    json: Option<Vec<u8>>,
}

impl Pull<'_> {
    /// Reads the window to its end.
    ///
    /// # Errors
    /// Those of the provider; too many rows.
    pub(super) async fn run(&self) -> Result<Pulled, Error> {
        let (event_type, repeats, mut rows) = match self.provider.kind() {
            Kind::Banking(banking) => {
                let (from, to) = self.window;
                let interval = Interval { from: Bound::Instant(from), to: Bound::Instant(to) };
                let (accounts, zone) = (self.accounts, self.zone);
                let query = TransactionQuery { accounts, one_account: false, interval: &interval, zone };
                let mut reading = Reading::new(self);
                if !accounts.is_empty() {
                    let mut sink = |row: &Transaction<'_>| reading.transaction(row);
                    sweep::transactions(banking, self.call, self.grant, &query, &mut sink).await?;
                }
                (EventType::TransactionsSynced, Repeats::OneRow, reading.end()?)
            }
            Kind::Brokerage(brokerage) => {
                // What a broker dates ahead of today is told at once.
                let span = Span { from: Some(Bound::Instant(self.window.0)), to: None };
                let mut reading = Reading::new(self);
                let mut accounts: Vec<&Account> = self.accounts.iter().collect();
                accounts.sort_unstable_by_key(|account| account.id);
                for account in accounts {
                    let query = TradeQuery { account, span: &span, zone: self.zone };
                    let mut sink = |row: &Trade<'_>| reading.trade(row);
                    sweep::trades(brokerage, self.call, self.grant, &query, &mut sink).await?;
                }
                let mut rows = reading.end()?;
                // As `/v1/trades` merges: newest first, of one instant by account, then as they came.
                rows.sort_by_key(|row| std::cmp::Reverse(row.instant));
                (EventType::TradesSynced, Repeats::SeveralRows, rows)
            }
        };
        let seen: Vec<Seen> = rows.iter().map(|row| row.seen).collect();
        let Changes { new, updated, marks } = changes(self.known, &seen, repeats, self.window.1);
        let (new_count, updated_count) = (new.len(), updated.len());
        let mut take = |places: Vec<usize>| -> Vec<ChangedRow> {
            if !self.announce {
                return Vec::new();
            }
            places
                .into_iter()
                .map(|place| ChangedRow { row: rows[place].seen.row, json: rows[place].json.take() })
                .collect()
        };
        let is_empty = seen.is_empty();
        let oldest_mark = self.known.iter().map(|(_, noted_at)| *noted_at).min();
        Ok(Pulled {
            event_type,
            oldest_mark,
            is_empty,
            new_count,
            updated_count,
            new: take(new),
            updated: take(updated),
            marks,
        })
    }
}

/// The rows so far.
struct Reading<'p> {
    pull: &'p Pull<'p>,
    /// How many rows of this id and content are known.
    known: HashMap<Seen, u32>,
    rows: Vec<Row>,
    kept_bytes: usize,
    overflown: bool,
}

impl<'p> Reading<'p> {
    fn new(pull: &'p Pull<'p>) -> Self {
        let mut known: HashMap<Seen, u32> = HashMap::with_capacity(pull.known.len());
        for (mark, _) in pull.known {
            *known.entry(Seen { row: mark.row, content: mark.content }).or_default() += 1;
        }
        Self { pull, known, rows: Vec::new(), kept_bytes: 0, overflown: false }
    }

    fn transaction(&mut self, row: &Transaction<'_>) -> ControlFlow<()> {
        let digests = self.pull.hasher.transaction(row);
        self.add(digests, row.instant, || payload::transaction(row, self.pull.zone))
    }

    fn trade(&mut self, row: &Trade<'_>) -> ControlFlow<()> {
        let digests = self.pull.hasher.trade(row);
        self.add(digests, row.time.instant(), || payload::trade(row))
    }

    fn add(
        &mut self,
        (row, content): (Digest, Digest),
        instant: Timestamp,
        write: impl FnOnce() -> Vec<u8>,
    ) -> ControlFlow<()> {
        if self.rows.len() >= ROWS_MAX {
            self.overflown = true;
            return ControlFlow::Break(());
        }
        let seen = Seen { row, content };
        let is_known = self.known.get_mut(&seen).is_some_and(|left| {
            let some = *left > 0;
            *left = left.saturating_sub(1);
            some
        });
        let mut json = None;
        if self.pull.announce && !is_known && self.kept_bytes < KEPT_BYTES_MAX {
            let written = write();
            self.kept_bytes += written.len();
            json = Some(written);
        }
        self.rows.push(Row { seen, instant, json });
        ControlFlow::Continue(())
    }

    fn end(self) -> Result<Vec<Row>, Error> {
        if self.overflown { Err(Error::Malformed("more rows than one sync reads")) } else { Ok(self.rows) }
    }
}
