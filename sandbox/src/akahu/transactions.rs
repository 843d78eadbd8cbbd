//! `/transactions`: settled and pending rows (docs/providers/akahu.md#transactions, #pending-rows).

use axum::extract::Path;
use axum::response::Response;
use serde_json::value::RawValue;

use super::call::{UserCall, check_id};
use super::errors::Failure;
use super::paging::{PageRequest, page};
use super::respond::{item, items};
use super::store::{Account, Store};
use crate::members::Members;
use crate::respond::ready;

/// Checks the id of an account, if the path has one.
fn account_id(id: Option<Path<String>>) -> Result<Option<String>, Failure> {
    let id = id.map(|Path(id)| id);
    if let Some(id) = &id {
        check_id("acc_", id)?;
    }
    Ok(id)
}

/// All accounts of a user, or the one with this id.
fn chosen<'a>(
    store: &'a Store,
    user: usize,
    id: Option<&str>,
) -> Result<Vec<&'a Account>, Failure> {
    match id {
        None => Ok(store.accounts_of(user)),
        Some(id) => Ok(vec![store.account_of(user, id)?]),
    }
}

/// Lists the settled rows of all accounts, or of one.
pub(super) async fn list(id: Option<Path<String>>, call: UserCall) -> Result<Response, Failure> {
    let id = account_id(id)?;
    let page_request = PageRequest::of(&call)?;
    let store = call.akahu.store.read();
    let accounts = chosen(&store, call.user, id.as_deref())?;
    Ok(ready(page(&call, &page_request, &accounts, &store)))
}

/// Shows one settled row.
pub(super) async fn show(Path(id): Path<String>, call: UserCall) -> Result<Response, Failure> {
    check_id("trans_", &id)?;
    let store = call.akahu.store.read();
    Ok(item(
        find(&store, call.user, &id).ok_or_else(Failure::not_found)?,
    ))
}

/// Lists the settled rows with these ids, in this order. Ids of other users are left out, which is
/// a sandbox choice.
pub(super) async fn list_by_ids(call: UserCall) -> Result<Response, Failure> {
    let ids: Vec<String> = serde_json::from_slice(call.json_body()?)
        .map_err(|_| Failure::invalid("payload must be an array of transaction ids"))?;
    if ids.iter().any(|id| check_id("trans_", id).is_err()) {
        return Err(Failure::invalid(
            "payload must contain transaction ids only",
        ));
    }
    let store = call.akahu.store.read();
    let found = ids.iter().filter_map(|id| find(&store, call.user, id));
    Ok(items(found))
}

fn find(store: &Store, user: usize, id: &str) -> Option<Members> {
    store.accounts_of(user).into_iter().find_map(|account| {
        let entry = account
            .entries
            .iter()
            .find(|entry| entry.has_id(id, store.seed))?;
        Some(entry.members(store, account))
    })
}

/// Lists the pending rows of all accounts, or of one, without pages. Amounts are text unless the
/// call asks for numbers (docs/providers/akahu.md#pending-rows). Their digits stay the same.
pub(super) async fn list_pending(
    id: Option<Path<String>>,
    call: UserCall,
) -> Result<Response, Failure> {
    let id = account_id(id)?;
    let store = call.akahu.store.read();
    let accounts = chosen(&store, call.user, id.as_deref())?;
    let mut rows: Vec<Members> = accounts
        .iter()
        .flat_map(|account| account.pending.iter().cloned())
        .collect();
    if call.query.get("amount_as_number") == Some("true") {
        for row in &mut rows {
            let number = row
                .text("amount")
                .and_then(|text| RawValue::from_string(text).ok());
            if let Some(number) = number {
                row.set("amount", &number);
            }
        }
    }
    Ok(items(rows))
}
