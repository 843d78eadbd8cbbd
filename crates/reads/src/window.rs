//! Selects one window out of a stream of rows, and decides how many rows behind it to count for
//! `total`. Pure.

use bellbird_domain::Page;

/// The pagination fields of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowTotals {
    /// Number of matching rows. A lower bound if `truncated`.
    pub total: u64,
    pub has_more: bool,
    /// Whether the end of the provider's list was not reached.
    pub truncated: bool,
}

/// Position in a list of matching rows, newest first. Decides for each row whether it belongs to
/// the requested window.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    page: Page,
    count_until: u64,
    row: u64,
}

impl Window {
    /// Counting stops at `row_cap` rows from the offset of `page`, the rows of the window included.
    pub fn new(page: Page, row_cap: u64) -> Self {
        Self {
            page,
            count_until: page.offset.saturating_add(row_cap).max(page.end()),
            row: 0,
        }
    }

    /// Continues at a known row of the list.
    pub fn seek(&mut self, row: u64) {
        self.row = row;
    }

    /// Number of the first row of the window.
    pub fn offset(&self) -> u64 {
        self.page.offset
    }

    /// Number of the next row.
    pub fn row(&self) -> u64 {
        self.row
    }

    /// Advances by one row. Returns true if that row belongs to the window.
    pub fn take(&mut self) -> bool {
        let inside = self.row >= self.page.offset && self.row < self.page.end();
        self.row += 1;
        inside
    }

    /// Whether the end of the window has been passed.
    pub fn is_complete(&self) -> bool {
        self.row >= self.page.end()
    }

    /// Number of rows from the next one to the end of the window.
    pub fn missing(&self) -> u64 {
        self.page.end().saturating_sub(self.row)
    }

    /// Number of rows left to count if `counted` are known. 0 means that counting can stop.
    pub fn uncounted(&self, counted: u64) -> u64 {
        self.count_until.saturating_sub(counted)
    }

    /// Computes the pagination fields from the number of known rows and the end of the list, if it
    /// was reached.
    pub fn totals(&self, counted: u64, end: Option<u64>) -> WindowTotals {
        match end {
            Some(total) => WindowTotals {
                total,
                has_more: self.page.end() < total,
                truncated: false,
            },
            None => WindowTotals {
                total: counted,
                has_more: true,
                truncated: true,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn row_cap_never_shortens_the_window() {
        let window = Window::new(
            Page {
                limit: 500,
                offset: 10,
            },
            100,
        );
        assert_eq!(window.uncounted(500), 10);
        assert_eq!(window.uncounted(510), 0);
    }

    proptest! {
        /// Model: skip and take on a list.
        #[test]
        fn keeps_the_rows_of_skip_and_take(rows in 0_u64..60, limit in 1_u32..20, offset in 0_u64..80) {
            let page = Page { limit, offset };
            let mut window = Window::new(page, 1_000);
            let kept: Vec<u64> = (0..rows).filter(|_| window.take()).collect();
            let expected: Vec<u64> = (0..rows).skip(usize::try_from(offset).unwrap()).take(limit as usize).collect();
            prop_assert_eq!(kept, expected);
            prop_assert_eq!(window.is_complete(), rows >= page.end());
            prop_assert_eq!(window.missing(), page.end().saturating_sub(rows));
            let totals = window.totals(rows, Some(rows));
            prop_assert_eq!(totals, WindowTotals { total: rows, has_more: rows > page.end(), truncated: false });
        }
    }
}
