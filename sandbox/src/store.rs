//! The store that every provider has: accounts and their rows. Most rows are drawn from the world;
//! the others are kept as a test sent them.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::digest::{Digest, SHA512, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::members::Members;
use crate::refused::Refused;
use crate::state::VERSION;

/// The range of row numbers that each account reserves.
pub(crate) const NUMBERS_PER_ACCOUNT: u64 = 1 << 32;

/// A row of the world. Its number is unique in the world, and stable for a seed.
pub(crate) trait Numbered: Clone {
    fn number(&self) -> u64;
    fn set_number(&mut self, number: u64);
    /// When it was settled, in Unix milliseconds. None: it does not occur again.
    fn repeats_from(&self) -> Option<i64> {
        None
    }
    /// The same row, this much later.
    fn later(&self, _ms: i64) -> Self {
        self.clone()
    }
}

/// Four weeks, so that days of the week stay.
const PERIOD_MS: i64 = 28 * 86_400_000;

/// How a provider names, orders and writes its rows.
pub(crate) trait Protocol: Sized + 'static {
    type Row: Numbered + Serialize + DeserializeOwned + Send + Sync;
    /// What the provider keeps with an account.
    type Account: Clone + Serialize + DeserializeOwned + Send + Sync;
    /// What the provider keeps besides accounts.
    type State: Clone + Serialize + DeserializeOwned + Send + Sync;
    /// The field with the id of a row.
    const ROW_ID: &'static str;

    /// The id of a drawn row.
    fn row_id(seed: u64, number: u64) -> String;
    /// Whether a drawn row has this id, without building it for every row of a search.
    fn is_row_id(id: &str, seed: u64, number: u64) -> bool;
    /// Group and time, by which rows are ordered.
    fn place(row: &Self::Row) -> (u8, Option<i64>);
    fn place_given(row: &Members) -> (u8, Option<i64>);
    fn write(out: &mut Vec<u8>, row: &Self::Row, store: &Store<Self>, account: &Account<Self>);
    /// The id of the account that an added row names.
    fn account_of(row: &mut Members) -> Option<String>;
    /// Sets the fields that a test left out of a new row.
    fn complete(
        row: &mut Members,
        id: &str,
        store: &Store<Self>,
        account: &Account<Self>,
        now: Timestamp,
    );
    /// Sets the fields that every change of a row sets.
    fn complete_change(_: &mut Members, _: Timestamp) {}
    fn is_account(account: &Account<Self>, id: &str) -> bool {
        account.id == id
    }
}

/// A row's position in the order. It compares field by field, and the smaller position is newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) group: u8,
    /// The time with its bits inverted, so that newer is smaller.
    major: i64,
    /// Of rows of one time the last added comes first, which is a sandbox choice at every provider.
    minor: u64,
    /// Empty pages served at this position, so that each gets its own cursor; 0 for every row.
    empty_pages: u8,
}

impl Position {
    pub(crate) const START: Self = Self::ordered(0);

    const fn new((group, at): (u8, Option<i64>), number: u64) -> Self {
        let major = match at {
            Some(at) => !at,
            None => i64::MIN,
        };
        Self {
            group,
            major,
            minor: u64::MAX - number,
            empty_pages: 0,
        }
    }

    /// The position of an item that has no time.
    pub(crate) const fn ordered(minor: u64) -> Self {
        Self {
            group: 0,
            major: i64::MIN,
            minor,
            empty_pages: 0,
        }
    }

    /// The time of the row, in the provider's unit.
    pub(crate) fn at(self) -> Option<i64> {
        (self.major != i64::MIN).then_some(!self.major)
    }

    /// The same position, one empty page later.
    pub(crate) const fn after_empty_page(self) -> Self {
        Self {
            empty_pages: self.empty_pages.wrapping_add(1),
            ..self
        }
    }

