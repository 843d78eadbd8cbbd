//! `/v1/consent`: lists and revokes consents (docs/providers/fiskil.md#consents).

use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp, Unit};
use serde::Serialize;

use super::call::{Call, Version, json};
use super::errors::Failure;
use super::store::{Account, CONSENT_SECONDS, Consent, ConsentStatus, Store};
use crate::logos;

#[derive(Serialize)]
struct ConsentView<'a> {
    arrangement_id: &'a str,
    active: bool,
    end_user_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_user_email: Option<String>,
    institution_id: &'a str,
    institution_name: &'a str,
    institution_logo: String,
    institution_type: &'a str,
    permissions: [&'static str; 3],
    account_ids: Vec<&'a str>,
    created_at: Timestamp,
    duration: i64,
    expires_at: Timestamp,
    last_accessed: Timestamp,
    last_consent: Timestamp,
    app_name: &'static str,
    app_logo: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    termination_reason: Option<&'static str>,
}

#[derive(Serialize)]
struct Envelope<T> {
    consents: T,
    links: Links,
}

#[derive(Serialize)]
struct Links {}

/// Rounds to whole seconds, as in the documented examples.
fn seconds(at: Timestamp) -> Timestamp {
    at.round(Unit::Second).unwrap_or(at)
}

fn view<'a>(
    base_url: &str,
    store: &'a Store,
    consent: &'a Consent,
    now: Timestamp,
) -> ConsentView<'a> {
    let active = consent.is_active(now);
    // An account is listed once its data are visible (a sandbox choice).
    let is_listed = |account: &&Account| {
        account.arrangement_id == consent.arrangement_id && account.visible_at <= now
    };
    let accounts = store.accounts.iter().filter(is_listed);
    let user = store
        .end_users
        .iter()
        .find(|user| user.id == consent.end_user_id);
    ConsentView {
        arrangement_id: &consent.arrangement_id,
        active,
        end_user_id: &consent.end_user_id,
        end_user_email: user.and_then(|user| user.members.text("email")),
        institution_id: consent.institution.id,
        institution_name: consent.institution.name,
        institution_logo: logos::url(base_url, consent.institution.id),
        institution_type: consent.institution.industry,
        permissions: ["accounts", "balances", "transactions"],
        account_ids: accounts
            .map(|account| account.account_id.as_str())
            .collect(),
        created_at: seconds(consent.created_at),
        duration: CONSENT_SECONDS,
        expires_at: seconds(consent.expires_at),
        last_accessed: seconds(now.min(consent.expires_at)),
        last_consent: seconds(consent.created_at),
        app_name: "Sandbox App",
        app_logo: "https://logos.example.com/app.svg",
        // The only known text is that of the documented sample (docs/providers/fiskil.md#consents).
        // Sandbox choices: an active consent has none, and every ended one has this text
        // (docs/providers/fiskil.md#sandbox-choices).
        termination_reason: (!active).then_some("Expired or Revoked"),
    }
}

/// Lists the consents of the team or of one end user: an array, or in v3 an envelope.
pub(super) async fn list(call: Call) -> Result<Response, Failure> {
    let end_user_id = call.query.get("end_user_id").filter(|id| !id.is_empty());
    let active = call.flag("active")?;
    let store = call.fiskil.store.read();
    let all = store
        .consents
        .iter()
        .filter(|consent| end_user_id.is_none_or(|id| consent.end_user_id == id));
    let kept =
        all.filter(|consent| active.is_none_or(|active| consent.is_active(call.now) == active));
    let consents: Vec<_> = kept
        .map(|consent| view(&call.fiskil.base_url, &store, consent, call.now))
        .collect();
    Ok(match call.version {
        Version::V3 => json(&Envelope {
            consents,
            links: Links {},
        }),
        Version::V1 | Version::V2 => json(&consents),
    })
}

/// Revokes a consent. Responds with 204 for an unknown id too, as seen live.
pub(super) async fn revoke(Path(id): Path<String>, call: Call) -> StatusCode {
    let mut store = call.fiskil.store.write();
    // An expired consent stays expired.
    if store
        .consent(&id)
        .is_some_and(|consent| consent.is_active(call.now))
    {
        store.set_consent(&id, State::Revoked, call.now);
    }
    StatusCode::NO_CONTENT
}

/// The state that a test sets for a consent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Active,
    Expired,
    Revoked,
}

impl Store {
    /// Sets the state of a consent and returns whether it exists. Expired and revoked consents
    /// differ only in `expires_at`, which is past or future (docs/providers/fiskil.md#consents).
    pub(super) fn set_consent(
        &mut self,
        arrangement_id: &str,
        state: State,
        now: Timestamp,
    ) -> bool {
        let found = self
            .consents
            .iter_mut()
            .find(|consent| consent.arrangement_id == arrangement_id);
        let Some(consent) = found else { return false };
        let full = now
            .saturating_add(SignedDuration::from_secs(CONSENT_SECONDS))
            .unwrap_or(Timestamp::MAX);
        match state {
            State::Active => {
                consent.status = ConsentStatus::Active;
                consent.expires_at = if consent.expires_at > now {
                    consent.expires_at
                } else {
                    full
                };
            }
            State::Expired => {
                consent.status = ConsentStatus::Ended;
                let hour_ago = now
                    .saturating_sub(SignedDuration::from_hours(1))
                    .unwrap_or(Timestamp::MIN);
                consent.expires_at = consent.expires_at.min(hour_ago);
            }
            State::Revoked => {
                consent.status = ConsentStatus::Ended;
                consent.expires_at = if consent.expires_at > now {
                    consent.expires_at
                } else {
                    full
                };
            }
        }
        true
    }

    pub(super) fn set_consent_expiry(&mut self, arrangement_id: &str, expires_at: Timestamp) {
        for consent in self
            .consents
            .iter_mut()
            .filter(|consent| consent.arrangement_id == arrangement_id)
        {
            consent.expires_at = expires_at;
        }
    }
}
