//! `POST /demo/link`: makes a link URL for the demo's user and opens it. It issues a secret, so it
//! exists in `bellbird demo` only, and for a page of the console in a browser on this machine.

use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect};
use bellbird_connections::LinkTarget;
use bellbird_domain::Actor;
use bellbird_management::links;
use http::Extensions;
use secrecy::ExposeSecret as _;

use crate::error_page::{Failure, PageResult};
use crate::local::is_from_here;
use crate::session::GuestForm;
use crate::state::Console;

pub(crate) async fn create_link(
    State(console): State<Console>,
    extensions: Extensions,
    form: GuestForm,
) -> PageResult {
    let demo = console.site.demo.as_ref().ok_or(Failure::NotFound)?;
    if !is_from_here(&form.headers, &extensions) {
        return Err(Failure::CrossSite);
    }
    let links = console.connections.links();
    let prepared = links.prepare_link(demo.user, LinkTarget::UserChoice, None);
    let prepared = prepared.await?;
    let actor = Actor::command("demo");
    let mut change = console
        .storage()
        .begin_change(actor, console.clock.now())
        .await?;
    let created = links::create(&mut change, prepared).await?;
    change.commit().await?;
    Ok(Redirect::to(created.url.expose_secret()).into_response())
}
