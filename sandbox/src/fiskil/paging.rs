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
    /// Reads `page[size]` and `page[after]`. An invalid cursor gets 503, as seen live
    /// (docs/providers/fiskil.md#pages). The 400 for a bad size is a sandbox choice.
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
        let after = call.query.filled("page[after]").map(parse).transpose()?;
        Ok(Self { size, after })
    }
}

/// Writes `{"<name>":[...],"links":{...}}`. The link is an absolute URL that keeps the filters.
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
    let mut links = Members::default();
    if let Some(next) = page.next {
        let filters = call.query.without("page[after]");
        let (base, cursor) = (&call.fiskil.access.base_url, next.to_cursor(NO_QUERY));
        links.set(
            "next",
            &format!("{base}{}?{filters}page[after]={cursor}", call.path),
        );
    }
    links.write(&mut out);
    out.push(b'}');
    out
}
