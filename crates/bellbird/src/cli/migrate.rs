//! `bellbird migrate`: creates the database or applies pending migrations.

use clap::Args;
use serde_json::json;

use super::arguments::SettingArgs;
use super::output::{self, JsonFlag};
use crate::wiring;

/// Create the database or apply pending migrations.
///
/// `serve` and `demo` also do this when they start. Run it separately before a rolling update of several instances.
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
