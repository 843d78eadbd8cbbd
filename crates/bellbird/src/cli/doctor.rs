//! `bellbird doctor`: checks settings, database, secrets, instances, providers, jobs and ports.

mod connections;
mod files;
mod jobs;
mod settings;

use std::process::ExitCode;

use bellbird_providers::{CallContext, Provider, Registry};
use bellbird_storage::Storage;
use clap::Args;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde::Serialize;
use tokio::time::Instant;

pub(super) use self::files::database_files;
use self::settings::placeholders;
use super::arguments::{ListenArgs, SettingArgs};
use super::output::{self, ErrorView, JsonFlag};
use super::secrets;
use crate::config::Settings;
use crate::instances::{self, Finding, VERSION};
use crate::wiring::{self, NotReady};
use crate::{serve, service};

/// Check settings, database, secrets, instances, providers, jobs and ports.
///
/// Changes nothing. Exits with status 1 if a check fails.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  bellbird doctor --config /etc/bellbird.toml")]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    listen: ListenArgs,

    #[command(flatten)]
    format: JsonFlag,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// Not an error, but the operator should know.
    Note,
    Wrong,
}

#[derive(Serialize)]
struct Check {
    name: String,
    verdict: Verdict,
    detail: String,
}

#[derive(Serialize)]
struct Report {
    ok: bool,
    version: &'static str,
    checks: Vec<Check>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorView>,
}

#[derive(Default)]
struct Checks(Vec<Check>);

impl Checks {
    fn add(&mut self, name: &str, verdict: Verdict, detail: impl Into<String>) {
        self.0.push(Check { name: name.to_owned(), verdict, detail: detail.into() });
    }
}

