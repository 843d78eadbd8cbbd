//! `POST /v1/auth/session`, and the hosted page that its address leads to (docs/providers/fiskil.md#sessions).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::Fiskil;
use super::call::{Call, json};
use super::errors::Failure;
use super::linking::{Given, who};
use crate::consent_page::{self, Brand, Desk, End, Host, Landing, Offer, Place, Visit, is_target, with_result};
use crate::query::{self, Query};
use crate::world::people::{INSTITUTIONS, Institution};
use crate::world::rng::{BASE62, Rng};

/// Five days.
const LIFE_SECONDS: i64 = 5 * 86_400;
/// Where somebody is taken who wants no pages and names no institution: the provider's own test bank.
const TEST_BANK: &str = "88888";

/// How linking goes, as the control interface wants it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ways {
    /// How long data lag consent.
    pub(super) lag_seconds: u32,
    /// The same accounts, linked again, have the same ids.
    pub(super) same_ids: bool,
}

/// What a session is for.
pub(crate) struct Session {
    id: String,
    end_user_id: String,
    institution_id: Option<String>,
    redirect_uri: Option<String>,
    cancel_uri: Option<String>,
}

#[derive(Serialize)]
struct Shown<'a> {
    id: &'a str,
    session_id: String,
    auth_url: String,
    /// Unix seconds.
    expires_at: i64,
}

/// A session for the consent page.
pub(super) async fn create(call: Call) -> Result<Response, Failure> {
    let members = call.members()?;
    let Some(end_user_id) = members.text("end_user_id").filter(|id| !id.is_empty()) else {
        return Err(call.invalid("end_user_id is required"));
    };
    if call.fiskil.store.read().end_user(&end_user_id).is_none() {
        return Err(call.no_end_user());
    }
    let institution_id = match members.get("institution_id") {
        None => None,
        Some(id) => {
            let known = serde_json::from_str::<&str>(id.get()).ok().filter(|id| institution(id).is_some());
            let failure = call.invalid("no institution has this id");
            Some(known.ok_or(Failure { name: "invalid_institution_id", ..failure })?.to_owned())
        }
    };
    let address = |name: &str| match members.get(name).filter(|raw| raw.get() != "null") {
        None => Ok(None),
        // Any host was accepted (docs/providers/fiskil.md#sessions); that it must be a URL at all is ours.
        Some(_) => members.text(name).filter(|uri| is_target(uri)).map(Some).ok_or(name.to_owned()),
    };
    let refused = |name: String| call.invalid(&format!("{name} must be a URL"));
    let (redirect_uri, cancel_uri) =
        (address("redirect_uri").map_err(refused)?, address("cancel_uri").map_err(refused)?);
    let random = uuid::Uuid::new_v4().as_u64_pair();
    let id = Rng::new(random.0, random.1).text(BASE62, 27);
    let ends = call.now.saturating_add(SignedDuration::from_secs(LIFE_SECONDS)).unwrap_or(Timestamp::MAX);
    let place = institution_id.clone();
    let session = Session { id: id.clone(), end_user_id, institution_id, redirect_uri, cancel_uri };
    call.fiskil.desk.open(Visit::new(Some(id.clone()), session, ends).at(place));
    Ok(json(&Shown {
        id: &call.fiskil.client_id,
        auth_url: format!("{}?sess_id={id}", call.fiskil.base_url),
        session_id: id,
        expires_at: ends.as_second(),
    }))
}

fn institution(id: &str) -> Option<&'static Institution> {
    INSTITUTIONS.iter().find(|one| one.id == id)
}

/// The address that a session's browser goes to. `sandbox_auto` is ours: no pages, the answer at once.
pub(super) async fn enter(State(fiskil): State<Arc<Fiskil>>, request: Request) -> Response {
    let query = Query::parse(request.uri().query());
    let id = query.get("sess_id").unwrap_or_default();
    match query.get("sandbox_auto") {
        None => consent_page::enter(&*fiskil, id),
        Some(word) => fiskil.at_once(id, word).unwrap_or_else(|| consent_page::enter(&*fiskil, "")),
    }
}

impl Fiskil {
    /// Says yes to everything that whoever has the end user's e-mail address has at the institution, or no.
    fn at_once(&self, id: &str, word: &str) -> Option<Response> {
        let session = self.desk.redeem(id, self.now())?.into_subject();
        let end = match word {
            "accept" => {
                let place = session.institution_id.clone().unwrap_or_else(|| TEST_BANK.to_owned());
                let email = self.store.read().end_user(&session.end_user_id)?.members.text("email");
                let name = email.unwrap_or_default().to_lowercase();
                let (_, chosen) = self.sign_in(&session, &place, &name).ok()?;
                self.barred(&place).unwrap_or(End::Allowed { place, name, chosen })
            }
            "deny" => End::Cancelled { signing_in: true },
            "error" => End::Failed,
            _ => return None,
        };
        self.finish(&session, end).location.map(|location| consent_page::see_other(&location))
    }
}

