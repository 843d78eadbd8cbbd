//! `/transactions`: settled and pending rows (docs/providers/akahu.md#transactions, #pending-rows).

use axum::extract::Path;
use axum::response::Response;

use super::call::{UserCall, check_id};
use super::errors::Failure;
use super::paging::{PageRequest, page};
use super::respond::{item, items};
use super::store::Store;
use crate::members::Members;
use crate::respond::ready;

/// Lists the settled rows of all accounts, or of one.
pub(super) async fn list(id: Option<Path<String>>, call: UserCall) -> Result<Response, Failure> {
    if let Some(Path(id)) = &id {
        check_id("acc_", id)?;
    }
    let page_request = PageRequest::of(&call)?;
    let store = call.akahu.store.read();
    let accounts = match id {
        None => store.accounts_of(call.user),
        Some(Path(id)) => vec![store.account_of(call.user, &id)?],
    };
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

/// Lists the pending rows of an account, without pages. Amounts are text
/// (docs/providers/akahu.md#pending-rows).
pub(super) async fn list_pending(
    Path(id): Path<String>,
    call: UserCall,
) -> Result<Response, Failure> {
    check_id("acc_", &id)?;
    let store = call.akahu.store.read();
    Ok(items(&store.account_of(call.user, &id)?.pending))
}
