//! `GET /v1/categories`: a constant list.

use std::sync::LazyLock;

use axum::response::Response;
use bellbird_domain::Category;
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use crate::front::json::json_bytes;
use crate::front::{NoParams, Operation, Path, Query};
use crate::v1::state::V1State;

static BODY: LazyLock<Bytes> = LazyLock::new(|| {
    let list = CategoryList {
        categories: Category::ALL.iter().map(CategoryView::from).collect(),
    };
    serde_json::to_vec(&list).unwrap_or_default().into()
});

pub(super) fn path() -> Path<V1State> {
    Path::get("/v1/categories", |state: &V1State| &state.access.quotas().metadata, list_categories).described(
        Operation::new("list_categories", "Transactions", "The categories.")
            .text(
                "List transaction categories",
                "All sixteen categories. Which of them occur depends on the provider and the account.",
            )
            .json::<CategoryList>(),
    )
}

async fn list_categories(Query(NoParams {}): Query<NoParams>) -> Response {
    json_bytes(BODY.clone())
}

/// A transaction category.
#[derive(Serialize, ToSchema)]
#[schema(as = Category)]
pub struct CategoryView {
    /// The code used in a transaction's `category`.
    #[schema(example = "FOOD_AND_DRINK")]
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
#[derive(Serialize, ToSchema)]
#[schema(as = CategoryList)]
pub struct CategoryList {
    /// The categories, sorted by key.
    pub categories: Vec<CategoryView>,
}
