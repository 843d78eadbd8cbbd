//! Commands that end by themselves.

use std::net::TcpListener;

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::process::{Workdir, errors, text};

fn names(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Replaces ids, times and keys by values of the same length, so that columns stay aligned.
fn redacted(text: &str) -> String {
    let mut result = text.to_owned();
    for word in text.split_whitespace().map(|word| word.trim_end_matches(['.', ','])) {
        if word.parse::<Timestamp>().is_ok() {
            result = result.replace(word, "2026-01-01T00:00:00Z");
        } else if Uuid::try_parse(word).is_ok() {
            result = result.replace(word, &Uuid::nil().to_string());
        } else if word.starts_with("bb_") {
            result = result.replace(word, &format!("bb_{}", "x".repeat(word.len() - 3)));
        }
    }
    result
}

#[test]
fn help_texts() {
    let workdir = Workdir::new();
    let commands = [
        "",
        "demo",
        "serve",
        "sandbox",
        "migrate",
        "status",
        "doctor",
        "openapi",
        "completions",
        "user",
        "user add",
        "user list",
        "user show",
        "user set",
        "user remove",
        "key",
        "key create",
        "key list",
        "key rotate",
        "key revoke",
        "connection",
        "connection link",
        "connection import",
        "connection list",
        "connection show",
        "connection sync",
        "connection remove",
        "webhook",
        "webhook add",
        "webhook list",
        "webhook ping",
        "webhook rotate-secret",
        "webhook enable",
        "webhook disable",
        "webhook remove",
        "webhook deliveries",
        "webhook redeliver",
        "webhook recover",
        "secrets",
        "secrets rotate",
    ];
    let mut all = String::new();
    for command in commands {
        all.push_str(&format!("==== bellbird {command}\n\n{}\n", workdir.text(&format!("{command} --help"))));
    }
    insta::assert_snapshot!(without_providers(&all));
}

/// Replaces the list of providers, so that a new provider changes no snapshot.
fn without_providers(text: &str) -> String {
    let names: Vec<&str> =
        bellbird_providers::registry::PROVIDERS.iter().map(|provider| provider.name.as_str()).collect();
    text.replace(&names.join(", "), "PROVIDERS")
}

#[test]
fn user_lifecycle() {
    let workdir = Workdir::migrated();
    let added = workdir.json("user add --email Me@Example.com --plan developer --timezone Australia/Perth");
    assert_eq!(names(&added), ["createdAt", "email", "id", "plan", "timezone"]);
    assert_eq!(added["email"], "Me@Example.com");
    assert_eq!(added["plan"], "developer");
    assert_eq!(workdir.json("user list"), json!([added]));
    for reference in
        ["me@example.com", "--user ME@example.com", "--email me@example.com", added["id"].as_str().unwrap()]
    {
        assert_eq!(workdir.json(&format!("user show {reference}")), added);
    }
    let changed = workdir.json("user set me@example.com --plan saver --no-timezone");
    assert_eq!(changed["plan"], "saver");
    assert_eq!(changed["timezone"], Value::Null);
    assert_eq!(
        workdir.error("user add --email ME@example.com", 1),
        "error: the user ME@example.com already exists: change it with `bellbird user set ME@example.com`"
    );
    assert_eq!(workdir.json("user remove me@example.com"), changed);
    assert_eq!(workdir.json("user list"), json!([]));
    assert_eq!(
        workdir.error("user show me@example.com", 1),
        "error: there is no user me@example.com: `bellbird user list` shows all of them"
    );
}

#[test]
fn key_lifecycle() {
    let workdir = Workdir::migrated();
    workdir.json("user add --email me@example.com");
    let made = workdir.json("key create --user me@example.com --name laptop --expires 90d");
    assert_eq!(names(&made), ["createdAt", "expiresAt", "id", "key", "name", "prefix"]);
    let key = made["key"].as_str().unwrap();
    assert!(bellbird_domain::ApiKey::parse(key).is_ok() && key.starts_with(made["prefix"].as_str().unwrap()));
    let hours_valid = |key: &Value| {
        let at = |name: &str| key[name].as_str().unwrap().parse::<Timestamp>().unwrap();
        at("expiresAt").duration_since(at("createdAt")).as_hours()
    };
    assert_eq!(hours_valid(&made), 90 * 24);

    let id = made["id"].as_str().unwrap();
    let rotated = workdir.json(&format!("key rotate {id} --grace 1h"));
    assert_eq!(names(&rotated), names(&made));
    assert_eq!(hours_valid(&rotated), 90 * 24);
    assert_eq!(rotated["name"], "laptop");
    assert_ne!(rotated["key"], made["key"]);
    let list = workdir.json("key list --user me@example.com");
    assert_eq!(hours_valid(&list[0]), 1, "the grace period");
    assert_eq!(list[0]["status"], "active");
    assert_eq!(list[1]["status"], "active");

    workdir.json(&format!("key rotate {id} --grace 0s"));
    assert_eq!(workdir.json("key list")[0]["status"], "expired");
    let error = workdir.error(&format!("key rotate {id}"), 1);
    assert_eq!(error, format!("error: the key {id} is expired: create a new one with `bellbird key create`"));

    let revoked = workdir.json(&format!("key revoke {}", rotated["id"].as_str().unwrap()));
    assert_eq!(revoked["status"], "revoked");
    assert_eq!(revoked["user"], "me@example.com");
    let unknown_id = Uuid::nil();
    assert_eq!(
        workdir.error(&format!("key revoke {unknown_id}"), 1),
        format!("error: there is no key {unknown_id}: `bellbird key list` shows the ids")
    );
    assert!(!workdir.text("key list").contains(key));
    workdir.json("user remove me@example.com");
    assert_eq!(workdir.json("key list"), json!([]));
}

#[test]
fn human_readable_output() {
    let workdir = Workdir::migrated();
    let mut all = String::new();
    for line in [
        "migrate",
        "user list",
        "user add --email me@example.com --timezone Pacific/Auckland",
        "user add --email someone.else@example.com --plan saver",
        "user list",
        "user set me@example.com --plan developer",
        "key list",
        "key create --user me@example.com --name laptop",
        "key create --user someone.else@example.com --expires 24h",
        "key list",
        "connection list",
        "user remove someone.else@example.com",
    ] {
        all.push_str(&format!("$ bellbird {line}\n{}\n", redacted(&workdir.text(line))));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn wrong_usage_exits_with_2_and_explains() {
    let workdir = Workdir::new();
    for (line, message) in [
        ("", "Usage: bellbird"),
        ("fly", "unrecognized subcommand 'fly'"),
        ("user add --email me", "must be an e-mail address such as me@example.com"),
        ("user add --email me@example.com --plan gold", "[possible values: saver, developer, professional]"),
        ("user add --email me@example.com --timezone Sydney", "must be an IANA timezone such as Australia/Sydney"),
        ("user show", "required arguments were not provided"),
        ("user set me@example.com", "<--plan <PLAN>|--timezone <TZ>|--no-timezone>"),
        ("key create --user me@example.com --expires 5", "must be a whole number and a unit: 30s, 15m, 24h or 90d"),
        ("key create --user me@example.com --expires 0s", "must be longer than 0"),
        ("key rotate laptop", "not a hyphenated UUID"),
        ("serve --api-listen 8080", "invalid socket address"),
        ("serve --log-level loud", "[possible values: error, warn, info, debug, trace]"),
        ("demo --rows 0", "0 is not in 1..=1000000"),
        ("sandbox --akahu-listen 8091", "invalid socket address"),
        ("connection import --user me@example.com --provider acme --credentials -", "[possible values: "),
    ] {
        let error = workdir.error(line, 2);
        assert!(error.contains(message), "{line}: {error}");
    }
}

#[test]
fn failures_exit_with_1_and_explain() {
    let mut workdir = Workdir::new();
    assert_eq!(
        workdir.error("user list", 1),
        "error: the database is not set up for this version: run `bellbird migrate`"
    );
    assert_eq!(
        workdir.error("serve", 1),
        "error: secrets.key is not set, and stored secrets are encrypted with it: generate a key with \
         `head -c 32 /dev/urandom | base64`, set BELLBIRD_SECRETS__KEY=main:THE_OUTPUT, and keep a copy"
    );
    assert!(
        workdir
            .error("user list --config nowhere.toml", 1)
            .starts_with("error: the settings file nowhere.toml cannot be read")
    );
    workdir.set("BELLBIRD_SECRETS__KEY", "main:c2hvcnQ=");
    assert_eq!(
        workdir.error("serve", 1),
        "error: secrets.key cannot be used: master key number 1 must be base64 of exactly 32 bytes after its id"
    );
    workdir.set("BELLBIRD_FISKIL__CLIENT_SECRET", "s3cret");
    assert_eq!(
        workdir.error("serve", 1),
        "error: fiskil.client_id is not set, but other credentials of fiskil are: set BELLBIRD_FISKIL__CLIENT_ID, \
         or remove the others"
    );
    workdir.set("BELLBIRD_API__LISTNE", "127.0.0.1:1");
    assert!(workdir.error("serve", 1).starts_with("error: unknown setting `api.listne` in the environment variable"));
}

#[test]
fn occupied_port_error_names_its_setting() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let line = format!("demo --api-listen 127.0.0.1:0 --console-listen 127.0.0.1:0 --ops-listen {address}");
    assert_eq!(
        Workdir::new().error(&line, 1),
        format!(
            "error: ops cannot listen on {address} (set by the flag --ops-listen): another process uses this \
             port, perhaps another Bellbird"
        )
    );
}

#[test]
fn credentials_are_checked_before_any_call() {
    let mut workdir = Workdir::migrated();
    workdir.set("BELLBIRD_SECRETS__KEY", "main:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    workdir.json("user add --email me@example.com");
    for (input, options, message) in [
        ("nonsense with s3cret", "--provider fiskil", "the credentials are not a JSON object: see the example in"),
        ("[\"s3cret\"]", "--provider fiskil", "the credentials are not a JSON object: see the example in"),
        ("{\"endUserId\": \"s3cret\"}", "", "the credentials do not name their provider: pass it with --provider"),
        (
            "{\"provider\": \"akahu\"}",
            "--provider fiskil",
            "the credentials are for the provider akahu, not for fiskil",
        ),
        ("{\"endUserId\": \"s3cret\"}", "--provider fiskil", "the provider fiskil is not configured here: set its"),
        ("{\"provider\": \"akahu\", \"userToken\": \"s3cret\"}", "", "the provider akahu is not configured here: set"),
    ] {
        let output = workdir
            .run_with_input(&format!("connection import --user me@example.com --credentials - {options}"), input);
        assert_eq!(output.status.code(), Some(1));
        let error = errors(&output);
        assert!(error.starts_with(&format!("error: {message}")) && !error.contains("s3cret"), "{error}");
    }
    let error = workdir.error("connection import --user me@example.com --credentials nowhere.json", 1);
    assert!(error.starts_with("error: the credentials cannot be read from nowhere.json: No such file"), "{error}");
}

#[test]
fn doctor_reports_failures() {
    let mut workdir = Workdir::new();
    let free = "--api-listen 127.0.0.1:0 --console-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0";
    let verdicts = |workdir: &Workdir, code: i32| {
        let output = workdir.run(&format!("doctor --json {free}"));
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stdout));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["ok"], json!(code == 0));
        let wrong = report["checks"].as_array().unwrap().iter().filter(|check| check["verdict"] == "wrong");
        wrong.map(|check| check["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(verdicts(&workdir, 1), ["secrets.key", "database"]);
    assert!(workdir.folder.path().read_dir().unwrap().next().is_none(), "the doctor created a file");
    workdir.set("BELLBIRD_SECRETS__KEY", "main:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    workdir.json("migrate");
    assert_eq!(verdicts(&workdir, 0), [""; 0]);
    let text = workdir.text(&format!("doctor {free}"));
    insta::assert_snapshot!(without_providers(&text));
    workdir.set("BELLBIRD_FISKIL__CLIENT_ID", "id");
    assert_eq!(verdicts(&workdir, 1), ["providers"]);
    workdir.set("BELLBIRD_FISKIL__CLIENT_SECRET", "s3cret");
    workdir.set("BELLBIRD_FISKIL__BASE_URL", "http://127.0.0.1:1");
    assert_eq!(verdicts(&workdir, 1), ["fiskil"]);
    workdir.set("BELLBIRD_READS__ROW_CAP", "0");
    assert_eq!(verdicts(&workdir, 1), ["settings"]);
}

#[cfg(unix)]
#[test]
fn doctor_notes_files_that_others_may_open() {
    use std::os::unix::fs::PermissionsExt as _;

    let mut workdir = Workdir::new();
    let key = "main:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    std::fs::write(workdir.folder.path().join("key"), format!("{key}\n")).unwrap();
    std::fs::write(workdir.folder.path().join("bellbird.toml"), "[fiskil]\nwebhook_secret = \"x\"\n").unwrap();
    workdir.set("BELLBIRD_SECRETS__KEY_FILE", "key");
    workdir.json("migrate");
    let files = ["bellbird.db", "bellbird.toml", "key"];
    let set_mode = |file: &str, mode: u32| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(workdir.folder.path().join(file), permissions).unwrap();
    };
    let report = || {
        let report =
            workdir.json("doctor --api-listen 127.0.0.1:0 --console-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0");
        let checks = report["checks"].as_array().unwrap().iter().filter(|check| check["name"] == "files");
        checks.map(|check| format!("{} {}", text(check, "verdict"), text(check, "detail"))).collect::<Vec<_>>()
    };
    files.iter().for_each(|file| set_mode(file, 0o640));
    assert_eq!(report(), ["ok database, settings and keys are closed to other users of this machine"]);
    files.iter().for_each(|file| set_mode(file, 0o644));
    for (file, note) in files.iter().zip(report()) {
        assert!(note.starts_with("note ") && note.contains(&format!("{file} (mode 0644)")), "{note}");
    }
    assert_eq!(report().len(), files.len());
}

/// A URL that asks for less than TLS of a server elsewhere. Nothing listens there.
#[test]
fn doctor_notes_a_database_without_tls() {
    let mut workdir = Workdir::new();
    for (parameters, is_noted) in [("", false), ("?sslmode=prefer", true), ("?sslmode=disable", true)] {
        workdir.set("BELLBIRD_DATABASE__URL", &format!("postgres://me:x@0.0.0.0:1/db{parameters}"));
        let output = workdir.run("doctor --json --api-listen 127.0.0.1:0");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let notes = report["checks"].as_array().unwrap().iter().filter(|check| check["name"] == "database TLS");
        assert_eq!(notes.count(), usize::from(is_noted), "{parameters}: {report}");
    }
}

#[test]
fn documents_and_scripts_are_printed() {
    let workdir = Workdir::new();
    let document: Value = serde_json::from_str(&workdir.text("openapi")).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(workdir.text("openapi --yaml").lines().any(|line| line.starts_with("openapi:")));
    assert!(workdir.text("completions bash").contains("complete -F _bellbird"));
}
