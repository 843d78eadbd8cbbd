//! Rows in Fiskil's JSON, and the position of each in the order.

use std::io::Write as _;

use jiff::Timestamp;
use jiff::tz::Offset;
use serde_json::json;

use super::Fiskil;
use super::store::{Account, Entry, OwnAccount, State, Store};
use crate::clock::nanoseconds;
use crate::members::Members;
use crate::respond::text;
use crate::store::{Body, Protocol};
use crate::world::au_rows::Row;
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
}

/// An odd row of the world in Fiskil's format, posted at `at` (milliseconds).
pub(super) fn odd_row(account: &Account, row: &OddRow, seed: u64, number: u64, at: i64) -> Members {
    let posted = Timestamp::from_millisecond(at).unwrap_or_default();
    let mut members = Members::from_value(&json!({
        "fiskil_id": transaction_id(seed, number), "account_id": account.id,
        "arrangement_id": account.arrangement_id, "institution_id": account.institution_id,
        "status": "POSTED", "type": "PAYMENT", "amount": row.amount, "currency": "AUD",
        "description": row.description, "reference": row.reference.as_deref().unwrap_or_default(),
        "is_detail_available": false,
    }));
    if !row.undated {
        members.set("posting_date_time", &posted.to_string());
    }
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
    let [a, b, c, d] = words(seed, number);
    format!("bank_tx_{a:016x}{b:016x}{c:016x}{d:016x}")
}

/// Compares the first part of an id, which avoids building the id of every row in a search.
fn id_starts(fiskil_id: &str, seed: u64, number: u64) -> bool {
    let first = fiskil_id
        .strip_prefix("bank_tx_")
        .and_then(|hex| hex.get(..16));
    first.and_then(|hex| u64::from_str_radix(hex, 16).ok()) == Some(words(seed, number)[0])
}

/// Writes the row straight to bytes, because benchmarks read hundreds of thousands of them.
fn write_drawn(out: &mut Vec<u8>, row: &Row, seed: u64, account: &Account) {
    let (template, [_, id, draw, more]) = (row.template, words(seed, row.number));
    let _ = write!(
        out,
        "{{\"fiskil_id\":\"{}\"",
        transaction_id(seed, row.number)
    );
    // Rows may lack the bank's own id (docs/providers/fiskil.md#rows).
    if !id.is_multiple_of(31) {
        text(
            out,
            "transaction_id",
            format_args!("txn-{}", ten_digits(id)),
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
    text(out, "type", template.kind);
    text(out, "amount", decimal(row.cents));
    text(out, "currency", "AUD");
    text(
        out,
        "description",
        template.description(&AUSTRALIA.places, row.place),
    );
    text(out, "reference", template.reference);
    // A small minority has a value date (docs/providers/fiskil.md#rows).
    let valued = row.posted.filter(|_| draw.is_multiple_of(29));
    for (name, at) in [
        ("posting_date_time", row.posted),
        ("value_date_time", valued),
        ("execution_date_time", row.executed),
    ] {
        if let Some(at) = at {
            text(out, name, time(at, row));
        }
    }
    write_payment(out, template, more);
    // Undocumented fields may appear at any time (docs/providers/fiskil.md#versions); these two
    // are invented.
    if more.is_multiple_of(37) {
        out.extend_from_slice(b",\"enrichment_version\":3,\"x_tags\":[\"new\",null]");
    }
    if template.null_category {
        out.extend_from_slice(b",\"category\":null");
    }
    if let Some((primary, secondary)) = template.category {
        let level = ["VERY_HIGH", "HIGH", "MEDIUM", "LOW"][draw as usize % 4];
        let _ = write!(
            out,
            ",\"category\":{{\"primary_category\":\"{primary}\",\"secondary_category\":\"{secondary}\",\
             \"confidence_level\":\"{level}\"}}"
        );
    }
    out.push(b'}');
}

fn ten_digits(draw: u64) -> String {
    format!("{:010}", draw % 10_000_000_000)
}

fn time(ms: i64, row: &Row) -> String {
    let at = Timestamp::from_millisecond(ms).unwrap_or_default();
    let digits = if row.millis { 3 } else { 0 };
    match Offset::from_seconds(i32::from(row.offset_minutes) * 60) {
        Ok(offset) if !offset.is_zero() => format!("{:.digits$}", at.display_with_offset(offset)),
        _ => format!("{at:.digits$}"),
    }
}

/// Writes the merchant, and what the payment system adds.
fn write_payment(out: &mut Vec<u8>, template: &Template, draw: u64) {
    if let Some(merchant) = template.merchant {
        text(out, "merchant_name", merchant);
    }
    // Often absent even if the merchant is known (docs/providers/fiskil.md#rows).
    let code = template.merchant_code;
    if let Some(code) = code.filter(|_| !draw.is_multiple_of(9)) {
        text(out, "merchant_category_code", code);
    }
    match &template.extra {
        Extra::Bpay { code, name } => {
            text(out, "biller_code", code);
            text(out, "biller_name", name);
            text(out, "crn", ten_digits(draw));
        }
        Extra::DirectEntry(sender) => text(out, "apca_number", sender),
        Extra::Npp(name) => {
            let side = if template.incoming { "payer" } else { "payee" };
            let _ = write!(
                out,
                ",\"extended_data\":{{\"extension_u_type\":\"nppPayload\",\"{side}\":\"{name}\",\"npp_payload\":{{\
                 \"extended_description\":\"{}\",\"service\":\"X2P1\",\"service_version\":\"04\",\
                 \"end_to_end_id\":\"e2e{draw:016x}\"}}}}",
                template.reference
            );
        }
        _ => {}
    }
    let detail = matches!(template.extra, Extra::Npp(_));
    let _ = write!(out, ",\"is_detail_available\":{detail}");
}
