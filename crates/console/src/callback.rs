//! `GET /link/callback`: the redirect URI to which providers send the browser after consent. A
//! browser that did not start the session gets a page that asks whose consent it is, and posts the
//! answer to the same URL.

use axum::response::{IntoResponse as _, Redirect, Response};
use bellbird_connections::{
    CallbackAnswer, CallbackOutcome, ConnectionsError, HandledCallback, LinkOutcome, ReturnLink,
};
use http::StatusCode;
use http::header::{ALLOW, REFRESH};
use secrecy::ExposeSecret as _;

use crate::cookie::with_cookies;
use crate::error_page::{self, Failure, PageResult};
use crate::pages::{Frame, Notice, REFRESH_AFTER, Retry, WayBack};
use crate::prefetch::reject_prefetch;
use crate::session::{Guest, GuestForm};

const QUERY_BYTES_MAX: usize = 8 * 1024;
const PARAMETERS_MAX: usize = 50;

pub(crate) async fn handle_callback(guest: Guest) -> PageResult {
    reject_prefetch(guest.headers())?;
    let parameters = parameters(guest.query())?;
    let answer = CallbackAnswer::Browser(guest.browser());
    handled(&guest, &parameters, answer).await
}

/// `POST /link/callback` with the field `answer`: `yes`, `no`, or `again` to open the link again.
/// The `state` in the URL is the authentication, and for `again` the cookies too.
pub(crate) async fn submit_answer(form: GuestForm) -> PageResult {
    let guest = &form.guest;
    let parameters = parameters(guest.query())?;
    match form.field("answer") {
        Some("yes") => {
            let cookie = &guest.cookies.browser;
            let browser = cookie.value_or_new(guest.headers());
            let answer = CallbackAnswer::Yes(browser.expose_secret());
            let page = handled(guest, &parameters, answer).await;
            Ok(with_cookies(
                page.into_response(),
                [cookie.header(browser.expose_secret())],
            ))
        }
        Some("no") => handled(guest, &parameters, CallbackAnswer::No).await,
        Some("again") => go_back_to_link(guest, &parameters).await,
        _ => Err(Failure::InvalidForm),
    }
}

async fn handled(
    guest: &Guest,
    parameters: &[(String, String)],
    answer: CallbackAnswer<'_>,
) -> PageResult {
    let links = guest.connections.links();
    let callback = links.handle_callback(parameters, answer).await?;
    // Without the link, the page still shows its result.
    let return_link = find_return_link(guest, parameters).await.ok().flatten();
    // That of a browser may have ended. It decides what a page offers, and never what it may do.
    let is_signed_in = guest.cookies.session.value(guest.headers()).is_some();
    Ok(callback_response(
        &guest.frame,
        &callback,
        return_link.as_ref(),
        is_signed_in,
    ))
}

/// Redirects to the link from which this browser last started a session, if that link is for the
/// same user.
async fn go_back_to_link(guest: &Guest, parameters: &[(String, String)]) -> PageResult {
    let found = find_return_link(guest, parameters).await?;
    Ok(match found.and(guest.cookies.link.value(guest.headers())) {
        Some(token) => guest.redirect(&format!("/link/{token}")),
        None => error_page::link_expired(None).into_response(),
    })
}

async fn find_return_link(
    guest: &Guest,
    parameters: &[(String, String)],
) -> Result<Option<ReturnLink>, ConnectionsError> {
    let token = guest.cookies.link.value(guest.headers());
    let links = guest.connections.links();
    links
        .find_return_link(parameters, guest.browser(), token)
        .await
}

/// Rejects every method but GET and POST. It also rejects HEAD, because a GET of this page can
/// complete a consent session.
pub(crate) async fn method_not_allowed() -> Response {
    ([(ALLOW, "GET,POST")], Failure::MethodNotAllowed).into_response()
}

/// Fails if the query is too long or has too many parameters.
pub(crate) fn parameters(query: Option<&str>) -> Result<Vec<(String, String)>, Failure> {
    let query = query.unwrap_or_default();
    let parameters: Vec<_> = form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .take(PARAMETERS_MAX + 1)
        .collect();
    if query.len() > QUERY_BYTES_MAX || parameters.len() > PARAMETERS_MAX {
        return Err(Failure::QueryTooLong);
    }
    Ok(parameters)
}

/// Whether a link session leads back without a page: there is nothing to read, because the person
/// has just done what the outcome says.
fn returns_at_once(outcome: &CallbackOutcome) -> bool {
    use LinkOutcome::{Declined, Linked, Reconnected};
    matches!(outcome, CallbackOutcome::Finished(result) if matches!(result.outcome, Linked | Reconnected | Declined))
}

