//! Where providers send the browser back to.

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use bellbird_connections::Arrival;
use http::header::{ALLOW, REFRESH};
use http::{HeaderValue, StatusCode};

use crate::link::is_prefetch;
use crate::pages::{Notice, answer};
use crate::{Console, refusal};

/// Longest query, in bytes.
const QUERY_BYTES_MAX: usize = 8 * 1024;
const PARAMETERS_MAX: usize = 50;

/// How long a browser waits before it asks again.
const ASKED_AGAIN_AFTER: HeaderValue = HeaderValue::from_static("5");

/// `GET /link/callback`
pub(crate) async fn come_back(
    State(console): State<Console>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    if is_prefetch(&headers) {
        return refusal::prefetched(&console);
    }
    let Some(parameters) = parameters(query.as_deref().unwrap_or_default()) else {
        return refusal::long_query(&console);
    };
    match console.inner.connections.arrive(&parameters).await {
        Ok(arrival) => told(&console, &arrival),
        Err(error) => refusal::failed(&console, &error),
    }
}

/// Every other method, HEAD too: to ask for this page is to act.
pub(crate) async fn refuse(State(console): State<Console>, headers: HeaderMap) -> Response {
    let mut response = refusal::wrong_method(&console, &headers);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
    response
}

/// The parameters, decoded; none when there are too many.
fn parameters(query: &str) -> Option<Vec<(String, String)>> {
    if query.len() > QUERY_BYTES_MAX {
        return None;
    }
    let parameters: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().take(PARAMETERS_MAX + 1).collect();
    (parameters.len() <= PARAMETERS_MAX).then_some(parameters)
}

fn told(console: &Console, arrival: &Arrival) -> Response {
    let title_of = |provider: &str| console.inner.connections.title_of(provider).to_owned();
    let notice = Notice::of_arrival(arrival, &console.inner.settings.api_url, title_of);
    let mut response = answer(status(arrival), &notice.page(&console.inner.assets));
    if matches!(arrival, Arrival::Pending | Arrival::Used(None)) {
        response.headers_mut().insert(REFRESH, ASKED_AGAIN_AFTER);
    }
    response
}

fn status(arrival: &Arrival) -> StatusCode {
    match arrival {
        Arrival::Ended { .. } | Arrival::Pending | Arrival::Used(None) => StatusCode::OK,
        Arrival::Used(Some(_)) => StatusCode::CONFLICT,
        Arrival::Unknown => StatusCode::BAD_REQUEST,
    }
}

#[cfg(test)]
mod tests {
    use bellbird_connections::Outcome;

    use super::*;
    use crate::tests::console;

    #[tokio::test]
    async fn a_browser_looks_again_while_nothing_is_known() {
        let console = console().await;
        for (arrival, status, refreshes) in [
            (Arrival::Pending, 200, true),
            (Arrival::Used(None), 200, true),
            (Arrival::Used(Some(Outcome::Linked)), 409, false),
            (Arrival::Unknown, 400, false),
            (
                Arrival::Ended {
                    outcome: Outcome::Failed,
                    connections: Vec::new(),
                    accounts: Vec::new(),
                    reason: None,
                },
                200,
                false,
            ),
        ] {
            let response = told(&console, &arrival);
            assert_eq!(response.status(), status, "{arrival:?}");
            assert_eq!(response.headers().get(REFRESH), refreshes.then_some(&ASKED_AGAIN_AFTER), "{arrival:?}");
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
