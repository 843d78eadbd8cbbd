//! A file that is being made: reads one page of a provider at a time, on request, and writes its
//! rows.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use bellbird_api::http::problem::problem_from_read;
use bellbird_domain::date::day_of;
use bellbird_domain::{
    Account, AccountId, Balance, Bound, Caller, Connection, ConnectionId, ConnectionStatus,
    DateFilter, DateRange, Holding,
};
use bellbird_reads::{
    Attempts, ConnectionContext, FoundConnection, NewCall, Range, ReadError, Reads, RowKind,
    SelectError, Selected, SelectedAccounts, Selection, Trades, Transactions, UnreadableConnection,
};
use bellbird_storage::Storage;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use jiff::Timestamp;
use jiff::civil::Date;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::formats::{FormatError, Head, LeftOut, Resource, WriteFile};
use super::names::{FileName, NameParts};
use super::request::FileRequest;

/// More accounts of a user than this are not compared for their names.
const COMPARED_MAX: u32 = 10_000;

/// First pages that are read at once to learn which connections to leave out, as many as SimpleFIN
/// reads accounts.
const CHECKED_AT_ONCE: usize = 4;

/// Whether a page that failed is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retries {
    /// As in a request of `/v1`, which fails at the first transient failure.
    Off,
    /// Tries again after transient failures, and waits for the user's budget of provider calls.
    On,
}

/// A file that cannot be made.
#[derive(Debug)]
pub enum OpenError {
    /// The caller has no such connection, or it is of another category.
    Connection(ReadError),
    /// The caller, or the connection, has no such account, or it is of another category.
    Account(ReadError),
    /// A connection could not be opened.
    Open {
        connection_id: ConnectionId,
        error: ReadError,
    },
    /// The format cannot hold what was requested.
    Format(FormatError),
}

impl From<SelectError> for OpenError {
    fn from(error: SelectError) -> Self {
        match error {
            SelectError::Connection(error) => Self::Connection(error),
            SelectError::Account(error) => Self::Account(error),
        }
    }
}

/// Why a file cannot be continued.
pub enum ExportError {
    /// A connection could not be opened when its turn came.
    Open {
        connection_id: ConnectionId,
        error: ReadError,
    },
    /// A connection could not be read.
    Read {
        context: Arc<ConnectionContext>,
        error: ReadError,
    },
    /// The format cannot say what was read.
    Format(FormatError),
}

impl ExportError {
    /// The error of a connection that can be left out: its consent is gone, or its provider fails.
    /// `None` if the whole file fails, as with a used-up budget of provider calls.
    fn of_broken_connection(&self) -> Option<&ReadError> {
        let (Self::Open { error, .. } | Self::Read { error, .. }) = self else {
            return None;
        };
        matches!(
            error,
            ReadError::Reconnect(_) | ReadError::Unavailable { .. } | ReadError::OperatorNeeded
        )
        .then_some(error)
    }
}

impl From<FormatError> for ExportError {
    fn from(error: FormatError) -> Self {
        Self::Format(error)
    }
}

/// Reads a file's pages. Dropping it ends the file.
pub struct Export {
    reads: Reads,
    caller: Caller,
    request: FileRequest,
    now: Timestamp,
    name: FileName,
    /// The user's, for formats that name them.
    accounts: Vec<Account>,
    /// That of a file of one account.
    account: Option<Account>,
    unread: VecDeque<Unread>,
    /// `None` unless the file is partial.
    left_out: Option<Vec<LeftOut>>,
    /// The connection that is read now.
    reading: Option<ExportRead>,
    /// Of the connection that is read, or was read last.
    context: Option<Arc<ConnectionContext>>,
    /// When that connection, or the next one, is not tried again.
    give_up_at: Instant,
    writer: Writer,
    is_begun: bool,
    rows: u64,
    calls: u32,
}

/// A connection whose turn has not come. Its credentials are opened then.
#[derive(Clone)]
struct Unread {
    connection_id: ConnectionId,
    institution_name: String,
    account_ids: Vec<AccountId>,
}

