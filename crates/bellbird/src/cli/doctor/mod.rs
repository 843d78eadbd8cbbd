//! `bellbird doctor`: checks settings, database, secrets, instances, providers, jobs and ports.

mod connections;
mod files;
mod jobs;
mod ports;
mod settings;

use std::collections::BTreeMap;
use std::fmt::Display;

use bellbird_console::{Mailer, ProviderControl as _, is_loopback_url};
use bellbird_limits::SharedStore;
use bellbird_management::health::{self, Backup};
use bellbird_providers::registry::{self, Enabled, PROVIDERS};
use bellbird_providers::settings::Form;
use bellbird_providers::{CallContext, Cause, Provider, Registry};
use bellbird_storage::{Chain, Instance, SealedSecrets, ServiceLock, Storage, StorageError};
use jiff::{SignedDuration, Timestamp};
use secrecy::ExposeSecret as _;
use serde::Serialize;
use tokio::time::Instant;

pub(super) use self::files::database_files;
use self::settings::placeholders;
use super::arguments::{ListenArgs, SettingArgs};
use super::output::{self, AlreadyPrinted, ErrorView};
use super::secrets;
use crate::config::Settings;
use crate::instances::{self, Finding, VERSION};
use crate::wiring::{self, NotReady, Wiring};

/// Signatures hold the time, and consents and keys end by it. The way to a provider takes a part of
/// this.
const PROVIDER_CLOCK_WRONG: SignedDuration = SignedDuration::from_secs(30);

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// Not an error, but the operator should know.
    Note,
    Wrong,
}

impl Verdict {
    /// Of what is not as it should be.
    fn of(is_wrong: bool) -> Self {
        if is_wrong { Self::Wrong } else { Self::Note }
    }
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
        self.0.push(Check {
            name: name.to_owned(),
            verdict,
            detail: detail.into(),
        });
    }

    fn ok(&mut self, name: &str, detail: impl Into<String>) {
        self.add(name, Verdict::Ok, detail);
    }

    fn note(&mut self, name: &str, detail: impl Into<String>) {
        self.add(name, Verdict::Note, detail);
    }

    fn wrong(&mut self, name: &str, detail: impl Into<String>) {
        self.add(name, Verdict::Wrong, detail);
    }

    /// The value, or else a check that failed with this error.
    fn value<T>(&mut self, name: &str, result: Result<T, impl Display>) -> Option<T> {
        result
            .map_err(|error| self.wrong(name, format!("{error:#}")))
            .ok()
    }
}

pub(super) async fn run(settings: &SettingArgs, listen: &ListenArgs) -> anyhow::Result<()> {
    let mut checks = Checks::default();
    match settings.load(Some(listen)) {
        Err(error) => {
            for line in error.to_string().lines() {
                checks.wrong("settings", line);
            }
        }
        Ok(settings) => {
            settings::check(&mut checks, &settings);
            check_secrets(&mut checks, &settings).await;
            files::check(&mut checks, &settings);
            let running = check_database(&mut checks, &settings).await;
            check_providers(&mut checks, &settings).await;
            check_shared_store(&mut checks, &settings).await;
            check_email(&mut checks, &settings).await;
            check_identity_provider(&mut checks, &settings).await;
            ports::check(&mut checks, &settings, running.as_deref()).await;
        }
    }
    let wrong = checks
        .0
        .iter()
        .filter(|check| check.verdict == Verdict::Wrong);
    let wrong: Vec<_> = wrong
        .map(|check| format!("{}: {}", check.name, check.detail))
        .collect();
    let ok = wrong.is_empty();
    output::print(
        &Report {
            ok,
            version: VERSION,
            checks: checks.0,
            error: ErrorView::of(&wrong),
        },
        text,
    )?;
    if ok {
        Ok(())
    } else {
        Err(AlreadyPrinted.into())
    }
}

async fn check_secrets(checks: &mut Checks, settings: &Settings) {
    const NAME: &str = "secrets.key";
    match checks.value(NAME, wiring::sealer(settings)) {
        Some(Some(sealer)) => {
            let ids: Vec<_> = sealer.key_ids().collect();
            checks.ok(
                NAME,
                format!("seals with key `{}`, opens with {}", ids[0], ids.join(", ")),
            );
        }
        Some(None) => checks.wrong(NAME, wiring::describe_missing_key(settings).await),
        None => {}
    }
}

