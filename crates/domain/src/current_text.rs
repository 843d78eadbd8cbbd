//! A text that changes while the service runs.

use std::sync::{Arc, PoisonError, RwLock};

/// A text that can be replaced while others use it, such as the URL of the console. Clones share
/// it, so each of them reads what it is now.
#[derive(Debug, Clone, Default)]
pub struct CurrentText(Arc<RwLock<Arc<str>>>);

impl CurrentText {
    #[must_use]
    pub fn get(&self) -> Arc<str> {
        let text = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&text)
    }

    pub fn set(&self, text: &str) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = text.into();
    }
}

impl From<&str> for CurrentText {
    fn from(text: &str) -> Self {
        Self(Arc::new(RwLock::new(text.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_read_what_it_is_now() {
        let text = CurrentText::from("http://127.0.0.1:8081");
        let clone = text.clone();
        let held = clone.get();
        text.set("https://bellbird.example.com");
        assert_eq!(&*clone.get(), "https://bellbird.example.com");
        assert_eq!(&*held, "http://127.0.0.1:8081");
    }
}
