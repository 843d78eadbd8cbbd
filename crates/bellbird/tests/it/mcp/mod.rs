//! `/mcp` and `bellbird mcp`.

mod cursors;
mod hostile;
mod left_out;
mod protocol;
mod results;
mod stdio;
mod texts;
mod tools;