enum ExportRead {
    Transactions(Range<Transactions>),
    Trades(Range<Trades>),
    /// One page.
    Holdings(SelectedAccounts),
}

type Writer = Box<dyn WriteFile>;

impl Export {
    /// Finds the connections to read. Calls no provider.
    pub async fn open(
        reads: Reads,
        storage: &Storage,
        caller: Caller,
        request: FileRequest,
        now: Timestamp,
    ) -> Result<Self, OpenError> {
        if request.lacks_account() {
            return Err(OpenError::Format(FormatError::OneAccount));
        }
        if !request
            .resource
            .formats()
            .any(|format| format == request.format)
        {
            return Err(OpenError::Format(FormatError::Internal));
        }
        let found = select(&reads, &caller, &request).await?;
        let leaves_out = request.partial && found.len() > 1;
        // Those that may be left out are opened when they are checked.
        let (several, found) = if leaves_out {
            (found, Vec::new())
        } else {
            (Vec::new(), found)
        };
        let failed = |found: UnreadableConnection| OpenError::Open {
            connection_id: found.connection.id,
            error: found.error,
        };
        let selected: Vec<SelectedAccounts> = found
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        let name = name_of(&request, &selected, &caller, now);
        let account = only_account(&selected).cloned();
        let accounts = if request.format.names_accounts() {
            let listed = storage
                .accounts()
                .list(caller.user_id, COMPARED_MAX, 0)
                .await;
            listed.map_err(|error| OpenError::Account(error.into()))?.0
        } else {
            Vec::new()
        };
        let mut selected = selected.into_iter();
        let first = selected.next();
        let unread = several
            .into_iter()
            .chain(selected.map(Ok))
            .map(Unread::from);
        let unread = unread.collect();
        let mut export = Self {
            accounts,
            account,
            left_out: request.partial.then(Vec::new),
            ..Self::new(reads, caller, request, now, name, unread)
        };
        if let Some(first) = first {
            let connection_id = first.context.connection.id;
            export.reading = Some(export.read(first).map_err(|error| OpenError::Open {
                connection_id,
                error,
            })?);
        }
        Ok(export)
    }

    /// A file that was not begun, of connections that are not open yet. It names no account, and
    /// leaves nothing out.
    fn new(
        reads: Reads,
        caller: Caller,
        request: FileRequest,
        now: Timestamp,
        name: FileName,
        unread: VecDeque<Unread>,
    ) -> Self {
        Self {
            reads,
            caller,
            request,
            now,
            name,
            accounts: Vec::new(),
            account: None,
            unread,
            left_out: None,
            reading: None,
            context: None,
            give_up_at: Attempts::end_of_list(),
            writer: request.format.writer(request.options),
            is_begun: false,
            rows: 0,
            calls: 0,
        }
    }

    /// Leaves out the connections of a partial file that cannot be read, and returns why. Fails if
    /// the failure is not of the connection alone, or if no connection is left. A file of one
    /// connection leaves out nothing.
    ///
    /// The first page of each connection is read to learn that, and again when its turn comes,
    /// because rows would otherwise wait in memory for a slow client. A connection that breaks
    /// later breaks the file off.
    pub async fn leave_out_broken(
        &mut self,
        retries: Retries,
        new_call: &NewCall<'_>,
    ) -> Result<Vec<ExportError>, ExportError> {
        if self.left_out.is_none() || self.reading.is_some() {
            return Ok(Vec::new());
        }
        let checks: Vec<Self> = self
            .unread
            .iter()
            .map(|unread| self.alone(unread))
            .collect();
        let checks = checks.into_iter().map(async |mut check| {
            let read = check.next_page(retries, new_call, &mut Vec::new()).await;
            (read.err(), check.calls)
        });
        let checked: Vec<_> = stream::iter(checks)
            .buffered(CHECKED_AT_ONCE)
            .collect()
            .await;
        let (mut left_out, mut broken) = (Vec::new(), Vec::new());
        for (unread, (error, calls)) in mem::take(&mut self.unread).into_iter().zip(checked) {
            self.calls += calls;
            let Some(error) = error else {
                self.unread.push_back(unread);
                continue;
            };
            let Some(why) = error.of_broken_connection() else {
                return Err(error);
            };
            let Unread {
                connection_id,
                institution_name,
                ..
            } = unread;
            left_out.push(LeftOut {
                connection_id,
                institution_name,
                error: problem_from_read(why, "", "").code(),
            });
            broken.push(error);
        }
        if self.unread.is_empty() && !broken.is_empty() {
            // One that may pass, if there is any: the client tries again then.
            let may_pass = |error: &ExportError| {
                !matches!(error.of_broken_connection(), Some(ReadError::Reconnect(_)))
            };
            let at = broken.iter().position(may_pass).unwrap_or_default();
            return Err(broken.swap_remove(at));
        }
        self.left_out = Some(left_out);
        self.give_up_at = Attempts::end_of_list();
        Ok(broken)
    }

