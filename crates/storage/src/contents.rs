//! Reads what the database holds, to search it for what must not be stored, and to tell an empty
//! one.

use crate::Storage;
use crate::db::{Db, params, scalar, statements};
use crate::error::Result;

statements! {
    LIST_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'
        ORDER BY name",
        on_postgres = "SELECT CAST(c.relname AS TEXT) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') AND NOT EXISTS (SELECT 1 FROM pg_depend d
            WHERE d.classid = CAST('pg_class' AS regclass) AND d.objid = c.oid AND d.deptype = 'e')
        ORDER BY 1";
}

impl Storage {
    /// The names of all tables that no extension of PostgreSQL brought.
    pub async fn tables(&self) -> Result<Vec<String>> {
        self.db.all(LIST_TABLES, params![], scalar).await
    }

    /// Calls `visit` with each value of a table: the bytes of a text or blob, the digits of an
    /// integer. Returns the number of rows. `table` is one of [`Self::tables`].
    pub async fn visit_values(&self, table: &str, visit: &mut dyn FnMut(&[u8])) -> Result<u64> {
        let select = format!("SELECT * FROM \"{}\"", table.replace('"', "\"\""));
        match &self.db {
            Db::Sqlite(db) => db.visit_values(&select, visit),
            Db::Postgres(db) => Box::pin(db.visit_values(&select, visit)).await,
        }
    }
}
