//! For tests: runs a single write in a transaction of its own. In the product, a write belongs to a
//! [`ManagementChange`](crate::ManagementChange).

#[cfg(feature = "test-support")]
pub(crate) mod simulation;

use crate::Storage;
use crate::db::Tx;
use crate::error::Result;

impl Storage {
    /// What [`in_tx!`](crate::in_tx) calls. It commits unless the write fails.
    pub async fn test_tx<T>(&self, write: impl AsyncFnOnce(&mut Tx) -> Result<T>) -> Result<T> {
        let mut tx = self.db.begin().await?;
        let written = write(&mut tx).await?;
        tx.commit().await?;
        Ok(written)
    }
}

/// Runs a write of [`writes`](crate::writes) in a transaction of its own:
/// `in_tx!(storage, keys::revoke(id, now)).await`.
#[macro_export]
macro_rules! in_tx {
    ($storage:expr, $part:ident::$write:ident($($value:expr),* $(,)?)) => {
        $storage.test_tx(async |tx| $crate::writes::$part::$write(tx, $($value),*).await)
    };
}
