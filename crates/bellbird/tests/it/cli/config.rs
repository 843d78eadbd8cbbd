//! Settings: their sources, precedence and errors, and the example file.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::time::Duration;

use bellbird::config::{Flag, LogLevel, Origin, Settings, Sources};
use bellbird_providers::registry::{PROVIDERS, ProviderSettings};
use bellbird_providers::settings::{Declaration, Form, Setting};
use bellbird_webhooks::delivery::schedule::Schedule;
use secrecy::ExposeSecret as _;

use super::commands::without_providers;
use crate::support::words::{assert_has, assert_lacks, assert_starts};

fn from_file(text: &str) -> Sources {
    let mut hasher = DefaultHasher::new();
    (text, std::process::id(), std::thread::current().id()).hash(&mut hasher);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{:x}.toml", hasher.finish()));
    std::fs::write(&path, text).unwrap();
    Sources {
        file: Some(path),
        ..Sources::default()
    }
}

fn with_variable(mut sources: Sources, name: &str, value: &str) -> Sources {
    sources.environment.push((name.to_owned(), value.into()));
    sources
}

/// Only this variable is set.
fn variable(name: &str, value: &str) -> Sources {
    with_variable(from_file(""), name, value)
}

fn load(sources: &Sources) -> Settings {
    Settings::load(sources).unwrap()
}

/// The text of the error, with the path of the file replaced by `FILE`.
fn error_of(sources: &Sources) -> String {
    let text = Settings::load(sources).expect_err("an error").to_string();
    match &sources.file {
        Some(path) => text.replace(&path.display().to_string(), "FILE"),
        None => text,
    }
}

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

fn schedule(delays: &[u64]) -> Schedule {
    Schedule::new(delays.iter().copied().map(seconds).collect())
}

#[test]
fn flag_beats_variable_beats_file() {
    let file = from_file(
        "[api]\nlisten = \"127.0.0.1:1\"\n[ops]\nlisten = \"127.0.0.1:2\"\n[log]\nlevel = \"warn\"\n",
    );
    let mut sources = with_variable(file, "BELLBIRD_OPS__LISTEN", "127.0.0.1:3");
    sources = with_variable(sources, "BELLBIRD_LOG__LEVEL", "debug");
    sources.flags.push(Flag {
        name: "--log-level",
        setting: "log.level",
        value: "trace".to_owned(),
    });
    let settings = load(&sources);
    assert_eq!(settings.api.listen.port(), 1);
    assert_eq!(settings.ops_listen.port(), 3);
    assert_eq!(settings.log.level, LogLevel::Trace);
    let origin = settings.origin("ops.listen").unwrap().to_string();
    assert_eq!(origin, "the environment variable BELLBIRD_OPS__LISTEN");
    assert!(settings.origin("console.listen").is_none());

    // An empty variable unsets an optional setting.
    let file = from_file("[api]\npublic_url = \"https://a.example/\"\n");
    let url = load(&file).api.public_url;
    assert_eq!(url.as_deref(), Some("https://a.example"));
    let unset = with_variable(file, "BELLBIRD_API__PUBLIC_URL", "");
    assert_eq!(load(&unset).api.public_url, None);
}

#[test]
fn booleans_and_lists_are_parsed() {
    let settings = load(&from_file(
        "[sync]\nenabled = false\n[webhooks]\nallow_loopback = true\nattempt_delays_seconds = [0, 7]",
    ));
    assert!(!settings.sync.enabled && settings.webhooks.rules.allow_loopback);
    assert_eq!(settings.webhooks.schedule, schedule(&[0, 7]));
    let settings = load(&from_file("[webhooks]\nattempt_delays_seconds = [30, 31]"));
    assert_eq!(settings.webhooks.schedule, schedule(&[30, 31]));
    let sources = variable("BELLBIRD_WEBHOOKS__ATTEMPT_DELAYS_SECONDS", "0, 1,2");
    let settings = load(&with_variable(sources, "BELLBIRD_SYNC__ENABLED", "false"));
    assert_eq!(settings.webhooks.schedule, schedule(&[0, 1, 2]));
    assert!(!settings.sync.enabled);

    let file = from_file(
        "[api]\ntrusted_proxies = [\"10.0.0.0/8\", \"::1\"]\ncors_origins = [\"https://App.example\"]\n",
    );
    let context = load(&file).api_context;
    let networks = ["10.0.0.0/8", "::1"].map(|text| text.parse().unwrap());
    assert_eq!(context.trusted_proxies, networks);
    assert_eq!(context.cors_origins, ["https://app.example"]);
    let sources = with_variable(file, "BELLBIRD_API__TRUSTED_PROXIES", "192.0.2.1, ");
    let context = load(&sources).api_context;
    assert_eq!(context.trusted_proxies, ["192.0.2.1".parse().unwrap()]);
}

