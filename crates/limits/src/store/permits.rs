//! The permits of the server. Each ends by itself, so those of an instance that dies become free.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use super::{SharedStore, name};

/// How long the server counts a permit unless it is given back or renewed. Longer than a request
/// reads from a provider.
pub(super) const PERMIT_LASTS: Duration = Duration::from_secs(60);

/// One permit of the server, which is given back when it is dropped.
pub(crate) struct SharedPermit {
    store: SharedStore,
    /// What stands for its key in the server.
    pub(super) tag: String,
    pub(super) max: u32,
    pub(super) id: String,
    /// Whether the server may count it.
    may_be_held: bool,
}

impl SharedPermit {
    /// One out of `max` of a key, to ask for with [`SharedStore::admit`].
    pub(crate) fn new(store: &SharedStore, key: &str, max: u32) -> Self {
        Self {
            store: store.clone(),
            tag: store.inner.tag(key.as_bytes()),
            max,
            id: Uuid::new_v4().simple().to_string(),
            may_be_held: true,
        }
    }

    pub(super) fn permits(&self) -> String {
        name(&self.tag, "permits")
    }

    /// Drops a permit that the server refused, so that it is not given back.
    pub(crate) fn was_refused(mut self) {
        self.may_be_held = false;
    }

    /// Lets the server count it from now on for as long as a new one. One that it does not count
    /// any more takes no other's place.
    pub(crate) async fn renew(&self, now: Timestamp) {
        self.store.ask(&self.tag, None, Some(self), now).await;
    }
}

impl Drop for SharedPermit {
    fn drop(&mut self) {
        let inner = &self.store.inner;
        if !self.may_be_held || inner.is_down() {
            return;
        }
        let mut command = redis::cmd("ZREM");
        command.arg(self.permits()).arg(&self.id);
        let mut connection = inner.connection.clone();
        let inner = Arc::clone(inner);
        // One that cannot be given back ends by itself.
        self.store
            .inner
            .runtime
            .spawn(async move { inner.call(command.query_async::<()>(&mut connection)).await });
    }
}
