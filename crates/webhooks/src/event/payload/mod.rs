//! The JSON of webhook events: rows and envelope (docs/contract.md#webhook-events).

use std::io::Write;

use bellbird_domain::trade::TradeId;
use bellbird_domain::{
    AccountId, ApiVersion, Category, ConnectionCategory, ConnectionId, ConnectionStatus, Currency,
    Decimal, EventId, EventType, MinorUnits, RemovedRow, RowKey, SyncRunId, Trade, TradeType,
    Transaction, UserId,
};
use bellbird_storage::{ClaimedEndpoint, EventConnection, WebhookEvent};
use bytes::{Bytes, BytesMut};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::ser::Error;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// Initial capacity for the JSON of a row. Enough for most rows.
const ROW_BYTES: usize = 640;
/// Size of the first and of the largest piece of memory that rows share.
const CHUNK_BYTES: (usize, usize) = (1_024, 64 * 1024);
/// Capacity for the longest envelope at a user's own endpoint.
const ENVELOPE_BYTES_MAX: usize = 576;
/// Room for the members that a later version of the body adds to a row.
const ROW_MEMBERS_BYTES: usize = 64;
/// The class of a transaction whose provider sends no type.
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

/// The currency that an event shows: the row's own, else that of the account.
pub(crate) fn currency_of(row: &Transaction<'_>) -> Currency {
    row.currency.unwrap_or(row.account.currency)
}

/// A row as an event shows it. Has no `Debug`, because it shows an amount.
#[derive(Clone, PartialEq, Eq)]
pub struct RowJson {
    /// The row as the first version of the body has it, then the amount of a transaction with the
    /// provider's digits.
    text: Bytes,
    json_bytes: usize,
}

impl RowJson {
    /// A row that is written already.
    #[cfg(test)]
    pub(crate) fn of(json: Vec<u8>) -> Self {
        Self {
            json_bytes: json.len(),
            text: json.into(),
        }
    }

    #[must_use]
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Moves the rows of one event into memory of their own, so that they do not hold that of
    /// others. Takes pieces as large as those that the moved rows leave, so that these are reused.
    pub(crate) fn move_together(new: &mut [(RowKey, Self)], updated: &mut [(RowKey, Self)]) {
        let rows = new.iter().chain(&*updated);
        let mut bytes_left: usize = rows.map(|(_, row)| row.bytes()).sum();
        let mut memory = BytesMut::new();
        for (_, row) in new.iter_mut().chain(updated) {
            if memory.capacity() < row.bytes() {
                let piece = bytes_left.min(CHUNK_BYTES.1).max(row.bytes());
                memory = BytesMut::with_capacity(piece);
            }
            bytes_left -= row.bytes();
            memory.extend_from_slice(&row.text);
            row.text = memory.split().freeze();
        }
    }