impl Host for Fiskil {
    type Subject = Session;

    const BRAND: Brand = Brand {
        name: "Fiskil",
        colour: "#4a2fbd",
        tint: "#f5f3fc",
        // The provider's own kit shows the page in a frame (docs/providers/fiskil.md#sessions).
        framed: true,
        place: "bank",
        wants: &["Names and numbers of the accounts", "Balances", "Transactions of the past and of the coming months"],
        note: "It may do so for 12 months, and you can stop it at any time.",
        stale: "The session is over, too old, or was never there (AUTH_SESSION_INVALID). Go back to the app and begin \
                anew.",
    };

    fn desk(&self) -> &Desk<Session> {
        &self.desk
    }

    fn now(&self) -> Timestamp {
        self.port.clock.now()
    }

    /// The banks: energy companies have nothing that is asked for.
    fn places(&self) -> Vec<Place> {
        let banks = INSTITUTIONS.iter().filter(|one| one.industry == "banking");
        let place = |one: &Institution| Place {
            id: one.id.to_owned(),
            name: one.name.to_owned(),
            note: (one.status == "OUTAGE").then_some("Not available at the moment"),
        };
        banks.map(place).collect()
    }

    /// What an outage leads to is inferred (docs/providers/fiskil.md#consent-errors); what an energy company does, is
    /// ours.
    fn barred(&self, place: &str) -> Option<End> {
        let one = institution(place)?;
        match (one.status, one.industry) {
            ("OUTAGE", _) => Some(End::Failed),
            (_, "banking") => None,
            _ => Some(End::Refused),
        }
    }

    fn sign_in(&self, _: &Session, place: &str, name: &str) -> Result<(String, Vec<Offer>), End> {
        let store = self.store.read();
        let institution = institution(place).ok_or(End::Failed)?;
        Ok((who(store.seed, name), store.offers(institution, name, self.now())))
    }

    fn finish(&self, session: &Session, end: End) -> Landing {
        match end {
            End::Allowed { place, name, chosen } => self.allowed(session, &place, &name, &chosen),
            // Which of the two words a cancel gets is ours: the second once the bank's own part has begun.
            End::Cancelled { signing_in: false } | End::Left => {
                failed(session, "AUTH_SESSION_CANCELLED", "The user cancelled the session")
            }
            End::Cancelled { signing_in: true } => {
                failed(session, "CONSENT_ENDUSER_DENIED", "The user did not give consent")
            }
            End::WrongCode => failed(session, "CONSENT_OTP_FAILURE", "The one-time code was wrong too often"),
            End::Failed => {
                failed(session, "CONSENT_UPSTREAM_PROCESSING_ERROR", "The data holder could not process the consent")
            }
            End::Refused | End::Different => {
                failed(session, "CONSENT_ENDUSER_INELIGIBLE", "The user has nothing to share at this data holder")
            }
            End::Gone => failed(session, "AUTH_SESSION_CANCELLED", "The end user is not there any more"),
            End::TimedOut => failed(session, "CONSENT_TIMEOUT", "The consent took too long"),
        }
    }
}

/// Away with an error. The descriptions are ours, the names are not (docs/providers/fiskil.md#consent-errors).
fn failed(session: &Session, error_type: &str, description: &str) -> Landing {
    let pairs = [("error", "access_denied"), ("error_type", error_type), ("error_description", description)];
    let location = session.cancel_uri.as_ref().map(|uri| with_result(uri, '&', &query::write(&pairs)));
    let text = format!("{description} ({error_type}).");
    Landing { location, stays: false, title: "Nothing was shared".to_owned(), text }
}

impl Fiskil {
    fn allowed(&self, session: &Session, place: &str, name: &str, chosen: &[Offer]) -> Landing {
        let mut store = self.store.write();
        let Some(institution) = institution(place).filter(|_| store.end_user(&session.end_user_id).is_some()) else {
            return self.finish(session, End::Gone);
        };
        let (ways, now) = (*self.linking.lock(), self.now());
        let lag = SignedDuration::from_secs(ways.lag_seconds.into());
        store.consent_to(&Given {
            end_user_id: &session.end_user_id,
            institution,
            owner: name,
            chosen,
            same_ids: ways.same_ids,
            now,
            visible_at: now.saturating_add(lag).unwrap_or(Timestamp::MAX),
        });
        let result = query::write(&[("session_id", &session.id)]);
        let location = session.redirect_uri.as_ref().map(|uri| with_result(uri, '&', &result));
        let text = format!("{} now shares your accounts at {}.", Self::BRAND.name, institution.name);
        Landing { location, stays: false, title: "Done".to_owned(), text }
    }
}
