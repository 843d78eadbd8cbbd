//! What is kept of the sums of money in and out.

use std::sync::Arc;

/// The finished part of the overview, and the revision of its user.
#[derive(Clone)]
pub(crate) struct CachedMoney {
    pub(crate) revision: i64,
    pub(crate) html: Arc<str>,
}

impl CachedMoney {
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.html.len()
    }
}
