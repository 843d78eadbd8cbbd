//! The files that pages refer to. The beginning of a file's hash is in its name, so that it can be cached for a year.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use axum::response::{IntoResponse, Response};
use http::Uri;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

pub(crate) static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("console", "css", "text/css; charset=utf-8", include_str!("../assets/console.css")));
pub(crate) static MARK: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("bellbird", "svg", "image/svg+xml", include_str!("../assets/bellbird.svg")));

/// One file.
pub(crate) struct Asset {
    path: String,
    content_type: &'static str,
    content: &'static str,
}

impl Asset {
    fn new(name: &str, ending: &str, content_type: &'static str, content: &'static str) -> Self {
        let hash = digest(&SHA256, content.as_bytes());
        let hash: String = hash.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self { path: format!("/assets/{name}-{hash}.{ending}"), content_type, content }
    }

    /// Where it is served.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The file as an answer.
    pub(crate) fn answer(&self) -> Response {
        let headers = [(CONTENT_TYPE, self.content_type), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
        (headers, self.content).into_response()
    }
}

/// Where browsers find the files: below the path of the console's own address, which a proxy may have given it.
pub(crate) struct Assets {
    /// The path before all of ours, without a slash at its end; mostly empty.
    pub(crate) root: String,
    /// The style sheet.
    pub(crate) style: String,
    /// The bird.
    pub(crate) mark: String,
}

impl Assets {
    /// For the console at this address.
    pub(crate) fn new(console_url: &str) -> Self {
        let root = console_url.parse::<Uri>().map(|url| url.path().trim_end_matches('/').to_owned());
        let root = root.unwrap_or_default();
        Self { style: format!("{root}{}", STYLE.path()), mark: format!("{root}{}", MARK.path()), root }
    }
}
