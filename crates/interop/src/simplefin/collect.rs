//! Reads the accounts of one answer from their providers: balances first, then rows, up to four accounts at once.
//!
//! An account that fails, or is not there in time, is left out and named. Its balance and rows belong together: a
//! client computes the balance before the first row from both.
//!
//! The reads are tasks of their own: a client that takes its answer slowly neither slows nor holds a provider's answer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bellbird_api::front::problem::problem_for_category;
use bellbird_api::front::{LivePermit, Problem};
use bellbird_domain::{
    Account, Balance, Caller, Connection, ConnectionCategory, ConnectionId, ConnectionStatus, DateFilter, Holding, Plan,
};
use bellbird_reads::{CallContext, ConnectionContext, ReadError};
use jiff::Timestamp;
use jiff::civil::Date;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tracing::Instrument as _;

use super::SimpleFin;
use super::amounts::balance_text;
use super::findings::Finding;
use super::history;
use super::memory::{Key, Memory};
use super::params::Params;
use super::posted::span_until;
use super::view::{BalanceView, Rows, ShownAccount, write_holding};

/// Accounts whose rows are read at the same time.
const READS_MAX: usize = 4;
/// JSON of accounts that wait for the one before them, or for the client. Beyond this, no other account is read, and
/// the order of accounts is that of their ends.
const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;
/// After a failure that says nothing else.
const RETRY_AFTER_SECONDS: u64 = 5;

/// A requested account.
pub(super) struct Item {
    pub(super) account: Account,
    /// The name to show.
    pub(super) name: String,
    /// Where its connection is in the request's list.
    pub(super) connection: usize,
}

/// What one request asks for.
pub(super) struct Job {
    pub(super) server: SimpleFin,
    pub(super) caller: Caller,
    pub(super) now: Timestamp,
    pub(super) call: CallContext,
    pub(super) params: Params,
    pub(super) connections: Vec<Connection>,
    pub(super) items: Vec<Item>,
}

/// A step of a request. Accounts are named by their place in [`Job::items`].
enum Work {
    /// The balances of accounts at one provider.
    Balances(Vec<usize>),
    Rows(usize, BalanceView),
    /// The positions of accounts of one connection.
    Holdings(Vec<(usize, BalanceView)>),
}

/// What has come of a step.
#[derive(Default)]
struct Done {
    finished: Vec<(usize, Result<ReadAccount, Problem>)>,
    next: Vec<Work>,
}

struct ReadAccount {
    json: Vec<u8>,
    /// The number of rows, if there are more.
    cut_at: Option<usize>,
}

/// What the reads of a request give to its answer. Without an end, the answer is not whole.
pub(super) enum Step {
    /// The JSON of the next account.
    Account(Vec<u8>),
    End(End),
}

pub(super) struct End {
    pub(super) findings: Vec<Finding>,
    /// What to answer if no account can be shown. None if the account set says it: the requested accounts are gone.
    pub(super) problem: Option<Problem>,
}

/// The reads of one request. Dropping it ends them.
pub(super) struct Collector {
    job: Arc<Job>,
    queue: VecDeque<Work>,
    /// With the connection that a read counts for.
    running: JoinSet<(Option<usize>, Done)>,
    /// Reads of rows and positions by connection.
    reads: Vec<usize>,
    unfinished: BTreeSet<usize>,
    waiting: BTreeMap<usize, Vec<u8>>,
    waiting_bytes: usize,
    findings: Vec<Finding>,
    /// Connections that need attention, and were named so.
    named: BTreeSet<ConnectionId>,
    problems: Vec<Problem>,
}

impl Collector {
    pub(super) fn new(job: Job, mut findings: Vec<Finding>) -> Self {
        let mut named = BTreeSet::new();
        for connection in &job.connections {
            if connection.status != ConnectionStatus::Active {
                findings.push(Finding::attention(connection, connection.status));
                named.insert(connection.id);
            }
        }
        let reads = vec![0; job.connections.len()];
        let unfinished = (0..job.items.len()).collect();
        let mut collector = Self {
            job: Arc::new(job),
            queue: VecDeque::new(),
            running: JoinSet::new(),
            reads,
            unfinished,
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            findings,
            named,
            problems: Vec::new(),
        };
        collector.begin();
        collector
    }

