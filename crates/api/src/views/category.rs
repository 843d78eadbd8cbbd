//! The body of `GET /v1/categories`.

use bellbird_domain::Category;
use serde::Serialize;
use utoipa::ToSchema;

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
        Self { key: category.key(), label: category.label() }
    }
}

/// All sixteen categories.
#[derive(Serialize, ToSchema)]
#[schema(as = CategoryList)]
pub struct CategoryList {
    /// The categories, sorted by key.
    pub categories: Vec<CategoryView>,
}
