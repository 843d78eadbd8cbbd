//! SnapTrade's webhook events for the users of the commercial key
//! (docs/providers/snaptrade.md#webhooks). They follow from two snapshots of the state.

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::reference::brokerage_id;
use super::store::{Account, Connection};
use super::{Key, SnapTrade, sign};
use crate::members::Members;
use crate::refused::Refused;
use crate::store::RowChange;
use crate::webhooks::{DeliveryPolicy, WebhookEvent, WebhookSource, only_in};
use crate::world::rng::{BASE62, Rng};

/// The label of the random stream for the deprecated secret.
const SECRET_STREAM: u64 = u64::MAX - 3;

/// The part of users and connections from which events follow.
pub(crate) struct Snapshot {
    users: Vec<UserSnapshot>,
    connections: Vec<ConnectionSnapshot>,
}

struct UserSnapshot {
    number: u64,
    id: String,
}

struct ConnectionSnapshot {
    id: String,
    user_id: String,
    brokerage_id: Value,
    is_disabled: bool,
    reactivations: u64,
    accounts: Vec<AccountSnapshot>,
}

struct AccountSnapshot {
    id: String,
    as_of: Timestamp,
    holding_changes: u64,
}

fn account_snapshot(account: &Account) -> AccountSnapshot {
    AccountSnapshot {
        id: account.id.clone(),
        as_of: account.as_of,
        holding_changes: account.holding_changes,
    }
}

impl WebhookSource for SnapTrade {
    const DELIVERY_POLICY: DeliveryPolicy = DeliveryPolicy {
        // Undocumented, a sandbox choice.
        timeout_seconds: 10,
        // Three retries with exponential delay from 30 minutes; the factor is a sandbox choice.
        retry_seconds: &[1800, 3600, 7200],
        is_received: |status| matches!(status, 200 | 201 | 202 | 204),
    };

    fn snapshot(&self, now: Timestamp) -> Snapshot {
        let store = self.store.read();
        let mut snapshot = Snapshot {
            users: Vec::new(),
            connections: Vec::new(),
        };
        for user in store.users(Key::Commercial, now) {
            snapshot.users.push(UserSnapshot {
                number: user.number,
                id: user.id.clone(),
            });
            let connections =
                store
                    .connections_of(user.number, now)
                    .map(|connection: &Connection| ConnectionSnapshot {
                        id: connection.id.clone(),
                        user_id: user.id.clone(),
                        brokerage_id: brokerage_id(store.seed, connection.broker).into(),
                        is_disabled: connection.disabled_at.is_some(),
                        reactivations: connection.reactivations,
                        accounts: store
                            .accounts_of(user.number, Some(&connection.id), now)
                            .map(account_snapshot)
                            .collect(),
                    });
            snapshot.connections.extend(connections);
        }
        snapshot
    }

    fn compare(
        &self,
        before: &Snapshot,
        after: &Snapshot,
        rows: &[RowChange],
        now: Timestamp,
    ) -> Vec<WebhookEvent> {
        let mut recorder = EventRecorder {
            snaptrade: self,
            rows,
            now,
            events: Vec::new(),
        };
        for user in only_in(&after.users, &before.users, |user| user.number) {
            recorder.record("USER_REGISTERED", &user.id, json!({}));
        }
        for connection in &after.connections {
            match before
                .connections
                .iter()
                .find(|known| known.id == connection.id)
            {
                Some(known) => recorder.record_changes(known, connection),
                None => {
                    recorder.record_connection("CONNECTION_ADDED", connection, true);
                    connection
                        .accounts
                        .iter()
                        .for_each(|account| recorder.record_sync(connection, account));
                }
            }
        }
        for removed in only_in(&before.connections, &after.connections, |known| &known.id) {
            recorder.record_connection("CONNECTION_DELETED", removed, true);
        }
        for user in only_in(&before.users, &after.users, |user| user.number) {
            recorder.record("USER_DELETED", &user.id, json!({}));
        }
        recorder.events
    }

    fn build_event(
        &self,
        name: &str,
        members: Members,
        now: Timestamp,
    ) -> Result<WebhookEvent, Refused> {
        Ok(self.event(name, members, now))
    }