    fn write(&self, key: RowKey, version: ApiVersion, out: &mut Vec<u8>) {
        let (json, exact_amount) = self.text.split_at(self.json_bytes);
        if !version.has_keys() {
            return out.extend_from_slice(json);
        }
        out.extend_from_slice(json.strip_suffix(b"}").unwrap_or(json));
        let _ = write!(out, r#","key":"{key}""#);
        if !exact_amount.is_empty() {
            out.extend_from_slice(br#","amount_decimal":""#);
            out.extend_from_slice(exact_amount);
            out.push(b'"');
        }
        out.push(b'}');
    }
}

/// Writes the rows of one read. They share pieces of memory, because an allocation for each costs
/// time and space.
#[derive(Default)]
pub struct RowWriter {
    row: Vec<u8>,
    chunk: BytesMut,
    chunk_bytes: usize,
}

impl RowWriter {
    /// Writes a transaction. `local_date` is the row's own day, else the day in `zone`.
    pub fn transaction(&mut self, row: &Transaction<'_>, zone: &TimeZone) -> RowJson {
        let currency = currency_of(row);
        let object = TransactionObject {
            id: &row.id,
            object: "transaction",
            amount: MinorUnits::of(&row.amount, currency),
            currency: currency.as_str().to_ascii_lowercase(),
            status: "posted",
            description: &row.description,
            direction: row.direction(),
            class: row
                .provider_type
                .as_deref()
                .map_or_else(|| NO_CLASS.to_owned(), class),
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
        };
        self.write(&object, row.amount.as_str())
    }

    /// Writes a trade. Decimals keep the provider's digits; an absent field is null.
    pub fn trade(&mut self, row: &Trade<'_>) -> RowJson {
        let object = TradeObject {
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
        };
        self.write(&object, "")
    }

    fn write(&mut self, object: &impl Serialize, exact_amount: &str) -> RowJson {
        self.row.clear();
        write_json(object, &mut self.row);
        let json_bytes = self.row.len();
        self.row.extend_from_slice(exact_amount.as_bytes());
        if self.chunk.capacity() < self.row.len() {
            let (first, largest) = CHUNK_BYTES;
            self.chunk_bytes = (2 * self.chunk_bytes).clamp(first, largest);
            self.chunk = BytesMut::with_capacity(self.chunk_bytes.max(self.row.len()));
        }
        self.chunk.extend_from_slice(&self.row);
        RowJson {
            text: self.chunk.split().freeze(),
            json_bytes,
        }
    }
}

/// Turns `DIRECT DEBIT` and `DIRECT_DEBIT` into `direct-debit`.
fn class(provider_type: &str) -> String {
    provider_type.to_lowercase().replace([' ', '_'], "-")
}

/// An amount may exceed every Rust integer. Then it is a raw JSON number, which takes longer to
/// write.
fn integer<S: Serializer>(units: &MinorUnits, out: S) -> Result<S::Ok, S::Error> {
    if let Ok(small) = units.as_str().parse::<i64>() {
        return out.serialize_i64(small);
    }
    RawValue::from_string(units.as_str().to_owned())
        .map_err(S::Error::custom)?
        .serialize(out)
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

#[derive(Serialize)]
struct ConnectionObject<'a> {
    id: ConnectionId,
    object: &'static str,
    provider: &'a str,
    category: ConnectionCategory,
    institution_id: &'a str,
    institution_name: &'a str,
    status: ConnectionStatus,
    previous_status: Option<ConnectionStatus>,
    last_refreshed_at: Option<Timestamp>,
    consent_expires_at: Option<Timestamp>,
}

/// Writes a connection as it was at the time of an event about it.
pub fn connection(id: ConnectionId, shown: &EventConnection) -> Vec<u8> {
    to_json(&ConnectionObject {
        id,
        object: "connection",
        provider: &shown.provider,
        category: shown.category,
        institution_id: &shown.institution_id,
        institution_name: &shown.institution_name,
        status: shown.status,
        previous_status: shown.previous_status,
        last_refreshed_at: shown.last_refreshed_at,
        consent_expires_at: shown.consent_expires_at,
    })
}

#[derive(Serialize)]
struct UserObject<'a> {
    id: UserId,
    object: &'static str,
    reference: Option<&'a str>,
}

pub fn user(EventUser { id, reference }: EventUser<'_>) -> Vec<u8> {
    to_json(&UserObject {
        id,
        object: "user",
        reference,
    })
}

fn to_json(object: &impl Serialize) -> Vec<u8> {
    let mut json = Vec::with_capacity(ROW_BYTES);
    write_json(object, &mut json);
    json
}

fn write_json(object: &impl Serialize, out: &mut Vec<u8>) {
    let outcome = serde_json::to_writer(out, object);
    debug_assert!(outcome.is_ok(), "an object always serializes");
}

/// All fields of an event except its rows and their counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    pub id: EventId,
    pub event_type: EventType,
    pub created: Timestamp,
    pub sync_run_id: SyncRunId,
    /// None: a ping or `user.removed`.
    pub connection_id: Option<ConnectionId>,
    /// Number of the chunk within the sync, from 1.
    pub chunk: u32,
    pub total_chunks: u32,
}

impl From<&WebhookEvent> for Envelope {
    fn from(event: &WebhookEvent) -> Self {
        Self {
            id: event.id,
            event_type: event.event_type,
            created: event.created_at,
            sync_run_id: event.sync_run_id,
            connection_id: event.connection_id,
            chunk: event.chunk,
            total_chunks: event.total_chunks,
        }
    }
}

/// What the body of an event depends on at an endpoint.
#[derive(Debug, Clone, Copy)]
pub struct Format<'a> {
    pub version: ApiVersion,
    /// Named in `metadata` at an endpoint of the installation.
    pub user: Option<EventUser<'a>>,
}

#[derive(Debug, Clone, Copy)]
pub struct EventUser<'a> {
    pub id: UserId,
    /// The operator's own name of the user.
    pub reference: Option<&'a str>,
}

