//! Starts the hosted consent page at `/authorize` and builds the redirects back to the app
//! (docs/providers/akahu.md#consent-page, #redirects). `sandbox_auto` skips the pages for tests
//! that do not need them.

use std::sync::Arc;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{StatusCode, Uri};
use jiff::Timestamp;

use super::Akahu;
use super::connections::is_closed_to_new_connections;
use crate::consent::ConsentState;
use crate::consent_page::{
    self, Brand, Choice, ConsentProvider, ConsentResult, ConsentSession, InstitutionOption,
    OfferedAccount, Reason, append_query, is_redirect_uri, see_other,
};
use crate::host::is_this_machine;
use crate::query::{self, Query};
use crate::world::new_zealand::{Institution, NEW_ZEALAND, institution};

/// The known parameters. All but `sandbox_auto` are documented.
const PARAMETERS: [&str; 9] = [
    "response_type",
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "email",
    "connection",
    "redirect_mode",
    "sandbox_auto",
];
/// Limit for the parameters, in bytes, because the server keeps them with the session.
const QUERY_BYTES_MAX: usize = 4 * 1024;
/// People whom the form may make up beside those of the world.
const NEW_USERS_MAX: usize = 50;

/// What the redirect back to the app needs.
pub(crate) struct AuthorizationRequest {
    redirect_uri: String,
    state: Option<String>,
}

/// Authenticates first pages, for which the server stores nothing.
pub(super) struct FirstPages(hmac::Key);

impl FirstPages {
    pub(super) fn new() -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        Self(key.expect("the system has random numbers"))
    }

    /// The hidden field of a first page, which proves that the sandbox made it for this query.
    fn token(&self, query: &str) -> String {
        let random = uuid::Uuid::new_v4().simple().to_string();
        format!("{random}{}", self.tag(&random, query))
    }

    fn tag(&self, random: &str, query: &str) -> String {
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.0, format!("{random}?{query}").as_bytes()))
    }

    fn is_token(&self, token: &str, query: &str) -> bool {
        let Some((random, tag)) = token.split_at_checked(32) else {
            return false;
        };
        let tag = URL_SAFE_NO_PAD.decode(tag).unwrap_or_default();
        hmac::verify(&self.0, format!("{random}?{query}").as_bytes(), &tag).is_ok()
    }
}

fn is_loopback(uri: &str) -> bool {
    let uri: Result<Uri, _> = uri.parse();
    uri.is_ok_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && is_this_machine(&uri))
}

/// The checked parameters of a first page. Without a known app and redirect URI an error becomes a
/// page; other errors go back to the app (docs/providers/akahu.md#redirects). For undocumented
/// mistakes the sandbox chose one of the two.
struct AuthorizeParams {
    request: AuthorizationRequest,
    email: String,
    connection: Option<String>,
    auto: Option<String>,
}

/// Why there is no first page.
pub(super) enum Rejection {
    /// The text of an error page, because there is no safe redirect URI.
    Page(String),
    /// The redirect with the error.
    Redirect(String),
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        match self {
            Self::Page(text) => consent_page::error_page::<Akahu>(
                StatusCode::BAD_REQUEST,
                "This request cannot be served",
                &text,
            ),
            Self::Redirect(location) => see_other(&location),
        }
    }
}

impl AuthorizeParams {
    fn of(akahu: &Akahu, text: &str) -> Result<Self, Rejection> {
        let query = Query::parse(Some(text));
        if let Some(mistake) = mistake(akahu, text, &query) {
            return Err(Rejection::Page(mistake));
        }
        let own = |name| query.get(name).map(str::to_owned);
        let request = AuthorizationRequest {
            redirect_uri: own("redirect_uri").unwrap_or_default(),
            state: own("state"),
        };
        let scopes = query.get("scope").unwrap_or_default();
        let is_enduring = scopes.split(' ').any(|scope| scope == "ENDURING_CONSENT");
        let error = match query.get("response_type") {
            Some("code") if is_enduring => {
                return Ok(Self {
                    request,
                    email: own("email").unwrap_or_default(),
                    connection: own("connection"),
                    auto: own("sandbox_auto"),
                });
            }
            Some("code") => "invalid_scope",
            _ => "unsupported_response_type",
        };
        Err(Rejection::Redirect(request.failed(error, None)))
    }