    /// The same file of this connection alone.
    fn alone(&self, unread: &Unread) -> Self {
        Self::new(
            self.reads.clone(),
            self.caller.clone(),
            self.request,
            self.now,
            self.name.clone(),
            [unread.clone()].into(),
        )
    }

    /// The connections that the file lacks. Known before the first page.
    pub fn left_out(&self) -> &[LeftOut] {
        self.left_out.as_deref().unwrap_or_default()
    }

    pub fn name(&self) -> &FileName {
        &self.name
    }

    /// The number of rows written so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The number of provider calls of all pages so far.
    pub fn calls(&self) -> u32 {
        self.calls
    }

    /// The connection of the last page. None if it could not be opened.
    pub fn context(&self) -> Option<&Arc<ConnectionContext>> {
        self.context.as_ref()
    }

    /// The connection of the next page, if it is open.
    pub fn open_context(&self) -> Option<&Arc<ConnectionContext>> {
        self.reading.as_ref().and(self.context.as_ref())
    }

    /// The connection of the next page. None if no page follows.
    pub fn next_connection(&self) -> Option<ConnectionId> {
        let open = self.open_context().map(|context| context.connection.id);
        open.or_else(|| self.unread.front().map(|unread| unread.connection_id))
    }

    /// Opens the following connections as they are at this revision of the user.
    pub fn set_revision(&mut self, revision: i64) {
        self.caller.revision = revision;
    }

