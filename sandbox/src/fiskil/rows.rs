//! Rows in Fiskil's JSON, and the position of each in the order.

use std::io::Write as _;

use jiff::Timestamp;
use jiff::tz::Offset;
use serde_json::json;

use super::Fiskil;
use super::store::{Account, Entry, OwnAccount, State, Store};
use crate::clock::nanoseconds;
use crate::members::Members;
use crate::store::{Body, Protocol};
use crate::world::au_rows::{Amount, Row};
use crate::world::australia::AUSTRALIA;
use crate::world::odd_rows::OddRow;
use crate::world::rng::mix;
use crate::world::scaled::decimal;
use crate::world::template::{Extra, Template};

impl Protocol for Fiskil {
    type Row = Row;
    type Account = OwnAccount;
    type State = State;
    const ROW_ID: &'static str = "fiskil_id";

    fn row_id(seed: u64, number: u64) -> String {
        transaction_id(seed, number)
    }

    fn is_row_id(id: &str, seed: u64, number: u64) -> bool {
        id_starts(id, seed, number) && transaction_id(seed, number) == id
    }

    fn place(row: &Row) -> (u8, Option<i64>) {
        let time = row.posted.or(row.executed);
        place(row.pending, time.map(|ms| ms.saturating_mul(1_000_000)))
    }

    fn place_given(row: &Members) -> (u8, Option<i64>) {
        let mut times = ["posting_date_time", "execution_date_time"].into_iter();
        let time = times.find_map(|name| row.text(name)?.parse::<Timestamp>().ok());
        let pending = row.text("status").as_deref() == Some("PENDING");
        place(pending, time.map(nanoseconds))
    }

    fn write(out: &mut Vec<u8>, row: &Row, store: &Store, account: &Account) {
        write_drawn(out, row, store.seed, account);
    }

    fn account_of(row: &mut Members) -> Option<String> {
        row.text("account_id")
    }

    fn complete(row: &mut Members, id: &str, _: &Store, account: &Account, now: Timestamp) {
        row.set("account_id", &account.id);
        let defaults = json!({
            "fiskil_id": id, "transaction_id": format!("txn-{}", &id[8..18]),
            "arrangement_id": account.arrangement_id, "institution_id": account.institution_id,
            "status": "POSTED", "type": "PAYMENT", "amount": "-10.00", "currency": "AUD",
            "description": "ADDED ROW", "reference": "", "is_detail_available": false,
        });
        row.set_defaults(&defaults);
        // A pending row has no time. A row with an execution time keeps only that one.
        if row.text("status").as_deref() != Some("PENDING")
            && row.get("execution_date_time").is_none()
        {
            row.set_default("posting_date_time", &now);
        }
    }

    fn is_account(account: &Account, id: &str) -> bool {
        account.has_id(id)
    }
}

impl Entry {
    pub(super) fn has_status(&self, status: &str) -> bool {
        match &self.body {
            Body::Drawn(row) => row.pending == (status == "PENDING"),
            Body::Given(row) => row.text("status").as_deref() == Some(status),
        }
    }

    pub(super) fn has_secondary(&self, wanted: &[&str]) -> bool {
        #[derive(serde::Deserialize)]
        struct Category {
            secondary_category: String,
        }
        match &self.body {
            Body::Drawn(row) => {
                let category = row.template.category;
                category.is_some_and(|(_, secondary)| wanted.contains(&secondary))
            }
            Body::Given(row) => row
                .get("category")
                .and_then(|raw| serde_json::from_str::<Category>(raw.get()).ok())
                .is_some_and(|category| wanted.contains(&category.secondary_category.as_str())),
        }
    }
}