    /// A session whose first form has this token. It starts with that form, so it cannot expire
    /// before.
    fn into_session(self, token: String) -> ConsentSession<AuthorizationRequest> {
        let mut session = ConsentSession::new(None, self.request, self.connection, Timestamp::MAX);
        session.token = token;
        session.with_username(&self.email)
    }
}

/// Why the parameters cannot lead back to an app.
fn mistake(akahu: &Akahu, text: &str, query: &Query) -> Option<String> {
    let uri = query.get("redirect_uri").unwrap_or_default();
    let connection = query.get("connection");
    let unknown = query.names().find(|name| !PARAMETERS.contains(name));
    if text.len() > QUERY_BYTES_MAX {
        Some(format!(
            "The parameters are longer than {QUERY_BYTES_MAX} bytes."
        ))
    } else if let Some(name) = unknown {
        Some(format!("The parameter {name} is not known."))
    } else if query.get("client_id") != Some(akahu.access.app_token.as_str()) {
        Some("The app (client_id) is not known.".to_owned())
    } else if !is_redirect_uri(uri) || !akahu.is_registered(uri) {
        Some(format!(
            "The redirect URI (redirect_uri) is not registered: {uri} - The sandbox knows all \
             URIs of its own computer until you register others there: curl {}/__control/options -d \
             '{{\"redirectUris\": [\"REDIRECT_URI\"]}}'",
            akahu.access.oauth_url
        ))
    } else if connection.is_some_and(|id| institution(id).is_none()) {
        Some("The institution (connection) is not known.".to_owned())
    } else {
        None
    }
}

impl AuthorizationRequest {
    /// The redirect URI with these pairs, and the app's state between them.
    fn redirect(&self, before: &[(&str, &str)], after: &[(&str, &str)]) -> String {
        let state = self.state.as_deref().map(|state| ("state", state));
        let pairs = [before, state.as_slice(), after].concat();
        append_query(&self.redirect_uri, &query::write(&pairs))
    }

    fn failed(&self, error: &str, description: Option<&str>) -> String {
        let description = description.map(|text| ("error_description", text));
        let pairs: Vec<_> = [("error", error)].into_iter().chain(description).collect();
        self.redirect(&pairs, &[])
    }

    fn accepted(&self, code: &str, event: &str) -> String {
        self.redirect(&[("code", code)], &[("source", "oauth"), ("event", event)])
    }
}

/// Shows the first page. The server stores nothing for it.
pub(super) async fn show(
    State(akahu): State<Arc<Akahu>>,
    request: Request,
) -> Result<Response, Rejection> {
    let text = request.uri().query().unwrap_or_default();
    let params = AuthorizeParams::of(&akahu, text)?;
    match params.auto.as_deref() {
        None => {
            let session = params.into_session(akahu.first_pages.token(text));
            Ok(consent_page::first_page(&*akahu, &session))
        }
        Some("accept") => Ok(see_other(&akahu.accept(&params))),
        Some("deny") => Ok(see_other(&params.request.failed("access_denied", None))),
        Some(_) => Err(Rejection::Page(
            "sandbox_auto must be accept or deny.".to_owned(),
        )),
    }
}

/// Accepts the form of the first page. From here on the server stores a session.
pub(super) async fn begin(
    State(akahu): State<Arc<Akahu>>,
    request: Request,
) -> Result<Response, Response> {
    let text = request.uri().query().unwrap_or_default().to_owned();
    let params = AuthorizeParams::of(&akahu, &text).map_err(IntoResponse::into_response)?;
    let form = consent_page::read_form::<Akahu>(request).await?;
    let token = form.get("session").unwrap_or_default();
    if akahu.first_pages.is_token(token, &text) && !akahu.consent_sessions.has(token) {
        let session = params.into_session(token.to_owned());
        akahu.consent_sessions.open(session);
    }
    Ok(consent_page::submit_form(&*akahu, &form))
}

