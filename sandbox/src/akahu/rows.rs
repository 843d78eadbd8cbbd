//! Rows in Akahu's JSON, and the position of each in the order
//! (docs/providers/akahu.md#transactions).

use std::io::Write as _;

use jiff::Timestamp;
use serde_json::json;
use serde_json::value::RawValue;

use super::respond::iso;
use super::store::{Account, OwnAccount, State, Store};
use super::{Akahu, ids};
use crate::members::Members;
use crate::respond::text;
use crate::store::Protocol;
use crate::world::calendar::Calendar;
use crate::world::new_zealand::NEW_ZEALAND;
use crate::world::nz_rows::Row;
use crate::world::nzfcc::Code;
use crate::world::odd_rows::{OddRow, days_back, instant};
use crate::world::scaled::{Scaled, decimal};
use crate::world::template::{Extra, Template};

impl Protocol for Akahu {
    type Row = Row;
    type Account = OwnAccount;
    type State = State;
    const ROW_ID: &'static str = "_id";

    fn row_id(seed: u64, number: u64) -> String {
        ids::of_row(seed, number)
    }

    fn is_row_id(id: &str, seed: u64, number: u64) -> bool {
        ids::is_of_row(id, seed, number)
    }

    fn place(row: &Row) -> (u8, Option<i64>) {
        (0, Some(row.at))
    }

    /// A row without a readable date comes after all others.
    fn place_given(row: &Members) -> (u8, Option<i64>) {
        let at = row.text("date").and_then(|text| text.parse().ok());
        match at.map(Timestamp::as_millisecond) {
            Some(at) => (0, Some(at)),
            None => (1, None),
        }
    }

    fn write(out: &mut Vec<u8>, row: &Row, store: &Store, account: &Account) {
        write_drawn(out, row, store.seed, account);
    }

    fn account_of(row: &mut Members) -> Option<String> {
        row.text("_account")
    }

    fn complete(row: &mut Members, id: &str, _: &Store, account: &Account, now: Timestamp) {
        let now = iso(now);
        row.set_defaults(&json!({
            "_id": id, "_connection": account.connection_id, "_user": account.user_id,
            "created_at": now, "updated_at": now, "date": now, "description": "ADDED ROW",
            "amount": -10, "type": "DEBIT",
        }));
    }

    fn complete_change(given: &mut Members, now: Timestamp) {
        given.set_default("updated_at", &iso(now));
    }
}

/// An odd row of the world in Akahu's format. Every second one has only a day, as midnight in New
/// Zealand (docs/providers/akahu.md#dates).
pub(super) fn odd_row(
    account: &Account,
    row: &OddRow,
    seed: u64,
    number: u64,
    index: usize,
    calendar: &Calendar,
) -> Members {
    let at = match index % 2 {
        0 => calendar.instant(days_back(index), 0),
        _ => instant(calendar, index),
    };
    let at = iso(Timestamp::from_millisecond(at).unwrap_or_default());
    let mut members = Members::from_value(&json!({
        "_id": ids::of_row(seed, number), "_account": account.id,
        "_connection": account.connection_id, "_user": account.user_id, "created_at": at,
        "updated_at": at, "date": at, "hash": ids::hash_of_row(seed, number),
        "description": row.description,
        "type": if row.amount.starts_with('-') { "DEBIT" } else { "CREDIT" },
        "meta": row.reference.as_ref().map_or_else(|| json!({}), |text| json!({"reference": text})),
    }));
    // As a JSON number with exactly these digits.
    let amount =
        RawValue::from_string(row.amount.clone()).expect("the world's amounts are JSON numbers");
    members.set("amount", &amount);
    if let Some(merchant) = &row.merchant {
        let id = ids::named("merchant_", merchant);
        members.set("merchant", &json!({"_id": id, "name": merchant}));
    }
    members
}