/// An odd row of the world in Fiskil's format, posted at `at` (milliseconds).
pub(super) fn odd_row(account: &Account, row: &OddRow, seed: u64, number: u64, at: i64) -> Members {
    let posted = Timestamp::from_millisecond(at).unwrap_or_default();
    let mut members = Members::from_value(&json!({
        "fiskil_id": transaction_id(seed, number), "account_id": account.id,
        "arrangement_id": account.arrangement_id, "institution_id": account.institution_id,
        "status": "POSTED", "type": "PAYMENT", "amount": row.amount, "currency": "AUD",
        "description": row.description, "reference": row.reference.as_deref().unwrap_or_default(),
        "posting_date_time": posted.to_string(), "is_detail_available": false,
    }));
    if let Some(merchant) = &row.merchant {
        members.set("merchant_name", merchant);
    }
    if let Some((primary, secondary)) = &row.category {
        let category = json!({
            "primary_category": primary, "secondary_category": secondary, "confidence_level": "HIGH",
        });
        members.set("category", &category);
    }
    members
}

/// Pending rows come first, then newest first, then rows without any time. Sandbox choices: newest
/// first among pending rows, and the last added first among rows of one instant
/// (docs/providers/fiskil.md#transactions, #sandbox-choices).
fn place(pending: bool, time: Option<i64>) -> (u8, Option<i64>) {
    match (pending, time) {
        (true, _) => (0, time),
        (false, Some(_)) => (1, time),
        (false, None) => (2, None),
    }
}

fn words(seed: u64, number: u64) -> [u64; 4] {
    let first = mix(mix(seed ^ 0x6669_736b_696c) ^ number);
    [first, mix(first ^ 1), mix(first ^ 2), mix(first ^ 3)]
}

/// `bank_tx_` and 64 hexadecimal digits (docs/providers/fiskil.md#rows).
pub(super) fn transaction_id(seed: u64, number: u64) -> String {
    let mut out = Vec::with_capacity(72);
    write_id(&mut out, words(seed, number));
    String::from_utf8(out).expect("hexadecimal digits are text")
}

/// Compares the first part of an id, which avoids building the id of every row in a search.
fn id_starts(fiskil_id: &str, seed: u64, number: u64) -> bool {
    let first = fiskil_id
        .strip_prefix("bank_tx_")
        .and_then(|hex| hex.get(..16));
    first.and_then(|hex| u64::from_str_radix(hex, 16).ok()) == Some(words(seed, number)[0])
}

fn write_id(out: &mut Vec<u8>, words: [u64; 4]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(b"bank_tx_");
    for byte in words.iter().flat_map(|word| word.to_be_bytes()) {
        out.push(HEX[usize::from(byte >> 4)]);
        out.push(HEX[usize::from(byte & 15)]);
    }
}

/// Writes the row straight to bytes, because benchmarks read hundreds of thousands of them. The
/// texts of the world need no escapes.
fn write_drawn(out: &mut Vec<u8>, row: &Row, seed: u64, account: &Account) {
    let words = words(seed, row.number);
    out.extend_from_slice(b"{\"fiskil_id\":\"");
    write_id(out, words);
    out.push(b'"');
    // Rows may lack the bank's own id (docs/providers/fiskil.md#rows).
    if !words[1].is_multiple_of(31) {
        let _ = write!(
            out,
            ",\"transaction_id\":\"txn-{:010}\"",
            words[1] % 10_000_000_000
        );
    }
    text(out, "account_id", &account.id);
    text(out, "arrangement_id", &account.arrangement_id);
    text(out, "institution_id", &account.institution_id);
    text(
        out,
        "status",
        if row.pending { "PENDING" } else { "POSTED" },
    );
    text(out, "type", row.template.kind);
    write_amount(out, &row.amount);
    text(out, "currency", "AUD");
    write_description(out, row);
    text(out, "reference", row.template.reference);
    write_times(out, row, words[2]);
    write_optional(out, row, words[3]);
    write_category(out, row.template, words[2]);
    out.push(b'}');
}

fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":\"");
    out.extend_from_slice(value.as_bytes());
    out.push(b'"');
}

fn write_amount(out: &mut Vec<u8>, amount: &Amount) {
    match amount {
        Amount::Text(value) => text(out, "amount", value),
        Amount::Cents(cents) => {
            let _ = write!(out, ",\"amount\":\"{}\"", decimal(*cents));
        }
    }
}

