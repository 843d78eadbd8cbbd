//! Pages of settled rows (docs/providers/akahu.md#pages). A cursor holds the position of a row in
//! the order, so it stays valid while rows are added and removed. Sandbox choices: the format of
//! cursors, and 400 for a cursor that is invalid or belongs to another query.

use std::io::Write as _;

use super::call::{UserCall, instant};
use super::errors::Failure;
use super::store::{Account, Entry, Store};
use crate::merge::{self, Page};
use crate::store::Position;

/// Rows per page, which is fixed (docs/providers/akahu.md#pages).
const SIZE: usize = 100;

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
        let (start, end) = (instant(&call.query, "start")?, instant(&call.query, "end")?);
        let query = format!("{}\n{}\n{start:?}\n{end:?}", call.user, call.path).into_bytes();
        let cursor = call.query.get("cursor").map(|text| {
            Position::of_cursor(text, &query)
                .ok_or_else(|| Failure::invalid("queryParams.cursor is not a valid cursor"))
        });
        let after = cursor.transpose()?;
        Ok(Self {
            start,
            end,
            after,
            query,
        })
    }

    /// The entries of an account that are in range.
    fn selected<'a>(&self, entries: &'a [Entry]) -> &'a [Entry] {
        let too_new = entries
            .partition_point(|entry| self.end.is_some_and(|end| entry.position.at() > Some(end)));
        let end = entries.partition_point(|entry| {
            self.start
                .is_none_or(|start| entry.position.at() > Some(start))
        });
        entries.get(too_new..end).unwrap_or_default()
    }
}

/// Writes a page of the rows of `accounts`, newest first.
pub(super) fn page(
    call: &UserCall,
    page_request: &PageRequest,
    accounts: &[&Account],
    store: &Store,
) -> Vec<u8> {
    let lists: Vec<&[Entry]> = accounts
        .iter()
        .map(|account| page_request.selected(&account.entries))
        .collect();
    let request = merge::PageRequest {
        size: SIZE,
        after: page_request.after,
    };
    let mut page = Page::of(&lists, request, |_| true);
    if !page.items.is_empty() && call.akahu.empty_pages.next_is_empty() {
        page = page.emptied(request);
    }
    let mut out = Vec::with_capacity(64 + SIZE * 800);
    out.extend_from_slice(b"{\"success\":true,\"items\":[");
    page.write_items(&mut out, |out, list, entry| {
        entry.write(out, store, accounts[list]);
    });
    out.extend_from_slice(b"],\"cursor\":{\"next\":");
    let _ = match page.next {
        None => write!(out, "null"),
        Some(next) => write!(out, "\"{}\"", next.to_cursor(&page_request.query)),
    };
    out.extend_from_slice(b"}}");
    out
}
