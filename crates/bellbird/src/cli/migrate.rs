//! `bellbird migrate`: creates the database or applies pending migrations.

use serde_json::json;

use super::arguments::SettingArgs;
use super::output::{self, JsonFlag};
use crate::wiring;

pub(super) async fn run(settings: &SettingArgs, format: JsonFlag) -> anyhow::Result<()> {
    let storage = wiring::open_storage(&settings.load(None)?).await?;
    let applied = storage.migrate().await?;
    let answer = json!({ "database": storage.kind(), "applied": applied });
    storage.close().await;
    output::print(format, &answer, |_| {
        if applied.is_empty() {
            "The database is up to date.".to_owned()
        } else {
            format!("Applied: {}.", applied.join(", "))
        }
    })
}
