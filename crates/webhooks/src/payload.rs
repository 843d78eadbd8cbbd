//! The JSON of events: rows and envelopes of version 2026-11-01 (docs/contract.md#webhook-events).

use std::io::Write;

use bellbird_domain::trade::TradeId;
use bellbird_domain::{
    AccountId, ApiVersion, Category, Decimal, EventId, EventType, MinorUnits, SyncRunId, Trade, TradeType, Transaction,
};
use bytes::Bytes;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::ser::Error;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// Room for most rows.
const ROW_BYTES: usize = 640;
/// Room for the longest envelope.
const ENVELOPE_BYTES_MAX: usize = 512;
/// The class of a transaction of whose type the provider says nothing.
const NO_CLASS: &str = "other";

#[derive(Serialize)]
struct TransactionObject<'a> {
    id: &'a str,
    object: &'static str,
    #[serde(serialize_with = "integer")]
    amount: MinorUnits,
    currency: String,
    status: &'static str,
    description: &'a str,
    direction: &'static str,
    class: String,
    account_id: AccountId,
    account_name: &'a str,
    account: &'a str,
    local_date: Date,
    transaction_date: &'a str,
    post_date: &'a str,
    merchant_name: Option<&'a str>,
    category: Option<&'static str>,
    merchant_category_code: Option<&'a str>,
    reference: Option<&'a str>,
    extended_description: Option<&'a str>,
}

/// A transaction as events show it. Its day is that of `zone`, unless the row has one; its currency, where it has none,
/// the account's.
#[must_use]
pub fn transaction(row: &Transaction<'_>, zone: &TimeZone) -> Vec<u8> {
    let currency = row.currency.unwrap_or(row.account.currency);
    written(&TransactionObject {
        id: &row.id,
        object: "transaction",
        amount: MinorUnits::of(&row.amount, currency),
        currency: currency.as_str().to_ascii_lowercase(),
        status: "posted",
        description: &row.description,
        direction: row.direction(),
        class: row.provider_type.as_deref().map_or_else(|| NO_CLASS.to_owned(), class),
        account_id: row.account.id,
        account_name: &row.account.name,
        account: &row.account.name,
        local_date: row.local_day(zone),
        transaction_date: row.executed.as_deref().unwrap_or(&row.datetime),
        post_date: &row.datetime,
        merchant_name: row.merchant_name.as_deref(),
        category: row.category.map(Category::key),
        merchant_category_code: row.merchant_category_code.as_deref(),
        reference: row.reference.as_deref(),
        extended_description: row.extended_description.as_deref(),
    })
}

/// `DIRECT DEBIT` and `DIRECT_DEBIT` are `direct-debit`.
fn class(provider_type: &str) -> String {
    provider_type.to_lowercase().replace([' ', '_'], "-")
}

/// A number of any length: no integer of ours could hold it.
fn integer<S: Serializer>(units: &MinorUnits, out: S) -> Result<S::Ok, S::Error> {
    RawValue::from_string(units.to_text()).map_err(S::Error::custom)?.serialize(out)
}

#[derive(Serialize)]
struct TradeObject<'a> {
    object: &'static str,
    id: TradeId<'a, 'a>,
    symbol: Option<&'a str>,
    name: Option<&'a str>,
    r#type: TradeType,
    quantity: Option<&'a Decimal<'a>>,
    price: Option<&'a Decimal<'a>>,
    currency: String,
    total_amount: Option<&'a Decimal<'a>>,
    fees: Option<&'a Decimal<'a>>,
    trade_date: &'a str,
    settlement_date: Option<&'a str>,
    description: Option<&'a str>,
    account_id: AccountId,
    account_name: &'a str,
    account: &'a str,
}

/// A trade as events show it: decimals in the provider's own digits, and null for what is absent.
#[must_use]
pub fn trade(row: &Trade<'_>) -> Vec<u8> {
    written(&TradeObject {
        object: "trade",
        id: row.id(),
        symbol: Some(&*row.symbol).filter(|symbol| !symbol.is_empty()),
        name: row.name.as_deref(),
        r#type: row.trade_type,
        quantity: row.quantity.as_ref(),
        price: row.price.as_ref(),
        currency: row.currency.to_lowercase(),
        total_amount: row.total_amount.as_ref(),
        fees: row.fees.as_ref(),
        trade_date: &row.trade_date,
        settlement_date: row.settlement_date.as_deref(),
        description: row.description.as_deref(),
        account_id: row.account.id,
        account_name: &row.account.name,
        account: &row.account.name,
    })
}

fn written(row: &impl Serialize) -> Vec<u8> {
    let mut json = Vec::with_capacity(ROW_BYTES);
    let outcome = serde_json::to_writer(&mut json, row);
    debug_assert!(outcome.is_ok(), "texts and numbers are always JSON");
    json
}

/// What an event says beside its rows and how many they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Of the event.
    pub id: EventId,
    /// What it tells.
    pub event_type: EventType,
    /// The form of the body. There is one so far.
    pub api_version: ApiVersion,
    /// When the event was made.
    pub created: Timestamp,
    /// The sync that made it.
    pub sync_run_id: SyncRunId,
    /// The chunk's number, from 1 on.
    pub chunk: u32,
    /// Chunks of the sync.
    pub total_chunks: u32,
}

/// The body of an event: the envelope around rows as [`transaction`] or [`trade`] wrote them, none left out. The counts
/// are those of the rows that are given.
pub fn body<R: AsRef<[u8]>>(envelope: &Envelope, new: &[R], updated: &[R]) -> Bytes {
    let rows: usize = new.iter().chain(updated).map(|row| row.as_ref().len() + 1).sum();
    let mut json = Vec::with_capacity(ENVELOPE_BYTES_MAX + rows);
    let Envelope { id, event_type, api_version, created, sync_run_id, chunk, total_chunks } = envelope;
    // Writing to a vector never fails, and none of these has a character to escape.
    let _ = write!(
        json,
        r#"{{"id":"{id}","object":"event","type":"{event_type}","api_version":"{api_version}","created":{},"data":{{"new":"#,
        created.as_second(),
    );
    list(&mut json, new);
    json.extend_from_slice(br#","updated":"#);
    list(&mut json, updated);
    let _ = write!(
        json,
        r#"}},"metadata":{{"sync_run_id":"{sync_run_id}","new_count":{},"updated_count":{},"chunk":{chunk},"total_chunks":{total_chunks}}}}}"#,
        new.len(),
        updated.len(),
    );
    json.into()
}

fn list<R: AsRef<[u8]>>(json: &mut Vec<u8>, rows: &[R]) {
    json.push(b'[');
    for (at, row) in rows.iter().enumerate() {
        if at > 0 {
            json.push(b',');
        }
        json.extend_from_slice(row.as_ref());
    }
    json.push(b']');
}

#[cfg(test)]
mod tests;