    fn sign(&self, body: &[u8]) -> Vec<(&'static str, String)> {
        let body = serde_json::from_slice(body).unwrap_or_default();
        vec![(
            "Signature",
            sign::webhook_signature(self.consumer_key(Key::Commercial), &body),
        )]
    }
}

impl SnapTrade {
    /// Sets the members that every event has, then the event's own.
    fn event(&self, name: &str, own: Members, now: Timestamp) -> WebhookEvent {
        let id = Uuid::new_v4().to_string();
        let secret = Rng::new(self.store.read().seed, SECRET_STREAM).text(BASE62, 20);
        let mut body = Members::default();
        body.set("webhookId", &id);
        body.set("clientId", &self.client_id(Key::Commercial));
        body.set(
            "eventTimestamp",
            &format!("{}+00:00", now.strftime("%Y-%m-%dT%H:%M:%S%.6f")),
        );
        body.set("eventType", &name);
        body.set("webhookSecret", &secret);
        body.merge_all(own);
        WebhookEvent {
            name: name.to_owned(),
            id,
            subscription: None,
            body,
        }
    }
}

/// Collects the events of a comparison.
struct EventRecorder<'a> {
    snaptrade: &'a SnapTrade,
    rows: &'a [RowChange],
    now: Timestamp,
    events: Vec<WebhookEvent>,
}

impl EventRecorder<'_> {
    fn record(&mut self, name: &str, user_id: &str, own: Value) {
        let mut members = Members::default();
        members.set("userId", &user_id);
        members.merge_all(Members::from_value(&own));
        self.events
            .push(self.snaptrade.event(name, members, self.now));
    }

    fn record_connection(
        &mut self,
        name: &str,
        connection: &ConnectionSnapshot,
        names_broker: bool,
    ) {
        let mut own = json!({"brokerageAuthorizationId": connection.id});
        if names_broker {
            own["brokerageId"] = connection.brokerage_id.clone();
        }
        self.record(name, &connection.user_id, own);
    }

    fn record_account(
        &mut self,
        name: &str,
        connection: &ConnectionSnapshot,
        account: &AccountSnapshot,
    ) {
        let own = json!({"accountId": account.id, "brokerageAuthorizationId": connection.id});
        self.record(name, &connection.user_id, own);
    }

    /// The real service sends this even without a change, and when a part failed. Here no part
    /// fails.
    fn record_holdings(&mut self, connection: &ConnectionSnapshot, account: &AccountSnapshot) {
        let good = json!({"success": true, "error": null});
        let own = json!({
            "accountId": account.id, "brokerageAuthorizationId": connection.id,
            "brokerageId": connection.brokerage_id,
            "details": {"total_value": good, "positions": good, "balances": good, "orders": good},
        });
        self.record("ACCOUNT_HOLDINGS_UPDATED", &connection.user_id, own);
    }

    /// Records the first sync of an account: holdings, then transactions.
    fn record_sync(&mut self, connection: &ConnectionSnapshot, account: &AccountSnapshot) {
        self.record_holdings(connection, account);
        self.record_account("ACCOUNT_TRANSACTIONS_INITIAL_UPDATE", connection, account);
    }

    fn record_changes(&mut self, before: &ConnectionSnapshot, after: &ConnectionSnapshot) {
        match (before.is_disabled, after.is_disabled) {
            (false, true) => self.record_connection("CONNECTION_BROKEN", after, false),
            (true, false) => self.record_connection("CONNECTION_FIXED", after, false),
            // Sandbox choice: linking a working connection again is an update.
            (false, false) if before.reactivations != after.reactivations => {
                self.record_connection("CONNECTION_UPDATED", after, false);
            }
            _ => {}
        }
        for removed in only_in(&before.accounts, &after.accounts, |known| &known.id) {
            self.record_account("ACCOUNT_REMOVED", after, removed);
        }
        for account in &after.accounts {
            let Some(known) = before.accounts.iter().find(|known| known.id == account.id) else {
                self.record_account("NEW_ACCOUNT_AVAILABLE", after, account);
                self.record_sync(after, account);
                continue;
            };
            if (known.as_of, known.holding_changes) != (account.as_of, account.holding_changes) {
                self.record_holdings(after, account);
            }
            if self.rows.iter().any(|row| row.account_id == account.id) {
                self.record_account("ACCOUNT_TRANSACTIONS_UPDATED", after, account);
            }
        }
    }
}
