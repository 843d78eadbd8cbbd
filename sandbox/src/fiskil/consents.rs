//! `/v1/consent`: lists and revokes consents (docs/providers/fiskil.md#consents).

use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp, Unit};
use serde_json::{Value, json};

use super::call::Call;
use super::store::{Account, CONSENT_SECONDS, Consent, ConsentStatus, Store};
use crate::clock::after;
use crate::consent::ConsentState;
use crate::consent_page::APP;
use crate::logos;
use crate::respond::json as respond;

/// Rounds to whole seconds, as in the documented examples.
fn seconds(at: Timestamp) -> Timestamp {
    at.round(Unit::Second).unwrap_or(at)
}

fn view(base_url: &str, store: &Store, consent: &Consent, now: Timestamp) -> Value {
    let active = consent.is_active(now);
    // An account is listed once its data are visible (a sandbox choice).
    let is_listed = |account: &&Account| {
        account.arrangement_id == consent.arrangement_id && account.visible_at <= now
    };
    let accounts = store.accounts.iter().filter(is_listed);
    let (created_at, institution) = (seconds(consent.created_at), consent.institution);
    let mut shown = json!({
        "arrangement_id": consent.arrangement_id,
        "active": active,
        "end_user_id": consent.end_user_id,
        "institution_id": institution.id,
        "institution_name": institution.name,
        "institution_logo": logos::url(base_url, institution.id),
        "institution_type": institution.industry,
        "permissions": ["accounts", "balances", "transactions"],
        "account_ids": accounts.map(|account| &account.id).collect::<Vec<_>>(),
        "created_at": created_at,
        "duration": CONSENT_SECONDS,
        "expires_at": seconds(consent.expires_at),
        "last_accessed": seconds(now.min(consent.expires_at)),
        "last_consent": created_at,
        "app_name": APP,
        "app_logo": "https://logos.example.com/app.svg",
    });
    if let Some(email) = store.text_of_giver(consent, "email") {
        shown["end_user_email"] = email.into();
    }
    // The only known text is that of the documented sample (docs/providers/fiskil.md#consents).
    // Sandbox choices: an active consent has none, and every ended one has this text
    // (docs/providers/fiskil.md#sandbox-choices).
    if !active {
        shown["termination_reason"] = "Expired or Revoked".into();
    }
    shown
}

/// Lists the consents of the team or of one end user, without pages.
pub(super) async fn list(call: Call) -> Response {
    let end_user_id = call.query.filled("end_user_id");
    let store = call.fiskil.store.read();
    let kept = store
        .consents
        .iter()
        .filter(|consent| end_user_id.is_none_or(|id| consent.end_user_id == id));
    let consents: Vec<_> = kept
        .map(|consent| view(&call.fiskil.access.base_url, &store, consent, call.now))
        .collect();
    respond(&json!({"consents": consents, "links": {}}))
}

/// Revokes a consent. Responds with 204 for an unknown id too, as seen live.
pub(super) async fn revoke(Path(id): Path<String>, call: Call) -> StatusCode {
    let mut store = call.fiskil.store.write();
    // An expired consent stays expired.
    if let Some(consent) = store.consent_mut(&id)
        && consent.is_active(call.now)
    {
        consent.set_state(ConsentState::Revoked, call.now);
    }
    StatusCode::NO_CONTENT
}

impl Consent {
    /// Expired and revoked consents differ only in `expires_at`, which is past or future
    /// (docs/providers/fiskil.md#consents).
    pub(super) fn set_state(&mut self, state: ConsentState, now: Timestamp) {
        self.status = match state {
            ConsentState::Active => ConsentStatus::Active,
            ConsentState::Expired | ConsentState::Revoked => ConsentStatus::Ended,
        };
        if state == ConsentState::Expired {
            let hour_ago = after(now, SignedDuration::from_hours(-1));
            self.expires_at = self.expires_at.min(hour_ago);
        } else if self.expires_at <= now {
            self.expires_at = after(now, SignedDuration::from_secs(CONSENT_SECONDS));
        }
    }
}
