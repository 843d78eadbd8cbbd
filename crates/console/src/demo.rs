//! `POST /demo/link`: makes a link URL for the demo's user and opens it. It issues a secret, so it
//! exists in `bellbird demo` only, and for a page of the console in a browser on this machine.

use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use bellbird_connections::LinkTarget;
use http::Extensions;
use secrecy::ExposeSecret as _;

use crate::error_page;
use crate::local::is_from_here;
use crate::session::GuestForm;
use crate::state::Console;

pub(crate) async fn create_link(
    State(console): State<Console>,
    extensions: Extensions,
    form: GuestForm,
) -> Response {
    let Some(demo) = &console.inner.site.demo else {
        return error_page::not_found(&console, &form.headers);
    };
    if !is_from_here(&form.headers, &extensions) {
        return error_page::cross_site_form(&console);
    }
    match console
        .inner
        .connections
        .links()
        .create_link(demo.user, LinkTarget::UserChoice)
        .await
    {
        Ok(link) => Redirect::to(link.url.expose_secret()).into_response(),
        Err(error) => error_page::connections_error(&console, &error),
    }
}
