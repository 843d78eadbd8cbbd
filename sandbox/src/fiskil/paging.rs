//! Cursor paging. A cursor holds the position of a row in the order, not a row count, so it stays
//! valid while rows are added and removed. The format of cursors and the default page size are
//! sandbox choices (docs/providers/fiskil.md#sandbox-choices).

use std::io::Write as _;

use super::call::Call;
use super::errors::Failure;
use crate::members::Members;
use crate::merge::{Page, PageRequest};
use crate::store::Position;

/// Default page size, a sandbox choice: the real one is unknown (docs/providers/fiskil.md#pages).
const SIZE_DEFAULT: usize = 100;
/// Larger sizes are capped, not rejected (docs/providers/fiskil.md#pages).
const SIZE_MAX: usize = 1000;
/// A cursor is valid for any query.
const NO_QUERY: &[u8] = &[];

impl PageRequest {
    /// Reads `page[size]`, `page[after]` and `page[before]`. An invalid cursor gets 503, as seen
    /// live (docs/providers/fiskil.md#pages). The 400 for a bad size, and for two cursors at once,
    /// is a sandbox choice.
    pub(super) fn of(call: &Call) -> Result<Self, Failure> {
        let size = match call.query.filled("page[size]") {
            None => SIZE_DEFAULT,
            Some(text) if !text.bytes().all(|byte| byte.is_ascii_digit()) => {
                return Err(call.invalid("page[size] must be a positive integer"));
            }
            // A number too large to parse exceeds the cap.
            Some(text) => text.parse().unwrap_or(SIZE_MAX).min(SIZE_MAX),
        };
        if size == 0 {
            return Err(call.invalid("page[size] must be a positive integer"));
        }
        let parse = |text| Position::of_cursor(text, NO_QUERY).ok_or_else(|| call.unavailable());
        let cursor = |name| call.query.filled(name).map(parse).transpose();
        let (after, before) = (cursor("page[after]")?, cursor("page[before]")?);
        if after.is_some() && before.is_some() {
            return Err(call.invalid("page[after] and page[before] exclude each other"));
        }
        Ok(Self {
            size,
            after,
            before,
        })
    }
}

/// Writes `{"<name>":[...],"links":{...}}`. The links are absolute URLs that keep the filters.
pub(super) fn write<T>(
    call: &Call,
    name: &str,
    page: &Page<'_, T>,
    item: impl FnMut(&mut Vec<u8>, usize, &T),
) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + page.items.len() * 640);
    let _ = write!(out, "{{\"{name}\":[");
    page.write_items(&mut out, item);
    out.extend_from_slice(b"],\"links\":");
    let filters = call.query.without(&["page[after]", "page[before]"]);
    let mut links = Members::default();
    for (name, parameter, position) in [("next", "after", page.next), ("prev", "before", page.prev)]
    {
        if let Some(position) = position {
            let cursor = position.to_cursor(NO_QUERY);
            let base = &call.fiskil.access.base_url;
            links.set(
                name,
                &format!("{base}{}?{filters}page[{parameter}]={cursor}", call.path),
            );
        }
    }
    links.write(&mut out);
    out.push(b'}');
    out
}