async fn check_shared_store(checks: &mut Checks, settings: &Settings) {
    const NAME: &str = "redis.url";
    let Some(of_store) = &settings.shared_store else {
        return;
    };
    // Its names do not matter here.
    let Some(store) = checks.value(NAME, SharedStore::open(of_store, &[0; 32])) else {
        return;
    };
    let servers = of_store.servers();
    if let Err(error) = store.check().await {
        let detail = format!(
            "{servers}: {error}. Until this is mended, each instance counts limits for itself"
        );
        return checks.wrong(NAME, detail);
    }
    checks.ok(NAME, format!("{servers} responds"));
    if let Some(policy) = store
        .memory_policy()
        .await
        .filter(|policy| policy != "noeviction")
    {
        let detail = format!(
            "{servers} forgets limits when its memory is full, because its maxmemory-policy is {policy}: set noeviction"
        );
        checks.note(NAME, detail);
    }
}

/// Returns the instances that run on this machine and this database. None if they are not known.
async fn check_database(checks: &mut Checks, settings: &Settings) -> Option<Vec<Instance>> {
    let url = settings.database.url.expose_secret();
    if Storage::allows_plain_text(url) {
        let detail = "the connection to another machine may go without TLS: set sslmode=require in database.url";
        checks.note("database TLS", detail);
    }
    let opened = match wiring::optional_sealer(settings) {
        Ok(sealer) => wiring::open_existing(settings, sealer).await,
        Err(error) => Err(error),
    };
    let storage = match opened {
        Ok(storage) => storage,
        Err(error) => {
            checks.wrong("database", format!("{error:#}"));
            // None can run on a file that does not exist, unless it was deleted since.
            return Storage::sqlite_path(url)
                .filter(|path| !path.exists() && ServiceLock::rescue(url).is_none())
                .map(|_| Vec::new());
        }
    };
    let location = wiring::database_location(settings);
    let running = match wiring::check_ready(&storage).await {
        Err(NotReady::Unreadable(error) | NotReady::UnknownSchema(error)) => {
            checks.wrong("database", format!("{location}: {}", Chain(&error)));
            None
        }
        ready @ (Ok(()) | Err(NotReady::AwaitsDecision)) => {
            checks.ok("database", format!("{location} is up to date"));
            check_disk(checks, &storage);
            check_backup(checks, &storage).await;
            if ready.is_err() {
                let hint = wiring::RESTORE_DECISION;
                let detail =
                    format!("restored from a backup, so the service does not start: {hint}");
                checks.wrong("restore", detail);
            }
            if settings.master_keys.is_some() {
                check_sealed(checks, &storage).await;
            }
            if let Some(None) = checks.value("operators", wiring::find_operator(&storage).await) {
                checks.note("operators", wiring::NO_OPERATOR);
            }
            connections::check(checks, &storage).await;
            check_instances(checks, settings, &storage).await;
            jobs::check(checks, settings, &storage).await;
            running_here(&storage).await.ok()
        }
        Err(NotReady::PendingMigrations(pending)) => {
            if Storage::is_first_migration(&pending) && !wiring::names_installation(settings) {
                let detail = wiring::missing_database(settings, "is empty");
                checks.wrong("database", detail);
                storage.close().await;
                return Some(Vec::new());
            }
            let (count, names) = (pending.len(), pending.join(", "));
            let advice = match storage.check_may_migrate().await {
                Ok(()) => "run `bellbird migrate`".to_owned(),
                Err(denied) => format!("`bellbird migrate` would fail, because {denied}"),
            };
            let detail = format!("{location} has pending migrations: {count} ({names}); {advice}");
            checks.wrong("database", detail);
            match storage.schema_version().await {
                Ok(None) => Some(Vec::new()),
                _ => running_here(&storage).await.ok(),
            }
        }
    };
    storage.close().await;
    running
}

fn check_disk(checks: &mut Checks, storage: &Storage) {
    if let Err(error) = storage.check_file() {
        checks.wrong("disk", error.to_string());
    } else if let Some(free) = health::few_mebibytes_free(storage) {
        let detail = format!("{free} MiB are free on the disk of the database: make space");
        checks.note("disk", detail);
    }
}

async fn check_backup(checks: &mut Checks, storage: &Storage) {
    const NAME: &str = "backup";
    let found = health::backup(storage, Timestamp::now()).await;
    match checks.value(NAME, found).flatten() {
        Some(Backup::Recent(at)) => {
            let at = output::format_instant(at);
            checks.ok(NAME, format!("the last one at {at}"));
        }
        Some(Backup::NoneYet(_)) => checks.ok(NAME, "none yet of this database, which is new"),
        Some(Backup::Old(since)) => {
            let since = output::format_instant(since);
            let detail = format!("none since {since}: make one with `bellbird backup`");
            checks.note(NAME, detail);
        }
        None => {}
    }
}