#[test]
fn environment_values_stay_text() {
    for secret in [
        "0123",
        "true",
        "1e3",
        "[a]",
        "\"quoted\"",
        "  blank  ",
        "a=b",
    ] {
        let sources = variable("BELLBIRD_FISKIL__CLIENT_SECRET", secret);
        let sources = with_variable(sources, "BELLBIRD_FISKIL__CLIENT_ID", "0042");
        let mut settings = load(&sources);
        let declared = &bellbird_providers::fiskil::DECLARATION;
        let fiskil = settings.providers.section(declared);
        assert_eq!(fiskil.get("client_secret"), Some(secret));
        assert_eq!(fiskil.get("client_id"), Some("0042"));
    }
}

/// All settings that providers declare.
fn provider_settings() -> impl Iterator<Item = (&'static Declaration, &'static Setting)> {
    PROVIDERS.iter().flat_map(|provider| {
        let settings = provider.settings.iter();
        settings.map(move |setting| (*provider, setting))
    })
}

#[test]
fn every_provider_is_a_section_of_its_own() {
    let settings = Settings::names();
    let mut names: Vec<_> = settings
        .iter()
        .map(|name| name.split_once('.').unwrap().0)
        .collect();
    names.dedup();
    let after_secrets = names.iter().position(|name| *name == "secrets").unwrap() + 1;
    let providers: Vec<_> = PROVIDERS
        .iter()
        .map(|provider| provider.name.as_str())
        .collect();
    assert_eq!(
        names[after_secrets..after_secrets + providers.len()],
        providers
    );
    let mut distinct = names.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), names.len(), "{names:?}");
}

#[test]
fn provider_settings_are_read_from_every_source() {
    for (provider, setting) in provider_settings() {
        let (written, read, other) = match setting.form {
            Form::Url(_) => (
                "https://a.example/v1/",
                "https://a.example/v1",
                "http://127.0.0.1:1",
            ),
            Form::Text | Form::Secret => ("from the file", "from the file", "0123"),
        };
        let (section, key) = (provider.name.as_str(), setting.name);
        let file = from_file(&format!("[{section}]\n{key} = \"{written}\"\n"));
        let name = format!("{section}.{key}");
        let mut settings = load(&file);
        let value = settings.providers.section(provider).get(key);
        assert_eq!(value, Some(read), "{name}");
        let origin = settings.origin(&name).unwrap().to_string();
        assert!(origin.ends_with(", line 2"), "{origin}");

        let variable = format!("BELLBIRD_{section}__{key}").to_ascii_uppercase();
        let mut settings = load(&with_variable(file, &variable, other));
        let value = settings.providers.section(provider).get(key);
        assert_eq!(value, Some(other), "{name}");
        let origin = settings.origin(&name).unwrap().to_string();
        assert_eq!(origin, format!("the environment variable {variable}"));
    }
}

#[test]
fn invalid_provider_setting_hides_secrets() {
    for (provider, setting) in provider_settings() {
        let (section, key) = (provider.name, setting.name);
        let name = format!("{section}.{key}");
        let error = error_of(&from_file(&format!("[{section}]\n{key} = 98765\n")));
        let message = match setting.form {
            Form::Url(_) => {
                " is `98765` in FILE, line 2: it must be a URL such as https://example.com, "
            }
            Form::Text => " is `98765` in FILE, line 2: it must be text, in quotes",
            Form::Secret => " in FILE, line 2: it must be text, in quotes",
        };
        assert_starts(&error, &format!("{name}{message}"));
        if setting.form == Form::Secret {
            let file = from_file(&format!("[{section}]\n{key} = \"98765\"\n"));
            assert_lacks(&format!("{:?}", load(&file)), "98765");
        }
    }
    for provider in PROVIDERS {
        let known: Vec<_> = provider
            .settings
            .iter()
            .map(|setting| setting.name)
            .collect();
        let (name, known) = (provider.name, known.join(", "));
        let error = error_of(&from_file(&format!("[{name}]\nsecert = \"98765\"\n")));
        assert_eq!(
            error,
            format!("unknown setting `{name}.secert` in FILE, line 2: section {name} has {known}")
        );
    }
}

