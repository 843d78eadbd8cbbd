//! `GET /v1/banking/transactions`, and the correction of a category
//! (docs/providers/fiskil.md#transactions).

use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::json;

use super::call::Call;
use super::errors::Failure;
use super::paging::write;
use super::store::{Account, Entry};
use crate::clock::nanoseconds;
use crate::members::Members;
use crate::merge::{Page, PageRequest};
use crate::respond::{json as json_answer, ready};
use crate::world::australia::AUSTRALIA;

/// The rows that a call selects.
struct Filter<'a> {
    status: Option<&'a str>,
    /// In nanoseconds. Both ends are included, which is a sandbox choice because the documentation
    /// does not say.
    from: Option<i64>,
    to: Option<i64>,
    secondary: Vec<&'a str>,
}

impl<'a> Filter<'a> {
    fn of(call: &'a Call) -> Result<Self, Failure> {
        let status = match call.query.get("status") {
            None | Some("") => None,
            status @ Some("PENDING" | "POSTED") => status,
            Some(_) => return Err(call.invalid("invalid status: must be one of PENDING, POSTED")),
        };
        let secondary = call
            .query
            .all("secondary_category")
            .filter(|name| !name.is_empty())
            .collect();
        Ok(Self {
            status,
            from: instant(call, "from")?,
            to: instant(call, "to")?,
            secondary,
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
            && (self.secondary.is_empty() || entry.has_secondary(&self.secondary))
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

/// Corrects the category of a row, to one whose primary category the world has. Sandbox choices:
/// the error for an unknown row, and the confidence level afterwards.
pub(super) async fn correct_category(call: Call) -> Result<Response, Failure> {
    let members = call.members()?;
    let (Some(id), Some(secondary)) = (
        members.text("fiskil_transaction_id"),
        members.text("secondary_category"),
    ) else {
        return Err(call.invalid("fiskil_transaction_id and secondary_category are required"));
    };
    let mut known = AUSTRALIA
        .lists
        .all()
        .filter_map(|template| template.category);
    let known = known.find(|(primary, _)| secondary.starts_with(*primary));
    let (primary, _) = known.ok_or_else(|| call.invalid("unknown secondary_category"))?;
    let category = json!({"category": {
        "primary_category": primary, "secondary_category": secondary, "confidence_level": "VERY_HIGH",
    }});
    let changed = call
        .fiskil
        .store
        .write()
        .change_row(&id, Members::from_value(&category));
    changed.map_err(|_| call.fail(StatusCode::BAD_REQUEST, "transaction not found"))?;
    Ok(json_answer(&json!({"message": "category updated"})))
}