fn callback_response(
    frame: &Frame,
    callback: &HandledCallback,
    return_link: Option<&ReturnLink>,
    is_signed_in: bool,
) -> Response {
    if let Some(back) = callback
        .app_return
        .as_ref()
        .filter(|_| returns_at_once(&callback.outcome))
    {
        return Redirect::to(&back.url).into_response();
    }
    let repaired = return_link.and_then(|link| link.repaired.as_ref());
    let way = match return_link {
        Some(link) if link.is_of_console && is_signed_in => {
            WayBack::Console(Some(Retry(repaired.map(|one| one.id))))
        }
        Some(link) if !link.is_of_console => WayBack::Link {
            is_repair: link.is_repair,
        },
        _ if is_signed_in && callback.app_return.is_none() => WayBack::Console(None),
        _ => WayBack::Unknown,
    };
    let notice = Notice::for_callback(callback, way, repaired, frame);
    let status = match callback.outcome {
        CallbackOutcome::UnknownState => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    };
    let mut response = notice.with_status(status).response(frame);
    let is_incomplete = match &callback.outcome {
        CallbackOutcome::Pending => true,
        CallbackOutcome::Finished(result) => result.awaits_accounts,
        _ => false,
    };
    if is_incomplete {
        response.headers_mut().insert(REFRESH, REFRESH_AFTER);
    }
    response
}

#[cfg(test)]
mod tests {
    use bellbird_connections::{AppReturn, LinkResult};
    use http::header::LOCATION;

    use super::*;

    fn finished(outcome: LinkOutcome, awaits_accounts: bool) -> CallbackOutcome {
        CallbackOutcome::Finished(LinkResult {
            outcome,
            connections: Vec::new(),
            reason: None,
            awaits_accounts,
        })
    }

    fn callback(outcome: CallbackOutcome, app_return: Option<AppReturn>) -> HandledCallback {
        HandledCallback {
            email: "emma@example.com".to_owned(),
            provider: "somebank".to_owned(),
            can_deny: true,
            outcome,
            app_return,
        }
    }

    #[test]
    fn browser_refreshes_while_outcome_or_accounts_are_unknown() {
        for (outcome, status, refreshes) in [
            (CallbackOutcome::Pending, 200, true),
            (CallbackOutcome::UnknownState, 400, false),
            (CallbackOutcome::RemovedSince, 200, false),
            (CallbackOutcome::NeedsAnswer { is_urgent: true }, 200, false),
            (finished(LinkOutcome::Failed, false), 200, false),
            (finished(LinkOutcome::Linked, false), 200, false),
            (finished(LinkOutcome::Linked, true), 200, true),
        ] {
            let callback = callback(outcome, None);
            let response = callback_response(&Frame::default(), &callback, None, false);
            assert_eq!(response.status(), status, "{callback:?}");
            assert_eq!(
                response.headers().get(REFRESH),
                refreshes.then_some(&REFRESH_AFTER),
                "{callback:?}"
            );
        }
    }

    #[tokio::test]
    async fn link_session_leads_back_unless_there_is_something_to_read() {
        let back = AppReturn {
            url: "https://app.example/?session=1".to_owned(),
            host: "app.example".to_owned(),
        };
        let all = LinkOutcome::ALL.iter();
        let mut outcomes: Vec<_> = all.map(|outcome| finished(*outcome, true)).collect();
        outcomes.extend([
            CallbackOutcome::Pending,
            CallbackOutcome::NeedsAnswer { is_urgent: false },
            CallbackOutcome::RemovedSince,
        ]);
        let mut redirected = Vec::new();
        for outcome in outcomes {
            let callback = callback(outcome, Some(back.clone()));
            let response = callback_response(&Frame::default(), &callback, None, false);
            if response.status() == StatusCode::SEE_OTHER {
                assert_eq!(response.headers()[LOCATION], back.url.as_str());
                let CallbackOutcome::Finished(result) = callback.outcome else {
                    panic!("{callback:?}")
                };
                redirected.push(result.outcome);
                continue;
            }
            let body = axum::body::to_bytes(response.into_body(), usize::MAX)
                .await
                .unwrap();
            let page = String::from_utf8(body.to_vec()).unwrap();
            let leads_back = page.contains("href=\"https://app.example/?session=1\"");
            let asks = matches!(callback.outcome, CallbackOutcome::NeedsAnswer { .. });
            assert_eq!(leads_back, !asks, "{callback:?}");
        }
        assert_eq!(
            redirected,
            [
                LinkOutcome::Linked,
                LinkOutcome::Reconnected,
                LinkOutcome::Declined
            ]
        );
    }

    #[test]
    fn parameters_are_decoded_and_counted() {
        let parameters = |query: &str| parameters(Some(query)).ok();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            parameters("state=a%20b&code=%3Cc%3E&x"),
            Some(vec![
                pair("state", "a b"),
                pair("code", "<c>"),
                pair("x", "")
            ])
        );
        assert_eq!(parameters(""), Some(Vec::new()));
        let many = |count| vec!["a=1"; count].join("&");
        assert_eq!(
            parameters(&many(50)).map(|parameters| parameters.len()),
            Some(50)
        );
        assert_eq!(parameters(&many(51)), None);
        assert!(parameters(&"x".repeat(8 * 1024)).is_some());
        assert_eq!(parameters(&"x".repeat(8 * 1024 + 1)), None);
    }
}
