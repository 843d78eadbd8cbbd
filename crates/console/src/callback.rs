//! `GET /link/callback`: the redirect URI to which providers send the browser after consent. A browser that did not
//! start the session gets a page that asks whose consent it is, and posts the answer to the same URL.

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use bellbird_connections::{CallbackAnswer, CallbackOutcome, HandledCallback};
use http::header::{ALLOW, REFRESH};
use http::{HeaderValue, StatusCode};

use crate::link::{FORM_BYTES_MAX, is_cross_site};
use crate::pages::{Notice, page_response};
use crate::prefetch::is_prefetch;
use crate::state::Console;
use crate::{body, error_page};

const QUERY_BYTES_MAX: usize = 8 * 1024;
const PARAMETERS_MAX: usize = 50;

/// Seconds after which the browser reloads the page while the outcome is unknown.
const REFRESH_AFTER: HeaderValue = HeaderValue::from_static("5");

pub(crate) async fn handle_callback(
    State(console): State<Console>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    if is_prefetch(&headers) {
        return error_page::prefetch(&console);
    }
    let Some(parameters) = parameters(query.as_deref().unwrap_or_default()) else {
        return error_page::query_too_long(&console);
    };
    let answer = CallbackAnswer::Browser(console.inner.cookie.value(&headers));
    handled(&console, &parameters, answer).await
}

/// `POST /link/callback` with the field `answer`, `yes` or `no`. The `state` in the URL is the authentication.
pub(crate) async fn submit_answer(
    State(console): State<Console>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    form: Body,
) -> Response {
    if is_cross_site(&headers) {
        return error_page::cross_site_form(&console);
    }
    let Some(parameters) = parameters(query.as_deref().unwrap_or_default()) else {
        return error_page::query_too_long(&console);
    };
    let form = match body::read(&headers, form, FORM_BYTES_MAX).await {
        Ok(form) => form,
        Err(error) => return error_page::form_body_error(&console, error),
    };
    match form.as_ref() {
        b"answer=yes" => handled(&console, &parameters, CallbackAnswer::Yes).await,
        b"answer=no" => handled(&console, &parameters, CallbackAnswer::No).await,
        _ => error_page::invalid_form(&console),
    }
}

async fn handled(console: &Console, parameters: &[(String, String)], answer: CallbackAnswer<'_>) -> Response {
    match console.inner.connections.handle_callback(parameters, answer).await {
        Ok(callback) => callback_response(console, &callback),
        Err(error) => error_page::connections_error(console, &error),
    }
}

/// Rejects every method but GET and POST. It also rejects HEAD, because a GET of this page can complete a link session.
pub(crate) async fn method_not_allowed(State(console): State<Console>, headers: HeaderMap) -> Response {
    let mut response = error_page::method_not_allowed(&console, &headers);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET,POST"));
    response
}

/// Returns `None` if the query is too long or has too many parameters.
fn parameters(query: &str) -> Option<Vec<(String, String)>> {
    if query.len() > QUERY_BYTES_MAX {
        return None;
    }
    let parameters: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().take(PARAMETERS_MAX + 1).collect();
    (parameters.len() <= PARAMETERS_MAX).then_some(parameters)
}

fn callback_response(console: &Console, callback: &HandledCallback) -> Response {
    let title_of = |provider: &str| console.inner.connections.provider_title(provider).to_owned();
    let notice = Notice::for_callback(callback, &console.inner.settings.api_url, title_of);
    let mut response = page_response(status(&callback.outcome), &notice.page(&console.inner.assets));
    if matches!(callback.outcome, CallbackOutcome::Pending | CallbackOutcome::AlreadyUsed(None)) {
        response.headers_mut().insert(REFRESH, REFRESH_AFTER);
    }
    response
}

fn status(outcome: &CallbackOutcome) -> StatusCode {
    match outcome {
        CallbackOutcome::Finished { .. }
        | CallbackOutcome::NeedsAnswer { .. }
        | CallbackOutcome::Pending
        | CallbackOutcome::AlreadyUsed(None) => StatusCode::OK,
        CallbackOutcome::AlreadyUsed(Some(_)) => StatusCode::CONFLICT,
        CallbackOutcome::UnknownState => StatusCode::BAD_REQUEST,
    }
}

#[cfg(test)]
mod tests {
    use bellbird_connections::LinkOutcome;

    use super::*;
    use crate::test_support::console;

    #[tokio::test]
    async fn browser_refreshes_while_the_outcome_is_unknown() {
        let console = console().await;
        for (outcome, status, refreshes) in [
            (CallbackOutcome::Pending, 200, true),
            (CallbackOutcome::AlreadyUsed(None), 200, true),
            (CallbackOutcome::AlreadyUsed(Some(LinkOutcome::Linked)), 409, false),
            (CallbackOutcome::UnknownState, 400, false),
            (CallbackOutcome::NeedsAnswer { provider: "somebank".to_owned(), is_urgent: true }, 200, false),
            (
                CallbackOutcome::Finished {
                    outcome: LinkOutcome::Failed,
                    connections: Vec::new(),
                    accounts: Vec::new(),
                    reason: None,
                },
                200,
                false,
            ),
        ] {
            let callback = HandledCallback { email: "emma@example.com".to_owned(), can_deny: true, outcome };
            let response = callback_response(&console, &callback);
            assert_eq!(response.status(), status, "{callback:?}");
            assert_eq!(response.headers().get(REFRESH), refreshes.then_some(&REFRESH_AFTER), "{callback:?}");
        }
    }

    #[test]
    fn parameters_are_decoded_and_counted() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            parameters("state=a%20b&code=%3Cc%3E&x"),
            Some(vec![pair("state", "a b"), pair("code", "<c>"), pair("x", "")])
        );
        assert_eq!(parameters(""), Some(Vec::new()));
        let many = |count| vec!["a=1"; count].join("&");
        assert_eq!(parameters(&many(50)).map(|parameters| parameters.len()), Some(50));
        assert_eq!(parameters(&many(51)), None);
        assert!(parameters(&"x".repeat(8 * 1024)).is_some());
        assert_eq!(parameters(&"x".repeat(8 * 1024 + 1)), None);
    }
}
