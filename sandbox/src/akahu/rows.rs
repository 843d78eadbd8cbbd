//! Rows in Akahu's JSON, and the position of each in the order
//! (docs/providers/akahu.md#transactions).

use std::io::Write as _;

use jiff::Timestamp;

use super::ids;
use super::respond::iso;
use crate::members::Members;
use crate::world::new_zealand::NEW_ZEALAND;
use crate::world::nz_rows::Row;
use crate::world::nzfcc::Code;
use crate::world::template::{Extra, Template};

/// A row's position in the order. It compares member by member, and the smaller position is newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    /// The instant with its bits inverted, so that newer is smaller.
    major: i64,
    /// Of rows of one instant the larger number comes first, which is a sandbox choice
    /// (docs/providers/akahu.md#transactions).
    minor: u64,
    /// Empty pages served at this position, so that each gets its own cursor; 0 for every row.
    empty_pages: u8,
}

impl Position {
    pub(super) const START: Self = Self {
        major: i64::MIN,
        minor: 0,
        empty_pages: 0,
    };

    const fn new(at: i64, number: u64) -> Self {
        Self {
            major: !at,
            minor: u64::MAX - number,
            empty_pages: 0,
        }
    }

    /// The instant of the row, in milliseconds.
    pub(super) const fn at(self) -> i64 {
        !self.major
    }

    /// The same position, one empty page later.
    pub(super) const fn after_empty_page(self) -> Self {
        Self {
            empty_pages: self.empty_pages.wrapping_add(1),
            ..self
        }
    }

    pub(super) fn to_bytes(self) -> [u8; 17] {
        let mut bytes = [0; 17];
        bytes[..8].copy_from_slice(&self.major.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.minor.to_be_bytes());
        bytes[16] = self.empty_pages;
        bytes
    }

    pub(super) fn of_bytes(bytes: [u8; 17]) -> Self {
        let [major, minor] = [0, 8].map(|from| {
            let mut half = [0; 8];
            half.copy_from_slice(&bytes[from..from + 8]);
            half
        });
        Self {
            major: i64::from_be_bytes(major),
            minor: u64::from_be_bytes(minor),
            empty_pages: bytes[16],
        }
    }
}

/// A settled row of an account.
pub(super) struct Entry {
    pub(super) position: Position,
    body: Body,
}

enum Body {
    /// Generated from the world on each read.
    Drawn(Row),
    /// Stored as a test sent it.
    Given(Members),
}

/// The ids of an account that each of its rows repeats.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) account_id: &'a str,
    pub(super) connection_id: &'a str,
    pub(super) user_id: &'a str,
    /// The last digits of the card.
    pub(super) card: &'a str,
}

impl Entry {
    pub(super) fn drawn(row: Row) -> Self {
        Self {
            position: Position::new(row.at, row.number),
            body: Body::Drawn(row),
        }
    }

    /// A row without a readable date comes after all others.
    pub(super) fn given(members: Members, number: u64) -> Self {
        let at = members
            .text("date")
            .and_then(|text| text.parse::<Timestamp>().ok());
        let at = at.map_or(i64::MIN, Timestamp::as_millisecond);
        Self {
            position: Position::new(at, number),
            body: Body::Given(members),
        }
    }

    pub(super) const fn number(&self) -> u64 {
        u64::MAX - self.position.minor
    }

    pub(super) fn has_id(&self, id: &str, seed: u64) -> bool {
        match &self.body {
            Body::Drawn(row) => ids::is_of_row(id, seed, row.number),
            Body::Given(members) => members.text("_id").as_deref() == Some(id),
        }
    }

