//! SnapTrade's webhooks (docs/providers/snaptrade.md#webhooks): those of the commercial key's users.

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::reference::brokerage;
use super::store::{Account, Connection};
use super::{Key, SnapTrade, sign};
use crate::clock::Clock;
use crate::control::Misuse;
use crate::members::Members;
use crate::webhooks::{Event, Notifier, Outbox, Rules};
use crate::world::rng::{BASE62, Rng};

/// Where the deprecated secret is drawn.
const SECRET_STREAM: u64 = u64::MAX - 3;

/// Users and connections, as far as events tell of them.
pub(crate) struct Seen {
    users: Vec<SeenUser>,
    connections: Vec<SeenConnection>,
}

struct SeenUser {
    number: u64,
    id: String,
}

struct SeenConnection {
    id: String,
    user_id: String,
    brokerage_id: Value,
    is_disabled: bool,
    revivals: u64,
    accounts: Vec<SeenAccount>,
}

struct SeenAccount {
    id: String,
    as_of: Timestamp,
    row_changes: u64,
    holding_changes: u64,
}

fn seen_account(account: &Account) -> SeenAccount {
    SeenAccount {
        id: account.id.clone(),
        as_of: account.as_of,
        row_changes: account.row_changes,
        holding_changes: account.holding_changes,
    }
}

impl Notifier for SnapTrade {
    type Seen = Seen;
    const RULES: Rules = Rules {
        // Not documented: ours.
        timeout_seconds: 10,
        // Three retries, exponentially from 30 minutes; the factor is ours.
        retry_seconds: &[1800, 3600, 7200],
        is_received: |status| matches!(status, 200 | 201 | 202 | 204),
    };

    fn outbox(&self) -> &Outbox<Seen> {
        &self.outbox
    }

    fn clock(&self) -> &Clock {
        &self.port.clock
    }

    fn see(&self, now: Timestamp) -> Seen {
        let store = self.store.read();
        let mut seen = Seen { users: Vec::new(), connections: Vec::new() };
        for user in store.users(Key::Commercial, now) {
            seen.users.push(SeenUser { number: user.number, id: user.id.clone() });
            let connections = store.connections_of(user.number, now).map(|connection: &Connection| SeenConnection {
                id: connection.id.clone(),
                user_id: user.id.clone(),
                brokerage_id: brokerage(store.seed, connection.broker)["id"].clone(),
                is_disabled: connection.disabled.is_some(),
                revivals: connection.revivals,
                accounts: store.accounts_of(user.number, Some(&connection.id), now).map(seen_account).collect(),
            });
            seen.connections.extend(connections);
        }
        seen
    }

    fn compare(&self, before: &Seen, after: &Seen, now: Timestamp) -> Vec<Event> {
        let mut told = Told { snaptrade: self, now, events: Vec::new() };
        let is_in = |users: &[SeenUser], user: &SeenUser| users.iter().any(|known| known.number == user.number);
        for user in after.users.iter().filter(|user| !is_in(&before.users, user)) {
            told.tell("USER_REGISTERED", &user.id, json!({}));
        }
        for connection in &after.connections {
            match before.connections.iter().find(|known| known.id == connection.id) {
                Some(known) => told.changes(known, connection),
                None => {
                    told.of_connection("CONNECTION_ADDED", connection, true);
                    connection.accounts.iter().for_each(|account| told.synced(connection, account));
                }
            }
        }
        let is_there = |gone: &&SeenConnection| after.connections.iter().any(|known| known.id == gone.id);
        for gone in before.connections.iter().filter(|gone| !is_there(gone)) {
            told.of_connection("CONNECTION_DELETED", gone, true);
        }
        for user in before.users.iter().filter(|user| !is_in(&after.users, user)) {
            told.tell("USER_DELETED", &user.id, json!({}));
        }
        told.events
    }

    fn describe(&self, name: &str, members: Members, now: Timestamp) -> Result<Event, Misuse> {
        Ok(self.event(name, members, now))
    }

    /// The same each time. Whether the real service renews the time of the event is not known; that it is the time
    /// at which the event occurred is what the guide says.
    fn body(&self, event: &Event, _attempt: usize) -> Vec<u8> {
        serde_json::to_vec(&event.body).expect("text can be written to memory")
    }

