//! `GET /v1/categories`: a constant list.

use std::sync::LazyLock;

use axum::response::Response;
use bellbird_domain::Category;
use bytes::Bytes;
use serde::Serialize;

use self::words::CategoryKey;
use crate::http::documented::PlanErrors;
use crate::http::json::json_bytes;
use crate::http::{NoParams, Query};

static BODY: LazyLock<Bytes> = LazyLock::new(|| {
    let list = CategoryList {
        categories: Category::ALL.iter().map(CategoryView::from).collect(),
    };
    serde_json::to_vec(&list).unwrap_or_default().into()
});

/// List transaction categories
///
/// All sixteen categories. Which of them occur depends on the provider and the account.
#[utoipa::path(
    get, path = "/v1/categories", tag = "Transactions",
    responses((status = 200, description = "The categories.", body = CategoryList), PlanErrors),
)]
pub(super) async fn list_categories(Query(NoParams {}): Query<NoParams>) -> Response {
    json_bytes(BODY.clone())
}

mod words {
    use bellbird_domain::Category;
    use utoipa::openapi::schema::{ObjectBuilder, Type};
    use utoipa::openapi::{RefOr, Schema};

    /// The key of a category, for the document.
    pub(super) struct CategoryKey;

    impl utoipa::PartialSchema for CategoryKey {
        #[expect(deprecated, reason = "derived schemas have `example`, too")]
        fn schema() -> RefOr<Schema> {
            let keys = Category::ALL.iter().map(|category| category.key());
            ObjectBuilder::new()
                .schema_type(Type::String)
                .enum_values(Some(keys))
                .example(Some("FOOD_AND_DRINK".into()))
                .into()
        }
    }

    impl utoipa::ToSchema for CategoryKey {}
}

/// A transaction category.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Category)]
pub struct CategoryView {
    /// The code used in a transaction's `category`.
    #[schema(inline, value_type = CategoryKey)]
    key: &'static str,
    /// Display name of the category.
    #[schema(example = "Food & Drink")]
    label: &'static str,
}

impl From<&Category> for CategoryView {
    fn from(category: &Category) -> Self {
        Self {
            key: category.key(),
            label: category.label(),
        }
    }
}

/// All sixteen categories.
#[derive(Serialize, utoipa::ToSchema)]
pub struct CategoryList {
    /// The categories, sorted by key.
    pub categories: Vec<CategoryView>,
}
