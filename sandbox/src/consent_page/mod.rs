//! The hosted consent pages that all providers share. The pages need no script: each is a form, a
//! form changes the session, and the redirect after it leads to a page that can be reloaded without
//! effect.

mod brand;
mod html;
mod session;
mod steps;

use std::sync::Arc;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderValue, StatusCode, header};
use percent_encoding::{CONTROLS, utf8_percent_encode};

use crate::provider::Provider;
use crate::query::{self, Query};
pub(crate) use brand::Brand;
pub(crate) use session::{
    Choice, ConsentResult, ConsentSession, ConsentSessions, OfferedAccount, Reason,
};

/// The target of the forms, and the page after each form.
const PATH: &str = "/consent";
/// Limit for a form, in bytes.
const FORM_BYTES_MAX: usize = 16 * 1024;
/// The app that asks for consent. Other responses of the providers use the same name.
pub(crate) const APP: &str = "Bellbird";
/// A user that exists at every provider.
const EXAMPLE_USERNAME: &str = "olivia.nguyen@example.com";

/// An institution in the list.
pub(crate) struct InstitutionOption {
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    /// Why it cannot be chosen.
    pub(crate) note: Option<&'static str>,
}

/// A provider with consent pages.
pub(crate) trait ConsentProvider: Provider {
    fn institutions(&self) -> Vec<InstitutionOption>;
    /// Why a session for a fixed institution fails at once.
    fn why_unavailable(&self, _institution_id: &str) -> Option<Reason> {
        None
    }
    /// Returns the user's display name and their accounts at that institution.
    fn sign_in(
        &self,
        auth_request: &Self::AuthRequest,
        institution_id: &str,
        name: &str,
    ) -> Result<(String, Vec<OfferedAccount>), Reason>;
    /// Shares what the user chose, and returns where the session leads.
    fn share(
        &self,
        auth_request: &Self::AuthRequest,
        choice: &Choice,
    ) -> Result<ConsentResult, Reason>;
    /// Where a session leads that ended without a consent.
    fn fail(&self, auth_request: &Self::AuthRequest, reason: Reason) -> ConsentResult;
}

/// The routes that are the same for every provider.
pub(crate) fn routes<H: ConsentProvider>() -> Router<Arc<H>> {
    Router::new().route(PATH, get(show::<H>).post(submit::<H>))
}

async fn show<H: ConsentProvider>(State(provider): State<Arc<H>>, request: Request) -> Response {
    let query = Query::parse(request.uri().query());
    let now = provider.clock.now();
    let token = query.get("session").unwrap_or_default();
    let page = provider.consent_sessions.by_token(token, |session| {
        session
            .is_open(now)
            .then(|| html::page(&*provider, session, Some(PATH)))
    });
    page_or_expired::<H>(page.flatten())
}

fn page_or_expired<H: ConsentProvider>(page: Option<Response>) -> Response {
    page.unwrap_or_else(|| html::expired_page(Brand::of::<H>()))
}

/// Shows the session with this id in the provider's own URL.
pub(crate) fn session_page<H: ConsentProvider>(provider: &H, entry: &str) -> Response {
    let now = provider.clock.now();
    let page = provider.consent_sessions.by_entry(entry, |session| {
        let is_done = session.step == session::Step::Done;
        (session.is_open(now) && !is_done).then(|| html::page(provider, session, Some(PATH)))
    });
    page_or_expired::<H>(page.flatten())
}

/// Shows the first page of a session that starts with its first form. The form goes to the URL of
/// the page.
pub(crate) fn first_page<H: ConsentProvider>(
    provider: &H,
    session: &ConsentSession<H::AuthRequest>,
) -> Response {
    html::page(provider, session, None)
}

/// An error page, for a browser that cannot be redirected.
pub(crate) fn error_page<H: ConsentProvider>(
    status: StatusCode,
    title: &str,
    text: &str,
) -> Response {
    html::message_page(Brand::of::<H>(), status, title, text)
}

