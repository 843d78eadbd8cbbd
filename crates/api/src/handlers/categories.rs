//! `GET /v1/categories`: a constant list.

use std::sync::LazyLock;

use axum::response::Response;
use bellbird_domain::Category;
use bytes::Bytes;

use crate::front::json::json_bytes;
use crate::views::{CategoryList, CategoryView};

static BODY: LazyLock<Bytes> = LazyLock::new(|| {
    let list = CategoryList { categories: Category::ALL.iter().map(CategoryView::from).collect() };
    serde_json::to_vec(&list).unwrap_or_default().into()
});

/// List transaction categories
///
/// All sixteen categories. Which of them occur depends on the provider and the account.
#[utoipa::path(
    get,
    path = "/v1/categories",
    tag = "Transactions",
    responses((status = 200, description = "The categories.", body = CategoryList))
)]
pub(crate) async fn list_categories() -> Response {
    json_bytes(BODY.clone())
}
