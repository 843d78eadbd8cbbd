//! What was learned lately about connections, so that many empty answers or missing accounts ask only once.

use std::time::Duration;

use moka::future::Cache;

use crate::{Error, Standing};

/// How long a looked-up consent is believed.
const BELIEVED_FOR: Duration = Duration::from_secs(60);
const REMEMBERED_MAX: u64 = 10_000;

/// How connections stand, by the provider's ids of them.
pub(crate) struct Standings(Cache<String, Standing>);

impl Default for Standings {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(REMEMBERED_MAX).time_to_live(BELIEVED_FOR).build())
    }
}

impl Standings {
    /// What is known, or what `look` finds; callers at the same time look once.
    ///
    /// # Errors
    /// Those of `look`.
    pub(crate) async fn known_or(
        &self,
        id: &str,
        look: impl Future<Output = Result<Standing, Error>> + Send,
    ) -> Result<Standing, Error> {
        self.0.try_get_with_by_ref(id, look).await.map_err(|error| (*error).clone())
    }

    /// Remembers what was just found.
    pub(crate) async fn learn(&self, id: &str, standing: Standing) {
        self.0.insert(id.to_owned(), standing).await;
    }

    /// Forgets a connection whose consent is being withdrawn.
    pub(crate) async fn forget(&self, id: &str) {
        self.0.invalidate(id).await;
    }
}