    fn sign(&self, body: &[u8]) -> Vec<(&'static str, String)> {
        let body = serde_json::from_slice(body).unwrap_or_default();
        vec![("Signature", sign::webhook_signature(self.consumer_key(Key::Commercial), &body))]
    }
}

impl SnapTrade {
    /// The members that every event has, then its own.
    fn event(&self, name: &str, own: Members, now: Timestamp) -> Event {
        let id = Uuid::new_v4().to_string();
        let secret = Rng::new(self.store.read().seed, SECRET_STREAM).text(BASE62, 20);
        let mut body = Members::default();
        body.set("webhookId", &id);
        body.set("clientId", &self.client_id(Key::Commercial));
        body.set("eventTimestamp", &format!("{}+00:00", now.strftime("%Y-%m-%dT%H:%M:%S%.6f")));
        body.set("eventType", &name);
        body.set("webhookSecret", &secret);
        body.merge_all(own);
        Event { name: name.to_owned(), id, subscription: None, body }
    }
}

/// What has happened.
struct Told<'a> {
    snaptrade: &'a SnapTrade,
    now: Timestamp,
    events: Vec<Event>,
}

impl Told<'_> {
    fn tell(&mut self, name: &str, user_id: &str, own: Value) {
        let mut members = Members::default();
        members.set("userId", &user_id);
        members.merge_all(Members::from_value(&own));
        self.events.push(self.snaptrade.event(name, members, self.now));
    }

    fn of_connection(&mut self, name: &str, connection: &SeenConnection, names_broker: bool) {
        let mut own = json!({"brokerageAuthorizationId": connection.id});
        if names_broker {
            own["brokerageId"] = connection.brokerage_id.clone();
        }
        self.tell(name, &connection.user_id, own);
    }

    fn of_account(&mut self, name: &str, connection: &SeenConnection, account: &SeenAccount) {
        let own = json!({"accountId": account.id, "brokerageAuthorizationId": connection.id});
        self.tell(name, &connection.user_id, own);
    }

    /// Sent whether or not anything has changed, and when a part has failed; here none does.
    fn of_holdings(&mut self, connection: &SeenConnection, account: &SeenAccount) {
        let good = json!({"success": true, "error": null});
        let own = json!({
            "accountId": account.id, "brokerageAuthorizationId": connection.id,
            "brokerageId": connection.brokerage_id,
            "details": {"total_value": good, "positions": good, "balances": good, "orders": good},
        });
        self.tell("ACCOUNT_HOLDINGS_UPDATED", &connection.user_id, own);
    }

    /// The first reading of an account: holdings right away, transactions after them.
    fn synced(&mut self, connection: &SeenConnection, account: &SeenAccount) {
        self.of_holdings(connection, account);
        self.of_account("ACCOUNT_TRANSACTIONS_INITIAL_UPDATE", connection, account);
    }

    fn changes(&mut self, before: &SeenConnection, after: &SeenConnection) {
        match (before.is_disabled, after.is_disabled) {
            (false, true) => self.of_connection("CONNECTION_BROKEN", after, false),
            (true, false) => self.of_connection("CONNECTION_FIXED", after, false),
            // Linked again though it worked. That this is what an update is, is ours.
            (false, false) if before.revivals != after.revivals => {
                self.of_connection("CONNECTION_UPDATED", after, false);
            }
            _ => {}
        }
        let is_there = |gone: &&SeenAccount| after.accounts.iter().any(|account| account.id == gone.id);
        for gone in before.accounts.iter().filter(|gone| !is_there(gone)) {
            self.of_account("ACCOUNT_REMOVED", after, gone);
        }
        for account in &after.accounts {
            let Some(known) = before.accounts.iter().find(|known| known.id == account.id) else {
                self.of_account("NEW_ACCOUNT_AVAILABLE", after, account);
                self.synced(after, account);
                continue;
            };
            if (known.as_of, known.holding_changes) != (account.as_of, account.holding_changes) {
                self.of_holdings(after, account);
            }
            if known.row_changes != account.row_changes {
                self.of_account("ACCOUNT_TRANSACTIONS_UPDATED", after, account);
            }
        }
    }
}
