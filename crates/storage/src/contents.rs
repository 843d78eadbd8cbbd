//! Reads every value of every table, to search them for what must not be stored.

use crate::Storage;
use crate::db::{Db, params, statements};
use crate::error::Result;

statements! {
    LIST_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name",
        on_postgres = "SELECT CAST(table_name AS TEXT) FROM information_schema.tables
            WHERE table_schema = current_schema() ORDER BY table_name";
}

impl Storage {
    /// The names of all tables.
    pub async fn tables(&self) -> Result<Vec<String>> {
        self.db.all(LIST_TABLES, params![], |row| row.text(0).map(str::to_owned)).await
    }

    /// Calls `visit` with each value of a table: the bytes of a text or blob, the digits of an integer. Returns the
    /// number of rows. `table` is one of [`Self::tables`].
    pub async fn visit_values(&self, table: &str, visit: &mut dyn FnMut(&[u8])) -> Result<u64> {
        let select = format!("SELECT * FROM \"{}\"", table.replace('"', "\"\""));
        match &self.db {
            Db::Sqlite(db) => db.visit_values(&select, visit),
            Db::Postgres(db) => Box::pin(db.visit_values(&select, visit)).await,
        }
    }
}
