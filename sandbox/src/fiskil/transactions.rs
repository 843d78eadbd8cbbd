//! `GET /v1/banking/transactions` (docs/providers/fiskil.md#transactions).

use axum::response::Response;
use jiff::Timestamp;

use super::call::Call;
use super::errors::Failure;
use super::paging::write;
use super::store::{Account, Entry};
use crate::clock::nanoseconds;
use crate::merge::{Page, PageRequest};
use crate::respond::ready;

/// The rows that a call selects.
struct Filter<'a> {
    status: Option<&'a str>,
    /// In nanoseconds. Both ends are included, which is a sandbox choice because the documentation
    /// does not say.
    from: Option<i64>,
    to: Option<i64>,
}

impl<'a> Filter<'a> {
    fn of(call: &'a Call) -> Result<Self, Failure> {
        let status = match call.query.get("status") {
            None | Some("") => None,
            status @ Some("PENDING" | "POSTED") => status,
            Some(_) => return Err(call.invalid("invalid status: must be one of PENDING, POSTED")),
        };
        Ok(Self {
            status,
            from: instant(call, "from")?,
            to: instant(call, "to")?,
        })
    }

    /// The entries of an account that can match: pending and posted ones, each sorted. A date range
    /// excludes rows without a time (docs/providers/fiskil.md#transactions).
    fn candidates<'b>(&self, entries: &'b [Entry]) -> [&'b [Entry]; 2] {
        let (pending, rest) =
            entries.split_at(entries.partition_point(|entry| entry.position.group == 0));
        let rest = if self.from.is_none() && self.to.is_none() {
            rest
        } else {
            let timed = &rest[..rest.partition_point(|entry| entry.position.group == 1)];
            let start =
                timed.partition_point(|entry| self.to.is_some_and(|to| time(entry) > Some(to)));
            let end = timed
                .partition_point(|entry| self.from.is_none_or(|from| time(entry) >= Some(from)));
            timed.get(start..end).unwrap_or_default()
        };
        match self.status {
            None => [pending, rest],
            Some("PENDING") => [pending, &[]],
            Some(_) => [&[], rest],
        }
    }

    fn keeps(&self, entry: &Entry) -> bool {
        let time = time(entry);
        self.status.is_none_or(|status| entry.has_status(status))
            && self.from.is_none_or(|from| time >= Some(from))
            && self.to.is_none_or(|to| time.is_some_and(|time| time <= to))
    }
}

/// Posting time, else execution time, in nanoseconds.
fn time(entry: &Entry) -> Option<i64> {
    entry.position.at()
}

/// Parses a date-time with an offset. A bare date is rejected with the documented text
/// (docs/providers/fiskil.md#transactions).
fn instant(call: &Call, name: &str) -> Result<Option<i64>, Failure> {
    let Some(text) = call.query.filled(name) else {
        return Ok(None);
    };
    let at = rfc3339(text).ok_or_else(|| {
        call.invalid(&format!(
            "invalid {name} datetime: not in RFC3339 format: {text:?}"
        ))
    })?;
    Ok(Some(nanoseconds(at)))
}

/// The library reads more forms: it needs no seconds, `T` or colon.
fn rfc3339(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let (head, tail) = bytes.split_at_checked(19)?;
    let is_whole = head[10] == b'T' && head[16] == b':' && head[17] < b'6';
    let is_zoned = match tail.iter().rposition(|byte| matches!(byte, b'+' | b'-')) {
        Some(sign) => tail.len() == sign + 6 && tail[sign + 3] == b':',
        None => tail.ends_with(b"Z"),
    };
    let parsed = text.parse().ok();
    parsed.filter(|_| is_whole && is_zoned)
}

/// Lists rows in pages: pending first, then newest first.
pub(super) async fn list(call: Call) -> Result<Response, Failure> {
    let end_user_id = call.end_user_id()?;
    let filter = Filter::of(&call)?;
    let page_request = PageRequest::of(&call)?;
    let account_id = call.query.filled("account_id");
    let store = call.fiskil.store.read();
    let mut accounts = store.visible_accounts(end_user_id, call.now);
    accounts.retain(|account| account_id.is_none_or(|id| account.has_id(id)));
    let lists: Vec<&[Entry]> = accounts
        .iter()
        .flat_map(|account| filter.candidates(&account.entries))
        .collect();
    let mut page = Page::of(&lists, page_request, |entry| filter.keeps(entry));
    if call.fiskil.empty_pages.next_is_empty() {
        page = page.emptied(page_request);
    }
    let body = write(&call, "transactions", &page, |out, list, entry| {
        // Each account has two lists, in the order of the accounts.
        let account: &Account = accounts[list / 2];
        entry.write(out, &store, account);
    });
    Ok(ready(body))
}
