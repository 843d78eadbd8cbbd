//! Tests that the service stores and logs no row, no secret, and nothing of a removed connection.

mod answers;
mod audit;
mod erasure;
mod memory;
mod pending_events;
mod record;

use std::io::ErrorKind;
use std::path::Path;

use serde_json::Value;

use crate::support::database::query;
use crate::support::process::Workdir;

/// Shorter texts occur in times and ids by chance.
const LENGTH_MIN: usize = 6;

/// Every file below a folder, with its content. A running program may replace some meanwhile.
pub(crate) fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            match std::fs::read(&path) {
                Ok(bytes) => found.push((path.display().to_string(), bytes)),
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
            }
        }
    }
    found
}

pub(crate) fn contains(bytes: &[u8], text: &str) -> bool {
    memchr::memmem::find(bytes, text.as_bytes()).is_some()
}

/// Imports a connection of a provider. Returns the provider's id of an account that has rows.
async fn import_at(workdir: &Workdir, sandbox: &Value, database: &str, provider: &str) -> String {
    workdir.import_at(sandbox, provider);
    let account = format!(
        "SELECT a.provider_account_id FROM accounts a JOIN connections c ON c.id = a.connection_id \
         WHERE c.provider = '{provider}' AND a.account_type IN ('transaction', 'investment') ORDER BY a.id LIMIT 1"
    );
    query(database, &account).await.remove(0).remove(0)
}

/// The list of the API that has the rows of a connection.
fn list_of(connection: &Value) -> &'static str {
    if connection["category"] == "brokerage" {
        "trades"
    } else {
        "transactions"
    }
}
