//! One adapter per provider, behind one small trait: [`Provider`].
//!
//! An adapter maps a provider's wire format to the types of the domain. It hides paging,
//! authentication and quirks. It keeps in memory only access tokens, signing keys, rate limits and,
//! for a minute, the status of a consent.

pub mod akahu;
mod balances;
mod consent_status_cache;
mod credentials;
pub mod error;
pub mod exact;
pub mod fiskil;
pub mod http;
pub mod json;
pub mod linking;
pub mod pages;
pub mod registry;
mod rows;
pub mod settings;
#[cfg(any(test, feature = "test-support"))]
pub mod simulated;
pub mod snaptrade;
#[cfg(test)]
mod test_support;
pub mod text;
pub mod unreadable;
pub mod webhook_verifier;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use async_trait::async_trait;
use bellbird_domain::{
    Account, AccountType, Balance, ConnectionCategory, ConnectionStatus, Currency, DateFilter,
    DateRange, Holding, MaskedNumber, ProviderName, TimestampExt as _, Trade, Transaction, UserId,
};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use secrecy::SecretString;
use tokio::time::Instant;

pub use error::Error;
pub use http::Client;
pub use http::health::ProviderHealth;
use http::recording::{KnownWords, RecordedCall, Recorder};
pub use linking::Linking;
pub use registry::Registry;
pub use unreadable::{UnreadableReason, UnreadableRow};
pub use webhook_verifier::WebhookVerifier;

/// Why provider calls are made. Whoever causes calls pays for them: only the schedule and the
/// operator at a terminal are free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A person's or a program's request for this user. Its calls count against the user's budget
    /// at each provider, and leave a part of the provider's capacity to the schedule. They wait for
    /// both until the deadline.
    Request(UserId),
    /// A job that such a request has caused. It pays in the same way. It begins only if a call is
    /// left, without a wait, because it is repeated. Once it has begun, the budget no longer stops
    /// it, so that it does not begin in vain again and again.
    RequestedJob(UserId),
    /// The schedule, or the operator at a terminal. Its calls are counted, and only those that read
    /// rows are refused.
    Schedule,
}

impl Cause {
    /// The user who pays.
    fn user(self) -> Option<UserId> {
        match self {
            Self::Request(user_id) | Self::RequestedJob(user_id) => Some(user_id),
            Self::Schedule => None,
        }
    }
}

/// The deadline, the clock, the call counter and the cause of the provider calls that serve one
/// request or job.
#[derive(Debug)]
pub struct CallContext {
    /// No provider call starts, waits or retries after this instant.
    pub deadline: Instant,
    /// The time at which the request or job began. It does not advance, so all parts of a response
    /// see the same time.
    pub now: Timestamp,
    cause: Cause,
    started: Instant,
    calls: AtomicU32,
    of_sync: Option<SyncPart>,
    unreadable: unreadable::UnreadableRows,
    /// Whether the log has a warning about a failed call.
    has_warned: AtomicBool,
    /// Only for `bellbird record`.
    recorder: Option<Recorder>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncPart {
    Refresh,
    Rows,
}

impl CallContext {
    pub fn new(deadline: Instant, now: Timestamp, cause: Cause) -> Self {
        Self {
            deadline,
            now,
            cause,
            started: Instant::now(),
            calls: AtomicU32::new(0),
            of_sync: None,
            unreadable: unreadable::UnreadableRows::default(),
            has_warned: AtomicBool::new(false),
            recorder: None,
        }
    }

    /// The context of a job that reads rows. Where a provider limits the calls of all users
    /// together, those of the schedule leave some to requests: they wait until the deadline.
    #[must_use]
    pub fn for_sync(self) -> Self {
        Self {
            of_sync: Some(SyncPart::Rows),
            ..self
        }
    }

    /// The context of the refresh before it, whose calls count as those of a sync, but do not wait.
    #[must_use]
    pub fn for_refresh_of_sync(self) -> Self {
        Self {
            of_sync: Some(SyncPart::Refresh),
            ..self
        }
    }

