//! Pages of settled rows (docs/providers/akahu.md#pages). A cursor holds the position of a row in
//! the order, so it stays valid while rows are added and removed. Sandbox choices: the format of
//! cursors, and 400 for a cursor that is invalid or belongs to another query.

use std::io::Write as _;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;

use super::call::UserCall;
use super::errors::Failure;
use super::store::{Account, Entry, Store};
use crate::store::Position;

/// Rows per page, which is fixed (docs/providers/akahu.md#pages).
const SIZE: usize = 100;

/// Signs cursors, so that an invented one is rejected.
pub(super) struct Cursors(hmac::Key);

impl Cursors {
    pub(super) fn new() -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA512, &SystemRandom::new());
        Self(key.expect("the system has random numbers"))
    }

    /// The tag of a position in the rows of a query.
    fn tag(&self, query: &[u8]) -> impl Fn(&[u8]) -> Vec<u8> {
        move |position| {
            hmac::sign(&self.0, &[position, query].concat())
                .as_ref()
                .to_vec()
        }
    }
}

/// The rows that a call selects.
pub(super) struct PageRequest {
    /// In milliseconds; excludes rows of this instant.
    start: Option<i64>,
    /// In milliseconds; includes rows of this instant.
    end: Option<i64>,
    after: Option<Position>,
    /// What a cursor is bound to: user, path and date range.
    query: Vec<u8>,
}

impl PageRequest {
    /// Reads `start`, `end` and `cursor`.
    pub(super) fn of(call: &UserCall) -> Result<Self, Failure> {
        let (start, end) = (call.instant("start")?, call.instant("end")?);
        let query = format!("{}\n{}\n{start:?}\n{end:?}", call.user, call.path).into_bytes();
        let after =
            match call.query.get("cursor") {
                None => None,
                Some(text) => {
                    let known = Position::of_cursor(text, call.akahu.cursors.tag(&query));
                    Some(known.ok_or_else(|| {
                        Failure::invalid("queryParams.cursor is not a valid cursor")
                    })?)
                }
            };
        Ok(Self {
            start,
            end,
            after,
            query,
        })
    }

    /// The entries of an account that are in range and after the cursor.
    fn selected<'a>(&self, entries: &'a [Entry]) -> &'a [Entry] {
        let too_new = entries
            .partition_point(|entry| self.end.is_some_and(|end| entry.position.at() > Some(end)));
        let seen = self.after.map_or(0, |after| {
            entries.partition_point(|entry| entry.position <= after)
        });
        let end = entries.partition_point(|entry| {
            self.start
                .is_none_or(|start| entry.position.at() > Some(start))
        });
        entries.get(too_new.max(seen)..end).unwrap_or_default()
    }
}

/// Writes a page of the rows of `accounts`, newest first.
pub(super) fn page(
    call: &UserCall,
    page_request: &PageRequest,
    accounts: &[&Account],
    store: &Store,
) -> Vec<u8> {
    let mut remaining: Vec<&[Entry]> = accounts
        .iter()
        .map(|account| page_request.selected(&account.entries))
        .collect();
    let has_rows = remaining.iter().any(|rest| !rest.is_empty());
    let is_empty = has_rows && call.akahu.empty_pages.next_is_empty();
    let mut out = Vec::with_capacity(64 + SIZE * 800);
    out.extend_from_slice(b"{\"success\":true,\"items\":[");
    let mut last = page_request.after.unwrap_or(Position::START);
    let size = if is_empty { 0 } else { SIZE };
    for number in 0..size {
        let Some(list) = newest(&remaining) else {
            break;
        };
        let Some((entry, rest)) = remaining[list].split_first() else {
            break;
        };
        remaining[list] = rest;
        if number > 0 {
            out.push(b',');
        }
        entry.write(&mut out, store, accounts[list]);
        last = entry.position;
    }
    if is_empty {
        last = last.after_empty_page();
    }
    out.extend_from_slice(b"],\"cursor\":{\"next\":");
    let _ = match newest(&remaining) {
        None => write!(out, "null"),
        Some(_) => write!(
            out,
            "\"{}\"",
            last.to_cursor(call.akahu.cursors.tag(&page_request.query))
        ),
    };
    out.extend_from_slice(b"}}");
    out
}

/// Returns which list starts with the newest row.
fn newest(remaining: &[&[Entry]]) -> Option<usize> {
    let firsts = remaining
        .iter()
        .enumerate()
        .filter_map(|(list, rest)| Some((rest.first()?.position, list)));
    firsts.min().map(|(_, list)| list)
}
