//! `GET /`: the start page, which leads to the page to sign in. On this machine it also explains
//! how to call the API, make links, and receive provider events.

use askama::Template;
use http::StatusCode;

use crate::error_page::PageResult;
use crate::local::is_addressed_locally;
use crate::pages::{Frame, page_response};
use crate::session::{Guest, Session};
use crate::settings::Site;
use crate::setup;

#[derive(Template)]
#[template(path = "home.html")]
struct HomePage<'a> {
    frame: &'a Frame,
    site: &'a Site,
    /// Whether the browser is on this machine.
    is_local: bool,
    /// Whether a first start has made no operator yet, so that nobody can sign in.
    awaits_operator: bool,
}

/// `GET /`
pub(crate) async fn show(guest: Guest, session: Option<Session>) -> PageResult {
    if session.is_some() {
        return Ok(guest.redirect("/overview"));
    }
    let first_start = setup::find(&guest).await?;
    if let Some(found) = &first_start
        && setup::has_claim(&guest, found)
    {
        return Ok(guest.redirect("/setup"));
    }
    let page = HomePage {
        frame: &guest.frame,
        site: &guest.site,
        is_local: is_addressed_locally(guest.headers()),
        awaits_operator: first_start.is_some(),
    };
    Ok(page_response(StatusCode::OK, &page))
}
