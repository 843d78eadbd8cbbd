//! Everything the pretended SnapTrade remembers.

use jiff::{SignedDuration, Timestamp, civil};
use serde_json::value::RawValue;

use super::Key;
use super::entries::{Entry, Names};
use super::instruments::Instruments;
use crate::members::Members;
use crate::world::brokerage::Broker;

/// How long a deletion takes on the sandbox's clock. That it takes a while is known, how long is not
/// (docs/providers/snaptrade.md#sandbox-choices).
const DELETION: SignedDuration = SignedDuration::from_secs(1);
/// Each account has room for this many rows in the numbers of rows.
pub(super) const NUMBERS_PER_ACCOUNT: u64 = 1 << 32;

/// The memory of the provider.
pub(super) struct Store {
    pub(super) seed: u64,
    pub(super) today: civil::Date,
    pub(super) instruments: Instruments,
    users: Vec<User>,
    pub(super) connections: Vec<Connection>,
    pub(super) accounts: Vec<Account>,
    numbers: u64,
}

/// A user of a key.
pub(super) struct User {
    /// Unlike any other's, also when an id comes back after a deletion.
    pub(super) number: u64,
    pub(super) key: Key,
    pub(super) id: String,
    pub(super) secret: String,
    /// As the control interface wants it: the credentials are refused.
    pub(super) revoked: bool,
    deleted_at: Option<Timestamp>,
}

/// A login at a broker.
pub(super) struct Connection {
    pub(super) id: String,
    /// The user's number.
    pub(super) user: u64,
    pub(super) broker: &'static Broker,
    pub(super) name: String,
    pub(super) trading: bool,
    /// The user name at the broker; `None` where a test made the connection.
    pub(super) login: Option<String>,
    pub(super) created_at: Timestamp,
    pub(super) disabled_at: Option<Timestamp>,
    /// How often it was made to work, also when it did.
    pub(super) reactivations: u64,
    /// The last time that a refresh was asked for.
    pub(super) refreshed_at: Option<Timestamp>,
    /// Whether there is ready-made credentials.
    pub(super) is_listed: bool,
    deleted_at: Option<Timestamp>,
}

/// An account with what is on it.
pub(super) struct Account {
    pub(super) id: String,
    pub(super) connection_id: String,
    /// In the form of `GET /accounts`.
    pub(super) members: Members,
    /// An array.
    pub(super) balances: Box<RawValue>,
    pub(super) positions: Vec<Position>,
    /// Sorted by place.
    pub(super) entries: Vec<Entry>,
    /// Grows with every change to the rows.
    pub(super) row_changes: u64,
    /// Grows with every change to positions and balances.
    pub(super) holding_changes: u64,
    /// When positions were last fetched from the broker.
    pub(super) as_of: Timestamp,
    pub(super) institution: &'static str,
    /// Whether its owner shares it.
    pub(super) shared: bool,
    order: u64,
    next_row: u64,
}

/// Something held.
pub(super) struct Position {
    /// `instrument.id`, empty when it has none.
    pub(super) instrument_id: String,
    pub(super) members: Members,
}

impl Store {
    pub(super) fn empty(seed: u64, today: civil::Date) -> Self {
        let instruments = Instruments::new(seed, today);
        Self { seed, today, instruments, users: vec![], connections: vec![], accounts: vec![], numbers: 0 }
    }

    const fn take_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// The users of a key that are there.
    pub(super) fn users(&self, key: Key, now: Timestamp) -> impl Iterator<Item = &User> {
        self.users.iter().filter(move |user| user.key == key && exists_at(user.deleted_at, now))
    }

    pub(super) fn user_mut(&mut self, key: Key, id: &str, now: Timestamp) -> Option<&mut User> {
        self.users.iter_mut().find(|user| user.key == key && user.id == id && exists_at(user.deleted_at, now))
    }

    /// A new user; returns the number.
    pub(super) fn add_user(&mut self, key: Key, id: &str, secret: String) -> u64 {
        let number = self.take_number();
        self.users.push(User { number, key, id: id.to_owned(), secret, revoked: false, deleted_at: None });
        number
    }

    /// Whether the user of that number is there.
    pub(super) fn has_user(&self, number: u64, now: Timestamp) -> bool {
        self.users.iter().any(|user| user.number == number && !user.revoked && exists_at(user.deleted_at, now))
    }

    /// Deletes a user, a little later, with all connections.
    pub(super) fn delete_user(&mut self, number: u64, now: Timestamp) {
        let then = now.saturating_add(DELETION).unwrap_or(Timestamp::MAX);
        for user in self.users.iter_mut().filter(|user| user.number == number) {
            user.deleted_at = Some(then);
        }
        for connection in self.connections.iter_mut().filter(|connection| connection.user == number) {
            connection.deleted_at.get_or_insert(then);
        }
    }