    /// A cursor for this position in the rows of a query, with a tag, so that a damaged one and one
    /// of another query are rejected. The tag has no key.
    pub(crate) fn to_cursor(self, query: &[u8]) -> String {
        let mut bytes = vec![self.group, self.empty_pages];
        bytes.extend_from_slice(&self.major.to_be_bytes());
        bytes.extend_from_slice(&self.minor.to_be_bytes());
        bytes.extend_from_slice(tag(&bytes, query).as_ref());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    pub(crate) fn of_cursor(text: &str, query: &[u8]) -> Option<Self> {
        let all = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (bytes, tagged) = all.split_at_checked(18)?;
        let (major, minor) = bytes[2..].split_first_chunk::<8>()?;
        let position = Self {
            group: bytes[0],
            empty_pages: bytes[1],
            major: i64::from_be_bytes(*major),
            minor: u64::from_be_bytes(minor.try_into().ok()?),
        };
        (tag(bytes, query).as_ref() == tagged).then_some(position)
    }
}

fn tag(position: &[u8], query: &[u8]) -> Digest {
    digest(&SHA512, &[position, query].concat())
}

/// A row of an account.
pub(crate) struct Entry<P: Protocol> {
    pub(crate) position: Position,
    pub(crate) body: Body<P::Row>,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Body<R> {
    /// Written from the world on each read.
    Drawn(R),
    /// As a test sent it.
    Given(Members),
}

/// The number of the row, and the row.
impl<P: Protocol> Serialize for Entry<P> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.number(), &self.body).serialize(serializer)
    }
}

impl<'de, P: Protocol> Deserialize<'de> for Entry<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (number, body) = <(u64, Body<P::Row>)>::deserialize(deserializer)?;
        Ok(match body {
            Body::Drawn(row) => Self::drawn(row),
            Body::Given(row) => Self::given(row, number),
        })
    }
}

impl<P: Protocol> Entry<P> {
    pub(crate) fn drawn(row: P::Row) -> Self {
        Self {
            position: Position::new(P::place(&row), row.number()),
            body: Body::Drawn(row),
        }
    }

    pub(crate) fn given(row: Members, number: u64) -> Self {
        Self {
            position: Position::new(P::place_given(&row), number),
            body: Body::Given(row),
        }
    }

    pub(crate) const fn number(&self) -> u64 {
        u64::MAX - self.position.minor
    }

    pub(crate) fn has_id(&self, id: &str, seed: u64) -> bool {
        match &self.body {
            Body::Drawn(row) => P::is_row_id(id, seed, row.number()),
            Body::Given(row) => row.text(P::ROW_ID).as_deref() == Some(id),
        }
    }

    pub(crate) fn id(&self, seed: u64) -> Option<String> {
        match &self.body {
            Body::Drawn(row) => Some(P::row_id(seed, row.number())),
            Body::Given(row) => row.text(P::ROW_ID),
        }
    }

