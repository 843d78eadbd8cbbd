//! Akahu's webhook events (docs/providers/akahu.md#webhooks). They follow from two states, for each
//! subscription of a user. Row changes are recorded directly.

use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Akahu;
use super::store::{Account, Store, WebhookSubscription};
use super::webhooks::sign;
use crate::members::Members;
use crate::refused::Refused;
use crate::store::{Moment, RowChange};
use crate::webhooks::{DeliveryPolicy, WebhookEvent, WebhookSource, only_in};

/// What a user shares with the app; nothing before the user exists.
struct Given<'a> {
    /// The user's valid tokens; more than one only if a test has restored one.
    tokens: Vec<&'a str>,
    subscriptions: &'a [WebhookSubscription],
    accounts: Vec<&'a Account>,
}

impl<'a> Given<'a> {
    fn of(store: &'a Store, user: usize) -> Self {
        let known = store.users.get(user);
        let tokens = known.into_iter().flat_map(|user| &user.tokens);
        Self {
            tokens: tokens
                .map(|token| token.text.as_str())
                .filter(|token| store.user_of_token(token).is_some())
                .collect(),
            subscriptions: known.map_or(&[], |user| user.subscriptions.as_slice()),
            accounts: store.accounts_of(user),
        }
    }

    fn account(&self, id: &str) -> Option<&'a Account> {
        let mut all = self.accounts.iter();
        all.find(|known| known.id == id).copied()
    }
}

/// The names of the members that differ, without `refreshed`: its times change on their own.
fn differences(before: &Members, after: &Members) -> Vec<String> {
    let mut names: Vec<&str> = before
        .pairs()
        .chain(after.pairs())
        .map(|pair| pair.0)
        .collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| *name != "refreshed" && text(before, name) != text(after, name));
    names.into_iter().map(str::to_owned).collect()
}

fn text<'a>(members: &'a Members, name: &str) -> Option<&'a str> {
    members.get(name).map(RawValue::get)
}

impl WebhookSource for Akahu {
    const DELIVERY_POLICY: DeliveryPolicy = DeliveryPolicy {
        timeout_seconds: 5,
        // Retries for about a day are known from hearsay; the schedule is a sandbox choice.
        retry_seconds: &[60, 300, 1800, 7200, 21_600, 57_600],
        is_received: |status| status == 200,
    };

    fn compare(
        &self,
        before: &Moment<Self>,
        after: &Moment<Self>,
        rows: &[RowChange],
    ) -> Vec<WebhookEvent> {
        let mut events = Vec::new();
        // The index of a user never changes.
        for user in 0..after.store.users.len() {
            let before = Given::of(&before.store, user);
            let after = Given::of(&after.store, user);
            // Subscriptions end with the last token, and still get the events of that end.
            let has_ended = after.tokens.is_empty() && !before.tokens.is_empty();
            let subscriptions = if has_ended {
                before.subscriptions
            } else {
                after.subscriptions
            };
            let mut recorder = EventRecorder {
                subscriptions,
                events: &mut events,
            };
            self.compare_accounts(&before, &after, &mut recorder);
            record_rows(&before, &after, rows, &mut recorder);
            for token in only_in(&before.tokens, &after.tokens, |token| *token) {
                recorder.record("TOKEN", "DELETE", &json!({"item_id": token}));
            }
            if has_ended {
                subscriptions.iter().for_each(|subscription| {
                    recorder.record_for(subscription, "WEBHOOK_CANCELLED", &json!({}));
                });
                self.store.write().users[user].subscriptions.clear();
            }
        }
        events
    }

    /// `name` is `TYPE:CODE`. The event belongs to the first subscription of that type, or to none.
    fn build_event(
        &self,
        name: &str,
        members: Members,
        _: Timestamp,
    ) -> Result<WebhookEvent, Refused> {
        let (kind, code) = name
            .split_once(':')
            .ok_or("\"event\" must be as \"TRANSACTION:DEFAULT_UPDATE\"")?;
        let store = self.store.read();
        let mut subscriptions = store.users.iter().flat_map(|user| &user.subscriptions);
        let subscription = subscriptions.find(|subscription| subscription.kind == kind);
        let mut event = event(kind, code, subscription);
        event.body.merge_all(members);
        Ok(event)
    }