    /// Reads the next page and appends what it adds to the file. Returns whether more pages follow;
    /// a page may add nothing. After an error the file cannot be continued, and what was appended
    /// is of no use.
    pub async fn next_page(
        &mut self,
        retries: Retries,
        new_call: &NewCall<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, ExportError> {
        let give_up_at = (retries == Retries::On).then_some(self.give_up_at);
        let mut attempts = Attempts::new(give_up_at, new_call);
        if !self.is_begun {
            self.begin(&mut attempts, out).await?;
            self.is_begun = true;
        }
        let reading = match self.reading.take() {
            None => self.open_next().await?,
            reading => reading,
        };
        self.reading = match reading {
            Some(ExportRead::Transactions(range)) => self
                .read_page(range, &mut attempts, |writer, row, day| {
                    writer.transaction(row, day, out)
                })
                .await?
                .map(ExportRead::Transactions),
            Some(ExportRead::Trades(range)) => self
                .read_page(range, &mut attempts, |writer, row, _| {
                    writer.trade(row, out)
                })
                .await?
                .map(ExportRead::Trades),
            Some(ExportRead::Holdings(selected)) => {
                self.holdings(&selected, &mut attempts, out).await?;
                None
            }
            None => None,
        };
        self.calls += attempts.calls();
        if self.reading.is_none() {
            self.give_up_at = Attempts::end_of_list();
        }
        let has_more = self.next_connection().is_some();
        let left_out = self.left_out.as_deref();
        if !has_more {
            self.writer.end(self.rows, left_out, out);
        }
        Ok(has_more)
    }

    /// Writes what comes before the rows.
    async fn begin(
        &mut self,
        attempts: &mut Attempts<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), ExportError> {
        let account = self.account.clone();
        let balance = match &account {
            Some(account) if self.request.format.uses_balance() => {
                self.balance(account, attempts).await?
            }
            _ => None,
        };
        let (account, balance) = (account.as_ref(), balance.as_ref());
        let days = days_of(&self.request, &self.caller, self.now);
        let today = day_of(self.now, &self.caller.timezone);
        let accounts = &self.accounts;
        let head = Head {
            resource: self.request.resource,
            account,
            accounts,
            balance,
            days,
            read_at: self.now,
            today,
        };
        Ok(self.writer.start(&head, out)?)
    }

    /// Reads the balance of the account. None if the provider does not say it.
    async fn balance(
        &mut self,
        account: &Account,
        attempts: &mut Attempts<'_>,
    ) -> Result<Option<Balance>, ExportError> {
        let Some(context) = self.context() else {
            return Ok(None);
        };
        let failed = |error| ExportError::Read {
            context: Arc::clone(context),
            error,
        };
        let state = (&self.reads, &self.caller, std::slice::from_ref(account));
        let read = attempts
            .run(state, |(reads, caller, accounts), call| {
                reads.balances(call, caller, accounts.to_vec()).boxed()
            })
            .await;
        match read.map_err(failed)?.pop() {
            Some((_, Err(error @ ReadError::Reconnect(_)))) => Err(failed(error)),
            read => Ok(read.and_then(|(_, balance)| balance.ok())),
        }
    }

    /// Opens the next connection, of which no account may be missing now. Only a file of one
    /// connection has some of its accounts.
    async fn open_next(&mut self) -> Result<Option<ExportRead>, ExportError> {
        self.context = None;
        let Some(Unread {
            connection_id,
            account_ids,
            ..
        }) = self.unread.front()
        else {
            return Ok(None);
        };
        let connection_id = *connection_id;
        let failed = |error| ExportError::Open {
            connection_id,
            error,
        };
        let context = self
            .reads
            .connection_context(&self.caller, connection_id)
            .await
            .map_err(failed)?;
        account_ids
            .iter()
            .try_for_each(|id| context.accounts_of(Some(*id)).map(|_| ()))
            .map_err(failed)?;
        self.unread.pop_front();
        self.read(SelectedAccounts::all(context))
            .map(Some)
            .map_err(failed)
    }

    fn read(&mut self, selected: SelectedAccounts) -> Result<ExportRead, ReadError> {
        let (reads, caller) = (&self.reads, &self.caller);
        let (dates, now) = (self.request.dates, self.now);
        let (context, account_id) = (Arc::clone(&selected.context), selected.account_id());
        self.context = Some(Arc::clone(&context));
        match self.request.resource {
            Resource::Transactions => reads
                .range(caller, context, account_id, dates, now)
                .map(ExportRead::Transactions),
            Resource::Trades => reads
                .range(caller, context, account_id, dates, now)
                .map(ExportRead::Trades),
            Resource::Holdings => Ok(ExportRead::Holdings(selected)),
        }
    }

    /// Reads a page of a range. Returns the range if pages may follow.
    async fn read_page<K: RowKind>(
        &mut self,
        mut range: Range<K>,
        attempts: &mut Attempts<'_>,
        mut write: impl FnMut(&mut Writer, &K::Row<'_>, K::Place) -> Result<(), FormatError> + Send,
    ) -> Result<Option<Range<K>>, ExportError> {
        let (writer, rows, mut written) = (&mut self.writer, &mut self.rows, Ok(()));
        let mut sink = |row: &K::Row<'_>, place: K::Place| {
            if written.is_ok() {
                written = write(writer, row, place);
                *rows += 1;
            }
        };
        let state = (&mut range, &mut sink);
        let read = attempts
            .run(state, |(range, sink), call| {
                range.next_page(call, &mut **sink).boxed()
            })
            .await;
        let failed = |error| ExportError::Read {
            context: Arc::clone(range.context()),
            error,
        };
        let has_more = read.map_err(failed)?;
        written?;
        Ok(has_more.then_some(range))
    }

    /// Reads all holdings of a connection at once. Its accounts are read concurrently and written
    /// one after the other.
    async fn holdings(
        &mut self,
        selected: &SelectedAccounts,
        attempts: &mut Attempts<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), ExportError> {
        let writing = Mutex::new((&mut self.writer, Ok(())));
        let add = |holding: &Holding<'_>, (rows, bytes): &mut (u64, Vec<u8>)| {
            let mut writing = writing.lock();
            let (writer, written) = &mut *writing;
            if written.is_ok() {
                *written = writer.holding(holding, bytes);
                *rows += 1;
            }
        };
        let read = attempts.run((&self.reads, &add), |(reads, add), call| {
            let read = async move {
                reads
                    .holdings(call, selected, *add)
                    .await?
                    .into_iter()
                    .map(|(_, read)| read)
                    .collect()
            };
            read.boxed()
        });
        let failed = |error| ExportError::Read {
            context: Arc::clone(&selected.context),
            error,
        };
        let accounts: Vec<_> = read.await.map_err(failed)?;
        writing.into_inner().1?;
        for (rows, bytes) in accounts {
            self.rows += rows;
            out.extend_from_slice(&bytes);
        }
        Ok(())
    }
}