/// The instances that run on this machine.
async fn running_here(storage: &Storage) -> Result<Vec<Instance>, StorageError> {
    let mut running = instances::running(storage).await?;
    running.retain(instances::is_here);
    Ok(running)
}

async fn check_sealed(checks: &mut Checks, storage: &Storage) {
    const NAME: &str = "secrets";
    let secrets = storage.secrets();
    if checks
        .value(NAME, secrets.check_sealing_key().await)
        .is_some()
        && let Some(sealed) = checks.value(NAME, secrets.sealed().await)
    {
        let (verdict, detail) = describe_sealed(&sealed, secrets.sealing_key_id());
        checks.add(NAME, verdict, detail);
    }
}

/// Says in one sentence which keys the stored secrets need.
fn describe_sealed(secrets: &SealedSecrets, current: &str) -> (Verdict, String) {
    let total = secrets.opened_by.values().sum::<u64>() + secrets.unopenable.len() as u64;
    if total == 0 {
        return (Verdict::Ok, "none stored".to_owned());
    }
    let counts: Vec<_> = secrets
        .by_key
        .iter()
        .map(|(key, count)| format!("{count} with key `{key}`"))
        .collect();
    let mut text = format!(
        "{}: {}",
        output::count(total, "secret", "secrets"),
        counts.join(", ")
    );
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    for secret in &secrets.unopenable {
        *reasons.entry(secrets::reason(secret)).or_default() += 1;
    }
    for (reason, count) in &reasons {
        text.push_str(&format!("; {count} cannot be opened: {reason}"));
    }
    if !reasons.is_empty() {
        text.push_str(&format!(". {}", secrets::ADVICE));
        return (Verdict::Wrong, text);
    }
    text.push_str("; all can be opened");
    if secrets.by_key.keys().all(|key| key == current) {
        return (Verdict::Ok, text);
    }
    text.push_str(&format!(
        ". Run `bellbird secrets rotate` to reseal them with `{current}`"
    ));
    (Verdict::Note, text)
}

/// Reports the running instances, and what differs between them and these settings.
async fn check_instances(checks: &mut Checks, settings: &Settings, storage: &Storage) {
    const NAME: &str = "instances";
    let Some(running) = checks.value(NAME, instances::running(storage).await) else {
        return;
    };
    let names: Vec<_> = running
        .iter()
        .map(|one| format!("{one} with version {}", one.version))
        .collect();
    let detail = match &names[..] {
        [] => "none is running".to_owned(),
        names => format!("{} running: {}", names.len(), names.join(", ")),
    };
    checks.ok(NAME, detail);
    for Finding { is_wrong, text } in instances::compare_with(&running, settings) {
        checks.add(NAME, Verdict::of(is_wrong), text);
    }
    let Some(Some(max)) = checks.value(NAME, storage.instances().connections_max().await) else {
        return;
    };
    let pool_size = settings.database.postgres.pool_size;
    let wanted = i64::from(pool_size) * i64::try_from(running.len().max(1)).unwrap_or(i64::MAX);
    if wanted > max {
        let detail = format!(
            "{} with database.pool_size {pool_size} may need {wanted} connections, and the server's max_connections is \
             {max}: lower the one or raise the other",
            output::count(running.len().max(1) as u64, "instance", "instances")
        );
        checks.note("database", detail);
    }
}

async fn check_providers(checks: &mut Checks, settings: &Settings) {
    let Some(mut providers) = checks.value("providers", wiring::providers(settings, None)) else {
        return;
    };
    let mut console_url = settings.console.expected_url();
    // What is wrong with the database has a check of its own.
    if let Ok(storage) = wiring::open_sealed_storage(settings).await {
        if let Ok(of_service) = instances::console_url(settings, &storage).await {
            console_url = of_service;
        }
        if let Ok(wiring) = Wiring::new(settings, &storage).await {
            providers = wiring.providers.clone();
            for declared in PROVIDERS {
                if let Some(reason) = wiring.provider_loader.left_out(declared) {
                    checks.wrong(declared.name.as_str(), reason);
                }
            }
        }
        storage.close().await;
    }
    let enabled = providers.enabled();
    if enabled.is_empty() {
        return checks.note("providers", wiring::no_provider_hint());
    }
    for Enabled {
        provider,
        is_sandbox,
    } in enabled.iter()
    {
        let call = CallContext::new(
            Instant::now() + settings.provider_timeout,
            Timestamp::now(),
            Cause::Schedule,
        );
        let name = provider.name().as_str();
        let place = place_of(settings, name);
        match provider.check(&call).await {
            Ok(()) => checks.ok(name, "reachable, and does not reject the credentials"),
            Err(_) if *is_sandbox => {
                checks.note(name, "simulated by the service, which does not respond");
            }
            Err(error) => checks.wrong(name, format!("{place}: {error}")),
        }
        let ahead = provider.health().clock_ahead.unwrap_or_default();
        if ahead.abs() >= PROVIDER_CLOCK_WRONG {
            let difference = instances::difference(ahead);
            let detail =
                format!("this machine's clock is {difference} that of {place}: set it by NTP");
            checks.wrong("clock", detail);
        }
    }
    check_linking(checks, settings, &providers, console_url);
}

