//! Structs exactly as on the wire: docs/providers/akahu.md#token-exchange, #user, #accounts, #transactions and
//! #webhooks. Members that we do not use are left out, unknown ones are ignored, and all that the page does not promise
//! is optional.

use serde::Deserialize;
use serde_json::Value;

use crate::exact::ExactNumber;
use crate::text::{Text, if_readable};

/// What every answer says beside its payload.
#[derive(Deserialize)]
pub(super) struct Done {
    pub(super) success: Option<bool>,
}

/// `GET /accounts`, `GET /transactions`, `GET /accounts/{id}/transactions`.
#[derive(Deserialize)]
pub(super) struct List<T> {
    pub(super) success: Option<bool>,
    pub(super) items: Vec<T>,
    /// Of the transactions only.
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

/// Its refusal.
#[derive(Deserialize, Default)]
pub(super) struct NotExchanged {
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

/// `GET /webhooks`, one of them.
#[derive(Deserialize)]
pub(super) struct Subscription {
    pub(super) state: Option<String>,
}

/// `GET /keys/{id}`: PEM.
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

/// An institution: their word for it.
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

/// No `Debug`: it holds an amount and a description.
#[derive(Deserialize)]
pub(super) struct Transaction<'a> {
    #[serde(borrow, rename = "_id")]
    pub(super) id: Text<'a>,
    #[serde(rename = "_account")]
    pub(super) account: Text<'a>,
    pub(super) created_at: Option<Text<'a>>,
    pub(super) date: Option<Text<'a>>,
    pub(super) description: Option<Text<'a>>,
    pub(super) amount: ExactNumber<'a>,
    #[serde(rename = "type", default, deserialize_with = "if_readable")]
    pub(super) kind: Option<Text<'a>>,
    pub(super) merchant: Option<Merchant<'a>>,
    pub(super) category: Option<Category<'a>>,
    #[serde(default, deserialize_with = "if_readable")]
    pub(super) meta: Option<Meta<'a>>,
}

/// What the payer wrote; a New Zealand payment has three short fields for that.
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
