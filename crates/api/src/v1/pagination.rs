//! How a window of a list is described. Trades use another type, because the total is unknown until
//! the last window.

use bellbird_domain::Page;
use bellbird_reads::window::WindowTotals;
use serde::Serialize;

/// The position of this window in the list.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pagination {
    /// Number of items in the list. For transactions it is exact when `hasMore` is false, and a
    /// lower bound when it is true.
    #[schema(minimum = 0, example = 312)]
    total: u64,
    /// Maximum number of items in the window, as applied.
    #[schema(minimum = 1, example = 200)]
    limit: u32,
    /// Number of items skipped.
    #[schema(minimum = 0, example = 0)]
    offset: u64,
    /// Whether more items follow. Continue with `offset + limit`.
    #[schema(example = true)]
    has_more: bool,
}

impl Pagination {
    /// For a list whose total is known.
    pub fn exact(page: Page, total: u64) -> Self {
        Self::new(page, total, page.end() < total)
    }

    /// For a list read from a provider, whose total may be a lower bound.
    pub fn of(page: Page, totals: WindowTotals) -> Self {
        Self::new(page, totals.total, totals.has_more)
    }

    fn new(page: Page, total: u64, has_more: bool) -> Self {
        Self {
            total,
            limit: page.limit,
            offset: page.offset,
            has_more,
        }
    }
}

/// The position of this window in the list of trades.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TradesPagination {
    /// -1 while `hasMore` is true; the number of trades in the list when it is false.
    #[schema(minimum = -1, example = -1)]
    total: i64,
    /// Maximum number of items in the window, as applied.
    #[schema(minimum = 1, example = 200)]
    limit: u32,
    /// Number of items skipped.
    #[schema(minimum = 0, example = 0)]
    offset: u64,
    /// Whether more items follow. Continue with `offset + limit`.
    #[schema(example = true)]
    has_more: bool,
}

impl TradesPagination {
    pub fn of(page: Page, totals: WindowTotals) -> Self {
        let total = if totals.has_more {
            -1
        } else {
            i64::try_from(totals.total).unwrap_or(i64::MAX)
        };
        Self {
            total,
            limit: page.limit,
            offset: page.offset,
            has_more: totals.has_more,
        }
    }
}