    /// Converts the row to an object that can be changed.
    pub(super) fn members(&self, seed: u64, names: Names<'_>) -> Members {
        match &self.body {
            Body::Given(members) => members.clone(),
            Body::Drawn(_) => {
                let mut out = Vec::new();
                self.write(&mut out, seed, names);
                Members::parse(&out).expect("our own rows are JSON objects")
            }
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>, seed: u64, names: Names<'_>) {
        match &self.body {
            Body::Drawn(row) => write_drawn(out, row, seed, names),
            Body::Given(members) => {
                serde_json::to_writer(out, members).expect("text can be written to memory")
            }
        }
    }
}

/// Writes the row straight to bytes, because clients read thousands at a time. The texts of the
/// world need no escapes.
fn write_drawn(out: &mut Vec<u8>, row: &Row, seed: u64, names: Names<'_>) {
    let _ = write!(out, "{{\"_id\":\"{}\"", ids::of_row(seed, row.number));
    text(out, "_account", names.account_id);
    text(out, "_connection", names.connection_id);
    text(out, "_user", names.user_id);
    time(out, "created_at", row.first_seen);
    time(out, "updated_at", row.last_changed);
    time(out, "date", row.at);
    // Deprecated, but the official client's types still require it.
    text(out, "hash", &ids::hash_of_row(seed, row.number));
    description(out, row.template, row.place);
    out.extend_from_slice(b",\"amount\":");
    number(out, row.cents);
    if let Some(balance) = row.balance {
        out.extend_from_slice(b",\"balance\":");
        number(out, balance);
    }
    text(out, "type", row.template.kind);
    let merchant_id = row
        .template
        .code
        .map(|code| write_enriched(out, row.template, code));
    write_meta(
        out,
        row.template,
        row.cents,
        names.card,
        merchant_id.as_deref(),
    );
    out.push(b'}');
}

/// A pending row (docs/providers/akahu.md#pending-rows). It has no id and no enrichment, and its
/// amount is text.
pub(super) fn pending(
    template: &Template,
    place: u8,
    cents: i64,
    at: i64,
    names: Names<'_>,
) -> Members {
    let mut out = Vec::new();
    let _ = write!(out, "{{\"_account\":\"{}\"", names.account_id);
    text(&mut out, "_connection", names.connection_id);
    text(&mut out, "_user", names.user_id);
    time(&mut out, "updated_at", at);
    time(&mut out, "date", at);
    description(&mut out, template, place);
    let sign = if cents < 0 { "-" } else { "" };
    let whole = cents.unsigned_abs();
    text(
        &mut out,
        "amount",
        &format!("{sign}{}.{:02}", whole / 100, whole % 100),
    );
    text(&mut out, "type", template.kind);
    write_meta(&mut out, template, cents, names.card, None);
    out.push(b'}');
    Members::parse(&out).expect("our own rows are JSON objects")
}

fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    let _ = write!(out, ",\"{name}\":\"{value}\"");
}

fn time(out: &mut Vec<u8>, name: &str, ms: i64) {
    text(
        out,
        name,
        &iso(Timestamp::from_millisecond(ms).unwrap_or_default()),
    );
}

/// Writes cents as a JSON number without trailing zeros: `15.9`, `-1000`
/// (docs/providers/akahu.md#amounts).
fn number(out: &mut Vec<u8>, cents: i64) {
    let sign = if cents < 0 { "-" } else { "" };
    let (whole, rest) = (cents.unsigned_abs() / 100, cents.unsigned_abs() % 100);
    let _ = match rest {
        0 => write!(out, "{sign}{whole}"),
        rest if rest.is_multiple_of(10) => write!(out, "{sign}{whole}.{}", rest / 10),
        rest => write!(out, "{sign}{whole}.{rest:02}"),
    };
}

fn description(out: &mut Vec<u8>, template: &Template, place: u8) {
    let _ = write!(out, ",\"description\":\"{}", template.text);
    if template.place {
        let places = &NEW_ZEALAND.places;
        let _ = write!(out, " {}", places[usize::from(place) % places.len()]);
    }
    out.push(b'"');
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
            out.extend_from_slice(b",\"conversion\":{\"amount\":");
            number(out, cents.abs() * rate / 10_000);
            let _ = write!(out, ",\"currency\":\"{currency}\",\"rate\":0.{rate:04}}}");
            text(out, "card_suffix", card);
        }
        _ => {}
    }
    if let Some(id) = merchant_id {
        text(
            out,
            "logo",
            &format!("https://cdn.akahu.nz/logos/merchants/{id}"),
        );
    }
    // Each member starts with a comma; remove the first.
    if out.len() > start {
        out.remove(start);
    }
    out.push(b'}');
}
