//! The JSON types of Fiskil's API (docs/providers/fiskil.md#tokens to #categories, and #webhooks).
//!
//! Unused members are left out and unknown members are ignored. A member is optional unless the
//! documentation promises it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::exact::ExactNumber;
use crate::json::none_if_invalid;
use crate::text::Text;

/// `POST /v1/token`.
#[derive(Deserialize)]
pub(super) struct Token {
    pub(super) token: String,
    pub(super) expires_in: u64,
}

/// The `links` of a page.
#[derive(Deserialize, Default)]
pub(super) struct Links<'a> {
    #[serde(borrow)]
    pub(super) next: Option<Text<'a>>,
}

/// `POST /v1/end-users`.
#[derive(Deserialize)]
pub(super) struct AddedEndUser {
    pub(super) end_user_id: String,
}

/// `GET /v1/end-users`: an envelope in v3, a bare array in older versions.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum EndUsers<'a> {
    Envelope {
        #[serde(borrow)]
        end_users: Vec<EndUser<'a>>,
        #[serde(default)]
        links: Option<Links<'a>>,
    },
    Bare(Vec<EndUser<'a>>),
}

#[derive(Deserialize)]
pub(super) struct EndUser<'a> {
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    pub(super) name: Option<Text<'a>>,
}

/// The body of `POST /v1/auth/session`.
#[derive(Serialize)]
pub(super) struct NewSession<'a> {
    pub(super) end_user_id: &'a str,
    pub(super) redirect_uri: &'a str,
    pub(super) cancel_uri: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) institution_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) arrangement_id: Option<&'a str>,
}

/// The response of `POST /v1/auth/session`.
#[derive(Deserialize)]
pub(super) struct Session<'a> {
    #[serde(borrow)]
    pub(super) auth_url: Text<'a>,
}

/// A webhook.
#[derive(Deserialize)]
pub(super) struct Event {
    pub(super) message_id: Option<Value>,
    pub(super) data: EventData,
}

#[derive(Deserialize)]
pub(super) struct EventData {
    pub(super) event: String,
    pub(super) consent_id: Option<Value>,
    pub(super) end_user_id: Option<Value>,
}

/// `GET /v1/consent`: an envelope in v3, a bare array in older versions.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Consents<'a> {
    Envelope {
        consents: Vec<Consent>,
        #[serde(borrow, default)]
        links: Option<Links<'a>>,
    },
    Bare(Vec<Consent>),
}

#[derive(Deserialize)]
pub(super) struct Consent {
    pub(super) arrangement_id: String,
    pub(super) active: bool,
    pub(super) institution_id: String,
    pub(super) institution_name: Option<String>,
    pub(super) institution_logo: Option<String>,
    /// Any JSON, so that an odd value does not fail the list.
    pub(super) expires_at: Option<Value>,
}

/// `GET /v1/institutions/{id}`.
#[derive(Deserialize)]
pub(super) struct Institution {
    pub(super) name: String,
    pub(super) logo: Option<String>,
}

/// `GET /v1/banking/accounts`.
#[derive(Deserialize)]
pub(super) struct AccountsPage<'a> {
    #[serde(borrow)]
    pub(super) accounts: Vec<Account<'a>>,
    #[serde(borrow, default)]
    pub(super) links: Option<Links<'a>>,
}

/// No `Debug`: it holds a full account number.
#[derive(Deserialize, Default)]
pub(super) struct Account<'a> {
    #[serde(borrow)]
    pub(super) account_id: Text<'a>,
    pub(super) arrangement_id: Option<Text<'a>>,
    pub(super) display_name: Option<Text<'a>>,
    pub(super) nickname: Option<Text<'a>>,
    pub(super) product_name: Option<Text<'a>>,
    pub(super) product_category: Option<Text<'a>>,
    pub(super) masked_number: Option<Text<'a>>,
    pub(super) account_number: Option<Text<'a>>,
    pub(super) currency: Option<Text<'a>>,
}

