//! A file under way: reads one page of a provider at a time, when it is asked for, and writes its rows.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bellbird_domain::date::day_of;
use bellbird_domain::{Bound, Caller, Holding, Interval, Span, Trade, Transaction};
use bellbird_reads::{CallContext, ConnectionContext, ReadError, Reads, TradeWalk, TransactionWalk};
use bellbird_storage::Storage;
use jiff::Timestamp;
use jiff::civil::Date;

use super::format::{FileFormat, Resource, Writer};
use super::names::{FileName, NameParts};
use super::source::{Selection, SelectionError, Source, find_sources};

/// What a file shall hold.
#[derive(Debug, Clone, Copy)]
pub struct FileRequest {
    pub format: FileFormat,
    pub selection: Selection,
    /// Without bounds, transactions are those of the last 30 days, and the broker decides about trades.
    pub span: Span,
}

/// How long a page is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// As long as a request of `/v1`, which fails at the first transient failure.
    Request,
    /// Longer: tries again after transient failures, and waits for the user's budget of provider calls.
    Patient,
}

/// Why a file cannot be continued.
pub struct ExportError {
    /// The connection that could not be read.
    pub context: Arc<ConnectionContext>,
    pub error: ReadError,
}

/// Reads a file's pages. Dropping it ends the file.
pub struct Export {
    reads: Reads,
    caller: Caller,
    request: FileRequest,
    now: Timestamp,
    /// The connections that were not begun.
    sources: VecDeque<Source>,
    /// The connection that is read now.
    walk: Option<Walk>,
    name: FileName,
    writer: Writer,
    is_begun: bool,
    rows: u64,
    calls: u32,
}

enum Walk {
    Transactions(TransactionWalk),
    Trades(TradeWalk),
    Holdings(Source),
}

impl Export {
    /// Finds the connections to read. Calls no provider.
    pub async fn open(
        reads: Reads,
        storage: &Storage,
        caller: Caller,
        request: FileRequest,
        now: Timestamp,
    ) -> Result<Self, SelectionError> {
        let category = request.format.resource.category();
        let sources = find_sources(&reads, storage, &caller, category, request.selection).await?;
        let name = name_of(&request, &sources, &caller, now);
        let (sources, writer) = (sources.into(), Writer::new(request.format));
        Ok(Self { reads, caller, request, now, sources, walk: None, name, writer, is_begun: false, rows: 0, calls: 0 })
    }

    #[must_use]
    pub fn name(&self) -> &FileName {
        &self.name
    }

    /// The number of rows written so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The number of provider calls made with [`Pace::Request`].
    #[must_use]
    pub fn calls(&self) -> u32 {
        self.calls
    }

    /// The connection of the next page. None if no page follows.
    #[must_use]
    pub fn context(&self) -> Option<&Arc<ConnectionContext>> {
        match &self.walk {
            Some(Walk::Transactions(walk)) => Some(walk.context()),
            Some(Walk::Trades(walk)) => Some(walk.context()),
            Some(Walk::Holdings(source)) => Some(&source.context),
            None => self.sources.front().map(|source| &source.context),
        }
    }
}

/// Makes the call context of a page, or of another attempt to read it.
pub type NewCall<'c> = dyn FnMut() -> CallContext + Send + 'c;

