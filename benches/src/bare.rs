//! The bare handler: the service's own accept loop and HTTP library, which respond to each path
//! with prepared bytes. It has no log, metrics, database or authentication.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use axum::Router;
use axum::routing::get;
use bellbird_api::serve::{ServeOptions, listen, serve};
use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::process::Server;
use crate::provider::print_address_until_stdin_closes;

const LIST: &str = "bare.json";

/// The fixed response of a path.
#[derive(Serialize, Deserialize)]
pub(crate) struct Fixed {
    pub(crate) path: String,
    pub(crate) content_type: String,
    pub(crate) body: String,
}

/// Starts the server as a separate process.
pub(crate) fn start(folder: &Path, answers: &[Fixed]) -> anyhow::Result<Server> {
    fs::write(folder.join(LIST), serde_json::to_vec(answers)?)?;
    Server::start_subcommand("bare", Some(folder))
}

pub(crate) async fn run(folder: &Path) -> anyhow::Result<()> {
    let answers: Vec<Fixed> = serde_json::from_slice(
        &fs::read(folder.join(LIST)).context("could not read the fixed responses")?,
    )?;
    let mut router = Router::new();
    for Fixed {
        path,
        content_type,
        body,
    } in answers
    {
        let (content_type, body) = (HeaderValue::from_str(&content_type)?, Bytes::from(body));
        router = router.route(
            &path,
            get(async move || ([(CONTENT_TYPE, content_type.clone())], body.clone())),
        );
    }
    let listener = listen(([127, 0, 0, 1], 0).into()).await?;
    print_address_until_stdin_closes(listener.address());
    serve(
        listener,
        router,
        ServeOptions::default(),
        CancellationToken::new(),
    )
    .await;
    Ok(())
}
