//! Files of transactions, trades and holdings.

mod body;
mod file;
pub mod formats;
mod names;
mod queries;
mod request;
mod routes;

pub use body::CutOff;
pub use file::{Export, ExportError, OpenError, Retries};
pub use formats::Resource;
pub use names::{FileName, NameParts};
pub use request::FileRequest;
pub use routes::routes;
