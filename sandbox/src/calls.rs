//! Counts the calls that a simulated provider receives, by method and route, so that tests can
//! assert on them.

use std::collections::BTreeMap;

use http::Method;
use parking_lot::Mutex;
use serde::Serialize;

#[derive(Debug, Default)]
pub(crate) struct Calls(Mutex<BTreeMap<(String, String), u64>>);

#[derive(Debug, Serialize)]
pub(crate) struct Count {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) count: u64,
}

impl Calls {
    pub(crate) fn count(&self, method: &Method, path: &str) {
        *self
            .0
            .lock()
            .entry((path.to_owned(), method.to_string()))
            .or_default() += 1;
    }

    /// Sorted by path.
    pub(crate) fn list(&self) -> Vec<Count> {
        let counts = self.0.lock();
        counts
            .iter()
            .map(|((path, method), &count)| Count {
                method: method.clone(),
                path: path.clone(),
                count,
            })
            .collect()
    }

    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}
