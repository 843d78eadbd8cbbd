//! Fiskil's webhook events, which follow from two states of the consents
//! (docs/providers/fiskil.md#webhooks).

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

use super::Fiskil;
use super::store::{Account, Consent};
use crate::members::Members;
use crate::refused::Refused;
use crate::store::{Moment, RowChange};
use crate::webhooks::{DeliveryPolicy, WebhookEvent, WebhookSource, only_in};
use crate::world::rng::{DIGITS, Rng};

/// A consent with its accounts whose data are visible.
struct Given<'a> {
    consent: &'a Consent,
    is_active: bool,
    accounts: Vec<&'a Account>,
}

impl<'a> Given<'a> {
    fn of(consent: &'a Consent, moment: &'a Moment<Fiskil>) -> Self {
        let is_visible = |account: &&Account| {
            account.arrangement_id == consent.arrangement_id && account.visible_at <= moment.at
        };
        Self {
            consent,
            is_active: consent.is_active(moment.at),
            accounts: moment.store.accounts.iter().filter(is_visible).collect(),
        }
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

    fn compare(
        &self,
        before: &Moment<Self>,
        after: &Moment<Self>,
        rows: &[RowChange],
    ) -> Vec<WebhookEvent> {
        let mut recorder = EventRecorder {
            fiskil: self,
            rows,
            now: after.at,
            events: Vec::new(),
        };
        for consent in &after.store.consents {
            let given = Given::of(consent, after);
            let known = before.store.consent(&consent.arrangement_id);
            match known.map(|known| Given::of(known, before)) {
                Some(known) if known.is_active && given.is_active => {
                    if known.consent.expires_at != consent.expires_at {
                        recorder.record(consent, "consent.updated", &[]);
                    }
                    recorder.record_changes(&known, &given);
                }
                // An expired and a revoked consent have the same event.
                Some(known) if known.is_active => recorder.record(consent, "consent.revoked", &[]),
                _ if !given.is_active => {}
                // Sandbox choice: a consent that works again is an updated one. Only a test can
                // cause this.
                Some(_) => {
                    recorder.record(consent, "consent.updated", &[]);
                    recorder.record_syncs(consent, &given.accounts, false);
                }
                None => {
                    recorder.record(consent, "consent.received", &[]);
                    recorder.record_syncs(consent, &given.accounts, true);
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
fn event(name: &str, data: &Members, now: Timestamp) -> WebhookEvent {
    let id = Rng::random().text(DIGITS, 16);
    let mut body = Members::default();
    body.set("delivery_attempt", &1);
    body.set("publish_time", &format!("{now:.3}"));
    body.set("message_id", &id);
    body.set("data", data);
    WebhookEvent {
        name: name.to_owned(),
        subscription: None,
        body,
    }
}

/// Collects the events of a comparison.
struct EventRecorder<'a> {
    fiskil: &'a Fiskil,
    rows: &'a [RowChange],
    now: Timestamp,
    events: Vec<WebhookEvent>,
}

impl EventRecorder<'_> {
    /// Only events about accounts, balances and transactions name accounts.
    fn record(&mut self, consent: &Consent, name: &str, accounts: &[&Account]) {
        let mut data = Members::default();
        data.set("event", &name);
        data.set("consent_id", &consent.arrangement_id);
        data.set("client_id", &self.fiskil.access.client_id);
        data.set("end_user_id", &consent.end_user_id);
        data.set("institution_id", &consent.institution.id);
        if !accounts.is_empty() {
            let ids: Vec<&str> = accounts.iter().map(|account| account.id.as_str()).collect();
            data.set("account_ids", &ids);
        }
        self.events.push(event(name, &data, self.now));
    }

    fn record_sync(&mut self, consent: &Consent, what: &str, accounts: &[&Account]) {
        if !accounts.is_empty() {
            let name = format!("banking.{what}.sync.completed");
            self.record(consent, &name, accounts);
        }
    }

    /// Records accounts, then balances, then rows. A new consent first reports the rows of about 90
    /// days separately. The order follows docs/providers/fiskil.md#sandbox-choices; that the events
    /// come without a gap is a sandbox choice.
    fn record_syncs(&mut self, consent: &Consent, accounts: &[&Account], is_first: bool) {
        self.record_sync(consent, "accounts", accounts);
        self.record_sync(consent, "balances", accounts);
        let filled: Vec<_> = {
            let store = self.fiskil.store.read();
            let has_rows = |account: &&&Account| {
                let mut all = store.accounts.iter();
                all.any(|known| known.id == account.id && !known.entries.is_empty())
            };
            accounts.iter().filter(has_rows).copied().collect()
        };
        if is_first {
            self.record_sync(consent, "transactions.recent", &filled);
        }
        self.record_sync(consent, "transactions.basic", &filled);
        self.record_sync(consent, "transactions", &filled);
    }

    /// Records what a test changed under an active consent.
    fn record_changes(&mut self, before: &Given<'_>, after: &Given<'_>) {
        let consent = after.consent;
        let new = only_in(&after.accounts, &before.accounts, |account| &account.id);
        let new: Vec<_> = new.copied().collect();
        self.record_syncs(consent, &new, before.accounts.is_empty());
        let changed = |differs: &dyn Fn(&Account, &Account) -> bool| {
            let is_changed = |account: &&&Account| {
                let mut known = before.accounts.iter();
                known.any(|known| known.id == account.id && differs(known, account))
            };
            let all = after.accounts.iter();
            all.filter(is_changed).copied().collect::<Vec<_>>()
        };
        let members = changed(&|before, after| before.members != after.members);
        self.record_sync(consent, "accounts", &members);
        let balances = changed(&|before, after| before.balance != after.balance);
        self.record_sync(consent, "balances", &balances);
        let rows = self.rows;
        let filled = changed(&|_, account| rows.iter().any(|row| row.account_id == account.id));
        self.record_sync(consent, "transactions", &filled);
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
