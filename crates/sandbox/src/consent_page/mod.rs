//! The hosted pages on which somebody consents: what all providers' have in common. They need no script, and each page
//! is a form. A form changes something and leads to a page that can be looked at again and again; looking changes
//! nothing.

mod html;
mod visit;

use std::sync::Arc;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;

use crate::query::{self, Query};
pub(crate) use visit::{Desk, End, Landing, Visit};

/// Where the forms go, and where the page after each is.
const PATH: &str = "/consent";
/// Longest form, in bytes.
const FORM_BYTES_MAX: usize = 16 * 1024;
/// The app that asks, as providers call it elsewhere too.
pub(crate) const APP: &str = "Sandbox App";
/// Somebody who is there at every provider.
const KNOWN: &str = "olivia.nguyen@example.com";

/// How a provider's pages look, and what they say.
pub(crate) struct Brand {
    pub(crate) name: &'static str,
    /// Of the head and of buttons: white text is read on it.
    pub(crate) colour: &'static str,
    pub(crate) tint: &'static str,
    /// Whether the provider lets apps show the pages in a frame.
    pub(crate) framed: bool,
    /// The word for an institution.
    pub(crate) place: &'static str,
    /// What the app wants to see.
    pub(crate) wants: &'static [&'static str],
    /// What else is said before somebody allows it.
    pub(crate) note: &'static str,
    /// What is said when a visit is over, too late, or never was.
    pub(crate) stale: &'static str,
}

/// An institution in the list.
pub(crate) struct Place {
    pub(crate) id: String,
    pub(crate) name: String,
    /// Why it cannot be chosen.
    pub(crate) note: Option<&'static str>,
}

/// An account that can be shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    /// What tells it from the login's others: never shown.
    pub(crate) slot: String,
    pub(crate) name: String,
    /// Its number, most of it hidden, and the like.
    pub(crate) detail: String,
}

/// A provider that has such pages.
pub(crate) trait Host: Send + Sync + Sized + 'static {
    /// What it has to know of a visit.
    type Subject: Send + 'static;
    const BRAND: Brand;

    fn desk(&self) -> &Desk<Self::Subject>;
    fn now(&self) -> Timestamp;
    /// The institutions in the list.
    fn places(&self) -> Vec<Place>;
    /// How a visit ends at once that asks for an institution that cannot be had.
    fn barred(&self, place: &str) -> Option<End>;
    /// Who it is that signs in, and their accounts at that institution.
    fn sign_in(&self, subject: &Self::Subject, place: &str, name: &str) -> Result<(String, Vec<Offer>), End>;
    /// Does what the end of a visit means, and says where it leads.
    fn finish(&self, subject: &Self::Subject, end: End) -> Landing;
}

/// The routes that are the same everywhere.
pub(crate) fn routes<H: Host>() -> Router<Arc<H>> {
    Router::new().route(PATH, get(show::<H>).post(submit::<H>))
}

async fn show<H: Host>(State(host): State<Arc<H>>, request: Request) -> Response {
    let query = Query::parse(request.uri().query());
    let now = host.now();
    let token = query.get("session").unwrap_or_default();
    let page = host.desk().by_token(token, |visit| visit.is_open(now).then(|| html::page(&*host, visit, Some(PATH))));
    html::answer(&H::BRAND, &page.flatten().unwrap_or_else(|| html::stale(&H::BRAND)))
}

/// The page of the visit of that name in the provider's own address.
pub(crate) fn enter<H: Host>(host: &H, entry: &str) -> Response {
    let now = host.now();
    let page = host.desk().by_entry(entry, |visit| {
        let over = visit.step == visit::Step::Over;
        (visit.is_open(now) && !over).then(|| html::page(host, visit, Some(PATH)))
    });
    html::answer(&H::BRAND, &page.flatten().unwrap_or_else(|| html::stale(&H::BRAND)))
}

/// The first page of a visit that begins with its first form, which goes to the address of the page.
pub(crate) fn greet<H: Host>(host: &H, visit: &Visit<H::Subject>) -> Response {
    html::answer(&H::BRAND, &html::page(host, visit, None))
}

