//! Cutting a window out of a stream of rows, and knowing when enough has been counted. Pure.

use bellbird_domain::Page;

/// What a window says about itself when the walk is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Matching rows: all of them, or the most that is known.
    pub total: u64,
    /// Whether rows follow the window.
    pub has_more: bool,
    /// Whether the provider's end was not reached.
    pub truncated: bool,
}

/// A walk over matching rows, newest first, that keeps those of one window and counts the others.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    page: Page,
    count_until: u64,
    row: u64,
}

impl Window {
    /// A window of `page`. Counting is enough when `row_cap` rows from its offset on have been seen, the window's own
    /// included.
    #[must_use]
    pub fn new(page: Page, row_cap: u64) -> Self {
        Self { page, count_until: page.offset.saturating_add(row_cap).max(page.end()), row: 0 }
    }

    /// Continues at a known row of the list.
    pub fn seek(&mut self, row: u64) {
        self.row = row;
    }

    /// The first row of the window.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.page.offset
    }

    /// The row that comes next.
    #[must_use]
    pub fn row(&self) -> u64 {
        self.row
    }

    /// Takes the next row of the list. True when it belongs to the window.
    pub fn take(&mut self) -> bool {
        let inside = self.row >= self.page.offset && self.row < self.page.end();
        self.row += 1;
        inside
    }

    /// Whether every row of the window has been seen.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.row >= self.page.end()
    }

    /// Rows from the next one to the window's end.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.page.end().saturating_sub(self.row)
    }

    /// Rows that are still to be counted when `counted` are known; 0 is enough to stop.
    #[must_use]
    pub fn uncounted(&self, counted: u64) -> u64 {
        self.count_until.saturating_sub(counted)
    }

    /// What to say, when `counted` rows are known and the provider's end is at `end`, if it was reached.
    #[must_use]
    pub fn extent(&self, counted: u64, end: Option<u64>) -> Extent {
        match end {
            Some(total) => Extent { total, has_more: self.page.end() < total, truncated: false },
            None => Extent { total: counted, has_more: true, truncated: true },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_cap_never_cuts_the_window() {
        let window = Window::new(Page { limit: 500, offset: 10 }, 100);
        assert_eq!(window.uncounted(500), 10);
        assert_eq!(window.uncounted(510), 0);
    }

    proptest! {
        /// The model: skip and take on a list.
        #[test]
        fn keeps_what_skip_and_take_would(rows in 0_u64..60, limit in 1_u32..20, offset in 0_u64..80) {
            let page = Page { limit, offset };
            let mut window = Window::new(page, 1_000);
            let kept: Vec<u64> = (0..rows).filter(|_| window.take()).collect();
            let expected: Vec<u64> = (0..rows).skip(usize::try_from(offset).unwrap()).take(limit as usize).collect();
            prop_assert_eq!(kept, expected);
            prop_assert_eq!(window.is_complete(), rows >= page.end());
            prop_assert_eq!(window.missing(), page.end().saturating_sub(rows));
            let extent = window.extent(rows, Some(rows));
            prop_assert_eq!(extent, Extent { total: rows, has_more: rows > page.end(), truncated: false });
        }
    }
}