    /// Answers what needs no provider, and groups the others by provider, because one call may serve several accounts.
    fn begin(&mut self) {
        let job = Arc::clone(&self.job);
        let mut by_provider: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, item) in job.items.iter().enumerate() {
            match job.known_empty(item) {
                Some(balance) => self.finish_account(at, Ok(job.read_account(at, &balance, &mut Rows::default(), &[]))),
                None => by_provider.entry(&item.account.provider).or_default().push(at),
            }
        }
        self.queue.extend(by_provider.into_values().map(Work::Balances));
    }

    pub(super) fn job(&self) -> &Arc<Job> {
        &self.job
    }

    /// Starts the reads, in a task that ends with its receiver. It holds the request's permit.
    pub(super) fn start(self, permit: LivePermit) -> mpsc::Receiver<Step> {
        let (steps, received) = mpsc::channel(1);
        let tasks = self.job.server.interop.access.connections().tasks().clone();
        let run = async move {
            self.run(&steps).await;
            drop(permit);
        };
        tasks.spawn(run.in_current_span());
        received
    }

    /// Reads on while the client takes what is there.
    async fn run(mut self, steps: &mpsc::Sender<Step>) {
        loop {
            self.start_queued();
            let is_ready = self.is_next_waiting();
            if !is_ready && self.running.is_empty() {
                let end = End { problem: self.problem(), findings: self.findings };
                // Fails if the client is gone.
                let _ = steps.send(Step::End(end)).await;
                return;
            }
            tokio::select! {
                () = steps.closed() => return,
                Some(done) = self.running.join_next() => self.take_done(done),
                Ok(slot) = steps.reserve(), if is_ready => {
                    if let Some(json) = self.take_waiting() {
                        slot.send(Step::Account(json));
                    }
                }
            }
        }
    }

    fn problem(&self) -> Option<Problem> {
        // Actual advises to unlink an account that a set lacks, also one whose user only has to reconnect.
        let is_there = |problem: &&Problem| !matches!(problem, Problem::NotFound(_));
        self.problems.iter().filter(is_there).max_by_key(|problem| problem.retry_after()).cloned()
    }

    fn take_done(&mut self, done: Result<(Option<usize>, Done), JoinError>) {
        let (connection, done) = match done {
            Ok(done) => done,
            // Only the end of this task cancels a read.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        if let Some(connection) = connection {
            self.reads[connection] -= 1;
        }
        self.queue.extend(done.next);
        for (at, outcome) in done.finished {
            self.finish_account(at, outcome);
        }
    }

    fn is_next_waiting(&self) -> bool {
        let Some((first, _)) = self.waiting.first_key_value() else { return false };
        let is_next = self.unfinished.first().is_none_or(|unfinished| first < unfinished);
        is_next || self.waiting_bytes > WAITING_BYTES_MAX
    }

    fn take_waiting(&mut self) -> Option<Vec<u8>> {
        let (_, json) = self.waiting.pop_first()?;
        self.waiting_bytes -= json.len();
        Some(json)
    }

    fn start_queued(&mut self) {
        while let Some(at) = self.next_queued() {
            let Some(work) = self.queue.remove(at) else { return };
            let connection = self.job.connection_of(&work);
            if let Some(connection) = connection {
                self.reads[connection] += 1;
            }
            let job = Arc::clone(&self.job);
            let run = async move { (connection, job.run(work).await) };
            self.running.spawn(run.in_current_span());
        }
    }

    /// The work to start next: of the connection with the fewest reads, so that a slow provider delays no other.
    fn next_queued(&self) -> Option<usize> {
        let has_room = self.reads.iter().sum::<usize>() < READS_MAX && self.waiting_bytes <= WAITING_BYTES_MAX;
        let candidates = self.queue.iter().enumerate().filter_map(|(at, work)| match self.job.connection_of(work) {
            None => Some((0, at)),
            Some(connection) => has_room.then_some((self.reads[connection], at)),
        });
        candidates.min().map(|(_, at)| at)
    }

    fn finish_account(&mut self, at: usize, outcome: Result<ReadAccount, Problem>) {
        self.unfinished.remove(&at);
        let item = &self.job.items[at];
        let connection = &self.job.connections[item.connection];
        match outcome {
            Ok(ReadAccount { json, cut_at }) => {
                if let Some(rows) = cut_at {
                    self.findings.push(Finding::cut(connection, item.account.id, &item.name, rows));
                }
                self.waiting_bytes += json.len();
                self.waiting.insert(at, json);
            }
            Err(problem) => {
                if let Problem::Reconnect(status) = problem
                    && self.named.insert(connection.id)
                {
                    self.findings.push(Finding::attention(connection, status));
                }
                self.findings.push(Finding::failed(connection, item.account.id, &item.name));
                self.problems.push(problem);
            }
        }
    }
}

impl Job {
    /// The connection that the work reads rows or positions of.
    fn connection_of(&self, work: &Work) -> Option<usize> {
        let at = match work {
            Work::Balances(_) => return None,
            Work::Rows(at, _) => *at,
            Work::Holdings(accounts) => accounts.first()?.0,
        };
        Some(self.items[at].connection)
    }

