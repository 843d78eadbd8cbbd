//! `bellbird ready`: asks the running service whether it can serve.

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use super::arguments::SettingArgs;
use super::{listener, output};

/// What the ops listener responds.
#[derive(Serialize, Deserialize)]
struct ReadyView {
    status: String,
    #[serde(skip_serializing, default)]
    error: Option<ErrorText>,
}

#[derive(Deserialize)]
struct ErrorText {
    message: String,
}

pub(super) async fn run(settings: &SettingArgs) -> anyhow::Result<()> {
    let address = settings.load(None)?.ops_listen;
    let (status, body) = listener::get(address, "/ready").await.with_context(|| {
        format!("no Bellbird responds at {address}: is it running, and with this ops.listen?")
    })?;
    let Ok(view) = serde_json::from_str::<ReadyView>(&body) else {
        bail!(
            "what listens at {address} is not the ops listener of a Bellbird: correct ops.listen"
        );
    };
    if status != 200 {
        bail!(view.error.map_or_else(
            || format!("Not ready: status {status}"),
            |error| error.message
        ));
    }
    output::print(&view, |_| "Ready.".to_owned())
}
