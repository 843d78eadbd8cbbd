//! `bellbird ready`: asks the running service whether it can serve.

use anyhow::{anyhow, bail};
use serde_json::{Value, json};

use super::arguments::SettingArgs;
use super::{listener, output};

pub(super) async fn run(settings: &SettingArgs) -> anyhow::Result<()> {
    let address = settings.load(None)?.ops_listen;
    let response = listener::get(address, "/ready").await;
    let (status, body) = response.map_err(|error| {
        let reason = error.kind();
        anyhow!(
            "no Bellbird responds at {address} ({reason}): is it running, and with this ops.listen?"
        )
    })?;
    let body: Value = serde_json::from_str(&body).unwrap_or_default();
    let Some(word) = body["status"].as_str() else {
        bail!(
            "what listens at {address} is not the ops listener of a Bellbird: correct ops.listen"
        );
    };
    if status != 200 {
        match body["error"]["message"].as_str() {
            Some(message) => bail!("{message}"),
            None => bail!("Not ready: status {status}"),
        }
    }
    output::print_done(&json!({"status": word}), |_| "Ready.".to_owned())
}