/// `GET /v1/banking/balances`.
#[derive(Deserialize)]
pub(super) struct BalancesPage<'a> {
    #[serde(borrow)]
    pub(super) balances: Vec<Balance<'a>>,
    #[serde(borrow, default)]
    pub(super) links: Option<Links<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Balance<'a> {
    #[serde(borrow)]
    pub(super) account_id: Text<'a>,
    pub(super) arrangement_id: Option<Text<'a>>,
    pub(super) current_balance: Option<ExactNumber<'a>>,
    pub(super) available_balance: Option<ExactNumber<'a>>,
    pub(super) currency: Option<Text<'a>>,
}

/// `GET /v1/banking/transactions`.
#[derive(Deserialize)]
pub(super) struct TransactionsPage<'a, T = Transaction<'a>> {
    pub(super) transactions: Vec<T>,
    #[serde(borrow, default)]
    pub(super) links: Option<Links<'a>>,
}

/// What only adds to a row counts as absent if it has another type. The others fail, because a row
/// must not lose its text or move to another day. No `Debug`: it holds an amount and a description.
#[derive(Deserialize)]
pub(super) struct Transaction<'a> {
    #[serde(borrow)]
    pub(super) fiskil_id: Text<'a>,
    pub(super) account_id: Text<'a>,
    pub(super) arrangement_id: Option<Text<'a>>,
    pub(super) status: Text<'a>,
    pub(super) amount: Option<ExactNumber<'a>>,
    pub(super) description: Option<Text<'a>>,
    pub(super) posting_date_time: Option<Text<'a>>,
    #[serde(default, deserialize_with = "none_if_invalid")]
    pub(super) execution_date_time: Option<Text<'a>>,
    #[serde(default, deserialize_with = "none_if_invalid")]
    pub(super) merchant_name: Option<Text<'a>>,
    #[serde(default, deserialize_with = "none_if_invalid")]
    pub(super) merchant_category_code: Option<Text<'a>>,
    #[serde(default, deserialize_with = "none_if_invalid")]
    pub(super) currency: Option<Text<'a>>,
    #[serde(rename = "type", default, deserialize_with = "none_if_invalid")]
    pub(super) kind: Option<Text<'a>>,
    #[serde(default, deserialize_with = "none_if_invalid")]
    pub(super) reference: Option<Text<'a>>,
    #[serde(default, deserialize_with = "none_if_invalid")]
    pub(super) extended_data: Option<ExtendedData<'a>>,
    #[serde(default, deserialize_with = "none_if_invalid")]
    pub(super) category: Option<Category<'a>>,
    /// Another name of `category` in the provider's prose. A serde alias would fail on a row with
    /// both names.
    #[serde(default, deserialize_with = "none_if_invalid")]
    pub(super) categories: Option<Category<'a>>,
}

/// What is read of a row of another form.
#[derive(Deserialize)]
pub(super) struct MalformedTransaction<'a> {
    #[serde(borrow, default, deserialize_with = "none_if_invalid")]
    pub(super) account_id: Option<Text<'a>>,
    #[serde(default, deserialize_with = "none_if_invalid")]
    pub(super) arrangement_id: Option<Text<'a>>,
    #[serde(default, deserialize_with = "none_if_invalid")]
    pub(super) posting_date_time: Option<Text<'a>>,
    #[serde(default, deserialize_with = "none_if_invalid")]
    pub(super) execution_date_time: Option<Text<'a>>,
}

/// Only present in payments through the New Payments Platform.
#[derive(Deserialize)]
pub(super) struct ExtendedData<'a> {
    #[serde(borrow)]
    pub(super) npp_payload: Option<NppPayload<'a>>,
}

#[derive(Deserialize)]
pub(super) struct NppPayload<'a> {
    #[serde(borrow)]
    pub(super) extended_description: Option<Text<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Category<'a> {
    #[serde(borrow)]
    pub(super) primary_category: Option<Text<'a>>,
}

/// The body of an error, in both of its forms (docs/providers/fiskil.md#errors).
#[derive(Deserialize, Default)]
pub(super) struct ErrorBody {
    pub(super) id: Option<Value>,
    pub(super) name: Option<Value>,
}