impl Akahu {
    fn is_registered(&self, uri: &str) -> bool {
        let known = &self.options.lock().redirect_uris;
        if known.is_empty() {
            is_loopback(uri)
        } else {
            known.iter().any(|known| known == uri)
        }
    }

    /// Consents as the user with the e-mail address in `email`, or else as the first user. All
    /// their logins become shared and active.
    fn accept(&self, params: &AuthorizeParams) -> String {
        let now = self.clock.now();
        let mut store = self.store.write();
        let user = store
            .users
            .iter()
            .position(|user| user.email == params.email)
            .unwrap_or_default();
        for login in 0..store.logins.len() {
            if store.logins[login].user == user && store.logins[login].state != ConsentState::Active
            {
                store.set_state(login, ConsentState::Active, now);
            }
        }
        store.users[user].consented_at = now;
        params.request.accepted(
            &self.codes.issue(user, &params.request.redirect_uri, now),
            "ACCEPT",
        )
    }
}

impl ConsentProvider for Akahu {
    fn institutions(&self) -> Vec<InstitutionOption> {
        let option = |institution: &Institution| InstitutionOption {
            id: institution.id,
            name: institution.name,
            note: is_closed_to_new_connections(institution)
                .then_some("Not available for new connections"),
        };
        NEW_ZEALAND.institutions.iter().map(option).collect()
    }

    fn why_unavailable(&self, institution_id: &str) -> Option<Reason> {
        institution(institution_id)
            .is_none_or(is_closed_to_new_connections)
            .then_some(Reason::Unavailable)
    }

    fn sign_in(
        &self,
        _: &AuthorizationRequest,
        institution_id: &str,
        name: &str,
    ) -> Result<(String, Vec<OfferedAccount>), Reason> {
        let store = self.store.read();
        let institution = institution(institution_id).ok_or(Reason::Unavailable)?;
        Ok((store.display_name(name), store.offers(institution, name)))
    }

    fn share(
        &self,
        request: &AuthorizationRequest,
        choice: &Choice,
    ) -> Result<ConsentResult, Reason> {
        let institution = institution(&choice.institution_id).ok_or(Reason::Unavailable)?;
        let (mut store, now) = (self.store.write(), self.clock.now());
        if !store.has_room_for(&choice.name, NEW_USERS_MAX) {
            return Ok(ConsentResult {
                location: Some(request.failed("server_error", Some("Too many people"))),
                shows_page: true,
                title: "No further person can be made up",
                text: format!(
                    "The sandbox has made up {NEW_USERS_MAX} people. Sign in as one of them."
                ),
            });
        }
        let event = if store.has_shared_logins(&choice.name) {
            "UPDATE"
        } else {
            "ACCEPT"
        };
        let user = store.share(institution, choice, &self.options.lock(), now);
        let code = self.codes.issue(user, &request.redirect_uri, now);
        Ok(redirect_result(request.accepted(&code, event)))
    }

    /// `access_denied` is documented for users who decline. The standard OAuth code for an
    /// institution that does not respond, and all texts, are invented.
    fn fail(&self, request: &AuthorizationRequest, reason: Reason) -> ConsentResult {
        let failure = Brand::of::<Self>().failure(reason);
        redirect_result(request.failed(failure.code, failure.text))
    }
}

/// Akahu redirects at once, without a last page.
fn redirect_result(location: String) -> ConsentResult {
    ConsentResult {
        location: Some(location),
        shows_page: false,
        title: "Done",
        text: "You were redirected.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn loopback_addresses_are_registered() {
        for good in [
            "http://127.0.0.1:8081/cb?x=1",
            "http://localhost/cb",
            "https://[::1]:9/cb",
        ] {
            assert!(is_loopback(good), "{good}");
        }
        for bad in [
            "http://127.0.0.1.evil.example/",
            "http://localhost@evil.example/",
            "https://a.example/",
            "x://localhost",
        ] {
            assert!(!is_loopback(bad), "{bad}");
        }
    }
}