impl From<FoundConnection> for Unread {
    fn from(found: FoundConnection) -> Self {
        let connection = connection_of(&found);
        Self {
            connection_id: connection.id,
            institution_name: connection.institution_name.clone(),
            account_ids: match found {
                Ok(selected) => selected.accounts().map(|account| account.id).collect(),
                Err(unreadable) => unreadable.account_ids,
            },
        }
    }
}

fn connection_of(found: &FoundConnection) -> &Connection {
    match found {
        Ok(selected) => &selected.context.connection,
        Err(unreadable) => &unreadable.connection,
    }
}

/// The connections to read. Those that are not active come first: one that cannot be read then
/// fails before the first byte, not in the middle.
async fn select(
    reads: &Reads,
    caller: &Caller,
    request: &FileRequest,
) -> Result<Vec<FoundConnection>, OpenError> {
    let selection = Selection {
        connection_id: request.connection_id,
        account_ids: request.account_id.as_ref().map(std::slice::from_ref),
        category: Some(request.resource.category()),
    };
    let mut found = reads
        .select(caller, selection)
        .await
        .and_then(Selected::require_known)?;
    found.sort_by_key(|found| connection_of(found).status == ConnectionStatus::Active);
    Ok(found)
}

/// The account of a file of one account.
fn only_account<'s>(
    selected: impl IntoIterator<Item = &'s SelectedAccounts>,
) -> Option<&'s Account> {
    let selected = selected.into_iter().next()?;
    selected
        .context
        .accounts_of(Some(selected.account_id()?))
        .ok()?
        .first()
}

/// A name of institution, account and days, as far as the file has only one of them.
fn name_of(
    request: &FileRequest,
    all: &[SelectedAccounts],
    caller: &Caller,
    now: Timestamp,
) -> FileName {
    let only = if let [selected] = all {
        Some(selected)
    } else {
        None
    };
    let resource = request.resource;
    let says_enough = only.is_some() && resource == Resource::Transactions;
    let parts = NameParts {
        institution: only.map(|selected| selected.context.connection.institution_name.as_str()),
        account: only_account(all).map(|account| account.name.as_str()),
        resource: (!says_enough).then(|| resource.as_str()),
        days: days_of(request, caller, now),
        extension: request.format.as_str(),
    };
    parts.name()
}

/// The first and the last day of the file. Without `from`, the broker decides where trades begin.
fn days_of(request: &FileRequest, caller: &Caller, now: Timestamp) -> (Option<Date>, Option<Date>) {
    let day = |bound| match bound {
        Bound::Day(day) => day,
        Bound::Instant(instant) => day_of(instant, &caller.timezone),
    };
    let DateFilter { from, to } = request.dates;
    match request.resource {
        Resource::Transactions => {
            let DateRange { from, to } = DateRange::resolve(from, to, now);
            (Some(day(from)), Some(day(to)))
        }
        Resource::Trades => (from.map(day), Some(day(to.unwrap_or(Bound::Instant(now))))),
        Resource::Holdings => (None, Some(day(Bound::Instant(now)))),
    }
}
