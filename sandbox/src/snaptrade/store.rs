//! The state of the simulated SnapTrade.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp, civil};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::SnapTrade;
use super::errors::Failure;
use super::instruments::Instruments;
use crate::clock::after;
use crate::members::Members;
use crate::saved;
use crate::world::brokerage::Broker;

/// How long a deletion takes on the sandbox's clock. That deletions are delayed is known, the delay
/// is not (docs/providers/snaptrade.md#sandbox-choices).
const DELETION: SignedDuration = SignedDuration::from_secs(1);
pub(super) type Store = crate::store::Store<SnapTrade>;
pub(super) type Account = crate::store::Account<SnapTrade>;
pub(super) type Entry = crate::store::Entry<SnapTrade>;

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct State {
    pub(super) today: civil::Date,
    /// Follows from the seed and the day.
    #[serde(skip)]
    pub(super) instruments: Arc<Instruments>,
    users: Vec<User>,
    pub(super) connections: Vec<Connection>,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct User {
    /// Unique, even if a deleted user's id is registered again.
    pub(super) number: u64,
    pub(super) id: String,
    pub(super) secret: String,
    /// Set by a test: the user's credentials are rejected.
    pub(super) revoked: bool,
    deleted_at: Option<Timestamp>,
}

/// A login at a broker.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Connection {
    pub(super) id: String,
    /// The user's number.
    pub(super) user: u64,
    #[serde(with = "saved")]
    pub(super) broker: &'static Broker,
    pub(super) name: String,
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

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct OwnAccount {
    pub(super) connection_id: String,
    /// A JSON array.
    pub(super) balances: Box<RawValue>,
    pub(super) positions: Vec<Members>,
    /// Grows with each change to positions and balances.
    pub(super) holding_changes: u64,
    /// When SnapTrade last fetched the positions from the broker.
    pub(super) as_of: Timestamp,
    pub(super) institution: String,
    /// Whether the user shares it.
    pub(super) shared: bool,
}

impl Store {
    pub(super) fn without_users(seed: u64, today: civil::Date) -> Self {
        let state = State {
            today,
            instruments: Arc::new(Instruments::new(seed, today)),
            users: vec![],
            connections: vec![],
        };
        Self::empty(seed, state)
    }

    /// Adds what a state that was saved lacks.
    pub(super) fn fill_instruments(&mut self) {
        self.instruments = Arc::new(Instruments::new(self.seed, self.today));
    }

    /// The existing users.
    pub(super) fn users(&self, now: Timestamp) -> impl Iterator<Item = &User> {
        self.users
            .iter()
            .filter(move |user| exists_at(user.deleted_at, now))
    }

    pub(super) fn user_mut(&mut self, id: &str, now: Timestamp) -> Option<&mut User> {
        let mut all = self.users.iter_mut();
        all.find(|user| user.id == id && exists_at(user.deleted_at, now))
    }

    /// Adds a user and returns the number.
    pub(super) fn add_user(&mut self, id: &str, secret: String) -> u64 {
        let number = self.take_order();
        self.users.push(User {
            number,
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
        let then = after(now, DELETION);
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

    /// A connection of any user, even a deleted one.
    pub(super) fn any_connection(&self, id: &str) -> Option<&Connection> {
        let mut all = self.connections.iter();
        all.find(|connection| connection.id == id)
    }

    /// As [`Store::any_connection`].
    pub(super) fn any_connection_mut(&mut self, id: &str) -> Option<&mut Connection> {
        let mut all = self.connections.iter_mut();
        all.find(|connection| connection.id == id)
    }

    /// All accounts of a connection.
    pub(super) fn accounts_at(
        &mut self,
        connection_id: &str,
    ) -> impl Iterator<Item = &mut Account> {
        let accounts = self.accounts.iter_mut();
        accounts.filter(move |account| account.connection_id == connection_id)
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

    pub(super) fn connection(
        &self,
        user: u64,
        id: &str,
        now: Timestamp,
    ) -> Result<&Connection, Failure> {
        self.connections_of(user, now)
            .find(|connection| connection.id == id)
            .ok_or_else(Failure::missing)
    }

    pub(super) fn connection_mut(
        &mut self,
        user: u64,
        id: &str,
        now: Timestamp,
    ) -> Result<&mut Connection, Failure> {
        let mut all = self.connections.iter_mut();
        all.find(|connection| {
            connection.user == user && connection.id == id && connection.exists(now)
        })
        .ok_or_else(Failure::missing)
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

    pub(super) fn account(&self, user: u64, id: &str, now: Timestamp) -> Result<&Account, Failure> {
        let account = self
            .accounts
            .iter()
            .find(|account| account.id == id && account.shared)
            .ok_or_else(Failure::missing)?;
        self.connection(user, &account.connection_id, now)
            .map(|_| account)
    }

    /// Adds an empty account at the end of the lists.
    pub(super) fn add_account(
        &mut self,
        connection_id: &str,
        id: String,
        members: Members,
        now: Timestamp,
    ) -> &mut Account {
        let connection = self.any_connection(connection_id);
        let own = OwnAccount {
            connection_id: connection_id.to_owned(),
            balances: RawValue::from_string("[]".to_owned()).expect("an empty array is JSON"),
            positions: Vec::new(),
            holding_changes: 0,
            as_of: now,
            institution: connection.map_or_else(String::new, |known| known.broker.name.to_owned()),
            shared: true,
        };
        let order = self.take_order();
        let account = self.push(Account::new(id, order, own));
        account.members = members;
        account
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
        self.deleted_at = Some(after(now, DELETION));
    }

    /// Makes the connection work, even if it was deleted.
    pub(super) const fn reactivate(&mut self) {
        (self.disabled_at, self.deleted_at) = (None, None);
        self.reactivations += 1;
    }
}

impl Account {
    pub(super) fn add_position(&mut self, position: Members) {
        self.positions.push(position);
        self.holding_changes += 1;
    }
}
