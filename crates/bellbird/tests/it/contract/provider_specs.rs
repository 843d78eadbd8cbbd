//! What the promises need to know about each provider: its members, routes and control calls.

use bellbird_domain::AccountType;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

#[derive(Clone, Copy)]
pub(super) struct ProviderSpec {
    pub(super) name: &'static str,
    /// The member of credentials that names the provider user.
    pub(super) user: &'static str,
    /// The member of credentials that names one connection. Without it, credentials cover all connections of the user.
    pub(super) connection: &'static str,
    /// The route of calls that only authenticate. They are not counted.
    pub(super) authentication: Option<&'static str>,
    /// How many calls the balances of so many users, connections and accounts may need.
    pub(super) balances_calls: fn(users: usize, connections: usize, accounts: usize) -> usize,
    /// The members of an account with this name and number, in every place where the provider shows them.
    pub(super) numbered: fn(name: &str, number: &str) -> Value,
    /// A member, its value, and the type of an account that has it.
    pub(super) types: &'static [(&'static str, &'static str, AccountType)],
    /// Adds an account to a connection. The response is the account.
    pub(super) add_account: fn(credentials: &Value, members: Value) -> Control,
    /// The member of that response with the account's id.
    pub(super) account_id: &'static str,
    /// Sets the balance of an account.
    pub(super) set_balance: fn(account: &str, amount: &str) -> Control,
    /// Adds a row with this text to an account.
    pub(super) add_row: fn(account: &str, at: Timestamp, text: &str) -> Control,
    /// Calls, each of which ends the consent of a connection.
    pub(super) revoke: fn(credentials: &Value) -> Vec<Control>,
    /// Ends the access to the institution, without revoking the consent.
    pub(super) expire: fn(credentials: &Value) -> Control,
}

/// A call to a provider's control interface.
pub(super) struct Control {
    pub(super) method: Method,
    pub(super) path: String,
    /// JSON.
    pub(super) body: String,
}

fn post(path: &str, body: &Value) -> Control {
    Control { method: Method::POST, path: path.to_owned(), body: body.to_string() }
}

fn patch(path: String, body: String) -> Control {
    Control { method: Method::PATCH, path, body }
}

fn state(what: &str, id: &Value, state: &str) -> Control {
    post(&format!("/{what}/{}", id.as_str().expect("an id")), &json!({"state": state}))
}

/// `members`, with those that name the account's connection.
fn with_connection(mut members: Value, connection: &[(&str, &Value)]) -> Value {
    for (name, value) in connection {
        members[*name] = (*value).clone();
    }
    members
}

pub(super) fn fiskil() -> ProviderSpec {
    ProviderSpec {
        name: "fiskil",
        user: "endUserId",
        connection: "arrangementId",
        authentication: Some("/v1/token"),
        balances_calls: |users, _, _| users,
        numbered: |name, number| json!({"display_name": name, "account_number": number, "masked_number": number}),
        types: &[
            ("product_category", "CRED_AND_CHRG_CARDS", AccountType::CreditCard),
            ("product_category", "TERM_DEPOSITS", AccountType::TermDeposit),
            ("product_category", "SOMETHING_NEW", AccountType::Other),
        ],
        add_account: |credentials, members| {
            let connection =
                [("endUserId", &credentials["endUserId"]), ("arrangementId", &credentials["arrangementId"])];
            post("/accounts", &with_connection(members, &connection))
        },
        account_id: "account_id",
        set_balance: |account, amount| {
            patch(format!("/balances/{account}"), format!(r#"{{"current_balance": "{amount}"}}"#))
        },
        add_row: |account, at, text| {
            let row = json!({"account_id": account, "posting_date_time": at.to_string(), "description": text});
            post("/transactions", &row)
        },
        revoke: |credentials| vec![state("consents", &credentials["arrangementId"], "revoked")],
        expire: |credentials| state("consents", &credentials["arrangementId"], "expired"),
    }
}

pub(super) fn akahu() -> ProviderSpec {
    ProviderSpec {
        name: "akahu",
        user: "userToken",
        connection: "authorisation",
        authentication: None,
        balances_calls: |users, _, _| users,
        numbered: |name, number| json!({"name": name, "formatted_account": number}),
        types: &[
            ("type", "CREDITCARD", AccountType::CreditCard),
            ("type", "TERMDEPOSIT", AccountType::TermDeposit),
            ("type", "SOMETHING_NEW", AccountType::Other),
        ],
        add_account: |credentials, members| {
            let connection =
                [("userToken", &credentials["userToken"]), ("authorisation", &credentials["authorisation"])];
            post("/accounts", &with_connection(members, &connection))
        },
        account_id: "_id",
        set_balance: |account, amount| {
            let balance = format!(r#"{{"balance": {{"currency": "NZD", "current": {amount}}}}}"#);
            patch(format!("/accounts/{account}"), balance)
        },
        add_row: |account, at, text| {
            post("/transactions", &json!({"_account": account, "date": at.to_string(), "description": text}))
        },
        revoke: |credentials| {
            vec![
                state("consents", &credentials["authorisation"], "revoked"),
                state("tokens", &credentials["userToken"], "revoked"),
            ]
        },
        expire: |credentials| state("consents", &credentials["authorisation"], "expired"),
    }
}

pub(super) fn snaptrade() -> ProviderSpec {
    ProviderSpec {
        name: "snaptrade",
        user: "userId",
        connection: "authorizationId",
        authentication: None,
        balances_calls: |_, connections, accounts| connections + accounts,
        numbered: |name, number| json!({"name": name, "number": number, "institution_account_id": number}),
        types: &[
            ("account_category", "DEPOSIT", AccountType::Transaction),
            ("account_category", "INVESTMENT", AccountType::Investment),
            ("account_category", "SOMETHING_NEW", AccountType::Other),
        ],
        add_account: |credentials, members| {
            post("/accounts", &with_connection(members, &[("authorizationId", &credentials["authorizationId"])]))
        },
        account_id: "id",
        set_balance: |account, amount| {
            let balance = format!(r#"{{"balance": {{"total": {{"amount": {amount}, "currency": "USD"}}}}}}"#);
            patch(format!("/accounts/{account}"), balance)
        },
        add_row: |account, at, text| {
            post("/trades", &json!({"account": account, "trade_date": at.to_string(), "description": text}))
        },
        revoke: |credentials| {
            vec![
                state("consents", &credentials["authorizationId"], "revoked"),
                state("users", &credentials["userId"], "revoked"),
            ]
        },
        expire: |credentials| state("consents", &credentials["authorizationId"], "expired"),
    }
}
