//! The JSON types of Akahu's API (docs/providers/akahu.md#token-exchange, #user, #accounts,
//! #transactions and
//! #webhooks).
//!
//! Unused members are left out and unknown members are ignored. A member is optional unless the
//! documentation promises it.

use serde::Deserialize;
use serde_json::Value;

use crate::exact::ExactNumber;
use crate::json::none_if_invalid;
use crate::text::Text;

/// The member that every response has beside its payload.
#[derive(Deserialize)]
pub(super) struct Envelope {
    pub(super) success: Option<bool>,
}

/// `GET /accounts`, `GET /transactions`, `GET /accounts/{id}/transactions`.
#[derive(Deserialize)]
pub(super) struct List<T> {
    pub(super) success: Option<bool>,
    pub(super) items: Vec<T>,
    /// Only in lists of transactions.
    pub(super) cursor: Option<Cursor>,
}

#[derive(Deserialize)]
pub(super) struct Cursor {
    pub(super) next: Option<String>,
}

/// `POST /token`, flat. No `Debug`: it holds a user token.
#[derive(Deserialize)]
pub(super) struct Token {
    pub(super) success: Option<bool>,
    pub(super) access_token: String,
}

/// The error of `POST /token`.
#[derive(Deserialize, Default)]
pub(super) struct TokenError {
    pub(super) error: Option<String>,
}

/// `GET /me`.
#[derive(Deserialize)]
pub(super) struct Me {
    pub(super) item: Person,
}

#[derive(Deserialize)]
pub(super) struct Person {
    pub(super) email: Option<String>,
}

/// An item of `GET /webhooks`.
#[derive(Deserialize)]
pub(super) struct Subscription {
    pub(super) state: Option<String>,
}

/// `GET /keys/{id}`: a public key in PEM.
#[derive(Deserialize)]
pub(super) struct SigningKey {
    pub(super) item: String,
}

/// A webhook. No `Debug`: `item_id` can be a user token.
#[derive(Deserialize)]
pub(super) struct Event {
    pub(super) webhook_type: String,
    pub(super) state: Option<Value>,
    pub(super) item_id: Option<Value>,
    pub(super) previous_item_id: Option<Value>,
    pub(super) new_item_id: Option<Value>,
    pub(super) removed_transactions: Option<Value>,
}

/// No `Debug`: it holds a full account number and a balance.
#[derive(Deserialize)]
pub(super) struct Account<'a> {
    #[serde(borrow, rename = "_id")]
    pub(super) id: Text<'a>,
    #[serde(rename = "_authorisation")]
    pub(super) authorisation: Option<Text<'a>>,
    #[serde(rename = "_credentials")]
    pub(super) credentials: Option<Text<'a>>,
    pub(super) connection: Option<Connection<'a>>,
    pub(super) name: Option<Text<'a>>,
    pub(super) status: Option<Text<'a>>,
    #[serde(rename = "type")]
    pub(super) kind: Option<Text<'a>>,
    pub(super) formatted_account: Option<Text<'a>>,
    pub(super) balance: Option<Balance<'a>>,
}

/// An institution. Akahu calls it a connection.
#[derive(Deserialize)]
pub(super) struct Connection<'a> {
    #[serde(borrow, rename = "_id")]
    pub(super) id: Text<'a>,
    pub(super) name: Option<Text<'a>>,
    pub(super) logo: Option<Text<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Balance<'a> {
    #[serde(borrow)]
    pub(super) currency: Option<Text<'a>>,
    pub(super) current: Option<ExactNumber<'a>>,
    pub(super) available: Option<ExactNumber<'a>>,
}

/// What only adds to a row counts as absent if it has another type. No `Debug`: it holds an amount
/// and a description.
#[derive(Deserialize)]
pub(super) struct Transaction<'a> {
    #[serde(borrow, rename = "_id")]
    pub(super) id: Text<'a>,
    #[serde(rename = "_account")]
    pub(super) account: Text<'a>,
    #[serde(default, deserialize_with = "none_if_invalid")]
    pub(super) created_at: Option<Text<'a>>,
    pub(super) date: Option<Text<'a>>,
    pub(super) description: Option<Text<'a>>,
    pub(super) amount: Option<ExactNumber<'a>>,
    #[serde(rename = "type", default, deserialize_with = "none_if_invalid")]
    pub(super) kind: Option<Text<'a>>,
    #[serde(default, deserialize_with = "none_if_invalid")]
    pub(super) merchant: Option<Merchant<'a>>,
    #[serde(default, deserialize_with = "none_if_invalid")]
    pub(super) category: Option<Category<'a>>,
    #[serde(default, deserialize_with = "none_if_invalid")]
    pub(super) meta: Option<Meta<'a>>,
}

/// What is read of a row of another form.
#[derive(Deserialize)]
pub(super) struct MalformedTransaction<'a> {
    #[serde(
        borrow,
        rename = "_account",
        default,
        deserialize_with = "none_if_invalid"
    )]
    pub(super) account: Option<Text<'a>>,
    #[serde(default, deserialize_with = "none_if_invalid")]
    pub(super) date: Option<Text<'a>>,
}

/// The text of the payer. A New Zealand payment has three short fields for it.
#[derive(Deserialize)]
pub(super) struct Meta<'a> {
    #[serde(borrow)]
    pub(super) reference: Option<Text<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Merchant<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Category<'a> {
    #[serde(borrow, rename = "_id")]
    pub(super) id: Option<Text<'a>>,
    pub(super) name: Option<Text<'a>>,
    pub(super) groups: Option<Groups<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Groups<'a> {
    #[serde(borrow)]
    pub(super) personal_finance: Option<Group<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Group<'a> {
    #[serde(borrow, rename = "_id")]
    pub(super) id: Option<Text<'a>>,
}
