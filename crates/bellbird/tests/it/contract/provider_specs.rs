//! What the promises must know of each provider: its own words for what a test does to it.

use bellbird_domain::AccountType;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

/// A provider, described.
#[derive(Clone, Copy)]
pub(super) struct ProviderSpec {
    /// Its name.
    pub(super) name: &'static str,
    /// The member of credentials that says whose it is.
    pub(super) user: &'static str,
    /// The member of credentials that names one connection; without it the credentials cover all of the user's.
    pub(super) connection: &'static str,
    /// The route of calls that do nothing but let us in. They are not counted.
    pub(super) authentication: Option<&'static str>,
    /// The calls that the balances of so many users, connections and accounts may take.
    pub(super) balances_calls: fn(users: usize, connections: usize, accounts: usize) -> usize,
    /// Members of an account with this name and number, in all the places where a provider writes them.
    pub(super) numbered: fn(name: &str, number: &str) -> Value,
    /// The members that make an account one of a type.
    pub(super) types: &'static [(&'static str, &'static str, AccountType)],
    /// Adds an account to a connection; answers the account.
    pub(super) add_account: fn(credentials: &Value, members: Value) -> Control,
    /// The member of that answer that is the account's id.
    pub(super) account_id: &'static str,
    /// Sets what an account holds.
    pub(super) set_balance: fn(account: &str, amount: &str) -> Control,
    /// Adds a row with this text to an account.
    pub(super) add_row: fn(account: &str, at: Timestamp, text: &str) -> Control,
    /// Each of these ends a connection's consent.
    pub(super) revoke: fn(credentials: &Value) -> Vec<Control>,
    /// The institution does not let us in any more.
    pub(super) expire: fn(credentials: &Value) -> Control,
}

/// A call of a provider's control interface.
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

/// `members`, and those that say where the account belongs.
fn belonging(mut members: Value, to: &[(&str, &Value)]) -> Value {
    for (name, value) in to {
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
            let to = [("endUserId", &credentials["endUserId"]), ("arrangementId", &credentials["arrangementId"])];
            post("/accounts", &belonging(members, &to))
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
            let to = [("userToken", &credentials["userToken"]), ("authorisation", &credentials["authorisation"])];
            post("/accounts", &belonging(members, &to))
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
            post("/accounts", &belonging(members, &[("authorizationId", &credentials["authorizationId"])]))
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