/// A page for somebody who cannot be sent anywhere.
pub(crate) fn refuse<H: Host>(status: StatusCode, title: &str, text: &str) -> Response {
    html::answer(&H::BRAND, &html::stop(status, title, text))
}

async fn submit<H: Host>(State(host): State<Arc<H>>, request: Request) -> Response {
    match form::<H>(request).await {
        Ok(form) => go_on(&*host, &form),
        Err(refused) => refused,
    }
}

/// Reads a form.
pub(crate) async fn form<H: Host>(request: Request) -> Result<Query, Response> {
    let body = to_bytes(request.into_body(), FORM_BYTES_MAX).await;
    let body = body.map_err(|_| refuse::<H>(StatusCode::PAYLOAD_TOO_LARGE, "Too long", "This form is too long."))?;
    Ok(Query::parse(Some(&String::from_utf8_lossy(&body))))
}

/// Does what a form says, and leads on: to the next page, or back to the app.
pub(crate) fn go_on<H: Host>(host: &H, form: &Query) -> Response {
    let now = host.now();
    let token = form.get("session").unwrap_or_default();
    let next = host.desk().by_token(token, |visit| {
        visit.advance(host, form, now);
        match &visit.landing {
            Some(Landing { location: Some(location), stays: false, .. }) => location.clone(),
            _ => format!("{PATH}?{}", query::write(&[("session", token)])),
        }
    });
    next.map_or_else(|| html::answer(&H::BRAND, &html::stale(&H::BRAND)), |next| see_other(&next))
}

/// Sends a browser on: with GET, whatever it came with.
pub(crate) fn see_other(location: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(value) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    html::seal(response.headers_mut());
    response
}

/// Whether a browser may be sent to `uri`: absolute, and nothing that a browser would run.
pub(crate) fn is_target(uri: &str) -> bool {
    let Some((scheme, rest)) = uri.split_once(':') else { return false };
    let first = scheme.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    let named = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let runs = ["javascript", "data", "vbscript", "blob", "file"].iter().any(|bad| scheme.eq_ignore_ascii_case(bad));
    first && named && !runs && !rest.is_empty() && !uri.contains(|bad: char| bad.is_control() || bad == ' ')
}

/// An address with a result behind it, before what stands behind `#`. `join` is for an address that has a query already.
/// What is not ASCII is escaped, as browsers do it.
pub(crate) fn with_result(uri: &str, join: char, result: &str) -> String {
    let (before, fragment) = uri.split_at(uri.find('#').unwrap_or(uri.len()));
    let join = if before.contains('?') { join } else { '?' };
    let whole = if result.is_empty() { uri.to_owned() } else { format!("{before}{join}{result}{fragment}") };
    let mut ascii = String::with_capacity(whole.len());
    for character in whole.chars() {
        if character.is_ascii() {
            ascii.push(character);
        } else {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                ascii.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    ascii
}

#[cfg(test)]
mod tests {
    use super::{is_target, with_result};

    #[test]
    fn results_are_joined_to_addresses() {
        assert_eq!(with_result("https://a.example/cb", '&', "x=1"), "https://a.example/cb?x=1");
        assert_eq!(with_result("https://a.example/cb?s=2", '&', "x=1"), "https://a.example/cb?s=2&x=1");
        assert_eq!(with_result("https://a.example/cb?s=2", '?', "x=1"), "https://a.example/cb?s=2?x=1");
        assert_eq!(with_result("https://a.example/é?s#top", '&', "x=1"), "https://a.example/%C3%A9?s&x=1#top");
        assert_eq!(with_result("app:done?s=2", '&', ""), "app:done?s=2");
    }

    #[test]
    fn nothing_that_would_be_run_is_an_address() {
        for good in ["http://127.0.0.1:1/cb", "com.example.app:/done", "https://a.example/é?x=1&y=<>"] {
            assert!(is_target(good), "{good}");
        }
        for bad in
            ["", "/cb", "javascript:alert(1)", "JavaScript:1", "data:text/html,x", "https:", "a b:c", "http://a/\r\nx"]
        {
            assert!(!is_target(bad), "{bad:?}");
        }
    }
}
