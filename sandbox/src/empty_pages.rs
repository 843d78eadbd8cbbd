//! Serves empty pages in the middle of lists of rows when a test asks for them. A client that stops
//! at an empty page loses rows.

use parking_lot::Mutex;

/// Every how many pages, and the pages so far.
#[derive(Default)]
pub(crate) struct EmptyPages(Mutex<(u64, u64)>);

impl EmptyPages {
    /// Leaves the rows out of every `every`th page; 0 stops it.
    pub(crate) fn set(&self, every: u64) {
        *self.0.lock() = (every, 0);
    }

    /// Counts this page, and says whether to leave its rows out.
    pub(crate) fn next_is_empty(&self) -> bool {
        let (every, count) = &mut *self.0.lock();
        *count += 1;
        *every > 0 && count.is_multiple_of(*every)
    }
}
