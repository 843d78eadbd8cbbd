//! How the OpenAPI document describes the types of query parameters.

use serde_json::json;
use utoipa::openapi::schema::{
    AnyOfBuilder, KnownFormat, ObjectBuilder, SchemaFormat, SchemaType, Type,
};
use utoipa::openapi::{RefOr, Schema};

use crate::http::parameters::{AccountIds, DateBound, Id, Limit, Offset};

/// There is no `maximum`, because larger values are accepted and clamped.
impl<const DEFAULT: u32, const MAX: u32> utoipa::PartialSchema for Limit<DEFAULT, MAX> {
    fn schema() -> RefOr<Schema> {
        integer(1, DEFAULT).into()
    }
}

impl utoipa::PartialSchema for Offset {
    fn schema() -> RefOr<Schema> {
        integer(0, 0).into()
    }
}

impl<T> utoipa::PartialSchema for Id<T> {
    fn schema() -> RefOr<Schema> {
        text()
            .format(Some(SchemaFormat::Custom("uuid".to_owned())))
            .into()
    }
}

impl utoipa::PartialSchema for AccountIds {
    fn schema() -> RefOr<Schema> {
        text().min_length(Some(1)).into()
    }
}

impl utoipa::PartialSchema for DateBound {
    fn schema() -> RefOr<Schema> {
        let of_format = |format: KnownFormat| {
            ObjectBuilder::new()
                .schema_type(SchemaType::AnyValue)
                .format(Some(SchemaFormat::KnownFormat(format)))
        };
        let any_of = AnyOfBuilder::new().schema_type(Type::String);
        any_of
            .item(of_format(KnownFormat::Date))
            .item(of_format(KnownFormat::DateTime))
            .into()
    }
}

impl<const DEFAULT: u32, const MAX: u32> utoipa::ToSchema for Limit<DEFAULT, MAX> {}
impl utoipa::ToSchema for Offset {}
impl<T> utoipa::ToSchema for Id<T> {}
impl utoipa::ToSchema for AccountIds {}
impl utoipa::ToSchema for DateBound {}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn integer(minimum: u32, default: u32) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(minimum))
        .default(Some(json!(default)))
}
