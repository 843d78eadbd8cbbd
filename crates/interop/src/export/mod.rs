//! Files of transactions, trades and holdings.

mod body;
mod file;
pub mod formats;
mod names;
mod queries;
mod request;
mod routes;

pub use file::{Export, ExportError, OpenError, Retries};
pub use names::{FileName, NameParts};
pub use request::{FileRequest, Resource};
pub use routes::routes;