    /// Converts the row to an object that can be changed.
    pub(crate) fn members(&self, store: &Store<P>, account: &Account<P>) -> Members {
        match &self.body {
            Body::Given(row) => row.clone(),
            Body::Drawn(_) => {
                let mut out = Vec::new();
                self.write(&mut out, store, account);
                Members::parse(&out).expect("our own rows are JSON objects")
            }
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>, store: &Store<P>, account: &Account<P>) {
        match &self.body {
            Body::Drawn(row) => P::write(out, row, store, account),
            Body::Given(row) => row.write(out),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Account<P: Protocol> {
    pub(crate) id: String,
    /// In the provider's own shape.
    pub(crate) members: Members,
    /// Sorted by position.
    pub(crate) entries: Vec<Entry<P>>,
    pub(crate) order: u64,
    next_row: u64,
    /// What only this provider keeps.
    pub(crate) own: P::Account,
}

impl<P: Protocol> Deref for Account<P> {
    type Target = P::Account;
    fn deref(&self) -> &P::Account {
        &self.own
    }
}

impl<P: Protocol> DerefMut for Account<P> {
    fn deref_mut(&mut self) -> &mut P::Account {
        &mut self.own
    }
}

impl<P: Protocol> Account<P> {
    /// An account without members or rows.
    pub(crate) fn new(id: String, order: u64, own: P::Account) -> Self {
        Self {
            id,
            members: Members::default(),
            entries: Vec::new(),
            order,
            next_row: 0,
            own,
        }
    }

    fn without_rows(&self) -> Self {
        Self {
            members: self.members.clone(),
            ..Self::new(self.id.clone(), self.order, self.own.clone())
        }
    }

    pub(crate) const fn first_number(&self) -> u64 {
        self.order * NUMBERS_PER_ACCOUNT
    }

    /// Reserves a row number.
    pub(crate) const fn take_number(&mut self) -> u64 {
        self.take_numbers(1)
    }

    /// Reserves `count` row numbers and returns the first.
    pub(crate) const fn take_numbers(&mut self, count: u64) -> u64 {
        self.next_row += count;
        self.first_number() + self.next_row - count
    }

    /// Replaces all rows with drawn ones, whose numbers move to the range of the account.
    pub(crate) fn set_rows(&mut self, rows: Vec<P::Row>) {
        let first = self.first_number();
        let entry = |mut row: P::Row| {
            row.set_number(first + row.number() % NUMBERS_PER_ACCOUNT);
            Entry::drawn(row)
        };
        self.set_entries(rows.into_iter().map(entry).collect());
    }

    pub(crate) fn set_entries(&mut self, mut entries: Vec<Entry<P>>) {
        entries.sort_unstable_by_key(|entry| entry.position);
        let last = entries.iter().map(Entry::number).max();
        let used = last.map_or(0, |last| last - self.first_number() + 1);
        self.next_row = self.next_row.max(used);
        self.entries = entries;
    }

    /// The drawn rows that occur again, with their times.
    fn repeating(&self) -> impl Iterator<Item = (i64, &P::Row)> {
        self.entries.iter().filter_map(|entry| match &entry.body {
            Body::Drawn(row) => Some((row.repeats_from()?, row)),
            Body::Given(_) => None,
        })
    }

    pub(crate) fn insert(&mut self, entry: Entry<P>) {
        let index = self
            .entries
            .partition_point(|known| known.position <= entry.position);
        self.entries.insert(index, entry);
    }
}

/// A store at a time, without its rows.
pub(crate) struct Moment<P: Protocol> {
    pub(crate) at: Timestamp,
    pub(crate) store: Arc<Store<P>>,
    writes: u64,
}

/// A store that all calls share.
pub(crate) struct SharedStore<P: Protocol> {
    store: RwLock<Store<P>>,
    /// How often it may have changed.
    writes: AtomicU64,
}

impl<P: Protocol> SharedStore<P> {
    pub(crate) const fn new(store: Store<P>) -> Self {
        Self {
            store: RwLock::new(store),
            writes: AtomicU64::new(0),
        }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Store<P>> {
        self.store.read()
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Store<P>> {
        let store = self.store.write();
        self.writes.fetch_add(1, Ordering::Relaxed);
        store
    }

    /// The store at this time. If nobody has changed it since `before`, it is not copied again.
    pub(crate) fn moment(&self, at: Timestamp, before: Option<&Moment<P>>) -> Moment<P> {
        let store = self.store.read();
        let writes = self.writes.load(Ordering::Relaxed);
        let unchanged = before.filter(|before| before.writes == writes);
        let store = match unchanged {
            Some(before) => Arc::clone(&before.store),
            None => Arc::new(store.without_rows()),
        };
        Moment { at, store, writes }
    }
}

/// A row that was added, changed or removed.
pub(crate) struct RowChange {
    pub(crate) account_id: String,
    pub(crate) row_id: String,
    pub(crate) removed: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Store<P: Protocol> {
    version: u32,
    pub(crate) seed: u64,
    pub(crate) accounts: Vec<Account<P>>,
    /// Since the last comparison for webhooks.
    #[serde(skip)]
    pub(crate) row_changes: Vec<RowChange>,
    pub(crate) next_order: u64,
    /// What only this provider keeps.
    pub(crate) state: P::State,
}

impl<P: Protocol> Deref for Store<P> {
    type Target = P::State;
    fn deref(&self) -> &P::State {
        &self.state
    }
}

impl<P: Protocol> DerefMut for Store<P> {
    fn deref_mut(&mut self) -> &mut P::State {
        &mut self.state
    }
}

impl<P: Protocol> Store<P> {
    /// Adds the rows since the newest one, so that rows end today however old the state is: what
    /// happened four weeks before happens again. Balances stay. Returns whether there are any.
    pub(crate) fn repeat_rows(&mut self, now: Timestamp) -> bool {
        let now = now.as_millisecond();
        let newest = |account: &Account<P>| account.repeating().map(|(at, _)| at).max();
        let Some(newest_of_all) = self.accounts.iter().filter_map(newest).max() else {
            return false;
        };
        let mut is_changed = false;
        for account in &mut self.accounts {
            // Nothing has happened on an older one for long, as on one that was closed.
            let Some(newest) = newest(account).filter(|at| *at > newest_of_all - PERIOD_MS) else {
                continue;
            };
            let mut added = Vec::new();
            for (at, row) in account
                .repeating()
                .filter(|(at, _)| *at > newest - PERIOD_MS)
            {
                let mut later = PERIOD_MS;
                while at + later <= now {
                    added.push((at + later, row.later(later)));
                    later += PERIOD_MS;
                }
            }
            added.sort_by_key(|(at, row)| (*at, row.number()));
            is_changed |= !added.is_empty();
            for (_, mut row) in added {
                row.set_number(account.take_number());
                account.insert(Entry::drawn(row));
            }
        }
        is_changed
    }

    fn without_rows(&self) -> Self {
        let accounts = self.accounts.iter().map(Account::without_rows);
        Self {
            accounts: accounts.collect(),
            ..Self::empty(self.seed, self.state.clone())
        }
    }

    pub(crate) const fn empty(seed: u64, state: P::State) -> Self {
        Self {
            version: VERSION,
            seed,
            accounts: Vec::new(),
            row_changes: Vec::new(),
            next_order: 1,
            state,
        }
    }

    /// The next place in the order of items, after all others.
    pub(crate) const fn take_order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order - 1
    }

    pub(crate) fn push(&mut self, account: Account<P>) -> &mut Account<P> {
        self.accounts.push(account);
        self.accounts.last_mut().expect("one was pushed just now")
    }

    /// An account of any user.
    pub(crate) fn account_mut(&mut self, id: &str) -> Result<&mut Account<P>, Refused> {
        let mut accounts = self.accounts.iter_mut();
        accounts
            .find(|account| P::is_account(account, id))
            .ok_or_else(|| Refused::unknown("account", id))
    }

    /// Merges fields into an account.
    pub(crate) fn change_account(&mut self, id: &str, given: Members) -> Result<Members, Refused> {
        let account = self.account_mut(id)?;
        account.members.merge(given);
        Ok(account.members.clone())
    }

    /// Whether no account has the id of a new one.
    pub(crate) fn check_new_account(&self, id: &str) -> Result<(), Refused> {
        if self.accounts.iter().any(|account| account.id == id) {
            return Err(format!("there is an account {id:?} already").into());
        }
        Ok(())
    }

    /// The index of the account and of the row within it.
    fn find_row(&self, id: &str) -> Option<(usize, usize)> {
        let mut accounts = self.accounts.iter().enumerate();
        accounts.find_map(|(account, held)| {
            let mut entries = held.entries.iter();
            Some((
                account,
                entries.position(|entry| entry.has_id(id, self.seed))?,
            ))
        })
    }

    /// Adds a row with the fields that it lacks.
    pub(crate) fn add_row(&mut self, mut row: Members, now: Timestamp) -> Result<Members, Refused> {
        let account_id = P::account_of(&mut row).ok_or("the id of an account is needed")?;
        if let Some(id) = row.text(P::ROW_ID)
            && self.find_row(&id).is_some()
        {
            return Err(format!("there is a row {id:?} already").into());
        }
        let mut accounts = self.accounts.iter();
        let index = accounts
            .position(|account| P::is_account(account, &account_id))
            .ok_or_else(|| Refused::unknown("account", &account_id))?;
        let number = self.accounts[index].take_number();
        let id = P::row_id(self.seed, number);
        P::complete(&mut row, &id, self, &self.accounts[index], now);
        self.accounts[index].insert(Entry::given(row.clone(), number));
        self.log(index, row.text(P::ROW_ID), false);
        Ok(row)
    }

    /// Merges fields into a row and moves it to its new position.
    pub(crate) fn change_row(&mut self, id: &str, given: Members) -> Result<Members, Refused> {
        let (index, at) = self
            .find_row(id)
            .ok_or_else(|| Refused::unknown("row", id))?;
        let (account, entry) = (&self.accounts[index], &self.accounts[index].entries[at]);
        let (mut row, number) = (entry.members(self, account), entry.number());
        row.merge(given);
        let account = &mut self.accounts[index];
        account.entries.remove(at);
        account.insert(Entry::given(row.clone(), number));
        self.log(index, row.text(P::ROW_ID), false);
        Ok(row)
    }

    pub(crate) fn remove_row(&mut self, id: &str) -> Result<(), Refused> {
        let (index, at) = self
            .find_row(id)
            .ok_or_else(|| Refused::unknown("row", id))?;
        self.accounts[index].entries.remove(at);
        self.log(index, Some(id.to_owned()), true);
        Ok(())
    }

    fn log(&mut self, account: usize, row_id: Option<String>, removed: bool) {
        self.row_changes.push(RowChange {
            account_id: self.accounts[account].id.clone(),
            row_id: row_id.unwrap_or_default(),
            removed,
        });
    }
}
