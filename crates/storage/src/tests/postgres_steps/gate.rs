//! Where an operation waits for leave before each statement: `db::postgres` calls it in tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use crate::db::statement::Sql;

tokio::task_local! {
    static SESSION: Arc<Session>;
}

/// An operation that is stepped. All other tasks pass the gate at once.
pub(crate) struct Session {
    /// Its place among the operations.
    place: usize,
    arrived: UnboundedSender<(usize, At)>,
    leave: Arc<Notify>,
    fault: Option<Fault>,
    /// Whether a transaction is open, and whether it has run a statement.
    in_transaction: AtomicBool,
    has_run: AtomicBool,
}

/// Where an operation has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum At {
    /// Before a statement. Inside: an earlier one of the same transaction has run.
    Statement { name: &'static str, is_inside: bool },
    /// At the end, with its outcome.
    End(String),
}

/// A fault that a test plants: in the statement of this name, the second text replaces the first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) statement: &'static str,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
}

impl Session {
    pub(crate) fn new(
        place: usize,
        arrived: UnboundedSender<(usize, At)>,
        leave: Arc<Notify>,
        fault: Option<Fault>,
    ) -> Self {
        Self {
            place,
            arrived,
            leave,
            fault,
            in_transaction: false.into(),
            has_run: false.into(),
        }
    }

    /// Runs an operation that waits for leave before each statement.
    pub(crate) async fn run(self, operation: impl Future<Output = String>) {
        let (place, arrived) = (self.place, self.arrived.clone());
        let outcome = SESSION.scope(Arc::new(self), operation).await;
        let _ = arrived.send((place, At::End(outcome)));
    }

    async fn wait_for_leave(&self, name: &'static str) {
        let is_inside = self.has_run.load(Ordering::Relaxed);
        let _ = self
            .arrived
            .send((self.place, At::Statement { name, is_inside }));
        self.leave.notified().await;
        self.has_run.store(
            self.in_transaction.load(Ordering::Relaxed),
            Ordering::Relaxed,
        );
    }
}

fn session() -> Option<Arc<Session>> {
    SESSION.try_with(Arc::clone).ok()
}

pub(crate) fn is_stepped() -> bool {
    session().is_some()
}

/// Waits for leave. Returns the statement, perhaps with a fault.
pub(crate) async fn pass(sql: Sql) -> Sql {
    let Some(session) = session() else { return sql };
    // What only decides whether to delete is a part of the step that follows, which decides again.
    if !sql.name.starts_with("HAS_OUTDATED") {
        session.wait_for_leave(sql.name).await;
    }
    match session.fault {
        Some(Fault {
            statement,
            from,
            to,
        }) if statement == sql.name && sql.postgres.contains(from) => Sql {
            postgres: sql.postgres.replace(from, to).leak(),
            ..sql
        },
        _ => sql,
    }
}

/// Waits for leave to commit. The begin of a transaction takes no lock and sees nothing yet, and
/// its rollback shows nothing to others, so these are a part of the step before.
pub(crate) async fn pass_simple(text: &str) {
    let Some(session) = session() else { return };
    if text == "COMMIT" {
        session.wait_for_leave("COMMIT").await;
    }
    session
        .in_transaction
        .store(text == "BEGIN", Ordering::Relaxed);
    session.has_run.store(false, Ordering::Relaxed);
}
