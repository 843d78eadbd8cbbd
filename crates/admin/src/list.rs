//! Pages of lists. A cursor is the id of the last item, because ids grow with time.

use std::fmt;
use std::str::FromStr;

use bellbird_api::http::parameters::{Limit, parse_text};
use bellbird_domain::{ConnectionId, EndpointId, PageLimits, UserId};
use bellbird_storage::DeliveryPosition;
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, Error as _};
use utoipa::ToSchema;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use uuid::Uuid;

const LIMITS: PageLimits = PageLimits {
    default: 50,
    max: 200,
};

pub(crate) type PageLimit = Limit<{ LIMITS.default }, { LIMITS.max }>;

/// How many items a page has at most.
pub(crate) fn page_size(limit: Option<PageLimit>) -> u32 {
    bellbird_api::http::parameters::page(limit, None).limit
}

/// Where a page of a list ends.
pub(crate) trait PageEnd: FromStr + fmt::Display {
    /// The first part of its cursors, so that those of one list are invalid in another.
    const LIST: &'static str;
}

impl PageEnd for UserId {
    const LIST: &'static str = "users";
}

impl PageEnd for ConnectionId {
    const LIST: &'static str = "connections";
}

impl PageEnd for EndpointId {
    const LIST: &'static str = "endpoints";
}

impl PageEnd for DeliveryPosition {
    const LIST: &'static str = "deliveries";
}

/// Of the audit.
impl PageEnd for Uuid {
    const LIST: &'static str = "audit";
}

/// The `nextCursor` of the page before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<T>(pub(crate) T);

impl<'de, T: PageEnd> Deserialize<'de> for Cursor<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        parse_text(input, |text| {
            let end = text
                .split_once('.')
                .filter(|(list, _)| *list == T::LIST)
                .and_then(|(_, end)| end.parse().ok());
            end.map(Self)
                .ok_or_else(|| D::Error::custom("the nextCursor of the page before in this list"))
        })
    }
}

impl<T> utoipa::PartialSchema for Cursor<T> {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::String).into()
    }
}

impl<T> ToSchema for Cursor<T> {}

/// Cuts a list that was read with one more item than the page has. Returns the cursor of the next
/// page.
pub(crate) fn cut<T, E: PageEnd>(
    items: &mut Vec<T>,
    size: u32,
    end: impl FnOnce(&T) -> E,
) -> Option<String> {
    let size = size as usize;
    if items.len() <= size {
        return None;
    }
    items.truncate(size);
    items
        .last()
        .map(|last| format!("{}.{}", E::LIST, end(last)))
}

/// A single item.
#[derive(Serialize)]
pub(crate) struct Item<T> {
    pub(crate) data: T,
}
