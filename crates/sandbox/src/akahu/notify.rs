//! What Akahu's webhooks tell of (docs/providers/akahu.md#webhooks): each user's subscriptions say of which types.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::store::Account;
use super::webhooks::Hook;
use super::{Akahu, ids};
use crate::clock::Clock;
use crate::control::Misuse;
use crate::members::Members;
use crate::webhooks::{Event, Notifier, Outbox, Rules};

/// The users, as far as events tell of them. None is ever taken out, so a place is a name.
pub(crate) type Seen = Vec<SeenUser>;

#[derive(Default)]
pub(crate) struct SeenUser {
    /// The tokens that let the app in; more than one only when a test wants it so.
    tokens: Vec<String>,
    hooks: Vec<Hook>,
    accounts: Vec<SeenAccount>,
}

struct SeenAccount {
    id: String,
    members: Members,
}

/// The members that two states of an account differ in; the times of readings move by themselves and are none.
fn differences(before: &Members, after: &Members) -> Vec<String> {
    let text = |members: &Members, name: &str| members.get(name).map(|value| value.get().to_owned());
    let mut names: Vec<&str> = before.names().chain(after.names()).filter(|name| *name != "refreshed").collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| text(before, name) != text(after, name));
    names.into_iter().map(str::to_owned).collect()
}

impl Notifier for Akahu {
    type Seen = Seen;
    const RULES: Rules = Rules {
        timeout_seconds: 5,
        // That it is retried for about a day was heard of, the schedule is ours.
        retry_seconds: &[60, 300, 1800, 7200, 21_600, 57_600],
        is_received: |status| status == 200,
    };

    fn outbox(&self) -> &Outbox<Seen> {
        &self.outbox
    }

    fn clock(&self) -> &Clock {
        &self.port.clock
    }

    fn see(&self, _: Timestamp) -> Seen {
        let store = self.store.read();
        let account = |account: &Account| SeenAccount { id: account.id.clone(), members: account.members.clone() };
        let users = store.users.iter().enumerate().map(|(place, user)| {
            let alive = user.tokens.iter().filter(|token| store.user_of_token(&token.text).is_some());
            SeenUser {
                tokens: alive.map(|token| token.text.clone()).collect(),
                hooks: user.hooks.clone(),
                accounts: store.accounts_of(place).into_iter().map(account).collect(),
            }
        });
        users.collect()
    }

    fn compare(&self, before: &Seen, after: &Seen, _: Timestamp) -> Vec<Event> {
        let (nobody, mut events) = (SeenUser::default(), Vec::new());
        for (place, after) in after.iter().enumerate() {
            let before = before.get(place).unwrap_or(&nobody);
            // Subscriptions end with the last token, and are told of that all the same.
            let is_over = after.tokens.is_empty() && !before.tokens.is_empty();
            let hooks = if is_over { &before.hooks } else { &after.hooks };
            let mut told = Told { hooks, events: &mut events };
            self.compare_accounts(before, after, &mut told);
            for token in before.tokens.iter().filter(|token| !after.tokens.contains(token)) {
                told.tell("TOKEN", "DELETE", &json!({"item_id": token}));
            }
            if is_over {
                hooks.iter().for_each(|hook| told.tell_one(hook, "WEBHOOK_CANCELLED", &json!({})));
                self.store.write().users[place].hooks.clear();
            }
        }
        events
    }

    /// Named `TYPE:CODE`. It is for the first who subscribes to that type, or for nobody in particular.
    fn describe(&self, name: &str, members: Members, _: Timestamp) -> Result<Event, Misuse> {
        let (kind, code) = name.split_once(':').ok_or("\"event\" must be as \"TRANSACTION:DEFAULT_UPDATE\"")?;
        let store = self.store.read();
        let mut hooks = store.users.iter().flat_map(|user| &user.hooks);
        let hook = hooks.find(|hook| hook.kind == kind);
        let mut event = event(kind, code, hook);
        event.body.merge_all(members);
        Ok(event)
    }

    fn body(&self, event: &Event, _attempt: usize) -> Vec<u8> {
        serde_json::to_vec(&event.body).expect("text can be written to memory")
    }

