//! `GET /v1/banking/balances` (docs/providers/fiskil.md#balances).

use axum::response::Response;

use super::accounts::answer;
use super::call::Call;
use super::errors::Failure;

/// The balances of the end user's accounts, or of one. `fetch=true` changes nothing here: the bank is always near.
/// That it needs `account_id` follows from the documentation; refusing it otherwise is ours.
pub(super) async fn list(call: Call) -> Result<Response, Failure> {
    let account_id = call.query.get("account_id").filter(|id| !id.is_empty());
    if call.flag("fetch")? == Some(true) && account_id.is_none() {
        return Err(call.invalid("fetch=true needs an account_id"));
    }
    answer(&call, "balances", account_id, |account| &account.balance)
}
