//! Fiskil's webhook events, which follow from two snapshots of the consents
//! (docs/providers/fiskil.md#webhooks).

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Serialize;

use super::Fiskil;
use super::store::{Account, Consent};
use crate::members::Members;
use crate::refused::Refused;
use crate::store::RowChange;
use crate::webhooks::{DeliveryPolicy, WebhookEvent, WebhookSource, only_in};
use crate::world::rng::{DIGITS, Rng};

/// The part of the consents from which events follow.
pub(crate) type Snapshot = Vec<ConsentSnapshot>;

pub(crate) struct ConsentSnapshot {
    arrangement_id: String,
    end_user_id: String,
    institution_id: &'static str,
    active: bool,
    expires_at: Timestamp,
    accounts: Vec<AccountSnapshot>,
}

struct AccountSnapshot {
    id: String,
    members: String,
    balance: String,
    has_rows: bool,
}

fn account_snapshot(account: &Account) -> AccountSnapshot {
    AccountSnapshot {
        id: account.id.clone(),
        members: account.members.to_string(),
        balance: account.balance.to_string(),
        has_rows: !account.entries.is_empty(),
    }
}

impl WebhookSource for Fiskil {
    const DELIVERY_POLICY: DeliveryPolicy = DeliveryPolicy {
        // Undocumented, a sandbox choice.
        timeout_seconds: 10,
        // Five deliveries, 1 to 10 minutes apart; the exact minutes are a sandbox choice.
        retry_seconds: &[60, 180, 360, 600],
        is_received: |status| (200..300).contains(&status),
    };

    fn snapshot(&self, now: Timestamp) -> Snapshot {
        let store = self.store.read();
        let consent_snapshot = |consent: &Consent| {
            let accounts = store.accounts.iter().filter(|held| {
                held.arrangement_id == consent.arrangement_id && held.visible_at <= now
            });
            ConsentSnapshot {
                arrangement_id: consent.arrangement_id.clone(),
                end_user_id: consent.end_user_id.clone(),
                institution_id: consent.institution.id,
                active: consent.is_active(now),
                expires_at: consent.expires_at,
                accounts: accounts.map(account_snapshot).collect(),
            }
        };
        store.consents.iter().map(consent_snapshot).collect()
    }

    fn compare(
        &self,
        before: &Snapshot,
        after: &Snapshot,
        rows: &[RowChange],
        now: Timestamp,
    ) -> Vec<WebhookEvent> {
        let mut recorder = EventRecorder {
            client_id: &self.access.client_id,
            rows,
            now,
            events: Vec::new(),
        };
        for consent in after {
            let known = before
                .iter()
                .find(|known| known.arrangement_id == consent.arrangement_id);
            let accounts: Vec<_> = consent.accounts.iter().collect();
            match known {
                Some(known) if known.active && consent.active => {
                    if known.expires_at != consent.expires_at {
                        recorder.record(consent, "consent.updated", None);
                    }
                    recorder.record_changes(known, consent);
                }
                // An expired and a revoked consent have the same event.
                Some(known) if known.active => recorder.record(consent, "consent.revoked", None),
                _ if !consent.active => {}
                // Sandbox choice: a consent that works again is an updated one. Only a test can
                // cause this.
                Some(_) => {
                    recorder.record(consent, "consent.updated", None);
                    recorder.record_syncs(consent, &accounts, false);
                }
                None => {
                    recorder.record(consent, "consent.received", None);
                    recorder.record_syncs(consent, &accounts, true);
                }
            }
        }
        recorder.events
    }

    fn build_event(
        &self,
        name: &str,
        members: Members,
        now: Timestamp,
    ) -> Result<WebhookEvent, Refused> {
        let mut data = Members::default();
        data.set("event", &name);
        data.set("client_id", &self.access.client_id);
        data.merge_all(members);
        Ok(event(name, &data, now))
    }

    fn body(&self, event: &WebhookEvent, attempt: usize) -> Vec<u8> {
        let mut body = event.body.clone();
        body.set("delivery_attempt", &attempt);
        body.to_string().into_bytes()
    }

    fn sign(&self, body: &[u8]) -> Vec<(&'static str, String)> {
        vec![(
            "X-Fiskil-Signature",
            signature(&self.access.webhook_secret, body),
        )]
    }
}

