//! The state of the simulated SnapTrade.

use jiff::{SignedDuration, Timestamp, civil};
use serde_json::value::RawValue;

use super::Key;
use super::entries::{Entry, Names};
use super::instruments::Instruments;
use crate::members::Members;
use crate::world::brokerage::Broker;

/// How long a deletion takes on the sandbox's clock. That deletions are delayed is known, the delay
/// is not (docs/providers/snaptrade.md#sandbox-choices).
const DELETION: SignedDuration = SignedDuration::from_secs(1);
/// The range of row numbers that each account reserves.
pub(super) const NUMBERS_PER_ACCOUNT: u64 = 1 << 32;

pub(super) struct Store {
    pub(super) seed: u64,
    pub(super) today: civil::Date,
    pub(super) instruments: Instruments,
    users: Vec<User>,
    pub(super) connections: Vec<Connection>,
    pub(super) accounts: Vec<Account>,
    numbers: u64,
}

pub(super) struct User {
    /// Unique, even if a deleted user's id is registered again.
    pub(super) number: u64,
    pub(super) key: Key,
    pub(super) id: String,
    pub(super) secret: String,
    /// Set by a test: the user's credentials are rejected.
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
    /// The user name at the broker; `None` if a test added the connection.
    pub(super) login: Option<String>,
    pub(super) created_at: Timestamp,
    pub(super) disabled_at: Option<Timestamp>,
    /// How often the connection was reactivated, even if it worked.
    pub(super) reactivations: u64,
    /// When a client last requested a refresh.
    pub(super) refreshed_at: Option<Timestamp>,
    /// Whether the connection is among the ready-made credentials.
    pub(super) is_listed: bool,
    deleted_at: Option<Timestamp>,
}

pub(super) struct Account {
    pub(super) id: String,
    pub(super) connection_id: String,
    /// In the format of `GET /accounts`.
    pub(super) members: Members,
    /// A JSON array.
    pub(super) balances: Box<RawValue>,
    pub(super) positions: Vec<Position>,
    /// Sorted by position.
    pub(super) entries: Vec<Entry>,
    /// Grows with each change to the rows.
    pub(super) row_changes: u64,
    /// Grows with each change to positions and balances.
    pub(super) holding_changes: u64,
    /// When SnapTrade last fetched the positions from the broker.
    pub(super) as_of: Timestamp,
    pub(super) institution: &'static str,
    /// Whether the user shares it.
    pub(super) shared: bool,
    order: u64,
    next_row: u64,
}

pub(super) struct Position {
    /// `instrument.id`; empty without one.
    pub(super) instrument_id: String,
    pub(super) members: Members,
}

impl Store {
    pub(super) fn empty(seed: u64, today: civil::Date) -> Self {
        let instruments = Instruments::new(seed, today);
        Self {
            seed,
            today,
            instruments,
            users: vec![],
            connections: vec![],
            accounts: vec![],
            numbers: 0,
        }
    }

    const fn take_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// The existing users of a key.
    pub(super) fn users(&self, key: Key, now: Timestamp) -> impl Iterator<Item = &User> {
        self.users
            .iter()
            .filter(move |user| user.key == key && exists_at(user.deleted_at, now))
    }

    pub(super) fn user_mut(&mut self, key: Key, id: &str, now: Timestamp) -> Option<&mut User> {
        self.users
            .iter_mut()
            .find(|user| user.key == key && user.id == id && exists_at(user.deleted_at, now))
    }

    /// Adds a user and returns the number.
    pub(super) fn add_user(&mut self, key: Key, id: &str, secret: String) -> u64 {
        let number = self.take_number();
        self.users.push(User {
            number,
            key,
            id: id.to_owned(),
            secret,
            revoked: false,
            deleted_at: None,
        });
        number
    }

    /// Whether the user with this number exists and is not revoked.
    pub(super) fn has_user(&self, number: u64, now: Timestamp) -> bool {
        self.users
            .iter()
            .any(|user| user.number == number && !user.revoked && exists_at(user.deleted_at, now))
    }

    /// Deletes a user and all connections after the delay.
    pub(super) fn delete_user(&mut self, number: u64, now: Timestamp) {
        let then = now.saturating_add(DELETION).unwrap_or(Timestamp::MAX);
        for user in self.users.iter_mut().filter(|user| user.number == number) {
            user.deleted_at = Some(then);
        }
        for connection in self
            .connections
            .iter_mut()
            .filter(|connection| connection.user == number)
        {
            connection.deleted_at.get_or_insert(then);
        }
    }

