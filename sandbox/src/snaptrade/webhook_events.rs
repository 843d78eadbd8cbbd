//! SnapTrade's webhook events (docs/providers/snaptrade.md#webhooks). They follow from two states.

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::reference::brokerage_id;
use super::store::{Account, Connection, User};
use super::{SnapTrade, sign};
use crate::members::Members;
use crate::refused::Refused;
use crate::store::{Moment, RowChange};
use crate::webhooks::{DeliveryPolicy, WebhookEvent, WebhookSource, only_in};
use crate::world::rng::{BASE62, Rng};

/// The label of the random stream for the deprecated secret.
const SECRET_STREAM: u64 = u64::MAX - 3;

/// A connection with its user and accounts.
struct Linked<'a> {
    user: &'a User,
    connection: &'a Connection,
    accounts: Vec<&'a Account>,
}

fn users(moment: &Moment<SnapTrade>) -> Vec<&User> {
    moment.store.users(moment.at).collect()
}

fn connections(moment: &Moment<SnapTrade>) -> Vec<Linked<'_>> {
    let (store, at) = (&moment.store, moment.at);
    let mut all = Vec::new();
    for user in users(moment) {
        for connection in store.connections_of(user.number, at) {
            let accounts = store.accounts_of(user.number, Some(&connection.id), at);
            all.push(Linked {
                user,
                connection,
                accounts: accounts.collect(),
            });
        }
    }
    all
}

impl WebhookSource for SnapTrade {
    const DELIVERY_POLICY: DeliveryPolicy = DeliveryPolicy {
        // Undocumented, a sandbox choice.
        timeout_seconds: 10,
        // Three retries with exponential delay from 30 minutes; the factor is a sandbox choice.
        retry_seconds: &[1800, 3600, 7200],
        is_received: |status| matches!(status, 200 | 201 | 202 | 204),
    };

    fn compare(
        &self,
        before: &Moment<Self>,
        after: &Moment<Self>,
        rows: &[RowChange],
    ) -> Vec<WebhookEvent> {
        let mut recorder = EventRecorder {
            snaptrade: self,
            seed: after.store.seed,
            rows,
            now: after.at,
            events: Vec::new(),
        };
        let (old_users, new_users) = (users(before), users(after));
        for user in only_in(&new_users, &old_users, |user| user.number) {
            recorder.record("USER_REGISTERED", &user.id, json!({}));
        }
        let (old, new) = (connections(before), connections(after));
        for linked in &new {
            let mut known = old.iter();
            match known.find(|known| known.connection.id == linked.connection.id) {
                Some(known) => recorder.record_changes(known, linked),
                None => {
                    recorder.record_connection("CONNECTION_ADDED", linked, true);
                    let accounts = linked.accounts.iter();
                    accounts.for_each(|account| recorder.record_sync(linked, account));
                }
            }
        }
        for removed in only_in(&old, &new, |known| &known.connection.id) {
            recorder.record_connection("CONNECTION_DELETED", removed, true);
        }
        for user in only_in(&old_users, &new_users, |user| user.number) {
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
            sign::webhook_signature(&self.access.consumer_key, &body),
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
        body.set("clientId", &self.access.client_id);
        body.set(
            "eventTimestamp",
            &format!("{}+00:00", now.strftime("%Y-%m-%dT%H:%M:%S%.6f")),
        );
        body.set("eventType", &name);
        body.set("webhookSecret", &secret);
        body.merge_all(own);
        WebhookEvent {
            name: name.to_owned(),
            subscription: None,
            body,
        }
    }
}

/// Collects the events of a comparison.
struct EventRecorder<'a> {
    snaptrade: &'a SnapTrade,
    seed: u64,
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

    fn record_connection(&mut self, name: &str, linked: &Linked<'_>, names_broker: bool) {
        let mut own = json!({"brokerageAuthorizationId": linked.connection.id});
        if names_broker {
            own["brokerageId"] = brokerage_id(self.seed, linked.connection.broker).into();
        }
        self.record(name, &linked.user.id, own);
    }

    fn record_account(&mut self, name: &str, linked: &Linked<'_>, account: &Account) {
        let connection_id = &linked.connection.id;
        let own = json!({"accountId": account.id, "brokerageAuthorizationId": connection_id});
        self.record(name, &linked.user.id, own);
    }

    /// The real service sends this even without a change, and when a part failed. Here no part
    /// fails.
    fn record_holdings(&mut self, linked: &Linked<'_>, account: &Account) {
        let good = json!({"success": true, "error": null});
        let own = json!({
            "accountId": account.id, "brokerageAuthorizationId": linked.connection.id,
            "brokerageId": brokerage_id(self.seed, linked.connection.broker),
            "details": {"total_value": good, "positions": good, "balances": good, "orders": good},
        });
        self.record("ACCOUNT_HOLDINGS_UPDATED", &linked.user.id, own);
    }

    /// Records the first sync of an account: holdings, then transactions.
    fn record_sync(&mut self, linked: &Linked<'_>, account: &Account) {
        self.record_holdings(linked, account);
        self.record_account("ACCOUNT_TRANSACTIONS_INITIAL_UPDATE", linked, account);
    }

    fn record_changes(&mut self, before: &Linked<'_>, after: &Linked<'_>) {
        let (old, new) = (before.connection, after.connection);
        match (old.disabled_at.is_some(), new.disabled_at.is_some()) {
            (false, true) => self.record_connection("CONNECTION_BROKEN", after, false),
            (true, false) => self.record_connection("CONNECTION_FIXED", after, false),
            // Sandbox choice: linking a working connection again is an update.
            (false, false) if old.reactivations != new.reactivations => {
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