    /// Waits as long as `refused` says, if this is a request and the wait ends before its deadline.
    async fn wait_out(&self, refused: Error) -> Result<(), Error> {
        if matches!(self.cause, Cause::Request(_)) {
            self.wait(refused).await
        } else {
            Err(refused)
        }
    }

    async fn wait(&self, refused: Error) -> Result<(), Error> {
        let until = Instant::now() + refused.retry_after().unwrap_or_default();
        if until >= self.deadline {
            return Err(refused);
        }
        tokio::time::sleep_until(until).await;
        Ok(())
    }

    /// Skips rows that cannot be read, instead of failing their page.
    /// [`CallContext::take_unreadable`] returns them.
    #[must_use]
    pub fn skip_unreadable_rows(self) -> Self {
        Self {
            unreadable: unreadable::UnreadableRows::collected(),
            ..self
        }
    }

    /// The rows that could not be read since the last call. They may lie outside the query's
    /// dates, and a row that was read twice is there twice.
    pub fn take_unreadable(&self) -> Vec<UnreadableRow> {
        self.unreadable.take()
    }

    /// Records the responses, masked but for these words.
    #[must_use]
    pub fn recorded(self, words: KnownWords) -> Self {
        Self {
            recorder: Some(Recorder::new(words)),
            ..self
        }
    }

    /// The calls since the last call, if they are recorded.
    pub fn take_recorded(&self) -> Vec<RecordedCall> {
        self.recorder
            .as_ref()
            .map(Recorder::take)
            .unwrap_or_default()
    }

    /// The current time. Unlike [`CallContext::now`], it advances while the request runs.
    pub fn wall_clock(&self) -> Timestamp {
        self.now.plus(self.started.elapsed())
    }

    /// The number of provider calls made so far, retries included.
    pub fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the log should have a warning about this failure: one for each request. The runner
    /// logs those of jobs.
    fn warns_about(&self, error: &Error) -> bool {
        matches!(self.cause, Cause::Request(_))
            && !error.concerns_user()
            && !self.has_warned.swap(true, Ordering::Relaxed)
    }
}

/// A connection that the given credentials cover, as the provider describes it.
#[derive(Debug)]
pub struct FoundConnection {
    /// Unique within the provider.
    pub provider_connection_id: String,
    /// The provider user who gave the consent. Only set if the id is no secret: provider events may
    /// name it.
    pub provider_user_id: Option<String>,
    pub institution_id: String,
    pub institution_name: String,
    pub institution_logo: Option<String>,
    pub consent_status: ConsentStatus,
    /// As [`Consent::expires_at`].
    pub consent_expires_at: Option<Timestamp>,
    /// The credentials of this connection alone, as JSON. The caller seals and stores them.
    pub credentials: SecretString,
}

/// Whether the provider still accepts the credentials of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsentStatus {
    Active,
    /// The consent does not work. Holds the new status of the connection, which is never `active`
    /// or `deleting`.
    Broken(ConnectionStatus),
}

/// What the provider says about the consent of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Consent {
    pub status: ConsentStatus,
    /// When the consent ends unless it is renewed, or when it ended. None if the provider does not
    /// say, or says it in a way that cannot be read.
    pub expires_at: Option<Timestamp>,
}

impl From<ConsentStatus> for Consent {
    /// For a provider whose consents have no known end.
    fn from(status: ConsentStatus) -> Self {
        Self {
            status,
            expires_at: None,
        }
    }
}

/// An account of a connection, as the provider describes it. It never holds the full account
/// number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundAccount {
    pub provider_account_id: String,
    /// The display name, in which account numbers are masked.
    pub name: String,
    pub account_type: AccountType,
    pub number: Option<MaskedNumber>,
    /// None if the provider does not say.
    pub currency: Option<Currency>,
}

/// Selects transactions of one connection.
#[derive(Debug, Clone, Copy)]
pub struct TransactionQuery<'a> {
    /// All accounts of the connection, or the one requested account.
    pub accounts: &'a [Account],
    /// True if `accounts` holds one account out of possibly several. The adapter then requests that
    /// account alone.
    pub one_account: bool,
    /// Days or instants. The adapter may request a wider range, and the caller filters the rows
    /// again.
    pub dates: &'a DateRange,
    /// The user's time zone, in which the days of `dates` begin and end.
    pub zone: &'a TimeZone,
}

