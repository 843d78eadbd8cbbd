//! `POST /v1/auth/session`, and Fiskil's part of the consent page that its `auth_url` leads to
//! (docs/providers/fiskil.md#sessions).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use jiff::SignedDuration;
use serde_json::json;
use serde_json::value::RawValue;

use super::Fiskil;
use super::call::Call;
use super::errors::Failure;
use super::linking::{NewConsent, display_name};
use crate::clock::after;
use crate::consent_page::{
    self, Brand, Choice, ConsentProvider, ConsentResult, ConsentSession, InstitutionOption,
    OfferedAccount, Reason, append_query, is_redirect_uri,
};
use crate::query::{self, Query};
use crate::respond::json as respond;
use crate::world::australia::{AUSTRALIA, Institution, institution};
use crate::world::rng::{BASE62, Rng};

/// How long a session waits for its first form: five days.
const LIFE_SECONDS: i64 = 5 * 86_400;
/// The institution of `sandbox_auto=accept` if the session names none: the provider's own test
/// bank.
const TEST_BANK: &str = "88888";

/// What an app gave when it created the session.
pub(crate) struct Session {
    id: String,
    end_user_id: String,
    institution_id: Option<String>,
    redirect_uri: Option<String>,
    cancel_uri: Option<String>,
}

/// Creates a session for the consent page.
pub(super) async fn create(call: Call) -> Result<Response, Failure> {
    let members = call.members()?;
    let Some(end_user_id) = members.text("end_user_id").filter(|id| !id.is_empty()) else {
        return Err(call.invalid("end_user_id is required"));
    };
    if call.fiskil.store.read().end_user(&end_user_id).is_none() {
        return Err(call.end_user_not_found());
    }
    let known_institution = |id: &RawValue| {
        let id = serde_json::from_str::<&str>(id.get()).ok();
        let known = id.filter(|id| institution(id).is_some());
        known.map(str::to_owned).ok_or_else(|| Failure {
            name: "invalid_institution_id",
            ..call.invalid("no institution has this id")
        })
    };
    let institution_id = members.get("institution_id").map(known_institution);
    let institution_id = institution_id.transpose()?;
    // Fiskil accepts any host (docs/providers/fiskil.md#sessions). That the value must be a URL is
    // a sandbox choice.
    let uri_of = |name: &str| {
        let given = members.get(name).filter(|raw| raw.get() != "null");
        let checked = given.map(|_| {
            let uri = members.text(name).filter(|uri| is_redirect_uri(uri));
            uri.ok_or_else(|| call.invalid(&format!("{name} must be a URL")))
        });
        checked.transpose()
    };
    let (redirect_uri, cancel_uri) = (uri_of("redirect_uri")?, uri_of("cancel_uri")?);
    let id = Rng::random().text(BASE62, 27);
    let expires_at = after(call.now, SignedDuration::from_secs(LIFE_SECONDS));
    let session = Session {
        id: id.clone(),
        end_user_id,
        institution_id: institution_id.clone(),
        redirect_uri,
        cancel_uri,
    };
    let session = ConsentSession::new(Some(id.clone()), session, institution_id, expires_at);
    call.fiskil.consent_sessions.open(session);
    Ok(respond(&json!({
        "id": call.fiskil.access.client_id,
        "auth_url": format!("{}?sess_id={id}", call.fiskil.access.base_url),
        "session_id": id,
        "expires_at": expires_at.as_second(),
    })))
}

/// Opens a session in the browser. With `sandbox_auto`, which the sandbox adds, it responds at once
/// without pages.
pub(super) async fn enter(State(fiskil): State<Arc<Fiskil>>, request: Request) -> Response {
    let query = Query::parse(request.uri().query());
    let id = query.get("sess_id").unwrap_or_default();
    match query.get("sandbox_auto") {
        None => consent_page::session_page(&*fiskil, id),
        Some(word) => fiskil
            .complete_without_pages(id, word)
            .unwrap_or_else(|| consent_page::session_page(&*fiskil, "")),
    }
}

