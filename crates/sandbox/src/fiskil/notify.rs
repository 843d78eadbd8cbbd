//! Fiskil's webhooks (docs/providers/fiskil.md#webhooks).

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Serialize;

use super::Fiskil;
use super::store::{Account, Consent};
use crate::clock::Clock;
use crate::control::Misuse;
use crate::members::Members;
use crate::webhooks::{Event, Notifier, Outbox, Rules};
use crate::world::rng::{DIGITS, Rng};

/// The consents, as far as events tell of them.
pub(crate) type Seen = Vec<SeenConsent>;

pub(crate) struct SeenConsent {
    arrangement_id: String,
    end_user_id: String,
    institution_id: &'static str,
    active: bool,
    expires_at: Timestamp,
    accounts: Vec<SeenAccount>,
}

struct SeenAccount {
    id: String,
    members: String,
    balance: String,
    row_changes: u64,
    has_rows: bool,
}

fn seen_account(account: &Account) -> SeenAccount {
    let text = |members| serde_json::to_string(members).unwrap_or_default();
    SeenAccount {
        id: account.account_id.clone(),
        members: text(&account.members),
        balance: text(&account.balance),
        row_changes: account.row_changes,
        has_rows: !account.entries.is_empty(),
    }
}

impl Notifier for Fiskil {
    type Seen = Seen;
    const RULES: Rules = Rules {
        // Not documented: ours.
        timeout_seconds: 10,
        // Five deliveries, 1 to 10 minutes apart; which of these minutes is ours.
        retry_seconds: &[60, 180, 360, 600],
        is_received: |status| (200..300).contains(&status),
    };

    fn outbox(&self) -> &Outbox<Seen> {
        &self.outbox
    }

    fn clock(&self) -> &Clock {
        &self.port.clock
    }

    fn see(&self, now: Timestamp) -> Seen {
        let store = self.store.read();
        let seen = |consent: &Consent| {
            let accounts = store
                .accounts
                .iter()
                .filter(|one| one.arrangement_id == consent.arrangement_id && one.visible_at <= now);
            SeenConsent {
                arrangement_id: consent.arrangement_id.clone(),
                end_user_id: consent.end_user_id.clone(),
                institution_id: consent.institution.id,
                active: consent.is_active(now),
                expires_at: consent.expires_at,
                accounts: accounts.map(seen_account).collect(),
            }
        };
        store.consents.iter().map(seen).collect()
    }

    fn compare(&self, before: &Seen, after: &Seen, now: Timestamp) -> Vec<Event> {
        let mut told = Told { client_id: &self.client_id, now, events: Vec::new() };
        for consent in after {
            let known = before.iter().find(|known| known.arrangement_id == consent.arrangement_id);
            match (known, known.is_some_and(|known| known.active), consent.active) {
                (_, false, false) => {}
                (None, _, true) => {
                    told.tell(consent, "consent.received", None);
                    told.syncs(consent, &consent.accounts.iter().collect::<Vec<_>>(), true);
                }
                // One event for what has expired and what was revoked.
                (_, true, false) => told.tell(consent, "consent.revoked", None),
                // That a consent which comes back is an updated one is ours: only a test can do that.
                (Some(_), false, true) => {
                    told.tell(consent, "consent.updated", None);
                    told.syncs(consent, &consent.accounts.iter().collect::<Vec<_>>(), false);
                }
                (Some(known), true, true) => {
                    if known.expires_at != consent.expires_at {
                        told.tell(consent, "consent.updated", None);
                    }
                    told.changes(known, consent);
                }
            }
        }
        told.events
    }

    fn describe(&self, name: &str, members: Members, now: Timestamp) -> Result<Event, Misuse> {
        let mut data = Members::default();
        data.set("event", &name);
        data.set("client_id", &self.client_id);
        data.merge_all(members);
        Ok(event(name, &data, now))
    }

    fn body(&self, event: &Event, attempt: usize) -> Vec<u8> {
        let mut body = event.body.clone();
        body.set("delivery_attempt", &attempt);
        serde_json::to_vec(&body).expect("text can be written to memory")
    }