impl Export {
    /// Reads the next page and appends what it adds to the file. Returns whether more pages follow; a page may add
    /// nothing. After an error the file cannot be continued, and what was appended is of no use.
    pub async fn next_page(
        &mut self,
        pace: Pace,
        new_call: &mut NewCall<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, ExportError> {
        if !self.is_begun {
            self.writer.start(out);
            self.is_begun = true;
        }
        if let Some(walk) = self.next_walk()? {
            let read = match walk {
                Walk::Transactions(walk) => self.transactions(walk, pace, new_call, out).await,
                Walk::Trades(walk) => self.trades(walk, pace, new_call, out).await,
                Walk::Holdings(source) => self.holdings(source, new_call, out).await,
            };
            self.walk = read?;
        }
        if self.context().is_some() {
            return Ok(true);
        }
        self.writer.end(out);
        Ok(false)
    }

    /// Takes the walk to continue, or begins that of the next connection.
    fn next_walk(&mut self) -> Result<Option<Walk>, ExportError> {
        if let Some(walk) = self.walk.take() {
            return Ok(Some(walk));
        }
        let Some(source) = self.sources.pop_front() else { return Ok(None) };
        let (reads, caller, span) = (&self.reads, &self.caller, self.request.span);
        let context = Arc::clone(&source.context);
        let walk = match self.request.format.resource {
            Resource::Transactions => reads
                .walk_transactions(caller, source.context, source.account_id, span, self.now)
                .map(Walk::Transactions),
            Resource::Trades => {
                reads.walk_trades(caller, source.context, source.account_id, span).map(Walk::Trades)
            }
            Resource::Holdings => Ok(Walk::Holdings(source)),
        };
        walk.map(Some).map_err(|error| ExportError { context, error })
    }

    async fn transactions(
        &mut self,
        mut walk: TransactionWalk,
        pace: Pace,
        new_call: &mut NewCall<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Walk>, ExportError> {
        let (writer, rows) = (&mut self.writer, &mut self.rows);
        let mut keep = |row: &Transaction<'_>, day: Date| {
            writer.transaction(row, day, out);
            *rows += 1;
        };
        let has_more = match pace {
            Pace::Request => {
                let call = new_call();
                let has_more = walk.next_page(&call, &mut keep).await;
                self.calls += call.calls();
                has_more
            }
            Pace::Patient => walk.next_page_waiting(new_call, &mut keep).await,
        };
        match has_more {
            Ok(has_more) => Ok(has_more.then_some(Walk::Transactions(walk))),
            Err(error) => Err(ExportError { context: Arc::clone(walk.context()), error }),
        }
    }

    async fn trades(
        &mut self,
        mut walk: TradeWalk,
        pace: Pace,
        new_call: &mut NewCall<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Walk>, ExportError> {
        let (writer, rows) = (&mut self.writer, &mut self.rows);
        let mut keep = |row: &Trade<'_>| {
            writer.trade(row, out);
            *rows += 1;
        };
        let has_more = match pace {
            Pace::Request => {
                let call = new_call();
                let has_more = walk.next_page(&call, &mut keep).await;
                self.calls += call.calls();
                has_more
            }
            Pace::Patient => walk.next_page_waiting(new_call, &mut keep).await,
        };
        match has_more {
            Ok(has_more) => Ok(has_more.then_some(Walk::Trades(walk))),
            Err(error) => Err(ExportError { context: Arc::clone(walk.context()), error }),
        }
    }

    /// The holdings of a connection are one page.
    async fn holdings(
        &mut self,
        source: Source,
        new_call: &mut NewCall<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Walk>, ExportError> {
        let Source { context, account_id } = source;
        let (writer, rows) = (&self.writer, AtomicU64::new(0));
        let write = |holding: &Holding<'_>, out: &mut Vec<u8>| {
            if account_id.is_none_or(|id| id == holding.account.id) {
                writer.holding(holding, out);
                rows.fetch_add(1, Ordering::Relaxed);
            }
        };
        let failed = |error| ExportError { context: Arc::clone(&context), error };
        let call = new_call();
        let accounts = self.reads.holdings(&call, &context, &write).await.map_err(failed)?;
        self.calls += call.calls();
        for (id, written) in accounts {
            if account_id.is_none_or(|requested| requested == id) {
                out.extend_from_slice(&written.map_err(failed)?);
            }
        }
        self.rows += rows.into_inner();
        Ok(None)
    }
}

/// A name of institution, account and days, as far as the file has only one of them.
fn name_of(request: &FileRequest, sources: &[Source], caller: &Caller, now: Timestamp) -> FileName {
    let source = if let [source] = sources { Some(source) } else { None };
    let account = source.and_then(|source| Some(source.context.accounts_of(Some(source.account_id?)).ok()?.first()?));
    let resource = request.format.resource;
    let day = |bound| match bound {
        Bound::Day(day) => day,
        Bound::Instant(instant) => day_of(instant, &caller.timezone),
    };
    let Span { from, to } = request.span;
    let days = match resource {
        Resource::Transactions => {
            let Interval { from, to } = Interval::resolve(from, to, now);
            (Some(day(from)), Some(day(to)))
        }
        Resource::Trades => (from.map(day), Some(day(to.unwrap_or(Bound::Instant(now))))),
        Resource::Holdings => (None, Some(day(Bound::Instant(now)))),
    };
    let says_more = source.is_some() && resource == Resource::Transactions;
    let parts = NameParts {
        institution: source.map(|source| source.context.connection.institution_name.as_str()),
        account: account.map(|account| account.name.as_str()),
        resource: (!says_more).then(|| resource.name()),
        days,
        extension: request.format.extension(),
    };
    parts.name()
}
