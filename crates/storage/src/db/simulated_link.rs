//! Where a simulation decides what becomes of a statement. Nothing of it is left without the
//! feature `test-support`.

#[cfg(feature = "test-support")]
pub use simulated::*;

use crate::db::statement::Sql;
use crate::error::Result;

/// What a caller is about to do, or has done.
#[cfg_attr(
    not(feature = "test-support"),
    expect(unreachable_pub, reason = "simulations use it")
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseStep {
    Read,
    Begin,
    Commit,
    /// The commit is done, but its caller does not know it yet.
    Committed,
}

/// What lies between an instance and its database.
#[derive(Clone, Default)]
pub(crate) struct SimulatedLink {
    #[cfg(feature = "test-support")]
    pub(crate) simulation: Option<std::sync::Arc<dyn DatabaseSimulation>>,
}

#[cfg(not(feature = "test-support"))]
impl SimulatedLink {
    #[expect(clippy::unused_async, reason = "a simulation waits here")]
    pub(crate) async fn pass(&self, _: DatabaseStep) -> Result<()> {
        Ok(())
    }

    #[expect(clippy::unused_self, reason = "a simulation plants faults here")]
    pub(crate) fn statement(&self, sql: Sql) -> Sql {
        sql
    }
}

#[cfg(feature = "test-support")]
mod simulated {
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::error::StorageError;

    /// Decides when a step of an instance happens, and what its statements are.
    pub trait DatabaseSimulation: Send + Sync {
        /// Waits until the step may happen. False: it fails, or its caller hears nothing of it.
        fn wait(&self, step: DatabaseStep) -> BoxFuture<'static, bool>;

        /// The statement that runs in place of this one.
        fn statement(&self, text: &'static str) -> &'static str;
    }

    impl SimulatedLink {
        pub(crate) async fn pass(&self, step: DatabaseStep) -> Result<()> {
            let Some(simulation) = &self.simulation else {
                return Ok(());
            };
            if simulation.wait(step).await {
                Ok(())
            } else {
                Err(StorageError::unavailable("simulated"))
            }
        }

        pub(crate) fn statement(&self, sql: Sql) -> Sql {
            let text = self
                .simulation
                .as_ref()
                .map_or(sql.text, |simulation| simulation.statement(sql.text));
            Sql { text, ..sql }
        }
    }
}