/// Whoever connects from there is believed about the client, so nobody takes a network over from
/// the example.
#[test]
fn example_for_kubernetes_trusts_no_network() {
    let example = include_str!("../../../../../deploy/kubernetes/example/kustomization.yaml");
    let name = "BELLBIRD_API__TRUSTED_PROXIES";
    let (_, value) = example.split_once(&format!("- {name}=")).unwrap();
    let error = error_of(&variable(name, value.lines().next().unwrap()));
    assert_has(&error, "api.trusted_proxies");
    assert_has(&error, "CIDR");
}

#[test]
fn identity_provider_is_set_whole_or_not_at_all() {
    let load = |lines: &str| Settings::load(&from_file(&format!("[oidc]\n{lines}")));
    let error = |lines: &str| load(lines).unwrap_err().to_string();
    let rest = "client_id = \"bellbird\"\nclient_secret = \"98765\"\n";
    for issuer in [
        "https://login.example/",
        "https://login.example/realms/home",
        "http://localhost:9000",
    ] {
        let settings = load(&format!("issuer = \"{issuer}\"\n{rest}")).unwrap();
        assert_lacks(&format!("{settings:?}"), "98765");
        let oidc = settings.pages.oidc.unwrap();
        assert_eq!(oidc.issuer, issuer);
        assert_eq!(oidc.client_id, "bellbird");
        assert_eq!(oidc.create_users, None);
    }
    let path = secret_file("from-a-file\n");
    let in_file = format!(
        "issuer = \"https://login.example\"\nclient_id = \"b\"\nclient_secret_file = \"{path}\""
    );
    let oidc = load(&in_file).unwrap().pages.oidc.unwrap();
    assert_eq!(oidc.client_secret.expose_secret(), "from-a-file");
    for issuer in [
        "http://login.example",
        "https://login.example/?a=b",
        "login.example",
        "https://u:p@login.example",
    ] {
        let error = error(&format!("issuer = \"{issuer}\"\n{rest}"));
        assert_starts(&error, "oidc.issuer is ");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    for lines in [
        rest,
        "issuer = \"https://login.example\"\n",
        "create_users = \"saver\"\n",
        "operators_only_here = true\n",
    ] {
        assert_eq!(
            error(lines),
            "oidc: issuer, client_id and client_secret belong together: set all three, or none"
        );
    }
    assert!(load("create_users = \"\"\n").unwrap().pages.oidc.is_none());
    let gold = "issuer = \"https://login.example\"\ncreate_users = \"gold\"\n";
    let error = error(&format!("{gold}{rest}"));
    assert_starts(&error, "oidc.create_users is `gold`");
    assert_has(&error, "a plan: ");
}

/// What a file says, and the error that it gets: the setting, its value unless it is a secret, what
/// it must be, and where it is set.
#[test]
fn errors_of_files() {
    let files = [
        "[api]\n\nlisten = \"8080\"",
        "[api]\nlisten = 8080",
        "[api]\nlistne = 1",
        "[reads]\nrow_cap = 0",
        "[reads]\ndeadline_seconds = 0",
        "[reads]\ndeadline_seconds = 31",
        "[reads]\ndeadline_seconds = 2.5",
        "[limits]\nlive_in_flight = -1",
        "[log]\nlevel = \"loud\"",
        "[log]\nformat = \"xml\"",
        "[api]\npublic_url = \"example.com\"",
        "[api]\ntrusted_proxies = [\"10.0.0.0/40\"]",
        "[api]\ncors_origins = [\"https://a.example/x\"]",
        "[admin]\nreturn_origins = [\"https://app.example/\"]",
        "[fiskil]\nclient_id = 12",
        "[akahu]\nbase_url = \"akahu\"",
        "[cache]\nholdings_seconds = 86401",
        "listen = \"x\"",
        "row_cap = 1",
        "[sync]\nfirst_days = 3651",
        "[api",
        "[api]\nlisten = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:2\"",
        "[fiskil]\nclient_id = \"a\"\n[api]\n[fiskil]\nclient_id = \"a\"",
        "[cluster]\nurl = \"redis://x\"\nport = 1",
        "[cluster]",
        "api = 1",
        "[sync]\nenabled = 1",
        "[sync]\nenabled = \"yes\"",
        "[webhooks]\nattempt_delays_seconds = []",
        "[webhooks]\nattempt_delays_seconds = [1.5]",
        "[webhooks]\nattempt_delays_seconds = [-1]",
        "[webhooks]\nattempt_delays_seconds = [0, 9999999]",
        "[webhooks]\nattempt_delays_seconds = [31, 31]",
        "[webhooks]\nchunk_rows = 501",
        "[fiskil]\nclient_secret = 98765",
        "[secrets]\nkey = 98765",
        "[database]\nurl = \"mysql://me:98765@host/db\"",
        "[secrets]\nkey_file = \"/nowhere/key\"",
        "[secrets]\nkey_file = 1",
        "[secrets]\nkey = \"a\"\nkey_file = \"/etc/passwd\"",
        "[log]\nlevel_file = \"Cargo.toml\"",
    ];
    let transcript = files.map(|file| format!("{file}\n    {}\n", error_of(&from_file(file))));
    insta::assert_snapshot!(without_providers(&transcript.join("\n")));

    // All errors are reported together.
    let file = from_file("[api]\nlisten = \"x\"\n[cache]\nballances = 1\n");
    let sources = with_variable(file, "BELLBIRD_LOG__LEVEL", "loud");
    assert_eq!(error_of(&sources).lines().count(), 3);

    // A named file must exist.
    let sources = Sources {
        file: Some("/nowhere/bellbird.toml".into()),
        ..Sources::default()
    };
    assert_starts(
        &error_of(&sources),
        "the settings file FILE cannot be read: No such file",
    );

    // An unknown variable is rejected with a hint.
    assert_eq!(
        error_of(&variable("BELLBIRD_API__LISTNE", "x")),
        "unknown setting `api.listne` in the environment variable BELLBIRD_API__LISTNE: section api has listen, \
         public_url, trusted_proxies, cors_origins"
    );
    assert_eq!(
        error_of(&variable("BELLBIRD_API_LISTEN", "x")),
        "unknown environment variable BELLBIRD_API_LISTEN: api.listen is BELLBIRD_API__LISTEN, with two underscores"
    );
    // A container platform sets variables of this form by itself.
    load(&variable("BELLBIRD_SERVICE_HOST", "x"));
}

#[test]
fn an_error_never_shows_a_secret() {
    let broken = error_of(&from_file("[fiskil]\nclient_secret = \"98765"));
    assert_lacks(&broken, "98765");
    let settings = load(&from_file(
        "[fiskil]\nclient_id = \"i\"\nclient_secret = \"98765\"\n[secrets]\nkey = \"98765\"\n\
         [database]\nurl = \"postgres://me:98765@h/d\"",
    ));
    assert_lacks(&format!("{settings:?}"), "98765");

    // The error of a secret file names the file.
    let path = secret_file("mysql://me:98765@host/db");
    let error = error_of(&variable("BELLBIRD_DATABASE__URL_FILE", &path));
    assert_starts(&error, &format!("database.url in the file {path}: "));
    assert_lacks(&error, "98765");
}

/// The path of a new file with a secret in it.
fn secret_file(secret: &str) -> String {
    from_file(secret).file.unwrap().display().to_string()
}

#[test]
fn secrets_are_read_from_files() {
    let postgres = "postgres://me:from-a-file@localhost/db";
    let mut secrets: Vec<_> = Settings::secret_names();
    assert_eq!(
        secrets[..4],
        [
            "database.url",
            "console.smtp_url",
            "oidc.client_secret",
            "secrets.key"
        ]
    );
    // Those that can be set alone, to anything.
    secrets.drain(..3);
    for name in &secrets {
        let (section, key) = name.split_once('.').unwrap();
        let path = secret_file("from-a-file\n");
        let in_file = from_file(&format!("[{section}]\n{key}_file = \"{path}\"\n"));
        let variable = format!("BELLBIRD_{section}__{key}_FILE").to_ascii_uppercase();
        // A variable overrides the file, also where one of them names a file.
        let old = from_file(&format!("[{section}]\n{key} = \"old\"\n"));
        let overridden = with_variable(old, &variable, &path);
        for sources in [in_file, overridden] {
            let mut settings = load(&sources);
            let mut providers = PROVIDERS.iter();
            let provider = providers.find(|provider| provider.name.as_str() == section);
            let value = match (section, provider) {
                (_, Some(provider)) => settings.providers.section(provider).get(key),
                ("redis", _) => {
                    let of_store = settings.shared_store.as_ref();
                    of_store.map(|of_store| of_store.url.expose_secret())
                }
                _ => settings
                    .master_keys
                    .as_ref()
                    .map(|keys| keys.expose_secret()),
            };
            assert_eq!(value, Some("from-a-file"), "{name}");
            let origin = settings.origin(name).unwrap().to_string();
            assert_eq!(origin, format!("the file {path}"));
        }
    }
    let sources = variable("BELLBIRD_DATABASE__URL_FILE", &secret_file(postgres));
    assert_eq!(load(&sources).database.url.expose_secret(), postgres);
}

#[test]
fn provider_is_called_in_plain_text_on_this_machine_only() {
    for (url, is_accepted) in [
        ("https://api.example", true),
        ("http://localhost:8090", true),
        ("http://127.0.0.1:8090/v1", true),
        ("http://[::1]:8090", true),
        ("http://api.example", false),
        ("http://localhost.example", false),
        ("http://127.0.0.1.example", false),
        ("http://192.168.1.2", false),
        ("http://0.0.0.0", false),
    ] {
        let is_url = |(_, setting): &(_, &Setting)| matches!(setting.form, Form::Url(_));
        for (provider, setting) in provider_settings().filter(is_url) {
            let (section, key) = (provider.name, setting.name);
            let file = from_file(&format!("[{section}]\n{key} = \"{url}\"\n"));
            let is_loaded = Settings::load(&file).is_ok();
            assert_eq!(is_loaded, is_accepted, "{section}.{key} = {url}");
        }
    }
}

#[test]
fn operator_name_is_one_short_line() {
    let name = |value: &str| {
        let file = from_file(&format!("[console]\noperator_name = \"{value}\"\n"));
        Settings::load(&file).map(|settings| settings.pages.operator_name)
    };
    let trimmed = name(" Māori & <Sons> ").unwrap();
    assert_eq!(trimmed.as_deref(), Some("Māori & <Sons>"));
    assert_eq!(name("  ").unwrap(), None);
    assert_eq!(name(&"ā".repeat(60)).unwrap(), Some("ā".repeat(60)));
    for wrong in ["a".repeat(61), "two\\nlines".to_owned()] {
        let error = name(&wrong).unwrap_err().to_string();
        assert_has(&error, "at most 60 characters, on one line");
    }
}

const EXAMPLE: &str = include_str!("../../../../../bellbird.example.toml");
const NO_DEFAULT: &str = "# No default; for example:";

/// Loads the example file with those settings uncommented whose preceding line passes the filter.
fn load_example(is_uncommented: impl Fn(&str) -> bool) -> Settings {
    let mut previous = "";
    let lines = EXAMPLE.lines().map(|line| {
        let setting = line
            .strip_prefix('#')
            .filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
        let shown = setting.filter(|_| is_uncommented(previous)).unwrap_or(line);
        previous = line;
        format!("{shown}\n")
    });
    Settings::load(&from_file(&lines.collect::<String>())).unwrap()
}

fn names_by_line(settings: &Settings) -> Vec<&str> {
    let mut names: Vec<_> = settings.origins.iter().collect();
    names.sort_by_key(|(_, origin)| match origin {
        Origin::File(_, line) => *line,
        other => panic!("{other}"),
    });
    names.into_iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn the_example_file_documents_every_setting() {
    assert_eq!(names_by_line(&load_example(|_| true)), Settings::names());
    let documented = load_example(|previous| previous.starts_with("# "));
    assert_eq!(names_by_line(&documented), Settings::names());
    let paragraphs = EXAMPLE.replace(&format!("{NO_DEFAULT}\n"), "");
    for (line, next) in paragraphs.lines().zip(paragraphs.lines().skip(1)) {
        let is_documented = next.starts_with("# ") || next.len() < 2 || line.starts_with("# ");
        assert!(is_documented, "no help text above {next}");
    }
}

#[test]
fn the_example_file_has_the_defaults() {
    let mut documented = load_example(|previous| previous != NO_DEFAULT);
    let set: Vec<_> = std::mem::take(&mut documented.origins)
        .into_keys()
        .collect();
    let mut defaults = Settings::load(&from_file("")).unwrap();
    assert!(defaults.origins.is_empty() && defaults.return_origins.is_empty());
    assert!(
        defaults.api_context.trusted_proxies.is_empty()
            && defaults.api_context.cors_origins.is_empty()
    );
    // A path in a file begins at the folder of the file.
    assert_eq!(
        documented.database.url.expose_secret(),
        format!("sqlite:{}/bellbird.db", env!("CARGO_TARGET_TMPDIR"))
    );
    assert_eq!(defaults.database.url.expose_secret(), "sqlite:bellbird.db");
    for (provider, setting) in provider_settings() {
        let default = match setting.form {
            Form::Url(default) => Some(default),
            Form::Text | Form::Secret => None,
        };
        let documented = documented.providers.section(provider).get(setting.name);
        assert_eq!(documented, default, "{}", provider.name);
    }
    // The defaults of the providers are in the registry.
    documented.providers = ProviderSettings::default();
    defaults.providers = ProviderSettings::default();
    (documented.file, defaults.file) = (None, None);
    // As they are written, to compare instances.
    (documented.effective, defaults.effective) = Default::default();
    assert_eq!(format!("{documented:?}"), format!("{defaults:?}"));

    let is_provider = |name: &str| {
        PROVIDERS
            .iter()
            .any(|provider| name.starts_with(provider.name.as_str()))
    };
    let mut names = Settings::names();
    names.retain(|name| !set.contains(name) && !is_provider(name));
    assert_eq!(
        names,
        [
            "backup.folder",
            "api.public_url",
            "api.trusted_proxies",
            "api.cors_origins",
            "console.public_url",
            "console.operator_name",
            "console.smtp_url",
            "console.mail_from",
            "oidc.issuer",
            "oidc.client_id",
            "oidc.client_secret",
            "oidc.create_users",
            "admin.listen",
            "admin.return_origins",
            "secrets.key",
            "redis.url",
            "sync.fiskil_interval_seconds",
            "sync.akahu_interval_seconds",
            "sync.snaptrade_interval_seconds",
            "traces.otlp_url"
        ]
    );
}

#[test]
fn relative_paths_in_a_file_begin_at_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bellbird.toml");
    let text = "[database]\nurl = \"sqlite:a.db\"\n\n[secrets]\nkey_file = \"a.key\"\n\n\
        [backup]\nfolder = \"saved\"\n";
    std::fs::write(&file, text).unwrap();
    std::fs::write(folder.path().join("a.key"), "main:key\n").unwrap();
    let sources = Sources {
        file: Some(file),
        ..Sources::default()
    };
    let url = |sources: &Sources| {
        let settings = Settings::load(sources).unwrap();
        settings.database.url.expose_secret().to_owned()
    };
    let in_folder = folder.path().join("a.db");
    assert_eq!(url(&sources), format!("sqlite:{}", in_folder.display()));
    let sources = with_variable(sources, "BELLBIRD_DATABASE__URL", "sqlite:b.db");
    assert_eq!(url(&sources), "sqlite:b.db");

    let backups = |sources: &Sources| Settings::load(sources).unwrap().backups;
    let made = backups(&sources).unwrap();
    assert_eq!((made.path, made.keep), (folder.path().join("saved"), 14));
    let other = with_variable(sources.clone(), "BELLBIRD_BACKUP__FOLDER", "other");
    let made = backups(&with_variable(other, "BELLBIRD_BACKUP__KEEP", "3")).unwrap();
    assert_eq!((made.path, made.keep), ("other".into(), 3));
    let none = with_variable(sources, "BELLBIRD_BACKUP__FOLDER", "");
    assert!(backups(&none).is_none());
}

/// Whoever sets it relies on backups, which the service would not make.
#[test]
fn folder_for_backups_is_rejected_with_postgres() {
    let database = "[database]\nurl = \"postgres://me:98765@host/db\"\n";
    let file = |lines: &str| from_file(&format!("{database}[backup]\n{lines}"));
    assert_eq!(
        error_of(&file("folder = \"backups\"")),
        "backup.folder is set in FILE, line 4, but the database is PostgreSQL: unset it, and back up with pg_dump, as \
         docs/backup.md says"
    );
    assert!(load(&file("folder = \"\"\nkeep = 3")).backups.is_none());
    let error = error_of(&from_file("[backup]\nkeep = 0"));
    assert_has(&error, "backup.keep is `0`");
}