/// Writes the row straight to bytes, because clients read thousands at a time.
fn write_drawn(out: &mut Vec<u8>, row: &Row, seed: u64, account: &Account) {
    let template = row.template;
    let _ = write!(out, "{{\"_id\":\"{}\"", ids::of_row(seed, row.number));
    write_ids(out, account);
    text(out, "created_at", time(row.first_seen));
    text(out, "updated_at", time(row.last_changed));
    text(out, "date", time(row.at));
    // Deprecated, but the official client's types still require it.
    text(out, "hash", ids::hash_of_row(seed, row.number));
    text(
        out,
        "description",
        template.description(&NEW_ZEALAND.places, row.place),
    );
    // Akahu writes amounts as numbers without trailing zeros (docs/providers/akahu.md#amounts).
    let _ = write!(out, ",\"amount\":{}", Scaled::cents(row.cents));
    if let Some(balance) = row.balance {
        let _ = write!(out, ",\"balance\":{}", Scaled::cents(balance));
    }
    text(out, "type", template.kind);
    let merchant_id = template
        .code
        .map(|code| write_enriched(out, template, code));
    write_meta(
        out,
        template,
        row.cents,
        &account.card,
        merchant_id.as_deref(),
    );
    out.push(b'}');
}

fn write_ids(out: &mut Vec<u8>, account: &Account) {
    text(out, "_account", &account.id);
    text(out, "_connection", &account.connection_id);
    text(out, "_user", &account.user_id);
}

/// A pending row (docs/providers/akahu.md#pending-rows). It has no id and no enrichment, and its
/// amount is text.
pub(super) fn pending(
    template: &Template,
    place: u8,
    cents: i64,
    at: i64,
    account: &Account,
) -> Members {
    let mut out = Vec::new();
    write_ids(&mut out, account);
    text(&mut out, "updated_at", time(at));
    text(&mut out, "date", time(at));
    text(
        &mut out,
        "description",
        template.description(&NEW_ZEALAND.places, place),
    );
    text(&mut out, "amount", decimal(cents));
    text(&mut out, "type", template.kind);
    write_meta(&mut out, template, cents, &account.card, None);
    out.push(b'}');
    // Each field starts with a comma.
    out[0] = b'{';
    Members::parse(&out).expect("our own rows are JSON objects")
}

fn time(ms: i64) -> String {
    iso(Timestamp::from_millisecond(ms).unwrap_or_default())
}

/// Writes merchant and category, and returns the merchant's id.
fn write_enriched(out: &mut Vec<u8>, template: &Template, code: &Code) -> String {
    let merchant = template.merchant.unwrap_or_default();
    let merchant_id = ids::named("merchant_", merchant);
    let _ = write!(out, ",\"merchant\":{{\"_id\":\"{merchant_id}\"");
    text(out, "name", merchant);
    for (name, value) in [("website", template.website), ("nzbn", template.nzbn)] {
        if let Some(value) = value {
            text(out, name, value);
        }
    }
    let (group_id, group) = code.group;
    let _ = write!(
        out,
        "}},\"category\":{{\"_id\":\"{}\",\"name\":\"{}\",\"groups\":{{\"personal_finance\":{{\"_id\":\"{}\",\
         \"name\":\"{}\"}}}}}}",
        code.id, code.name, group_id, group
    );
    merchant_id
}

/// Writes `meta`, which is `{}` when empty, as in recorded responses
/// (docs/providers/akahu.md#transactions).
fn write_meta(
    out: &mut Vec<u8>,
    template: &Template,
    cents: i64,
    card: &str,
    merchant_id: Option<&str>,
) {
    out.extend_from_slice(b",\"meta\":{");
    let start = out.len();
    match &template.extra {
        Extra::Card => text(out, "card_suffix", card),
        Extra::Fields(fields) => {
            for name in ["particulars", "code", "reference", "other_account"] {
                if let Some(value) = fields.get(name) {
                    text(out, name, value);
                }
            }
        }
        Extra::Conversion { currency, rate } => {
            let amount = Scaled::cents(cents.abs() * rate / 10_000);
            let _ = write!(
                out,
                ",\"conversion\":{{\"amount\":{amount},\"currency\":\"{currency}\",\
                 \"rate\":0.{rate:04}}}"
            );
            text(out, "card_suffix", card);
        }
        _ => {}
    }
    if let Some(id) = merchant_id {
        let logo = format!("https://cdn.akahu.nz/logos/merchants/{id}");
        text(out, "logo", logo);
    }
    // Each member starts with a comma; remove the first.
    if out.len() > start {
        out.remove(start);
    }
    out.push(b'}');
}