/// A provider as it writes its name, and where it is called: `Fiskil at https://api.fiskil.com`.
fn place_of(settings: &Settings, provider: &str) -> String {
    let Some(declared) = registry::declaration(provider) else {
        return provider.to_owned();
    };
    let values = settings.providers.of(declared);
    let url = declared
        .settings
        .iter()
        .find(|setting| matches!(setting.form, Form::Url(_)));
    let url = url
        .and_then(|setting| values.get(setting.name))
        .unwrap_or_default();
    format!("{} at {url}", declared.title)
}

async fn check_email(checks: &mut Checks, settings: &Settings) {
    const NAME: &str = "e-mail";
    let Some(email) = &settings.pages.email else {
        return;
    };
    let console_url = instances::known_console_url(settings).await;
    let Some(mailer) = checks.value(NAME, Mailer::new(email, console_url.as_str().into())) else {
        return;
    };
    match mailer.check().await {
        Ok(()) => checks.ok(NAME, format!("{} takes the login", email.server())),
        Err(error) => checks.wrong(NAME, format!("console.smtp_url: {error}")),
    }
    if console_url.is_empty() || is_loopback_url(&console_url) {
        let detail = "the links in e-mails lead to this machine only: set console.public_url";
        checks.note(NAME, detail);
    }
}

async fn check_identity_provider(checks: &mut Checks, settings: &Settings) {
    const NAME: &str = "identity provider";
    let Some(oidc) = &settings.pages.oidc else {
        return;
    };
    let console_url = instances::known_console_url(settings).await;
    match bellbird_console::check_identity_provider(oidc, &console_url).await {
        Ok(uri) => checks.ok(
            NAME,
            format!("{} responds; redirect URI {uri}", oidc.issuer),
        ),
        Err(reason) => checks.wrong(NAME, format!("{}: {reason}", oidc.issuer)),
    }
}

/// Reports the URLs for linking and for provider webhooks, with the providers that support each.
fn check_linking(
    checks: &mut Checks,
    settings: &Settings,
    providers: &Registry,
    console_url: Option<String>,
) {
    let names = |supports: fn(&dyn Provider) -> bool| -> String {
        let enabled = providers.enabled();
        let supporting = enabled.iter().filter(|Enabled { provider, .. }| {
            supports(provider.as_ref())
                && placeholders(settings, provider.name().as_str()).is_empty()
        });
        supporting
            .map(|enabled| enabled.provider.name().as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let Some(url) = console_url else {
        let detail = "the system chooses the console's port: set console.listen or console.public_url for linking";
        return checks.note("linking", detail);
    };
    for (name, supporting, path) in [
        (
            "linking",
            names(|provider| provider.linking().is_some()),
            "/link/...",
        ),
        (
            "provider events",
            names(|provider| provider.webhook_verifier().is_some()),
            "/webhooks/...",
        ),
    ] {
        if supporting.is_empty() {
            checks.note(
                name,
                "no provider supports it with the configured credentials",
            );
        } else {
            checks.ok(name, format!("{supporting}, at {url}{path}"));
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
        let detail = output::with_data_dir(&check.detail);
        [check.name.clone(), verdict.to_owned(), detail]
    });
    let is_note = |check: &&Check| check.verdict == Verdict::Note;
    let notes = report.checks.iter().filter(is_note).count();
    let summary = match (report.ok, notes) {
        (false, _) => "At least one check failed.".to_owned(),
        (true, 0) => "All checks passed.".to_owned(),
        (true, notes) => {
            let notes = output::count(notes as u64, "note", "notes");
            format!("No check failed, {notes}.")
        }
    };
    format!(
        "{}\n\nChecked by bellbird {}. {summary}",
        output::table(["check", "verdict", "detail"], rows),
        report.version
    )
}
