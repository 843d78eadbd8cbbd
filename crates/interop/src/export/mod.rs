//! Files of transactions, trades and holdings.

mod body;
mod file;
mod format;
pub mod formats;
mod names;
mod routes;
mod source;

pub use file::{Export, ExportError, FileRequest, NewCall, Pace};
pub use format::{FileFormat, Resource};
pub use names::FileName;
pub(crate) use routes::door;
pub use source::{Selection, SelectionError};

/// The paths of this door for the OpenAPI document.
#[must_use]
pub fn documented() -> utoipa::openapi::OpenApi {
    utoipa::openapi::OpenApi::default()
}
