//! The style sheet, the script, and the logo. A file's name
//! contains the start of its hash, so browsers may cache it for a year.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

pub(crate) static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    let style = concat!(
        include_str!("../../../assets/base.css"),
        include_str!("../assets/console.css")
    );
    Asset::new("console", "css", "text/css; charset=utf-8", style)
});
pub(crate) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new(
        "console",
        "js",
        "text/javascript; charset=utf-8",
        include_str!("../assets/console.js"),
    )
});
pub(crate) static LOGO: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new(
        "bellbird",
        "svg",
        "image/svg+xml",
        include_str!("../../../assets/bellbird.svg"),
    )
});

pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let assets: [&Asset; 3] = [&STYLE, &SCRIPT, &LOGO];
    assets.into_iter().fold(Router::new(), |routes, asset| {
        routes.route(&asset.path, get(move || async move { asset.response() }))
    })
}

pub(crate) struct Asset {
    /// On this server. A proxy may add a prefix.
    pub(crate) path: String,
    content_type: &'static str,
    content: &'static str,
}

impl Asset {
    fn new(name: &str, ending: &str, content_type: &'static str, content: &'static str) -> Self {
        let hash = digest(&SHA256, content.as_bytes());
        let hash = hex::encode(&hash.as_ref()[..8]);
        Self {
            path: format!("/assets/{name}-{hash}.{ending}"),
            content_type,
            content,
        }
    }

    fn response(&self) -> Response {
        let headers = [
            (CONTENT_TYPE, self.content_type),
            (CACHE_CONTROL, "public, max-age=31536000, immutable"),
        ];
        (headers, self.content).into_response()
    }
}
