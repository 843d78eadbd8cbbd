//! Reads the accounts of a request from their providers: balances first, then rows or positions.
//!
//! An account that fails, or is not there in time, is left out and named. Its balance and rows
//! belong together, because a client computes the balance before the first row from both.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::vec;

use bellbird_api::http::problem::problem_for_category;
use bellbird_api::http::{LivePermit, Problem};
use bellbird_domain::date::day_of;
use bellbird_domain::{
    Account, AccountId, Balance, Caller, ConnectionCategory, DateFilter, Holding, Plan,
};
use bellbird_reads::{CallContext, ReadError, Transactions};
use futures_util::future::Shared;
use futures_util::stream::{self, StreamExt as _};
use futures_util::{FutureExt as _, future::BoxFuture};
use jiff::Timestamp;
use tokio::sync::oneshot::{self, error::RecvError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout_at;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::amounts::balance_text;
use super::memory::{Key, KnownHistory};
use super::params::SetParams;
use super::posted::span_until;
use super::view::{RequestedAccount, Rows, SetBalance, write_holding};
use crate::Interop;

/// Accounts of a request that are read at the same time, divided among its providers.
const READS_MAX: usize = 4;
/// JSON of accounts that waits for its turn or for the client, divided among the providers. Beyond
/// this, no other account of the provider is read.
const WAITING_BYTES_MAX: u32 = 16 * 1024 * 1024;
/// After a failure that says nothing else.
const RETRY_AFTER_SECONDS: u64 = 5;
/// Windows that end later are read as they are, because they mostly have rows.
const RECENT_DAYS: i64 = 365;

pub(super) struct AccountsRequest {
    pub(super) interop: Interop,
    pub(super) caller: Caller,
    pub(super) now: Timestamp,
    /// Every read holds it, until the last one has ended.
    pub(super) _permit: LivePermit,
    pub(super) call: CallContext,
    pub(super) params: SetParams,
}

pub(super) struct ReadAccount {
    pub(super) account: Arc<RequestedAccount>,
    pub(super) outcome: Result<AccountJson, Problem>,
}

pub(super) struct AccountJson {
    pub(super) json: Vec<u8>,
    /// The number of rows, if there are more.
    pub(super) cut_at: Option<usize>,
    /// Held until the client has taken the account.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

/// An account with its share of [`WAITING_BYTES_MAX`].
type Waiting = (ReadAccount, OwnedSemaphorePermit);

/// The accounts of a request as they are read. Dropping it ends the reads.
pub(super) struct AccountReads {
    /// In the order of the request.
    reads: vec::IntoIter<oneshot::Receiver<Waiting>>,
    /// One for each provider.
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl AccountReads {
    /// Starts the reads. The providers are read side by side, so that a slow one delays no other.
    pub(super) fn start(request: &Arc<AccountsRequest>, accounts: Vec<RequestedAccount>) -> Self {
        let mut by_provider: BTreeMap<String, Vec<_>> = BTreeMap::new();
        let mut reads = Vec::with_capacity(accounts.len());
        for account in accounts {
            let (sender, read) = oneshot::channel();
            reads.push(read);
            by_provider
                .entry(account.account.provider.clone())
                .or_default()
                .push((Arc::new(account), sender));
        }
        let providers = by_provider.len();
        let tracker = request.interop.context.connections().tasks();
        let start = |accounts| {
            let reads = Arc::clone(request).read_provider(accounts, providers);
            AbortOnDropHandle::new(tracker.spawn(reads.in_current_span()))
        };
        Self {
            reads: reads.into_iter(),
            _tasks: by_provider.into_values().map(start).collect(),
        }
    }

    /// The next account, or `None` after the last. Fails if a read panicked.
    pub(super) async fn next(&mut self) -> Result<Option<ReadAccount>, RecvError> {
        match self.reads.next() {
            Some(read) => Ok(Some(read.await?.0)),
            None => Ok(None),
        }
    }
}

/// The balances of the accounts at one provider. The first account that needs its balance starts
/// the read.
type Balances = Shared<BoxFuture<'static, Arc<BTreeMap<AccountId, Result<SetBalance, Problem>>>>>;

impl AccountsRequest {
    /// Reads the accounts at one of so many providers. If a read panics, the others are not sent.
    async fn read_provider(
        self: Arc<Self>,
        accounts: Vec<(Arc<RequestedAccount>, oneshot::Sender<Waiting>)>,
        providers: usize,
    ) {
        let at_once = (READS_MAX / providers).max(1);
        let room_bytes = WAITING_BYTES_MAX / u32::try_from(providers).unwrap_or(u32::MAX);
        let room = Arc::new(Semaphore::new(room_bytes as usize));
        let accounts: Vec<_> = accounts
            .into_iter()
            .map(|(account, sender)| (self.balance_of_empty_window(&account), account, sender))
            .collect();
        let unknown = accounts.iter().filter(|(known, ..)| known.is_none());
        let unknown = unknown.map(|(_, account, _)| Arc::clone(account)).collect();
        let balances = Arc::clone(&self).read_balances(unknown).boxed().shared();
        let mut reads = stream::iter(accounts)
            .map(|(known, account, sender)| {
                let (request, balances) = (Arc::clone(&self), balances.clone());
                let read = async move {
                    let read = request.read(&account, known, balances);
                    let outcome = timeout_at(request.call.deadline, read).await;
                    ReadAccount {
                        outcome: outcome.unwrap_or_else(|_| Err(unavailable())),
                        account,
                    }
                };
                // A task, so that a client that takes its response slowly neither slows nor holds
                // a response of a provider.
                let read = AbortOnDropHandle::new(tokio::spawn(read.in_current_span()));
                async move { (read.await, sender) }
            })
            .buffered(at_once);
        while let Some((Ok(read), sender)) = reads.next().await {
            let bytes = read
                .outcome
                .as_ref()
                .map_or(0, |account| account.json.len());
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(room_bytes);
            // The semaphore is never closed, and a client that is gone ends this task.
            let Ok(bytes) = Arc::clone(&room).acquire_many_owned(bytes).await else {
                return;
            };
            let _ = sender.send((read, bytes));
        }
    }

    async fn read(
        &self,
        account: &RequestedAccount,
        known: Option<SetBalance>,
        balances: Balances,
    ) -> Result<AccountJson, Problem> {
        let balance = match known {
            Some(balance) => balance,
            None => balances
                .await
                .get(&account.account.id)
                .cloned()
                .unwrap_or_else(|| Err(unavailable()))?,
        };
        let (mut rows, mut holdings, mut room) = (Rows::default(), Vec::new(), None);
        let connection = &account.selected.context.connection;
        match connection.category {
            _ if self.params.balances_only.0 => {}
            ConnectionCategory::Banking => {
                rows = self.read_window(account, &balance, &mut room).await?;
            }
            ConnectionCategory::Brokerage if self.caller.plan == Plan::Professional => {
                holdings = self.read_holdings(account).await?;
                hold(&self.interop.simplefin.json_room, &mut room, holdings.len())?;
            }
            ConnectionCategory::Brokerage => {}
        }
        let root_url = self.interop.simplefin_url();
        let cut_at = rows.is_cut().then(|| rows.len());
        Ok(AccountJson {
            json: account.to_json(&root_url, &balance, &mut rows, &holdings),
            cut_at,
            room,
        })
    }

    /// One call may serve several accounts of a provider.
    async fn read_balances(
        self: Arc<Self>,
        accounts: Vec<Arc<RequestedAccount>>,
    ) -> Arc<BTreeMap<AccountId, Result<SetBalance, Problem>>> {
        let api = &self.interop.context;
        let requested = accounts
            .iter()
            .map(|account| account.account.clone())
            .collect();
        let found = api.balances(&self.call, &self.caller, requested).await;
        let read_at = api.clock().now();
        let view = |(account, read): &(Account, Result<Balance, ReadError>)| match read {
            Ok(balance) => balance_view(balance, account, read_at).ok_or_else(unavailable),
            Err(ReadError::Reconnect(status)) => Err(Problem::reconnect(*status)),
            Err(_) => Err(unavailable()),
        };
        Arc::new(match found {
            Ok(found) => found.iter().map(|read| (read.0.id, view(read))).collect(),
            Err(error) => accounts
                .iter()
                .map(|account| (account.account.id, Err(problem_of(&error))))
                .collect(),
        })
    }

    async fn read_window(
        &self,
        account: &RequestedAccount,
        balance: &SetBalance,
        room: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Rows, Problem> {
        let window = self.params.window();
        if window.is_empty() || self.is_before_first_row(account, balance).await? {
            return Ok(Rows::default());
        }
        self.read_rows(account, window.dates(), room).await
    }

    /// Whether the window ends before the first row of the account. Firefly III asks for an account
    /// from 1970 on, in pieces of 44 days, so the first of them reads all that is older than a
    /// year, to learn the day of the first row.
    async fn is_before_first_row(
        &self,
        account: &RequestedAccount,
        balance: &SetBalance,
    ) -> Result<bool, Problem> {
        let Some(last) = self.params.window().last() else {
            return Ok(false);
        };
        let (memory, key) = (
            &self.interop.simplefin.memory,
            Key::new(&account.account, &self.caller),
        );
        let mut history = memory.histories.get(&key, self.now).map_or_else(
            || KnownHistory {
                oldest: day_of(self.now, &self.caller.timezone)
                    .saturating_sub(jiff::Span::new().days(RECENT_DAYS)),
                is_all: false,
            },
            |(history, _)| history,
        );
        if last >= history.oldest {
            return Ok(false);
        }
        // A balance that came from here stays as old as it is.
        if memory.balances.get(&key, self.now).is_none() {
            memory.balances.insert(key, balance.clone(), self.now);
        }
        if !history.is_all {
            let rows = self
                .read_rows(account, span_until(history.oldest), &mut None)
                .await?;
            let oldest = rows.oldest_day().unwrap_or(history.oldest);
            history = KnownHistory {
                oldest,
                is_all: !rows.is_cut(),
            };
            memory.histories.insert(key, history, self.now);
        }
        Ok(history.has_none_until(last))
    }

    /// The balance that was read recently, if the window is known to have no rows: then no provider
    /// is called.
    fn balance_of_empty_window(&self, account: &RequestedAccount) -> Option<SetBalance> {
        let last = self.params.window().last()?;
        if account.selected.context.connection.category != ConnectionCategory::Banking
            || self.params.balances_only.0
        {
            return None;
        }
        let (memory, key) = (
            &self.interop.simplefin.memory,
            Key::new(&account.account, &self.caller),
        );
        let (history, _) = memory.histories.get(&key, self.now)?;
        if !history.has_none_until(last) {
            return None;
        }
        memory
            .balances
            .get(&key, self.now)
            .map(|(balance, _)| balance)
    }

    /// Reads the rows of these days, newest first, up to the limits of an account.
    async fn read_rows(
        &self,
        account: &RequestedAccount,
        days: DateFilter,
        room: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Rows, Problem> {
        let (context, id) = (&account.selected.context, Some(account.account.id));
        let (api, caller) = (&self.interop.context, &self.caller);
        let range =
            api.reads()
                .range::<Transactions>(caller, Arc::clone(context), id, days, self.now);
        let mut range = range.map_err(|error| problem_of(&error))?;
        let mut rows = Rows::default();
        loop {
            let has_more = match range
                .next_page(&self.call, &mut |row, day| rows.push(row, day))
                .await
            {
                Ok(has_more) => has_more,
                Err(error) => return Err(api.after_failed_read(caller, context, &error).await),
            };
            hold(&self.interop.simplefin.json_room, room, rows.bytes())?;
            if has_more && rows.is_full() {
                rows.set_cut();
            }
            if !has_more || rows.is_full() {
                return Ok(rows);
            }
        }
    }

    /// The positions as JSON.
    async fn read_holdings(&self, account: &RequestedAccount) -> Result<Vec<u8>, Problem> {
        let api = &self.interop.context;
        let read_at = api.clock().now();
        let write = |holding: &Holding<'_>, out: &mut Vec<u8>| write_holding(holding, read_at, out);
        let found = api
            .reads()
            .holdings(&self.call, &account.selected, &write)
            .await;
        match found.map(|mut found| found.pop().map(|(_, holdings)| holdings)) {
            Ok(Some(Ok(holdings))) => Ok(holdings),
            Ok(None) => Err(Problem::NotFound("Account")),
            Ok(Some(Err(error))) | Err(error) => Err(api
                .after_failed_read(&self.caller, &account.selected.context, &error)
                .await),
        }
    }
}

/// Takes room for JSON of this size, or fails: if reads waited for room, they could wait for each
/// other.
fn hold(
    all: &Arc<Semaphore>,
    room: &mut Option<OwnedSemaphorePermit>,
    bytes: usize,
) -> Result<(), Problem> {
    let held = room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
    let missing = u32::try_from(bytes.saturating_sub(held)).unwrap_or(u32::MAX);
    let more = Arc::clone(all)
        .try_acquire_many_owned(missing)
        .map_err(|_| unavailable())?;
    match room {
        Some(room) => room.merge(more),
        None => *room = Some(more),
    }
    Ok(())
}

fn unavailable() -> Problem {
    Problem::unavailable(RETRY_AFTER_SECONDS)
}

pub(super) fn problem_of(error: &ReadError) -> Problem {
    problem_for_category(error, "Account", ConnectionCategory::Banking)
}

/// None if the provider sent no current balance.
fn balance_view(balance: &Balance, account: &Account, read_at: Timestamp) -> Option<SetBalance> {
    Some(SetBalance {
        balance: balance_text(balance.current.as_ref()?),
        available: balance.available.as_ref().map(balance_text),
        currency: balance.currency.unwrap_or(account.currency),
        read_at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_of_all_requests_is_bounded() {
        let (all, mut first, mut second) = (Arc::new(Semaphore::new(10)), None, None);
        for bytes in [6, 6, 8] {
            hold(&all, &mut first, bytes).unwrap();
        }
        assert_eq!(all.available_permits(), 2, "it grows with the rows");
        assert!(hold(&all, &mut second, 3).is_err());
        drop(first);
        hold(&all, &mut second, 3).unwrap();
        assert_eq!(all.available_permits(), 7);
    }
}