/// As in the Go sample of the webhooks guide: the decoded secret is the key, and the signature is
/// base64.
fn signature(secret: &str, body: &[u8]) -> String {
    let key = hmac::Key::new(
        hmac::HMAC_SHA256,
        &STANDARD.decode(secret).unwrap_or_default(),
    );
    STANDARD.encode(hmac::sign(&key, body))
}

/// Wraps data in the envelope; the event's name is a member of the data.
fn event(name: &str, data: &impl Serialize, now: Timestamp) -> WebhookEvent {
    let id = Rng::random().text(DIGITS, 16);
    let mut body = Members::default();
    body.set("delivery_attempt", &1);
    body.set("publish_time", &format!("{now:.3}"));
    body.set("message_id", &id);
    body.set("data", data);
    WebhookEvent {
        name: name.to_owned(),
        id,
        subscription: None,
        body,
    }
}

#[derive(Serialize)]
struct Data<'a> {
    event: &'a str,
    consent_id: &'a str,
    client_id: &'a str,
    end_user_id: &'a str,
    institution_id: &'a str,
    /// Only for events about accounts, balances and transactions.
    #[serde(skip_serializing_if = "Option::is_none")]
    account_ids: Option<Vec<&'a str>>,
}

/// Collects the events of a comparison.
struct EventRecorder<'a> {
    client_id: &'a str,
    rows: &'a [RowChange],
    now: Timestamp,
    events: Vec<WebhookEvent>,
}

impl EventRecorder<'_> {
    fn record(&mut self, consent: &ConsentSnapshot, name: &str, account_ids: Option<Vec<&str>>) {
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

    fn record_sync(
        &mut self,
        consent: &ConsentSnapshot,
        what: &str,
        accounts: &[&AccountSnapshot],
    ) {
        let ids: Vec<&str> = accounts.iter().map(|account| account.id.as_str()).collect();
        if !ids.is_empty() {
            self.record(
                consent,
                &format!("banking.{what}.sync.completed"),
                Some(ids),
            );
        }
    }

    /// Records accounts, then balances, then rows. A new consent first reports the rows of about 90
    /// days separately. The order follows docs/providers/fiskil.md#sandbox-choices; that the events
    /// come without a gap is a sandbox choice.
    fn record_syncs(
        &mut self,
        consent: &ConsentSnapshot,
        accounts: &[&AccountSnapshot],
        is_first: bool,
    ) {
        self.record_sync(consent, "accounts", accounts);
        self.record_sync(consent, "balances", accounts);
        let filled: Vec<_> = accounts
            .iter()
            .copied()
            .filter(|account| account.has_rows)
            .collect();
        if is_first {
            self.record_sync(consent, "transactions.recent", &filled);
        }
        self.record_sync(consent, "transactions.basic", &filled);
        self.record_sync(consent, "transactions", &filled);
    }

    /// Records what a test changed under an active consent.
    fn record_changes(&mut self, before: &ConsentSnapshot, after: &ConsentSnapshot) {
        let known =
            |account: &AccountSnapshot| before.accounts.iter().find(|known| known.id == account.id);
        let new: Vec<_> =
            only_in(&after.accounts, &before.accounts, |account| &account.id).collect();
        self.record_syncs(after, &new, before.accounts.is_empty());
        let changed = |differs: &dyn Fn(&AccountSnapshot, &AccountSnapshot) -> bool| {
            let all = after.accounts.iter();
            all.filter(|account| known(account).is_some_and(|known| differs(known, account)))
                .collect::<Vec<_>>()
        };
        let rows = self.rows;
        let has_changed_rows =
            |account: &AccountSnapshot| rows.iter().any(|row| row.account_id == account.id);
        self.record_sync(
            after,
            "accounts",
            &changed(&|before, after| before.members != after.members),
        );
        self.record_sync(
            after,
            "balances",
            &changed(&|before, after| before.balance != after.balance),
        );
        self.record_sync(
            after,
            "transactions",
            &changed(&|_, account| has_changed_rows(account)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::signature;

    #[test]
    fn signature_matches_the_documented_vector() {
        let body =
            br#"{"delivery_attempt":1,"message_id":"1","data":{"event":"consent.received"}}"#;
        let secret = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
        assert_eq!(
            signature(secret, body),
            "qgylCyLV+40+C356r9PoluceN1eJoIvO/OeHgvmNSho="
        );
    }
}