impl TransactionQuery<'_> {
    /// The provider's id of the one requested account.
    fn account_id(&self) -> Option<&str> {
        match self.accounts {
            [account] if self.one_account => Some(&account.provider_account_id),
            _ => None,
        }
    }
}

/// Where a page begins and how many rows it should have.
#[derive(Debug, Clone, Copy)]
pub struct PageRequest<'a> {
    /// The end of an earlier page. None begins with the newest row.
    pub cursor: Option<&'a Cursor>,
    /// The size of the page, at most [`Banking::page_rows_max`] or [`Brokerage::trades_rows_max`].
    /// Ignored if the provider has no size parameter.
    pub rows: u32,
}

/// The provider's own position in a list. Opaque; holds no data about rows.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Cursor(pub String);

/// The longest accepted cursor. Cursor indexes keep them in memory. Observed cursors have 128
/// characters (docs/providers/akahu.md#pages).
const CURSOR_BYTES_MAX: usize = 1_024;

impl Cursor {
    /// A cursor as the provider sent it.
    fn sent(text: String) -> Result<Self, Error> {
        if text.len() > CURSOR_BYTES_MAX {
            Err(Error::Malformed("the cursor is too long"))
        } else {
            Ok(Self(text))
        }
    }
}

/// What is known of a list once a page of it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The start of the next page, or none at the end.
    pub next: Option<Cursor>,
    /// The number of rows in the provider's whole list for the query, if it states that.
    pub total: Option<u64>,
}

/// Receives the transactions of a page from an adapter, newest first.
pub type TransactionSink<'s> = dyn for<'row> FnMut(Transaction<'row>) + Send + 's;

/// Selects balances of one connection.
#[derive(Clone, Copy)]
pub struct BalancesQuery<'a> {
    pub credentials: &'a SecretString,
    pub accounts: &'a [Account],
}

/// A provider of accounts and their rows.
///
/// Every method ends before `context.deadline`. The variants of [`Error`] say what a caller can do
/// about a failure.
#[async_trait]
pub trait Provider: Send + Sync {
    /// The short name that the API shows.
    fn name(&self) -> ProviderName;

    /// What the provider serves beyond accounts and balances.
    fn kind(&self) -> Kind<'_>;

    /// Checks that the provider is reachable and accepts the operator's credentials.
    async fn check(&self, context: &CallContext) -> Result<(), Error>;

    /// The connections that `credentials` cover. They are JSON from a consent session or an import,
    /// in the form of docs/provider-setup.md#import-a-connection.
    async fn discover(
        &self,
        context: &CallContext,
        credentials: &SecretString,
    ) -> Result<Vec<FoundConnection>, Error>;

    /// Asks the provider whether the credentials of one connection still work, and until when.
    async fn consent(
        &self,
        context: &CallContext,
        credentials: &SecretString,
    ) -> Result<Consent, Error>;

    async fn accounts(
        &self,
        context: &CallContext,
        credentials: &SecretString,
    ) -> Result<Vec<FoundAccount>, Error>;