    /// The connections of a user, oldest first.
    pub(super) fn connections_of(
        &self,
        user: u64,
        now: Timestamp,
    ) -> impl Iterator<Item = &Connection> {
        self.connections
            .iter()
            .filter(move |connection| connection.user == user && connection.exists(now))
    }

    pub(super) fn connection(&self, user: u64, id: &str, now: Timestamp) -> Option<&Connection> {
        self.connections_of(user, now)
            .find(|connection| connection.id == id)
    }

    pub(super) fn connection_mut(
        &mut self,
        user: u64,
        id: &str,
        now: Timestamp,
    ) -> Option<&mut Connection> {
        let mut all = self.connections.iter_mut();
        all.find(|connection| {
            connection.user == user && connection.id == id && connection.exists(now)
        })
    }

    /// The shared accounts of a user, or of one connection.
    pub(super) fn accounts_of<'a>(
        &'a self,
        user: u64,
        connection: Option<&'a str>,
        now: Timestamp,
    ) -> impl Iterator<Item = &'a Account> {
        self.connections_of(user, now)
            .filter(move |known| connection.is_none_or(|id| known.id == id))
            .flat_map(|known| {
                self.accounts
                    .iter()
                    .filter(|account| account.connection_id == known.id && account.shared)
            })
    }

    pub(super) fn account(&self, user: u64, id: &str, now: Timestamp) -> Option<&Account> {
        let account = self
            .accounts
            .iter()
            .find(|account| account.id == id && account.shared)?;
        self.connection(user, &account.connection_id, now)
            .map(|_| account)
    }

    /// The context that the rows of an account need to be written.
    pub(super) const fn names<'a>(&'a self, account: &'a Account) -> Names<'a> {
        Names {
            seed: self.seed,
            instruments: &self.instruments,
            institution: account.institution,
        }
    }

    /// Adds an empty account at the end of the lists.
    pub(super) fn add_account(
        &mut self,
        connection_id: &str,
        id: String,
        members: Members,
        now: Timestamp,
    ) -> &mut Account {
        let order = self.take_number();
        let connection = self
            .connections
            .iter()
            .find(|connection| connection.id == connection_id);
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

/// Whether an item exists: it was not deleted, or the deletion is still to come.
fn exists_at(deleted_at: Option<Timestamp>, now: Timestamp) -> bool {
    deleted_at.is_none_or(|at| now < at)
}

impl Connection {
    pub(super) fn new(
        id: String,
        user: u64,
        broker: &'static Broker,
        name: String,
        created_at: Timestamp,
    ) -> Self {
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

    /// Deletes the connection and its accounts at once.
    pub(super) const fn delete_now(&mut self, now: Timestamp) {
        self.deleted_at = Some(now);
    }

    /// Deletes the connection after the delay.
    pub(super) fn delete(&mut self, now: Timestamp) {
        self.deleted_at = Some(now.saturating_add(DELETION).unwrap_or(Timestamp::MAX));
    }

    /// Makes the connection work, even if it was deleted.
    pub(super) const fn reactivate(&mut self) {
        (self.disabled_at, self.deleted_at) = (None, None);
        self.reactivations += 1;
    }
}

impl Account {
    pub(super) const fn first_number(&self) -> u64 {
        self.order * NUMBERS_PER_ACCOUNT
    }

    /// Reserves a row number.
    pub(super) const fn take_number(&mut self) -> u64 {
        self.next_row += 1;
        self.first_number() + self.next_row - 1
    }

    /// Replaces all rows.
    pub(super) fn replace(&mut self, mut entries: Vec<Entry>) {
        entries.sort_unstable_by_key(Entry::position);
        self.next_row = self.next_row.max(entries.len() as u64);
        self.entries = entries;
    }

    pub(super) fn insert(&mut self, entry: Entry) {
        let index = self
            .entries
            .partition_point(|known| known.position() <= entry.position());
        self.entries.insert(index, entry);
        self.row_changes += 1;
    }

    pub(super) fn add_position(&mut self, members: Members) {
        #[derive(serde::Deserialize)]
        struct Named {
            id: String,
        }
        let instrument = members
            .get("instrument")
            .and_then(|raw| serde_json::from_str::<Named>(raw.get()).ok());
        let instrument_id = instrument
            .map(|instrument| instrument.id)
            .unwrap_or_default();
        self.positions.push(Position {
            instrument_id,
            members,
        });
        self.holding_changes += 1;
    }
}
