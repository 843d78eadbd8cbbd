//! The address of a link: what a user opens to choose a provider, and leaves for its consent page from.

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use bellbird_connections::{ConnectionsError, LinkPage, LinkTo, Linkable};
use http::{HeaderMap, Method, StatusCode};

use crate::pages::{Choice, answer};
use crate::{Console, body, refusal};

/// Longest form, in bytes.
const FORM_BYTES_MAX: usize = 4 * 1024;

/// `GET /link/{token}`. An address for one thing only leads on at once; one of choice shows what there is.
pub(crate) async fn open(
    State(console): State<Console>,
    method: Method,
    headers: HeaderMap,
    token: Result<Path<String>, PathRejection>,
) -> Response {
    if is_prefetch(&headers) {
        return refusal::prefetched(&console);
    }
    let Ok(Path(token)) = token else { return refusal::no_such_address(&console) };
    match console.inner.connections.find_address(&token).await {
        Err(error) => refusal::failed(&console, &error),
        Ok(None) => refusal::no_such_address(&console),
        Ok(Some(page)) if is_of_choice(&page) => choices(&console, &page),
        Ok(Some(_)) if method == Method::HEAD => StatusCode::OK.into_response(),
        Ok(Some(_)) => depart(&console, token, LinkTo::Choice).await,
    }
}

/// `POST /link/{token}` with a provider or a connection.
pub(crate) async fn choose(
    State(console): State<Console>,
    headers: HeaderMap,
    token: Result<Path<String>, PathRejection>,
    form: Body,
) -> Response {
    if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
        return refusal::from_elsewhere(&console);
    }
    let Ok(Path(token)) = token else { return refusal::no_such_address(&console) };
    let form = match body::read(&headers, form, FORM_BYTES_MAX).await {
        Ok(form) => form,
        Err(unread) => return refusal::form_unread(&console, unread),
    };
    match chosen(&form, &console.inner.connections.linkable()) {
        Some(to) => depart(&console, token, to).await,
        None => refusal::wrong_form(&console),
    }
}

/// Whether a browser only asks in case its user goes there: <https://fetch.spec.whatwg.org/#sec-purpose-header>, and
/// what browsers sent before that.
pub(crate) fn is_prefetch(headers: &HeaderMap) -> bool {
    let purposes = ["sec-purpose", "purpose", "x-moz"].iter().filter_map(|name| headers.get(*name)?.to_str().ok());
    purposes.flat_map(|purpose| purpose.split([';', ','])).any(|purpose| purpose.trim().starts_with("prefetch"))
}

fn is_of_choice(page: &LinkPage) -> bool {
    page.provider.is_none() && page.repairs.is_none()
}

fn choices(console: &Console, page: &LinkPage) -> Response {
    let title_of = |provider: &str| console.inner.connections.title_of(provider).to_owned();
    answer(StatusCode::OK, &Choice::new(&console.inner.assets, page, title_of))
}

/// What a form of one field asks for.
fn chosen(form: &[u8], linkable: &[Linkable]) -> Option<LinkTo<'static>> {
    let mut fields = form_urlencoded::parse(form);
    let (name, value) = fields.next()?;
    if fields.next().is_some() {
        return None;
    }
    match name.as_ref() {
        "provider" => linkable.iter().find(|known| known.name == value).map(|known| LinkTo::Provider(known.name)),
        "connection" => value.parse().ok().map(LinkTo::Connection),
        _ => None,
    }
}

/// Leads to the provider. In a task of its own: of a button that is pressed twice, the browser breaks the first request
/// off, and what that one had begun would be in the way of the second.
async fn depart(console: &Console, token: String, to: LinkTo<'static>) -> Response {
    let connections = console.inner.connections.clone();
    match tokio::spawn(async move { connections.depart(&token, to).await }).await {
        Ok(Ok(url)) => Redirect::to(url.as_str()).into_response(),
        Ok(Err(error)) => {
            if !matches!(error, ConnectionsError::AddressEnded | ConnectionsError::Storage(_)) {
                tracing::warn!(%error, "nobody could be led to a provider");
            }
            refusal::failed(console, &error)
        }
        Err(_) => refusal::broke(console),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINKABLE: [Linkable; 1] = [Linkable { name: "somebank", title: "SomeBank", reaches: "Some banks" }];

    #[test]
    fn a_form_names_one_thing() {
        let id = bellbird_domain::ConnectionId::new();
        assert_eq!(chosen(b"provider=somebank", &LINKABLE), Some(LinkTo::Provider("somebank")));
        assert_eq!(chosen(format!("connection={id}").as_bytes(), &LINKABLE), Some(LinkTo::Connection(id)));
        for wrong in ["", "provider=", "provider=other", "connection=1", "provider=somebank&provider=somebank", "x=1"] {
            assert_eq!(chosen(wrong.as_bytes(), &LINKABLE), None, "{wrong}");
        }
    }

    #[test]
    fn browsers_that_only_look_ahead_are_known() {
        let headers =
            |name: &'static str, value: &str| HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
        assert!(is_prefetch(&headers("sec-purpose", "prefetch;prerender")));
        assert!(is_prefetch(&headers("purpose", "prefetch")));
        assert!(!is_prefetch(&headers("sec-purpose", "something-else")));
        assert!(!is_prefetch(&HeaderMap::new()));
    }
}
