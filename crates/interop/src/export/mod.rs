//! Files of transactions, trades and holdings.

mod body;
mod file;
pub mod formats;
mod names;
mod queries;
mod request;
mod routes;
mod source;

pub use file::{Export, ExportError, NewCall, Pace};
pub use names::FileName;
pub use request::{FileRequest, Resource, Selection};
pub use routes::{documented, paths};
pub use source::OpenError;