    /// The balances of accounts of several connections. The outer list has the order of `queries`,
    /// each inner list that of its `accounts`. The adapter makes as few calls as the provider
    /// allows, all at the same time. One account can fail while others succeed.
    async fn balances(
        &self,
        context: &CallContext,
        queries: &[BalancesQuery<'_>],
    ) -> Vec<Vec<Result<Balance, Error>>>;

    /// Withdraws the user's consent. Idempotent: succeeds if the consent is already gone or the
    /// provider has no revocation.
    async fn withdraw(
        &self,
        context: &CallContext,
        credentials: &SecretString,
    ) -> Result<(), Error>;

    /// The client that makes the calls, which an adapter that makes calls must return: its health,
    /// what it refuses and whether syncs wait come from it. None if they are simulated.
    fn client(&self) -> Option<&Client> {
        None
    }

    /// How the calls so far went.
    fn health(&self) -> ProviderHealth {
        self.client().map(Client::health).unwrap_or_default()
    }

    /// Whether syncs must not begin now: the provider limits the calls of all instances together,
    /// and it is not known how many the others make.
    fn syncs_wait(&self) -> bool {
        self.client().is_some_and(Client::syncs_wait)
    }

    /// How this instance would refuse the first call of a request of this user now, as far as it
    /// knows.
    fn refusal(&self, user: UserId, now: Timestamp) -> Option<Error> {
        self.client()?.refusal(user, now)
    }

    /// Linking in the browser. None if the operator's credentials do not allow it.
    fn linking(&self) -> Option<&dyn Linking> {
        None
    }

    /// Verifies provider events. None if the operator's credentials do not suffice for that.
    fn webhook_verifier(&self) -> Option<&dyn WebhookVerifier> {
        None
    }
}

/// Which category of institutions a provider serves, with the reads of that category.
pub enum Kind<'p> {
    Banking(&'p dyn Banking),
    Brokerage(&'p dyn Brokerage),
}

impl Kind<'_> {
    pub fn category(&self) -> ConnectionCategory {
        match self {
            Self::Banking(_) => ConnectionCategory::Banking,
            Self::Brokerage(_) => ConnectionCategory::Brokerage,
        }
    }
}

/// Reads that banks offer.
#[async_trait]
pub trait Banking: Send + Sync {
    fn page_rows_max(&self) -> u32;

    /// Reads one page of posted transactions and passes each row to `rows` once, newest first. Rows
    /// of one instant keep the provider's order. A page that fails passes no row.
    ///
    /// Rows may lie outside the query's dates. Rows of other accounts, pending rows and rows
    /// without a time are left out. If the provider has no list of several accounts, the adapter
    /// merges the lists of each.
    ///
    /// Returns the start of the next page, or none at the end. The end is that of the provider's
    /// list. If the provider cannot filter by time, it is the first page whose rows all lie before
    /// the dates. A page can be empty without being the last.
    async fn transactions(
        &self,
        context: &CallContext,
        credentials: &SecretString,
        query: &TransactionQuery<'_>,
        page: PageRequest<'_>,
        rows: &mut TransactionSink<'_>,
    ) -> Result<Option<Cursor>, Error>;
}

/// Selects trades of one account.
#[derive(Clone, Copy)]
pub struct TradeQuery<'a> {
    pub account: &'a Account,
    /// Days or instants, either end optional. The adapter may request a wider range, and the caller
    /// filters again.
    pub dates: &'a DateFilter,
    /// The user's time zone, in which the days of `dates` begin and end.
    pub zone: &'a TimeZone,
}

/// Receives the trades of a page from an adapter, newest first, each with its number in the
/// provider's list. Rows that are left out have a number too.
pub type TradeSink<'s> = dyn for<'row> FnMut(u64, Trade<'row>) + Send + 's;

/// Receives the holdings of an account, in the provider's order.
pub type HoldingSink<'s> = dyn for<'row> FnMut(Holding<'row>) + Send + 's;

/// Reads that brokers offer.
#[async_trait]
pub trait Brokerage: Send + Sync {
    /// Reads the holdings of an account and passes each to `rows` once. A call that fails passes
    /// nothing.
    async fn holdings(
        &self,
        context: &CallContext,
        credentials: &SecretString,
        account: &Account,
        rows: &mut HoldingSink<'_>,
    ) -> Result<(), Error>;

    /// The largest number of rows in a page of trades.
    fn trades_rows_max(&self) -> u32;

    /// The cursor of the page that begins at a row, by its number in the provider's list.
    fn trades_cursor(&self, number: u64) -> Cursor;

    /// Reads one page of trades of an account and passes each to `rows` once, newest first. A page
    /// that fails passes no row. Rows may lie outside the query's dates. Rows without a date are
    /// left out.
    async fn trades(
        &self,
        context: &CallContext,
        credentials: &SecretString,
        query: &TradeQuery<'_>,
        page: PageRequest<'_>,
        rows: &mut TradeSink<'_>,
    ) -> Result<Page, Error>;
}
