//! `GET /v1/banking/balances`: the balances of an end user's accounts
//! (docs/providers/fiskil.md#balances).

use axum::response::Response;

use super::accounts::respond;
use super::call::Call;
use super::errors::Failure;

/// Lists the balances of all accounts of the end user, or of one. `fetch=true` has no effect,
/// because the sandbox's balances are always current. The documentation implies that it needs
/// `account_id`; the 400 without it is a sandbox choice.
pub(super) async fn list(call: Call) -> Result<Response, Failure> {
    let account_id = call.query.filled("account_id");
    if call.flag("fetch")? == Some(true) && account_id.is_none() {
        return Err(call.invalid("fetch=true needs an account_id"));
    }
    respond(
        &call,
        "balances",
        |account| account_id.is_none_or(|id| account.has_id(id)),
        |account| &account.balance,
    )
}
