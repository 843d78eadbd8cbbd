//! Pages of lists. A cursor is the id of the last item, because ids grow with time.

use std::str::FromStr;

use bellbird_api::front::parameters::{Limit, parse_text};
use bellbird_domain::PageLimits;
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, Error as _};
use utoipa::ToSchema;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};

const LIMITS: PageLimits = PageLimits { default: 50, max: 200 };

pub(crate) type PageLimit = Limit<{ LIMITS.default }, { LIMITS.max }>;

/// How many items a page has at most.
pub(crate) fn page_size(limit: Option<PageLimit>) -> u32 {
    bellbird_api::front::parameters::page(limit, None).limit
}

/// The `nextCursor` of the page before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<T>(pub(crate) T);

impl<'de, T: FromStr> Deserialize<'de> for Cursor<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let expected = |_| D::Error::custom("the nextCursor of the page before");
        parse_text(input, |text| text.parse().map(Self).map_err(expected))
    }
}

impl<T> utoipa::PartialSchema for Cursor<T> {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::String).into()
    }
}

impl<T> ToSchema for Cursor<T> {}

/// Cuts a list that was read with one more item than the page has. Returns the cursor of the next page.
pub(crate) fn cut<T>(items: &mut Vec<T>, size: u32, cursor: impl FnOnce(&T) -> String) -> Option<String> {
    let size = size as usize;
    if items.len() <= size {
        return None;
    }
    items.truncate(size);
    items.last().map(cursor)
}

/// A single item.
#[derive(Serialize)]
pub(crate) struct Item<T> {
    pub(crate) data: T,
}
