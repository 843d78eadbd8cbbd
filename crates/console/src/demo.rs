//! `POST /demo/link`: makes a link URL for the demo's user and opens it. It issues a secret, so it
//! exists in `bellbird demo` only, and for a page of the console in a browser on this machine.

use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use bellbird_connections::LinkTarget;
use bellbird_domain::{Actor, UserId};
use bellbird_management::{Refusal, links};
use http::Extensions;
use secrecy::{ExposeSecret as _, SecretString};

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
    match link_url(&console, demo.user).await {
        Ok(url) => Redirect::to(url.expose_secret()).into_response(),
        Err(refusal) => error_page::refused(&console, refusal),
    }
}

async fn link_url(console: &Console, user: UserId) -> Result<SecretString, Refusal> {
    let links = console.inner.connections.links();
    let prepared = links
        .prepare_link(user, LinkTarget::UserChoice, None)
        .await?;
    let (actor, now) = (Actor::command("demo"), console.inner.clock.now());
    let mut change = console.storage().begin_change(actor, now).await?;
    let created = links::create(&mut change, prepared).await?;
    change.commit().await?;
    Ok(created.url)
}