impl<'a> From<&'a ClaimedEndpoint> for Format<'a> {
    fn from(claim: &'a ClaimedEndpoint) -> Self {
        let user = EventUser {
            id: claim.user_id,
            reference: claim.user_reference.as_deref(),
        };
        let is_of_installation = claim.owner_id == UserId::INSTALLATION;
        Self {
            version: claim.api_version,
            user: is_of_installation.then_some(user),
        }
    }
}

impl From<ApiVersion> for Format<'_> {
    /// The format of a user's own endpoint.
    fn from(version: ApiVersion) -> Self {
        Self {
            version,
            user: None,
        }
    }
}

/// Writes the body of an event that reports rows, each with its key. Counts the given rows.
pub fn body(
    envelope: &Envelope,
    format: Format<'_>,
    new: &[(RowKey, RowJson)],
    updated: &[(RowKey, RowJson)],
) -> Bytes {
    let rows: usize = new
        .iter()
        .chain(updated)
        .map(|(_, row)| row.bytes() + ROW_MEMBERS_BYTES)
        .sum();
    let write =
        |row: &(RowKey, RowJson), json: &mut Vec<u8>| row.1.write(row.0, format.version, json);
    assemble(envelope, format, rows, (new, updated, &[]), write)
}

/// Writes the body of an event about a connection or a user, or of a ping.
pub fn object_body(envelope: &Envelope, format: Format<'_>, object: Option<Vec<u8>>) -> Bytes {
    let write = |row: &Vec<u8>, json: &mut Vec<u8>| json.extend_from_slice(row);
    let (new, updated) = match envelope.event_type {
        EventType::ConnectionCreated => (object.as_slice(), [].as_slice()),
        _ => ([].as_slice(), object.as_slice()),
    };
    assemble(envelope, format, 0, (new, updated, &[]), write)
}

/// Writes the body of an event that reports rows that are gone.
pub fn removed_body(envelope: &Envelope, format: Format<'_>, removed: &[RemovedRow]) -> Bytes {
    assemble(
        envelope,
        format,
        removed.len() * 100,
        (&[], &[], removed),
        |(): &(), _: &mut Vec<u8>| {},
    )
}

/// `room` is the approximate size of the rows.
fn assemble<R>(
    envelope: &Envelope,
    Format { version, user }: Format<'_>,
    room: usize,
    (new, updated, removed): (&[R], &[R], &[RemovedRow]),
    mut write_row: impl FnMut(&R, &mut Vec<u8>),
) -> Bytes {
    let mut json = Vec::with_capacity(ENVELOPE_BYTES_MAX + room);
    let Envelope {
        id,
        event_type,
        created,
        sync_run_id,
        connection_id,
        chunk,
        total_chunks,
    } = envelope;
    // Writing to a vector never fails, and no envelope field has a character to escape.
    let _ = write!(
        json,
        concat!(
            r#"{{"id":"{}","object":"event","type":"{}","api_version":"{}","#,
            r#""created":{},"data":{{"new":"#,
        ),
        id,
        event_type,
        version,
        created.as_second(),
    );
    list(&mut json, new, &mut write_row);
    json.extend_from_slice(br#","updated":"#);
    list(&mut json, updated, &mut write_row);
    if version.has_keys() {
        json.extend_from_slice(br#","removed":"#);
        list(
            &mut json,
            removed,
            |RemovedRow { key, account_id }, json| {
                let _ = write!(json, r#"{{"key":"{key}","account_id":"{account_id}"}}"#);
            },
        );
    }
    let _ = write!(json, r#"}},"metadata":{{"sync_run_id":"{sync_run_id}","#);
    if let Some(connection_id) = connection_id {
        let _ = write!(json, r#""connection_id":"{connection_id}","#);
    }
    if let Some(EventUser { id, reference }) = user {
        let _ = write!(json, r#""user_id":"{id}","user_reference":"#);
        json.extend_from_slice(&to_json(&reference));
        json.push(b',');
    }
    let _ = write!(
        json,
        r#""new_count":{},"updated_count":{},"#,
        new.len(),
        updated.len()
    );
    if version.has_keys() {
        let _ = write!(json, r#""removed_count":{},"#, removed.len());
    }
    let _ = write!(json, r#""chunk":{chunk},"total_chunks":{total_chunks}}}}}"#);
    json.into()
}

fn list<R>(json: &mut Vec<u8>, rows: &[R], mut write_row: impl FnMut(&R, &mut Vec<u8>)) {
    json.push(b'[');
    for (at, row) in rows.iter().enumerate() {
        if at > 0 {
            json.push(b',');
        }
        write_row(row, json);
    }
    json.push(b']');
}

#[cfg(test)]
mod tests;