    fn sign(&self, body: &[u8]) -> Vec<(&'static str, String)> {
        vec![("X-Fiskil-Signature", signature(&self.webhook_secret, body))]
    }
}

/// The Go form of the webhooks guide: the decoded secret is the key, and the signature is base64.
fn signature(secret: &str, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(secret).unwrap_or_default());
    STANDARD.encode(hmac::sign(&key, body))
}

/// The envelope; an event's name is within its data.
fn event(name: &str, data: &impl Serialize, now: Timestamp) -> Event {
    let random = uuid::Uuid::new_v4().as_u64_pair();
    let id = Rng::new(random.0, random.1).text(DIGITS, 16);
    let mut body = Members::default();
    body.set("delivery_attempt", &1);
    body.set("publish_time", &format!("{now:.3}"));
    body.set("message_id", &id);
    body.set("data", data);
    Event { name: name.to_owned(), id, subscription: None, body }
}

#[derive(Serialize)]
struct Data<'a> {
    event: &'a str,
    consent_id: &'a str,
    client_id: &'a str,
    end_user_id: &'a str,
    institution_id: &'a str,
    /// With accounts, balances and transactions only.
    #[serde(skip_serializing_if = "Option::is_none")]
    account_ids: Option<Vec<&'a str>>,
}

/// What has happened.
struct Told<'a> {
    client_id: &'a str,
    now: Timestamp,
    events: Vec<Event>,
}

impl Told<'_> {
    fn tell(&mut self, consent: &SeenConsent, name: &str, account_ids: Option<Vec<&str>>) {
        let data = Data {
            event: name,
            consent_id: &consent.arrangement_id,
            client_id: self.client_id,
            end_user_id: &consent.end_user_id,
            institution_id: consent.institution_id,
            account_ids,
        };
        self.events.push(event(name, &data, self.now));
    }

    fn synced(&mut self, consent: &SeenConsent, what: &str, accounts: &[&SeenAccount]) {
        let ids: Vec<&str> = accounts.iter().map(|account| account.id.as_str()).collect();
        if !ids.is_empty() {
            self.tell(consent, &format!("banking.{what}.sync.completed"), Some(ids));
        }
    }

    /// Accounts, then balances, then rows, of which those of about 90 days are told of separately at first. That
    /// nothing lies between them is ours; the order is that of docs/providers/fiskil.md#sandbox-choices.
    fn syncs(&mut self, consent: &SeenConsent, accounts: &[&SeenAccount], is_first: bool) {
        self.synced(consent, "accounts", accounts);
        self.synced(consent, "balances", accounts);
        let filled: Vec<_> = accounts.iter().copied().filter(|account| account.has_rows).collect();
        if is_first {
            self.synced(consent, "transactions.recent", &filled);
        }
        self.synced(consent, "transactions.basic", &filled);
        self.synced(consent, "transactions", &filled);
    }

    /// What a test changed under a consent that holds.
    fn changes(&mut self, before: &SeenConsent, after: &SeenConsent) {
        let known = |account: &SeenAccount| before.accounts.iter().find(|known| known.id == account.id);
        let new: Vec<_> = after.accounts.iter().filter(|account| known(account).is_none()).collect();
        self.syncs(after, &new, before.accounts.is_empty());
        let changed = |differs: fn(&SeenAccount, &SeenAccount) -> bool| -> Vec<&SeenAccount> {
            let all = after.accounts.iter();
            all.filter(|account| known(account).is_some_and(|known| differs(known, account))).collect()
        };
        self.synced(after, "accounts", &changed(|before, after| before.members != after.members));
        self.synced(after, "balances", &changed(|before, after| before.balance != after.balance));
        self.synced(after, "transactions", &changed(|before, after| before.row_changes != after.row_changes));
    }
}

#[cfg(test)]
mod tests {
    use super::signature;

    #[test]
    fn the_vector_of_the_notes() {
        let body = br#"{"delivery_attempt":1,"message_id":"1","data":{"event":"consent.received"}}"#;
        let secret = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
        assert_eq!(signature(secret, body), "qgylCyLV+40+C356r9PoluceN1eJoIvO/OeHgvmNSho=");
    }
}
