//! What a user's plan does not include is not offered. A page says so in its place, and a form that
//! a page would not offer is refused.

use askama::Template;
use axum::response::Response;
use bellbird_domain::ConnectionCategory;
use http::StatusCode;

use crate::pages::{SignedInFrame, page_response};
use crate::session::Session;

#[derive(Template)]
#[template(path = "not_in_plan.html")]
struct NotInPlan<'a> {
    frame: &'a SignedInFrame<'a>,
    /// What the plan does not read.
    what: &'static str,
}

/// The page in place of one that reads connections of a category. None: the plan includes them.
pub(crate) fn page_in_place(
    session: &Session,
    path: &'static str,
    category: ConnectionCategory,
) -> Option<Response> {
    if session.caller.plan.reads(category) {
        return None;
    }
    let page = NotInPlan {
        frame: &session.frame(path),
        what: match category {
            ConnectionCategory::Banking => "accounts",
            ConnectionCategory::Brokerage => "accounts at brokers",
        },
    };
    Some(page_response(StatusCode::OK, &page))
}

/// The response to a form that makes something which reads accounts. None: the plan includes that.
pub(crate) fn refuse_form(session: &Session) -> Option<Response> {
    let mut page = page_in_place(session, "/overview", ConnectionCategory::Banking)?;
    *page.status_mut() = StatusCode::FORBIDDEN;
    Some(page)
}