    fn sign(&self, body: &[u8]) -> Vec<(&'static str, String)> {
        let (id, signature) = self.keys.sign(body);
        vec![("X-Akahu-Signature", signature), ("X-Akahu-Signing-Key", id.to_string())]
    }
}

fn event(kind: &str, code: &str, hook: Option<&Hook>) -> Event {
    let mut body = Members::default();
    // As in the only whole example there is.
    body.set("success", &true);
    body.set("webhook_type", &kind);
    body.set("webhook_code", &code);
    if let Some(state) = hook.and_then(|hook| hook.state.as_ref()) {
        body.set("state", state);
    }
    // The form of an event's id is ours.
    let (name, id) = (format!("{kind}:{code}"), ids::random("event_"));
    Event { name, id, subscription: hook.map(|hook| hook.id.clone()), body }
}

/// What has happened to a user, for those who subscribe to it.
struct Told<'a> {
    hooks: &'a [Hook],
    events: &'a mut Vec<Event>,
}

impl Told<'_> {
    fn tell(&mut self, kind: &str, code: &str, own: &Value) {
        for hook in self.hooks.iter().filter(|hook| hook.kind == kind) {
            self.tell_one(hook, code, own);
        }
    }

    fn tell_one(&mut self, hook: &Hook, code: &str, own: &Value) {
        let mut event = event(&hook.kind, code, Some(hook));
        event.body.merge_all(Members::from_value(own));
        self.events.push(event);
    }

    fn rows(&mut self, code: &str, account_id: &str, ids: &[String]) {
        let own = json!({"item_id": account_id, "new_transactions": ids.len(), "new_transaction_ids": ids});
        self.tell("TRANSACTION", code, &own);
    }
}

impl Akahu {
    fn compare_accounts(&self, before: &SeenUser, after: &SeenUser, told: &mut Told<'_>) {
        for account in &after.accounts {
            let item = json!({"item_id": account.id});
            let Some(known) = before.accounts.iter().find(|known| known.id == account.id) else {
                told.tell("ACCOUNT", "CREATE", &item);
                let ids = self.row_ids(&account.id);
                if !ids.is_empty() {
                    told.rows("INITIAL_UPDATE", &account.id, &ids);
                }
                continue;
            };
            let updated = differences(&known.members, &account.members);
            if !updated.is_empty() {
                told.tell("ACCOUNT", "UPDATE", &json!({"item_id": account.id, "updated_fields": updated}));
            }
        }
        let is_there = |gone: &&SeenAccount| after.accounts.iter().any(|account| account.id == gone.id);
        for gone in before.accounts.iter().filter(|gone| !is_there(gone)) {
            told.tell("ACCOUNT", "DELETE", &json!({"item_id": gone.id}));
        }
    }

    fn row_ids(&self, account_id: &str) -> Vec<String> {
        let store = self.store.read();
        let account = store.accounts.iter().find(|account| account.id == account_id);
        let rows = account.into_iter().flat_map(|account| {
            account.entries.iter().map(|entry| entry.members(store.seed, account.names()).text("_id"))
        });
        rows.flatten().collect()
    }

    /// A settled row was added or changed. That a changed one is told of in the same words is ours: there are none for
    /// it.
    pub(super) fn tell_of_row(&self, row: &Members) {
        let (Some(account_id), Some(id)) = (row.text("_account"), row.text("_id")) else { return };
        self.tell_of_rows(&account_id, |told| told.rows("DEFAULT_UPDATE", &account_id, &[id]));
    }

    /// A settled row has vanished.
    pub(super) fn tell_of_removed_row(&self, account_id: &str, id: &str) {
        let own = json!({"item_id": account_id, "removed_transactions": [id]});
        self.tell_of_rows(account_id, |told| told.tell("TRANSACTION", "DELETE", &own));
    }

    /// Only for an account that is shared: nobody is told of others.
    fn tell_of_rows(&self, account_id: &str, tell: impl FnOnce(&mut Told<'_>)) {
        let mut events = Vec::new();
        {
            let store = self.store.read();
            let mut places = 0..store.users.len();
            if let Some(place) = places.find(|&place| store.account_of(place, account_id).is_some()) {
                tell(&mut Told { hooks: &store.users[place].hooks, events: &mut events });
            }
        }
        let now = self.port.clock.now();
        for event in events {
            self.outbox.add(event, now);
        }
    }
}