    async fn run(&self, work: Work) -> Done {
        let accounts: Vec<usize> = match &work {
            Work::Balances(accounts) => accounts.clone(),
            Work::Rows(at, _) => vec![*at],
            Work::Holdings(accounts) => accounts.iter().map(|(at, _)| *at).collect(),
        };
        let steps = async {
            match work {
                Work::Balances(accounts) => self.read_balances(accounts).await,
                Work::Rows(at, balance) => self.read_rows(at, &balance).await,
                Work::Holdings(accounts) => self.read_holdings(accounts).await,
            }
        };
        match tokio::time::timeout_at(self.call.deadline, steps).await {
            Ok(done) => done,
            Err(_) => failed(accounts, &Problem::ProviderUnavailable(RETRY_AFTER_SECONDS)),
        }
    }

    async fn read_balances(&self, accounts: Vec<usize>) -> Done {
        let requested = accounts.iter().map(|at| self.items[*at].account.clone()).collect();
        let access = &self.server.interop.access;
        let found = match access.reads().balances(&self.call, &self.caller, requested).await {
            Ok(found) => found,
            Err(error) => return failed(accounts, &problem_of(&error)),
        };
        for connection in &found.broken {
            access.connections().refreshes().run_in_background(self.caller.user_id, *connection);
        }
        let read_at = access.clock().now();
        let (mut done, mut holdings) = (Done::default(), BTreeMap::<usize, Vec<_>>::new());
        for at in accounts {
            let item = &self.items[at];
            let balance = found.balances.iter().find(|(id, _)| *id == item.account.id);
            let balance = balance.and_then(|(_, balance)| balance.as_ref());
            let Some(balance) = balance.and_then(|balance| balance_view(balance, &item.account, read_at)) else {
                done.finished.push((at, Err(self.problem_of_balance(item, &found.broken))));
                continue;
            };
            let category = self.connections[item.connection].category;
            match category {
                _ if self.params.is_balances_only => done.finished.push((at, Ok(self.without_rows(at, &balance)))),
                ConnectionCategory::Banking => done.next.push(Work::Rows(at, balance)),
                ConnectionCategory::Brokerage if self.caller.plan == Plan::Professional => {
                    holdings.entry(item.connection).or_default().push((at, balance));
                }
                ConnectionCategory::Brokerage => done.finished.push((at, Ok(self.without_rows(at, &balance)))),
            }
        }
        done.next.extend(holdings.into_values().map(Work::Holdings));
        done
    }

    fn problem_of_balance(&self, item: &Item, broken: &[ConnectionId]) -> Problem {
        let connection = &self.connections[item.connection];
        if broken.contains(&connection.id) {
            return Problem::Reconnect(match connection.status {
                ConnectionStatus::Active => ConnectionStatus::Invalidated,
                status => status,
            });
        }
        Problem::ProviderUnavailable(RETRY_AFTER_SECONDS)
    }

    async fn read_rows(&self, at: usize, balance: &BalanceView) -> Done {
        let outcome = match self.rows_of(at, balance).await {
            Ok(mut rows) => Ok(self.read_account(at, balance, &mut rows, &[])),
            Err(problem) => Err(problem),
        };
        Done { finished: vec![(at, outcome)], next: Vec::new() }
    }

    /// Reads the rows of the window, unless it is known that there are none.
    async fn rows_of(&self, at: usize, balance: &BalanceView) -> Result<Rows, Problem> {
        let (window, account) = (&self.params.window, &self.items[at].account);
        if window.is_empty() {
            return Ok(Rows::default());
        }
        let (memory, key) = (self.memory(), Key::new(account, &self.caller));
        let known = memory.history(key, self.now);
        let plan = known.plan(window.last(), self.today());
        if !matches!(plan, history::Plan::Read) {
            // A client reads the windows of the far past one after another.
            memory.set_balance(key, balance.clone(), self.now);
        }
        match plan {
            history::Plan::Empty => return Ok(Rows::default()),
            history::Plan::Probe(to) => {
                let probed = self.read_span(at, span_until(to), Some(1)).await?;
                let learned = known.learn(to, probed.newest_day());
                // A page without rows that is not the last one says nothing.
                if probed.len() > 0 || !probed.is_cut() {
                    memory.set_history(key, learned, self.now);
                }
                if learned.plan(window.last(), self.today()) == history::Plan::Empty && !probed.is_cut() {
                    return Ok(Rows::default());
                }
            }
            history::Plan::Read => {}
        }
        self.read_span(at, window.span(), None).await
    }

