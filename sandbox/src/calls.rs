//! How many calls of which kind a provider got.

use std::collections::BTreeMap;

use http::Method;
use parking_lot::Mutex;
use serde::Serialize;

/// Counts by method and route.
#[derive(Debug, Default)]
pub(crate) struct Calls(Mutex<BTreeMap<(String, String), u64>>);

/// One line of the answer.
#[derive(Debug, Serialize)]
pub(crate) struct Count {
    method: String,
    path: String,
    count: u64,
}

impl Calls {
    pub(crate) fn count(&self, method: &Method, path: &str) {
        *self.0.lock().entry((path.to_owned(), method.to_string())).or_default() += 1;
    }

    /// The counts in the order of their paths.
    pub(crate) fn list(&self) -> Vec<Count> {
        let counts = self.0.lock();
        counts
            .iter()
            .map(|((path, method), &count)| Count { method: method.clone(), path: path.clone(), count })
            .collect()
    }

    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}
