//! `bellbird migrate`.

use clap::Args;
use serde_json::json;

use super::arguments::SettingArgs;
use super::output::{self, JsonFlag};
use crate::wiring;

/// Create the database, or bring its tables up to date.
///
/// `serve` and `demo` do it by themselves when they start. Run it on its own when several copies of the service are
/// updated one after the other.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  BELLBIRD_DATABASE__URL=postgres://bellbird@db/bellbird bellbird migrate")]
pub(super) struct MigrateArgs {
    #[command(flatten)]
    format: JsonFlag,
}

pub(super) async fn run(settings: &SettingArgs, args: &MigrateArgs) -> anyhow::Result<()> {
    let storage = wiring::open_storage(&settings.load(None)?).await?;
    let applied = storage.migrate().await?;
    let answer = json!({ "database": storage.kind(), "applied": applied });
    storage.close().await;
    output::print(args.format, &answer, |_| {
        if applied.is_empty() {
            "The database is up to date.".to_owned()
        } else {
            format!("Applied: {}.", applied.join(", "))
        }
    })
}