pub(super) async fn run(settings: &SettingArgs, args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let mut checks = Checks::default();
    match settings.load(Some(&args.listen)) {
        Err(error) => {
            for line in error.to_string().lines() {
                checks.add("settings", Verdict::Wrong, line);
            }
        }
        Ok(settings) => {
            settings::check(&mut checks, &settings);
            check_secrets(&mut checks, &settings);
            files::check(&mut checks, &settings);
            let running_here = check_database(&mut checks, &settings).await;
            check_providers(&mut checks, &settings).await;
            check_ports(&mut checks, &settings, running_here).await;
        }
    }
    let wrong = checks.0.iter().filter(|check| check.verdict == Verdict::Wrong);
    let wrong: Vec<_> = wrong.map(|check| format!("{}: {}", check.name, check.detail)).collect();
    let ok = wrong.is_empty();
    output::print(args.format, &Report { ok, version: VERSION, checks: checks.0, error: ErrorView::of(&wrong) }, text)?;
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check_secrets(checks: &mut Checks, settings: &Settings) {
    match wiring::sealer(settings) {
        Ok(Some(sealer)) => {
            let ids: Vec<_> = sealer.key_ids().collect();
            checks.add(
                "secrets.key",
                Verdict::Ok,
                format!("seals with key `{}`, opens with {}", ids[0], ids.join(", ")),
            );
        }
        Ok(None) => checks.add(
            "secrets.key",
            Verdict::Wrong,
            "not set. Set BELLBIRD_SECRETS__KEY=\"main:$(head -c 32 /dev/urandom | base64)\" and keep a copy",
        ),
        Err(error) => checks.add("secrets.key", Verdict::Wrong, format!("{error:#}")),
    }
}

/// Returns whether an instance runs on this machine. `None` if the database does not say.
async fn check_database(checks: &mut Checks, settings: &Settings) -> Option<bool> {
    let url = settings.database.url.expose_secret();
    if Storage::allows_plain_text(url) {
        let detail = "the connection to another machine may go without TLS: set sslmode=require in database.url";
        checks.add("database TLS", Verdict::Note, detail);
    }
    let opened = match wiring::optional_sealer(settings) {
        Ok(sealer) => wiring::open_existing(settings, sealer).await,
        Err(error) => Err(error),
    };
    let storage = match opened {
        Ok(storage) => storage,
        Err(error) => {
            checks.add("database", Verdict::Wrong, format!("{error:#}"));
            return None;
        }
    };
    let mut running_here = None;
    let location = wiring::database_location(settings);
    match wiring::check_ready(&storage).await {
        Err(NotReady::Unreadable(error) | NotReady::UnknownSchema(error)) => {
            checks.add("database", Verdict::Wrong, format!("{location}: {error}"));
        }
        ready @ (Ok(()) | Err(NotReady::AwaitsDecision)) => {
            checks.add("database", Verdict::Ok, format!("{location} is up to date"));
            if ready.is_err() {
                let hint = wiring::RESTORE_DECISION;
                let detail = format!("restored from a backup, so the service does not start: {hint}");
                checks.add("restore", Verdict::Wrong, detail);
            }
            check_sealed(checks, &storage).await;
            connections::check(checks, &storage).await;
            running_here = check_instances(checks, settings, &storage).await;
            jobs::check(checks, settings, &storage).await;
        }
        Err(NotReady::PendingMigrations(pending)) => {
            let (count, names) = (pending.len(), pending.join(", "));
            let detail = format!("{location} has pending migrations: {count} ({names}); run `bellbird migrate`");
            checks.add("database", Verdict::Wrong, detail);
        }
    }
    storage.close().await;
    running_here
}

async fn check_sealed(checks: &mut Checks, storage: &Storage) {
    const NAME: &str = "secrets";
    let secrets = match storage.secrets().sealed().await {
        Ok(secrets) => secrets,
        Err(error) => return checks.add(NAME, Verdict::Wrong, error.to_string()),
    };
    let current = storage.secrets().sealing_key_id();
    let (all_open, detail) = secrets::summary(&secrets, current);
    let needs_rotation = secrets.by_key.keys().any(|key| key != current);
    let verdict = match (all_open, needs_rotation) {
        (false, _) => Verdict::Wrong,
        (true, true) => Verdict::Note,
        (true, false) => Verdict::Ok,
    };
    checks.add(NAME, verdict, detail);
}

/// Reports the running instances, and what differs between them and these settings. Returns whether one runs on this
/// machine.
async fn check_instances(checks: &mut Checks, settings: &Settings, storage: &Storage) -> Option<bool> {
    const NAME: &str = "instances";
    let running = match instances::running(storage).await {
        Ok(running) => running,
        Err(error) => {
            checks.add(NAME, Verdict::Wrong, error.to_string());
            return None;
        }
    };
    let names: Vec<_> = running.iter().map(|one| format!("{one} with version {}", one.version)).collect();
    let detail = match &names[..] {
        [] => "none is running".to_owned(),
        names => format!("{} running: {}", names.len(), names.join(", ")),
    };
    checks.add(NAME, Verdict::Ok, detail);
    for Finding { is_wrong, text } in instances::compare_with(&running, settings) {
        checks.add(NAME, if is_wrong { Verdict::Wrong } else { Verdict::Note }, text);
    }
    Some(running.iter().any(instances::is_here))
}

async fn check_providers(checks: &mut Checks, settings: &Settings) {
    let providers = match wiring::providers(settings) {
        Ok(providers) => providers,
        Err(error) => return checks.add("providers", Verdict::Wrong, format!("{error:#}")),
    };
    if providers.iter().next().is_none() {
        return checks.add("providers", Verdict::Note, wiring::no_provider_hint());
    }
    for provider in providers.iter() {
        let call = CallContext::new(Instant::now() + settings.provider_timeout, Timestamp::now());
        let name = provider.name();
        match provider.check(&call).await {
            Ok(()) => checks.add(name.as_str(), Verdict::Ok, "reachable, and does not reject the credentials"),
            Err(error) => checks.add(name.as_str(), Verdict::Wrong, error.to_string()),
        }
    }
    check_linking(checks, settings, &providers);
}

/// Reports the URLs for linking and for provider webhooks, with the providers that support each.
fn check_linking(checks: &mut Checks, settings: &Settings, providers: &Registry) {
    let names = |supports: fn(&dyn Provider) -> bool| -> String {
        let supporting = providers.iter().filter(|provider| {
            supports(provider.as_ref()) && placeholders(settings, provider.name().as_str()).is_empty()
        });
        supporting.map(|provider| provider.name().as_str()).collect::<Vec<_>>().join(", ")
    };
    let Some(url) = service::expected_url(&settings.console) else {
        let detail = "the system chooses the console's port: set console.listen or console.public_url for linking";
        return checks.add("linking", Verdict::Note, detail);
    };
    for (name, supporting, path) in [
        ("linking", names(|provider| provider.linking().is_some()), "/link/..."),
        ("provider events", names(|provider| provider.webhook_verifier().is_some()), "/webhooks/..."),
    ] {
        if supporting.is_empty() {
            checks.add(name, Verdict::Note, "no provider supports it with the configured credentials");
        } else {
            checks.add(name, Verdict::Ok, format!("{supporting}, at {url}{path}"));
        }
    }
}

async fn check_ports(checks: &mut Checks, settings: &Settings, running_here: Option<bool>) {
    let addresses = [
        ("api.listen", settings.api.listen),
        ("console.listen", settings.console.listen),
        ("ops.listen", settings.ops_listen),
    ];
    for (name, address) in addresses {
        match serve::listen(address).await {
            Ok(_) => checks.add(name, Verdict::Ok, format!("{address} is free")),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                let (verdict, why) = match running_here {
                    Some(true) => (Verdict::Ok, "; expected while the service runs"),
                    Some(false) => (
                        Verdict::Wrong,
                        ", but no instance of this database runs on this machine: another program has it, or a \
                         Bellbird with another database.url",
                    ),
                    None => (Verdict::Note, ""),
                };
                checks.add(name, verdict, format!("{address} is in use{why}"));
            }
            Err(error) => checks.add(name, Verdict::Wrong, format!("{address}: {error}")),
        }
    }
}

fn text(report: &Report) -> String {
    let rows = report.checks.iter().map(|check| {
        let verdict = match check.verdict {
            Verdict::Ok => "ok",
            Verdict::Note => "note",
            Verdict::Wrong => "WRONG",
        };
        [check.name.clone(), verdict.to_owned(), check.detail.clone()]
    });
    let summary = if report.ok { "All checks passed." } else { "At least one check failed." };
    format!(
        "{}\n\nChecked by bellbird {}. {summary}",
        output::table(["check", "verdict", "detail"], rows),
        report.version
    )
}