impl Fiskil {
    /// Consents to all accounts of the end user's e-mail address at the institution, or ends the
    /// session with an error.
    fn complete_without_pages(&self, id: &str, word: &str) -> Option<Response> {
        let redeemed = self.consent_sessions.redeem(id, self.clock.now())?;
        let session = redeemed.auth_request;
        let result = match word {
            "accept" => self.share_all(&session)?,
            "deny" => Err(Reason::Denied),
            "error" => Err(Reason::Unavailable),
            _ => return None,
        };
        result
            .unwrap_or_else(|reason| self.fail(&session, reason))
            .location
            .map(|location| consent_page::see_other(&location))
    }

    fn share_all(&self, session: &Session) -> Option<Result<ConsentResult, Reason>> {
        let institution_id = session.institution_id.as_deref().unwrap_or(TEST_BANK);
        let email = self
            .store
            .read()
            .end_user(&session.end_user_id)?
            .members
            .text("email");
        let name = email.unwrap_or_default().to_lowercase();
        let (_, accounts) = self.sign_in(session, institution_id, &name).ok()?;
        if let Some(reason) = self.why_unavailable(institution_id) {
            return Some(Err(reason));
        }
        let choice = Choice {
            institution_id: institution_id.to_owned(),
            name,
            accounts,
        };
        Some(self.share(session, &choice))
    }
}

impl ConsentProvider for Fiskil {
    /// The banks only: energy companies have no data that the app asks for.
    fn institutions(&self) -> Vec<InstitutionOption> {
        let banks = AUSTRALIA
            .institutions
            .iter()
            .filter(|institution| institution.industry == "banking");
        let option = |institution: &Institution| InstitutionOption {
            id: institution.id,
            name: institution.name,
            note: (institution.status == "OUTAGE").then_some("Not available at the moment"),
        };
        banks.map(option).collect()
    }

    /// The reason of an outage is inferred (docs/providers/fiskil.md#consent-errors); that of an
    /// energy company is a sandbox choice.
    fn why_unavailable(&self, institution_id: &str) -> Option<Reason> {
        let institution = institution(institution_id)?;
        match (institution.status, institution.industry) {
            ("OUTAGE", _) => Some(Reason::Unavailable),
            (_, "banking") => None,
            _ => Some(Reason::LoginRejected),
        }
    }

    fn sign_in(
        &self,
        _: &Session,
        institution_id: &str,
        name: &str,
    ) -> Result<(String, Vec<OfferedAccount>), Reason> {
        let store = self.store.read();
        let institution = institution(institution_id).ok_or(Reason::Unavailable)?;
        Ok((
            display_name(store.seed, name),
            store.offers(institution, name, self.clock.now()),
        ))
    }

    fn share(&self, session: &Session, choice: &Choice) -> Result<ConsentResult, Reason> {
        let mut store = self.store.write();
        let institution = institution(&choice.institution_id)
            .filter(|_| store.end_user(&session.end_user_id).is_some())
            .ok_or(Reason::UserDeleted)?;
        let (options, now) = (*self.options.lock(), self.clock.now());
        let lag = SignedDuration::from_secs(options.lag_seconds.into());
        store.consent_to(&NewConsent {
            end_user_id: &session.end_user_id,
            institution,
            username: &choice.name,
            chosen: &choice.accounts,
            same_ids: options.same_ids,
            now,
            visible_at: after(now, lag),
        });
        let result = query::write(&[("session_id", &session.id)]);
        let redirect_uri = session.redirect_uri.as_ref();
        Ok(ConsentResult {
            location: redirect_uri.map(|uri| append_query(uri, &result)),
            shows_page: false,
            title: "Done",
            text: Brand::of::<Self>().success(institution.name),
        })
    }

    /// The codes are documented (docs/providers/fiskil.md#consent-errors), the texts invented.
    /// Sandbox choice: a cancel has the second code once the bank's own step has begun.
    fn fail(&self, session: &Session, reason: Reason) -> ConsentResult {
        let failure = Brand::of::<Self>().failure(reason);
        let text = failure.text.unwrap_or_default();
        let pairs = [
            ("error", "access_denied"),
            ("error_type", failure.code),
            ("error_description", text),
        ];
        let cancel_uri = session.cancel_uri.as_ref();
        ConsentResult {
            location: cancel_uri.map(|uri| append_query(uri, &query::write(&pairs))),
            shows_page: false,
            title: "Nothing was shared",
            text: format!("{text} ({}).", failure.code),
        }
    }
}