fn write_description(out: &mut Vec<u8>, row: &Row) {
    text(out, "description", row.template.text);
    if row.template.place {
        out.pop();
        out.push(b' ');
        let places = &AUSTRALIA.places;
        out.extend_from_slice(places[usize::from(row.place) % places.len()].as_bytes());
        out.push(b'"');
    }
}

fn write_times(out: &mut Vec<u8>, row: &Row, draw: u64) {
    if let Some(posted) = row.posted {
        time(out, "posting_date_time", posted, row);
        // A small minority has a value date (docs/providers/fiskil.md#rows).
        if draw.is_multiple_of(29) {
            time(out, "value_date_time", posted, row);
        }
    }
    if let Some(executed) = row.executed {
        time(out, "execution_date_time", executed, row);
    }
}

fn time(out: &mut Vec<u8>, name: &str, ms: i64, row: &Row) {
    let offset = Offset::from_seconds(i32::from(row.offset_minutes) * 60).unwrap_or(Offset::UTC);
    let at = offset.to_datetime(Timestamp::from_millisecond(ms).unwrap_or_default());
    let _ = write!(
        out,
        ",\"{name}\":\"{:04}-{:02}-{:02}T",
        at.year(),
        at.month(),
        at.day()
    );
    let _ = write!(
        out,
        "{:02}:{:02}:{:02}",
        at.hour(),
        at.minute(),
        at.second()
    );
    if row.millis {
        let _ = write!(out, ".{:03}", at.millisecond());
    }
    match row.offset_minutes {
        0 => out.push(b'Z'),
        minutes => {
            let _ = write!(out, "+{:02}:{:02}", minutes / 60, minutes % 60);
        }
    }
    out.push(b'"');
}

fn write_optional(out: &mut Vec<u8>, row: &Row, draw: u64) {
    if let Some(merchant) = row.template.merchant {
        text(out, "merchant_name", merchant);
    }
    // Often absent even if the merchant is known (docs/providers/fiskil.md#rows).
    if let Some(code) = row
        .template
        .merchant_code
        .filter(|_| !draw.is_multiple_of(9))
    {
        text(out, "merchant_category_code", code);
    }
    match &row.template.extra {
        Extra::Bpay { code, name } => {
            text(out, "biller_code", code);
            text(out, "biller_name", name);
            let _ = write!(out, ",\"crn\":\"{:010}\"", draw % 10_000_000_000);
        }
        Extra::DirectEntry(sender) => text(out, "apca_number", sender),
        Extra::Npp(name) => {
            let side = if row.template.incoming {
                "payer"
            } else {
                "payee"
            };
            let _ = write!(
                out,
                ",\"extended_data\":{{\"extension_u_type\":\"nppPayload\",\"{side}\":\"{name}\",\"npp_payload\":{{\
                 \"extended_description\":\"{}\",\"service\":\"X2P1\",\"service_version\":\"04\",\
                 \"end_to_end_id\":\"e2e{draw:016x}\"}}}}",
                row.template.reference
            );
        }
        _ => {}
    }
    let detail = matches!(row.template.extra, Extra::Npp(_));
    let _ = write!(out, ",\"is_detail_available\":{detail}");
    // Undocumented members may appear at any time (docs/providers/fiskil.md#versions); these two
    // are invented.
    if draw.is_multiple_of(37) {
        out.extend_from_slice(b",\"enrichment_version\":3,\"x_tags\":[\"new\",null]");
    }
}

fn write_category(out: &mut Vec<u8>, template: &Template, draw: u64) {
    const LEVELS: [&str; 4] = ["VERY_HIGH", "HIGH", "MEDIUM", "LOW"];
    if template.null_category {
        out.extend_from_slice(b",\"category\":null");
    }
    if let Some((primary, secondary)) = template.category {
        let level = LEVELS[draw as usize % LEVELS.len()];
        let _ = write!(
            out,
            ",\"category\":{{\"primary_category\":\"{primary}\",\"secondary_category\":\"{secondary}\",\
             \"confidence_level\":\"{level}\"}}"
        );
    }
}
