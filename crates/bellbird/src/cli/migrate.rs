//! `bellbird migrate`: creates the database or applies pending migrations.

use anyhow::Context as _;
use serde_json::json;

use super::arguments::SettingArgs;
use super::output;
use crate::wiring;

pub(super) async fn run(settings: &SettingArgs) -> anyhow::Result<()> {
    let settings = settings.load(None)?;
    let storage = wiring::open(&settings, wiring::optional_sealer(&settings)?).await?;
    let location = wiring::database_location(&settings);
    let applied = storage
        .migrate()
        .await
        .with_context(|| format!("could not migrate the {location}"))?;
    let view = json!({ "database": storage.kind(), "location": location, "applied": applied });
    storage.close().await;
    output::print_done(&view, |_| {
        if applied.is_empty() {
            format!("The {location} is up to date.")
        } else {
            format!("Migrated the {location}: {}.", applied.join(", "))
        }
    })
}
