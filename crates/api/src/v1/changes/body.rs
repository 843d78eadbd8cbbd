//! The body of a page of changes.

use std::borrow::Cow;
use std::marker::PhantomData;

use jiff::civil::Date;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::kind::ChangeKind;

/// A page of changes.
#[derive(Serialize)]
pub(super) struct ChangesPage<K> {
    /// As JSON, because a row is gone once the next one is read.
    pub data: Vec<Box<RawValue>>,
    #[serde(flatten)]
    pub next: NextMark,
    #[serde(skip)]
    pub kind: PhantomData<K>,
}

/// A page of changes.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NextMark {
    /// Where the next page, or the next request, continues. Opaque; keep it in the same transaction
    /// as the rows.
    #[schema(example = "dGhlIHNlYWxlZCBwbGFjZSBvZiBhIGNsaWVudA")]
    pub cursor: String,
    /// Whether to ask again at once.
    #[schema(example = false)]
    pub has_more: bool,
    /// Changes of rows of this day and later ones are found, in the user's timezone.
    #[schema(example = "2026-10-23")]
    pub watched_from: Date,
}

impl<K: ChangeKind> PartialSchema for ChangesPage<K> {
    fn schema() -> RefOr<Schema> {
        let mut schema = NextMark::schema();
        if let RefOr::T(Schema::Object(page)) = &mut schema {
            let changes = Ref::from_schema_name(K::Change::name())
                .to_array_builder()
                .description(Some("The changes, to be applied in this order."));
            page.properties.insert("data".to_owned(), changes.into());
            page.required.insert(0, "data".to_owned());
        }
        schema
    }
}

/// Derived, the name would be `ChangesPage_TransactionChange`.
impl<K: ChangeKind> ToSchema for ChangesPage<K> {
    fn name() -> Cow<'static, str> {
        format!("{}sPage", K::Change::name()).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((K::Change::name().into(), K::Change::schema()));
        K::Change::schemas(schemas);
    }
}
