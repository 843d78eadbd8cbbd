//! `GET /v1/banking/accounts` and `GET /v1/banking/balances`
//! (docs/providers/fiskil.md#accounts and #balances).

use axum::response::Response;

use super::call::Call;
use super::errors::Failure;
use super::paging::write;
use super::store::Account;
use crate::members::Members;
use crate::merge::{Page, PageRequest};
use crate::respond::ready;

/// Lists the end user's accounts in pages. An unknown end user has none.
pub(super) async fn list(call: Call) -> Result<Response, Failure> {
    let unlisted = call.fiskil.unlisted.lock().clone();
    respond(
        &call,
        "accounts",
        |account| !unlisted.iter().any(|id| account.has_id(id)),
        |account| &account.members,
    )
}

/// Lists the balances of all accounts of the end user, or of one.
pub(super) async fn balances(call: Call) -> Result<Response, Failure> {
    let account_id = call.query.filled("account_id");
    respond(
        &call,
        "balances",
        |account| account_id.is_none_or(|id| account.has_id(id)),
        |account| &account.balance,
    )
}

/// Responds with a page of one member set per account.
fn respond(
    call: &Call,
    name: &str,
    is_listed: impl Fn(&Account) -> bool,
    part: impl Fn(&Account) -> &Members,
) -> Result<Response, Failure> {
    let end_user_id = call.end_user_id()?;
    let page_request = PageRequest::of(call)?;
    let store = call.fiskil.store.read();
    let mut accounts = store.visible_accounts(end_user_id, call.now);
    accounts.retain(|account| is_listed(account));
    let list: Vec<&[Account]> = accounts.into_iter().map(std::slice::from_ref).collect();
    let page = Page::of(&list, page_request, |_| true);
    let body = write(call, name, &page, |out, _, account| {
        part(account).write(out);
    });
    Ok(ready(body))
}