    fn sign(&self, body: &[u8]) -> Vec<(&'static str, String)> {
        let (id, signature) = sign(body);
        vec![
            ("X-Akahu-Signature", signature),
            ("X-Akahu-Signing-Key", id.to_string()),
        ]
    }
}

fn event(kind: &str, code: &str, subscription: Option<&WebhookSubscription>) -> WebhookEvent {
    let mut body = Members::default();
    // As in the only complete example of the documentation.
    body.set("success", &true);
    body.set("webhook_type", &kind);
    body.set("webhook_code", &code);
    if let Some(state) = subscription.and_then(|subscription| subscription.state.as_ref()) {
        body.set("state", state);
    }
    WebhookEvent {
        name: format!("{kind}:{code}"),
        subscription: subscription.map(|subscription| subscription.id.clone()),
        body,
    }
}

/// Records the events of a user, one for each matching subscription.
struct EventRecorder<'a> {
    subscriptions: &'a [WebhookSubscription],
    events: &'a mut Vec<WebhookEvent>,
}

impl EventRecorder<'_> {
    fn record(&mut self, kind: &str, code: &str, own: &Value) {
        for subscription in self
            .subscriptions
            .iter()
            .filter(|subscription| subscription.kind == kind)
        {
            self.record_for(subscription, code, own);
        }
    }

    fn record_for(&mut self, subscription: &WebhookSubscription, code: &str, own: &Value) {
        let mut event = event(&subscription.kind, code, Some(subscription));
        event.body.merge_all(Members::from_value(own));
        self.events.push(event);
    }

    fn record_transactions(&mut self, code: &str, account_id: &str, ids: &[String]) {
        let own = json!({"item_id": account_id, "new_transactions": ids.len(), "new_transaction_ids": ids});
        self.record("TRANSACTION", code, &own);
    }
}

impl Akahu {
    fn compare_accounts(
        &self,
        before: &Given<'_>,
        after: &Given<'_>,
        recorder: &mut EventRecorder<'_>,
    ) {
        for account in &after.accounts {
            let item = json!({"item_id": account.id});
            let Some(known) = before.account(&account.id) else {
                recorder.record("ACCOUNT", "CREATE", &item);
                let ids = self.row_ids(&account.id);
                if !ids.is_empty() {
                    recorder.record_transactions("INITIAL_UPDATE", &account.id, &ids);
                }
                continue;
            };
            let updated = differences(&known.members, &account.members);
            if !updated.is_empty() {
                recorder.record(
                    "ACCOUNT",
                    "UPDATE",
                    &json!({"item_id": account.id, "updated_fields": updated}),
                );
            }
        }
        for removed in only_in(&before.accounts, &after.accounts, |known| &known.id) {
            recorder.record("ACCOUNT", "DELETE", &json!({"item_id": removed.id}));
        }
    }

    fn row_ids(&self, account_id: &str) -> Vec<String> {
        let store = self.store.read();
        let account = store
            .accounts
            .iter()
            .find(|account| account.id == account_id);
        let entries = account.into_iter().flat_map(|account| &account.entries);
        entries.filter_map(|entry| entry.id(store.seed)).collect()
    }
}

/// Records the settled rows that changed in accounts that the user shared before. The documentation
/// has no code for a change, so the sandbox uses the one for an addition.
fn record_rows(
    before: &Given<'_>,
    after: &Given<'_>,
    rows: &[RowChange],
    recorder: &mut EventRecorder<'_>,
) {
    for RowChange {
        account_id,
        row_id,
        removed,
    } in rows
    {
        if before.account(account_id).is_none() || after.account(account_id).is_none() {
            continue;
        }
        if *removed {
            let own = json!({"item_id": account_id, "removed_transactions": [row_id]});
            recorder.record("TRANSACTION", "DELETE", &own);
        } else {
            recorder.record_transactions(
                "DEFAULT_UPDATE",
                account_id,
                std::slice::from_ref(row_id),
            );
        }
    }
}