    /// The connections of a user, in the order in which they were made.
    pub(super) fn connections_of(&self, user: u64, now: Timestamp) -> impl Iterator<Item = &Connection> {
        self.connections.iter().filter(move |connection| connection.user == user && connection.exists(now))
    }

    pub(super) fn connection(&self, user: u64, id: &str, now: Timestamp) -> Option<&Connection> {
        self.connections_of(user, now).find(|connection| connection.id == id)
    }

    pub(super) fn connection_mut(&mut self, user: u64, id: &str, now: Timestamp) -> Option<&mut Connection> {
        let mut all = self.connections.iter_mut();
        all.find(|connection| connection.user == user && connection.id == id && connection.exists(now))
    }

    /// The accounts of a user, or of one connection.
    pub(super) fn accounts_of<'a>(
        &'a self,
        user: u64,
        connection: Option<&'a str>,
        now: Timestamp,
    ) -> impl Iterator<Item = &'a Account> {
        self.connections_of(user, now)
            .filter(move |held| connection.is_none_or(|id| held.id == id))
            .flat_map(|held| self.accounts.iter().filter(|account| account.connection_id == held.id && account.shared))
    }

    pub(super) fn account(&self, user: u64, id: &str, now: Timestamp) -> Option<&Account> {
        let account = self.accounts.iter().find(|account| account.id == id && account.shared)?;
        self.connection(user, &account.connection_id, now).map(|_| account)
    }

    /// What an account's rows are written with.
    pub(super) const fn names<'a>(&'a self, account: &'a Account) -> Names<'a> {
        Names { seed: self.seed, instruments: &self.instruments, institution: account.institution }
    }

    /// A new account without anything on it, at the end of the lists.
    pub(super) fn add_account(
        &mut self,
        connection_id: &str,
        id: String,
        members: Members,
        now: Timestamp,
    ) -> &mut Account {
        let order = self.take_number();
        let connection = self.connections.iter().find(|connection| connection.id == connection_id);
        self.accounts.push(Account {
            id,
            connection_id: connection_id.to_owned(),
            members,
            balances: RawValue::from_string("[]".to_owned()).expect("an empty array is JSON"),
            positions: Vec::new(),
            entries: Vec::new(),
            row_changes: 0,
            holding_changes: 0,
            as_of: now,
            institution: connection.map_or("", |connection| connection.broker.name),
            shared: true,
            order,
            next_row: 0,
        });
        self.accounts.last_mut().expect("one was just added")
    }
}

/// True before the end.
fn exists_at(deleted_at: Option<Timestamp>, now: Timestamp) -> bool {
    deleted_at.is_none_or(|at| now < at)
}

impl Connection {
    pub(super) fn new(id: String, user: u64, broker: &'static Broker, name: String, created_at: Timestamp) -> Self {
        Self {
            id,
            user,
            broker,
            name,
            trading: false,
            login: None,
            created_at,
            disabled_at: None,
            reactivations: 0,
            refreshed_at: None,
            is_listed: false,
            deleted_at: None,
        }
    }

    pub(super) fn exists(&self, now: Timestamp) -> bool {
        exists_at(self.deleted_at, now)
    }

    /// It and its accounts are gone from now on.
    pub(super) const fn delete_now(&mut self, now: Timestamp) {
        self.deleted_at = Some(now);
    }

    /// It is gone a little later.
    pub(super) fn delete(&mut self, now: Timestamp) {
        self.deleted_at = Some(now.saturating_add(DELETION).unwrap_or(Timestamp::MAX));
    }

    /// It works, whatever it was before.
    pub(super) const fn reactivate(&mut self) {
        (self.disabled_at, self.deleted_at) = (None, None);
        self.reactivations += 1;
    }
}

impl Account {
    /// The number of the account's first row.
    pub(super) const fn first_number(&self) -> u64 {
        self.order * NUMBERS_PER_ACCOUNT
    }

    /// A number for a row that is new.
    pub(super) const fn take_number(&mut self) -> u64 {
        self.next_row += 1;
        self.first_number() + self.next_row - 1
    }

    /// Puts these rows in the place of all others.
    pub(super) fn replace(&mut self, mut entries: Vec<Entry>) {
        entries.sort_unstable_by_key(Entry::position);
        self.next_row = self.next_row.max(entries.len() as u64);
        self.entries = entries;
    }

    pub(super) fn insert(&mut self, entry: Entry) {
        let index = self.entries.partition_point(|known| known.position() <= entry.position());
        self.entries.insert(index, entry);
        self.row_changes += 1;
    }

    pub(super) fn add_position(&mut self, members: Members) {
        #[derive(serde::Deserialize)]
        struct Named {
            id: String,
        }
        let instrument = members.get("instrument").and_then(|raw| serde_json::from_str::<Named>(raw.get()).ok());
        let instrument_id = instrument.map(|instrument| instrument.id).unwrap_or_default();
        self.positions.push(Position { instrument_id, members });
        self.holding_changes += 1;
    }
}
