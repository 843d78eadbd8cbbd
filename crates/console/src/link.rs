//! Link URLs: `/link/{token}`. The user opens one, chooses a provider, and is redirected to its consent page.

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use bellbird_connections::{ConnectionsError, LinkPage, LinkTarget, LinkableProvider};
use http::{HeaderMap, Method, StatusCode};
use tracing::Instrument as _;

use crate::pages::{Choice, page_response};
use crate::prefetch::is_prefetch;
use crate::state::Console;
use crate::{body, error_page};

const FORM_BYTES_MAX: usize = 4 * 1024;

/// `GET /link/{token}`. A link for one provider or one connection redirects at once; any other shows the choice page.
pub(crate) async fn open_link(
    State(console): State<Console>,
    method: Method,
    headers: HeaderMap,
    token: Result<Path<String>, PathRejection>,
) -> Response {
    if is_prefetch(&headers) {
        return error_page::prefetch(&console);
    }
    let Ok(Path(token)) = token else { return error_page::link_not_found(&console) };
    match console.inner.connections.find_link_page(&token).await {
        Err(error) => error_page::connections_error(&console, &error),
        Ok(None) => error_page::link_not_found(&console),
        Ok(Some(page)) if offers_choice(&page) => choice_page(&console, &page),
        // HEAD must not start a link session.
        Ok(Some(_)) if method == Method::HEAD => StatusCode::OK.into_response(),
        // The link itself names the provider or connection, so it needs no target.
        Ok(Some(_)) => start_link_session(&console, token, LinkTarget::UserChoice).await,
    }
}

/// `POST /link/{token}` with one field, `provider` or `connection`.
pub(crate) async fn submit_choice(
    State(console): State<Console>,
    headers: HeaderMap,
    token: Result<Path<String>, PathRejection>,
    form: Body,
) -> Response {
    if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
        return error_page::cross_site_form(&console);
    }
    let Ok(Path(token)) = token else { return error_page::link_not_found(&console) };
    let form = match body::read(&headers, form, FORM_BYTES_MAX).await {
        Ok(form) => form,
        Err(error) => return error_page::form_body_error(&console, error),
    };
    match parse_choice(&form, &console.inner.connections.linkable_providers()) {
        Some(target) => start_link_session(&console, token, target).await,
        None => error_page::invalid_form(&console),
    }
}

fn offers_choice(page: &LinkPage) -> bool {
    page.provider.is_none() && page.repair_target.is_none()
}

fn choice_page(console: &Console, page: &LinkPage) -> Response {
    let title_of = |provider: &str| console.inner.connections.provider_title(provider).to_owned();
    page_response(StatusCode::OK, &Choice::new(&console.inner.assets, page, title_of))
}

/// Returns `None` unless the form has exactly one field that names a linkable provider or a connection.
fn parse_choice(form: &[u8], linkable: &[LinkableProvider]) -> Option<LinkTarget<'static>> {
    let mut fields = form_urlencoded::parse(form);
    let (name, value) = fields.next()?;
    if fields.next().is_some() {
        return None;
    }
    match name.as_ref() {
        "provider" => linkable.iter().find(|known| known.name == value).map(|known| LinkTarget::Provider(known.name)),
        "connection" => value.parse().ok().map(LinkTarget::Connection),
        _ => None,
    }
}

/// Starts a link session and redirects to the provider. The start runs in its own task, so that a disconnect does not
/// cancel it: when a user presses the button twice, the browser aborts the first request, and a half-started session
/// would block the second.
async fn start_link_session(console: &Console, token: String, target: LinkTarget<'static>) -> Response {
    let connections = console.inner.connections.clone();
    let start = async move { connections.start_link_session(&token, target).await };
    match tokio::spawn(start.in_current_span()).await {
        Ok(Ok(url)) => Redirect::to(url.as_str()).into_response(),
        Ok(Err(error)) => {
            if !matches!(error, ConnectionsError::LinkExpired | ConnectionsError::Storage(_)) {
                tracing::warn!(%error, "could not start link session");
            }
            error_page::connections_error(console, &error)
        }
        Err(_) => error_page::internal_error(console),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINKABLE: [LinkableProvider; 1] =
        [LinkableProvider { name: "somebank", title: "SomeBank", reaches: "Some banks" }];

    #[test]
    fn form_names_exactly_one_choice() {
        let id = bellbird_domain::ConnectionId::new();
        assert_eq!(parse_choice(b"provider=somebank", &LINKABLE), Some(LinkTarget::Provider("somebank")));
        assert_eq!(parse_choice(format!("connection={id}").as_bytes(), &LINKABLE), Some(LinkTarget::Connection(id)));
        for wrong in ["", "provider=", "provider=other", "connection=1", "provider=somebank&provider=somebank", "x=1"] {
            assert_eq!(parse_choice(wrong.as_bytes(), &LINKABLE), None, "{wrong}");
        }
    }
}
