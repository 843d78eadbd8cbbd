//! `/mcp` and `bellbird mcp`.

mod cursors;
mod hostile;
mod left_out;
mod protocol;
mod results;
mod stdio;
mod texts;
mod tools;

use serde_json::Value;

use crate::support::mcp::Mcp;

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    let list = value[name].as_array();
    list.unwrap_or_else(|| panic!("no list {name} in {value}"))
}

impl Mcp<'_> {
    /// The rows of `list_transactions`, over all results.
    async fn transactions(&self, arguments: Value) -> Vec<Value> {
        let rows = self.rows("list_transactions", "transactions", arguments);
        rows.await.0
    }
}
