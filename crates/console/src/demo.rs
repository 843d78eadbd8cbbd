//! `POST /demo/link`: makes a link URL for the demo's user and opens it. It issues a secret, so it
//! exists in `bellbird demo` only, and for a page of the console in a browser on this machine.

use axum::response::{IntoResponse as _, Redirect};
use bellbird_connections::LinkTarget;
use bellbird_domain::Actor;
use bellbird_management::links;
use secrecy::ExposeSecret as _;

use crate::error_page::PageResult;
use crate::session::GuestForm;

pub(crate) async fn create_link(GuestForm { guest, .. }: GuestForm) -> PageResult {
    let user = guest.demo()?.user;
    let links = guest.connections.links();
    let prepared = links.prepare_link(user, LinkTarget::UserChoice, None);
    let prepared = prepared.await?;
    let actor = Actor::command("demo");
    let mut change = guest.storage().begin_change(actor, guest.now).await?;
    let created = links::create(&mut change, prepared).await?;
    change.commit().await?;
    Ok(Redirect::to(created.url.expose_secret()).into_response())
}
