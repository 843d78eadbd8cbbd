//! What a user's plan does not include is not offered. A page says so in its place, and a form that
//! a page would not offer is refused.

use askama::Template;
use axum::response::Response;
use bellbird_domain::ConnectionCategory;
use http::StatusCode;

use crate::pages::{SignedInFrame, page_response};
use crate::session::Session;
use crate::state::Console;

#[derive(Template)]
#[template(path = "not_in_plan.html")]
struct NotInPlan<'a> {
    frame: &'a SignedInFrame<'a>,
    /// What the plan does not read.
    what: &'static str,
}

/// The page in place of one that reads connections of a category. None: the plan includes them.
pub(crate) fn page_in_place(
    console: &Console,
    session: &Session,
    path: &'static str,
    category: ConnectionCategory,
) -> Option<Response> {
    let is_included = session.caller.plan.reads(category);
    (!is_included).then(|| page(console, session, path, category, StatusCode::OK))
}

/// The response to a form that makes something which reads accounts. None: the plan includes that.
pub(crate) fn refuse_form(console: &Console, session: &Session) -> Option<Response> {
    let banking = ConnectionCategory::Banking;
    let is_included = session.caller.plan.reads(banking);
    (!is_included).then(|| {
        page(
            console,
            session,
            "/overview",
            banking,
            StatusCode::FORBIDDEN,
        )
    })
}

fn page(
    console: &Console,
    session: &Session,
    path: &'static str,
    category: ConnectionCategory,
    status: StatusCode,
) -> Response {
    let frame = session.frame(console, path);
    let what = match category {
        ConnectionCategory::Banking => "accounts",
        ConnectionCategory::Brokerage => "accounts at brokers",
    };
    page_response(
        status,
        &NotInPlan {
            frame: &frame,
            what,
        },
    )
}