    /// Reads all rows of these days, or one page of about this many rows.
    async fn read_span(&self, at: usize, span: DateFilter, page_rows: Option<u32>) -> Result<Rows, Problem> {
        let item = &self.items[at];
        let context = self.context(item).await?;
        let walk = self.server.interop.access.reads().transaction_range(
            &self.caller,
            Arc::clone(&context),
            Some(item.account.id),
            span,
            self.now,
        );
        let mut walk = walk.map_err(|error| problem_of(&error))?;
        if let Some(rows) = page_rows {
            walk = walk.with_first_page_rows(rows);
        }
        let mut rows = Rows::default();
        loop {
            let page = walk.next_page(&self.call, &mut |row, day| rows.keep(row, day)).await;
            match page {
                Ok(false) => return Ok(rows),
                Ok(true) if page_rows.is_some() || rows.is_full() => {
                    rows.set_cut();
                    return Ok(rows);
                }
                Ok(true) => {}
                Err(error) => return Err(self.after_failed_read(&context, &error).await),
            }
        }
    }

    async fn read_holdings(&self, accounts: Vec<(usize, BalanceView)>) -> Done {
        let places: Vec<usize> = accounts.iter().map(|(at, _)| *at).collect();
        let Some(first) = places.first() else { return Done::default() };
        let context = match self.context(&self.items[*first]).await {
            Ok(context) => context,
            Err(problem) => return failed(places, &problem),
        };
        let access = &self.server.interop.access;
        let read_at = access.clock().now();
        let write = |holding: &Holding<'_>, out: &mut Vec<u8>| write_holding(holding, read_at, out);
        let ids: Vec<_> = places.iter().map(|at| self.items[*at].account.id).collect();
        let found = match access.reads().holdings_of(&self.call, &context, &ids, &write).await {
            Ok(found) => found,
            Err(error) => return failed(places, &self.after_failed_read(&context, &error).await),
        };
        let mut done = Done::default();
        for (at, balance) in accounts {
            let id = self.items[at].account.id;
            let outcome = match found.iter().find(|(found, _)| *found == id).map(|(_, outcome)| outcome) {
                Some(Ok(holdings)) => Ok(self.read_account(at, &balance, &mut Rows::default(), holdings)),
                Some(Err(error)) => Err(self.after_failed_read(&context, error).await),
                None => Err(Problem::NotFound("Account")),
            };
            done.finished.push((at, outcome));
        }
        done
    }

    async fn context(&self, item: &Item) -> Result<Arc<ConnectionContext>, Problem> {
        let connection = item.account.connection_id;
        let context = self.server.interop.access.reads().connection_context(&self.caller, connection).await;
        context.map_err(|error| problem_of(&error))
    }

    async fn after_failed_read(&self, context: &ConnectionContext, error: &ReadError) -> Problem {
        self.server.interop.access.after_failed_read(&self.caller, context, error).await
    }

    /// The balance of an account that was read lately, if the window is known to have no rows.
    fn known_empty(&self, item: &Item) -> Option<BalanceView> {
        if self.connections[item.connection].category != ConnectionCategory::Banking || self.params.is_balances_only {
            return None;
        }
        let key = Key::new(&item.account, &self.caller);
        let known = self.memory().history(key, self.now);
        if known.plan(self.params.window.last(), self.today()) != history::Plan::Empty {
            return None;
        }
        self.memory().balance(key, self.now)
    }

    fn memory(&self) -> &Memory {
        &self.server.interop.simplefin
    }

    /// In the user's timezone.
    fn today(&self) -> Date {
        self.caller.timezone.to_datetime(self.now).date()
    }

    fn without_rows(&self, at: usize, balance: &BalanceView) -> ReadAccount {
        self.read_account(at, balance, &mut Rows::default(), &[])
    }

    fn read_account(&self, at: usize, balance: &BalanceView, rows: &mut Rows, holdings: &[u8]) -> ReadAccount {
        let Item { account, name, connection } = &self.items[at];
        let (connection, root_url) = (&self.connections[*connection], self.server.inner.root_url.as_str());
        let shown = ShownAccount { account, name, connection, root_url, balance };
        ReadAccount { json: shown.to_json(rows, holdings), cut_at: rows.is_cut().then(|| rows.len()) }
    }
}

fn failed(accounts: Vec<usize>, problem: &Problem) -> Done {
    let finished = accounts.into_iter().map(|at| (at, Err(problem.clone()))).collect();
    Done { finished, next: Vec::new() }
}

fn problem_of(error: &ReadError) -> Problem {
    problem_for_category(error, "Account", ConnectionCategory::Banking)
}

/// None if the provider sent no current balance.
fn balance_view(balance: &Balance, account: &Account, read_at: Timestamp) -> Option<BalanceView> {
    let currency = balance.currency.as_ref().unwrap_or(&account.currency);
    Some(BalanceView {
        balance: balance_text(balance.current.as_ref()?),
        available: balance.available.as_ref().map(balance_text),
        currency: currency.as_str().to_owned(),
        read_at,
    })
}
