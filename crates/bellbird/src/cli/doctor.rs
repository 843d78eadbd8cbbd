//! `bellbird doctor`.

mod due;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use bellbird_providers::{Call, Provider, Registry};
use bellbird_storage::Storage;
use clap::Args;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde::Serialize;
use tokio::time::Instant;

use super::arguments::{ListenArgs, SettingArgs};
use super::output::{self, JsonFlag};
use super::secrets::unopened;
use crate::config::Settings;
use crate::{serve, service, wiring};

/// Check settings, database, secrets, providers and ports, and say what is wrong.
///
/// Changes nothing. Exit status 1 if anything is wrong.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  bellbird doctor --config /etc/bellbird.toml")]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    listen: ListenArgs,

    #[command(flatten)]
    format: JsonFlag,
}

/// How a check went.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// Worth knowing.
    Note,
    Wrong,
}

/// One thing that was looked at.
#[derive(Serialize)]
struct Check {
    name: String,
    verdict: Verdict,
    detail: String,
}

/// Everything that was looked at.
#[derive(Serialize)]
struct Report {
    ok: bool,
    checks: Vec<Check>,
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
            checks.add(
                "settings",
                Verdict::Ok,
                format!("{} set, the others at their defaults", settings.origins.len()),
            );
            check_secrets(&mut checks, &settings);
            check_database(&mut checks, &settings).await;
            check_providers(&mut checks, &settings).await;
            check_ports(&mut checks, &settings).await;
        }
    }
    let ok = checks.0.iter().all(|check| check.verdict != Verdict::Wrong);
    output::print(args.format, &Report { ok, checks: checks.0 }, text)?;
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check_secrets(checks: &mut Checks, settings: &Settings) {
    match wiring::sealer(settings) {
        Ok(Some(sealer)) => {
            let ids: Vec<_> = sealer.key_ids().collect();
            checks.add(
                "secrets.key",
                Verdict::Ok,
                format!("seals with the key `{}`, opens with {}", ids[0], ids.join(", ")),
            );
        }
        Ok(None) => checks.add(
            "secrets.key",
            Verdict::Wrong,
            "not set: set BELLBIRD_SECRETS__KEY=\"main:$(head -c 32 /dev/urandom | base64)\", and keep it",
        ),
        Err(error) => checks.add("secrets.key", Verdict::Wrong, format!("{error:#}")),
    }
}

async fn check_database(checks: &mut Checks, settings: &Settings) {
    let path = settings.database.url.expose_secret().strip_prefix("sqlite:");
    if path.is_some_and(|path| !Path::new(path).exists()) {
        return checks.add("database", Verdict::Wrong, "the file is not there yet: run `bellbird migrate`");
    }
    let storage = match wiring::open_storage(settings).await {
        Ok(storage) => storage,
        Err(error) => return checks.add("database", Verdict::Wrong, format!("{error:#}")),
    };
    match storage.pending_migrations().await {
        Err(error) => checks.add("database", Verdict::Wrong, format!("{}: {error}", storage.kind())),
        Ok(pending) if pending.is_empty() => {
            checks.add("database", Verdict::Ok, format!("{} answers and is up to date", storage.kind()));
            check_sealed(checks, &storage).await;
            due::check(checks, settings, &storage).await;
        }
        Ok(pending) => {
            let detail = format!("{} to apply ({}): run `bellbird migrate`", pending.len(), pending.join(", "));
            checks.add("database", Verdict::Wrong, detail);
        }
    }
    storage.close().await;
}

async fn check_sealed(checks: &mut Checks, storage: &Storage) {
    const NAME: &str = "sealed tokens";
    let secrets = match storage.sealed_secrets().await {
        Ok(secrets) => secrets,
        Err(error) => return checks.add(NAME, Verdict::Wrong, error.to_string()),
    };
    let current = storage.sealing_key_id();
    let counts: Vec<_> = secrets.by_key.iter().map(|(key, count)| format!("{count} with the key `{key}`")).collect();
    let missing = unopened(&secrets.unopenable);
    let old = secrets.by_key.keys().any(|key| key != current);
    match (missing.is_empty(), old) {
        _ if counts.is_empty() && missing.is_empty() => checks.add(NAME, Verdict::Ok, "there are none"),
        (true, false) => checks.add(NAME, Verdict::Ok, format!("{}; all open", counts.join(", "))),
        (true, true) => {
            let detail =
                format!("{}; all open. `bellbird secrets rotate` seals them with `{current}`", counts.join(", "));
            checks.add(NAME, Verdict::Note, detail);
        }
        (false, _) => checks.add(NAME, Verdict::Wrong, format!("{}; not all open", counts.join(", "))),
    }
    for detail in missing {
        checks.add(NAME, Verdict::Wrong, detail);
    }
}

async fn check_providers(checks: &mut Checks, settings: &Settings) {
    let providers = match wiring::providers(settings) {
        Ok(providers) => providers,
        Err(error) => return checks.add("providers", Verdict::Wrong, format!("{error:#}")),
    };
    if providers.iter().next().is_none() {
        return checks.add("providers", Verdict::Note, wiring::no_provider());
    }
    for provider in providers.iter() {
        let deadline = Duration::from_secs(settings.reads.provider_timeout_seconds.into());
        let call = Call::new(Instant::now() + deadline, Timestamp::now());
        let name = provider.name();
        match provider.check(&call).await {
            Ok(()) => checks.add(name.as_str(), Verdict::Ok, "answers, and does not refuse the credentials"),
            Err(error) => checks.add(name.as_str(), Verdict::Wrong, error.to_string()),
        }
    }
    check_linking(checks, settings, &providers);
}

/// Where users link, and where providers send events.
fn check_linking(checks: &mut Checks, settings: &Settings, providers: &Registry) {
    let names = |can: fn(&dyn Provider) -> bool| -> String {
        let able = providers.iter().filter(|provider| can(provider.as_ref()));
        able.map(|provider| provider.name().as_str()).collect::<Vec<_>>().join(", ")
    };
    let Some(url) = service::console_url(settings) else {
        let detail =
            "the system chooses the console's port: set console.listen or console.public_url to link in a browser";
        return checks.add("linking", Verdict::Note, detail);
    };
    for (name, able, path) in [
        ("linking", names(|provider| provider.linking().is_some()), "/link/..."),
        ("events", names(|provider| provider.notifying().is_some()), "/webhooks/..."),
    ] {
        if able.is_empty() {
            checks.add(name, Verdict::Note, "at no provider, with the credentials that are set");
        } else {
            checks.add(name, Verdict::Ok, format!("{able}, at {url}{path}"));
        }
    }
}

async fn check_ports(checks: &mut Checks, settings: &Settings) {
    let addresses = [
        ("api.listen", settings.api.listen),
        ("console.listen", settings.console.listen),
        ("ops.listen", settings.ops.listen),
    ];
    for (name, address) in addresses {
        match serve::listen(address).await {
            Ok(_) => checks.add(name, Verdict::Ok, format!("{address} is free")),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                checks.add(name, Verdict::Note, format!("{address} is in use; fine if that is this service, running"));
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
    let end = if report.ok { "Nothing is wrong." } else { "Something is wrong." };
    format!("{}\n\n{end}", output::table(["check", "verdict", "detail"], rows))
}
