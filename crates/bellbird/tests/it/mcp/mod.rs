//! `/mcp` and `bellbird mcp`.

mod cursors;
mod hostile;
mod protocol;
mod stdio;
mod texts;
mod tools;