async fn submit<H: ConsentProvider>(State(provider): State<Arc<H>>, request: Request) -> Response {
    match read_form::<H>(request).await {
        Ok(form) => submit_form(&*provider, &form),
        Err(rejection) => rejection,
    }
}

pub(crate) async fn read_form<H: ConsentProvider>(request: Request) -> Result<Query, Response> {
    let body = to_bytes(request.into_body(), FORM_BYTES_MAX).await;
    let body = body.map_err(|_| {
        error_page::<H>(
            StatusCode::PAYLOAD_TOO_LARGE,
            "Form too long",
            "This form is longer than 16 KiB.",
        )
    })?;
    Ok(Query::parse(Some(&String::from_utf8_lossy(&body))))
}

/// Applies a form to its session and redirects to the next page or to the app.
pub(crate) fn submit_form<H: ConsentProvider>(provider: &H, form: &Query) -> Response {
    let now = provider.clock.now();
    let token = form.get("session").unwrap_or_default();
    let next = provider.consent_sessions.by_token(token, |session| {
        session.advance(provider, form, now);
        match &session.result {
            Some(ConsentResult {
                location: Some(location),
                shows_page: false,
                ..
            }) => location.clone(),
            _ => format!("{PATH}?{}", query::write(&[("session", token)])),
        }
    });
    next.map_or_else(|| page_or_expired::<H>(None), |next| see_other(&next))
}

/// Redirects a browser, always with GET.
pub(crate) fn see_other(location: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(value) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    html::set_security_headers(response.headers_mut());
    response
}

/// Whether `uri` is safe to redirect to: absolute, and not of a scheme that a browser would
/// execute.
pub(crate) fn is_redirect_uri(uri: &str) -> bool {
    let Some((scheme, rest)) = uri.split_once(':') else {
        return false;
    };
    let first = scheme
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic());
    let named = scheme
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let runs = ["javascript", "data", "vbscript", "blob", "file"]
        .iter()
        .any(|bad| scheme.eq_ignore_ascii_case(bad));
    first
        && named
        && !runs
        && !rest.is_empty()
        && !uri.contains(|bad: char| bad.is_control() || bad == ' ')
}

/// Appends a result to the query of a URI, before its fragment. Non-ASCII characters are
/// percent-encoded, as browsers do.
pub(crate) fn append_query(uri: &str, result: &str) -> String {
    let (before, fragment) = uri.split_at(uri.find('#').unwrap_or(uri.len()));
    let join = if before.contains('?') { '&' } else { '?' };
    let whole = if result.is_empty() {
        uri.to_owned()
    } else {
        format!("{before}{join}{result}{fragment}")
    };
    // There are no controls in a redirect URI.
    utf8_percent_encode(&whole, CONTROLS).to_string()
}

#[cfg(test)]
mod tests {
    use super::{append_query, is_redirect_uri};

    #[test]
    fn results_are_appended_to_redirect_uris() {
        assert_eq!(
            append_query("https://a.example/cb", "x=1"),
            "https://a.example/cb?x=1"
        );
        assert_eq!(
            append_query("https://a.example/cb?s=2", "x=1"),
            "https://a.example/cb?s=2&x=1"
        );
        assert_eq!(
            append_query("https://a.example/é?s#top", "x=1"),
            "https://a.example/%C3%A9?s&x=1#top"
        );
        assert_eq!(append_query("app:done?s=2", ""), "app:done?s=2");
    }

    #[test]
    fn script_uris_are_not_redirect_uris() {
        for good in [
            "http://127.0.0.1:1/cb",
            "com.example.app:/done",
            "https://a.example/é?x=1&y=<>",
        ] {
            assert!(is_redirect_uri(good), "{good}");
        }
        for bad in [
            "",
            "/cb",
            "javascript:alert(1)",
            "JavaScript:1",
            "data:text/html,x",
            "https:",
            "a b:c",
            "http://a/\r\nx",
        ] {
            assert!(!is_redirect_uri(bad), "{bad:?}");
        }
    }
}
