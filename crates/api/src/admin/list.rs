//! Pages of lists. A cursor is the id of the last item, because ids grow with time.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use bellbird_domain::{ConnectionId, EndpointId, PageLimits, UserId};
use bellbird_storage::DeliveryPosition;
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, Error as _};
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use uuid::Uuid;

use crate::http::parameters::{Limit, parse_text};

const LIMITS: PageLimits = PageLimits {
    default: 50,
    max: 200,
};

pub(crate) type PageLimit = Limit<{ LIMITS.default }, { LIMITS.max }>;

/// How many items a page has at most.
pub(crate) fn page_size(limit: Option<PageLimit>) -> u32 {
    crate::http::parameters::page(limit, None).limit
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
pub(crate) struct Cursor<T>(pub T);

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

/// A single item.
#[derive(Serialize)]
pub(crate) struct Item<T> {
    pub data: T,
}

/// A page of a list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page<T> {
    data: Vec<T>,
    next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// A page of a list that was read with one more item than the page has.
    pub(crate) fn of<R: Into<T>, E: PageEnd>(
        mut items: Vec<R>,
        size: u32,
        end: impl FnOnce(&R) -> E,
    ) -> Self {
        let has_more = items.len() > size as usize;
        items.truncate(size as usize);
        let last = items.last().filter(|_| has_more);
        Self {
            next_cursor: last.map(|last| format!("{}.{}", E::LIST, end(last))),
            data: items.into_iter().map(R::into).collect(),
        }
    }
}

impl<T: ToSchema> PartialSchema for Item<T> {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .property("data", Ref::from_schema_name(T::name()))
            .required("data")
            .into()
    }
}

/// Derived, the name would be `Item_User`.
impl<T: ToSchema> ToSchema for Item<T> {
    fn name() -> Cow<'static, str> {
        format!("{}Item", T::name()).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((T::name().into(), T::schema()));
        T::schemas(schemas);
    }
}

impl<T: ToSchema> PartialSchema for Page<T> {
    fn schema() -> RefOr<Schema> {
        let cursor = ObjectBuilder::new()
            .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
            .description(Some(
                "The `cursor` of the next page. Null: this is the last one.",
            ));
        ObjectBuilder::new()
            .property("data", Ref::from_schema_name(T::name()).to_array_builder())
            .property("nextCursor", cursor)
            .required("data")
            .required("nextCursor")
            .into()
    }
}

impl<T: ToSchema> ToSchema for Page<T> {
    fn name() -> Cow<'static, str> {
        format!("{}List", T::name()).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        Item::<T>::schemas(schemas);
    }
}
