//! `/me`, `/accounts` and `/authorisations`: the user behind a token and what they share
//! (docs/providers/akahu.md#unlinking, #user, #accounts).

use axum::extract::Path;
use axum::response::Response;
use serde_json::json;

use super::call::{UserCall, check_id};
use super::errors::Failure;
use super::respond::{done, iso, item, items};
use crate::consent::ConsentState;

pub(super) async fn me(call: UserCall) -> Response {
    let store = call.akahu.store.read();
    let user = &store.users[call.user];
    let preferred_name = user.name.split(' ').next().unwrap_or_default();
    item(json!({
        "_id": user.id, "access_granted_at": iso(user.consented_at), "email": user.email,
        "preferred_name": preferred_name,
    }))
}

/// Lists every account of every login that the user shares, without pages.
pub(super) async fn list(call: UserCall) -> Response {
    let mut store = call.akahu.store.write();
    store.apply_due_refreshes(call.now);
    let unlisted = call.akahu.unlisted.lock();
    let accounts = store
        .accounts_of(call.user)
        .into_iter()
        .filter(|account| !unlisted.contains(account.id.as_str()));
    items(accounts.map(|account| &account.members))
}

pub(super) async fn show(Path(id): Path<String>, call: UserCall) -> Result<Response, Failure> {
    check_id("acc_", &id)?;
    let mut store = call.akahu.store.write();
    store.apply_due_refreshes(call.now);
    let account = store.account_of(call.user, &id)?;
    Ok(item(&account.members))
}

/// Stops sharing a login. Its accounts and rows disappear.
pub(super) async fn delete_authorisation(
    Path(id): Path<String>,
    call: UserCall,
) -> Result<Response, Failure> {
    check_id("authorisation_", &id)?;
    let mut store = call.akahu.store.write();
    let mut shared = store.logins_of(call.user).into_iter();
    let login = shared.find(|&login| store.logins[login].id == id);
    let login = login.ok_or_else(Failure::not_found)?;
    store.set_state(login, ConsentState::Revoked, call.now);
    Ok(done())
}
