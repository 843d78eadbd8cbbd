//! `bellbird status`: what runs, and with which settings file and database.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;

use bellbird_management::health;
use bellbird_storage::{Instance, Storage};
use jiff::Timestamp;
use serde::Serialize;

use super::arguments::SettingArgs;
use super::output::{self, ErrorView};
use crate::config::Settings;
use crate::instances::{self, VERSION};
use crate::wiring;

/// What `--json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusView {
    version: &'static str,
    /// `None`: all settings come from the environment, or are at their defaults.
    settings_file: Option<PathBuf>,
    /// Ids of the configured master keys. The first one seals.
    key_ids: Vec<String>,
    /// Those of the settings, then those that operators entered in the console.
    providers: Vec<String>,
    database: DatabaseView,
    /// `None` if the database cannot be read or has pending migrations.
    #[serde(flatten)]
    contents: Option<ContentsView>,
    /// Why the database cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DatabaseView {
    /// Without user and password.
    location: String,
    /// The newest migration that was applied.
    schema: Option<String>,
    pending_migrations: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ContentsView {
    users: usize,
    /// By status.
    connections: BTreeMap<String, u64>,
    jobs: JobsView,
    instances: Vec<Instance>,
    differences: Vec<String>,
}

#[derive(Default, Serialize)]
struct JobsView {
    due: u64,
    running: u64,
    failing: u64,
}

pub(super) async fn run(settings: &SettingArgs) -> anyhow::Result<()> {
    let settings = settings.load(None)?;
    let key_ids = wiring::key_ids(&settings)?;
    let configured = wiring::providers(&settings, None)?.enabled();
    let mut view = StatusView {
        version: VERSION,
        settings_file: settings.file.clone(),
        key_ids,
        providers: configured
            .iter()
            .map(|enabled| enabled.provider.name().to_string())
            .collect(),
        database: DatabaseView {
            location: wiring::database_location(&settings),
            schema: None,
            pending_migrations: Vec::new(),
        },
        contents: None,
        error: None,
    };
    let sealer = wiring::optional_sealer(&settings)?;
    let read = match wiring::open_existing(&settings, sealer).await {
        Ok(storage) => {
            let read = read_database(&settings, &storage, &mut view).await;
            storage.close().await;
            read
        }
        Err(error) => Err(error),
    };
    let mut reasons = Vec::new();
    if let Err(error) = read {
        reasons.push(format!("{error:#}"));
        view.error = ErrorView::with_code(&reasons, &error);
    }
    output::print(&view, text)?;
    output::finish(&reasons)
}

async fn read_database(
    settings: &Settings,
    storage: &Storage,
    view: &mut StatusView,
) -> anyhow::Result<()> {
    view.database.schema = storage.schema_version().await?;
    view.database.pending_migrations = storage.pending_migrations().await?;
    if !view.database.pending_migrations.is_empty() {
        return Ok(());
    }
    let mut connections = BTreeMap::new();
    for counted in storage.connections().count().await? {
        *connections.entry(counted.status.to_string()).or_default() += counted.count;
    }
    let mut jobs = JobsView::default();
    for counts in health::jobs(storage, Timestamp::now()).await? {
        jobs.due += counts.due;
        jobs.running += counts.running;
        jobs.failing += counts.failing;
    }
    let instances = instances::running(storage).await?;
    let findings = instances::compare_with(&instances, settings);
    let entered = storage.provider_settings().list().await?;
    view.contents = Some(ContentsView {
        users: storage.users().list().await?.len(),
        connections,
        jobs,
        instances,
        differences: findings.into_iter().map(|finding| finding.text).collect(),
    });
    for stored in entered {
        if stored.is_used() && !view.providers.contains(&stored.provider) {
            view.providers.push(stored.provider);
        }
    }
    Ok(())
}

fn text(view: &StatusView) -> String {
    let database = &view.database;
    let file = view.settings_file.as_ref();
    let file = file.map(|path| path.display().to_string());
    let mut pairs = vec![
        ("version", view.version.to_owned()),
        ("settings file", file.unwrap_or_else(|| "none".to_owned())),
        ("master keys", output::or_none(view.key_ids.join(", "))),
        ("providers", output::or_none(view.providers.join(", "))),
        ("database", database.location.clone()),
    ];
    if view.error.is_none() {
        let schema = database.schema.as_deref().unwrap_or("empty");
        let schema = match database.pending_migrations.join(", ").as_str() {
            "" => format!("{schema}, up to date"),
            pending => format!("{schema}; run `bellbird migrate` to apply {pending}"),
        };
        pairs.push(("schema", schema));
    }
    let mut more = String::new();
    if let Some(contents) = &view.contents {
        let connections = contents.connections.iter();
        let connections: Vec<_> = connections
            .map(|(status, count)| format!("{count} {status}"))
            .collect();
        let JobsView {
            due,
            running,
            failing,
        } = contents.jobs;
        let jobs = format!("{due} due, {running} running, {failing} failing");
        let instances = match contents.instances.len() {
            0 => "none is running".to_owned(),
            count => format!("{count} running"),
        };
        pairs.extend([
            ("users", contents.users.to_string()),
            ("connections", output::or_none(connections.join(", "))),
            ("jobs", jobs),
            ("instances", instances),
        ]);
        if !contents.instances.is_empty() {
            more = format!("\n\n{}", table(&contents.instances));
        }
        for difference in &contents.differences {
            more.push_str(&format!("\n\n{difference}."));
        }
    }
    let pairs = pairs.iter();
    let pairs: Vec<_> = pairs
        .map(|(name, text)| (*name, text as &dyn Display))
        .collect();
    output::details(&pairs) + &more
}

fn table(instances: &[Instance]) -> String {
    let head = [
        "host",
        "api",
        "roles",
        "version",
        "started",
        "last seen",
        "keys",
        "id",
    ];
    let rows = instances.iter().map(|instance| {
        output::row![
            instance.host,
            instance.api_url,
            instance.roles.join(","),
            instance.version,
            output::format_instant(instance.started_at),
            output::format_instant(instance.last_seen_at),
            instance.key_ids.join(","),
            instance.id,
        ]
    });
    output::table(head, rows)
}
